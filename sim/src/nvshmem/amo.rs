//! Atomic memory operations.

use super::table::{ADD, ADD_FLOAT, BITWISE, COMPARE, Family, Param, SWAP, Size, row};
use super::{Call, Step};
use crate::check::AccessKind;
use crate::exec::Fault;
use crate::exec::access::{Space, from_le};
use crate::exec::remote::notes::Completed;
use crate::exec::remote::wire::{Change, change_element};

const DST: Param = ("dst", Size::Long);
const SRC: Param = ("src", Size::Long);
const PE: Param = ("pe", Size::Int);
const VALUE: Param = ("value", Size::Value);
const ONE: &[Param] = &[DST, VALUE, PE];
const NONE: &[Param] = &[DST, PE];
const LOGIC: &[&str] = &["and", "or", "xor"];

pub(super) static FAMILY: Family = Family {
    title: "Atomic memory operations",
    meaning: "An operation that returns a value is complete when it returns. Others can complete later.",
    rows: &[
        row("{T}_atomic_fetch", &[SRC, PE], fetch).types(SWAP).thread().returns(Size::Value),
        row("{T}_atomic_set", ONE, |c| send(c, c.args[1], c.args[2])).types(SWAP).thread(),
        row("{T}_atomic_swap", ONE, |c| exchange(c, c.args[1], c.args[2]))
            .types(SWAP)
            .thread()
            .returns(Size::Value),
        row("{T}_atomic_compare_swap", &[DST, ("cond", Size::Value), VALUE, PE], compare_swap)
            .types(COMPARE)
            .thread()
            .returns(Size::Value),
        row("{T}_atomic_{op}", NONE, |c| send(c, 1, c.args[1])).types(ADD).ops(&["inc"]).thread(),
        row("{T}_atomic_fetch_{op}", NONE, |c| exchange(c, 1, c.args[1]))
            .types(ADD)
            .ops(&["inc"])
            .thread()
            .returns(Size::Value),
        row("{T}_atomic_{op}", ONE, |c| send(c, c.args[1], c.args[2])).types(ADD).ops(&["add"]).thread(),
        row("{T}_atomic_fetch_{op}", ONE, |c| exchange(c, c.args[1], c.args[2]))
            .types(ADD)
            .ops(&["add"])
            .thread()
            .returns(Size::Value),
        row("{T}_atomic_{op}", ONE, |c| send(c, c.args[1], c.args[2]))
            .types(ADD_FLOAT)
            .ops(&["add"])
            .thread()
            .extension(),
        row("{T}_atomic_fetch_{op}", ONE, |c| exchange(c, c.args[1], c.args[2]))
            .types(ADD_FLOAT)
            .ops(&["add"])
            .thread()
            .extension()
            .returns(Size::Value),
        row("{T}_atomic_{op}", ONE, |c| send(c, c.args[1], c.args[2])).types(BITWISE).ops(LOGIC).thread(),
        row("{T}_atomic_fetch_{op}", ONE, |c| exchange(c, c.args[1], c.args[2]))
            .types(BITWISE)
            .ops(LOGIC)
            .thread()
            .returns(Size::Value),
    ],
};

/// The change that the function's name states.
fn change(c: &Call<'_, '_>) -> Change {
    c.f.combine.as_ref().map_or(Change::Set, Change::Combine)
}

/// The target PE and heap offset.
fn target(c: &Call<'_, '_>, pe: u64) -> Result<(usize, u64), Fault> {
    let what = c.f.row.params.first().map_or("dst", |(name, _)| name);
    Ok((c.pe(pe)?, c.symmetric(what, c.args[0], c.f.ty.bytes() as u64)?))
}

/// Issues an operation without a result.
fn send(c: &mut Call<'_, '_>, value: u64, pe: u64) -> Result<Step, Fault> {
    let (to, at) = target(c, pe)?;
    let (from, bytes, change) = (c.my_pe(), c.f.ty.bytes(), change(c));
    c.completes(Completed::Source);
    let landing = c.landing(false);
    c.cx.remote.wire.update(c.cx.memory, (from, to), (at, bytes), value, change, landing);
    Ok(Step::Done(0))
}

/// Executes an operation that returns the old value.
fn exchange(c: &mut Call<'_, '_>, value: u64, pe: u64) -> Result<Step, Fault> {
    let (to, at) = target(c, pe)?;
    Ok(Step::Done(now(c, to, at, value, change(c))))
}

/// Changes an element at once, after the operations that fences order before it.
fn now(c: &mut Call<'_, '_>, to: usize, at: u64, value: u64, change: Change) -> u64 {
    let (from, bytes) = (c.my_pe(), c.f.ty.bytes());
    c.cx.remote.wire.order(c.cx.memory, from, to);
    c.cx.remote.wire.count(from, to, bytes);
    c.watch_strong(AccessKind::Update, c.cx.memory.heap(to, at), bytes);
    change_element(c.cx.memory, c.cx.memory.heap(to, at), bytes, value, change)
}

fn fetch(c: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let (to, at) = target(c, c.args[1])?;
    Ok(Step::Done(look(c, to, at)))
}

fn compare_swap(c: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let [_, cond, value, pe, ..] = c.args;
    let (to, at) = target(c, pe)?;
    let old = look(c, to, at);
    if old == cond {
        now(c, to, at, value, Change::Set);
    }
    Ok(Step::Done(old))
}

/// Reads an element, after the operations that fences order before it.
fn look(c: &mut Call<'_, '_>, to: usize, at: u64) -> u64 {
    let (me, bytes) = (c.my_pe(), c.f.ty.bytes());
    c.cx.remote.wire.order(c.cx.memory, me, to);
    c.cx.remote.wire.count(to, me, bytes);
    c.watch_strong(AccessKind::Read, c.cx.memory.heap(to, at), bytes);
    let value = from_le(c.cx.memory.at(c.cx.memory.heap(to, at), bytes));
    let addr = c.cx.memory.peer_addr(me, to, at);
    c.repeats = c.cx.note_read(Space::Global, addr, value, bytes);
    value
}
