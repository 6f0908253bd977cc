//! Decoded PTX: kernels, variables and instructions.

use super::access::Space;
use super::stall::Ending;
use super::{Op, Pred};
use crate::error::SourceLine;
use crate::ptx::ast::Loc;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// A parameter in the declaration of a kernel's entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    /// The name of the parameter in the PTX.
    pub name: String,
    /// The offset in the packed parameters in bytes.
    pub offset: usize,
    /// The size of the parameter in bytes.
    pub size: usize,
    /// The alignment of the parameter in bytes.
    pub align: usize,
    /// Whether the entry declares the parameter with `.ptr`.
    pub is_pointer: bool,
}

/// The information that the host needs to launch a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// The name of the entry point.
    pub name: String,
    /// The parameters in the order of their declarations.
    pub params: Vec<Param>,
    /// The `.reqntid` directive: the block must have exactly this shape.
    pub reqntid: Option<[u32; 3]>,
    /// The `.maxntid` directive: the block can have at most this many threads in total.
    pub maxntid: Option<[u32; 3]>,
    /// The `.reqnctapercluster` directive: the shape of a cluster in CTAs.
    pub cluster: Option<[u32; 3]>,
    /// The `.maxclusterrank` directive: the largest number of CTAs of a cluster.
    pub max_cluster: Option<u32>,
    /// The size of static shared memory in bytes.
    pub shared_bytes: u32,
    /// Whether the kernel uses `.extern .shared` memory, whose size is given at launch.
    pub dynamic_shared: bool,
}

impl Kernel {
    /// Returns the size of the packed parameters in bytes.
    pub fn param_bytes(&self) -> usize {
        self.params.last().map_or(0, |p| p.offset + p.size)
    }
}

/// One decoded instruction.
pub(crate) struct Inst {
    pub op: Op,
    /// The guard predicate and its xor mask.
    pub guard: Option<(Pred, u32)>,
    /// The line of the PTX text.
    pub line: u32,
    /// The number of the source location in `Code::locs`; 0 means none.
    pub loc: u32,
    /// The number of the mnemonic in `Code::mnemonics`.
    pub mnemonic: u32,
}

/// A variable at module scope, or a static variable of a function.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    pub name: String,
    pub space: Space,
    pub size: u64,
    pub align: u64,
    /// Whether the launch determines the size, as for `.extern .shared x[]`.
    pub dynamic: bool,
    pub init: Vec<u8>,
    pub relocations: Vec<Relocation>,
}

/// An address in an initialiser.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Relocation {
    pub at: usize,
    pub size: usize,
    pub variable: usize,
    pub offset: i64,
}

/// An entry of the constant pool, which is equal in all lanes. Some entries are known only when a
/// kernel is launched on a PE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Constant {
    Value(u64),
    /// The address of a variable in its state space.
    Symbol {
        variable: usize,
        offset: i64,
    },
}

#[derive(Debug, Clone, Default)]
pub(crate) struct FunctionCode {
    pub name: String,
    pub entry: u32,
    pub registers: u32,
    pub predicates: u32,
    /// The size of local memory in bytes: parameters, results and variables.
    pub frame_bytes: u64,
    /// The parameters and results of a device function, as offset in the frame and size.
    pub params: Vec<(u64, u64)>,
    pub returns: Vec<(u64, u64)>,
}

/// A call: its function, and the locations of arguments and results in the caller's frame.
#[derive(Debug, Clone)]
pub(crate) struct CallSite {
    pub function: usize,
    pub args: Vec<u64>,
    pub returns: Vec<u64>,
}

/// The information about a kernel beyond [`Kernel`].
#[derive(Debug, Clone)]
pub(crate) struct KernelCode {
    pub function: usize,
    /// The shared variables that it reaches, with their offsets; the dynamic ones are after the
    /// static ones.
    pub shared: Vec<(usize, u64)>,
}

pub(crate) struct Code {
    pub id: u64,
    pub text: String,
    pub version: (u32, u32),
    pub target: String,
    pub files: Vec<(u64, String)>,
    pub kernels: Vec<Kernel>,
    pub kernel_code: Vec<KernelCode>,
    pub functions: Vec<FunctionCode>,
    pub insts: Vec<Inst>,
    /// The program counters of labels.
    pub labels: Vec<u32>,
    pub calls: Vec<CallSite>,
    pub constants: Vec<Constant>,
    pub variables: Vec<Variable>,
    pub locs: Vec<Loc>,
    pub mnemonics: Vec<String>,
    /// Whether the kernels are those of the host itself.
    pub of_host: bool,
    /// The ends of the loops around reads, as far as reports have needed them.
    pub endings: Mutex<BTreeMap<u32, Option<Ending>>>,
}

impl Code {
    /// Whether the text has a `fence.sc`, or the equivalent `membar`.
    pub(crate) fn has_sequential_fences(&self) -> bool {
        self.mnemonics.iter().any(|m| m.starts_with("fence.sc") || m.starts_with("membar"))
    }

    /// The text of a PTX line, counted from 1.
    pub(crate) fn line(&self, line: u32) -> &str {
        self.text.lines().nth((line as usize).saturating_sub(1)).unwrap_or("").trim()
    }

    /// The source lines of an instruction, innermost first.
    pub(crate) fn source(&self, inst: &Inst) -> Vec<SourceLine> {
        let Some(loc) = (inst.loc as usize).checked_sub(1).and_then(|i| self.locs.get(i)) else {
            return Vec::new();
        };
        let mut out = Vec::new();
        let chain = std::iter::once((loc.file, loc.line, loc.column)).chain(loc.inlined_at);
        for (file, line, column) in chain.filter(|(_, line, _)| *line > 0) {
            let name = self.files.iter().find(|(n, _)| *n == file).map(|(_, f)| f.clone());
            out.push(SourceLine { file: name.unwrap_or_else(|| format!("file {file}")), line, column });
        }
        out
    }
}
