//! Operations of the lanes of a warp that a mask names, from the manual's sections 9.7.9 and 9.7.13.

use super::{W, word};

/// What each lane of the mask gets from all lanes' operands (`[a, b, p]`).
type All = fn(&[[u64; 3]; 32], mask: u32, lane: usize) -> u64;

pub struct Shared {
    /// `{d}`, the operands `{0}` (32 bits), `{1}` (32 bits), `{2}` (a predicate), the mask `{m}`.
    pub text: &'static str,
    pub to: W,
    pub eval: All,
}

fn members(mask: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |l| mask >> l & 1 == 1)
}

/// The operand of a lane that may be outside the mask: then of the lane itself, as nothing is said of it.
fn shuffled(v: &[[u64; 3]; 32], mask: u32, lane: usize, from: i64) -> u64 {
    let there = usize::try_from(from).ok().filter(|f| *f < 32 && mask >> f & 1 == 1);
    v[there.unwrap_or(lane)][0]
}

fn reduce(v: &[[u64; 3]; 32], mask: u32, f: fn(u64, u64) -> u64) -> u64 {
    members(mask).map(|l| v[l][0]).reduce(f).unwrap_or(0)
}

fn signed(v: u64) -> i64 {
    i64::from(v as u32 as i32)
}

const fn shared(text: &'static str, to: W, eval: All) -> Shared {
    Shared { text, to, eval }
}

pub const OPERATIONS: &[Shared] = &[
    shared("vote.sync.ballot.b32 {d}, {2}, {m};", W::S, |v, mask, _| {
        members(mask).fold(0, |d, l| d | v[l][2] << l)
    }),
    shared("vote.sync.any.pred {d}, {2}, {m};", W::P, |v, mask, _| {
        u64::from(members(mask).any(|l| v[l][2] == 1))
    }),
    shared("vote.sync.all.pred {d}, !{2}, {m};", W::P, |v, mask, _| {
        u64::from(members(mask).all(|l| v[l][2] == 0))
    }),
    shared("vote.sync.uni.pred {d}, {2}, {m};", W::P, |v, mask, _| {
        let n = members(mask).filter(|l| v[*l][2] == 1).count();
        u64::from(n == 0 || n == mask.count_ones() as usize)
    }),
    shared("and.b32 {d}, {0}, 3;\n  match.any.sync.b32 {d}, {d}, {m};", W::S, |v, mask, lane| {
        members(mask).filter(|l| v[*l][0] & 3 == v[lane][0] & 3).fold(0, |d, l| d | 1 << l)
    }),
    shared("match.all.sync.b32 {d}, {0}, {m};", W::S, |v, mask, lane| {
        if members(mask).all(|l| v[l][0] == v[lane][0]) { mask.into() } else { 0 }
    }),
    shared("redux.sync.add.u32 {d}, {0}, {m};", W::S, |v, mask, _| {
        reduce(v, mask, |a, b| (a + b) & word(32))
    }),
    shared("redux.sync.min.u32 {d}, {0}, {m};", W::S, |v, mask, _| reduce(v, mask, u64::min)),
    shared("redux.sync.max.s32 {d}, {0}, {m};", W::S, |v, mask, _| {
        reduce(v, mask, |a, b| if signed(a) > signed(b) { a } else { b })
    }),
    shared("redux.sync.xor.b32 {d}, {0}, {m};", W::S, |v, mask, _| reduce(v, mask, |a, b| a ^ b)),
    shared("redux.sync.and.b32 {d}, {0}, {m};", W::S, |v, mask, _| reduce(v, mask, |a, b| a & b)),
];

/// Shuffles; only with all lanes, as nothing is said of a source outside the mask.
pub const SHUFFLES: &[Shared] = &[
    shared("shfl.sync.idx.b32 {d}, {0}, {1}, 0x1f, -1;", W::S, |v, mask, lane| {
        shuffled(v, mask, lane, (v[lane][1] & 31) as i64)
    }),
    shared("shfl.sync.bfly.b32 {d}, {0}, {1}, 0x1f, -1;", W::S, |v, mask, lane| {
        shuffled(v, mask, lane, lane as i64 ^ (v[lane][1] & 31) as i64)
    }),
    shared("shfl.sync.down.b32 {d}, {0}, {1}, 0x1f, -1;", W::S, |v, mask, lane| {
        shuffled(v, mask, lane, lane as i64 + (v[lane][1] & 31) as i64)
    }),
    shared("shfl.sync.up.b32 {d}, {0}, {1}, 0, -1;", W::S, |v, mask, lane| {
        shuffled(v, mask, lane, lane as i64 - (v[lane][1] & 31) as i64)
    }),
    // Within eight lanes each.
    shared("shfl.sync.down.b32 {d}, {0}, {1}, 0x1807, -1;", W::S, |v, mask, lane| {
        let to = lane as i64 + (v[lane][1] & 31) as i64;
        shuffled(v, mask, lane, if to <= lane as i64 | 7 { to } else { lane as i64 })
    }),
    shared("shfl.sync.idx.b32 {d}, {0}, {1}, 0x1007, -1;", W::S, |v, mask, lane| {
        // The lane's bits 4 to 3 are kept where the mask in c has ones: bit 4 only.
        let segment = 0x10;
        let max = (lane as i64 & segment) | (7 & !segment);
        let from = (lane as i64 & segment) | ((v[lane][1] & 31) as i64 & !segment);
        shuffled(v, mask, lane, if from <= max { from } else { lane as i64 })
    }),
];
