//! A decoded PTX module, ready to run on any number of machines.

use crate::error::PtxError;
use crate::exec::code::{Code, Kernel};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the modules of the process, so that a machine recognises a module that it has loaded.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// A PTX module that was read and decoded. Clones are cheap.
#[derive(Clone)]
pub struct Module {
    pub(crate) inner: Arc<Code>,
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module")
            .field("target", &self.inner.target)
            .field("kernels", &self.inner.kernels)
            .finish()
    }
}

impl Module {
    /// Reads and decodes PTX text.
    ///
    /// # Errors
    /// Fails at the first text that is not PTX, or that is PTX which the simulator does not
    /// execute. The simulator never skips an instruction or a modifier.
    pub fn parse(ptx: &str) -> Result<Module, PtxError> {
        let code = crate::decode::decode(ptx, NEXT_ID.fetch_add(1, Ordering::Relaxed))?;
        Ok(Module { inner: Arc::new(code) })
    }

    /// Reads a module like [`parse`](Module::parse), for kernels that execute an operation of the
    /// host. Statistics do not count their instructions.
    ///
    /// # Errors
    /// Fails where [`parse`](Module::parse) fails.
    pub fn parse_for_host(ptx: &str) -> Result<Module, PtxError> {
        let mut code = crate::decode::decode(ptx, NEXT_ID.fetch_add(1, Ordering::Relaxed))?;
        code.of_host = true;
        Ok(Module { inner: Arc::new(code) })
    }

    /// The kernels (`.entry`) in order of appearance.
    pub fn kernels(&self) -> &[Kernel] {
        &self.inner.kernels
    }

    /// The kernel of this name.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.inner.kernels.iter().find(|k| k.name == name)
    }

    /// The first `.target`, for example `sm_90a`.
    pub fn target(&self) -> &str {
        &self.inner.target
    }

    /// The PTX version, for example `(8, 8)`.
    pub fn version(&self) -> (u32, u32) {
        self.inner.version
    }

    /// The PTX text that the module was made from.
    pub fn text(&self) -> &str {
        &self.inner.text
    }
}
