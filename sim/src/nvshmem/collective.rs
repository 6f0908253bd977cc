//! Collective functions: reduce, reducescatter, fcollect, alltoall, broadcast.

use super::table::{Family, LOGIC, MEM, Param, REDUCE, RMA, Size, row};
use super::{Call, Step};
use crate::check::clock::Clock;
use crate::exec::Fault;
use crate::exec::access::{from_le, put_le};
use crate::exec::remote::{Arrival, Push, Waiting};
use std::sync::Arc;

const TEAM: Param = ("team", Size::Int);
const DST: Param = ("dst", Size::Long);
const SRC: Param = ("src", Size::Long);
const COUNT: Param = ("count", Size::Long);
const ALL: &[Param] = &[TEAM, DST, SRC, COUNT];
const ROOTED: &[Param] = &[TEAM, DST, SRC, COUNT, ("root", Size::Int)];
const ARITHMETIC: &[&str] = &["sum", "prod", "min", "max"];
const BITWISE: &[&str] = &["and", "or", "xor"];

pub(super) static FAMILY: Family = Family {
    title: "Collective functions",
    meaning: "All PEs of the team come, each with one call of the same function, the same count and the same\n\
              symmetric objects, and all continue together. `count` is what one PE gives to one other. What\n\
              `fcollect`, `alltoall` and `broadcast` give to a PE can land before that PE has come. A CTA's\n\
              threads begin to read `src` as each one comes, so a source that changes meanwhile is a fault.\n\
              Reductions go through the team in its order and round every step to the element type. `dst` and\n\
              `src` are the same or disjoint.",
    rows: &[
        row("{T}_{op}_reduce", ALL, reduce).types(REDUCE).ops(ARITHMETIC).returns(Size::Int),
        row("{T}_{op}_reduce", ALL, reduce).types(LOGIC).ops(BITWISE).returns(Size::Int),
        row("{T}_{op}_reducescatter", ALL, reducescatter).types(REDUCE).ops(ARITHMETIC).returns(Size::Int),
        row("{T}_{op}_reducescatter", ALL, reducescatter).types(LOGIC).ops(BITWISE).returns(Size::Int),
        row("{T}_fcollect", ALL, fcollect).types(RMA).returns(Size::Int).hasty(2, one_part),
        row("fcollect{T}", ALL, fcollect).types(MEM).returns(Size::Int).hasty(2, one_part),
        row("{T}_alltoall", ALL, alltoall).types(RMA).returns(Size::Int).hasty(2, all_parts),
        row("alltoall{T}", ALL, alltoall).types(MEM).returns(Size::Int).hasty(2, all_parts),
        row("{T}_broadcast", ROOTED, broadcast).types(RMA).returns(Size::Int).hasty(2, roots_part),
        row("broadcast{T}", ROOTED, broadcast).types(MEM).returns(Size::Int).hasty(2, roots_part),
    ],
};

/// The size of a source with one part, in bytes.
fn one_part(c: &Call<'_, '_>) -> Result<u64, Fault> {
    c.bytes(c.args[3])
}

/// The size of a source with a part for each PE, in bytes.
fn all_parts(c: &Call<'_, '_>) -> Result<u64, Fault> {
    let team = c.member_of(c.args[0])?;
    c.bytes(c.args[3].saturating_mul(c.cx.memory.teams[team].members.len() as u64))
}

/// The number of bytes that the root reads.
fn roots_part(c: &Call<'_, '_>) -> Result<u64, Fault> {
    let team = c.member_of(c.args[0])?;
    let rank = c.rank(team, c.my_pe());
    if rank == Some(c.args[4] as u32 as usize) { one_part(c) } else { Ok(0) }
}

/// Waits for all PEs of the team. The last PE that arrives executes `act` with the members. The
/// data that a PE pushes arrives when the PE calls, or when all have called, so the destination
/// must be ready on every PE before the first call.
pub(super) fn meet(
    c: &mut Call<'_, '_>,
    team: usize,
    key: Vec<(&'static str, u64)>,
    pushes: Vec<Push>,
    act: impl FnOnce(&mut Call<'_, '_>, &[usize]),
) -> Result<Step, Fault> {
    if c.waited {
        return Ok(Step::Wait(Waiting::Team(team)));
    }
    c.watch_meeting(false);
    let me = c.my_pe();
    let members = c.cx.memory.teams[team].members.clone();
    let Some(rank) = members.iter().position(|&pe| pe == me) else { return Ok(Step::Done(0)) };
    let round = &c.cx.remote.rounds[team];
    if let Some((other, a)) = members.iter().zip(round).find_map(|(pe, a)| a.as_ref().map(|a| (*pe, a))) {
        contradiction(c, other, a, &key)?;
    }
    if let Some(a) = &c.cx.remote.rounds[team][rank] {
        let message = format!("PE {me} is already in `{}` of the same team {members:?}", a.f.name);
        let help = "call one collective function of a team at a time on a PE, in one thread, warp or CTA";
        return Err(c.fault(message, help));
    }
    for p in &pushes {
        c.cx.remote.wire.count(me, p.to, p.data.len());
        if c.cx.remote.wire.chance(2) {
            p.land(c);
        }
    }
    let round = &mut c.cx.remote.rounds[team];
    round[rank] =
        Some(Arrival { ticket: c.ticket, f: c.f.named(), key, pushes, clock: c.notes.clock.take() });
    if round.iter().any(Option::is_none) {
        return Ok(Step::Wait(Waiting::Team(team)));
    }
    let all: Vec<Arrival> = round.iter_mut().filter_map(Option::take).collect();
    let met = c.cx.check.as_deref_mut().map(|d| {
        let mut met = Clock::default();
        all.iter().filter_map(|a| a.clock.as_ref()).for_each(|clock| d.join(&mut met, clock));
        Arc::new(met)
    });
    c.notes.met.clone_from(&met);
    act(c, &members);
    for a in all {
        a.pushes.iter().for_each(|p| p.land(c));
        if a.ticket != c.ticket {
            c.cx.remote.finish(a.ticket, 0, &met);
        }
    }
    // The waiting threads try again.
    c.cx.memory.changes += 1;
    Ok(Step::Done(0))
}

impl Push {
    fn land(&self, c: &mut Call<'_, '_>) {
        if !self.data.is_empty() {
            c.cx.memory.store_at(c.cx.memory.heap(self.to, self.at), &self.data);
        }
    }
}

/// Faults if this call differs from that of another PE.
fn contradiction(c: &Call<'_, '_>, pe: usize, a: &Arrival, key: &[(&'static str, u64)]) -> Result<(), Fault> {
    let me = c.my_pe();
    if a.f.index != c.f.index {
        let message =
            format_args!("PE {pe} is in `{}` of the same team, but PE {me} calls `{}`", a.f.name, c.f.name);
        return Err(
            c.fault(message, "call the collective functions of a team in the same order on all its PEs")
        );
    }
    match a.key.iter().zip(key).find(|(a, b)| a != b) {
        None => Ok(()),
        Some(((what, theirs), (_, mine))) => {
            let message = format_args!("`{what}` is {theirs} on PE {pe} and {mine} on PE {me}");
            Err(c.fault(message, "pass the same value on all PEs of the team"))
        }
    }
}

/// A collective function's team and buffers, by heap offset.
struct Buffers {
    team: usize,
    members: Vec<usize>,
    /// The PE's rank in the team.
    rank: usize,
    dst: u64,
    src: u64,
    /// The size of `count` elements in bytes.
    bytes: usize,
}

impl Buffers {
    /// Reads the arguments. `parts` returns the number of parts of `count` elements in `dst` and
    /// `src`, for a team of this size.
    fn new(c: &Call<'_, '_>, parts: fn(u64) -> (u64, u64)) -> Result<Buffers, Fault> {
        let [team, dst, src, count, ..] = c.args;
        let team = c.member_of(team)?;
        let members = c.cx.memory.teams[team].members.clone();
        let rank = c.rank(team, c.my_pe()).unwrap_or(0);
        let (dst_parts, src_parts) = parts(members.len() as u64);
        let bytes = c.bytes(count)?;
        let dst = c.symmetric("dst", dst, c.bytes(count.saturating_mul(dst_parts))?)?;
        let src = c.symmetric("src", src, c.bytes(count.saturating_mul(src_parts))?)?;
        Ok(Buffers { team, members, rank, dst, src, bytes: bytes as usize })
    }

    /// The values that all PEs must agree on.
    fn key(&self, c: &Call<'_, '_>) -> Vec<(&'static str, u64)> {
        vec![("count", c.args[3]), ("dst (offset on the heap)", self.dst)]
    }

    /// Reads part `i` of a member's source.
    fn part(&self, c: &Call<'_, '_>, pe: usize, i: usize) -> Vec<u8> {
        let at = self.src + (i * self.bytes) as u64;
        c.cx.memory.at(c.cx.memory.heap(pe, at), self.bytes).to_vec()
    }

    /// The pushes to this PE's part of every member's destination, from the parts of its source
    /// that `part` selects.
    fn pushes(&self, c: &Call<'_, '_>, part: impl Fn(usize) -> usize) -> Vec<Push> {
        let at = self.dst + (self.rank * self.bytes) as u64;
        let to = self.members.iter().enumerate();
        to.map(|(i, &to)| Push { to, at, data: self.part(c, c.my_pe(), part(i)) }).collect()
    }

    /// Checks that `dst` and `src` of a reduction are equal or disjoint.
    fn disjoint(&self, c: &Call<'_, '_>, src_parts: usize) -> Result<(), Fault> {
        let (dst_end, src_end) = (self.dst + self.bytes as u64, self.src + (src_parts * self.bytes) as u64);
        if self.dst == self.src || dst_end <= self.src || src_end <= self.dst {
            return Ok(());
        }
        let help = "reduce in place (`dst` = `src`), or into another buffer";
        Err(c.fault("`dst` and `src` overlap in part", help))
    }
}

/// Reduces part `part(i)` of all sources for the PE of rank `i`.
fn reduction(c: &mut Call<'_, '_>, b: &Buffers, part: fn(usize) -> usize) -> Result<Step, Fault> {
    let mut key = b.key(c);
    // Every PE's source is read at the same heap offset as this PE's.
    key.push(("src (offset on the heap)", b.src));
    meet(c, b.team, key, Vec::new(), |c, members| {
        let reduced = |i| combine(c, members.iter().map(|&pe| b.part(c, pe, part(i))).collect());
        let all: Vec<Vec<u8>> = (0..members.len()).map(reduced).collect();
        for (&to, data) in members.iter().zip(all) {
            members.iter().for_each(|&from| c.cx.remote.wire.count(from, to, b.bytes));
            Push { to, at: b.dst, data }.land(c);
        }
    })
}

/// The reduction of equally long parts, in their order.
fn combine(c: &Call<'_, '_>, parts: Vec<Vec<u8>>) -> Vec<u8> {
    let size = c.f.ty.bytes();
    let mut parts = parts.into_iter();
    let mut sum = parts.next().unwrap_or_default();
    let Some(f) = &c.f.combine else { return sum };
    for part in parts {
        for (a, b) in sum.chunks_exact_mut(size).zip(part.chunks_exact(size)) {
            let v = f(from_le(a), from_le(b));
            put_le(a, v);
        }
    }
    sum
}

fn reduce(c: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let b = Buffers::new(c, |_| (1, 1))?;
    b.disjoint(c, 1)?;
    reduction(c, &b, |_| 0)
}

fn reducescatter(c: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let b = Buffers::new(c, |n| (1, n))?;
    b.disjoint(c, b.members.len())?;
    reduction(c, &b, |i| i)
}

fn fcollect(c: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let b = Buffers::new(c, |n| (n, 1))?;
    let (key, pushes) = (b.key(c), b.pushes(c, |_| 0));
    meet(c, b.team, key, pushes, |_, _| {})
}

fn alltoall(c: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let b = Buffers::new(c, |n| (n, n))?;
    let (key, pushes) = (b.key(c), b.pushes(c, |i| i));
    meet(c, b.team, key, pushes, |_, _| {})
}

fn broadcast(c: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let b = Buffers::new(c, |_| (1, 1))?;
    let (n, root) = (b.members.len(), c.args[4] as u32 as usize);
    if root >= n {
        let message = format_args!("root {} is not a PE of the team, which has {n}", root as i32);
        return Err(c.fault(message, "pass a root that is a rank in the team"));
    }
    let mut key = b.key(c);
    key.push(("root", root as u64));
    // The destination has one part, which comes from the root.
    let from_start = Buffers { rank: 0, ..b };
    let pushes = if b.rank == root { from_start.pushes(c, |_| 0) } else { Vec::new() };
    meet(c, b.team, key, pushes, |_, _| {})
}
