//! Tests with random layouts, offsets, alignments and bounds: the lowered accesses move the
//! elements of the tensors.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::machine::{Arg, World};
use common::{layout, lower, module};
use proptest::prelude::*;
use weft_ir::builder::Built;
use weft_ir::*;
use weft_passes::Lowering;

const THREADS: i64 = 4;

/// A tensor of a copy, described by the layout of its fragments in memory.
#[derive(Clone, Debug)]
struct Side {
    /// The modes from the smallest stride to the greatest.
    order: Vec<usize>,
    /// The gaps before each mode, as a factor.
    gaps: Vec<i64>,
    /// The first element of thread 0.
    base: i64,
    /// A factor of the distance between threads.
    spread: i64,
    align: u32,
    bounds: Vec<Limit>,
}

#[derive(Clone, Debug)]
struct Limit {
    /// The mode that is bounded, or all elements.
    mode: Option<usize>,
    /// The limit in percent of the extent.
    at: i64,
    /// Whether the limit is known at compile time.
    known: bool,
    /// The number to a multiple of which the limit is rounded.
    of: i64,
}

fn side(modes: usize) -> impl Strategy<Value = Side> {
    let order = Just((0..modes).collect::<Vec<_>>()).prop_shuffle();
    let gaps = prop::collection::vec(prop::sample::select(vec![1i64, 1, 1, 2, 3]), modes);
    let limit =
        (prop::option::of(0..modes), 1i64..110, any::<bool>(), prop::sample::select(vec![1i64, 2, 4, 8]));
    let limit = limit.prop_map(|(mode, at, known, of)| Limit { mode, at, known, of });
    (
        order,
        gaps,
        prop::sample::select(vec![0i64, 0, 1, 2, 4, 8]),
        1i64..3,
        0u32..5,
        prop::collection::vec(limit, 0..3),
    )
        .prop_map(|(order, gaps, base, spread, align, bounds)| Side {
            order,
            gaps,
            base,
            spread,
            align: 1 << align,
            bounds,
        })
}

fn copies() -> impl Strategy<Value = (Vec<i64>, Side, Side)> {
    (1usize..4).prop_flat_map(|modes| {
        let extents = prop::collection::vec(prop::sample::select(vec![1i64, 2, 3, 4, 4, 8]), modes);
        (extents, side(modes), side(modes))
            .prop_filter("too large", |(e, ..)| e.iter().product::<i64>() <= 64)
    })
}

/// A tensor with one fragment per thread.
struct MadeTensor {
    view: Value,
    memory: usize,
    limits: Vec<i64>,
}

impl Side {
    fn strides(&self, extents: &[i64]) -> (Vec<i64>, i64) {
        let (mut strides, mut next) = (vec![0; extents.len()], 1);
        for m in &self.order {
            strides[*m] = next * self.gaps[*m];
            next = strides[*m] * extents[*m];
        }
        (strides, next * self.spread)
    }

    /// The values of its limits, in order.
    fn limits(&self, extents: &[i64]) -> Vec<i64> {
        let (_, period) = self.strides(extents);
        let all = |l: &Limit| l.mode.map_or(self.base + THREADS * period, |m| extents[m]);
        self.bounds.iter().map(|l| (all(l) * l.at / 100 / l.of * l.of).max(l.of)).collect()
    }

    /// Declares the parameter and the limits: `name`, `name_0`, `name_1`, ...
    fn params(
        &self,
        b: &mut Builder,
        name: &str,
        elem: Scalar,
        space: Space,
        extents: &[i64],
    ) -> Built<(Value, Vec<Int>)> {
        let align = self.align.max(elem.bytes());
        let x = b.param(name, Builder::tensor(elem, space, layout(&[1], &[1]), align))?;
        let mut limits = Vec::new();
        for (i, (l, value)) in self.bounds.iter().zip(self.limits(extents)).enumerate() {
            let limit =
                b.param_of(&format!("{name}_{i}"), Type::Scalar(Scalar::I32), ParamKind::User, l.of)?;
            limits.push(if l.known { value.into() } else { b.symbol(limit)? });
        }
        Ok((x, limits))
    }

    fn view(
        &self,
        b: &mut Builder,
        of: Value,
        limits: &[Int],
        tid: &Int,
        extents: &[i64],
    ) -> Built<MadeTensor> {
        let (strides, period) = self.strides(extents);
        let offset = tid * Int::from(period) + self.base;
        let own = layout(extents, &strides);
        let mut memory = self.base + THREADS * period;
        let mut bounds = Vec::new();
        for (l, limit) in self.bounds.iter().zip(limits) {
            bounds.push(match l.mode {
                None => Bound { limit: limit.clone(), offset: offset.clone(), layout: own.clone() },
                Some(m) => {
                    let unit: Vec<i64> = (0..extents.len()).map(|i| (i == m).into()).collect();
                    Bound { limit: limit.clone(), offset: Int::ZERO, layout: layout(extents, &unit) }
                }
            });
        }
        for (l, value) in self.bounds.iter().zip(self.limits(extents)) {
            if l.mode.is_none() {
                // Elements out of bounds are not even allocated.
                memory = memory.min(value);
            }
        }
        let view = b.view(of, offset, own, bounds)?;
        Ok(MadeTensor { view, memory: memory as usize, limits: self.limits(extents) })
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    Copy,
    Add,
    Switch,
    SwitchRed,
}

/// The number of elements, the alignment, and the values of the limits.
type Tensor = (usize, u32, Vec<i64>);

/// A kernel that computes `y = x` or `y += x`, possibly through the switch.
fn kernel(elem: Scalar, how: How, extents: &[i64], x: &Side, y: &Side) -> Built<(Kernel, Vec<Tensor>)> {
    let mut b = Builder::new("copy", [THREADS as u32, 1, 1]);
    let space = if how == How::Copy { Space::Global } else { Space::Symmetric };
    let team = TeamRef(0);
    b.param("team", Type::Team)?;
    let (from, from_limits) = x.params(&mut b, "x", elem, space, extents)?;
    let (to, to_limits) = y.params(&mut b, "y", elem, space, extents)?;
    let tid = b.special(Sreg::ThreadIdx, Dim::X)?;
    let tid = b.symbol(tid)?;
    let switch = matches!(how, How::Switch | How::SwitchRed);
    let (from, to) = match switch {
        true => (b.multicast(from, team)?, b.multicast(to, team)?),
        false => (from, to),
    };
    let from = x.view(&mut b, from, &from_limits, &tid, extents)?;
    let to = y.view(&mut b, to, &to_limits, &tid, extents)?;
    let value = match switch {
        true => b.ld_reduce(from.view, RedOp::Add, elem)?,
        false => b.load(from.view)?,
    };
    let (sem, scope, op) = (Sem::Relaxed, Scope::Sys, RedOp::Add);
    b.emit(match how {
        How::Copy => Access::Store { place: to.view, value, sem: Sem::Weak, scope },
        How::Add => Access::Red { place: to.view, value, op, sem, scope },
        How::Switch => Access::McStore { place: to.view, value, sem, scope },
        How::SwitchRed => Access::McRed { place: to.view, value, op, sem, scope },
    })?;
    let align = |s: &Side| s.align.max(elem.bytes());
    Ok((b.finish(), vec![(from.memory, align(x), from.limits), (to.memory, align(y), to.limits)]))
}

/// Compares the memory of all PEs. Returns the instructions that were used.
fn check(elem: Scalar, how: How, lowering: Lowering, pes: usize, extents: &[i64], x: &Side, y: &Side) {
    let (kernel, tensors) = kernel(elem, how, extents, x, y).unwrap();
    let mut args = vec![Arg::Team];
    for (i, (n, align, limits)) in tensors.into_iter().enumerate() {
        // The numbers are small, so their sums are exact.
        let number = |pe: usize, at: usize| {
            let value = (pe * 5 + at * 3 + i) % 7;
            let bits = if elem.is_float() && !elem.is_fp8() {
                common::num::float_bits(elem, value as f64)
            } else {
                value as u64
            };
            bits.to_le_bytes()[..elem.bytes() as usize].to_vec()
        };
        args.push(Arg::Memory(
            (0..pes).map(|pe| (0..n).flat_map(|at| number(pe, at)).collect()).collect(),
            align,
        ));
        args.extend(limits.into_iter().map(Arg::Int));
    }
    let (mut want, start) = (World::new(pes, [1, 1, 1], args.clone()), World::new(pes, [1, 1, 1], args));
    let lowered = lower(kernel.clone(), lowering);
    want.launch(&module(kernel).kernels[0]);
    let mut have = start;
    have.launch_lowered(&lowered);
    for (w, h) in want.args.iter().zip(&have.args) {
        if let (Arg::Memory(w, _), Arg::Memory(h, _)) = (w, h) {
            assert_eq!(w, h);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn copies_move_what_the_layouts_say(
        elem in prop::sample::select(vec![
            Scalar::I8, Scalar::U16, Scalar::F16, Scalar::F32, Scalar::I32, Scalar::U64, Scalar::E4M3, Scalar::E5M2,
        ]),
        (extents, x, y) in copies(),
    ) {
        check(elem, How::Copy, Lowering::Multimem, 1, &extents, &x, &y);
    }

    #[test]
    fn reductions_in_memory_add_what_the_layouts_say(
        elem in prop::sample::select(vec![Scalar::F16, Scalar::F32, Scalar::I32, Scalar::F64]),
        (extents, x, y) in copies(),
    ) {
        check(elem, How::Add, Lowering::Multimem, 1, &extents, &x, &y);
    }

    #[test]
    fn the_switch_moves_what_the_layouts_say(
        elem in prop::sample::select(vec![
            Scalar::BF16, Scalar::F16, Scalar::F32, Scalar::I32, Scalar::I64, Scalar::F64,
        ]),
        how in prop::sample::select(vec![How::Switch, How::SwitchRed]),
        multimem in any::<bool>(),
        pes in 1usize..6,
        (extents, x, y) in copies(),
    ) {
        let lowering = if multimem { Lowering::Multimem } else { Lowering::Unicast };
        check(elem, how, lowering, pes, &extents, &x, &y);
    }
}
