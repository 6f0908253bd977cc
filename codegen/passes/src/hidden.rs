//! Parameters that the launcher fills in, added when first asked for.

use weft_ir::{Hidden, Kernel, Param, ParamKind, Type};

/// The index of that hidden parameter.
pub(crate) fn param(k: &mut Kernel, hidden: Hidden) -> u32 {
    let kind = ParamKind::Hidden(hidden);
    if let Some(at) = k.params.iter().position(|p| p.kind == kind) {
        return at as u32;
    }
    let of = k.params.get(hidden.base().unwrap_or(hidden.team()) as usize);
    let (of, span) = of.map_or(("world", k.span), |p| (&p.name, p.span));
    let what = match hidden {
        Hidden::Multicast { .. } => "mc",
        Hidden::TeamHandle { .. } => "handle",
        other => other.name(),
    };
    let name = format!("{of}_{what}").into();
    k.params.push(Param { name, ty: Type::Scalar(hidden.scalar()), kind, div: 1, span });
    (k.params.len() - 1) as u32
}
