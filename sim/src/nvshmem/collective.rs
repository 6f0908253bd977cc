//! Collective functions: reduce, reducescatter, fcollect, alltoall, broadcast.

use super::call::Arrival;
use super::table::{Family, LOGIC, MEM, Param, REDUCE, RMA, Size, row};
use super::{Call, Step, Waiting};
use crate::exec::Fault;
use crate::exec::access::{from_le, put_le};

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
    meaning: "All PEs of the team come, each with one call of the same function, the same count and the same symmetric \
              objects; all go on together. `count` is what one PE gives to one other. Reductions go through the team in \
              its order and round every step to the element type; `dst` and `src` are the same or disjoint.",
    rows: &[
        row("{T}_{op}_reduce", ALL, reduce).types(REDUCE).ops(ARITHMETIC).returns(Size::Int),
        row("{T}_{op}_reduce", ALL, reduce).types(LOGIC).ops(BITWISE).returns(Size::Int),
        row("{T}_{op}_reducescatter", ALL, reducescatter).types(REDUCE).ops(ARITHMETIC).returns(Size::Int),
        row("{T}_{op}_reducescatter", ALL, reducescatter).types(LOGIC).ops(BITWISE).returns(Size::Int),
        row("{T}_fcollect", ALL, fcollect).types(RMA).returns(Size::Int),
        row("fcollect{T}", ALL, fcollect).types(MEM).returns(Size::Int),
        row("{T}_alltoall", ALL, alltoall).types(RMA).returns(Size::Int),
        row("alltoall{T}", ALL, alltoall).types(MEM).returns(Size::Int),
        row("{T}_broadcast", ROOTED, broadcast).types(RMA).returns(Size::Int),
        row("broadcast{T}", ROOTED, broadcast).types(MEM).returns(Size::Int),
    ],
};

/// Waits for all PEs of the team; the last that comes carries `act` out, given the members.
pub(super) fn meet(
    c: &mut Call<'_, '_>,
    team: usize,
    key: Vec<(&'static str, u64)>,
    act: impl FnOnce(&mut Call<'_, '_>, &[usize]),
) -> Result<Step, Fault> {
    if c.waited {
        return Ok(Step::Wait(Waiting::Team(team)));
    }
    let me = c.my_pe();
    let members = c.cx.memory.teams[team].members.clone();
    let Some(rank) = members.iter().position(|&pe| pe == me) else { return Ok(Step::Done(0)) };
    let round = &c.cx.nvshmem.rounds[team];
    if let Some((other, a)) = members.iter().zip(round).find_map(|(pe, a)| a.as_ref().map(|a| (*pe, a))) {
        contradiction(c, other, a, &key)?;
    }
    let round = &mut c.cx.nvshmem.rounds[team];
    if let Some(a) = &round[rank] {
        let message = format!("PE {me} is in `{}` of the same team {members:?}", a.f.name);
        return Err(c.fault(
            message,
            "a PE calls one collective function of a team at a time, by one thread, warp or CTA",
        ));
    }
    round[rank] = Some(Arrival { ticket: c.ticket, f: c.f, key });
    if round.iter().any(Option::is_none) {
        return Ok(Step::Wait(Waiting::Team(team)));
    }
    let tickets: Vec<u64> = round.iter_mut().filter_map(Option::take).map(|a| a.ticket).collect();
    act(c, &members);
    for t in tickets.into_iter().filter(|&t| t != c.ticket) {
        c.cx.nvshmem.finish(t, 0);
    }
    // Those that wait look again.
    c.cx.memory.changes += 1;
    Ok(Step::Done(0))
}

/// Faults if this call is not what another PE has called.
fn contradiction(c: &Call<'_, '_>, pe: usize, a: &Arrival, key: &[(&'static str, u64)]) -> Result<(), Fault> {
    let me = c.my_pe();
    if a.f.index != c.f.index {
        let message =
            format_args!("PE {pe} is in `{}` of the same team, PE {me} comes to `{}`", a.f.name, c.f.name);
        return Err(c.fault(message, "all PEs of a team call its collective functions in the same order"));
    }
    match a.key.iter().zip(key).find(|(a, b)| a != b) {
        None => Ok(()),
        Some(((what, theirs), (_, mine))) => {
            let message = format_args!("`{what}` is {theirs} on PE {pe} and {mine} on PE {me}");
            Err(c.fault(message, "it must be the same on all PEs of the team"))
        }
    }
}

/// A collective function's team and buffers, by heap offset.
struct Buffers {
    team: usize,
    n: usize,
    dst: u64,
    src: u64,
    /// Of `count` elements.
    bytes: usize,
}

impl Buffers {
    /// `dst_parts` and `src_parts` say how many times `count` the buffers have, of `n` PEs.
    fn new(c: &Call<'_, '_>, parts: fn(u64) -> (u64, u64)) -> Result<Buffers, Fault> {
        let [team, dst, src, count, ..] = c.args;
        let team = c.member_of(team)?;
        let n = c.cx.memory.teams[team].members.len();
        let (dst_parts, src_parts) = parts(n as u64);
        let bytes = c.bytes(count)?;
        let dst = c.symmetric("dst", dst, c.bytes(count.saturating_mul(dst_parts))?)?;
        let src = c.symmetric("src", src, c.bytes(count.saturating_mul(src_parts))?)?;
        Ok(Buffers { team, n, dst, src, bytes: bytes as usize })
    }

    fn key(&self, c: &Call<'_, '_>) -> Vec<(&'static str, u64)> {
        vec![
            ("count", c.args[3]),
            ("dst (offset on the heap)", self.dst),
            ("src (offset on the heap)", self.src),
        ]
    }

    /// Part `i` of a member's source.
    fn part(&self, c: &Call<'_, '_>, pe: usize, i: usize) -> Vec<u8> {
        let at = self.src + (i * self.bytes) as u64;
        c.cx.memory.at(c.cx.memory.heap(pe, at), self.bytes).to_vec()
    }

    /// Writes a member's destination.
    fn store(&self, c: &mut Call<'_, '_>, pe: usize, data: &[u8]) {
        if !data.is_empty() {
            c.cx.memory.store_at(c.cx.memory.heap(pe, self.dst), data);
        }
    }
}

/// Counts bytes that a collective function moves.
fn count(c: &mut Call<'_, '_>, from: usize, to: usize, bytes: usize) {
    c.cx.nvshmem.wire.count(from, to, bytes);
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

/// `dst` and `src` of reductions are the same or disjoint.
fn disjoint(c: &Call<'_, '_>, b: &Buffers, dst_parts: usize, src_parts: usize) -> Result<(), Fault> {
    let (dst_end, src_end) = (b.dst + (dst_parts * b.bytes) as u64, b.src + (src_parts * b.bytes) as u64);
    if b.dst == b.src || dst_end <= b.src || src_end <= b.dst {
        return Ok(());
    }
    Err(c.fault("`dst` and `src` overlap in part", "reduce in place (`dst` = `src`), or into another buffer"))
}

fn reduce(c: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let b = Buffers::new(c, |_| (1, 1))?;
    disjoint(c, &b, 1, 1)?;
    let key = b.key(c);
    meet(c, b.team, key, |c, members| {
        let parts = members.iter().map(|&pe| b.part(c, pe, 0)).collect();
        let sum = combine(c, parts);
        for &to in members {
            members.iter().for_each(|&from| count(c, from, to, b.bytes));
            b.store(c, to, &sum);
        }
    })
}

fn reducescatter(c: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let b = Buffers::new(c, |n| (1, n))?;
    disjoint(c, &b, 1, b.n)?;
    let key = b.key(c);
    meet(c, b.team, key, |c, members| {
        let part = |i: usize| combine(c, members.iter().map(|&pe| b.part(c, pe, i)).collect());
        let sums: Vec<Vec<u8>> = (0..members.len()).map(part).collect();
        for (&to, sum) in members.iter().zip(&sums) {
            members.iter().for_each(|&from| count(c, from, to, b.bytes));
            b.store(c, to, sum);
        }
    })
}

fn fcollect(c: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let b = Buffers::new(c, |n| (n, 1))?;
    let key = b.key(c);
    meet(c, b.team, key, |c, members| {
        let all: Vec<u8> = members.iter().flat_map(|&pe| b.part(c, pe, 0)).collect();
        for &to in members {
            members.iter().for_each(|&from| count(c, from, to, b.bytes));
            b.store(c, to, &all);
        }
    })
}

fn alltoall(c: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let b = Buffers::new(c, |n| (n, n))?;
    let key = b.key(c);
    meet(c, b.team, key, |c, members| {
        let gather = |i: usize| members.iter().flat_map(|&pe| b.part(c, pe, i)).collect();
        let all: Vec<Vec<u8>> = (0..members.len()).map(gather).collect();
        for (&to, data) in members.iter().zip(&all) {
            members.iter().for_each(|&from| count(c, from, to, b.bytes));
            b.store(c, to, data);
        }
    })
}

fn broadcast(c: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let b = Buffers::new(c, |_| (1, 1))?;
    let root = c.args[4] as u32 as usize;
    if root >= b.n {
        let message = format_args!("root {} is not a PE of the team, which has {}", root as i32, b.n);
        return Err(c.fault(message, "the root is a rank in the team"));
    }
    let mut key = b.key(c);
    key.push(("root", root as u64));
    meet(c, b.team, key, |c, members| {
        let from = members[root];
        let data = b.part(c, from, 0);
        for &to in members {
            count(c, from, to, b.bytes);
            b.store(c, to, &data);
        }
    })
}
