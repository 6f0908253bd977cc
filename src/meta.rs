//! What a launcher needs to know of a compiled kernel: the compiler's side of
//! [`weft_runtime::launch::ModuleInfo`], which is stored beside the PTX.

use crate::compile::Compiled;
use weft_ir::abi::{BAD_PARAM, EntryKind, EntryParam, signature};
use weft_ir::diag::Diagnostic;
use weft_ir::{Dim, Int, IntTuple, Kernel, Op, Param, ParamKind, Space, Sreg, Type, Value};
use weft_runtime::launch::extent::{Extent, Extents, parameter};
use weft_runtime::launch::{self, KernelInfo, ModuleInfo, ParamInfo};

/// Describes all kernels of a compiled file.
///
/// # Errors
/// A kernel whose parameters cannot be passed, or depend on what no launch knows.
pub fn describe(c: &Compiled) -> Result<ModuleInfo, Diagnostic> {
    Ok(ModuleInfo {
        target: c.target.to_string(),
        ptx_version: c.ptx_version.to_string(),
        lowering: c.lowering,
        external: c.external().into_iter().map(str::to_owned).collect(),
        nvshmem: c.nvshmem,
        kernels: c
            .high
            .kernels
            .iter()
            .zip(&c.low.kernels)
            .map(|(h, l)| kernel(h, l))
            .collect::<Result<_, _>>()?,
    })
}

/// Layouts are those of the text, offsets those of the code.
fn kernel(high: &Kernel, low: &Kernel) -> Result<KernelInfo, Diagnostic> {
    let entries = signature(low)?;
    let end = entries.last().map_or(0, |e| e.offset + e.size);
    let params = (0u32..).zip(&low.params).map(|(i, p)| {
        let entry = entries.iter().find(|e| e.index == i);
        let (offset, size) = entry.map_or((end, 0), |e| (e.offset, e.size));
        let kind = kind(high, high.params.get(i as usize).unwrap_or(p), entry)?;
        Ok(ParamInfo { name: p.name.to_string(), offset, size, kind })
    });
    let grid = high.grid.as_ref().map(|grid| {
        let [x, y, z] = grid.each_ref().map(|n| extent(high, n).map(Extent));
        Ok::<_, Diagnostic>([x?, y?, z?])
    });
    Ok(KernelInfo {
        name: low.name.to_string(),
        block: low.block,
        cluster: None,
        grid: grid.transpose()?,
        planes: uses_grid_planes(high),
        params: params.collect::<Result<_, Diagnostic>>()?,
    })
}

fn kind(high: &Kernel, p: &Param, entry: Option<&EntryParam>) -> Result<launch::ParamKind, Diagnostic> {
    use launch::ParamKind as Kind;
    Ok(match (p.kind, &p.ty) {
        (ParamKind::Hidden(hidden), _) => Kind::Hidden(hidden),
        (ParamKind::User, Type::Tensor(t)) => Kind::Tensor {
            dtype: t.elem,
            layout: Extents {
                shape: tuple(high, t.layout.shape()).map_err(|e| of_param(e, p))?,
                stride: tuple(high, t.layout.stride()).map_err(|e| of_param(e, p))?,
            },
            space: if t.space == Space::Symmetric { Space::Symmetric } else { Space::Global },
            align: match entry.map(|e| e.kind) {
                Some(EntryKind::Address { align }) => align,
                _ => 1,
            },
        },
        (ParamKind::User, Type::Scalar(s)) => Kind::Scalar { dtype: *s, multiple_of: p.div },
        (ParamKind::User, Type::Barrier) => Kind::Barrier,
        (ParamKind::User, Type::Team) => Kind::Team,
        (ParamKind::User, other) => {
            let message = format!("parameter `{}` is a {other}, which no launch passes", p.name);
            return Err(Diagnostic::error(BAD_PARAM, p.span, message));
        }
    })
}

fn tuple(k: &Kernel, t: &IntTuple) -> Result<IntTuple, Diagnostic> {
    match t {
        IntTuple::Int(n) => extent(k, n).map(IntTuple::Int),
        IntTuple::Tuple(t) => t.iter().map(|t| tuple(k, t)).collect::<Result<_, _>>().map(IntTuple::Tuple),
    }
}

/// In terms of what parameters bring.
fn extent(k: &Kernel, n: &Int) -> Result<Int, Diagnostic> {
    let mut unknown = false;
    let known = n.subst(&mut |v| match k.insts.get(Value(v.id)).map(|i| &i.op) {
        Some(Op::Param { index }) => Some(parameter(*index)),
        Some(Op::NPes { team }) => Some(parameter(team.0)),
        _ => {
            unknown = true;
            None
        }
    });
    match unknown {
        false => Ok(known),
        true => {
            Err(Diagnostic::error(BAD_PARAM, k.span, format!("the extent {n} is not known before a launch"))
                .help("extents of parameters and grids are made of numbers, integer parameters and n_pes"))
        }
    }
}

fn of_param(d: Diagnostic, p: &Param) -> Diagnostic {
    Diagnostic { span: p.span, ..d }
}

/// Whether a kernel looks at its grid's second or third dimension.
pub(crate) fn uses_grid_planes(k: &Kernel) -> bool {
    let mut found = false;
    k.walk(&mut |_, inst| {
        found |= matches!(inst.op, Op::Special { reg: Sreg::BlockIdx | Sreg::GridDim, dim: Dim::Y | Dim::Z });
    });
    found
}
