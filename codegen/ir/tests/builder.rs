//! Tests that a builder's method makes each op with which kernels are written, and that the ops have
//! the fields that the calls give.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use weft_ir::builder::{Built, Ctas, Rank, Signal};
use weft_ir::text::print_module;
use weft_ir::*;
use weft_layout::{Coord, parse_layout};

/// The ops at the tensor level that no method makes, and why users do not need one.
const WITHOUT: &[(&str, &str)] = &[];

fn layout(text: &str) -> Layout {
    parse_layout(text, &mut |_| None).unwrap()
}

fn numbers(b: &mut Builder) -> Built<()> {
    let (n, x) = (b.int(Scalar::I32, 3)?, b.float(Scalar::F32, 1.5)?);
    let minus = b.unary(UnOp::Neg, x)?;
    let sum = b.binary(BinOp::Add, x, minus)?;
    let fused = b.fma(x, minus, sum)?;
    let less = b.compare(CmpOp::Lt, fused, x)?;
    let chosen = b.select(less, x, sum)?;
    let wide = b.splat(chosen, &Type::lanes_of(Scalar::F32, 4))?;
    let longer = b.concat(vec![wide, x, wide])?;
    let part = b.slice(longer, 3, 2)?;
    let lane = b.extract(part, n)?;
    b.insert(wide, n, lane)?;
    let bits = b.bitcast(wide, &Type::lanes_of(Scalar::U64, 2))?;
    b.convert(bits, Scalar::F16)?;
    b.zero(&Type::lanes_of(Scalar::BF16, 2)).map(drop)
}

fn threads(b: &mut Builder) -> Built<()> {
    let lane = b.special(Sreg::LaneIdx, Dim::X)?;
    let rank = b.cluster_rank()?;
    b.shuffle(rank, ShuffleMode::Xor, lane)?;
    let same = b.compare(CmpOp::Eq, rank, lane)?;
    b.vote(RedOp::And, same)?;
    b.clock()?;
    b.global_time()?;
    b.fence(Sem::AcqRel, Scope::Gpu)?;
    b.fence_async()?;
    b.sync(Group::Warp)?;
    b.cluster_arrive()?;
    b.cluster_wait()?;
    b.launch_dependents()?;
    b.wait_dependencies().map(drop)
}

fn control(b: &mut Builder) -> Built<()> {
    let n = b.param("n", Type::scalar(Scalar::I64))?;
    let n = b.symbol(n)?;
    let sum = b.local("sum", Type::scalar(Scalar::I64));
    b.for_each(8.into()..n, 4.into(), 2, |b, i| {
        let (i, old) = (b.index(i)?, b.get(sum)?);
        let new = b.binary(BinOp::Add, old, i)?;
        b.set(sum, new).map(drop)
    })?;
    let yes = b.bool(true)?;
    b.while_loop(
        |_| Ok(yes),
        |b| b.if_else(yes, |b| b.next_round(0).map(drop), |b| b.break_out(0).map(drop)).map(drop),
    )?;
    b.once(|b| b.if_true(yes, |b| b.break_out(0).map(drop)).map(drop))?;
    let old = b.get(sum)?;
    b.print("%ld", vec![old])?;
    b.assert(yes, "the sum is right")?;
    b.role("one", 0..32, 40, |b| b.trap().map(drop))?;
    b.role("two", 128..256, 80, |b| b.return_now().map(drop)).map(drop)
}

fn views(b: &mut Builder) -> Built<()> {
    let x = b.param("x", Builder::tensor(Scalar::F32, Space::Symmetric, layout("(8,4):(4,1)"), 16))?;
    b.param("team", Type::Team)?;
    let team = TeamRef(1);
    let pe = b.my_pe(team)?;
    b.n_pes(team)?;
    b.translate_pe(Rank { pe, team }, TeamRef::WORLD)?;
    let all = b.multicast(x, team)?;
    let theirs = b.peer(x, team, pe)?;
    let row = b.part(theirs, &Coord::Tuple(vec![2.into(), Coord::All]))?;
    let v = b.load_ordered(row, Sem::Acquire, Scope::Gpu)?;
    b.store_ordered(row, v, Sem::Release, Scope::Sys)?;
    b.red(row, v, RedOp::Min, (Sem::Relaxed, Scope::Gpu))?;
    let row = b.part(all, &Coord::Tuple(vec![1.into(), Coord::All]))?;
    let v = b.ld_reduce(row, RedOp::Add, Scalar::F32)?;
    b.mc_store(row, v)?;
    b.mc_red(row, v, RedOp::Add, (Sem::Release, Scope::Sys))?;
    b.reduce(v, RedOp::Max, Group::Warp)?;
    let mine = b.shared(Scalar::I32, layout("4:1"), None)?;
    let next = b.in_cta(mine, pe)?;
    let first = b.part(next, &Coord::Int(0.into()))?;
    let old = b.atomic(first, pe, None, (Sem::AcqRel, Scope::Gpu))?;
    b.atomic_cas(first, old, pe, (Sem::Acquire, Scope::Gpu)).map(drop)
}

fn copies(b: &mut Builder) -> Built<()> {
    let (m, n) = (b.param("m", Type::scalar(Scalar::I64))?, b.param("n", Type::scalar(Scalar::I64))?);
    let (m, n) = (b.symbol(m)?, b.symbol(n)?);
    let rows = Layout::new(IntTuple::tuple([m, n.clone()]), IntTuple::tuple([n, 1.into()])).unwrap();
    let x = b.param("x", Builder::tensor(Scalar::F32, Space::Global, rows, 16))?;
    let line = b.param("line", Builder::tensor(Scalar::F32, Space::Symmetric, layout("512:1"), 16))?;
    let buffer = b.shared(Scalar::F32, layout("(16,32):(32,1)"), None)?;
    let p = b.pipeline(2)?;
    let s = b.producer_acquire(p)?;
    let at = b.symbol(s)?;
    let tile = b.tile(x, &[(&at * Int::from(16), 16), (32.into(), 32)])?;
    b.tma_load(buffer, &tile, p, Ctas::along([Dim::X, Dim::Z]))?;
    b.bulk_load(buffer, line, p, Ctas::CLUSTER)?;
    b.producer_commit(p)?;
    b.consumer_wait(p)?;
    b.consumer_release(p)?;
    let skipped = b.index(at)?;
    b.consumer_skip(p, skipped)?;
    b.tma_store(&tile, buffer)?;
    b.tma_reduce(&tile, buffer, RedOp::Add)?;
    b.tma_instead()?;
    b.tma_wait_read(1)?;
    b.bulk_store(line, buffer)?;
    b.bulk_reduce(line, buffer, RedOp::Min)?;
    b.tma_wait(0)?;
    let theirs = b.in_cta(buffer, s)?;
    b.bulk_to_cta(theirs, buffer, None, p)?;
    b.bulk_to_cta(theirs, buffer, Some(RedOp::Add), p).map(drop)
}

fn products(b: &mut Builder) -> Built<()> {
    let tile = Accumulator { elem: Scalar::F32, rows: 128, cols: 32, over: [2, 1] };
    let (x, y) = (layout("(128,64):(64,1)"), layout("(32,64):(64,1)"));
    let (x, y) = (b.shared(Scalar::BF16, x, None)?, b.shared(Scalar::BF16, y, None)?);
    let out = b.shared(Scalar::F32, layout("(128,16):(16,1)"), None)?;
    let acc = b.accumulator(tile)?;
    let acc = b.mma(x, y, acc)?;
    let acc = b.mma_wait(acc, 0)?;
    let held = b.accumulator_read(acc, 16, 16)?;
    let part = b.accumulator_part(out, tile.over)?;
    b.store(part, held)?;
    b.accumulator_of(Accumulator { cols: 16, ..tile }, held).map(drop)
}

fn remote(b: &mut Builder) -> Built<()> {
    let param = |b: &mut Builder, name: &str, elem, text: &str| {
        b.param(name, Builder::tensor(elem, Space::Symmetric, layout(text), 8))
    };
    let (x, y) = (param(b, "x", Scalar::F32, "(8):(1)")?, param(b, "y", Scalar::F32, "(8):(1)")?);
    let signal = param(b, "signal", Scalar::U64, "1:0")?;
    let sync = b.param("sync", Type::Barrier)?;
    let (pe, value) = (b.my_pe(TeamRef::WORLD)?, b.int(Scalar::U64, 7)?);
    let (to, group) = (Rank { pe, team: TeamRef::WORLD }, Group::Block);
    let (team, update) = (to.team, Signal { signal, op: SignalKind::Add, value });
    b.rma_put(x, y, to, group)?;
    b.rma_put_nbi(y, x, to, Group::Thread)?;
    b.rma_get(x, y, to, Group::Warp)?;
    b.rma_get_nbi(y, x, to, group)?;
    b.put_signal(x, y, update, to, group)?;
    b.signal_op(update, to)?;
    b.signal_wait(signal, CmpOp::Ge, value)?;
    b.signal_fetch(signal)?;
    b.wait_until(signal, CmpOp::Ne, value)?;
    let old = b.get_value(signal, to)?;
    b.put_value(signal, old, to)?;
    b.amo(signal, AmoOp::CompareSwap, vec![old, value], to)?;
    b.rma_fence()?;
    b.quiet()?;
    b.team_sync(team, group)?;
    b.team_quiet_sync(team, group)?;
    b.team_reduce(x, y, RedOp::Max, team, group)?;
    b.team_reducescatter(y, x, RedOp::Add, team, group)?;
    b.fcollect(x, y, team, group)?;
    b.alltoall(y, x, team, group)?;
    b.broadcast(x, y, to, group)?;
    b.team_barrier(sync, team, Sem::AcqRel, Scope::Sys).map(drop)
}

/// A function that makes a kernel, and the kernel's name.
type Maker = (&'static str, fn(&mut Builder) -> Built<()>);

fn built() -> Module {
    let kernel = |(name, make): Maker| {
        let mut b = Builder::new(name, [256, 1, 1]);
        b.kernel_mut().cluster = [2, 1, 2];
        make(&mut b).unwrap_or_else(|d| panic!("{name}: {}", d.message));
        b.finish()
    };
    let all: [Maker; 7] = [
        ("numbers", numbers),
        ("threads", threads),
        ("control", control),
        ("views", views),
        ("copies", copies),
        ("products", products),
        ("remote", remote),
    ];
    Module { kernels: all.map(kernel).into(), ..Module::default() }
}

#[test]
fn methods_make_every_op_of_the_tensor_level() {
    const FAMILIES: [&[(&str, bool)]; 11] = [
        Arith::TABLE,
        Thread::TABLE,
        Var::TABLE,
        Control::TABLE,
        Debug::TABLE,
        View::TABLE,
        Team::TABLE,
        Access::TABLE,
        Together::TABLE,
        Tile::TABLE,
        Remote::TABLE,
    ];
    let module = built();
    let made: BTreeSet<_> =
        module.kernels.iter().flat_map(|k| k.insts.iter().map(|(_, inst)| inst.op.mnemonic())).collect();
    let all = FAMILIES.iter().flat_map(|table| table.iter().map(|(mnemonic, _)| *mnemonic));
    let missing: Vec<_> = all.filter(|op| !made.contains(op)).collect();
    let excepted: Vec<_> = WITHOUT.iter().map(|(op, _)| *op).collect();
    assert_eq!(missing, excepted, "write a method of the builder, or a reason why users do not need one");
}

#[test]
fn methods_pass_their_arguments_on() {
    insta::assert_snapshot!(print_module(&built()));
}

/// A mode of one position is not a mode of the tile, and only a mode that can end within the tile
/// has a bound.
#[test]
fn a_tile_knows_its_place() {
    let mut b = Builder::new("k", [32, 1, 1]);
    let m = b.param("m", Type::scalar(Scalar::I64)).unwrap();
    let m = b.symbol(m).unwrap();
    let shape = IntTuple::tuple([IntTuple::from(&m), 64.into(), 5.into()]);
    let x = Layout::new(shape, IntTuple::tuple([64.into(), 1.into(), &m * Int::from(64)])).unwrap();
    let x = b.param("x", Builder::tensor(Scalar::F32, Space::Global, x, 16)).unwrap();
    let tile = b.tile(x, &[(16.into(), 8), (32.into(), 32), (3.into(), 1)]).unwrap();
    assert_eq!(tile.along, [1, 2, 0]);
    let view = b.ty(tile.view).tensor().unwrap();
    assert_eq!(view.layout.to_string(), "(8,32):(64,1)");
    let bounds: Vec<_> = view.bounds.iter().map(|b| (b.limit.clone(), b.offset.to_string())).collect();
    assert_eq!(bounds, [(m, "16".to_owned())]);
    let at: Vec<_> = tile.at.iter().map(|v| b.symbol(*v).unwrap().as_const()).collect();
    assert_eq!(at, [Some(16), Some(32), Some(3)]);
}

#[test]
fn a_tile_is_of_a_parameter() {
    let mut b = Builder::new("k", [32, 1, 1]);
    let x = b.param("x", Builder::tensor(Scalar::F32, Space::Global, layout("(8,8):(8,1)"), 16)).unwrap();
    let s = b.shared(Scalar::F32, layout("(8,8):(8,1)"), None).unwrap();
    let part = b.part(x, &Coord::Tuple(vec![Coord::All, 0.into()])).unwrap();
    let whole = [(0.into(), 8), (0.into(), 8)];
    for (what, found) in [
        ("shared memory", b.tile(s, &whole)),
        ("a part of a parameter", b.tile(part, &whole[..1])),
        ("one of two modes", b.tile(x, &whole[..1])),
    ] {
        let error = found.expect_err(what);
        assert_eq!(error.code, weft_ir::typing::MISMATCH, "{what}");
        assert!(error.message.contains("a parameter's tensor of"), "{what}: {}", error.message);
    }
}
