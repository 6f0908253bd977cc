//! Remote memory operations: the memory of all PEs after the lowered kernel is what the kernel itself says, by every
//! transport, at every scope.

#![allow(clippy::unwrap_used, clippy::panic, reason = "what is wrong in a test ends it")]

mod common;

use common::machine::{Arg, World};
use common::{module, options};
use proptest::prelude::*;
use weft_ir::builder::Built;
use weft_ir::*;
use weft_passes::{Lowered, Lowering, Transport, run};

const TRANSPORTS: [Transport; 3] = [Transport::Nvshmem, Transport::P2p, Transport::Auto];

/// Bytes that differ by PE and index.
fn memory(pes: usize, bytes: usize, seed: usize) -> Vec<Vec<u8>> {
    (0..pes).map(|pe| (0..bytes).map(|i| (pe * 91 + i * 7 + i / 256 + seed) as u8).collect()).collect()
}

fn lower(kernel: &Kernel, transport: Transport) -> Lowered {
    let mut o = options(Lowering::Multimem);
    o.transport = transport;
    run(module(kernel.clone()), &o).unwrap_or_else(|e| panic!("{e:#?}"))
}

/// Runs a kernel before and after the passes; gives the calls made.
fn agrees(kernel: &Kernel, transport: Transport, start: &World) -> (Lowered, World) {
    let lowered = lower(kernel, transport);
    let (mut want, mut have) = (start.clone(), start.clone());
    want.launch(&module(kernel.clone()).kernels[0]);
    have.launch(&lowered.module.kernels[0]);
    assert!(!have.trapped);
    for (i, arg) in want.args.iter().enumerate() {
        if let Arg::Memory(want, _) = arg {
            for (pe, want) in want.iter().enumerate() {
                assert_eq!(want, have.memory(i, pe), "argument {i} of PE {pe} by {transport:?}");
            }
        }
    }
    (lowered, have)
}

/// A side of a transfer: extents come from the other.
#[derive(Clone, Debug)]
struct Side {
    /// Where the modes stand, fastest first.
    order: Vec<usize>,
    /// Elements left free after each mode.
    pads: Vec<i64>,
    offset: i64,
    /// (mode, limit, offset) of a bound.
    bound: Option<(usize, i64, i64)>,
}

impl Side {
    fn layout(&self, extents: &[Int]) -> Layout {
        let mut strides = vec![Int::ZERO; extents.len()];
        let mut stride = Int::ONE;
        for mode in self.order.iter().filter(|m| **m < extents.len()) {
            stride = stride * if self.pads[*mode] > 2 { self.pads[*mode] } else { 1 };
            strides[*mode] = stride.clone();
            stride = stride * &extents[*mode] + if self.pads[*mode] == 2 { 3 } else { 0 };
        }
        Layout::new(IntTuple::tuple(extents.to_vec()), IntTuple::tuple(strides)).unwrap()
    }

    fn bounds(&self, extents: &[Int]) -> Vec<Bound> {
        let Some((mode, limit, offset)) = self.bound else { return vec![] };
        let mode = mode % extents.len();
        let strides: Vec<Int> = (0..extents.len()).map(|m| Int::from(i64::from(m == mode))).collect();
        let layout = Layout::new(IntTuple::tuple(extents.to_vec()), IntTuple::tuple(strides)).unwrap();
        vec![Bound { limit: limit.into(), offset: offset.into(), layout }]
    }
}

#[derive(Clone, Debug)]
struct Case {
    elem: Scalar,
    extents: Vec<i64>,
    /// This mode's extent is known at run time only.
    dynamic: Option<usize>,
    dst: Side,
    src: Side,
    align: u32,
    threads: u32,
    group: Group,
    nbi: bool,
    get: bool,
    signal: Option<SignalKind>,
}

fn side() -> impl Strategy<Value = Side> {
    let order = Just(vec![0usize, 1, 2]).prop_shuffle();
    // Mostly dense, so that modes go on with one another.
    let pads = prop::collection::vec(prop::sample::select(vec![0, 0, 0, 1, 2, 3]), 3);
    let bound = prop::option::weighted(0.3, (0usize..3, 1i64..9, 0i64..4));
    (order, pads, prop::sample::select(vec![0, 0, 4, 8, 3]), bound)
        .prop_map(|(order, pads, offset, bound)| Side { order, pads, offset, bound })
}

fn case() -> impl Strategy<Value = Case> {
    let elem = prop::sample::select(vec![Scalar::U8, Scalar::BF16, Scalar::F32, Scalar::F64, Scalar::E4M3]);
    let extents = prop::collection::vec(prop::sample::select(vec![1i64, 2, 3, 4, 5, 8, 16, 32]), 1..4);
    let group = prop::sample::select(vec![Group::Thread, Group::Warp, Group::Block]);
    let signal = prop::option::weighted(0.3, prop::sample::select(vec![SignalKind::Set, SignalKind::Add]));
    let flags = (any::<bool>(), any::<bool>(), prop::option::weighted(0.3, 0usize..3));
    let threads = prop::sample::select(vec![1u32, 32, 40, 64]);
    (elem, extents, (side(), side()), 0u32..5, threads, group, signal, flags).prop_map(
        |(elem, mut extents, (dst, src), align, threads, group, signal, (nbi, get, dynamic))| {
            if dynamic.is_some() {
                // Else the padding's strides are no layout's that is known.
                extents.truncate(2);
            }
            Case {
                elem,
                dynamic: dynamic.filter(|d| *d < extents.len()),
                extents,
                dst,
                src,
                align: elem.bytes().max(1 << align),
                threads,
                group,
                nbi,
                get,
                signal,
            }
        },
    )
}

const BYTES: usize = 1 << 18;

fn kernel(c: &Case) -> Built<Kernel> {
    let mut b = Builder::new("k", [c.threads, 1, 1]);
    let n = b.param("n", Type::Scalar(Scalar::I32))?;
    let flat = || Layout::new(BYTES as i64 / i64::from(c.elem.bytes()), 1).unwrap();
    let x = b.param("x", Builder::tensor(c.elem, Space::Symmetric, flat(), c.align))?;
    let y = b.param("y", Builder::tensor(c.elem, Space::Symmetric, flat(), c.align))?;
    let sig = b.param("sig", Builder::tensor(Scalar::U64, Space::Symmetric, Layout::one(), 8))?;
    b.param("team", Type::Team)?;
    let team = TeamRef(4);
    let mut extents: Vec<Int> = c.extents.iter().map(|e| Int::from(*e)).collect();
    if let Some(d) = c.dynamic {
        extents[d] = b.symbol(n)?;
    }
    let view = |b: &mut Builder, base, side: &Side| {
        b.view(base, side.offset.into(), side.layout(&extents), side.bounds(&extents))
    };
    let (dst, src) = (view(&mut b, x, &c.dst)?, view(&mut b, y, &c.src)?);
    let me = b.emit(Op::MyPe { team })?;
    let pes = b.emit(Op::NPes { team })?;
    let one = b.int(Scalar::I32, 1)?;
    let next = b.binary(BinOp::Add, me, one)?;
    let pe = b.binary(BinOp::Rem, next, pes)?;
    let value = b.int(Scalar::U64, 5)?;
    let (nbi, group) = (c.nbi, c.group);
    b.emit(match (c.signal, c.get) {
        (Some(op), _) => Op::PutSignal { dst, src, signal: sig, op, value, pe, team, nbi, group },
        (None, false) => Op::Put { dst, src, pe, team, nbi, group },
        (None, true) => Op::Get { dst, src, pe, team, nbi, group },
    })?;
    Ok(b.finish())
}

fn world(c: &Case, pes: usize) -> World {
    let n = c.dynamic.map_or(1, |d| c.extents[d]);
    World::new(
        pes,
        [1, 1, 1],
        vec![
            Arg::Int(n),
            Arg::Memory(memory(pes, BYTES, 0), c.align),
            Arg::Memory(memory(pes, BYTES, 3), c.align),
            Arg::Memory(memory(pes, 8, 1), 8),
            Arg::Team,
        ],
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 200 } else { 2000 }))]

    #[test]
    fn a_split_transfer_is_the_transfer(c in case()) {
        let kernel = kernel(&c).unwrap();
        for transport in TRANSPORTS {
            for in_reach in if transport == Transport::Auto { vec![true, false] } else { vec![true] } {
                let mut start = world(&c, 3);
                start.in_reach = in_reach;
                let (_, end) = agrees(&kernel, transport, &start);
                let called = end.calls.iter().any(|f| !f.contains("translate"));
                match (transport, in_reach) {
                    (Transport::Nvshmem, _) | (_, false) => prop_assert!(called || c.dst.bound.is_some() || c.src.bound.is_some()),
                    _ => prop_assert!(!called),
                }
            }
        }
    }
}
