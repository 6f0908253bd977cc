//! Allreduce, residual add and RMSNorm in one kernel, against an allreduce and a kernel behind it.

mod reference;

pub use reference::{Form, Given, Got, LEAST_SCALE, Wrong};

use weft_ir::Scalar;
use weft_lang::elaborate::Define;

/// The kernels' text: `examples/allreduce_rms_norm.weft`.
pub const TEXT: &str = include_str!("../../../examples/allreduce_rms_norm.weft");

/// A fused kernel of the text.
#[derive(Debug)]
pub struct Kernel {
    /// Its name there.
    pub name: &'static str,
}

/// The fused kernels.
pub const KERNELS: &[Kernel] = &[Kernel { name: "one_shot" }, Kernel { name: "two_shot" }];

impl Form {
    /// Values of the kernels' compile-time parameters.
    pub fn defines(&self, hidden: usize) -> [(&'static str, Define); 5] {
        let ty = |s: Scalar| s.into();
        [
            ("T", ty(self.dtype)),
            ("OUT", ty(self.out)),
            ("PER_TOKEN", Define::Bool(self.per_token)),
            ("BOTH", Define::Bool(self.both)),
            ("H", Define::Int(hidden as i64)),
        ]
    }
}
