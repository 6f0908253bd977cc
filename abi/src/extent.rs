//! Integers and layouts that a launch completes: `(%2,64):(64,1)`.
//!
//! `%i` stands for the value of parameter i of the kernel: that of an integer, or the number of PEs
//! of a team. `%world` is the number of all PEs. The notation is otherwise that of layouts. Nothing
//! is known of a `%i` except its name.

use crate::WORLD;
use std::fmt;
use weft_layout::{Int, IntTuple, Layout, Value, Var, eval_with};

/// The symbol for the value of parameter `index`, or for the number of all PEs if the index is
/// [`WORLD`].
pub fn parameter(index: u32) -> Int {
    let name = if index == WORLD { WORLD_NAME.into() } else { format!("%{index}").into() };
    Int::var(Var { id: index, name, div: 1, min: i64::MIN, max: None })
}

const WORLD_NAME: &str = "%world";

/// An integer that can depend on parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extent(pub Int);

/// A shape and a stride that can depend on parameters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Extents {
    /// The extent of each mode.
    pub shape: IntTuple,
    /// The distance between consecutive elements in each mode, in elements.
    pub stride: IntTuple,
}

/// The values of integer parameters by index, and `None` for other parameters. The last value is
/// the number of all PEs.
pub type Values = [Option<i64>];

impl Extent {
    /// The value in a launch, or `None` if a parameter is not known.
    pub fn value(&self, values: &Values) -> Option<i64> {
        substitute(&self.0, values).as_const()
    }
}

impl Extents {
    /// The layout in a launch.
    ///
    /// # Errors
    /// Fails with the reason why there is no layout: an extent is negative, or a parameter is not
    /// known.
    pub fn layout(&self, values: &Values) -> Result<Layout, String> {
        let known = |t: &IntTuple| t.map(&mut |n| substitute(n, values));
        let layout = Layout::new(known(&self.shape), known(&self.stride)).map_err(|e| e.to_string())?;
        match layout.is_static() {
            true => Ok(layout),
            false => Err(format!("{layout} is not known at launch")),
        }
    }
}

fn substitute(n: &Int, values: &Values) -> Int {
    match n.as_const() {
        Some(_) => n.clone(),
        None => n.subst(&mut |v| {
            let value = if v.id == WORLD { values.last() } else { values.get(v.id as usize) };
            value.copied().flatten().map(Int::from)
        }),
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Extents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.shape, self.stride)
    }
}

impl From<&Layout> for Extents {
    fn from(l: &Layout) -> Extents {
        Extents { shape: l.shape().clone(), stride: l.stride().clone() }
    }
}

fn parse(text: &str) -> Result<Value, String> {
    let mut resolve = |name: &str| match name {
        WORLD_NAME => Some(parameter(WORLD)),
        name => name.strip_prefix('%')?.parse().ok().map(parameter),
    };
    eval_with(text, &mut resolve).map_err(|e| format!("`{text}`: {e}"))
}

impl std::str::FromStr for Extent {
    type Err = String;

    fn from_str(text: &str) -> Result<Extent, String> {
        match parse(text)? {
            Value::Int(n) => Ok(Extent(n)),
            other => Err(format!("`{text}` is {}, not an integer", other.kind())),
        }
    }
}

impl std::str::FromStr for Extents {
    type Err = String;

    fn from_str(text: &str) -> Result<Extents, String> {
        let tuple = |part: &str| match parse(part)? {
            Value::Int(n) => Ok(n.into()),
            Value::Tuple(t) => Ok(t),
            other => Err(format!("`{part}` is {}, not a tuple of integers", other.kind())),
        };
        let (shape, stride) =
            text.split_once(':').ok_or_else(|| format!("`{text}` is not of the form shape:stride"))?;
        let (shape, stride): (IntTuple, IntTuple) = (tuple(shape)?, tuple(stride)?);
        match shape.is_congruent(&stride) {
            true => Ok(Extents { shape, stride }),
            false => Err(format!("`{text}`: shape and stride differ in their nesting")),
        }
    }
}

crate::stored_as_text!(Extent, Extents);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reads_back_and_can_be_evaluated() {
        for (text, values, want) in [
            ("1003:1", vec![], Ok("1003:1")),
            ("(%1,64):(64,1)", vec![None, Some(5)], Ok("(5,64):(64,1)")),
            (
                "(ceil_div(%0,%2),(4,%2)):(4*%2,(%2,1))",
                vec![Some(17), None, Some(8)],
                Ok("(3,(4,8)):(32,(8,1))"),
            ),
            ("(%0-3):(1)", vec![Some(4)], Ok("(1):(1)")),
            ("(%0-3,2):(1,1)", vec![Some(2)], Err("negative")),
            ("(%0,2):(1,1)", vec![None], Err("%0")),
            ("(%world,%0):(%0,1)", vec![Some(3), Some(8)], Ok("(8,3):(3,1)")),
        ] {
            let extents: Extents = text.parse().unwrap();
            assert_eq!(extents.to_string().parse(), Ok(extents.clone()), "{text}");
            match (extents.layout(&values), want) {
                (Ok(l), Ok(want)) => assert_eq!(l.to_string(), want),
                (Err(e), Err(want)) => assert!(e.contains(want), "{e}"),
                (got, want) => panic!("{text}: {got:?}, not {want:?}"),
            }
        }
    }

    #[test]
    fn text_that_is_not_a_layout_is_an_error() {
        for text in ["", "4", "(4,2):(1)", "N:1", "4:1:1", "Sw<1,2,3>:1", "(4:1"] {
            assert!(text.parse::<Extents>().is_err(), "{text}");
        }
        assert!("(4,2)".parse::<Extent>().is_err());
        assert_eq!("ceil_div(%0,512)".parse::<Extent>().unwrap().value(&[Some(513)]), Some(2));
        assert_eq!("%0/%1".parse::<Extent>().unwrap().value(&[Some(513), Some(0)]), None);
    }
}
