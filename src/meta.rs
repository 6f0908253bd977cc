//! What a launcher needs to know of a compiled kernel, as data that can be stored beside the PTX.

use crate::compile::{Compiled, Lowering};
use serde::Serialize;
use weft_ir::abi::{EntryKind, signature};
use weft_ir::diag::Diagnostic;
use weft_ir::{Kernel, ParamKind, Type};

/// A compiled file.
#[derive(Clone, Debug, Serialize)]
pub struct Meta {
    /// As in `.target`.
    pub target: String,
    /// As in `.version`.
    pub ptx_version: String,
    /// `multimem` or `unicast`.
    pub lowering: &'static str,
    /// Entry points.
    pub kernels: Vec<KernelMeta>,
}

/// An entry point.
#[derive(Clone, Debug, Serialize)]
pub struct KernelMeta {
    /// Its name in the PTX.
    pub name: String,
    /// Threads a CTA.
    pub block: [u32; 3],
    /// CTAs, in terms of `%i`, parameter i; none where the launcher is free to choose.
    pub grid: Option<[String; 3]>,
    /// Parameters of the entry point, in order.
    pub params: Vec<ParamMeta>,
}

/// A parameter of an entry point.
#[derive(Clone, Debug, Serialize)]
pub struct ParamMeta {
    /// Its name.
    pub name: String,
    /// Bytes from the start of the parameters.
    pub offset: u32,
    /// In bytes.
    pub size: u32,
    /// Its type, as the IR writes it.
    #[serde(rename = "type")]
    pub ty: String,
    /// Who fills it in: `user`, or what the launcher passes, as `multicast(x, team)`.
    pub from: String,
    /// Alignment in bytes that an address must have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub align: Option<u32>,
}

/// Describes all kernels of a compiled file.
///
/// # Errors
/// A kernel whose parameters cannot be passed.
pub fn describe(c: &Compiled) -> Result<Meta, Diagnostic> {
    Ok(Meta {
        target: c.target.to_string(),
        ptx_version: c.ptx_version.to_string(),
        lowering: if c.lowering == Lowering::Unicast { "unicast" } else { "multimem" },
        kernels: c.low.kernels.iter().map(kernel).collect::<Result<_, _>>()?,
    })
}

fn kernel(k: &Kernel) -> Result<KernelMeta, Diagnostic> {
    let name = |i: u32| k.params.get(i as usize).map_or(String::new(), |p| p.name.to_string());
    let params = signature(k)?.into_iter().map(|e| {
        let p = &k.params[e.index as usize];
        let from = match p.kind {
            ParamKind::User => "user".to_owned(),
            ParamKind::MulticastOf { base, team } => format!("multicast({}, {})", name(base), name(team)),
            ParamKind::PeersOf { base, team } => format!("peers({}, {})", name(base), name(team)),
            ParamKind::MyPe { team } => format!("my_pe({})", name(team)),
            ParamKind::NPes { team } => format!("n_pes({})", name(team)),
        };
        let align = match e.kind {
            EntryKind::Address { align } => Some(align),
            EntryKind::Number(_) => None,
        };
        let ty = match &p.ty {
            Type::Tensor(t) => format!("{t}"),
            other => other.to_string(),
        };
        ParamMeta { name: p.name.to_string(), offset: e.offset, size: e.size, ty, from, align }
    });
    Ok(KernelMeta {
        name: k.name.to_string(),
        block: k.block,
        grid: k.grid.as_ref().map(|g| g.each_ref().map(ToString::to_string)),
        params: params.collect(),
    })
}
