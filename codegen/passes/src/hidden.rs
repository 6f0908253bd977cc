//! Parameters that the launcher fills in, added when first asked for.

use weft_ir::{Kernel, Param, ParamKind, Scalar, Type};

/// The index of the parameter of that kind.
pub(crate) fn param(k: &mut Kernel, kind: ParamKind) -> u32 {
    if let Some(at) = k.params.iter().position(|p| p.kind == kind) {
        return at as u32;
    }
    let name = |of: u32| k.params.get(of as usize).map_or("world", |p| &p.name).to_owned();
    let (of, what, ty) = match kind {
        ParamKind::MulticastOf { base, .. } => (base, "mc", Scalar::U64),
        ParamKind::PeersOf { base, .. } => (base, "peers", Scalar::U64),
        ParamKind::ReachOf { base, .. } => (base, "reach", Scalar::U64),
        ParamKind::TeamHandle { team } => (team, "handle", Scalar::I32),
        ParamKind::MyPe { team } => (team, "my_pe", Scalar::I32),
        ParamKind::NPes { team } => (team, "n_pes", Scalar::I32),
        // Nobody asks for one: what the caller fills in is declared by the kernel.
        ParamKind::User => (u32::MAX, "param", Scalar::U64),
    };
    let span = k.params.get(of as usize).map_or(k.span, |p| p.span);
    let param =
        Param { name: format!("{}_{what}", name(of)).into(), ty: Type::Scalar(ty), kind, div: 1, span };
    k.params.push(param);
    (k.params.len() - 1) as u32
}
