//! Checks that no accumulator is read while a matrix product is adding to it, that is, while it is
//! in flight, and that only one product follows another one in the same registers.
//!
//! The walk follows the text. An accumulator is in flight from an `mma` until a wait that leaves no
//! more products in flight than have begun since. If one branch of an `if` leaves it in flight, it
//! is in flight after the `if`. Loops are walked twice, so that each round also follows a previous
//! round.

use crate::diag::{Code, Diagnostic};
use crate::kernel::{Block, Kernel, LocalId, Value};
use crate::op::{Control, Operation, Tile, Var};
use std::collections::{HashMap, HashSet};

/// An accumulator is read while a product may still add to it.
pub const IN_FLIGHT: Code = Code(240);

/// Reports reads of accumulators that are in flight, and those that two products use.
pub(crate) fn check(k: &Kernel, found: &mut Vec<Diagnostic>) {
    let mut any = false;
    k.walk(&mut |_, inst| {
        any |= matches!(inst.op.tile(), Some(Tile::AccumulatorRead { .. } | Tile::Mma { .. }));
    });
    if any {
        Walk { k, reported: HashSet::new(), found }.block(&k.body, &mut State::default());
    }
}

/// The product for which each accumulator waits, if there is one.
#[derive(Clone, Default)]
struct State {
    values: HashMap<Value, Value>,
    locals: HashMap<LocalId, Value>,
    /// For each product that may be in flight, the least number of products that have begun since.
    newer: HashMap<Value, u32>,
    /// For each product whose accumulator another product adds to, that product.
    followed: HashMap<Value, Value>,
}

impl State {
    /// Merges in the products that are in flight in another state.
    fn or(&mut self, other: State) {
        for (v, product) in other.values {
            self.values.entry(v).or_insert(product);
        }
        for (product, by) in other.followed {
            self.followed.entry(product).or_insert(by);
        }
        // In the branch that has gone on to another product, the variable holds that one.
        for (local, product) in other.locals {
            let known = self.locals.entry(local).or_insert(product);
            if self.followed.contains_key(known) {
                *known = product;
            }
        }
        for (product, newer) in other.newer {
            let known = self.newer.entry(product).or_insert(newer);
            *known = newer.min(*known);
        }
    }
}

struct Walk<'k, 'f> {
    k: &'k Kernel,
    reported: HashSet<Value>,
    found: &'f mut Vec<Diagnostic>,
}

impl Walk<'_, '_> {
    fn block(&mut self, block: &Block, state: &mut State) {
        for &v in &block.0 {
            let Some(inst) = self.k.insts.get(v) else { continue };
            match inst.op.control() {
                Some(Control::If { then, otherwise, .. }) => {
                    let mut other = state.clone();
                    self.block(then, state);
                    self.block(otherwise, &mut other);
                    state.or(other);
                }
                Some(Control::Role { body, .. }) => self.block(body, &mut state.clone()),
                Some(_) => {
                    for _ in 0..2 {
                        let before = state.clone();
                        inst.op.blocks().into_iter().for_each(|b| self.block(b, state));
                        state.or(before);
                    }
                }
                None => self.step(v, state),
            }
        }
    }

    fn step(&mut self, v: Value, state: &mut State) {
        let inst = &self.k.insts[v];
        if let Some(Tile::Mma { acc, .. } | Tile::MmaWait { acc, .. }) = inst.op.tile() {
            self.follows(v, *acc, state);
        }
        let product = match (inst.op.tile(), inst.op.var()) {
            (Some(Tile::Mma { .. }), _) => {
                state.followed.remove(&v);
                state.newer.values_mut().for_each(|n| *n = n.saturating_add(1));
                state.newer.insert(v, 0);
                Some(v)
            }
            (Some(Tile::MmaWait { acc, pending }), _) => {
                state.newer.retain(|_, newer| *newer < *pending);
                state.values.get(acc).copied().filter(|product| state.newer.contains_key(product))
            }
            (_, Some(Var::LocalGet { local })) => state.locals.get(local).copied(),
            (_, Some(Var::LocalSet { local, value })) => {
                match state.values.get(value) {
                    Some(product) => state.locals.insert(*local, *product),
                    None => state.locals.remove(local),
                };
                None
            }
            (Some(Tile::AccumulatorRead { acc, .. }), _) => {
                if let Some(product) = state.values.get(acc).copied()
                    && self.reported.insert(v)
                {
                    self.report(v, product);
                }
                None
            }
            _ => None,
        };
        match product {
            Some(product) => state.values.insert(v, product),
            None => state.values.remove(&v),
        };
    }

    /// Reports a product or a wait whose accumulator is in flight and already belongs to a later
    /// product.
    fn follows(&mut self, v: Value, acc: Value, state: &mut State) {
        let Some(product) = state.values.get(&acc).copied() else { return };
        if let Some(by) = state.followed.get(&product).copied()
            && self.reported.insert(v)
        {
            let span = |v: Value| self.k.insts[v].span;
            self.found.push(
                Diagnostic::error(IN_FLIGHT, span(v), "an accumulator in flight is used by two products")
                    .related(span(product), "this product may still add to it")
                    .related(span(by), "this product adds to it next")
                    .help(
                        "use the accumulator that the later product returns, or wait for the earlier one \
                         before both: `acc = mma_wait<0>(acc);`",
                    ),
            );
        }
        if matches!(self.k.insts[v].op.tile(), Some(Tile::Mma { .. })) {
            state.followed.insert(product, v);
        }
    }

    fn report(&mut self, v: Value, product: Value) {
        let span = |v: Value| self.k.insts[v].span;
        self.found.push(
            Diagnostic::error(IN_FLIGHT, span(v), "an accumulator is read while it is in flight")
                .related(span(product), "this product may still add to it")
                .help("wait for it first: `acc = mma_wait<0>(acc);`"),
        );
    }
}
