//! Multiplications that warpgroups have under way (`wgmma`).
//!
//! A multiplication is one operation of all four warps: it goes on when all have begun it, and is over for all at the same
//! time, so that a warp that has waited may say on behalf of the others that a tile can be filled again. The operands in
//! shared memory are read at a moment that the seed chooses: at once, when a group is committed, or as late as when the
//! first warp waits. A warp's own registers are read and written when it waits.

use super::{Context, Fault, FaultInfo, Flow, Reg, fault};
use crate::check::Agent;
use crate::check::detector::Ticket;
use crate::codes;
use crate::model::LANES;
use std::collections::VecDeque;
use std::sync::Arc;

/// A multiplication of a warpgroup, with its matrices in shared memory.
pub(crate) trait Multiplication: Send + Sync {
    /// What is the same for all warps that have begun the same one: the instruction and its descriptors.
    fn key(&self) -> (usize, [u64; 2]);

    /// Whether it writes the register.
    fn writes(&self, r: Reg) -> bool;

    /// Whether it reads or writes the register.
    fn uses(&self, r: Reg) -> bool;

    /// Reads the operands that are in shared memory, for the whole warpgroup.
    fn fetch(&self, cx: &mut Context<'_>, ticket: Option<&Ticket>) -> Operands;

    /// Carries out the part of the executing warp; `keep` adds to what its registers hold.
    fn multiply(&self, cx: &mut Context<'_>, operands: &Operands, keep: bool);
}

/// Shared operands of a multiplication, row by row; nothing of A where it is in registers.
#[derive(Default)]
pub(crate) struct Operands {
    pub a: Vec<u64>,
    pub b: Vec<u64>,
}

/// Warps of a warpgroup.
pub(crate) const WARPS: usize = 4;
/// Multiplications that a warp has under way at most.
const MOST: usize = 64;
const ALL: u8 = (1 << WARPS) - 1;

/// What a warp has begun and not waited for.
#[derive(Default)]
pub(crate) struct Pipe {
    under_way: VecDeque<UnderWay>,
    /// Number of the warp's next multiplication.
    next: u64,
    /// Number of the group that is open.
    group: u64,
    /// Whether the registers have been ordered before any of it.
    fenced: bool,
    /// Waits for other warps of the warpgroup to begin what it has begun.
    waits: bool,
}

struct UnderWay {
    number: u64,
    pc: u32,
    instruction: Arc<dyn Multiplication>,
    keep: bool,
    group: u64,
}

/// Multiplications of a warpgroup that not all of its warps are done with.
#[derive(Default)]
pub(crate) struct Warpgroup {
    /// Number of the first.
    first: u64,
    list: VecDeque<Shared>,
}

struct Shared {
    instruction: Arc<dyn Multiplication>,
    /// By warp: who has begun it, who is done with it.
    begun: u8,
    done: u8,
    /// Read when a group is committed, not later.
    early: bool,
    /// What was read, if it was.
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

    /// What is wrong where the warp ends now: the instruction that it has begun last and not waited for.
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

    /// Whether a multiplication under way will write the register.
    pub(crate) fn writes(&self, r: Reg) -> bool {
        self.under_way.iter().any(|u| u.instruction.writes(r))
    }

    /// The place of the last multiplication that uses one of these registers.
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

/// `wgmma.fence`
pub(crate) fn fence(cx: &mut Context<'_>) -> Flow {
    cx.pipe.fenced = true;
    Flow::Next
}

/// `wgmma.mma_async`
pub(crate) fn begin(
    cx: &mut Context<'_>,
    instruction: &Arc<dyn Multiplication>,
    keep: bool,
) -> Result<Flow, Fault> {
    if cx.pipe.under_way.len() >= MOST {
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
    // The last to begin it knows most.
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
    // Others may wait for this warp.
    cx.memory.changes += 1;
    if complete && chance == 0 {
        fetch(cx, number);
    }
    Ok(Flow::Next)
}

/// Lets the multiplications up to `number` read their operands; `false` if not all warps have begun them.
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

/// `wgmma.commit_group`
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

/// `wgmma.wait_group`: until at most the `n` latest groups are under way.
pub(crate) fn wait(cx: &mut Context<'_>, n: u64) -> Flow {
    let until = cx.pipe.group.saturating_sub(n);
    let due = cx.pipe.under_way.iter().take_while(|u| u.group < until).count();
    finish(cx, due)
}

/// Finishes all that the warp has begun: its frame goes away.
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
