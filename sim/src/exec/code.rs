//! Decoded PTX: kernels, variables and instructions.

use super::access::Space;
use super::{Op, Pred};
use crate::error::SourceLine;
use crate::ptx::ast::Loc;

/// A kernel parameter as the entry declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    /// Name in the PTX.
    pub name: String,
    /// Byte offset in the packed parameters.
    pub offset: usize,
    /// The size of the parameter in bytes.
    pub size: usize,
    /// The alignment of the parameter in bytes.
    pub align: usize,
    /// Whether the entry declares the parameter with `.ptr`.
    pub is_pointer: bool,
}

/// What the host needs to know to launch a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// The name of the entry point.
    pub name: String,
    /// The parameters in the order of their declarations.
    pub params: Vec<Param>,
    /// `.reqntid`: the block must have exactly this shape.
    pub reqntid: Option<[u32; 3]>,
    /// `.maxntid`: the block may have at most this many threads in all.
    pub maxntid: Option<[u32; 3]>,
    /// `.reqnctapercluster`: CTAs of a cluster.
    pub cluster: Option<[u32; 3]>,
    /// `.maxclusterrank`: most CTAs of a cluster.
    pub max_cluster: Option<u32>,
    /// Bytes of static shared memory.
    pub shared_bytes: u32,
    /// Uses `.extern .shared`, whose size is given at launch.
    pub dynamic_shared: bool,
}

impl Kernel {
    /// Bytes of the packed parameters.
    pub fn param_bytes(&self) -> usize {
        self.params.last().map_or(0, |p| p.offset + p.size)
    }
}

/// One decoded instruction.
pub(crate) struct Inst {
    pub op: Op,
    /// Guard predicate and its xor mask.
    pub guard: Option<(Pred, u32)>,
    /// Line of the PTX text.
    pub line: u32,
    /// Number of the source location, in `Code::locs`; 0 is none.
    pub loc: u32,
    /// Number of the mnemonic, in `Code::mnemonics`.
    pub mnemonic: u32,
}

/// A variable at module scope, or a static one of a function.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    pub name: String,
    pub space: Space,
    pub size: u64,
    pub align: u64,
    /// Whether the launch chooses the size, as for `.extern .shared x[]`.
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

/// An entry of the constant pool: the same in all lanes, some known only when a kernel is launched on a PE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Constant {
    Value(u64),
    /// Address of a variable in its state space.
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
    /// Bytes of local memory: parameters, results, variables.
    pub frame_bytes: u64,
    /// Parameters and results of a device function: offset in the frame and size.
    pub params: Vec<(u64, u64)>,
    pub returns: Vec<(u64, u64)>,
}

/// A call: whom, and where arguments and results lie in the caller's frame.
#[derive(Debug, Clone)]
pub(crate) struct CallSite {
    pub function: usize,
    pub args: Vec<u64>,
    pub returns: Vec<u64>,
}

/// What a kernel needs beyond [`Kernel`].
#[derive(Debug, Clone)]
pub(crate) struct KernelCode {
    pub function: usize,
    /// Shared variables it reaches, with their offsets; the dynamic ones lie behind the static.
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
    /// Program counters of labels.
    pub labels: Vec<u32>,
    pub calls: Vec<CallSite>,
    pub constants: Vec<Constant>,
    pub variables: Vec<Variable>,
    pub locs: Vec<Loc>,
    pub mnemonics: Vec<String>,
    /// Whether its kernels are the host's own.
    pub of_host: bool,
}

impl Code {
    /// Whether a `fence.sc`, or a `membar`, which is the same, stands in the text.
    pub(crate) fn has_sequential_fences(&self) -> bool {
        self.mnemonics.iter().any(|m| m.starts_with("fence.sc") || m.starts_with("membar"))
    }

    /// Text of a PTX line, from 1.
    pub(crate) fn line(&self, line: u32) -> &str {
        self.text.lines().nth((line as usize).saturating_sub(1)).unwrap_or("").trim()
    }

    /// Source lines of an instruction, innermost first.
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
