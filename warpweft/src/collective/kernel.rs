//! The kernels of algorithms: their texts, and the options that compile them.

use super::algorithm::{Algorithm, reduction};
use super::table::{INBOX, LL_CTAS, LL_SLOTS, room};
use super::{Plan, Request};
use crate::compile::{KernelFile, Lowering, Options};
use crate::gpu::GpuError;
use std::collections::HashMap;
use std::sync::OnceLock;
use weft_ir::Scalar;
use weft_isa::Target;
use weft_lang::elaborate::{Define, Head};
use weft_runtime::error;

/// Alignments below 16 bytes are rare, so they share one kernel.
pub(super) fn align(request: &Request) -> u32 {
    if request.align >= 16 { 16 } else { request.dtype.bytes() }
}

/// A number that divides the count. If every PE has whole vectors, no access needs a bounds test.
pub(super) fn divisor(algorithm: &Algorithm, request: &Request) -> u32 {
    let vectors = (16 / request.dtype.bytes()).max(algorithm.run).saturating_mul(request.n_pes);
    if align(request) == 16 && request.count.is_multiple_of(vectors.into()) { vectors } else { 1 }
}

/// The options that compile an algorithm's kernel for a request, in a handle with `ctas` CTAs.
pub(super) fn options(
    plan: &Plan,
    request: &Request,
    ctas: u32,
    target: Target,
) -> Result<Options, GpuError> {
    let none = || refuse(error::OPERATION, format!("{} has no such kernel", plan.algorithm.name));
    let name = plan.algorithm.kernel(request.place).ok_or_else(none)?;
    options_of(name, plan, request, ctas, target)
}

/// The options that compile one of an algorithm's kernels.
pub(super) fn options_of(
    name: &str,
    plan: &Plan,
    request: &Request,
    ctas: u32,
    target: Target,
) -> Result<Options, GpuError> {
    let scalar = request.dtype;
    let op = reduction(request.op).unwrap_or(weft_ir::RedOp::Add);
    // Sums of 16-bit floats are accumulated in f32. fp8 has no arithmetic; f16 represents all its
    // numbers and their sums.
    let acc = match scalar {
        s if s.is_fp8() => Scalar::F16,
        Scalar::F16 | Scalar::BF16 if op == weft_ir::RedOp::Add => Scalar::F32,
        s => s,
    };
    let known: [(&str, Define); 16] = [
        ("T", scalar.into()),
        ("OP", op.into()),
        ("ACC", acc.into()),
        ("P", request.n_pes.into()),
        ("THREADS", plan.threads.into()),
        ("UNROLL", plan.unroll.into()),
        ("ALIGN", align(request).into()),
        ("DIV", divisor(plan.algorithm, request).into()),
        ("ONCE", plan.is_once(request).into()),
        ("MC", plan.algorithm.switch.into()),
        ("ROOT", request.root.into()),
        ("SLOTS", LL_SLOTS.into()),
        ("CTAS", LL_CTAS.into()),
        ("ROOM", room(request.n_pes).into()),
        ("STAGES", plan.algorithm.stages(plan.threads, plan.unroll, ctas).into()),
        ("INBOX", INBOX.into()),
    ];
    let head = head(plan.algorithm, name)?;
    let mut options = Options::new(target);
    options.kernel = Some(name.into());
    options.defines =
        known.into_iter().filter(|(n, _)| has(head, n)).map(|(n, d)| (n.to_owned(), d)).collect();
    Ok(options)
}

/// Whether a kernel has a compile-time parameter.
pub(super) fn has(head: &Head, name: &str) -> bool {
    head.generics.iter().any(|(g, ..)| **g == *name)
}

/// The text of an algorithm.
pub(super) fn file(algorithm: &Algorithm) -> Result<KernelFile, GpuError> {
    Ok(KernelFile::parse(&format!("weft/{}.weft", algorithm.part), algorithm.source())?)
}

impl Plan {
    /// The kernel file of the plan's algorithm, and the options that compile it for `request`: its kernel, its
    /// compile-time parameters, and the lowering that `request.multicast` asks for.
    ///
    /// # Errors
    /// Fails if the plan does not fit the request ([`check`](Plan::check)).
    pub fn compilation(&self, request: &Request, target: Target) -> Result<(KernelFile, Options), GpuError> {
        self.check(request, self.ctas).map_err(operation)?;
        let mut options = options(self, request, self.ctas, target)?;
        let multicast = request.multicast && !self.algorithm.avoids_switch();
        options.lowering = Lowering::Auto.decide(multicast).into();
        Ok((file(self.algorithm)?, options))
    }
}

/// The head of a kernel of the library, parsed once.
pub(super) fn head(algorithm: &'static Algorithm, kernel: &str) -> Result<&'static Head, GpuError> {
    static HEADS: OnceLock<HashMap<(&'static str, String), Head>> = OnceLock::new();
    let heads = HEADS.get_or_init(|| {
        let parts: std::collections::BTreeMap<_, _> = super::ALGORITHMS.iter().map(|a| (a.part, a)).collect();
        let of = |a: &Algorithm| file(a).map(|f| f.heads()).unwrap_or_default();
        let named = |(part, a): (&'static str, &'static Algorithm)| {
            of(a).into_iter().map(move |h| ((part, h.name.to_string()), h))
        };
        parts.into_iter().flat_map(named).collect()
    });
    let none = || refuse(error::NO_KERNEL, format!("there is no kernel `{kernel}` in {}", algorithm.part));
    heads.get(&(algorithm.part, kernel.to_owned())).ok_or_else(none)
}

/// The error for an operation that an algorithm does not support.
fn operation(why: String) -> GpuError {
    refuse(error::OPERATION, why)
}

pub(super) fn refuse(code: weft_runtime::error::Code, message: String) -> GpuError {
    weft_runtime::Error::new(code, message).into()
}
