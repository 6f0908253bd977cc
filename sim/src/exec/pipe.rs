//! Pending multiplications of warpgroups (`wgmma`).
//!
//! A multiplication is one operation of all four warps. It begins when all have executed the
//! instruction, and ends for all at the same time. So a warp that has waited can announce, for the
//! others too, that a tile can be filled again. The operands in shared memory are read at a time
//! that the seed chooses: at once, when the group is committed, or as late as when the first warp
//! waits. A warp's own registers are read and written when it waits.

use super::{Context, Fault, FaultInfo, Flow, Reg, fault};
use crate::check::Agent;
use crate::check::detector::Ticket;
use crate::codes;
use crate::model::LANES;
use std::collections::VecDeque;
use std::sync::Arc;

/// A multiplication of a warpgroup, with its matrices in shared memory.
pub(crate) trait Multiplication: Send + Sync {
    /// The properties that must agree between the warps: the instruction and its descriptors.
    fn key(&self) -> (usize, [u64; 2]);

    /// Whether it writes the register.
    fn writes(&self, r: Reg) -> bool;

    /// Whether it reads or writes the register.
    fn uses(&self, r: Reg) -> bool;

    /// Reads the operands that are in shared memory, for the whole warpgroup.
    fn fetch(&self, cx: &mut Context<'_>, ticket: Option<&Ticket>) -> Operands;

    /// Computes the part of the executing warp. With `keep`, it adds to the contents of its
    /// registers.
    fn multiply(&self, cx: &mut Context<'_>, operands: &Operands, keep: bool);
}

/// The operands of a multiplication in shared memory, row by row. A is empty if it is in registers.
#[derive(Default)]
pub(crate) struct Operands {
    pub a: Vec<u64>,
    pub b: Vec<u64>,
}

/// The number of warps in a warpgroup.
pub(crate) const WARPS: usize = 4;
/// The largest number of pending multiplications of a warp.
const MAX_IN_FLIGHT: usize = 64;
const ALL: u8 = (1 << WARPS) - 1;

/// The multiplications that a warp has begun and not waited for.
#[derive(Default)]
pub(crate) struct Pipe {
    under_way: VecDeque<UnderWay>,
    /// The number of the warp's next multiplication.
    next: u64,
    /// The number of the open group.
    group: u64,
    /// Whether a fence has ordered the registers before the first multiplication.
    fenced: bool,
    /// Whether the warp waits for the other warps of the warpgroup to begin the same
    /// multiplication.
    waits: bool,
}

struct UnderWay {
    number: u64,
    pc: u32,
    instruction: Arc<dyn Multiplication>,
    keep: bool,
    group: u64,
}

/// The multiplications of a warpgroup that not all of its warps have finished.
#[derive(Default)]
pub(crate) struct Warpgroup {
    /// The number of the first multiplication.
    first: u64,
    list: VecDeque<Shared>,
}

struct Shared {
    instruction: Arc<dyn Multiplication>,
    /// The warps that have begun it, as a mask.
    begun: u8,
    done: u8,
    /// Whether the operands are read at the commit at the latest.
    early: bool,
    /// The operands, once they have been read.
    operands: Option<Arc<Operands>>,
    ticket: Option<Ticket>,
}

impl std::fmt::Debug for Pipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pipe").field("under_way", &self.under_way.len()).field("group", &self.group).finish()
    }
}

impl Pipe {
    /// Whether the warp waits for other warps of its warpgroup.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// The fault of a warp that ends now, for the last instruction that it has not waited for.
    pub(crate) fn left(&self) -> Option<(u32, FaultInfo)> {
        let last = self.under_way.back()?;
        let (message, help) = if last.group < self.group {
            (
                "a warp ends while a group of wgmma is in flight",
                "wait for the group with wgmma.wait_group 0 (in .weft, `acc = mma_wait<0>(acc);`)",
            )
        } else {
            (
                "a warp ends while a group of wgmma is open: it was not committed",
                "commit the group with wgmma.commit_group, then wait for it with wgmma.wait_group 0",
            )
        };
        let (message, help) = (message.into(), help.into());
        let fault = FaultInfo { code: codes::ASYNCHRONOUS, message, help, lane: None, shared: None };
        Some((last.pc, fault))
    }

    pub(crate) fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// Whether a pending multiplication will write the register.
    pub(crate) fn writes(&self, r: Reg) -> bool {
        self.under_way.iter().any(|u| u.instruction.writes(r))
    }

    /// The position of the last multiplication that uses one of these registers.
    pub(crate) fn last_that_uses(&self, registers: &[Reg]) -> Option<usize> {
        self.under_way.iter().rposition(|u| registers.iter().any(|&r| u.instruction.uses(r)))
    }
}

impl Warpgroup {
    fn get(&mut self, number: u64) -> Option<&mut Shared> {
        self.list.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }
}

/// The executing warp's group.
fn group<'a>(cx: &'a mut Context<'_>) -> &'a mut Warpgroup {
    let index = cx.warp as usize / WARPS;
    if cx.warpgroups.len() <= index {
        cx.warpgroups.resize_with(index + 1, Warpgroup::default);
    }
    &mut cx.warpgroups[index]
}

/// Executes `wgmma.fence`.
pub(crate) fn fence(cx: &mut Context<'_>) -> Flow {
    cx.pipe.fenced = true;
    Flow::Next
}

/// Executes `wgmma.mma_async`.
pub(crate) fn begin(
    cx: &mut Context<'_>,
    instruction: &Arc<dyn Multiplication>,
    keep: bool,
) -> Result<Flow, Fault> {
    if cx.pipe.under_way.len() >= MAX_IN_FLIGHT {
        let flow = finish(cx, 1);
        if flow != Flow::Next {
            return Ok(flow);
        }
    }
    let me = 1 << (cx.warp as usize % WARPS);
    let (number, open) = (cx.pipe.next, cx.pipe.group);
    let (slot, pc) = (cx.slot, cx.pc);
    let ticket = cx.check.as_deref_mut().map(|d| d.begin(slot, 0, pc, Agent::Async));
    let chance = cx.rng.next() % 4;
    let warpgroup = group(cx);
    if warpgroup.get(number).is_none() {
        warpgroup.list.push_back(Shared {
            instruction: Arc::clone(instruction),
            begun: 0,
            done: 0,
            early: chance < 2,
            operands: None,
            ticket: None,
        });
    }
    let Some(shared) = warpgroup.get(number) else { return Ok(Flow::Next) };
    if shared.instruction.key() != instruction.key() {
        let help =
            "let all four warps execute the same wgmma instructions on the same matrices in the same order";
        return Err(fault(
            codes::UNDEFINED,
            0,
            "the warps of a warpgroup execute different wgmma instructions",
            help,
        ));
    }
    shared.begun |= me;
    // The ticket of the last warp includes the knowledge of the others.
    shared.ticket = ticket;
    let complete = shared.begun == ALL;
    cx.pipe.next += 1;
    cx.pipe.under_way.push_back(UnderWay {
        number,
        pc,
        instruction: Arc::clone(instruction),
        keep,
        group: open,
    });
    // Other warps may wait for this one.
    cx.memory.changes += 1;
    if complete && chance == 0 {
        fetch(cx, number);
    }
    Ok(Flow::Next)
}

/// Reads the operands of the multiplications up to `number`. Returns `false` if not all warps have
/// begun them.
fn fetch(cx: &mut Context<'_>, number: u64) -> bool {
    let first = group(cx).first;
    for n in first..=number {
        let Some(shared) = group(cx).get(n) else { return false };
        if shared.begun != ALL {
            return false;
        }
        if shared.operands.is_none() {
            let instruction = Arc::clone(&shared.instruction);
            let ticket = shared.ticket.take();
            let operands = Arc::new(instruction.fetch(cx, ticket.as_ref()));
            if let Some(shared) = group(cx).get(n) {
                (shared.operands, shared.ticket) = (Some(operands), ticket);
            }
        }
    }
    true
}

/// Executes `wgmma.commit_group`.
pub(crate) fn commit(cx: &mut Context<'_>) -> Flow {
    cx.pipe.group += 1;
    let warpgroup = group(cx);
    let first = warpgroup.first;
    let begun = warpgroup.list.iter().take_while(|s| s.begun == ALL).count();
    let early = warpgroup.list.iter().take(begun).rposition(|s| s.early);
    if let Some(i) = early {
        fetch(cx, first + i as u64);
    }
    Flow::Next
}

/// Executes `wgmma.wait_group`, which waits until at most the `n` latest groups are pending.
pub(crate) fn wait(cx: &mut Context<'_>, n: u64) -> Flow {
    let until = cx.pipe.group.saturating_sub(n);
    let due = cx.pipe.under_way.iter().take_while(|u| u.group < until).count();
    finish(cx, due)
}

/// Finishes all multiplications of the warp, whose frame is removed.
pub(crate) fn settle(cx: &mut Context<'_>) -> Flow {
    let all = cx.pipe.under_way.len();
    finish(cx, all)
}

/// Finishes the warp's first `count` multiplications, once all warps have begun them.
pub(crate) fn finish(cx: &mut Context<'_>, count: usize) -> Flow {
    let Some(last) = count.checked_sub(1).and_then(|i| cx.pipe.under_way.get(i)) else { return Flow::Next };
    let last = last.number;
    cx.pipe.waits = !fetch(cx, last);
    if cx.pipe.waits {
        return Flow::Stay(cx.active);
    }
    let me = 1 << (cx.warp as usize % WARPS);
    for _ in 0..count {
        let Some(u) = cx.pipe.under_way.pop_front() else { break };
        let Some(shared) = group(cx).get(u.number) else { continue };
        shared.done |= me;
        let ticket = shared.ticket.clone();
        if let Some(operands) = shared.operands.clone() {
            u.instruction.multiply(cx, &operands, u.keep);
        }
        if let (Some(d), Some(t)) = (cx.check.as_deref_mut(), ticket) {
            (0..LANES).for_each(|lane| d.learn(cx.slot, lane, &t, true));
        }
    }
    let warpgroup = group(cx);
    while warpgroup.list.front().is_some_and(|s| s.done == ALL) {
        warpgroup.list.pop_front();
        warpgroup.first += 1;
    }
    Flow::Next
}
