//! The oracle against verdicts that are published: the examples of the PTX manual's chapter on the memory consistency
//! model, and the tests of the paper that formalised it (Lustig, Sahasrabuddhe, Giroux, ASPLOS 2019).

use super::axioms::allowed;
use super::program::{Op, Order, Program, Scope, ThreadPlace, WEAK};

fn read(at: usize, order: Order) -> Op {
    Op::Read { at, order }
}

fn write(at: usize, value: u32, order: Order) -> Op {
    Op::Write { at, value, order }
}

fn fence(sc: bool, scope: Scope) -> Op {
    Op::Fence { sc, scope }
}

/// Whether some execution reads these values, with each thread in a CTA of its own.
fn can_read(threads: &[&[Op]], values: &[u32]) -> bool {
    let place = |cta| ThreadPlace { pe: 0, cta };
    let threads = threads.iter().enumerate().map(|(t, ops)| (place(t), ops.to_vec())).collect();
    let program = Program { threads, homes: vec![0; 4] };
    allowed(&program).keys().any(|(read, _)| read == values)
}

const GPU: Scope = Scope::Gpu;

#[test]
fn message_passing() {
    let flag = |sem: fn(Scope) -> Order, scope| [write(0, 1, WEAK), write(1, 1, sem(scope))];
    let look = |sem: fn(Scope) -> Order, scope| [read(1, sem(scope)), read(0, WEAK)];
    assert!(!can_read(&[&flag(Order::release, GPU), &look(Order::acquire, GPU)], &[1, 0]));
    assert!(can_read(&[&flag(Order::relaxed, GPU), &look(Order::acquire, GPU)], &[1, 0]));
    assert!(can_read(&[&flag(Order::release, GPU), &look(Order::relaxed, GPU)], &[1, 0]));
    // Scopes that do not include the other thread.
    assert!(can_read(&[&flag(Order::release, Scope::Cta), &look(Order::acquire, GPU)], &[1, 0]));
    assert!(can_read(&[&flag(Order::release, GPU), &look(Order::acquire, Scope::Cta)], &[1, 0]));
    let fenced = [write(0, 1, WEAK), fence(false, GPU), write(1, 1, Order::relaxed(GPU))];
    let then = [read(1, Order::relaxed(GPU)), fence(false, GPU), read(0, WEAK)];
    assert!(!can_read(&[&fenced, &then], &[1, 0]));
    // A weak flag synchronises nothing.
    let weak = [write(0, 1, WEAK), fence(false, GPU), write(1, 1, WEAK)];
    assert!(can_read(&[&weak, &then], &[1, 0]));
}

#[test]
fn store_buffering_needs_fence_sc() {
    let half = |mine: usize, fences: &[Op]| {
        let relaxed = Order::relaxed(GPU);
        [&[write(mine, 1, relaxed)], fences, &[read(1 - mine, relaxed)]].concat()
    };
    let both = |fences: &[Op]| can_read(&[&half(0, fences), &half(1, fences)], &[0, 0]);
    assert!(both(&[]));
    assert!(both(&[fence(false, GPU)]));
    assert!(!both(&[fence(true, GPU)]));
    assert!(both(&[fence(true, Scope::Cta)]));
}

#[test]
fn load_buffering_is_allowed_where_nothing_orders_it() {
    let half = |mine: usize, sem: [Order; 2]| [read(mine, sem[0]), write(1 - mine, 1, sem[1])];
    let both = |sem| can_read(&[&half(0, sem), &half(1, sem)], &[1, 1]);
    assert!(both([Order::relaxed(GPU); 2]));
    assert!(both([WEAK; 2]));
    assert!(!both([Order::acquire(GPU), Order::release(GPU)]));
}

#[test]
fn readers_may_see_writes_in_different_orders() {
    let (a, b) = ([write(0, 1, Order::relaxed(GPU))], [write(1, 1, Order::relaxed(GPU))]);
    let reader = |first: usize, sem: Order, fences: &[Op]| {
        [&[read(first, sem)], fences, &[read(1 - first, sem)]].concat()
    };
    let differ = |sem, fences: &[Op]| {
        can_read(&[&a, &b, &reader(0, sem, fences), &reader(1, sem, fences)], &[1, 0, 1, 0])
    };
    assert!(differ(Order::relaxed(GPU), &[]));
    // PTX is not multi-copy atomic: acquires alone do not forbid it.
    assert!(differ(Order::acquire(GPU), &[]));
    assert!(!differ(Order::relaxed(GPU), &[fence(true, GPU)]));
}

#[test]
fn causality_goes_over_several_threads() {
    let (release, acquire) = (Order::release(GPU), Order::acquire(GPU));
    let first = [write(0, 1, WEAK), write(1, 1, release)];
    let relay = |sem: [Order; 2]| [read(1, sem[0]), write(2, 1, sem[1])];
    let last = [read(2, acquire), read(0, WEAK)];
    assert!(!can_read(&[&first, &relay([acquire, release]), &last], &[1, 1, 0]));
    assert!(can_read(&[&first, &relay([acquire, Order::relaxed(GPU)]), &last], &[1, 1, 0]));
    assert!(can_read(&[&first, &relay([Order::relaxed(GPU), release]), &last], &[1, 1, 0]));
}

#[test]
fn updates_carry_a_release_on() {
    let first = [write(0, 1, WEAK), write(1, 1, Order::release(GPU))];
    let update = |order| [Op::Exchange { at: 1, value: 2, order }];
    let last = [read(1, Order::acquire(GPU)), read(0, WEAK)];
    assert!(!can_read(&[&first, &update(Order::relaxed(GPU)), &last], &[1, 2, 0]));
    // A plain write in between does not.
    let over = [read(1, Order::relaxed(GPU)), write(1, 2, Order::relaxed(GPU))];
    assert!(can_read(&[&first, &over, &last], &[1, 2, 0]));
}

#[test]
fn one_location_has_one_order() {
    let relaxed = Order::relaxed(GPU);
    let writes = [write(0, 1, relaxed), write(0, 2, relaxed)];
    assert!(!can_read(&[&writes, &[read(0, relaxed), read(0, relaxed)]], &[2, 1]));
    assert!(!can_read(&[&writes, &[read(0, relaxed), read(0, relaxed)]], &[1, 0]));
    // Of weak reads that race, nothing is promised.
    assert!(can_read(&[&writes, &[read(0, WEAK), read(0, WEAK)]], &[2, 1]));
    assert!(!can_read(&[&[write(0, 1, relaxed), read(0, relaxed)]], &[0]));
}
