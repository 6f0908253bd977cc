//! Code under construction: the entities that the names of a module refer to, and the operations
//! that decoded instructions append.

mod function;

pub(crate) use function::{Entity, FunctionBuilder, Step, Width};

use crate::codes;
use crate::error::PtxError;
use crate::exec::Op;
use crate::exec::code::{CallSite, Constant, FunctionCode, Inst, Variable};
use crate::ptx::{self, ast};
use rustc_hash::{FxHashMap, FxHashSet};

/// The reason why an instruction cannot be decoded. The caller adds the position.
#[derive(Debug, Clone)]
pub(crate) struct Issue {
    pub code: codes::Code,
    pub message: String,
    pub help: String,
}

pub(crate) fn issue<T>(
    code: codes::Code,
    message: impl Into<String>,
    help: impl Into<String>,
) -> Result<T, Issue> {
    Err(Issue { code, message: message.into(), help: help.into() })
}

/// Makes the operation of a built-in function from its name and from the offsets and sizes of its
/// arguments and results in the caller's frame.
pub(crate) type Builtin = fn(&str, &[(u64, u64)], &[(u64, u64)]) -> Option<Result<Op, Issue>>;

/// Builds a module's code; function builders append to it.
pub(crate) struct ModuleBuilder<'a> {
    pub text: &'a str,
    /// Finds a function that the text does not define.
    pub builtin: Builtin,
    pub lines: LineIndex,
    pub functions: Vec<FunctionCode>,
    pub function_names: FxHashMap<&'a str, usize>,
    /// Functions that are declared but not defined.
    pub declared: FxHashSet<&'a str>,
    pub insts: Vec<Inst>,
    pub labels: Vec<u32>,
    pub calls: Vec<CallSite>,
    pub constants: Vec<Constant>,
    pub constant_index: FxHashMap<Constant, u32>,
    pub variables: Vec<Variable>,
    pub variable_names: FxHashMap<&'a str, usize>,
    pub locs: Vec<ast::Loc>,
    pub mnemonics: Vec<String>,
    pub mnemonic_index: FxHashMap<String, u32>,
    /// For each function, the variables that it names and the functions that it calls.
    pub uses: Vec<(Vec<usize>, Vec<usize>)>,
}

/// The lengths of a module's parts at some point.
pub(crate) struct Mark {
    insts: usize,
    labels: usize,
    calls: usize,
    variables: usize,
    locs: usize,
}

impl Mark {
    /// The program counter of the next operation.
    pub(crate) fn entry(&self) -> u32 {
        self.insts as u32
    }
}

/// The byte offsets at which lines begin.
pub(crate) struct LineIndex(Vec<u32>);

impl LineIndex {
    fn new(text: &str) -> Self {
        let starts = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i as u32 + 1);
        LineIndex(std::iter::once(0).chain(starts).collect())
    }

    fn line(&self, at: ast::Offset) -> u32 {
        self.0.partition_point(|&start| start <= at) as u32
    }
}

impl<'a> ModuleBuilder<'a> {
    pub(crate) fn new(text: &'a str, builtin: Builtin) -> ModuleBuilder<'a> {
        ModuleBuilder {
            text,
            builtin,
            lines: LineIndex::new(text),
            functions: Vec::new(),
            function_names: FxHashMap::default(),
            declared: FxHashSet::default(),
            insts: Vec::new(),
            labels: Vec::new(),
            calls: Vec::new(),
            constants: Vec::new(),
            constant_index: FxHashMap::default(),
            variables: Vec::new(),
            variable_names: FxHashMap::default(),
            locs: Vec::new(),
            mnemonics: Vec::new(),
            mnemonic_index: FxHashMap::default(),
            uses: Vec::new(),
        }
    }

    pub(crate) fn error(&self, at: ast::Offset, issue: Issue) -> PtxError {
        ptx::error_at(self.text, at, issue.code, issue.message, issue.help)
    }

    pub(crate) fn name_error(&self, at: ast::Offset, message: String) -> PtxError {
        ptx::error_at(self.text, at, codes::BAD_NAME, message, "")
    }

    pub(crate) fn line(&self, at: ast::Offset) -> u32 {
        self.lines.line(at)
    }

    pub(crate) fn constant(&mut self, c: Constant) -> u32 {
        let next = self.constants.len() as u32;
        let index = *self.constant_index.entry(c).or_insert(next);
        if index == next {
            self.constants.push(c);
        }
        index
    }

    pub(crate) fn mnemonic(&mut self, text: String) -> u32 {
        if let Some(&i) = self.mnemonic_index.get(&text) {
            return i;
        }
        let i = self.mnemonics.len() as u32;
        self.mnemonics.push(text.clone());
        self.mnemonic_index.insert(text, i);
        i
    }

    /// Notes how much has been appended so far.
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            insts: self.insts.len(),
            labels: self.labels.len(),
            calls: self.calls.len(),
            variables: self.variables.len(),
            locs: self.locs.len(),
        }
    }

    /// Removes everything that function `index` has appended since the mark.
    pub(crate) fn rewind(&mut self, m: &Mark, index: usize) {
        self.insts.truncate(m.insts);
        self.labels.truncate(m.labels);
        self.calls.truncate(m.calls);
        self.variables.truncate(m.variables);
        self.locs.truncate(m.locs);
        self.uses[index] = (Vec::new(), Vec::new());
    }
}
