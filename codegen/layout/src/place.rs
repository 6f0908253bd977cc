//! The coordinate of an element from its offset.

use crate::Layout;

/// A leaf of a layout: its extent, its stride, and the number of its top-level mode.
type Leaf = (i64, i64, usize);

impl Layout {
    /// Returns the coordinate of the element at an offset, with one index for each top-level mode.
    /// The result is `None` if no element has that offset, or if the layout is not static or has a
    /// negative stride.
    ///
    /// Post: `self` maps the result to `offset`.
    pub fn coordinate(&self, offset: i64) -> Option<Vec<i64>> {
        let mut leaves: Vec<Leaf> = Vec::new();
        for m in 0..self.rank() {
            let mode = self.mode(m)?;
            let known = |n: &crate::Int| n.as_const().filter(|n| *n >= 0);
            for (extent, stride) in mode.shape().leaves().into_iter().zip(mode.stride().leaves()) {
                leaves.push((known(extent)?, known(stride)?, m));
            }
        }
        let mut order: Vec<usize> = (0..leaves.len()).collect();
        order.sort_by_key(|&leaf| leaves.get(leaf).map(|(_, stride, _)| std::cmp::Reverse(*stride)));
        let sorted: Vec<Leaf> = order.iter().filter_map(|&leaf| leaves.get(leaf).copied()).collect();
        let found = search(&sorted, offset)?;
        // The leaves of a mode count its index, and the first one varies fastest.
        let mut out = vec![(0, 1); self.rank()];
        for (leaf, (extent, _, mode)) in leaves.iter().enumerate() {
            let index = order.iter().position(|&at| at == leaf).and_then(|at| found.get(at))?;
            let (sum, size) = out.get_mut(*mode)?;
            (*sum, *size) = (*sum + index * *size, *size * extent);
        }
        Some(out.into_iter().map(|(index, _)| index).collect())
    }
}

/// Finds an index for each leaf so that their distances add up to `rest`. The leaves are in
/// descending order of strides, so the first attempt succeeds in layouts whose modes are nested.
fn search(leaves: &[Leaf], rest: i64) -> Option<Vec<i64>> {
    let Some(((extent, stride, _), inner)) = leaves.split_first() else {
        return (rest == 0).then(Vec::new);
    };
    let reach: i64 = inner.iter().map(|(extent, stride, _)| (extent - 1) * stride).sum();
    let last = rest.checked_div(*stride).unwrap_or(0).min(extent - 1);
    let indices = (0..=last).rev().take_while(|index| rest - index * stride <= reach);
    indices.into_iter().find_map(|index| {
        let mut found = search(inner, rest - index * stride)?;
        found.insert(0, index);
        Some(found)
    })
}

#[cfg(test)]
mod tests {
    use crate::{Int, Layout, parse_layout};

    fn layout(text: &str) -> Layout {
        parse_layout(text, &mut |_| None).unwrap()
    }

    #[test]
    fn the_element_at_each_offset() {
        for text in [
            "8:1",
            "(3,4):(4,1)",
            "(3,4):(5,1)",
            "(3,4):(1,3)",
            "(2,3):(3,2)",
            "((2,3),(2,2)):((1,8),(2,24))",
            "(4,3):(0,1)",
            "(2,(3,2),4,5):(1,(2,256),16,1024)",
        ] {
            let layout = layout(text);
            let size = layout.size().as_const().unwrap();
            let offset = |n: i64| layout.crd2idx(&Int::from(n).into()).unwrap().as_const().unwrap();
            for at in (0..size).map(offset) {
                let found = layout.coordinate(at).unwrap_or_else(|| panic!("{text} has an element at {at}"));
                // The colexicographic index of the coordinate.
                let extents = (0..layout.rank()).map(|m| layout.mode(m).unwrap().size().as_const().unwrap());
                let (index, _) = found.iter().zip(extents).fold((0, 1), |(n, step), (i, extent)| {
                    assert!((0..extent).contains(i), "{text}: {found:?}");
                    (n + i * step, step * extent)
                });
                assert_eq!(offset(index), at, "{text}: {found:?}");
            }
        }
    }

    #[test]
    fn an_offset_without_an_element() {
        let padded = layout("(3,4):(6,1)");
        assert_eq!(padded.coordinate(13), Some(vec![2, 1]));
        assert_eq!(padded.coordinate(4), None, "a gap");
        assert_eq!(padded.coordinate(99), None);
        assert_eq!(padded.coordinate(-1), None);
        assert_eq!(layout("(0,4):(4,1)").coordinate(0), None, "no element");
        assert_eq!(layout("(3):(-1)").coordinate(0), None);
    }
}
