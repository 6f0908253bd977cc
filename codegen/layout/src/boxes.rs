//! [`TileBoxes`]: how a tile in shared memory is cut into boxes that a tensor copy (TMA) moves at once.

use crate::error::invalid;
use crate::{Int, IntTuple, Layout, Result};

/// The maximum number of elements of a box in a dimension (PTX ISA, Tensors; CUDA Driver API,
/// `cuTensorMapEncodeTiled`).
const MAX_BOX: i64 = 256;
/// The row of a box is a multiple of this many bytes.
const ROW: i64 = 16;

/// A box, with the position of its first element in the tile and in shared memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TileBox {
    /// The coordinate of its first element in the tile, by dimension.
    pub at: Vec<i64>,
    /// The distance from the tile's first element in shared memory, in elements.
    pub offset: i64,
}

/// The boxes of a tile, all of the same extents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TileBoxes {
    /// The extent of a box in each dimension.
    pub extents: Vec<u16>,
    /// The boxes that together cover the tile.
    pub boxes: Vec<TileBox>,
}

/// A mode of the tile: its extents, each with the distance between neighbours in elements.
pub(crate) type Steps = Vec<(i64, i64)>;

impl TileBoxes {
    /// Cuts a tile into boxes. `shared` maps the tile's coordinates to elements in shared memory,
    /// which have `bytes` bytes each. `dims` names for each dimension of the tensor the mode of the
    /// tile that runs along it. Dimension 0 has stride 1. `None` stands for a dimension in which
    /// the tile has one element. `row` is the width of the swizzle in bytes, which the rows of a
    /// box must then have.
    ///
    /// A box is dense in shared memory, with dimension 0 first. Post: every element of the tile is
    /// in one box, and its place in shared memory is the box's place plus its place in the dense
    /// box.
    ///
    /// # Errors
    /// Fails if the layout is not static, a mode of the tile runs along no dimension, or the tile
    /// is not a sequence of such boxes.
    pub fn new(shared: &Layout, dims: &[Option<usize>], bytes: u32, row: Option<u32>) -> Result<TileBoxes> {
        let bytes = i64::from(bytes.max(1));
        let modes = (0..shared.rank()).map(|i| steps("tma", shared, i)).collect::<Result<Vec<_>>>()?;
        for (i, mode) in modes.iter().enumerate() {
            if !mode.is_empty() && !dims.contains(&Some(i)) {
                return invalid("tma", format!("mode {i} of {shared} runs along no mode of the tensor"));
            }
        }
        let mut pitch = 1;
        let mut extents = Vec::new();
        let mut boxes = vec![TileBox { at: Vec::new(), offset: 0 }];
        for (d, mode) in dims.iter().enumerate() {
            let steps = mode.and_then(|m| modes.get(m)).map_or(&[][..], |s| s);
            let max = row.filter(|_| d == 0).map_or(MAX_BOX, |row| i64::from(row) / bytes);
            let whole = if d == 0 { (ROW / bytes).max(1) } else { 1 };
            let extent = dense(steps, pitch, max, whole);
            if d == 0 {
                check_row(shared, extent * bytes, row)?;
            }
            let parts = starts(steps, extent);
            boxes = boxes.iter().flat_map(|b| parts.iter().map(|part| b.with(*part))).collect();
            extents.push(u16::try_from(extent).unwrap_or(u16::MAX));
            pitch *= extent;
        }
        if extents.iter().map(|e| i64::from(*e)).product::<i64>() * boxes.len() as i64
            != modes.iter().flatten().map(|(n, _)| n).product::<i64>()
        {
            return invalid("tma", format!("{shared} is not a sequence of dense boxes"));
        }
        Ok(TileBoxes { extents, boxes })
    }
}

impl TileBox {
    /// This box with one more dimension.
    fn with(&self, (at, offset): (i64, i64)) -> TileBox {
        let mut out = self.clone();
        out.at.push(at);
        out.offset += offset;
        out
    }
}

/// The limit of a tile's elements and of the distance between two. Shared memory is smaller than
/// this.
const MAX_ELEMENTS: i64 = 1 << 20;

/// The extents and strides of a mode. Extents of one element are dropped, and neighbours that
/// continue each other are merged. `what` names the operation in messages.
pub(crate) fn steps(what: &'static str, layout: &Layout, mode: usize) -> Result<Steps> {
    if !layout.size().as_const().is_some_and(|n| (1..=MAX_ELEMENTS).contains(&n)) {
        return invalid(what, format!("{layout} has no elements, or more than fit in shared memory"));
    }
    let mode = layout.mode(mode).unwrap_or_else(Layout::one);
    let (shape, stride) = (mode.shape().leaves(), mode.stride().leaves());
    let mut out: Steps = Vec::new();
    for (n, d) in shape.into_iter().zip(stride) {
        let (Some(n), Some(d)) = (n.as_const(), d.as_const()) else {
            return invalid(what, format!("{layout} is not known when the kernel is compiled"));
        };
        if !(-MAX_ELEMENTS..=MAX_ELEMENTS).contains(&d) {
            return invalid(what, format!("{layout} has the stride {d}, but strides must be positive"));
        }
        match out.last_mut() {
            _ if n == 1 => {}
            Some((m, e)) if *m * *e == d => *m *= n,
            _ => out.push((n, d)),
        }
    }
    Ok(out)
}

/// The greatest extent of a box along a mode whose elements lie `pitch` apart. It is at most
/// `max`, divides the mode's extent, and is a multiple of `whole`.
fn dense(steps: &[(i64, i64)], pitch: i64, max: i64, whole: i64) -> i64 {
    match steps.first() {
        Some((n, stride)) if *stride == pitch => {
            let fits = |extent: &i64| n % extent == 0 && extent % whole == 0;
            (1..=max.min(*n)).rev().find(fits).unwrap_or(1)
        }
        _ => 1,
    }
}

/// The first elements of parts of `extent` elements along a mode, as offsets in the tile and in
/// shared memory.
pub(crate) fn starts(steps: &[(i64, i64)], extent: i64) -> Vec<(i64, i64)> {
    let mut out = vec![(0, 0)];
    let mut before = 1;
    for (i, (n, stride)) in steps.iter().enumerate() {
        let step = if i == 0 { extent } else { 1 };
        let own = (0..n / step).map(|k| (k * step * before, k * step * stride));
        out =
            own.flat_map(|(a, o)| out.iter().map(move |(b, p)| (a + b, o + p)).collect::<Vec<_>>()).collect();
        before *= n;
    }
    out
}

fn check_row(shared: &Layout, has: i64, row: Option<u32>) -> Result<()> {
    match row {
        Some(row) if has != i64::from(row) => invalid(
            "tma",
            format!("a row of {shared} has {has} consecutive bytes, but its swizzle permutes rows of {row}"),
        ),
        None if has % ROW != 0 => invalid(
            "tma",
            format!("a row of {shared} has {has} consecutive bytes, but it must be a multiple of {ROW}"),
        ),
        _ => Ok(()),
    }
}

/// The layout of a tile in shared memory whose rows are split into panels of `width` elements that
/// follow each other, as tensor copies and matrix instructions expect it. `shape` is the tile's
/// shape and `major` is its contiguous mode. The modes after the first two are stages.
///
/// Post: the contiguous mode is `(width, panels)`; each panel has all elements of the other mode,
/// `width` apart.
///
/// # Errors
/// Fails if the shape has fewer than two modes, `major` is neither of them, or `width` does not
/// divide the contiguous one.
pub fn panels(shape: &[i64], major: usize, width: i64) -> Result<Layout> {
    let (Some(&row), Some(&rows)) = (shape.get(major), shape.get(1usize.wrapping_sub(major))) else {
        return invalid(
            "swizzled",
            "a tile must have at least two modes, and one of the first two must be contiguous".to_owned(),
        );
    };
    if width < 1 || row % width != 0 {
        return invalid("swizzled", format!("rows of {row} elements are not a multiple of {width}"));
    }
    let int = |n: i64| IntTuple::Int(Int::from(n));
    let count = row / width;
    let inner = match count {
        1 => (int(width), int(1)),
        _ => {
            (IntTuple::Tuple(vec![int(width), int(count)]), IntTuple::Tuple(vec![int(1), int(width * rows)]))
        }
    };
    let outer = (int(rows), int(width));
    let mut modes = if major == 0 { vec![inner, outer] } else { vec![outer, inner] };
    let mut size = row.saturating_mul(rows);
    for &stages in shape.get(2..).unwrap_or_default() {
        modes.push((int(stages), int(size)));
        size = size.saturating_mul(stages);
    }
    let (shapes, strides) = modes.into_iter().unzip();
    Layout::new(IntTuple::Tuple(shapes), IntTuple::Tuple(strides))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_layout;

    fn layout(text: &str) -> Layout {
        parse_layout(text, &mut |_| None).unwrap()
    }

    /// Checks that every element of the tile is at its place in exactly one box.
    fn covers(shared: &Layout, dims: &[Option<usize>], boxes: &TileBoxes) {
        let n = shared.size().as_const().unwrap();
        let mut seen = vec![0; n as usize];
        for b in &boxes.boxes {
            let total: i64 = boxes.extents.iter().map(|e| i64::from(*e)).product();
            for e in 0..total {
                let (mut coords, mut left) = (vec![0; shared.rank()], e);
                for (d, extent) in boxes.extents.iter().enumerate() {
                    let extent = i64::from(*extent);
                    if let Some(mode) = dims[d] {
                        coords[mode] = b.at[d] + left % extent;
                    }
                    left /= extent;
                }
                let coord = IntTuple::Tuple(coords.iter().map(|c| IntTuple::Int(Int::from(*c))).collect());
                assert_eq!(
                    shared.crd2idx(&coord).unwrap().as_const(),
                    Some(b.offset + e),
                    "{shared} {boxes:?}"
                );
                let index = layout_index(shared, &coords);
                seen[index as usize] += 1;
            }
        }
        assert!(seen.iter().all(|n| *n == 1), "{shared} {boxes:?}");
    }

    fn layout_index(shared: &Layout, coords: &[i64]) -> i64 {
        let mut index = 0;
        for (i, c) in coords.iter().enumerate().rev() {
            index = index * shared.mode(i).unwrap().size().as_const().unwrap() + c;
        }
        index
    }

    #[test]
    fn a_tile_is_cut_into_boxes() {
        for (text, dims, bytes, row, extents, count) in [
            ("(128,64):(64,1)", [Some(1), Some(0)], 2, Some(128), [64, 128], 1),
            ("(128,(64,4)):(64,(1,8192))", [Some(1), Some(0)], 2, Some(128), [64, 128], 4),
            ("(512,32):(32,1)", [Some(1), Some(0)], 2, Some(64), [32, 256], 2),
            ("(64,128):(1,64)", [Some(0), Some(1)], 2, Some(128), [64, 128], 1),
            ("(16,300):(300,1)", [Some(1), Some(0)], 4, None, [100, 1], 48),
            ("(1,8):(0,1)", [Some(1), Some(0)], 4, None, [8, 1], 1),
        ] {
            let shared = layout(text);
            let boxes = TileBoxes::new(&shared, &dims, bytes, row).unwrap();
            assert_eq!((&boxes.extents[..], boxes.boxes.len()), (&extents[..], count), "{text}");
            covers(&shared, &dims, &boxes);
        }
    }

    #[test]
    fn a_tile_that_is_not_a_sequence_of_boxes_is_an_error() {
        for (text, dims, bytes, row) in [
            ("(8,3):(3,1)", [Some(1), Some(0)], 2, None),
            ("(8,64):(64,1)", [Some(1), Some(0)], 2, Some(64)),
            ("(8,32):(32,1)", [Some(1), Some(0)], 2, Some(128)),
            ("(8,64):(64,1)", [Some(1), None], 2, Some(128)),
        ] {
            let shared = layout(text);
            match TileBoxes::new(&shared, &dims, bytes, row) {
                // A swizzle narrower than the rows cuts them, so the rows of a box are not
                // adjacent.
                Ok(boxes) => assert_eq!(boxes.extents[1], 1, "{text}"),
                Err(e) => assert!(e.to_string().contains("tma"), "{e}"),
            }
        }
    }

    #[test]
    fn panels_are_one_after_the_other() {
        assert_eq!(panels(&[128, 64], 1, 64).unwrap().to_string(), "(128,64):(64,1)");
        assert_eq!(panels(&[128, 256, 3], 1, 64).unwrap().to_string(), "(128,(64,4),3):(64,(1,8192),32768)");
        assert_eq!(panels(&[128, 64], 0, 64).unwrap().to_string(), "((64,2),64):((1,4096),64)");
        assert!(panels(&[128], 1, 64).is_err());
        assert!(panels(&[128, 96], 1, 64).is_err());
        assert!(panels(&[128, 64], 2, 64).is_err());
    }
}
