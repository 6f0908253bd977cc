//! Translates the syntax tree to executable code: names become slots, and instructions become
//! operations.

mod allocate;
mod function;
mod layout;

use crate::builder::ModuleBuilder;
use crate::codes;
use crate::error::PtxError;
use crate::exec::access::Space;
use crate::exec::code::{Code, Kernel, KernelCode, Param, Variable};
use crate::nvshmem;
use crate::ptx::{self, ast};
use layout::{Size, size_of};

/// The largest number of constants, labels, variables and so on of a module. The indices have 32
/// bits.
pub(crate) const MAX_ITEMS: usize = 1 << 30;
/// The largest size of one variable, and of all parameters of one kernel, in bytes.
pub(crate) const MAX_VARIABLE: u64 = 1 << 30;
const MAX_PARAMS: u64 = 32764;

impl<'a> ModuleBuilder<'a> {
    /// Declares functions without a body, which must be built-in functions with the right
    /// prototypes.
    fn declare_functions(&mut self, functions: &[ast::Function<'a>]) -> Result<(), PtxError> {
        for f in functions.iter().filter(|f| f.body.is_none()) {
            let sizes = |list: &[ast::Variable<'_>]| {
                list.iter().map(|v| size_of(self.text, v).map(|s| s.bytes)).collect::<Result<Vec<_>, _>>()
            };
            nvshmem::check_prototype(f.name, &sizes(&f.params)?, &sizes(&f.returns)?)
                .map_err(|issue| self.error(f.at, issue))?;
            self.declared.insert(f.name);
        }
        Ok(())
    }

    /// Adds a variable of module lifetime; returns its index.
    pub(crate) fn declare(&mut self, v: &ast::Variable<'a>) -> Result<usize, PtxError> {
        let Size { bytes, align, open } = size_of(self.text, v)?;
        let space = match v.space {
            "global" => Space::Global,
            "const" => Space::Const,
            _ => Space::Shared,
        };
        if v.is_extern && space != Space::Shared {
            return Err(self.name_error(
                v.at,
                format!("`{}` is an external variable without a definition in this module", v.name),
            ));
        }
        if open && space != Space::Shared && v.init.is_empty() {
            return Err(self.name_error(v.at, format!("`{}` has no size", v.name)));
        }
        let dynamic = open && space == Space::Shared;
        let variable = Variable {
            name: v.name.to_string(),
            space,
            size: if dynamic { 0 } else { bytes },
            align,
            dynamic,
            init: Vec::new(),
            relocations: Vec::new(),
        };
        self.variables.push(variable);
        Ok(self.variables.len() - 1)
    }
}

/// Decodes PTX text. `id` distinguishes this module from others.
pub(crate) fn decode(text: &str, id: u64) -> Result<Code, PtxError> {
    let ast = ptx::parse(text)?;
    let mut m = ModuleBuilder::new(text, nvshmem::builtin);
    for v in &ast.variables {
        let index = m.declare(v)?;
        if m.variable_names.insert(v.name, index).is_some() {
            return Err(m.name_error(v.at, format!("`{}` is declared twice", v.name)));
        }
    }
    for (i, v) in ast.variables.iter().enumerate() {
        layout::initialise(&mut m, i, v)?;
    }
    let bodies: Vec<&ast::Function<'_>> = ast.functions.iter().filter(|f| f.body.is_some()).collect();
    for f in &bodies {
        let index = m.functions.len();
        if m.function_names.insert(f.name, index).is_some() {
            return Err(m.name_error(f.at, format!("`{}` is defined twice", f.name)));
        }
        let code = layout::signature(text, f)?;
        m.functions.push(code);
        m.uses.push((Vec::new(), Vec::new()));
    }
    m.declare_functions(&ast.functions)?;
    for (index, f) in bodies.iter().enumerate() {
        m = function::build(m, index, f)?;
    }
    let (mut kernels, mut kernel_code) = (Vec::new(), Vec::new());
    for (index, f) in bodies.iter().enumerate().filter(|(_, f)| f.is_entry) {
        let (kernel, code) = kernel(&m, index, f)?;
        kernels.push(kernel);
        kernel_code.push(code);
    }
    if [m.insts.len(), m.constants.len(), m.labels.len()].iter().any(|&n| n > MAX_ITEMS) {
        return Err(ptx::error_at(text, 0, codes::TOO_LARGE, "the module is too large", ""));
    }
    let (version, target, files) = (ast.version, ast.target.to_string(), ast.files);
    Ok(Code {
        id,
        text: text.to_string(),
        version,
        target,
        files,
        kernels,
        kernel_code,
        functions: m.functions,
        insts: m.insts,
        labels: m.labels,
        calls: m.calls,
        constants: m.constants,
        variables: m.variables,
        locs: m.locs,
        mnemonics: m.mnemonics,
        of_host: false,
        endings: Default::default(),
    })
}

/// Decodes the parameters, directives and shared memory of an entry.
fn kernel(
    m: &ModuleBuilder<'_>,
    index: usize,
    f: &ast::Function<'_>,
) -> Result<(Kernel, KernelCode), PtxError> {
    let mut params = Vec::new();
    let mut end = 0;
    for p in &f.params {
        let Size { bytes, align, .. } = size_of(m.text, p)?;
        let offset = u64::next_multiple_of(end, align);
        end = offset.saturating_add(bytes);
        if end > MAX_PARAMS {
            let help = "a kernel has at most 32764 bytes of parameters";
            return Err(ptx::error_at(m.text, p.at, codes::TOO_LARGE, "too many parameters", help));
        }
        params.push(Param {
            name: p.name.to_string(),
            offset: offset as usize,
            size: bytes as usize,
            align: align as usize,
            is_pointer: p.is_pointer,
        });
    }
    let shape = |name: &str| {
        let (_, numbers) = f.directives.iter().find(|(n, _)| *n == name)?;
        let n = |i: usize| numbers.get(i).map_or(1, |&v| u32::try_from(v).unwrap_or(u32::MAX));
        Some([n(0), n(1), n(2)])
    };
    let shared = layout::shared(m, index, f)?;
    let kernel = Kernel {
        name: f.name.to_string(),
        params,
        reqntid: shape("reqntid"),
        maxntid: shape("maxntid"),
        cluster: shape("reqnctapercluster"),
        max_cluster: shape("maxclusterrank").map(|[n, ..]| n),
        shared_bytes: shared.bytes,
        dynamic_shared: shared.dynamic,
    };
    Ok((kernel, KernelCode { function: index, shared: shared.places }))
}
