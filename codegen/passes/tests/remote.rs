//! Tests of remote memory operations: after the lowered kernel, the memory of all PEs is the same
//! as after the original kernel, with every transport and at every scope.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

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

/// Runs a kernel before and after the passes. Returns the calls that were made.
fn agrees(kernel: &Kernel, transport: Transport, start: &World) -> (Lowered, World) {
    let lowered = lower(kernel, transport);
    let (mut want, mut have) = (start.clone(), start.clone());
    want.launch(&module(kernel.clone()).kernels[0]);
    have.launch_lowered(&lowered);
    assert!(!have.trapped);
    for (i, arg) in want.args.iter().enumerate() {
        if let Arg::Memory(want, _) = arg {
            for (pe, want) in want.iter().enumerate() {
                let at = want.iter().zip(have.memory(i, pe)).position(|(a, b)| a != b);
                assert_eq!(at, None, "first wrong byte of argument {i} of PE {pe} by {transport:?}");
            }
        }
    }
    (lowered, have)
}

/// A side of a transfer. Its extents come from the other side.
#[derive(Clone, Debug)]
struct Side {
    /// The order of the modes, fastest first.
    order: Vec<usize>,
    /// The elements that are left free after each mode.
    pads: Vec<i64>,
    offset: i64,
    /// The mode, the limit and the offset of a bound.
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
    /// The mode whose extent is known only at run time.
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
    // Most sides are dense, so that modes continue each other.
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
                // Otherwise the layout with padding would not be known.
                extents.truncate(2);
            }
            // A side with all its padding must fit into its memory.
            while extents.iter().product::<i64>() > 1000 {
                extents.iter_mut().max().into_iter().for_each(|e| *e /= 2);
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
    let me = b.emit(Team::MyPe { team })?;
    let pes = b.emit(Team::NPes { team })?;
    let one = b.int(Scalar::I32, 1)?;
    let next = b.binary(BinOp::Add, me, one)?;
    let pe = b.binary(BinOp::Rem, next, pes)?;
    let value = b.int(Scalar::U64, 5)?;
    let (nbi, group) = (c.nbi, c.group);
    b.emit(match (c.signal, c.get) {
        (Some(op), _) => Remote::PutSignal { dst, src, signal: sig, op, value, pe, team, nbi, group },
        (None, false) => Remote::Put { dst, src, pe, team, nbi, group },
        (None, true) => Remote::Get { dst, src, pe, team, nbi, group },
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

/// Checks that the launcher only has to provide teams' numbers.
#[test]
fn ranks_and_addresses_may_come_from_nvshmem() {
    for lowering in [Lowering::Multimem, Lowering::Unicast] {
        let kernel = common::kernels::two_shot(Scalar::F32, 32, 2, RedOp::Add).unwrap();
        let mut o = options(lowering);
        o.transport = Transport::Nvshmem;
        o.library_pointers = true;
        o.debug_waits = Some(100);
        let lowered = run(module(kernel.clone()), &o).unwrap_or_else(|e| panic!("{e:#?}"));
        let launch = lowered.module.kernels[0].head.launch.as_ref().unwrap();
        let hidden: Vec<_> = launch.params.iter().map(|p| &p.kind).collect();
        assert_eq!(hidden[4..], [&weft_abi::ParamKind::Hidden(Hidden::TeamHandle { team: 3 })]);
        let data: Vec<Vec<u8>> = (0..3u32)
            .map(|pe| (0..333u32).flat_map(|i| ((pe * 7 + i) as f32).to_le_bytes()).collect())
            .collect();
        let counters = Arg::Memory(vec![vec![0; 256]; 3], 128);
        let args = vec![Arg::Int(333), Arg::Memory(data, 16), counters, Arg::Team];
        let (mut want, mut have) = (World::new(3, [2, 1, 1], args.clone()), World::new(3, [2, 1, 1], args));
        want.launch(&module(kernel).kernels[0]);
        have.launch_lowered(&lowered);
        for pe in 0..3 {
            assert_eq!(want.memory(1, pe), have.memory(1, pe), "PE {pe} by {lowering:?}");
        }
        let pointer = if lowering == Lowering::Multimem { "nvshmemx_mc_ptr" } else { "nvshmem_ptr" };
        for function in [pointer, "nvshmem_team_my_pe", "nvshmem_team_n_pes"] {
            assert!(have.calls.iter().any(|f| f == function), "{function}");
        }
    }
}

/// A kernel for each kind of op, at each scope.
fn every_op(group: Group, nbi: bool, op: usize) -> Built<Option<Kernel>> {
    let mut b = Builder::new("k", [64, 1, 1]);
    let tensor = |elem, n| Builder::tensor(elem, Space::Symmetric, Layout::new(n, 1).unwrap(), 16);
    let x = b.param("x", tensor(Scalar::F32, 100))?;
    let y = b.param("y", tensor(Scalar::F32, 100))?;
    let sig = b.param("sig", tensor(Scalar::U64, 1))?;
    let v = b.param("v", tensor(Scalar::I32, 8))?;
    let found = b.param("found", tensor(Scalar::U64, 8))?;
    b.param("team", Type::Team)?;
    let team = TeamRef(5);
    let pe = b.int(Scalar::I32, 1)?;
    let (value, one) = (b.int(Scalar::U64, 5)?, b.int(Scalar::I32, 1)?);
    let element = b.view(x, 3.into(), Layout::one(), vec![])?;
    let counter = b.view(v, 3.into(), Layout::one(), vec![])?;
    let f = b.float(Scalar::F32, 1.5)?;
    let all = |which, test| Remote::Wait {
        vars: if which == WaitFor::One { counter } else { v },
        cmp: CmpOp::Eq,
        value: one,
        which,
        test,
        status: (which != WaitFor::One).then_some(v),
        indices: (which == WaitFor::Some).then_some(found),
    };
    let ops: Vec<Remote> = vec![
        Remote::Put { dst: y, src: x, pe, team, nbi, group },
        Remote::Get { dst: y, src: x, pe, team, nbi, group },
        Remote::PutSignal { dst: y, src: x, signal: sig, op: SignalKind::Set, value, pe, team, nbi, group },
        Remote::PutSignal {
            dst: y,
            src: x,
            signal: sig,
            op: SignalKind::Add,
            value,
            pe,
            team: TeamRef::WORLD,
            nbi,
            group,
        },
        Remote::PutValue { dst: element, value: f, pe, team },
        Remote::GetValue { src: element, pe, team },
        Remote::SignalOp { signal: sig, op: SignalKind::Set, value, pe, team },
        Remote::SignalWait { signal: sig, cmp: CmpOp::Ge, value },
        Remote::SignalFetch { signal: sig },
        Remote::RmaFence {},
        Remote::Quiet {},
        Remote::Amo { target: counter, op: AmoOp::CompareSwap, operands: vec![one, one], pe, team },
        Remote::Amo { target: counter, op: AmoOp::Inc, operands: vec![], pe, team },
        Remote::Amo { target: element, op: AmoOp::Add, operands: vec![f], pe, team },
        all(WaitFor::One, true),
        all(WaitFor::All, true),
        all(WaitFor::Any, true),
        all(WaitFor::Some, true),
        all(WaitFor::One, false),
        all(WaitFor::All, false),
        all(WaitFor::Any, false),
        all(WaitFor::Some, false),
        Remote::TeamSync { team, barrier: false, group },
        Remote::TeamSync { team: TeamRef::WORLD, barrier: true, group },
        Remote::TeamReduce { dst: y, src: x, op: RedOp::Mul, scatter: false, team, group },
        Remote::TeamReduce { dst: y, src: x, op: RedOp::Add, scatter: true, team, group },
        Remote::TeamMove { kind: MoveKind::Fcollect, dst: y, src: x, root: None, team, group },
        Remote::TeamMove { kind: MoveKind::Alltoall, dst: y, src: x, root: None, team, group },
        Remote::TeamMove { kind: MoveKind::Broadcast, dst: y, src: x, root: Some(one), team, group },
        Remote::TranslatePe { pe, from: team, to: TeamRef::WORLD },
    ];
    let Some(op) = ops.into_iter().nth(op) else { return Ok(None) };
    b.emit(op)?;
    Ok(Some(b.finish()))
}

/// Checks the functions that are called for each op, by transport. `-` stands for none.
#[test]
fn functions_of_every_op() {
    let mut table = String::new();
    for op in 0.. {
        let mut done = true;
        let mut seen: Vec<String> = Vec::new();
        for group in [Group::Thread, Group::Warp, Group::Block] {
            for nbi in [false, true] {
                let Some(kernel) = every_op(group, nbi, op).unwrap() else { continue };
                done = false;
                let mut name = String::new();
                kernel.walk(&mut |_, inst| {
                    name = inst.op.remote().map_or(name.clone(), |op| op.name().into_owned())
                });
                let mut line = format!("{name}:");
                for transport in TRANSPORTS {
                    let mut o = options(Lowering::Multimem);
                    o.transport = transport;
                    let what = match run(module(kernel.clone()), &o) {
                        Err(found) => found[0].code.to_string(),
                        Ok(lowered) => {
                            let mut calls = Vec::new();
                            lowered.module.kernels[0].walk(&mut |_, inst| {
                                if let Some(Call::Function { function, .. }) = inst.op.call() {
                                    calls.push(function.to_string());
                                }
                            });
                            if calls.is_empty() { "-".into() } else { calls.join("+") }
                        }
                    };
                    line.push_str(&format!(" {what}"));
                }
                if !seen.contains(&line) {
                    table.push_str(&format!("{line}\n"));
                    seen.push(line);
                }
            }
        }
        if done {
            break;
        }
    }
    insta::assert_snapshot!(table);
}
