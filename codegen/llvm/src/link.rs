//! Functions of a device library. They are left for another object to define, linked into a kernel,
//! or compiled to an object of their own.
//!
//! The library's bitcode is opened lazily, and all its functions are marked as functions that a
//! module need not keep. Therefore LLVM's linker reads and takes only those that are reached. Its
//! variables stay visible, because the host initialises them.

use crate::codes::{NEW_LIBRARY, NO_LIBRARY_FUNCTION};
use crate::nvshmem::{broken, open, since, version_of};
use crate::raw::{self, Diagnostics};
use crate::{Clock, Options, Output, RequiredPtx, pipeline};
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::context::Context;
use inkwell::module::{Linkage, Module};
use inkwell::values::FunctionValue;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use weft_ir::diag::{Diagnostic, Span};
use weft_ir::{Call, Operation, machine};
use weft_isa::{PtxVersion, Target};

/// The source of the functions that a kernel calls.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Link<'a> {
    /// Another object has the functions. They are declared (`.extern .func`).
    #[default]
    External,
    /// NVSHMEM's device bitcode in this file has the functions.
    Library(&'a Path),
}

/// The functions of libraries that a module's kernels call, each with its first call.
pub fn called_functions(module: &machine::Module) -> BTreeMap<Arc<str>, Span> {
    let mut out = BTreeMap::new();
    for k in &module.kernels {
        k.walk(&mut |_, inst| {
            if let Some(Call::Function { function, .. }) = inst.op.call() {
                out.entry(function.clone()).or_insert(inst.span);
            }
        });
    }
    out
}

/// Functions with at most this number of instructions are inlined, because a call would take about
/// as many.
const SMALL: usize = 64;

/// The parts of a library that are in a module.
pub(crate) struct Linked<'c> {
    pub version: [u32; 3],
    /// The functions whose code is unchanged from the library.
    kept: Vec<FunctionValue<'c>>,
    optnone: Attribute,
}

/// Links the functions of a library that a module declares.
pub(crate) fn functions<'c>(
    context: &'c Context,
    diagnostics: &Diagnostics<'c>,
    into: &Module<'c>,
    (path, called): (&Path, &BTreeMap<Arc<str>, Span>),
    target: Target,
    needs: &mut RequiredPtx,
) -> Result<Linked<'c>, Diagnostic> {
    raw::reading(path, || {
        let library = Library::open(context, diagnostics, path)?;
        library.fits(target, needs)?;
        for (name, span) in called {
            library.has(name, *span, into.get_function(name))?;
        }
        let version = library.version;
        for f in library.defined() {
            f.set_linkage(Linkage::LinkOnceODR);
        }
        library.link(diagnostics, into)?;
        let optnone = enumeration(context, "optnone");
        let mut kept = Vec::new();
        for f in of_library(into) {
            f.set_linkage(Linkage::Internal);
            if !is_small(f) {
                // The attribute is removed for now, so that no pass spends time on the function.
                f.remove_enum_attribute(
                    AttributeLoc::Function,
                    Attribute::get_named_enum_kind_id("alwaysinline"),
                );
                f.add_attribute(AttributeLoc::Function, optnone);
                f.add_attribute(AttributeLoc::Function, enumeration(context, "noinline"));
                kept.push(f);
            }
        }
        Ok(Linked { version, kept, optnone })
    })
}

impl Linked<'_> {
    /// Prepares the functions for the code generator, after the passes. It generates their code
    /// with the same effort as for the others. (Functions that the passes removed are skipped.)
    pub fn settle(&self, module: &Module<'_>) {
        let kind = self.optnone.get_enum_kind_id();
        for f in module.get_functions().filter(|f| self.kept.iter().any(|k| k == f)) {
            f.remove_enum_attribute(AttributeLoc::Function, kind);
        }
    }
}

/// Compiles a module that defines functions of NVSHMEM's device bitcode, in the file at `path`, and
/// only what they need. An assembler turns the PTX into a relocatable object for kernels that are
/// compiled with [`Link::External`].
///
/// # Errors
/// Fails if the library lacks a function (E0609), is for later GPUs (E0610), or is not a library
/// (E0608), and if LLVM is not found (E0611).
pub fn object(path: &Path, functions: &[&str], options: &Options<'_>) -> Result<Output, Diagnostic> {
    let mut clock = Clock::start();
    let context = raw::context()?;
    let diagnostics = Diagnostics::collect(&context);
    let module = context.create_module("nvshmem");
    let mut needs = RequiredPtx::of(options)?;
    let version = raw::reading(path, || {
        let library = Library::open(&context, &diagnostics, path)?;
        library.fits(options.target, &mut needs)?;
        for name in functions {
            library.has(name, Span::NONE, None)?;
        }
        for f in library.defined() {
            // LLVM's linker takes external functions in any case.
            if !functions.iter().any(|name| f.get_name().to_bytes() == name.as_bytes()) {
                f.set_linkage(Linkage::LinkOnceODR);
            }
        }
        let version = library.version;
        library.link(&diagnostics, &module)?;
        Ok(version)
    })?;
    for f in of_library(&module) {
        f.set_linkage(Linkage::Internal);
    }
    clock.lap("link");
    let machine = pipeline::Machine::get(options, needs.version)?;
    machine.adopt(&module);
    clock.lap("machine");
    let llvm = options.keep_llvm.then(|| module.print_to_string().to_string());
    let ptx = machine.finished(&module, &diagnostics, options.target, needs.version)?;
    clock.lap("print");
    Ok(Output {
        ptx,
        version: needs.version,
        functions: functions.iter().map(|f| Arc::from(*f)).collect(),
        library: Some(version),
        llvm_before: None,
        llvm,
        timings: clock.laps,
    })
}

/// NVSHMEM's bitcode after opening.
struct Library<'a, 'c> {
    path: &'a Path,
    module: Module<'c>,
    version: [u32; 3],
}

impl<'a, 'c> Library<'a, 'c> {
    fn open(
        context: &'c Context,
        diagnostics: &Diagnostics<'c>,
        path: &'a Path,
    ) -> Result<Library<'a, 'c>, Diagnostic> {
        let module = open(context, diagnostics, path).map_err(|why| broken(path, &why))?;
        let version = version_of(&module).map_err(|why| broken(path, &why))?;
        Ok(Library { path, module, version })
    }

    /// The name for messages: `NVSHMEM 3.4.5 (/path/to/libnvshmem_device.bc)`.
    fn name(&self) -> String {
        let [major, minor, patch] = self.version;
        format!("NVSHMEM {major}.{minor}.{patch} ({})", self.path.display())
    }

    fn defined(&self) -> impl Iterator<Item = FunctionValue<'c>> + use<'c> {
        self.module.get_functions().filter(|f| is_defined(*f))
    }

    /// Checks that the target supports the library's code, and raises the version of PTX to the one
    /// that it needs.
    fn fits(&self, target: Target, needs: &mut RequiredPtx) -> Result<(), Diagnostic> {
        let Some(f) = self.defined().next() else { return Ok(()) };
        let text = |key| {
            let value = f.get_string_attribute(AttributeLoc::Function, key);
            value.map(|v| v.get_string_value().to_string_lossy().into_owned()).unwrap_or_default()
        };
        let least = text("target-cpu").strip_prefix("sm_").and_then(|sm| sm.parse::<u16>().ok());
        if let Some(least) = least.filter(|least| target.number() < *least) {
            let message = format!("{} is for sm_{least} and later, but the target is {target}", self.name());
            return Err(Diagnostic::error(NEW_LIBRARY, Span::NONE, message).help(format!(
                "compile for sm_{least} or later, or use NVSHMEM 3.7 or later, which has \
                     one file per architecture"
            )));
        }
        let features = text("target-features");
        let version = features.split(',').find_map(|f| f.strip_prefix("+ptx")).and_then(|v| {
            let (major, minor) = v.split_at_checked(v.len().checked_sub(1)?)?;
            format!("{major}.{minor}").parse::<PtxVersion>().ok()
        });
        match version {
            Some(version) => needs.raise(version, Span::NONE, || self.name()),
            None => Ok(()),
        }
    }

    /// Checks that the library has a function, and that its type is that of `declared`.
    fn has(&self, name: &str, span: Span, declared: Option<FunctionValue<'c>>) -> Result<(), Diagnostic> {
        let error = |message: String| Diagnostic::error(NO_LIBRARY_FUNCTION, span, message);
        match self.module.get_function(name).filter(|f| is_defined(*f)) {
            None => {
                let help = match since(name) {
                    Some(version) => format!(
                        "NVSHMEM has it from {version} on: run `weft setup --nvshmem {version}` to \
                         download that version"
                    ),
                    None => {
                        "check that it is a device function, and that its name is that in NVSHMEM's headers"
                            .into()
                    }
                };
                Err(error(format!("{} does not have the device function `{name}`", self.name())).help(help))
            }
            Some(f) if declared.is_some_and(|d| d.get_type() != f.get_type()) => {
                let (theirs, ours) = (f.get_type(), declared.map(FunctionValue::get_type));
                let ours = ours.map(|ty| ty.to_string()).unwrap_or_default();
                Err(error(format!("`{name}` of {} is {theirs}, but is called as {ours}", self.name()))
                    .help("this is a bug of warpweft: please report it with the kernel's text"))
            }
            Some(_) => Ok(()),
        }
    }

    fn link(self, diagnostics: &Diagnostics<'c>, into: &Module<'c>) -> Result<(), Diagnostic> {
        let path = self.path;
        raw::library::link(into, diagnostics, self.module).map_err(|why| broken(path, &why))?;
        // The attributes of the library's target would prevent inlining into kernels.
        for f in into.get_functions() {
            for key in ["target-cpu", "target-features"] {
                f.remove_string_attribute(AttributeLoc::Function, key);
            }
        }
        Ok(())
    }
}

/// The functions that came from a library because other functions need them.
fn of_library<'c>(module: &Module<'c>) -> impl Iterator<Item = FunctionValue<'c>> + use<'c> {
    module.get_functions().filter(|f| f.get_linkage() == Linkage::LinkOnceODR)
}

fn is_defined(f: FunctionValue<'_>) -> bool {
    !f.as_global_value().is_declaration()
}

fn is_small(f: FunctionValue<'_>) -> bool {
    f.get_basic_block_iter().flat_map(|b| b.get_instructions()).take(SMALL + 1).count() <= SMALL
}

fn enumeration(context: &Context, name: &str) -> Attribute {
    context.create_enum_attribute(Attribute::get_named_enum_kind_id(name), 0)
}
