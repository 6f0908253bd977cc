//! A snapshot of the table of the ops, so that a change of a column shows in the diff.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{Complete, read};
use weft_ir::level::Mixed;
use weft_ir::op::{AccessedMemory, Operation};

/// `%3`, or `%3 there` for another PE's copy.
fn places(places: Vec<AccessedMemory>) -> String {
    let one = |p: &AccessedMemory| format!("{}{}", p.value, if p.remote { " there" } else { "" });
    if places.is_empty() { "-".into() } else { places.iter().map(one).collect::<Vec<_>>().join(" ") }
}

#[test]
fn columns_of_every_op() {
    let mut table = String::new();
    for k in &read::<Mixed>(&Mixed::text()).kernels {
        let mut ops: Vec<_> = k.insts.iter().map(|(_, inst)| &inst.op).collect();
        ops.sort_by_key(|op| op.mnemonic());
        ops.dedup_by_key(|op| op.mnemonic());
        for op in ops {
            let order = op.order().map_or("-".into(), |(sem, allowed)| {
                let allowed: Vec<_> = allowed.iter().map(|s| s.name()).collect();
                format!("{sem} of {}", allowed.join(" "))
            });
            let teams: Vec<_> = op.teams().iter().map(|t| format!("{}", t.0 as i32)).collect();
            let group = op.group().map_or("-", |g| g.name());
            let class = if op.is_pure() { "pure" } else { "effect" };
            table.push_str(&format!(
                "{} {class} | reads {} | writes {} | order {order} | group {group} | teams [{}] | {} | {:?}\n",
                op.mnemonic(),
                places(op.reads()),
                places(op.writes()),
                teams.join(" "),
                op.quoted_name(),
                op.spread(),
            ));
        }
        table.push('\n');
    }
    insta::assert_snapshot!(table);
}
