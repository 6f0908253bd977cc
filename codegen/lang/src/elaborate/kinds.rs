//! Descriptions of the variables of a program for editors: the type, layout and memory of each in
//! its kernels.

use super::description::Defines;
use super::head::begin;
use super::{Binding, Elab, Program};
use crate::ast::Ident;
use std::collections::BTreeMap;
use weft_ir::diag::Diagnostic;

/// The maximum number of descriptions of one variable. Functions are inlined for each call and
/// loops can be unrolled, so there can be several.
const MAX_KINDS: usize = 3;

/// Descriptions of variables by the file and the first byte of their definition.
pub type Kinds = BTreeMap<(u32, u32), Vec<String>>;

impl Program {
    /// Describes the variables of a kernel and of the functions that it calls, with these values
    /// for its compile-time parameters. Also returns the errors of the kernel.
    pub fn kinds(&self, name: &str, defines: &Defines) -> (Kinds, Vec<Diagnostic>) {
        let Some(kernel) = self.kernels.iter().find(|kernel| *kernel.name.name == *name) else {
            return Default::default();
        };
        match begin(self, kernel, defines, true, Some(Kinds::new())) {
            Ok((mut elab, ..)) => {
                if let Err(found) = elab.body(&kernel.body) {
                    elab.report(found);
                }
                let mut kinds = elab.kinds.take().unwrap_or_default();
                let errors = std::mem::take(&mut elab.errors);
                let kernel = elab.b.finish();
                for text in kinds.values_mut().flatten() {
                    *text = weft_ir::text::readable(&kernel, text);
                }
                (kinds, errors)
            }
            Err(errors) => (Kinds::new(), errors),
        }
    }
}

impl Elab<'_> {
    /// Records the description of a variable.
    pub(super) fn note_kind(&mut self, name: &Ident, binding: &Binding) {
        let Some(mut kinds) = self.kinds.take() else { return };
        let texts = kinds.entry((name.span.file, name.span.start)).or_default();
        if texts.len() < MAX_KINDS {
            let text = match binding {
                Binding::Val(value) => self.describe(value),
                Binding::Local(local, _) => format!("a variable {}", self.b.kernel().locals[*local].ty),
            };
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        self.kinds = Some(kinds);
    }
}
