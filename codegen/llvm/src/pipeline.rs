//! LLVM's own stages: the target machine, the list of passes, and the text of the result.

use crate::raw::Diagnostics;
use crate::{Options, failed};
use inkwell::OptimizationLevel;
use inkwell::module::Module;
use inkwell::passes::PassBuilderOptions;
use inkwell::targets::{
    CodeModel, FileType, InitializationConfig, RelocMode, Target as LlvmTarget, TargetMachine, TargetTriple,
};
use std::sync::LazyLock;
use weft_ir::diag::Diagnostic;
use weft_isa::{PtxVersion, Target};

/// The level at which LLVM optimizes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum OptLevel {
    /// No optimization: the code as it was lowered, for inspection.
    O0,
    /// Turns variables into registers and simplifies. The text is printed without further
    /// optimization. This level is for kernels that are compiled more often than they run.
    O1,
    /// Optimizes like `O1`, and also loops.
    O2,
    /// Optimizes like `O2`, and also removes redundancies over the whole kernel (the default).
    #[default]
    O3,
}

/// LLVM's passes of a level, in order, in the syntax of its `opt -passes=`.
///
/// The list is not `default<O3>`. A kernel has no calls to inline, its vectors are determined by
/// the layouts, and its loops already have LLVM's canonical form, so this list takes half the time.
/// Every loop states its unroll factor, so `loop-unroll` does not guess. Completely unrolled loops
/// come first, because values that were indexed by their variables are registers afterwards.
pub fn passes(opt: OptLevel) -> &'static str {
    match opt {
        OptLevel::O0 => "",
        OptLevel::O1 => "function(sroa,early-cse,simplifycfg,instcombine<no-verify-fixpoint>)",
        OptLevel::O2 => {
            "function(sroa,early-cse,simplifycfg,instcombine<no-verify-fixpoint>,\
             loop-mssa(licm),loop(loop-unroll-full),sroa,\
             loop-unroll<O2>,instcombine<no-verify-fixpoint>,early-cse,simplifycfg)"
        }
        OptLevel::O3 => {
            "function(sroa,early-cse<memssa>,simplifycfg,instcombine<no-verify-fixpoint>,\
             loop-mssa(licm),loop(loop-deletion,loop-unroll-full),sroa,gvn,dse,\
             loop-unroll<O3>,instcombine<no-verify-fixpoint>,early-cse,simplifycfg,adce)"
        }
    }
}

/// Options of LLVM's command line, which apply to the whole process. Loop strength reduction takes
/// a third of the time of printing, and ptxas turns its pointers into longer code with more
/// registers. Straight-line strength reduction compares every two sums in which a value occurs, so
/// its time grows with the square of their number. The passes that compute addresses have left it
/// very little to do.
const FLAGS: [&std::ffi::CStr; 3] = [c"weft", c"-disable-lsr", c"-opt-disable=slsr"];

const TRIPLE: &str = "nvptx64-nvidia-cuda";

/// A target machine.
pub(crate) struct Machine {
    machine: TargetMachine,
    opt: OptLevel,
}

impl Machine {
    /// The machine for a target and a version of PTX.
    pub fn get(options: &Options<'_>, version: PtxVersion) -> Result<Machine, Diagnostic> {
        static INITIALIZE: LazyLock<()> = LazyLock::new(|| {
            crate::raw::set_flags(&FLAGS);
            LlvmTarget::initialize_nvptx(&InitializationConfig::default());
        });
        crate::raw::open()?;
        LazyLock::force(&INITIALIZE);
        let triple = TargetTriple::create(TRIPLE);
        let target = LlvmTarget::from_triple(&triple).map_err(|e| failed(e.to_string()))?;
        let level = match options.opt {
            OptLevel::O0 | OptLevel::O1 => OptimizationLevel::None,
            OptLevel::O2 => OptimizationLevel::Default,
            OptLevel::O3 => OptimizationLevel::Aggressive,
        };
        let features = version.min(PtxVersion::llvm_highest()).llvm_feature();
        let cpu = options.target.llvm_cpu();
        let machine = target
            .create_target_machine(&triple, cpu, &features, level, RelocMode::Default, CodeModel::Default)
            .ok_or_else(|| failed(format!("no target machine for {cpu} {features}")))?;
        Ok(Machine { machine, opt: options.opt })
    }

    /// Sets the machine's layout and triple in a module.
    pub fn adopt(&self, module: &Module<'_>) {
        module.set_triple(&TargetTriple::create(TRIPLE));
    }

    /// Runs the passes. If a library is linked, its small functions are inlined first, and unused
    /// functions are removed. The others were optimised when the library was built.
    pub fn optimize(&self, module: &Module<'_>, linked: bool) -> Result<(), Diagnostic> {
        let list = match (passes(self.opt), linked) {
            ("", _) => return Ok(()),
            (list, false) => list.to_owned(),
            (list, true) => format!("always-inline,{list},globaldce"),
        };
        module
            .run_passes(&list, &self.machine, PassBuilderOptions::create())
            .map_err(|e| failed(e.to_string()))
    }

    /// Prints the PTX. The module is of no further use afterwards, because variables that were kept
    /// for a library are removed.
    pub fn finished(
        &self,
        module: &Module<'_>,
        diagnostics: &Diagnostics<'_>,
        target: Target,
        version: PtxVersion,
    ) -> Result<String, Diagnostic> {
        crate::raw::library::forget_used(module);
        let buffer = self
            .machine
            .write_to_memory_buffer(module, FileType::Assembly)
            .map_err(|e| failed(e.to_string()))?;
        let text = String::from_utf8(buffer.as_slice().to_vec()).map_err(failed)?;
        match diagnostics.take().into_iter().next() {
            Some(message) => Err(failed(message)),
            None => finish(text, target, version),
        }
    }
}

/// Removes an empty section, and sets the `.version` and `.target` that LLVM cannot print.
fn finish(mut text: String, target: Target, version: PtxVersion) -> Result<String, Diagnostic> {
    // LLVM prints this section with line information, last except for the file names.
    const SECTION: &str = "\t.section\t.debug_macinfo\t{\t}\n";
    if let Some(at) = text.rfind(SECTION) {
        text.replace_range(at..at + SECTION.len(), "");
    }
    if version <= PtxVersion::llvm_highest() && target.llvm_knows() {
        return Ok(text);
    }
    let printed = (
        format!(".version {}\n.target {}", version.min(PtxVersion::llvm_highest()), target.llvm_cpu()),
        format!(".version {version}\n.target {target}"),
    );
    if !text.contains(&printed.0) {
        return Err(failed(format!("expected `{}` in its output", printed.0.replace('\n', " "))));
    }
    Ok(text.replacen(&printed.0, &printed.1, 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_the_machines() {
        for target in Target::all() {
            let machine = Machine::get(&Options::new(target), target.min_ptx()).unwrap();
            let layout = machine.machine.get_target_data().get_data_layout();
            assert_eq!(layout.as_str(), crate::raw::LAYOUT, "{target}");
        }
    }

    #[test]
    fn heads_that_llvm_cannot_print_are_written_in() {
        let target = "sm_107a".parse().unwrap();
        let text = ".version 9.0\n.target sm_103f\nrest\n\t.section\t.debug_macinfo\t{\t}\n";
        let done = finish(text.into(), target, PtxVersion::new(9, 4)).unwrap();
        assert_eq!(done, ".version 9.4\n.target sm_107a\nrest\n");
        assert!(finish("rest".into(), target, PtxVersion::new(9, 4)).is_err());
    }
}
