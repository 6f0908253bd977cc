//! The modules that the simulator has read.

use crate::error::{Error, PTX, Result};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use weft_sim::{Module, PtxError};

/// Modules by their PTX. Clones share them.
#[derive(Clone, Default)]
pub struct Modules(Arc<Mutex<HashMap<String, Module>>>);

impl Modules {
    /// Returns the module of a PTX text, which the first call reads.
    ///
    /// # Errors
    /// Fails if the text is not PTX, or if it has an instruction that the simulator does not have.
    pub fn read(&self, ptx: &str) -> std::result::Result<Module, PtxError> {
        let mut modules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = modules.get(ptx) {
            return Ok(module.clone());
        }
        let module = Module::parse(ptx)?;
        modules.insert(ptx.to_owned(), module.clone());
        Ok(module)
    }

    /// Returns the module of a code image.
    pub(super) fn load(&self, image: &[u8]) -> Result<Module> {
        let text = std::str::from_utf8(image).map_err(|_| {
            Error::new(PTX, "the simulator runs PTX, but this code is not text")
                .help("load PTX: a cubin runs on GPUs only")
        })?;
        // (The driver needs a 0 at the end.)
        self.read(text.trim_end_matches('\0'))
            .map_err(|e| Error::new(PTX, format!("the simulator cannot read the code: {e}")))
    }
}

impl fmt::Debug for Modules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let modules = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        write!(f, "Modules({} texts)", modules.len())
    }
}
