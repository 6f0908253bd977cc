//! Copies between two addresses by loads and stores that are distributed over the threads of a
//! group.
//!
//! The copy moves words of 16 bytes if both sides are aligned, which is tested at run time if it is
//! not proven. Each thread has eight words in flight. With 512 threads per SM these are 64 KiB,
//! several times what a link needs.

use super::pair::{Pair, PiecePosition};
use crate::edit::Emit;
use crate::teams::linear;
use weft_ir::builder::{Built, Range};
use weft_ir::mixed::{Builder, Type};
use weft_ir::{
    Address, BinOp, CmpOp, Dim, Group, Int, Memory, Scalar, Scope, Sem, Sreg, Thread, Value, ValueType,
};

/// The maximum number of a thread's words in flight.
const IN_FLIGHT: i64 = 8;
/// The size of the widest access in bytes.
const WIDEST: u32 = 16;

/// The threads that copy together.
pub(super) struct Threads {
    pub group: Group,
    /// The rank of this thread in the group.
    pub index: Int,
    /// The number of threads in the group.
    pub count: Int,
}

impl Threads {
    pub fn of(b: &mut Builder, group: Group) -> Built<Threads> {
        let all = i64::from(b.kernel().threads());
        let (index, count) = match group {
            Group::Thread => (Int::ZERO, Int::ONE),
            // The verifier rejects operations of a cluster on other PEs.
            Group::Block | Group::Cluster => (linear(b, Sreg::ThreadIdx)?, Int::from(all)),
            Group::Warp => {
                let lane = b.special(Sreg::LaneIdx, Dim::X)?;
                let count = match all % 32 {
                    0 => Int::from(32),
                    // The last warp has the remaining threads.
                    _ => (Int::from(all) - linear(b, Sreg::ThreadIdx)?.floor_div(&Int::from(32)) * 32)
                        .min(&Int::from(32)),
                };
                (b.symbol(lane)?, count)
            }
        };
        Ok(Threads { group, index, count })
    }

    /// Emits a barrier of the threads.
    pub fn meet(&self, b: &mut Builder) -> Built<()> {
        match self.group {
            Group::Thread => Ok(()),
            group => b.emit(Thread::GroupBarrier { group }).map(drop),
        }
    }

    /// Emits `body` for the first thread.
    pub fn first(&self, b: &mut Builder, body: impl FnOnce(&mut Builder) -> Built<()>) -> Built<()> {
        if self.group == Group::Thread {
            return body(b);
        }
        let first = self.is_first(b)?;
        b.if_true(first, body).map(drop)
    }

    /// Whether this is the first thread of the group.
    pub fn is_first(&self, b: &mut Builder) -> Built<Value> {
        let (this, zero) = (b.index(self.index.clone())?, b.i64(0)?);
        b.compare(CmpOp::Eq, this, zero)
    }

    /// Emits `body` for every number below `total`. The numbers are distributed one by one, and
    /// each thread has `in_flight` (a power of two) of them at a time. Of the remaining numbers it
    /// has half as many at a time, and so on.
    pub fn distribute(
        &self,
        b: &mut Builder,
        total: &Int,
        in_flight: i64,
        body: &mut dyn FnMut(&mut Builder, &[Int]) -> Built<()>,
    ) -> Built<()> {
        let all = |first: Int, n: i64| (0..n).map(|j| &first + &self.count * j).collect::<Vec<_>>();
        let whole = |n: i64| total.floor_div(&(&self.count * n)) * (&self.count * n);
        let mut start = if in_flight == 1 { total.clone() } else { whole(in_flight) };
        if !start.is(0) {
            let step = &self.count * in_flight;
            let range = (b.index(self.index.clone())?, b.index(start.clone())?, b.index(step)?);
            let max = total.upper_bound().map(|n| n.max(1) - 1);
            b.for_loop(range, 1, Range { min: 0, max, div: 1 }, |b, i| {
                let first = b.symbol(i)?;
                body(b, &all(first, in_flight))
            })?;
        }
        // Each step has at most one round: the first ones of all threads, and the last one of the
        // first threads only.
        let mut n = in_flight;
        while start != *total {
            n /= 2;
            let end = if n == 0 { total.clone() } else { whole(n) };
            let first = &start + &self.index;
            let (low, high) = if n == 0 { (&first, total) } else { (&start, &end) };
            if start != end {
                let numbers = all(first.clone(), n.max(1));
                match low.is_lt(high) {
                    true => body(b, &numbers)?,
                    false => {
                        let some = b.less(low, high)?;
                        b.if_true(some, |b| body(b, &numbers))?;
                    }
                }
            }
            start = end;
        }
        Ok(())
    }
}

/// The form of a copy for the report: the size of its words in bytes, and of those that it uses if
/// addresses are less aligned.
pub(super) struct Copied {
    pub words: u32,
    pub unaligned: Option<u32>,
}

/// Copies a pair by the threads' own loads and stores.
pub(super) fn copy(b: &mut Builder, pair: &Pair, to: Value, from: Value, by: &Threads) -> Built<Copied> {
    let job = Job { pair, to, from, by };
    let flat = pair.rest.is_empty() && pair.contiguous;
    let wide = job.widest(flat);
    let proven = wide.min(pair.align).max(pair.elem);
    let all = |b: &mut Builder, words: u32| if flat { job.flat(b, words) } else { job.chunks(b, words) };
    let aligned = |b: &mut Builder| {
        if wide == proven {
            return all(b, wide);
        }
        let cond = job.is_aligned(b, wide)?;
        b.if_else(cond, |b| all(b, wide), |b| all(b, proven)).map(drop)
    };
    match (flat || pair.limits.is_empty(), pair.tops()) {
        (true, _) => aligned(b)?,
        (false, None) => job.elements(b)?,
        (false, Some(tops)) => {
            let tests = tops.iter().map(|(top, limit)| b.less(top, limit)).collect::<Built<Vec<_>>>()?;
            match b.all(tests)? {
                Some(inside) => drop(b.if_else(inside, aligned, |b| job.elements(b))?),
                None => aligned(b)?,
            }
        }
    }
    Ok(Copied { words: wide, unaligned: (wide != proven).then_some(proven) })
}

struct Job<'a> {
    pair: &'a Pair,
    to: Value,
    from: Value,
    by: &'a Threads,
}

impl Job<'_> {
    /// The widest word that divides the pieces and the strides.
    fn widest(&self, flat: bool) -> u32 {
        let (pair, elem) = (self.pair, i64::from(self.pair.elem));
        if !pair.contiguous {
            return pair.elem;
        }
        let strides = pair.rest.iter().flat_map(|m| [&m.dst, &m.src]);
        let whole = strides.chain((!flat).then_some(&pair.run.extent));
        let fits = |w: &u32| {
            let holds =
                whole.clone().all(|n| n.is(0) || (n * elem).is_divisible_by(&Int::from(i64::from(*w))));
            let few = pair.run.extent.upper_bound().is_some_and(|n| n.saturating_mul(elem) < i64::from(*w));
            holds && !few
        };
        [WIDEST, 8, 4, 2].into_iter().filter(|w| *w > pair.elem).find(fits).unwrap_or(pair.elem)
    }

    fn is_aligned(&self, b: &mut Builder, words: u32) -> Built<Value> {
        let bits = [self.to, self.from].map(|p| b.emit(Address::ToInt { a: p }));
        let [to, from] = bits;
        let either = b.binary(BinOp::Or, to?, from?)?;
        let mask = b.i64(i64::from(words) - 1)?;
        let low = b.binary(BinOp::And, either, mask)?;
        let zero = b.i64(0)?;
        b.compare(CmpOp::Eq, low, zero)
    }

    /// Copies one piece: words, followed by the remaining elements.
    fn flat(&self, b: &mut Builder, words: u32) -> Built<()> {
        let elem = i64::from(self.pair.elem);
        let each = i64::from(words) / elem;
        let elements = self.pair.count(&self.pair.at(&Int::ZERO));
        let whole = elements.floor_div(&Int::from(each));
        self.by.distribute(b, &whole, IN_FLIGHT, &mut |b, all| {
            let at: Vec<_> = all.iter().map(|i| i * i64::from(words)).map(|at| (at.clone(), at)).collect();
            self.move_words(b, words, &at)
        })?;
        let moved = whole * each;
        let left = &elements - &moved;
        if left.is(0) {
            return Ok(());
        }
        self.by.distribute(b, &left, 1, &mut |b, all| {
            let at: Vec<_> = all.iter().map(|i| (&moved + i) * elem).map(|at| (at.clone(), at)).collect();
            self.move_words(b, self.pair.elem, &at)
        })
    }

    /// Copies pieces, whose words are distributed over the threads as if they belonged to one
    /// piece.
    fn chunks(&self, b: &mut Builder, words: u32) -> Built<()> {
        let (pair, elem) = (self.pair, i64::from(self.pair.elem));
        let each = i64::from(words) / elem;
        let of_piece = pair.run.extent.floor_div(&Int::from(each));
        self.by.distribute(b, &(pair.pieces() * &of_piece), IN_FLIGHT, &mut |b, all| {
            let at = |i: &Int| {
                let (at, c) = (pair.at(&i.floor_div(&of_piece)), i.rem(&of_piece) * each);
                ((at.dst + &c * &pair.run.dst) * elem, (at.src + c * &pair.run.src) * elem)
            };
            self.move_words(b, words, &all.iter().map(at).collect::<Vec<_>>())
        })
    }

    /// Copies element by element those that exist.
    fn elements(&self, b: &mut Builder) -> Built<()> {
        let (pair, elem) = (self.pair, i64::from(self.pair.elem));
        self.by.distribute(b, &(pair.pieces() * &pair.run.extent), 1, &mut |b, all| {
            let i = &all[0];
            let (PiecePosition { dst, src, positions }, c) =
                (pair.at(&i.floor_div(&pair.run.extent)), i.rem(&pair.run.extent));
            let mut tests = Vec::new();
            for ((limit, start), step) in pair.limits.iter().zip(positions).zip(&pair.run.positions) {
                tests.push(b.less(&(start + &c * step), &limit.limit)?);
            }
            let at = [((dst + &c * &pair.run.dst) * elem, (src + c * &pair.run.src) * elem)];
            match b.all(tests)? {
                Some(exists) => b.if_true(exists, |b| self.move_words(b, pair.elem, &at)).map(drop),
                None => self.move_words(b, pair.elem, &at),
            }
        })
    }

    /// Moves words at byte offsets of both sides: all loads, followed by all stores.
    fn move_words(&self, b: &mut Builder, bytes: u32, at: &[(Int, Int)]) -> Built<()> {
        let mut loaded = Vec::with_capacity(at.len());
        for (_, from) in at {
            let ptr = b.offset(self.from, from)?;
            loaded.push(b.emit_as(Memory::Load { ptr, sem: Sem::Weak, scope: Scope::Sys }, word(bytes))?);
        }
        for ((to, _), value) in at.iter().zip(loaded) {
            let ptr = b.offset(self.to, to)?;
            b.emit(Memory::Store { ptr, value, sem: Sem::Weak, scope: Scope::Sys })?;
        }
        Ok(())
    }
}

/// The type for moving a number of bytes.
pub(super) fn word(bytes: u32) -> Type {
    match bytes {
        1 => Type::Scalar(Scalar::U8),
        2 => Type::Scalar(Scalar::U16),
        n => Type::lanes_of(Scalar::U32, n / 4),
    }
}
