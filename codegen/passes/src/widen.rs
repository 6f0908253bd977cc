//! widen
use crate::{Options, Report};
use weft_ir::Kernel;
use weft_ir::diag::Diagnostic;
pub(crate) fn run(k: Kernel, _: &Options, _: &mut Report) -> Result<Kernel, Vec<Diagnostic>> {
    Ok(k)
}
