//! Describes the launch of a kernel by the parameters of the text, before anything is lowered.

use std::sync::Arc;
use weft_abi::extent::parameter;
use weft_abi::{Extent, Extents};
use weft_ir::abi::BAD_PARAM;
use weft_ir::diag::Diagnostic;
use weft_ir::level::Tensor;
use weft_ir::{
    Dim, Int, IntTuple, Kernel, Launch, LaunchParam, Operation, Param, Space, Sreg, Team, Thread, Type,
};
use weft_ir::{Value, Var};

/// Describes the launch of a kernel and the parameters that its caller passes.
pub(crate) fn describe(k: &Kernel) -> Result<Launch, Vec<Diagnostic>> {
    let mut errors = Vec::new();
    let mut params = Vec::new();
    for p in &k.head.params {
        match kind(k, p) {
            Ok(kind) => params.push(LaunchParam { name: Arc::clone(&p.name), kind }),
            Err(d) => errors.push(Diagnostic { span: p.span, ..d }),
        }
    }
    let grid = k.head.grid.as_ref().map(|grid| {
        let [x, y, z] = grid.each_ref().map(|n| extent(k, n).map(Extent));
        Ok::<_, Diagnostic>([x?, y?, z?])
    });
    let grid = grid.transpose().map_err(|d| vec![d])?;
    if errors.is_empty() { Ok(Launch { grid, planes: uses_grid_planes(k), params }) } else { Err(errors) }
}

fn kind(k: &Kernel, p: &Param<Tensor>) -> Result<weft_abi::ParamKind, Diagnostic> {
    use weft_abi::ParamKind as Kind;
    let bad = |help: &str| {
        let message = format!("parameter `{}` cannot be a {}", p.name, p.ty);
        Err(Diagnostic::error(BAD_PARAM, p.span, message).help(help))
    };
    Ok(match &p.ty {
        Type::Tensor(t) if !matches!(t.space, Space::Global | Space::Symmetric) => {
            return bad(
                "a caller can pass global and symmetric memory only: declare other memory in the kernel",
            );
        }
        Type::Tensor(t) => Kind::Tensor {
            dtype: t.elem,
            layout: Extents { shape: tuple(k, t.layout.shape())?, stride: tuple(k, t.layout.stride())? },
            space: t.space,
            align: t.align.max(1),
            role: p.role,
        },
        Type::Scalar(s) => Kind::Scalar { dtype: *s, multiple_of: p.div },
        Type::Barrier => Kind::Barrier,
        Type::Team => Kind::Team,
        Type::Pipeline(_) => return bad("make the pipeline in the kernel"),
        Type::Accumulator(_) => return bad("make the accumulator in the kernel"),
        Type::Vector(..) | Type::Unit => return bad("pass the numbers one by one, or pass a tensor of them"),
    })
}

fn tuple(k: &Kernel, t: &IntTuple) -> Result<IntTuple, Diagnostic> {
    match t {
        IntTuple::Int(n) => extent(k, n).map(IntTuple::Int),
        IntTuple::Tuple(t) => t.iter().map(|t| tuple(k, t)).collect::<Result<_, _>>().map(IntTuple::Tuple),
    }
}

/// An extent in terms of values that parameters pass.
fn extent(k: &Kernel, n: &Int) -> Result<Int, Diagnostic> {
    let mut unknown = false;
    let known = n.subst(&mut |v| {
        let op = k.insts.get(Value(v.id)).map(|i| &i.op);
        if let Some(Var::Param { index }) = op.and_then(Operation::var) {
            return Some(parameter(*index));
        }
        if let Some(Team::NPes { team }) = op.and_then(Operation::team) {
            return Some(parameter(team.0));
        }
        unknown = true;
        None
    });
    match unknown {
        false => Ok(known),
        true => {
            Err(Diagnostic::error(BAD_PARAM, k.span, format!("the extent {n} is not known before a launch"))
                .help("extents of parameters and grids can contain numbers, integer parameters and n_pes"))
        }
    }
}

/// Whether a kernel reads the second or third dimension of its grid.
fn uses_grid_planes(k: &Kernel) -> bool {
    let mut found = false;
    k.walk(&mut |_, inst| {
        found |= matches!(
            inst.op.thread(),
            Some(Thread::Special { reg: Sreg::BlockIdx | Sreg::GridDim, dim: Dim::Y | Dim::Z })
        );
    });
    found
}
