//! A report on the lowering of a kernel's accesses, for `weft explain` and the list of instructions
//! that `weft run` prints.

use crate::tiles::{Fact, Tiled};
use crate::watch::Wait;
use std::fmt;
use std::sync::Arc;
use weft_ir::diag::Span;

/// The results of the passes for the kernels of a module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Every memory op of the text, in the order of the code.
    pub accesses: Vec<Access>,
    /// Every loop that requested rounds in flight.
    pub loops: Vec<Widened>,
    /// Every transfer to or from another PE, in the order of the code.
    pub transfers: Vec<Transfer>,
    /// Every wait that reports itself. Its number is its index among those of its kernel.
    pub waits: Vec<Wait>,
    /// The facts about tiles, pipelines, shared memory and registers.
    pub tiles: Vec<Tiled>,
}

/// A `put`, `get` or `put_signal` of the text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// The name of the kernel.
    pub kernel: Arc<str>,
    /// The source text of the transfer.
    pub span: Span,
    /// The name in the language, such as `put<block>`.
    pub op: String,
    /// The pieces that the transfer moves.
    pub pieces: Pieces,
    /// The way in which the pieces are moved.
    pub moved: Moved,
}

/// The largest pieces that are consecutive on both sides of a transfer. The numbers are symbolic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pieces {
    /// The number of pieces.
    pub count: String,
    /// The number of elements of a piece.
    pub elements: String,
    /// The size of a piece in bytes.
    pub bytes: String,
    /// The strides of destination and source in elements, if the elements of a piece are not
    /// consecutive.
    pub strides: Option<[String; 2]>,
    /// The layouts of the pieces' first elements in destination and source, the first mode fastest.
    /// It is `None` for one piece.
    pub order: Option<[String; 2]>,
    /// The layouts of destination and source.
    pub layouts: [String; 2],
    /// Whether bounds can leave elements out.
    pub bounded: bool,
}

/// The way in which a transfer is carried out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Moved {
    /// A copy in place: the size of a word in bytes, and that of a word if addresses are less
    /// aligned.
    pub copy: Option<(u32, Option<u32>)>,
    /// The NVSHMEM function that carries it out.
    pub function: Option<String>,
}

/// A memory op of the text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Access {
    /// The name of the kernel.
    pub kernel: Arc<str>,
    /// The source text of the access.
    pub span: Span,
    /// The name of the op, such as `ld_reduce`.
    pub op: &'static str,
    /// The number of elements that one execution moves for a thread.
    pub elements: u32,
    /// The instructions that replace it, the common one first.
    pub instrs: Vec<Instr>,
    /// The reason why they are narrower than 16 bytes, if they are.
    pub narrow: Option<Narrow>,
    /// The reason why the warps do not move whole matrices (`ldmatrix`, `stmatrix`), for elements
    /// that are distributed as those of an accumulator.
    pub no_matrices: Option<String>,
    /// The knowledge about its bounds at compile time.
    pub cover: Cover,
}

/// An instruction that is part of an access.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instr {
    /// The name as in PTX, without operands.
    pub name: String,
    /// The number of bytes that one instruction moves for a PE.
    pub bytes: u32,
    /// The number of these instructions that one execution of the op issues if nothing is out of
    /// bounds. For unicast forms it is the number for each PE of the team. It is 0 for instructions
    /// that only tails use.
    pub count: u32,
}

/// What is known at compile time about the bounds of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cover {
    /// All elements exist, so there is no test.
    All,
    /// The elements of each instruction exist as a whole or not at all, so there is one test per
    /// instruction.
    Whole,
    /// A bound can cut the elements of an instruction. They are tested as a whole first, and then
    /// one by one.
    Cut,
}

/// The reason why an access is narrower than 16 bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Narrow {
    /// The thread has no more elements.
    Few,
    /// The thread has no more contiguous elements.
    Layout {
        /// The number of contiguous elements.
        run: i64,
        /// The layout, as CuTe prints it.
        layout: String,
    },
    /// A greater alignment of the address cannot be proven.
    Alignment {
        /// The provable alignment in bytes.
        bytes: u32,
        /// A description of what limits it: the base's alignment, an offset, or a stride.
        limit: String,
    },
    /// The positions of a bound do not follow the elements.
    Bound {
        /// The layout of the bound.
        layout: String,
    },
    /// No wider form exists on the target.
    Isa,
}

/// A loop that requested rounds in flight.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Widened {
    /// The name of the kernel.
    pub kernel: Arc<str>,
    /// The source text of the loop.
    pub span: Span,
    /// The number of rounds in flight, which is 1 if the loop is unchanged.
    pub rounds: u32,
    /// The reason why the loop is unchanged, or has fewer rounds in flight than requested.
    pub why: Option<String>,
}

impl Report {
    /// Adds a fact about tiles, unless it is present already: unrolled loops and functions that are
    /// called several times have the same fact for one place.
    pub(crate) fn tile(&mut self, kernel: &Arc<str>, span: Span, fact: Fact) {
        let tiled = Tiled { kernel: kernel.clone(), span, fact };
        if !self.tiles.contains(&tiled) {
            self.tiles.push(tiled);
        }
    }

    /// The names of all instructions used on tensors, without repetition, in the order of their
    /// first use.
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
            Narrow::Few => f.write_str("a thread does not move more at once"),
            Narrow::Layout { run: 1, layout } => {
                write!(f, "the elements of a thread, {layout}, are not contiguous")
            }
            Narrow::Layout { run, layout } => {
                write!(f, "only {run} elements of a thread's {layout} are contiguous")
            }
            Narrow::Alignment { bytes, limit } => {
                write!(f, "the address is only known to be a multiple of {bytes} bytes: {limit}")
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
                ", with stride {to} from stride {from}: {dst} and {src} have no consecutive elements in \
                 common"
            )?,
            None if order.is_some() => {
                write!(f, ", the largest pieces that are consecutive in both {dst} and {src}")?
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
            write!(f, "; for PEs that loads and stores reach, copied directly in words of {words} bytes")?;
            if let Some(unaligned) = unaligned {
                write!(
                    f,
                    " ({unaligned} if an address is not a multiple of that, which is neither declared \
                     nor provable)"
                )?;
            }
        }
        match (copy, function) {
            (Some(_), Some(name)) => write!(f, "; for other PEs, {name}"),
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
            Cover::Whole => "; one test per instruction",
            Cover::Cut => "; a tail may cut it",
        })
    }
}
