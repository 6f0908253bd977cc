//! Bulk copies, selected by the memories and the elements that they copy.

use crate::choice::Choice;
use crate::form::Form;
use crate::instruction::Instruction;
use crate::words::{ElemType, Instr, RedOp, Scope, Sem};

/// The element types whose names in the language differ from those of reductions. Sums of signed
/// 64-bit integers are computed as unsigned ones.
const TYPES: [(&str, &str); 2] = [("i32", "s32"), ("i64", "s64")];

/// The copy of global memory to the shared memory of this CTA, or of several CTAs of the cluster.
pub fn bulk_load(multicast: bool) -> Option<Choice> {
    let multicast = if multicast { "multicast::cluster" } else { "-" };
    let words = ["shared::cluster", "global", "mbarrier::complete_tx::bytes", multicast, "-"];
    Some(Choice::new(Instruction::named("cp.async.bulk")?, &words))
}

/// The copy of shared memory to `global` memory, or to the shared memory of another CTA
/// (`shared::cluster`).
pub fn bulk_store(to: &str) -> Option<Choice> {
    let words = [to, "shared::cta", done(to), "-", "-"];
    Some(Choice::new(Instruction::named("cp.async.bulk")?, &words))
}

/// The reduction of shared memory into such memory. Type and reduction have their names in the
/// language.
pub fn bulk_reduction(elem: &str, op: &str, to: &str) -> Option<Choice> {
    let ty = reduced(elem, op);
    let op = if op == "add" && matches!(elem, "f16" | "bf16") { "add.noftz" } else { op };
    Some(Choice::new(Instruction::named("cp.reduce.async.bulk")?, &[ty, to, "shared::cta", done(to), op]))
}

/// The instruction that reduces shared memory into the memory of every PE, or copies it if there is
/// no reduction, in the switch. PEs reduce into the same elements at the same time, so the
/// reduction must have system scope. The weak reduction does not have it (PTX ISA).
pub fn bulk_in_switch(elem: &str, op: Option<RedOp>) -> Option<Form> {
    let Some(op) = op else { return Some(Form::new(Instr::CpBulk, ElemType::B8)) };
    let ty = ElemType::parse(reduced(elem, op.name()))?;
    Some(Form::new(Instr::CpReduceBulk, ty).op(op).order(Sem::Relaxed, Scope::Sys))
}

/// The type in PTX of a reduction of elements of a type.
fn reduced<'a>(elem: &'a str, op: &str) -> &'a str {
    let named = TYPES.iter().find(|(from, _)| *from == elem).map_or(elem, |(_, to)| *to);
    match (op, elem) {
        ("add", "i64") => "u64",
        ("and" | "or" | "xor", "i64" | "u64") => "b64",
        ("and" | "or" | "xor", "i32" | "u32") => "b32",
        _ => named,
    }
}

/// The word for the way in which a copy to such memory completes.
fn done(to: &str) -> &'static str {
    if to == "global" { "bulk_group" } else { "mbarrier::complete_tx::bytes" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_the_language_are_those_of_the_table() {
        let target = "sm_90a".parse().unwrap();
        let to_global = |elem, op| bulk_reduction(elem, op, "global").unwrap().check(target);
        assert!(to_global("i64", "add").is_ok() && to_global("i64", "max").is_ok());
        assert!(to_global("bf16", "add").is_ok() && to_global("i32", "xor").is_ok());
        assert_eq!(to_global("f32", "max").unwrap_err().code(), 709);
        assert_eq!(to_global("e4m3", "add").unwrap_err().code(), 709);
        assert!(bulk_store("shared::cluster").unwrap().check(target).is_ok());
        assert!(bulk_load(true).unwrap().check(target).is_ok());
    }
}
