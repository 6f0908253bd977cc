//! What became of a kernel's accesses, for `weft explain` and the list of instructions that `weft run` prints.

use crate::tiles::{Fact, Tiled};
use crate::watch::Wait;
use std::fmt;
use std::sync::Arc;
use weft_ir::diag::Span;

/// What the passes made of the kernels of a module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Every memory op of the text, in the order of the code.
    pub accesses: Vec<Access>,
    /// Every loop that asked for rounds in flight.
    pub loops: Vec<Widened>,
    /// Every transfer to or from another PE, in the order of the code.
    pub transfers: Vec<Transfer>,
    /// Every wait that reports itself; its number counts those of its kernel.
    pub waits: Vec<Wait>,
    /// What the passes made of tiles, pipelines, shared memory and registers.
    pub tiles: Vec<Tiled>,
}

/// A `put`, `get` or `put_signal` of the text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// The name of the kernel.
    pub kernel: Arc<str>,
    /// The source text of the transfer.
    pub span: Span,
    /// The name in the language: `put<block>`.
    pub op: String,
    /// The pieces that the transfer moves.
    pub pieces: Pieces,
    /// The way in which the pieces are moved.
    pub moved: Moved,
}

/// The largest pieces that are consecutive on both sides of a transfer. Numbers are symbolic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pieces {
    /// The number of pieces.
    pub count: String,
    /// The number of elements of a piece.
    pub elements: String,
    /// The size of a piece in bytes.
    pub bytes: String,
    /// Elements from one to the next, of destination and source, where those of a piece are not consecutive.
    pub strides: Option<[String; 2]>,
    /// Layouts of the pieces' first elements in destination and source, the first mode fastest; none for one piece.
    pub order: Option<[String; 2]>,
    /// The layouts of destination and source.
    pub layouts: [String; 2],
    /// Whether bounds may leave elements out.
    pub bounded: bool,
}

/// The way in which a transfer is carried out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Moved {
    /// A copy in place: the bytes of a word, and of a word where addresses turn out less aligned.
    pub copy: Option<(u32, Option<u32>)>,
    /// The NVSHMEM function that carries it out.
    pub function: Option<String>,
}

/// One memory op of the text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Access {
    /// The name of the kernel.
    pub kernel: Arc<str>,
    /// The source text of the access.
    pub span: Span,
    /// The name of the op, such as `ld_reduce`.
    pub op: &'static str,
    /// Elements that one execution moves for a thread.
    pub elements: u32,
    /// The instructions it became, the common one first.
    pub instrs: Vec<Instr>,
    /// Why they are narrower than 16 bytes, if they are.
    pub narrow: Option<Narrow>,
    /// Why the warps do not move whole matrices (`ldmatrix`, `stmatrix`), of elements that are dealt out as those of an
    /// accumulator.
    pub no_matrices: Option<String>,
    /// What is known about its bounds.
    pub cover: Cover,
}

/// An instruction of an access.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instr {
    /// The name as in PTX, without operands.
    pub name: String,
    /// Bytes that one moves for a PE.
    pub bytes: u32,
    /// The number of them that one execution of the op issues when nothing is out of bounds (for unicast
    /// forms: for each PE of the team). It is 0 for those that only tails use.
    pub count: u32,
}

/// What is known at compile time about the bounds of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cover {
    /// All elements exist: no test.
    All,
    /// Each instruction's elements exist or do not, as a whole: one test an instruction.
    Whole,
    /// A tail may cut an instruction's elements: tested as a whole first, then one by one.
    Cut,
}

/// Why an access is narrower than 16 bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Narrow {
    /// The thread has no more elements.
    Few,
    /// The thread has no more elements side by side.
    Layout {
        /// Elements side by side.
        run: i64,
        /// The layout, as CuTe prints it.
        layout: String,
    },
    /// The address is not provably a multiple of more.
    Alignment {
        /// Provable alignment in bytes.
        bytes: u32,
        /// What limits it: the base's alignment, an offset, or a stride.
        limit: String,
    },
    /// A bound's positions do not follow the elements.
    Bound {
        /// The layout of the bound.
        layout: String,
    },
    /// No wider form exists on the target.
    Isa,
}

/// A loop that asked for rounds in flight.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Widened {
    /// The name of the kernel.
    pub kernel: Arc<str>,
    /// The source text of the loop.
    pub span: Span,
    /// Rounds in flight; 1 where it stayed as it was.
    pub rounds: u32,
    /// Why it stayed as it was, or took fewer than asked.
    pub why: Option<String>,
}

impl Report {
    /// Adds something about tiles, unless it is there: loops that are taken apart and functions that are called again say
    /// the same of one place.
    pub(crate) fn tile(&mut self, kernel: &Arc<str>, span: Span, fact: Fact) {
        let tiled = Tiled { kernel: kernel.clone(), span, fact };
        if !self.tiles.contains(&tiled) {
            self.tiles.push(tiled);
        }
    }

    /// The names of all instructions used on tensors, without repetition, in order of first use.
    pub fn instructions(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for name in self.accesses.iter().flat_map(|a| &a.instrs).map(|i| i.name.as_str()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }
}

impl fmt::Display for Narrow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Narrow::Few => f.write_str("a thread moves no more at once"),
            Narrow::Layout { run: 1, layout } => {
                write!(f, "the elements of a thread, {layout}, are not side by side")
            }
            Narrow::Layout { run, layout } => {
                write!(f, "only {run} elements of a thread's {layout} are side by side")
            }
            Narrow::Alignment { bytes, limit } => {
                write!(f, "the address is provably a multiple of {bytes} bytes only: {limit}")
            }
            Narrow::Bound { layout } => {
                write!(f, "the bound {layout} does not follow the elements")
            }
            Narrow::Isa => f.write_str("the target has no wider form"),
        }
    }
}

impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Pieces { count, elements, bytes, strides, order, layouts: [dst, src], bounded } = &self.pieces;
        let s = if count == "1" { "" } else { "s" };
        write!(f, "{}: {count} piece{s} of {elements} elements ({bytes} bytes)", self.op)?;
        match strides {
            Some([to, from]) => write!(
                f,
                ", {to} apart from {from} apart: {dst} and {src} have no consecutive ones in common"
            )?,
            None if order.is_some() => {
                write!(f, ", the most that {dst} and {src} have consecutive in common")?
            }
            None => {}
        }
        if let Some([to, from]) = order {
            write!(f, "; in the order {to} from {from}")?;
        }
        if *bounded {
            f.write_str("; elements out of bounds are left out")?;
        }
        let Moved { copy, function } = &self.moved;
        if let Some((words, unaligned)) = copy {
            write!(f, "; for PEs in reach copied in place by words of {words} bytes")?;
            if let Some(unaligned) = unaligned {
                write!(
                    f,
                    " ({unaligned} where an address is not a multiple of that: none is declared or provable)"
                )?;
            }
        }
        match (copy, function) {
            (Some(_), Some(name)) => write!(f, "; for others {name}"),
            (_, Some(name)) => write!(f, "; by {name}"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} elements:", self.op, self.elements)?;
        for i in &self.instrs {
            match i.count {
                0 => write!(f, " and for tails {} ({} bytes)", i.name, i.bytes)?,
                n => write!(f, " {n} x {} ({} bytes)", i.name, i.bytes)?,
            }
        }
        if let Some(why) = &self.narrow {
            write!(f, "; {why}")?;
        }
        if let Some(why) = &self.no_matrices {
            write!(f, "; no whole matrices: {why}")?;
        }
        f.write_str(match self.cover {
            Cover::All => "; nothing to test",
            Cover::Whole => "; one test an instruction",
            Cover::Cut => "; a tail may cut it",
        })
    }
}
