//! Allocates register slots: names whose values are never needed at the same time share one slot.
//!
//! PTX names thousands of registers, each written once; a warp's slots are its largest piece of
//! memory and its working set. Liveness is that of one thread, as every lane has its own column in
//! each slot.

use crate::builder::Step;
use crate::exec::Reg;

/// The largest total number of bits of the analysis' sets. Beyond it every register keeps a slot of
/// its own.
const MAX_SET_BITS: usize = 1 << 30;

/// Steps `first..last` without a jump between them.
struct Block {
    first: usize,
    last: usize,
    next: Vec<usize>,
}

/// A set of registers.
type Set = Vec<u64>;

fn insert(set: &mut Set, r: u32) {
    set[r as usize / 64] |= 1 << (r % 64);
}

fn contains(set: &Set, r: u32) -> bool {
    set[r as usize / 64] >> (r % 64) & 1 == 1
}

fn members(set: &Set) -> impl Iterator<Item = u32> {
    let word =
        |(i, &w): (usize, &u64)| (0..64).filter(move |b| w >> b & 1 == 1).map(move |b| i as u32 * 64 + b);
    set.iter().enumerate().flat_map(word)
}

/// Assigns slots to `count` registers. Returns the slot of each, and the number of slots. `labels`
/// are program counters.
pub(super) fn allocate(steps: &[Step], count: u32, labels: &[u32]) -> (Vec<Reg>, u32) {
    let blocks = blocks(steps, labels);
    let words = (count as usize).div_ceil(64);
    if blocks.len().saturating_mul(words).saturating_mul(4 * 64) > MAX_SET_BITS {
        return ((0..count).map(Reg).collect(), count);
    }
    let live_in = live_in(steps, &blocks, words);
    assign(&intervals(steps, &blocks, &live_in, count))
}

/// Splits at jumps and their targets.
fn blocks(steps: &[Step], labels: &[u32]) -> Vec<Block> {
    let step_of = |label: u32| {
        let pc = labels.get(label as usize).copied().unwrap_or(u32::MAX);
        steps.partition_point(|s| s.pc < pc)
    };
    let mut starts = vec![false; steps.len() + 1];
    starts[0] = true;
    for (i, s) in steps.iter().enumerate() {
        if s.ends || !s.jumps.is_empty() {
            starts[i + 1] = true;
            s.jumps.iter().for_each(|&l| starts[step_of(l)] = true);
        }
    }
    let firsts: Vec<usize> = (0..steps.len()).filter(|&i| starts[i]).collect();
    let block_of = |step: usize| firsts.binary_search(&step).ok();
    let mut out = Vec::with_capacity(firsts.len());
    for (b, &first) in firsts.iter().enumerate() {
        let last = firsts.get(b + 1).copied().unwrap_or(steps.len());
        let end = &steps[last - 1];
        let mut next: Vec<usize> = end.jumps.iter().filter_map(|&l| block_of(step_of(l))).collect();
        let falls_through = end.guarded || (end.jumps.is_empty() && !end.ends);
        next.extend(block_of(last).filter(|_| falls_through));
        out.push(Block { first, last, next });
    }
    out
}

/// Registers that are live at the start of each block.
fn live_in(steps: &[Step], blocks: &[Block], words: usize) -> Vec<Set> {
    let mut uses = vec![vec![0; words]; blocks.len()];
    let mut kills = vec![vec![0; words]; blocks.len()];
    for (b, block) in blocks.iter().enumerate() {
        for s in &steps[block.first..block.last] {
            for &r in s.uses.iter().filter(|&&r| !contains(&kills[b], r)) {
                insert(&mut uses[b], r);
            }
            if !s.guarded {
                s.defs.iter().for_each(|&r| insert(&mut kills[b], r));
            }
        }
    }
    let mut live: Vec<Set> = uses.clone();
    let mut predecessors = vec![Vec::new(); blocks.len()];
    for (b, block) in blocks.iter().enumerate() {
        block.next.iter().for_each(|&n| predecessors[n].push(b));
    }
    let mut queued = vec![true; blocks.len()];
    let mut todo: Vec<usize> = (0..blocks.len()).collect();
    while let Some(b) = todo.pop() {
        queued[b] = false;
        let mut changed = false;
        for w in 0..words {
            let out = blocks[b].next.iter().fold(0, |out, &n| out | live[n][w]);
            let value = uses[b][w] | out & !kills[b][w];
            changed |= value != live[b][w];
            live[b][w] = value;
        }
        if changed {
            for &p in &predecessors[b] {
                if !std::mem::replace(&mut queued[p], true) {
                    todo.push(p);
                }
            }
        }
    }
    live
}

/// The first and last step at which each register's slot is in use; `None` for a register that
/// never occurs.
fn intervals(steps: &[Step], blocks: &[Block], live_in: &[Set], count: u32) -> Vec<Option<(usize, usize)>> {
    let mut out: Vec<Option<(usize, usize)>> = vec![None; count as usize];
    let mut touch = |r: u32, at: usize| {
        let i = &mut out[r as usize];
        *i = Some(i.map_or((at, at), |(a, b)| (a.min(at), b.max(at))));
    };
    for (b, block) in blocks.iter().enumerate() {
        members(&live_in[b]).for_each(|r| touch(r, block.first));
        for (i, s) in steps.iter().enumerate().take(block.last).skip(block.first) {
            s.uses.iter().chain(&s.defs).for_each(|&r| touch(r, i));
        }
        for &n in &block.next {
            members(&live_in[n]).for_each(|r| touch(r, block.last - 1));
        }
    }
    out
}

/// Linear scan: intervals in order of their start take the lowest free slot.
fn assign(intervals: &[Option<(usize, usize)>]) -> (Vec<Reg>, u32) {
    let mut order: Vec<(usize, usize, usize)> =
        intervals.iter().enumerate().filter_map(|(r, i)| i.map(|(a, b)| (a, b, r))).collect();
    order.sort_unstable();
    let mut slots = vec![Reg(0); intervals.len()];
    let mut active = std::collections::BinaryHeap::new();
    let mut free = std::collections::BinaryHeap::new();
    let mut count = 0;
    for (start, end, r) in order {
        while let Some(&std::cmp::Reverse((until, slot))) = active.peek() {
            // A slot read and another written by the same instruction stay apart: operations may interleave them.
            if until >= start {
                break;
            }
            active.pop();
            free.push(std::cmp::Reverse(slot));
        }
        let slot = free.pop().map_or_else(
            || {
                count += 1;
                count - 1
            },
            |std::cmp::Reverse(slot)| slot,
        );
        slots[r] = Reg(slot);
        active.push(std::cmp::Reverse((end, slot)));
    }
    (slots, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(pc: u32, uses: &[u32], defs: &[u32]) -> Step {
        Step { pc, uses: uses.to_vec(), defs: defs.to_vec(), ..Step::default() }
    }

    #[test]
    fn a_chain_needs_two_slots() {
        let steps: Vec<Step> =
            (0..50_u32).map(|i| step(i, if i > 0 { &[0, 1][..1] } else { &[] }, &[])).collect();
        let steps: Vec<Step> = steps
            .into_iter()
            .enumerate()
            .map(|(i, s)| Step {
                uses: s.uses.iter().map(|_| i as u32 - 1).collect(),
                defs: vec![i as u32],
                ..s
            })
            .collect();
        let (slots, count) = allocate(&steps, 50, &[]);
        assert_eq!(count, 2);
        assert!(slots.windows(2).all(|w| w[0] != w[1]));
    }

    /// r0 lives around the loop although its last use is before the definition of r1 in the text.
    #[test]
    fn values_live_around_loops() {
        let steps = vec![
            step(0, &[], &[0]),
            step(1, &[0], &[2]), // L:
            step(2, &[2], &[1]),
            Step { jumps: vec![0], guarded: true, ..step(3, &[1], &[]) },
            Step { ends: true, ..step(4, &[], &[]) },
        ];
        let (slots, _) = allocate(&steps, 3, &[1]);
        assert!(slots[0] != slots[1] && slots[0] != slots[2]);
    }

    /// A definition under a guard does not end the life of the value before.
    #[test]
    fn guarded_definitions_keep_the_old_value() {
        let steps = vec![
            step(0, &[], &[0]),
            step(1, &[], &[1]),
            step(2, &[1], &[2]),
            Step { guarded: true, ..step(3, &[], &[0]) },
            Step { ends: true, ..step(4, &[0], &[]) },
        ];
        let (slots, _) = allocate(&steps, 3, &[]);
        assert!(slots[0] != slots[1] && slots[0] != slots[2]);
    }
}
