//! Tests of the widths in the report, and of the errors of the passes.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::{layout, lower, module, options};
use weft_ir::builder::Built;
use weft_ir::diag::Diagnostic;
use weft_ir::level::{Machine, Mixed};
use weft_ir::*;
use weft_passes::{Lowering, PASSES, Run, codes, run};

/// A load of a view of `x` at an offset that depends on the thread.
fn load(elem: Scalar, align: u32, part: Layout, by: i64, limit: Option<i64>) -> Built<Kernel> {
    let mut b = Builder::new("k", [32, 1, 1]);
    let n = b.param("N", Type::Scalar(Scalar::I32))?;
    let x = b.param("x", Builder::tensor(elem, Space::Global, layout(&[1], &[1]), align))?;
    let out = b.param("out", Builder::tensor(elem, Space::Global, layout(&[1], &[1]), 16))?;
    let tid = b.special(Sreg::ThreadIdx, Dim::X)?;
    let at = b.symbol(tid)? * Int::from(by);
    let limit = match limit {
        None => b.symbol(n)?,
        Some(n) => n.into(),
    };
    let bounds = vec![Bound { limit, offset: at.clone(), layout: part.clone() }];
    let from = b.view(x, at, part.clone(), bounds)?;
    let v = b.load(from)?;
    let size = part.size().as_const().unwrap();
    let to = b.view(out, b.symbol(tid)? * Int::from(size), layout(&[size], &[1]), vec![])?;
    b.store(to, v)?;
    Ok(b.finish())
}

fn explain(elem: Scalar, align: u32, part: Layout, by: i64, limit: Option<i64>) -> String {
    lower(load(elem, align, part, by, limit).unwrap(), Lowering::Multimem).report.accesses[0].to_string()
}

#[test]
fn widths_and_why() {
    let line = |n| layout(&[n], &[1]);
    for (have, want) in [
        (
            explain(Scalar::F32, 16, line(4), 4, Some(128)),
            "load of 4 elements: 1 x ld.global.v4.b32 (16 bytes); nothing to test",
        ),
        (
            explain(Scalar::F32, 16, line(4), 4, None),
            "load of 4 elements: 1 x ld.global.v4.b32 (16 bytes); a tail may cut it",
        ),
        (
            explain(Scalar::F32, 16, line(4), 4, Some(64)),
            "load of 4 elements: 1 x ld.global.v4.b32 (16 bytes); one test per instruction",
        ),
        (
            explain(Scalar::F16, 16, line(16), 16, Some(512)),
            "load of 16 elements: 2 x ld.global.v4.b32 (16 bytes); nothing to test",
        ),
        (
            explain(Scalar::F32, 8, line(4), 4, Some(128)),
            "load of 4 elements: 2 x ld.global.v2.b32 (8 bytes); the address is only known to be a multiple of 8 bytes: \
             the tensor is declared `align 8`; nothing to test",
        ),
        (
            explain(Scalar::F32, 16, line(4), 6, Some(1000)),
            "load of 4 elements: 2 x ld.global.v2.b32 (8 bytes); the address is only known to be a multiple of 8 bytes: \
             it starts at element %3*6; nothing to test",
        ),
        (
            explain(Scalar::F32, 16, line(6), 8, Some(1000)),
            "load of 6 elements: 3 x ld.global.v2.b32 (8 bytes); only 6 elements of a thread's (6):(1) are \
             contiguous; nothing to test",
        ),
        (
            explain(Scalar::I16, 16, layout(&[4], &[2]), 8, Some(1000)),
            "load of 4 elements: 4 x ld.global.b16 (2 bytes); the elements of a thread, (4):(2), are not \
             contiguous; nothing to test",
        ),
        (
            explain(Scalar::F32, 16, layout(&[4, 2], &[1, 6]), 16, Some(1000)),
            "load of 8 elements: 4 x ld.global.v2.b32 (8 bytes); the address is only known to be a multiple of 8 bytes: \
             stride 6 of (4,2):(1,6); nothing to test",
        ),
        (
            explain(Scalar::F32, 16, layout(&[4, 3], &[1, 0]), 4, Some(128)),
            "load of 12 elements: 1 x ld.global.v4.b32 (16 bytes); nothing to test",
        ),
        (
            explain(Scalar::F64, 8, line(1), 1, Some(1000)),
            "load of 1 elements: 1 x ld.global.b64 (8 bytes); a thread does not move more at once; \
             nothing to test",
        ),
    ] {
        assert_eq!(have, want);
    }
}

/// An op of the switch on `lanes` elements at a multiple of `by`.
fn switch(elem: Scalar, op: Option<RedOp>, acc: Scalar, lanes: i64, by: i64) -> Built<Kernel> {
    let mut b = Builder::new("k", [32, 1, 1]);
    let x = b.param("x", Builder::tensor(elem, Space::Symmetric, layout(&[1], &[1]), 16))?;
    b.param("team", Type::Team)?;
    let mc = b.multicast(x, TeamRef(1))?;
    let tid = b.special(Sreg::ThreadIdx, Dim::X)?;
    let part = b.view(mc, b.symbol(tid)? * Int::from(by), layout(&[lanes], &[1]), vec![])?;
    match op {
        Some(op) => {
            let v = b.ld_reduce(part, op, acc)?;
            b.mc_store(part, v)?;
        }
        None => {
            let own = b.view(x, b.symbol(tid)? * Int::from(by), layout(&[lanes], &[1]), vec![])?;
            let value = b.load(own)?;
            b.emit(Access::McRed {
                place: part,
                value,
                op: RedOp::Min,
                sem: Sem::Relaxed,
                scope: Scope::Sys,
            })?;
        }
    }
    Ok(b.finish())
}

fn instructions(kernel: Kernel) -> Vec<String> {
    let lowered = lower(kernel, Lowering::Multimem);
    lowered.report.instructions().into_iter().map(str::to_owned).collect()
}

#[test]
fn the_switch_gets_the_widest_form() {
    let add = |elem, acc, lanes, by| instructions(switch(elem, Some(RedOp::Add), acc, lanes, by).unwrap());
    assert_eq!(
        add(Scalar::BF16, Scalar::F32, 8, 8),
        [
            "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2",
            "multimem.st.relaxed.sys.global.v4.bf16x2"
        ]
    );
    assert_eq!(
        add(Scalar::F16, Scalar::F16, 8, 2),
        ["multimem.ld_reduce.relaxed.sys.global.add.f16x2", "multimem.st.relaxed.sys.global.f16x2"]
    );
    // Integers are reduced one by one, and stored as bits four at a time.
    assert_eq!(
        add(Scalar::I32, Scalar::I32, 4, 4),
        ["multimem.ld_reduce.relaxed.sys.global.add.s32", "multimem.st.relaxed.sys.global.v4.f32"]
    );
    assert_eq!(
        add(Scalar::I64, Scalar::I64, 2, 2),
        ["multimem.ld_reduce.relaxed.sys.global.add.u64", "multimem.st.relaxed.sys.global.s64"]
    );
    // The half-words are at odd positions, for which the switch has no form, so each PE's own
    // address is used.
    assert_eq!(
        add(Scalar::F16, Scalar::F32, 1, 1),
        ["ld.relaxed.sys.global.b16", "st.relaxed.sys.global.b16"]
    );
}

fn rejected(kernel: Kernel, lowering: Lowering) -> Diagnostic {
    let mut found = run(module(kernel), &options(lowering)).unwrap_err();
    assert_eq!(found.len(), 1, "{found:#?}");
    found.remove(0)
}

#[test]
fn errors_of_the_switch_name_the_existing_forms() {
    let reject =
        |elem, op, acc, lanes| rejected(switch(elem, op, acc, lanes, lanes).unwrap(), Lowering::Multimem);
    let d = reject(Scalar::F32, Some(RedOp::Min), Scalar::F32, 4);
    insta::assert_snapshot!(d.message, @"`multimem.ld_reduce.relaxed.sys.global.min.f32` does not exist: reduction is min, expected add");
    insta::assert_snapshot!(d.help.unwrap(), @"this reduction exists for u32, s32, u64, s64, f16, f16x2, bf16, bf16x2; or use `--lowering unicast`");
    let d = reject(Scalar::F32, None, Scalar::F32, 4);
    insta::assert_snapshot!(d.message, @"`multimem.red.relaxed.sys.global.min.f32` does not exist: reduction is min, expected add");
    let d = reject(Scalar::I16, Some(RedOp::Add), Scalar::I16, 8);
    insta::assert_snapshot!(d.message, @"`multimem.ld_reduce.relaxed.sys.global.add.b16` does not exist: element type is b16, expected u32, s32, u64, f16x2, bf16x2, f32, f64");
    let d = reject(Scalar::E4M3, Some(RedOp::Add), Scalar::F16, 16);
    insta::assert_snapshot!(d.message, @"`multimem.ld_reduce.relaxed.sys.global.add.acc::f16.e4m3x4` does not exist: target is sm_90a, expected sm_100a, sm_100f, sm_103a, sm_103f, sm_107a, sm_107f, sm_110a, sm_110f, sm_120a, sm_121a");
    let d = reject(Scalar::F16, Some(RedOp::Min), Scalar::F32, 8);
    insta::assert_snapshot!(d.message, @"`multimem.ld_reduce.relaxed.sys.global.min.acc::f32.f16x2` does not exist: accumulator is acc::f32, expected none");
    let d = reject(Scalar::F32, Some(RedOp::Add), Scalar::F64, 4);
    assert_eq!(d.code, codes::NO_ACCUMULATOR);
    // Accesses at every PE's own address permit more types.
    for (elem, acc) in [(Scalar::F32, Scalar::F64), (Scalar::I16, Scalar::I16)] {
        lower(switch(elem, Some(RedOp::Add), acc, 4, 4).unwrap(), Lowering::Unicast);
    }
    lower(switch(Scalar::F32, Some(RedOp::Min), Scalar::F32, 4, 4).unwrap(), Lowering::Unicast);
    // But no memory can compute a minimum of f32.
    let d = rejected(switch(Scalar::F32, None, Scalar::F32, 4, 4).unwrap(), Lowering::Unicast);
    insta::assert_snapshot!(d.message, @"`red.relaxed.sys.global.min.f32` does not exist: reduction is min, expected add");
}

#[test]
fn other_rejections() {
    let product = switch(Scalar::F32, Some(RedOp::Mul), Scalar::F32, 4, 4).unwrap();
    assert_eq!(rejected(product, Lowering::Multimem).code, codes::NO_REDUCTION);

    let mut k = load(Scalar::F32, 16, layout(&[4], &[1]), 4, None).unwrap();
    // The bound is over other elements than the view's.
    for inst in k.insts.iter().map(|(v, _)| v).collect::<Vec<_>>() {
        if let Type::Tensor(t) = &mut k.insts[inst].ty
            && !t.bounds.is_empty()
        {
            std::sync::Arc::make_mut(t).bounds[0].layout = layout(&[8], &[1]);
        }
    }
    assert_eq!(rejected(k, Lowering::Multimem).code, codes::BAD_BOUND);

    let mut b = Builder::new("far", [1, 1, 1]);
    let x = b.param("x", Builder::tensor(Scalar::F32, Space::Global, layout(&[1], &[1]), 16)).unwrap();
    let tid = b.special(Sreg::ThreadIdx, Dim::X).unwrap();
    let far = Int::from(i64::MAX);
    let at = b.symbol(tid).unwrap() + &far + &far;
    let one = b.view(x, at, layout(&[1], &[1]), vec![]).unwrap();
    let v = b.load(one).unwrap();
    b.store(one, v).unwrap();
    let found = run(module(b.finish()), &options(Lowering::Multimem)).unwrap_err();
    assert!(found.iter().all(|d| d.code == codes::NO_VALUE), "{found:#?}");

    let mut b = Builder::new("barrier", [1, 1, 1]);
    let sync = b.param("sync", Type::Barrier).unwrap();
    b.param("team", Type::Team).unwrap();
    let local = b.local("picked", Type::Barrier);
    b.set(local, sync).unwrap();
    let sync = b.get(local).unwrap();
    b.emit(Team::Barrier { sync, team: TeamRef(1), sem: Sem::AcqRel, scope: Scope::Sys }).unwrap();
    assert_eq!(rejected(b.finish(), Lowering::Multimem).code, codes::BARRIER_ORIGIN);
}

#[test]
fn the_text_after_each_pass_can_be_requested() {
    let kernel = || load(Scalar::F32, 16, layout(&[4], &[1]), 4, None).unwrap();
    let dump = |name: &str| {
        let mut o = options(Lowering::Multimem);
        o.dump_after = Some(name.into());
        run(module(kernel()), &o).map(|l| l.dump.unwrap())
    };
    for pass in PASSES {
        let text = dump(pass.name).unwrap();
        assert!(text.contains("kernel @k block"), "{text}");
        let has = |what: &str| text.contains(what);
        assert_eq!(
            has(" = view "),
            matches!(pass.name, "widen" | "remote" | "teams" | "pipeline" | "proxies"),
            "{}",
            pass.name
        );
        assert_eq!(
            has(" = index "),
            matches!(pass.name, "memory" | "reduce" | "advance" | "watch"),
            "{}",
            pass.name
        );
        // The text reads back at its level.
        let again = match pass.run {
            Run::Mixed(_) => text::parse_module::<Mixed>(&text).map(|m| text::print_module(&m)),
            Run::Settle(_) | Run::Machine(_) => {
                text::parse_module::<Machine>(&text).map(|m| text::print_module(&m))
            }
        };
        assert_eq!(again.as_deref(), Ok(&*text), "{}", pass.name);
    }
    let d = dump("lower").unwrap_err().remove(0);
    assert_eq!(d.code, codes::NO_SUCH_PASS);
    assert_eq!(
        d.help.unwrap(),
        "the passes are widen, remote, teams, pipeline, proxies, memory, reduce, advance, watch, index, settle, dce"
    );
}

#[test]
fn unused_values_are_removed() {
    let mut b = Builder::new("k", [1, 1, 1]);
    let x = b.param("x", Builder::tensor(Scalar::F32, Space::Global, layout(&[1], &[1]), 16)).unwrap();
    let tid = b.special(Sreg::ThreadIdx, Dim::X).unwrap();
    let c = b.int(Scalar::I32, 3).unwrap();
    let unused = b.binary(BinOp::Mul, tid, c).unwrap();
    let small = b.compare(CmpOp::Lt, unused, c).unwrap();
    b.if_true(small, |b| b.binary(BinOp::Add, tid, c).map(drop)).unwrap();
    let one = b.view(x, Int::ZERO, layout(&[1], &[1]), vec![]).unwrap();
    let f = b.float(Scalar::F32, 1.5).unwrap();
    b.store(one, f).unwrap();
    let lowered = lower(b.finish(), Lowering::Multimem);
    insta::assert_snapshot!(text::print_module(&lowered.module), @r#"
    machine kernel @k block(1, 1, 1) launch {
      launch 0 x : global<f32, {(1):(1)}>, align 16
      param 0 x : ptr<global>, align 16
      %0 = param 0 : ptr<global>
      %8 = const float 0x3ff8000000000000 "1.5" : f32
      %11 = st %0, %8, weak, sys
    }
    "#);
}
