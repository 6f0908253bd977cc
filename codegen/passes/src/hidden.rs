//! Parameters that the launcher fills in, which are added when they are first needed.

use weft_ir::abi::EntryKind;
use weft_ir::mixed::{Kernel, Type};
use weft_ir::{Hidden, Param, ParamKind, Space};

/// The index of a hidden parameter.
pub(crate) fn param(k: &mut Kernel, hidden: Hidden) -> u32 {
    let kind = ParamKind::Hidden(hidden);
    let params = &mut k.head.params;
    if let Some(at) = params.iter().position(|p| p.kind == kind) {
        return at as u32;
    }
    let of = params.get(hidden.base().unwrap_or(hidden.team()) as usize);
    let (of, span) = of.map_or(("world", k.span), |p| (&p.name, p.span));
    let what = match hidden {
        Hidden::Multicast { .. } => "mc",
        Hidden::TeamHandle { .. } => "handle",
        other => other.name(),
    };
    let name = format!("{of}_{what}").into();
    let ty = match hidden.entry() {
        EntryKind::Number(s) => Type::Scalar(s),
        EntryKind::Address { .. } | EntryKind::Map => Type::Pointer(Space::Global),
    };
    params.push(Param { name, ty, kind, div: 1, role: None, span });
    (params.len() - 1) as u32
}
