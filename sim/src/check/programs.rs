//! The facts about running programs that reports need. The detector itself knows only warps and
//! program counters.

use crate::error::SourceLine;
use crate::memory::Memory;
use crate::names::Named;

/// The facts about a grid.
pub(crate) struct GridWords<'a> {
    pub kernel: &'a str,
    pub block: [u32; 3],
    /// The number of its launch among those of its PE, counted from 1. Kernels that carry out operations on streams do not
    /// count.
    pub launch: usize,
    /// Whether it may begin before the launches in front of it have ended.
    pub early: bool,
    /// The names of groups of threads.
    pub names: &'a [Named],
}

/// The facts about an instruction.
pub(crate) struct InstructionWords<'a> {
    /// Line of the PTX text.
    pub line: u32,
    /// The text of that line.
    pub text: &'a str,
    /// The opcode with its modifiers.
    pub mnemonic: &'a str,
    /// Source lines, innermost first.
    pub source: Vec<SourceLine>,
}

/// A view of the running programs and their memory.
pub(crate) trait Programs {
    fn memory(&self) -> &Memory;

    /// The grid of this number, in the order in which the host launched them.
    fn grid(&self, grid: u32) -> Option<GridWords<'_>>;

    /// An instruction of a grid's program.
    fn instruction(&self, grid: u32, pc: u32) -> Option<InstructionWords<'_>>;

    /// The variable in a grid's shared memory that has this byte, and where it begins.
    fn shared_variable(&self, grid: u32, offset: u64) -> Option<(&str, u64)>;
}
