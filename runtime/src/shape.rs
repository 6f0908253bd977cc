//! Shapes are the types that give a tensor's extents, and the memory that a tensor needs.

use crate::error::{Error, Result, SHAPE};
use weft_layout::{Int, IntTuple, Layout};

/// A type that gives a tensor's shape: a layout, or extents. Extents make a compact layout whose
/// last extent varies fastest, as in NumPy and DLPack.
pub trait IntoLayout {
    /// Converts the shape to a layout.
    ///
    /// # Errors
    /// Fails if the extents do not make a layout (R0307).
    fn into_layout(self) -> Result<Layout>;
}

impl IntoLayout for Layout {
    fn into_layout(self) -> Result<Layout> {
        Ok(self)
    }
}

impl IntoLayout for &Layout {
    fn into_layout(self) -> Result<Layout> {
        Ok(self.clone())
    }
}

/// Parses CuTe's notation, such as `"(4,8):(8,1)"`.
impl IntoLayout for &str {
    fn into_layout(self) -> Result<Layout> {
        weft_layout::parse_layout(self, &mut |_| None)
            .map_err(|e| Error::new(SHAPE, format!("`{self}` is not a layout: {e}")))
    }
}

impl IntoLayout for &[usize] {
    fn into_layout(self) -> Result<Layout> {
        let int = |n: &usize| Int::from(i64::try_from(*n).unwrap_or(i64::MAX));
        let shape: IntTuple = match self {
            [n] => int(n).into(),
            many => many.iter().map(|n| int(n).into()).collect::<Vec<IntTuple>>().into(),
        };
        Layout::row_major(shape).map_err(|e| Error::new(SHAPE, format!("extents {self:?}: {e}")))
    }
}

impl<const N: usize> IntoLayout for [usize; N] {
    fn into_layout(self) -> Result<Layout> {
        self.as_slice().into_layout()
    }
}

impl IntoLayout for usize {
    fn into_layout(self) -> Result<Layout> {
        [self].into_layout()
    }
}

/// The number of elements from the first to the last of a layout.
pub(crate) fn memory_elements(layout: &Layout) -> Result<usize> {
    let down = layout.stride().leaves().iter().any(|d| d.lower_bound() < 0);
    let elements = if layout.size().is(0) { Some(0) } else { layout.cosize().as_const() };
    match elements.and_then(|n| usize::try_from(n).ok()) {
        Some(n) if !down => Ok(n),
        _ => {
            let message = format!("memory cannot be allocated for the layout {layout}");
            Err(Error::new(SHAPE, message)
                .help("give extents and strides as numbers, with strides that are not negative"))
        }
    }
}

/// Returns the number of elements of a layout that covers this number of elements in memory without
/// gaps.
///
/// # Errors
/// Fails if there are gaps between the elements, or if several share a position (R0307).
pub(crate) fn without_gaps(what: &str, layout: &Layout, elements: usize) -> Result<usize> {
    match layout.size().as_const() {
        Some(n) if usize::try_from(n).ok() == Some(elements) => Ok(elements),
        _ => Err(Error::new(
            SHAPE,
            format!("{what} needs a tensor without gaps, but the tensor has layout {layout}"),
        )
        .help("move it part by part, or in a kernel")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_layout::parse_layout;

    #[test]
    fn memory_reaches_from_the_first_element_to_the_last() {
        let elements =
            |text| memory_elements(&parse_layout(text, &mut |_| None).unwrap()).map_err(|e| e.code);
        assert_eq!(elements("(4,8):(8,1)"), Ok(32));
        assert_eq!(elements("(4,8):(10,1)"), Ok(38));
        assert_eq!(elements("(0,8):(8,1)"), Ok(0));
        assert_eq!(elements("4:-1"), Err(SHAPE));
        assert_eq!(elements("(2,2):(9223372036854775807,9223372036854775807)"), Err(SHAPE));
    }
}
