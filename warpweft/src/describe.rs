//! Describes compiled kernels for launchers. The description is stored beside the PTX, and `--emit
//! meta` prints it.

use crate::compile::Compiled;
use weft_abi::KernelInfo;
use weft_ir::abi;
use weft_ir::diag::Diagnostic;
use weft_ir::machine::Kernel;
use weft_runtime::launch::ModuleInfo;

impl Compiled {
    /// Describes all kernels for a launcher: the parameters, threads and memory of each.
    ///
    /// # Errors
    /// Fails if the launch of a kernel is not known, because it was built without the passes.
    pub fn describe(&self) -> Result<ModuleInfo, Diagnostic> {
        Ok(ModuleInfo {
            target: self.target.to_string(),
            ptx_version: self.ptx_version.to_string(),
            lowering: self.lowering,
            external: self.external().into_iter().map(str::to_owned).collect(),
            nvshmem: self.nvshmem,
            remarks: Vec::new(),
            kernels: self.low.kernels.iter().map(|k| kernel(self, k)).collect::<Result<_, _>>()?,
        })
    }
}

/// Describes a kernel, including the waits that the passes have numbered.
fn kernel(c: &Compiled, k: &Kernel) -> Result<KernelInfo, Diagnostic> {
    let waits = c.report.waits.iter().filter(|w| *w.kernel == *k.name);
    Ok(KernelInfo { waits: waits.map(|w| w.info.clone()).collect(), ..abi::describe(k)? })
}
