//! Layouts of tiles in shared memory that tensor copies and matrix instructions accept.

use crate::{Layout, Result, Swizzle, panels};
use std::fmt;

/// The width in bytes of the rows that the narrowest swizzle permutes.
const NARROWEST: i64 = 32;

/// The layout of a tile of elements of `bytes` bytes with mode `major` contiguous. It consists of
/// [`panels`] and of the widest of the swizzles of 128, 64 and 32 bytes that divides a row. The
/// panels are as wide as the swizzle. The result is `None` if no swizzle divides a row.
///
/// # Errors
/// Fails where [`panels`] fails.
pub fn swizzled_panels(shape: &[i64], major: usize, bytes: u32) -> Result<Option<(Swizzle, Layout)>> {
    let row = shape.get(major).copied().unwrap_or(0);
    for bits in [3u32, 2, 1] {
        let width = (16i64 << bits) / i64::from(bytes.max(1));
        if row % width == 0 {
            return Ok(Some((Swizzle::new(bits, 4, 3)?, panels(shape, major, width)?)));
        }
    }
    Ok(None)
}

/// The accepted tile that is nearest to another tile. `Display` writes an expression for it, and
/// the value of the expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nearest {
    elem: String,
    shape: Vec<i64>,
    major: usize,
    swizzle: Swizzle,
    layout: Layout,
}

impl Nearest {
    /// The nearest tile to `tile`, whose elements have type `elem` and `bytes` bytes. It keeps the
    /// contiguous mode, which can be the first one only if `mn` is set. It has at most 31 more
    /// bytes in a row. The result is `None` for a layout that is not static or has one mode.
    pub fn new(tile: &Layout, (elem, bytes): (&str, u32), mn: bool) -> Option<Nearest> {
        let first = tile.mode(0)?.stride().leaves().first().is_some_and(|d| d.is(1));
        Nearest::along(tile, (elem, bytes), usize::from(!(mn && first)))
    }

    /// Does what [`new`](Nearest::new) does, with mode `major` contiguous.
    pub fn along(tile: &Layout, (elem, bytes): (&str, u32), major: usize) -> Option<Nearest> {
        let extent = |mode: usize| tile.mode(mode)?.size().as_const().filter(|n| *n > 0);
        let mut shape = (0..tile.rank()).map(extent).collect::<Option<Vec<_>>>()?;
        let unit = NARROWEST / i64::from(bytes.max(1));
        let row = shape.get_mut(major)?;
        *row = row.checked_add(unit - 1)? / unit * unit;
        let (swizzle, layout) = swizzled_panels(&shape, major, bytes).ok()??;
        Some(Nearest { elem: elem.to_owned(), shape, major, swizzle, layout })
    }
}

impl fmt::Display for Nearest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape: Vec<_> = self.shape.iter().map(i64::to_string).collect();
        let major = if self.major == 1 { "" } else { ", major = 0" };
        let Nearest { elem, swizzle, layout, .. } = self;
        write!(f, "`swizzled<{elem}>(({}){major})`, which is {swizzle} o {layout}", shape.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Operand, TileBoxes, parse_layout};

    #[test]
    fn the_contiguous_mode_may_be_given() {
        let rows = parse_layout("(64,32):(32,1)", &mut |_| None).unwrap();
        let turned = Nearest::along(&rows, ("bf16", 2), 0).unwrap();
        assert_eq!(
            turned.to_string(),
            "`swizzled<bf16>((64, 32), major = 0)`, which is Sw<3,4,3> o (64,32):(1,64)"
        );
        assert!(Nearest::along(&rows, ("bf16", 2), 2).is_none());
    }

    #[test]
    fn the_nearest_tile_is_found() {
        for (text, elem, bytes, mn, nearest) in [
            (
                "(64,3):(3,1)",
                "f16",
                2,
                true,
                "`swizzled<f16>((64, 16))`, which is Sw<1,4,3> o (64,16):(16,1)",
            ),
            (
                "(64,64):(64,1)",
                "bf16",
                2,
                true,
                "`swizzled<bf16>((64, 64))`, which is Sw<3,4,3> o (64,64):(64,1)",
            ),
            (
                "(64,64):(1,64)",
                "bf16",
                2,
                true,
                "`swizzled<bf16>((64, 64), major = 0)`, which is Sw<3,4,3> o (64,64):(1,64)",
            ),
            (
                "(64,64):(1,64)",
                "e4m3",
                1,
                false,
                "`swizzled<e4m3>((64, 64))`, which is Sw<2,4,3> o (64,64):(64,1)",
            ),
            (
                "(64,48):(100,2)",
                "f32",
                4,
                true,
                "`swizzled<f32>((64, 48))`, which is Sw<2,4,3> o (64,(16,3)):(16,(1,1024))",
            ),
        ] {
            let tile = parse_layout(text, &mut |_| None).unwrap();
            let found = Nearest::new(&tile, (elem, bytes), mn).unwrap();
            assert_eq!(found.to_string(), nearest);
            let (s, layout) = (Some(found.swizzle), &found.layout);
            assert!(Operand::new(layout, s, bytes).is_ok(), "{found}");
            let dims = if found.major == 1 { [Some(1), Some(0)] } else { [Some(0), Some(1)] };
            assert!(
                TileBoxes::new(layout, &dims, bytes, Some(16 << found.swizzle.bits())).is_ok(),
                "{found}"
            );
        }
        let open = parse_layout("(64,n):(1,64)", &mut |name| {
            (name == "n").then(|| crate::Int::var(crate::Var::extent(0, "n")))
        });
        assert_eq!(Nearest::new(&open.unwrap(), ("f32", 4), true), None);
    }
}
