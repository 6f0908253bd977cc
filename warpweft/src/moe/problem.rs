//! Problems and plans of mixtures of experts.

use super::model::{self, Bytes, Estimate};
use crate::collective::Links;
use crate::gemm::Machine;
use std::fmt;
use std::str::FromStr;
use weft_lang::elaborate::Define;
use weft_runtime::{DType, Error, error};

/// Tokens, experts, and the product of each expert.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Problem {
    /// The largest number of tokens of a PE.
    pub tokens: u64,
    /// The number of columns of a token.
    pub hidden: u64,
    /// The number of columns of a result.
    pub columns: u64,
    /// The number of experts of all PEs together.
    pub experts: u32,
    /// The number of experts of a token.
    pub choices: u32,
    /// Element type of tokens and of the experts' matrices.
    pub dtype: DType,
    /// Element type of results.
    pub out: DType,
    /// The number of rows that a PE has room for. By default, there is room for any route.
    pub max_rows: Option<u64>,
}

impl Problem {
    /// The rows of each expert begin at a multiple of this number, which is the number of rows of a
    /// tile.
    pub const ALIGN: u64 = 128;

    /// A problem whose results have as many columns as tokens and the same type, with room for any
    /// route. If tokens have 8 bits, results are bf16.
    pub fn new(tokens: u64, hidden: u64, experts: u32, choices: u32, dtype: DType) -> Problem {
        let out = if dtype.bytes() == 1 { DType::BF16 } else { dtype };
        let (columns, max_rows) = (hidden, None);
        Problem { tokens, hidden, columns, experts, choices, dtype, out, max_rows }
    }

    /// Whether tokens and matrices have scales. Those of 8 bits do.
    pub fn is_scaled(&self) -> bool {
        self.dtype.bytes() == 1
    }

    /// The number of choices of all tokens of a PE.
    pub(super) fn entries(&self) -> u64 {
        self.tokens.saturating_mul(self.choices.into())
    }

    /// Whether the model expects the form for few tokens to take less time on so many PEs than the one for many.
    pub fn is_few(&self, pes: u32) -> bool {
        model::is_few(self, pes, &Links::H200)
    }

    /// Returns the bytes that a dispatch and the way back on `pes` PEs move.
    pub fn bytes(&self, pes: u32) -> Bytes {
        model::bytes(self, pes)
    }

    /// Returns the predicted time of the layer on `pes` PEs.
    pub fn estimate(&self, plan: &Plan, pes: u32, machine: Machine, links: &Links) -> Estimate {
        model::estimate(self, plan, pes, machine, links)
    }

    /// The problem with room for `rows` rows. A route that needs more is an error on every PE.
    pub fn with_rows(self, rows: u64) -> Problem {
        Problem { max_rows: Some(rows), ..self }
    }

    /// The number of rows that a PE has room for. A token has at most one row for each of its
    /// choices, and each expert leaves fewer than [`ALIGN`](Self::ALIGN) rows unused.
    pub fn rows(&self, pes: u32) -> u64 {
        let local = u64::from(self.experts / pes.max(1));
        let all = u64::from(pes) * self.tokens * u64::from(self.choices);
        self.max_rows.unwrap_or(all + local * (Problem::ALIGN - 1))
    }

    /// Bytes of symmetric memory that a PE needs for tokens that come and for results, without workspaces.
    pub fn symmetric_bytes(&self, pes: u32) -> u64 {
        let row = self.hidden * u64::from(self.dtype.bytes()) + self.columns * u64::from(self.out.bytes());
        self.rows(pes) * row
    }

    /// Checks that the kernels compute the problem on `pes` PEs.
    ///
    /// # Errors
    /// Fails with the limit that is exceeded (R0505).
    pub fn check(&self, pes: u32) -> Result<(), Error> {
        const MAX_EXTENT: u64 = i32::MAX as u64;
        let Problem { tokens, hidden, columns, experts, choices, dtype, out, .. } = *self;
        let multiple = |n: u64, dtype: DType| n > 0 && n.is_multiple_of(16 / u64::from(dtype.bytes()).max(1));
        let types = [DType::BF16, DType::F16];
        let tokens_of = [DType::BF16, DType::F16, DType::E4M3, DType::E5M2];
        let message = if experts == 0 || choices == 0 || tokens == 0 {
            "tokens, experts and choices are 1 or more".to_owned()
        } else if !experts.is_multiple_of(pes.max(1)) {
            format!("{experts} experts are not shared out to {pes} PEs in equal parts")
        } else if !tokens_of.contains(&dtype) || !types.contains(&out) {
            format!(
                "tokens of {dtype} and results of {out}: expected bf16 or f16, and tokens also e4m3 or e5m2"
            )
        } else if !multiple(hidden, dtype) || !multiple(columns, out) {
            format!("{hidden} columns of tokens and {columns} of results: rows are multiples of 16 bytes")
        } else if hidden.max(columns) > MAX_EXTENT || self.entries() > MAX_EXTENT {
            format!("{self}: extents, and tokens times choices, are below 2^31")
        } else if self.rows(pes) > MAX_EXTENT {
            format!("{} rows of a PE: expected below 2^31", self.rows(pes))
        } else {
            return Ok(());
        };
        Err(Error::new(error::GEMM, message).help("see docs/moe.md for what the kernels take"))
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Problem { tokens, hidden, columns, experts, choices, dtype, out, .. } = self;
        write!(f, "{tokens} tokens of {hidden} {dtype}, {choices} of {experts} experts, to {columns} {out}")?;
        self.max_rows.map_or(Ok(()), |rows| write!(f, ", {rows} rows"))
    }
}

/// Parameters of the kernel that multiplies. As text they are `bn=256,bk=64,stages=3,piece=8`,
/// where omitted parameters have their defaults.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Plan {
    /// The number of columns of a tile.
    pub bn: u32,
    /// Elements along K of a stage.
    pub bk: u32,
    /// Stages of the pipeline that feeds the matrix instructions.
    pub stages: u32,
    /// The number of rows after which a CTA raises a flag. It is smaller for few tokens, so that each CTA has some.
    pub piece: u32,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan { bn: 256, bk: 64, stages: 3, piece: 8 }
    }
}

/// The most bytes of shared memory of a CTA.
const MAX_SHARED: u64 = 227 << 10;

/// A parameter's name, and its least and greatest value.
const PARAMETERS: [(&str, u32, u32); 4] =
    [("BN", 64, 256), ("BK", 32, 128), ("STAGES", 2, 8), ("PIECE", 1, 1024)];

impl Plan {
    /// Returns the default plan: rows of 128 bytes in a stage, and narrower tiles if columns have
    /// scales.
    pub fn of(problem: &Problem) -> Plan {
        match problem.is_scaled() {
            true => Plan { bn: 128, bk: 128, stages: 4, ..Plan::default() },
            false => Plan::default(),
        }
    }

    fn values(&self) -> [u32; 4] {
        [self.bn, self.bk, self.stages, self.piece]
    }

    pub(super) fn defines(&self) -> impl Iterator<Item = (&'static str, Define)> {
        PARAMETERS.iter().zip(self.values()).map(|((name, ..), n)| (*name, Define::Int(n.into())))
    }

    /// The number of strips of 64 columns of results that shared memory holds: two if they fit.
    pub(super) fn strips(&self, problem: &Problem, pes: u32) -> u32 {
        if self.bytes_with(2, problem, pes) <= MAX_SHARED { 2 } else { 1 }
    }

    /// The number of strips if results are sent back: as many as a tile has, so that no multiplying
    /// role waits for a store role, or as many as fit.
    pub(super) fn strips_back(&self, problem: &Problem, pes: u32) -> u32 {
        let all = (self.bn / 64).clamp(1, 4);
        if self.bytes_with(all, problem, pes) <= MAX_SHARED { all } else { self.strips(problem, pes) }
    }

    /// Bytes of shared memory of a CTA.
    pub fn shared_bytes(&self, problem: &Problem, pes: u32) -> u64 {
        self.bytes_with(self.strips(problem, pes), problem, pes)
    }

    fn bytes_with(&self, strips: u32, problem: &Problem, pes: u32) -> u64 {
        /// Columns of a strip of results.
        const STRIP: u64 = 64;
        /// Bytes of the pipelines' barriers, of gaps from alignment, of an expert and a mark for
        /// each thread, and of the destination of each row of a tile.
        const BESIDE: u64 = 2048 + 8 * 384 + 8 * Problem::ALIGN;
        let [bn, bk, stages, _] = self.values().map(u64::from);
        // Entries and leads of each expert in this CTA and in all CTAs, entries from each PE and
        // from all, and two positions.
        let counts = (u64::from(problem.experts) * (u64::from(pes) + 8) + 4 * u64::from(pes)) * 4;
        stages * (Problem::ALIGN + bn) * bk * u64::from(problem.dtype.bytes())
            + Problem::ALIGN * STRIP * u64::from(strips) * u64::from(problem.out.bytes())
            + counts
            + u64::from(problem.experts / pes.max(1)) * 24
            + BESIDE
    }

    /// Checks that a problem can be computed with the plan.
    ///
    /// # Errors
    /// Fails with the limit that is exceeded (R0505).
    pub fn fits(&self, problem: &Problem, pes: u32) -> Result<(), Error> {
        let outside = PARAMETERS.iter().zip(self.values()).find(|((_, min, max), n)| n < min || n > max);
        let message = match (outside, self.shared_bytes(problem, pes)) {
            (Some(((name, min, max), n)), _) => {
                format!("{} is {min} to {max}, not {n}", name.to_lowercase())
            }
            (None, 0..=MAX_SHARED) if self.bk * problem.dtype.bytes() < 128 => {
                format!(
                    "a row of a stage has 128 bytes or more, and bk={} of {} has fewer",
                    self.bk, problem.dtype
                )
            }
            (None, 0..=MAX_SHARED) if self.bn.is_multiple_of(64) => return Ok(()),
            (None, 0..=MAX_SHARED) => format!("bn is a multiple of 64, not {}", self.bn),
            (None, bytes) => {
                format!("the plan {self} takes {bytes} bytes of shared memory, and a CTA has {MAX_SHARED}")
            }
        };
        Err(Error::new(error::GEMM, message).help("choose fewer stages or smaller tiles"))
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { bn, bk, stages, piece } = self;
        write!(f, "bn={bn},bk={bk},stages={stages},piece={piece}")
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Plan, String> {
        let mut values = Plan::default().values();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is not NAME=N"))?;
            let at = PARAMETERS.iter().position(|(known, ..)| known.eq_ignore_ascii_case(name));
            let at = at.ok_or_else(|| format!("there is no `{name}`: known are bn, bk, stages and piece"))?;
            let (_, min, max) = PARAMETERS[at];
            let number = value.parse().ok().filter(|n| (min..=max).contains(n));
            values[at] = number.ok_or_else(|| format!("{name} is {min} to {max}, not `{value}`"))?;
        }
        let [bn, bk, stages, piece] = values;
        Ok(Plan { bn, bk, stages, piece })
    }
}
