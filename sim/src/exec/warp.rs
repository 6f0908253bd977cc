//! The state of a warp: its groups of lanes that execute together, and their register frames.
//!
//! Lanes that share program counter and frame form a group. The group at the earliest position runs
//! first (deepest call, then lowest pc), so diverged lanes meet again after loops and branches. The
//! threads of a warp are scheduled independently. So if a group keeps running while others could
//! run, its *turn* is raised and the others run first, since a lane may wait for another lane of
//! its own warp.

use super::barrier::Arrival;
use super::cluster::Arrivals;
use super::defer::Deferral;
use super::pipe::Pipe;
use super::{Locals, Poll};
use crate::exec::code::{Code, FunctionCode};
use crate::model::{CtaSlot, LANES, Lanes};

/// The number of instructions after which a group lets other groups of its warp run.
const FAIR: u32 = 4096;
/// The local memory of a thread in bytes, as on hardware.
pub(crate) const MAX_LOCAL: u64 = 512 << 10;

/// The state of a group: the event that it waits for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum State {
    Ready,
    /// These lanes must arrive at the same instruction.
    Converge(u32),
    /// These lanes must arrive at `bar.warp.sync`.
    Meet(u32),
    Barrier(Arrival),
    /// The cluster's barrier must complete.
    Cluster,
}

impl State {
    /// Whether the group waits at a barrier where no other group can join it.
    fn is_parked(self) -> bool {
        matches!(self, State::Barrier(_) | State::Cluster)
    }
}

/// A copy of a group's state, to detect that it repeats itself (Brent's algorithm).
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub pc: u32,
    /// Its frames, the current one first.
    pub stack: Vec<SavedFrame>,
    pub power: u32,
    pub steps: u32,
    pub changes: u64,
}

#[derive(Debug)]
pub(crate) struct SavedFrame {
    index: usize,
    caller: Option<Caller>,
    regs: Vec<Lanes>,
    preds: Vec<u32>,
}

#[derive(Debug)]
pub(crate) struct Group {
    pub pc: u32,
    pub frame: usize,
    pub depth: u32,
    pub mask: u32,
    pub state: State,
    pub turn: u32,
    credit: u32,
    /// The memory state (`Memory::changes`, plus 1) in which the group provably repeats itself.
    pub proven: u64,
    pub snapshot: Option<Box<Snapshot>>,
    /// The latest read by its lanes. The warp's latest read can be that of another group.
    pub poll: Poll,
}

impl Group {
    fn fork(&self, pc: u32, mask: u32) -> Group {
        Group { pc, mask, state: State::Ready, credit: 0, proven: 0, snapshot: None, ..*self }
    }

    /// Counts executed instructions. After many, the other groups get their turn.
    pub(crate) fn charge(&mut self, instructions: u32) {
        self.credit += instructions;
        if self.credit >= FAIR {
            self.credit = 0;
            self.turn += 1;
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Frame {
    pub regs: Vec<Lanes>,
    pub preds: Vec<u32>,
    /// The offset of its variables in local memory.
    pub base: u64,
    /// The size of its variables in bytes.
    bytes: u64,
    /// The lanes that have not returned.
    lanes: u32,
    caller: Option<Caller>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Caller {
    frame: usize,
    pc: u32,
    site: u32,
    function: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Warp {
    pub cta: CtaSlot,
    /// The number of the warp in the CTA.
    pub index: u32,
    /// The lanes that have not exited.
    pub live: u32,
    pub groups: Vec<Group>,
    pub frames: Vec<Frame>,
    free: Vec<usize>,
    pub locals: Locals,
    pub poll: Poll,
    pub arrivals: Arrivals,
    /// The call of a built-in function in which each lane waits.
    pub tickets: [u64; LANES],
    pub pipe: Pipe,
    pub deferral: Deferral,
}

/// The error of a thread whose stack is too large.
pub(crate) struct StackOverflow;

impl Warp {
    /// Prepares the warp to run a kernel from its first instruction.
    pub(crate) fn start(&mut self, cta: CtaSlot, index: u32, lanes: u32, function: &FunctionCode) {
        self.cta = cta;
        self.index = index;
        self.live = lanes;
        self.poll = Poll::default();
        self.arrivals = Arrivals::default();
        self.tickets = [0; LANES];
        self.pipe = Pipe::default();
        self.deferral = Deferral::Never;
        self.groups.clear();
        self.free.clear();
        self.free.extend((1..self.frames.len()).rev());
        if self.frames.is_empty() {
            self.frames.push(Frame::default());
        }
        self.frames[0].reset(function, 0, lanes, None);
        self.groups.push(Group {
            pc: function.entry,
            frame: 0,
            depth: 0,
            mask: lanes,
            state: State::Ready,
            turn: 0,
            credit: 0,
            proven: 0,
            snapshot: None,
            poll: Poll::default(),
        });
        self.locals.lanes.iter_mut().for_each(Vec::clear);
        self.reserve_locals(function.frame_bytes);
    }

    fn reserve_locals(&mut self, bytes: u64) {
        if self.locals.lanes.is_empty() {
            self.locals.lanes = vec![Vec::new(); LANES];
        }
        for lane in &mut self.locals.lanes {
            if (lane.len() as u64) < bytes {
                lane.resize(bytes as usize, 0xff);
            }
        }
    }

    /// The group to run next, if any can: `stamp` is the current `Memory::changes + 1`.
    pub(crate) fn choose(&self, stamp: u64) -> Option<usize> {
        if let [only] = self.groups.as_slice() {
            return (only.state == State::Ready && only.proven != stamp).then_some(0);
        }
        let ready =
            self.groups.iter().enumerate().filter(|(_, g)| g.state == State::Ready && g.proven != stamp);
        ready.min_by_key(|(_, g)| (g.turn, u32::MAX - g.depth, g.pc)).map(|(i, _)| i)
    }

    /// The index of a frame and those of the frames that wait for it to return.
    fn stack(&self, frame: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(frame), |&f| self.frames[f].caller.map(|c| c.frame))
    }

    /// Copies the state of group `i`.
    pub(crate) fn save(&self, i: usize) -> Vec<SavedFrame> {
        let save = |index| {
            let f: &Frame = &self.frames[index];
            SavedFrame { index, caller: f.caller, regs: f.regs.clone(), preds: f.preds.clone() }
        };
        self.stack(self.groups[i].frame).map(save).collect()
    }

    /// Whether group `i` is in the state that was saved.
    pub(crate) fn is_saved(&self, i: usize, saved: &[SavedFrame]) -> bool {
        let g = &self.groups[i];
        let same = |(s, index): (&SavedFrame, usize)| {
            let f = &self.frames[index];
            let same_preds = || s.preds.iter().zip(&f.preds).all(|(a, b)| (a ^ b) & g.mask == 0);
            let same_lanes = |(a, b): (&Lanes, &Lanes)| super::lanes(g.mask).all(|l| a[l] == b[l]);
            s.index == index
                && s.caller == f.caller
                && same_preds()
                && s.regs.iter().zip(&f.regs).all(same_lanes)
        };
        self.stack(g.frame).count() == saved.len() && saved.iter().zip(self.stack(g.frame)).all(same)
    }

    /// Joins groups that have met: `i` with any other group at its position. New lanes wake waiting
    /// groups.
    fn merge(&mut self, i: usize) {
        let (pc, frame) = (self.groups[i].pc, self.groups[i].frame);
        let mut at = i;
        let mut j = 0;
        while j < self.groups.len() {
            let g = &self.groups[j];
            if j == at || g.pc != pc || g.frame != frame || g.state.is_parked() {
                j += 1;
                continue;
            }
            let other = self.groups.remove(j);
            if j < at {
                at -= 1;
            }
            let g = &mut self.groups[at];
            g.mask |= other.mask;
            g.turn = g.turn.max(other.turn);
            g.state = State::Ready;
            g.proven = 0;
            g.snapshot = None;
        }
    }

    /// Joins all groups at the same position. Groups that waited there to converge try again
    /// together.
    pub(crate) fn merge_all(&mut self) {
        let mut i = 0;
        while i < self.groups.len() {
            let before = self.groups.len();
            if !self.groups[i].state.is_parked() {
                self.merge(i);
            }
            i = if self.groups.len() == before { i + 1 } else { 0 };
        }
    }

    /// Moves the lanes `moved` of group `i` to `pc`; the others continue after the instruction.
    pub(crate) fn branch(&mut self, i: usize, moved: u32, pc: u32) {
        let g = &mut self.groups[i];
        g.pc += 1;
        if moved == g.mask {
            g.pc = pc;
        } else {
            g.mask &= !moved;
            g.snapshot = None;
            let fork = g.fork(pc, moved);
            self.groups.push(fork);
        }
        self.merge_all();
    }

    /// Moves each of the lanes `moved` of group `i` to its own target.
    pub(crate) fn scatter(&mut self, i: usize, moved: u32, to: &[u32; LANES]) {
        let mut left = moved;
        while left != 0 {
            let pc = to[left.trailing_zeros() as usize];
            let mask = super::lanes(left).filter(|&l| to[l] == pc).fold(0, |m, l| m | 1 << l);
            left &= !mask;
            let fork = self.groups[i].fork(pc, mask);
            self.groups.push(fork);
        }
        let g = &mut self.groups[i];
        g.mask &= !moved;
        g.pc += 1;
        g.snapshot = None;
        if g.mask == 0 {
            self.groups.remove(i);
        }
        self.merge_all();
    }

    /// Lets the lanes `waiting` of group `i` wait at their instruction; the others continue after
    /// it.
    pub(crate) fn wait(&mut self, i: usize, waiting: u32, state: State) {
        let g = &mut self.groups[i];
        let pc = g.pc;
        if waiting != g.mask {
            g.mask &= !waiting;
            g.pc += 1;
            g.snapshot = None;
            let fork = Group { state, ..g.fork(pc, waiting) };
            self.groups.push(fork);
        } else {
            g.state = state;
        }
        self.merge_all();
    }

    /// Lets the lanes `staying` of group `i` try their instruction again when the state of the
    /// memory differs from that of `stamp`; the others continue after it.
    pub(crate) fn stay(&mut self, i: usize, staying: u32, stamp: u64) {
        let g = &mut self.groups[i];
        g.snapshot = None;
        if staying == g.mask {
            g.proven = stamp;
        } else {
            let fork = Group { proven: stamp, ..g.fork(g.pc, staying) };
            g.mask &= !staying;
            g.pc += 1;
            self.groups.push(fork);
        }
        self.merge_all();
    }

    /// The call in which one of these lanes waits.
    pub(crate) fn ticket(&self, mask: u32) -> Option<u64> {
        super::lanes(mask).map(|l| self.tickets[l]).find(|t| *t != 0)
    }

    /// Enters a function with the lanes `entering` of group `i`.
    pub(crate) fn call(
        &mut self,
        i: usize,
        entering: u32,
        code: &Code,
        site: u32,
        pc: u32,
    ) -> Result<(), StackOverflow> {
        let call = &code.calls[site as usize];
        let function = &code.functions[call.function];
        let (caller, depth) = (self.groups[i].frame, self.groups[i].depth);
        let base = self.frames[caller].base + self.frames[caller].bytes;
        if base + function.frame_bytes > MAX_LOCAL || depth > 10_000 {
            return Err(StackOverflow);
        }
        self.reserve_locals(base + function.frame_bytes);
        let frame = match self.free.pop() {
            Some(f) => f,
            None => {
                self.frames.push(Frame::default());
                self.frames.len() - 1
            }
        };
        let back = Caller { frame: caller, pc: pc + 1, site, function: call.function };
        self.frames[frame].reset(function, base, entering, Some(back));
        for (&from, &(to, bytes)) in call.args.iter().zip(&function.params) {
            self.copy_locals(entering, self.frames[caller].base + from, base + to, bytes);
        }
        let g = &mut self.groups[i];
        let fork = Group { frame, depth: depth + 1, ..g.fork(function.entry, entering) };
        if entering == g.mask {
            *g = Group { snapshot: g.snapshot.take(), ..fork };
        } else {
            g.mask &= !entering;
            g.pc += 1;
            g.snapshot = None;
            self.groups.push(fork);
        }
        self.merge_all();
        Ok(())
    }

    fn copy_locals(&mut self, mask: u32, from: u64, to: u64, bytes: u64) {
        for lane in super::lanes(mask) {
            let memory = &mut self.locals.lanes[lane];
            memory.copy_within(from as usize..(from + bytes) as usize, to as usize);
        }
    }

    /// Leaves the current function with the lanes `leaving` of group `i`; `false` if it is the kernel itself.
    pub(crate) fn ret(&mut self, i: usize, leaving: u32, code: &Code) -> bool {
        let frame = self.groups[i].frame;
        let Some(back) = self.frames[frame].caller else { return false };
        let function = &code.functions[back.function];
        let (base, to_base) = (self.frames[frame].base, self.frames[back.frame].base);
        for (&to, &(from, bytes)) in code.calls[back.site as usize].returns.iter().zip(&function.returns) {
            self.copy_locals(leaving, base + from, to_base + to, bytes);
        }
        self.frames[frame].lanes &= !leaving;
        if self.frames[frame].lanes == 0 {
            self.free.push(frame);
        }
        let g = &mut self.groups[i];
        let mut returned = g.fork(back.pc, leaving);
        returned.frame = back.frame;
        returned.depth = g.depth.saturating_sub(1);
        g.mask &= !leaving;
        g.pc += 1;
        if g.mask == 0 {
            *g = Group { snapshot: g.snapshot.take(), ..returned };
        } else {
            g.snapshot = None;
            self.groups.push(returned);
        }
        self.merge_all();
        true
    }

    /// Releases the lanes that wait for each other at `bar.warp.sync`, if all required lanes have
    /// arrived, and returns them.
    pub(crate) fn meet(&mut self, needed: u32) -> Option<u32> {
        let there = |g: &&mut Group| g.state == State::Meet(needed);
        let met = self.groups.iter_mut().filter(there).fold(0, |m, g| m | g.mask);
        if needed & self.live & !met != 0 {
            return None;
        }
        for g in self.groups.iter_mut().filter(there) {
            g.state = State::Ready;
            g.pc += 1;
        }
        self.merge_all();
        Some(met)
    }

    /// Ends the lanes `leaving` of group `i`. Waiting groups then check again whether they can
    /// continue.
    pub(crate) fn exit(&mut self, i: usize, leaving: u32) {
        self.live &= !leaving;
        let g = &mut self.groups[i];
        g.mask &= !leaving;
        g.pc += 1;
        g.snapshot = None;
        if g.mask == 0 {
            self.groups.remove(i);
        }
        for g in &mut self.groups {
            if matches!(g.state, State::Converge(_) | State::Meet(_)) {
                g.state = State::Ready;
            }
        }
        self.merge_all();
    }
}

impl Frame {
    fn reset(&mut self, function: &FunctionCode, base: u64, lanes: u32, caller: Option<Caller>) {
        self.regs.clear();
        self.regs.resize(function.registers as usize, [0; LANES]);
        self.preds.clear();
        self.preds.resize(function.predicates as usize, 0);
        self.base = base;
        self.bytes = function.frame_bytes;
        self.lanes = lanes;
        self.caller = caller;
    }
}
