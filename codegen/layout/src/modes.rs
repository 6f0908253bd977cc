//! The common interface of shapes, layouts, coordinates and tilers, which are trees whose children
//! are called modes.

use std::fmt::Display;

use crate::error::no_such_mode;
use crate::{Int, IntTuple, Layout, LayoutError, Mode, Result, Tiler};

/// A hierarchy of modes, with CuTe's functions that only rearrange them.
///
/// A leaf counts as its own only mode, so `rank` is 1, and `get(0)` is the leaf.
pub trait Modes: Clone + Display {
    /// The children of an inner node, or `None` for a leaf.
    fn children(&self) -> Option<Vec<Self>>;

    /// The inner node with these modes as children.
    fn from_modes(modes: Vec<Self>) -> Self;

    /// The top-level modes; the tree itself if it is a leaf.
    fn modes(&self) -> Vec<Self> {
        self.children().unwrap_or_else(|| vec![self.clone()])
    }

    /// The mode reached by `path`: `get<1,0>` is mode 0 of mode 1.
    ///
    /// # Errors
    /// Fails if there is no mode at the path.
    fn at(&self, path: &[usize]) -> Result<Self> {
        path.iter().try_fold(self.clone(), |t, &i| {
            let modes = t.modes();
            modes.get(i).cloned().ok_or_else(|| no_such_mode("get", i, modes.len(), &t))
        })
    }

    /// The modes `begin..end`, as a tuple.
    ///
    /// # Errors
    /// Fails if the range is reversed or reaches past the last mode.
    fn take(&self, begin: usize, end: usize) -> Result<Self> {
        let modes = self.modes();
        let range =
            modes.get(begin..end).ok_or_else(|| no_such_mode("take", end.max(begin), modes.len(), self))?;
        Ok(Self::from_modes(range.to_vec()))
    }

    /// The modes with the indices `which`, in that order, as a tuple.
    ///
    /// # Errors
    /// Fails if one of the modes does not exist.
    fn select(&self, which: &[usize]) -> Result<Self> {
        Ok(Self::from_modes(which.iter().map(|&i| self.at(&[i])).collect::<Result<_>>()?))
    }

    /// The layout with the modes `begin..end` gathered into one mode.
    ///
    /// Post: `flatten` is unchanged.
    ///
    /// # Errors
    /// Fails if the range is reversed or reaches past the last mode.
    fn group(&self, begin: usize, end: usize) -> Result<Self> {
        let mut modes = self.modes();
        if begin > end || end > modes.len() {
            return Err(no_such_mode("group", end.max(begin), modes.len(), self));
        }
        if begin < end {
            let inner: Vec<Self> = modes.drain(begin..end).collect();
            modes.insert(begin, Self::from_modes(inner));
        }
        Ok(Self::from_modes(modes))
    }

    /// The layout with `x` as another last mode.
    fn append(&self, x: Self) -> Self {
        let mut modes = self.modes();
        modes.push(x);
        Self::from_modes(modes)
    }

    /// The layout with `x` as another first mode.
    fn prepend(&self, x: Self) -> Self {
        let mut modes = self.modes();
        modes.insert(0, x);
        Self::from_modes(modes)
    }

    /// The layout with copies of `x` appended until it has rank `n`.
    ///
    /// # Errors
    /// Fails if it has more modes than `n`.
    fn append_to(&self, n: usize, x: Self) -> Result<Self> {
        extend(self, n, x, "append", |modes, copies| modes.into_iter().chain(copies).collect())
    }

    /// The layout with copies of `x` prepended until it has rank `n`.
    ///
    /// # Errors
    /// Fails if it has more modes than `n`.
    fn prepend_to(&self, n: usize, x: Self) -> Result<Self> {
        extend(self, n, x, "prepend", |modes, copies| copies.into_iter().chain(modes).collect())
    }

    /// The layout with mode `n` replaced by `x`.
    ///
    /// # Errors
    /// Fails if there is no mode `n`.
    fn replace(&self, n: usize, x: Self) -> Result<Self> {
        let Some(mut modes) = self.children() else {
            return if n == 0 { Ok(x) } else { Err(no_such_mode("replace", n, 1, self)) };
        };
        let rank = modes.len();
        *modes.get_mut(n).ok_or_else(|| no_such_mode("replace", n, rank, self))? = x;
        Ok(Self::from_modes(modes))
    }

    /// The leaves, from left to right.
    fn leaf_modes(&self) -> Vec<Self> {
        match self.children() {
            None => vec![self.clone()],
            Some(modes) => modes.iter().flat_map(Self::leaf_modes).collect(),
        }
    }

    /// The leaves as a tuple of depth 1. A leaf stays a leaf.
    fn flatten(&self) -> Self {
        if self.children().is_none() { self.clone() } else { Self::from_modes(self.leaf_modes()) }
    }

    /// The modes of a flat tuple nested as `profile` nests.
    ///
    /// Post: congruent with `profile`; `flatten` gives back the argument.
    ///
    /// # Errors
    /// Fails if `profile` has not as many leaves as this has modes.
    fn unflatten(&self, profile: &IntTuple) -> Result<Self> {
        fn fold<T: Modes>(profile: &IntTuple, rest: &mut impl Iterator<Item = T>) -> Option<T> {
            match profile {
                IntTuple::Int(_) => rest.next(),
                IntTuple::Tuple(t) => {
                    Some(T::from_modes(t.iter().map(|p| fold(p, rest)).collect::<Option<Vec<_>>>()?))
                }
            }
        }
        let mut modes = self.modes().into_iter();
        match (fold(profile, &mut modes), modes.next()) {
            (Some(tree), None) => Ok(tree),
            _ => Err(LayoutError::ProfileMismatch {
                function: "unflatten",
                what: "profile",
                given: profile.to_string(),
                against: self.to_string(),
                expected: "it needs one leaf for each mode",
            }),
        }
    }

    /// `((a,b,..),(x,y,..),..)` turned into `((a,x,..),(b,y,..),..)`.
    ///
    /// Post: an involution on tuples of tuples of one rank.
    ///
    /// # Errors
    /// Fails if the modes differ in rank.
    fn zip(&self) -> Result<Self> {
        let Some(rows) = self.children() else { return Ok(self.clone()) };
        let Some(first) = rows.first().and_then(Self::children) else {
            return Ok(Self::from_modes(vec![self.clone()]));
        };
        let rows: Vec<Vec<Self>> = rows.iter().map(|r| r.children().unwrap_or_default()).collect();
        if rows.iter().any(|r| r.len() != first.len()) {
            return Err(LayoutError::ProfileMismatch {
                function: "zip",
                what: "modes of",
                given: self.to_string(),
                against: "each other".into(),
                expected: "all modes must be tuples of one rank",
            });
        }
        let column = |j: usize| Self::from_modes(rows.iter().map(|r| r[j].clone()).collect());
        Ok(Self::from_modes((0..first.len()).map(column).collect()))
    }
}

fn extend<T: Modes>(
    t: &T,
    n: usize,
    x: T,
    function: &'static str,
    join: impl FnOnce(Vec<T>, Vec<T>) -> Vec<T>,
) -> Result<T> {
    let modes = t.modes();
    if n == modes.len() {
        return Ok(t.clone());
    }
    if n < modes.len() || n > crate::MAX_LEAVES {
        let reason = format!("{t} has rank {}, which cannot become {n}", modes.len());
        return Err(LayoutError::Invalid { function, reason });
    }
    let copies = vec![x; n - modes.len()];
    Ok(T::from_modes(join(modes, copies)))
}

impl Modes for IntTuple {
    fn children(&self) -> Option<Vec<Self>> {
        self.as_tuple().map(<[_]>::to_vec)
    }

    fn from_modes(modes: Vec<Self>) -> Self {
        IntTuple::Tuple(modes)
    }
}

impl Modes for Layout {
    fn children(&self) -> Option<Vec<Self>> {
        let (shapes, strides) = (self.shape().as_tuple()?, self.stride().as_tuple()?);
        Some(shapes.iter().zip(strides).map(|(s, d)| Layout::raw(s.clone(), d.clone())).collect())
    }

    fn from_modes(modes: Vec<Self>) -> Self {
        let (shapes, strides) = modes.into_iter().map(Layout::into_parts).unzip();
        Layout::raw(IntTuple::Tuple(shapes), IntTuple::Tuple(strides))
    }
}

/// `n` copies of `x`, or `x` itself if `n` is 1, as CuTe's `repeat` does.
pub(crate) fn repeat<T: Modes>(n: usize, x: T) -> T {
    if n == 1 { x } else { T::from_modes(vec![x; n]) }
}

/// The products of the top-level modes, as a tuple.
pub(crate) fn product_each(shape: &IntTuple) -> IntTuple {
    IntTuple::tuple(shape.as_modes().iter().map(IntTuple::product))
}

impl IntTuple {
    /// The products of its subtrees at the leaves of `guide`.
    ///
    /// # Errors
    /// Fails if `guide` nests deeper than this.
    pub fn product_like(&self, guide: &IntTuple) -> Result<IntTuple> {
        match (guide, self) {
            (IntTuple::Int(_), _) => Ok(self.product().into()),
            (IntTuple::Tuple(g), IntTuple::Tuple(t)) if g.len() == t.len() => {
                Ok(IntTuple::Tuple(t.iter().zip(g).map(|(t, g)| t.product_like(g)).collect::<Result<_>>()?))
            }
            _ => Err(LayoutError::ProfileMismatch {
                function: "product_like",
                what: "profile",
                given: guide.to_string(),
                against: self.to_string(),
                expected: "it must be weakly congruent with it",
            }),
        }
    }

    /// Whether every mode of this is an integer or nests as the mode of `other` does: `self <= other` among profiles.
    pub fn is_weakly_congruent(&self, other: &IntTuple) -> bool {
        match (self, other) {
            (IntTuple::Int(_), _) => true,
            (IntTuple::Tuple(a), IntTuple::Tuple(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.is_weakly_congruent(y))
            }
            _ => false,
        }
    }

    /// Whether every coordinate into this shape is also a coordinate into `other` with the same
    /// index. This holds if it is weakly congruent with `other` and the sizes are equal at its
    /// leaves.
    pub fn is_compatible(&self, other: &IntTuple) -> bool {
        match (self, other) {
            (IntTuple::Int(a), _) => *a == other.product(),
            (IntTuple::Tuple(a), IntTuple::Tuple(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.is_compatible(y))
            }
            _ => false,
        }
    }

    /// CuTe's `ceil_div` of tuples. It applies mode by mode, or spreads an integer divisor over the
    /// modes from the left.
    ///
    /// Post, for an integer divisor b of positive extents: the product of the result is at least
    /// `ceil(size / b)`.
    ///
    /// # Errors
    /// Fails if the divisor has more modes.
    pub fn ceil_div(&self, by: &IntTuple) -> Result<IntTuple> {
        match (self, by) {
            (IntTuple::Int(a), by) => Ok(a.ceil_div(&by.product()).into()),
            (IntTuple::Tuple(a), IntTuple::Int(b)) => {
                let mut rest = b.clone();
                let modes = a.iter().map(|a| {
                    let quotient = a.ceil_div(&rest.clone().into())?;
                    rest = rest.ceil_div(&a.product());
                    Ok(quotient)
                });
                Ok(IntTuple::Tuple(modes.collect::<Result<_>>()?))
            }
            (IntTuple::Tuple(a), IntTuple::Tuple(b)) if b.len() <= a.len() => {
                let one = IntTuple::Int(Int::ONE);
                let b = b.iter().chain(std::iter::repeat(&one));
                Ok(IntTuple::Tuple(a.iter().zip(b).map(|(a, b)| a.ceil_div(b)).collect::<Result<_>>()?))
            }
            _ => Err(LayoutError::ProfileMismatch {
                function: "ceil_div",
                what: "divisor",
                given: by.to_string(),
                against: self.to_string(),
                expected: "it may not have more modes",
            }),
        }
    }

    /// CuTe's `shape_div`. It does what [`IntTuple::ceil_div`] does, but one of two integers must
    /// divide the other.
    ///
    /// # Errors
    /// Fails if neither divides the other, that cannot be proven, or the tuples differ in rank.
    pub fn shape_div(&self, by: &IntTuple) -> Result<IntTuple> {
        match (self, by) {
            (IntTuple::Int(a), by) => Ok(divide_either_way(a, &by.product())?.into()),
            (IntTuple::Tuple(a), IntTuple::Int(b)) => {
                let mut rest = b.clone();
                let modes = a.iter().map(|a| {
                    let quotient = a.shape_div(&rest.clone().into())?;
                    rest = divide_either_way(&rest, &a.product())?;
                    Ok(quotient)
                });
                Ok(IntTuple::Tuple(modes.collect::<Result<_>>()?))
            }
            (IntTuple::Tuple(a), IntTuple::Tuple(b)) if b.len() == a.len() => {
                Ok(IntTuple::Tuple(a.iter().zip(b).map(|(a, b)| a.shape_div(b)).collect::<Result<_>>()?))
            }
            _ => Err(LayoutError::ProfileMismatch {
                function: "shape_div",
                what: "divisor",
                given: by.to_string(),
                against: self.to_string(),
                expected: "it needs as many modes",
            }),
        }
    }

    /// Whether `tiler` divides this shape mode by mode without a remainder.
    ///
    /// # Errors
    /// Fails if the division of a mode is not defined.
    pub fn evenly_divides(&self, tiler: &Tiler) -> Result<bool> {
        match tiler {
            Tiler::All => Ok(true),
            Tiler::Tuple(t) if t.len() > self.rank() => Ok(false),
            Tiler::Tuple(t) => {
                t.iter().zip(self.as_modes()).try_fold(true, |all, (t, s)| Ok(all && s.evenly_divides(t)?))
            }
            Tiler::Int(n) => {
                let rest = self.ceil_div(&n.into())?.product();
                Ok(self.product() == n * rest)
            }
            Tiler::Layout(l) => {
                let rest = l.complement(self)?.size();
                Ok(self.product() == l.size() * rest)
            }
        }
    }
}

/// `ceil(a / b)`, where one divides the other.
fn divide_either_way(a: &Int, b: &Int) -> Result<Int> {
    if a.is_divisible_by(b) || b.is_divisible_by(a) {
        return Ok(a.ceil_div(b));
    }
    let (function, mode) = ("shape_div", Mode::default());
    Err(match (a.as_const(), b.as_const()) {
        (Some(_), Some(_)) => LayoutError::NotDivisible { function, mode, value: a.clone(), by: b.clone() },
        _ => LayoutError::NotProvable {
            function,
            mode,
            condition: format!("one of {a} and {b} divides the other"),
        },
    })
}
