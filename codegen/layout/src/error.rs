//! The errors of layout functions, which say what was rejected and in which mode.

use std::fmt::{self, Display, Formatter};

use crate::{Int, IntTuple, Poison};

/// The result of a layout function.
pub type Result<T> = std::result::Result<T, LayoutError>;

/// A mode of a layout as the path of indices that leads to it, outermost first. It is empty for the
/// whole layout.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Mode(pub Vec<usize>);

impl Mode {
    /// The path of this mode in a layout that contains this one as its mode `index`.
    pub(crate) fn inside(mut self, index: usize) -> Mode {
        self.0.insert(0, index);
        self
    }
}

impl Display for Mode {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [] => f.write_str("the only mode"),
            [one] => write!(f, "mode {one}"),
            path => write!(f, "mode <{}>", path.iter().map(usize::to_string).collect::<Vec<_>>().join(",")),
        }
    }
}

/// The reason why a layout function has no result. The text names the function, the mode and the
/// numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Shape and stride differ in their nesting.
    #[error(
        "shape {shape} and stride {stride} are not congruent: they must have the same nesting, with one \
         stride per extent"
    )]
    NotCongruent {
        /// The shape that was given.
        shape: IntTuple,
        /// The stride that was given.
        stride: IntTuple,
    },
    /// A coordinate, profile or tiler does not follow the profile it is applied to.
    #[error("{function}: {what} {given} does not fit {against}: {expected}")]
    ProfileMismatch {
        /// The layout function that failed.
        function: &'static str,
        /// What does not fit: "coordinate", "tiler", "profile", ...
        what: &'static str,
        /// The argument, as it is displayed.
        given: String,
        /// A description of the object that it was applied to.
        against: String,
        /// A description of an argument that would have been right.
        expected: &'static str,
    },
    /// An extent is negative, or cannot be proven not to be.
    #[error("{mode} has extent {extent}, but extents are never negative")]
    NegativeExtent {
        /// The mode that has the extent.
        mode: Mode,
        /// The extent that was given.
        extent: Int,
    },
    /// A function was called with the index of a mode that does not exist.
    #[error("{function}: there is no mode {mode} in {of}, which has rank {rank}")]
    NoSuchMode {
        /// The layout function that failed.
        function: &'static str,
        /// The index of the missing mode.
        mode: usize,
        /// The number of modes that exist.
        rank: usize,
        /// A description of what was indexed.
        of: String,
    },
    /// In a composition, the stride of a mode of the right-hand side must step over whole modes of
    /// the left-hand side.
    #[error(
        "composition: {mode} of the right-hand side has stride {stride}, which must be a multiple of the left-hand \
         side's extent {extent} or smaller than it"
    )]
    StrideDivisibility {
        /// The mode of the right-hand side.
        mode: Mode,
        /// The part of its stride that remains at the mode of the left-hand side in question.
        stride: Int,
        /// The extent of that mode of the left-hand side.
        extent: Int,
    },
    /// In a composition, the extent of a mode of the right-hand side must fill whole modes of the
    /// left-hand side.
    #[error(
        "composition: {mode} of the right-hand side has extent {extent} with stride {stride}, which must fill the \
         left-hand side's extent {by} evenly"
    )]
    ShapeDivisibility {
        /// The mode of the right-hand side.
        mode: Mode,
        /// The part of its extent that remains at the mode of the left-hand side in question.
        extent: Int,
        /// The part of its stride that remains at that mode.
        stride: Int,
        /// The extent of that mode of the left-hand side.
        by: Int,
    },
    /// In a composition, modes of the right-hand side overlap in a mode of the left-hand side.
    #[error(
        "composition: together the modes of the right-hand side reach {reach} in coalesced mode {mode} of the left-hand \
         side, past its extent {extent}, so no layout is their composition"
    )]
    Carry {
        /// The mode of the coalesced left-hand side.
        mode: usize,
        /// The greatest coordinate that the modes reach together.
        reach: Int,
        /// The extent of that mode of the left-hand side.
        extent: Int,
    },
    /// A condition that can hold at run time but cannot be proven from the divisibility and bounds
    /// of the variables.
    #[error(
        "{function}: {mode}: cannot prove that {condition}; declare the divisibility or bounds of its variables"
    )]
    NotProvable {
        /// The layout function that failed.
        function: &'static str,
        /// The mode in which it failed.
        mode: Mode,
        /// The condition that would have to hold.
        condition: String,
    },
    /// In a complement, two modes overlap, or interleave without nesting.
    #[error(
        "complement: stride {stride} of {layout} is not a multiple of {span}, the span of the modes below it: modes overlap"
    )]
    Overlap {
        /// The layout after `filter`, as it is displayed.
        layout: String,
        /// The stride that is too small.
        stride: Int,
        /// The span it collides with.
        span: Int,
    },
    /// A division has a remainder where CuTe asserts that it has none.
    #[error("{function}: {mode}: {value} is not divisible by {by}")]
    NotDivisible {
        /// The layout function that failed.
        function: &'static str,
        /// The mode in which it failed.
        mode: Mode,
        /// The dividend of the inexact division.
        value: Int,
        /// The divisor of the inexact division.
        by: Int,
    },
    /// A function that needs constants met a symbolic value.
    #[error("{function}: {mode}: {value} must be a constant here")]
    NotConstant {
        /// The layout function that failed.
        function: &'static str,
        /// The mode in which it failed.
        mode: Mode,
        /// The symbolic value that was found.
        value: Int,
    },
    /// An argument for which the function is not defined.
    #[error("{function}: {reason}")]
    Invalid {
        /// The layout function that failed.
        function: &'static str,
        /// A text that says what is wrong and what to do.
        reason: String,
    },
    /// The result of an arithmetic operation cannot be represented.
    #[error("{function}: {}", match poison {
        Poison::Overflow => "a number left the range of 64-bit signed integers",
        Poison::Undefined => "division by zero",
        Poison::TooComplex => "a symbolic expression grew too large; bind some variables to constants",
    })]
    Arithmetic {
        /// The layout function that failed.
        function: &'static str,
        /// The reason why the result does not exist.
        poison: Poison,
    },
    /// The layout has more nesting or more elements than the function accepts.
    #[error("{function}: {what} {value} is over the limit of {limit}")]
    TooLarge {
        /// The layout function that failed.
        function: &'static str,
        /// The quantity that is too large.
        what: &'static str,
        /// How large it is.
        value: String,
        /// The greatest value that is accepted.
        limit: i64,
    },
}

pub(crate) fn no_such_mode(
    function: &'static str,
    mode: usize,
    rank: usize,
    of: &dyn Display,
) -> LayoutError {
    LayoutError::NoSuchMode { function, mode, rank, of: of.to_string() }
}

pub(crate) fn invalid<T>(function: &'static str, reason: impl Into<String>) -> Result<T> {
    Err(LayoutError::Invalid { function, reason: reason.into() })
}

impl LayoutError {
    /// The stable code of the error, from `L01` on. Each variant has one.
    pub fn code(&self) -> &'static str {
        match self {
            LayoutError::NotCongruent { .. } => "L01",
            LayoutError::ProfileMismatch { .. } => "L02",
            LayoutError::NegativeExtent { .. } => "L03",
            LayoutError::NoSuchMode { .. } => "L04",
            LayoutError::StrideDivisibility { .. } => "L05",
            LayoutError::ShapeDivisibility { .. } => "L06",
            LayoutError::NotProvable { .. } => "L07",
            LayoutError::Overlap { .. } => "L08",
            LayoutError::NotDivisible { .. } => "L09",
            LayoutError::NotConstant { .. } => "L10",
            LayoutError::Invalid { .. } => "L11",
            LayoutError::Arithmetic { .. } => "L12",
            LayoutError::TooLarge { .. } => "L13",
            LayoutError::Carry { .. } => "L14",
        }
    }

    /// The same error as seen from a larger layout that contains this one as mode `index`.
    pub(crate) fn inside(mut self, index: usize) -> Self {
        match &mut self {
            LayoutError::NegativeExtent { mode, .. }
            | LayoutError::StrideDivisibility { mode, .. }
            | LayoutError::ShapeDivisibility { mode, .. }
            | LayoutError::NotProvable { mode, .. }
            | LayoutError::NotDivisible { mode, .. }
            | LayoutError::NotConstant { mode, .. } => *mode = std::mem::take(mode).inside(index),
            _ => {}
        }
        self
    }
}
