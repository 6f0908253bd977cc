//! What is rejected, with which words.

use crate::harness::*;
use weft_ir::builder::Built;
use weft_ir::{
    Builder, Group, Hidden, Kernel, Layout, Op, ParamKind, RedOp, Scalar, Scope, Sem, Space, TeamRef, Type,
};
use weft_llvm::{Options, codes, emit};

fn rejected(k: Kernel) -> weft_ir::diag::Diagnostic {
    emit(&verified(vec![k]), &Options::new(target("sm_90a"))).unwrap_err()
}

fn symmetric(b: &mut Builder) -> Built<weft_ir::Value> {
    b.param("s", Builder::tensor(Scalar::F32, Space::Symmetric, Layout::new(64, 1).unwrap(), 16))
}

#[test]
fn what_the_passes_should_have_lowered_is_named() {
    type Body = fn(&mut Builder) -> Built<()>;
    let cases: [(&str, Body); 8] = [
        ("index", |b| b.index(3i64).map(|_| ())),
        ("view", |b| {
            let s = symmetric(b)?;
            b.view(s, 0.into(), Layout::new(4, 1).unwrap(), vec![]).map(|_| ())
        }),
        ("multicast", |b| {
            let s = symmetric(b)?;
            let team = team(b)?;
            b.multicast(s, team).map(|_| ())
        }),
        ("peer", |b| {
            let s = symmetric(b)?;
            let team = team(b)?;
            let pe = b.int(Scalar::I32, 1)?;
            b.peer(s, team, pe).map(|_| ())
        }),
        ("my_pe", |b| {
            let team = team(b)?;
            b.emit(Op::MyPe { team }).map(|_| ())
        }),
        ("team_barrier", |b| {
            let sync = b.param("sync", Type::Barrier)?;
            let team = team(b)?;
            b.emit(Op::TeamBarrier { sync, team, sem: Sem::AcqRel, scope: Scope::Sys }).map(|_| ())
        }),
        ("reduce", |b| {
            let value = b.int(Scalar::I32, 1)?;
            b.emit(Op::Reduce { value, op: RedOp::Add, group: Group::Block }).map(|_| ())
        }),
        ("load", |b| {
            let s =
                b.param("s", Builder::tensor(Scalar::F32, Space::Global, Layout::new(4, 1).unwrap(), 16))?;
            b.load(s).map(|_| ())
        }),
    ];
    for (name, body) in cases {
        let e = rejected(kernel("k", |b, _| body(b)));
        assert_eq!(e.code, codes::NOT_MACHINE, "{name}: {e}");
        assert!(e.message.contains(&format!("`{name}`")), "{name}: {e}");
    }
}

fn team(b: &mut Builder) -> Built<TeamRef> {
    let index = b.kernel().params.len() as u32;
    b.param("team", Type::Team)?;
    Ok(TeamRef(index))
}

#[test]
fn accesses_of_odd_sizes() {
    for ty in [Type::Vector(Scalar::F32, 3), Type::Vector(Scalar::F32, 8), Type::Vector(Scalar::I8, 5)] {
        let e = rejected(kernel("k", |b, at| unknown(b, at, ty.clone()).map(|_| ())));
        assert_eq!(e.code, codes::NOT_MACHINE, "{e}");
        assert!(e.message.contains("vector<"), "{e}");
    }
}

#[test]
fn names_are_kept_apart() {
    let k = |name: &str| kernel(name, |_, _| Ok(()));
    let compiled = |names: &[&str]| {
        let kernels = names.iter().map(|n| k(n)).collect();
        emit(&verified(kernels), &Options::new(target("sm_90a"))).map(|out| out.ptx)
    };
    assert!(compiled(&["a", "b"]).unwrap().contains(".visible .entry b("));
    for names in [&["a", "a"][..], &["vprintf"], &["_"], &["a", "WARP_SZ"]] {
        assert_eq!(compiled(names).unwrap_err().code, codes::BAD_NAME);
    }
}

#[test]
fn no_kernel_and_no_code() {
    let out = compile(vec![]);
    accepted(&out.ptx, "sm_90a");
    let out = compile(vec![kernel("empty", |_, _| Ok(())), Kernel::new("nothing")]);
    accepted(&out.ptx, "sm_90a");
    contains(&out.ptx, &[".visible .entry nothing()"]);
}

#[test]
fn parameters_are_as_the_abi_says() {
    let mut b = Builder::new("k", [64, 2, 1]);
    let (s, tensor) = (symmetric(&mut b).unwrap(), Layout::new(4, 1).unwrap());
    b.param("flag", scalar(Scalar::Bool)).unwrap();
    b.param("half", scalar(Scalar::F16)).unwrap();
    b.param("t", Builder::tensor(Scalar::F32, Space::Global, tensor, 4)).unwrap();
    team(&mut b).unwrap();
    let mc = ParamKind::Hidden(Hidden::Multicast { base: 0, team: 4 });
    b.param_of("s_mc", scalar(Scalar::U64), mc, 1).unwrap();
    let pe =
        b.param_of("my_pe", scalar(Scalar::I32), ParamKind::Hidden(Hidden::MyPe { team: 4 }), 1).unwrap();
    let out = pointer(&mut b, s, 0).unwrap();
    b.store(out, pe).unwrap();
    let k = b.finish();
    let signature = weft_ir::abi::signature(&k).unwrap();
    let out = compile(vec![k]);
    accepted(&out.ptx, "sm_90a");
    let declared: Vec<_> = out.ptx.lines().filter(|l| l.trim().starts_with(".param")).collect();
    assert_eq!(declared.len(), signature.len(), "{}", out.ptx);
    let sizes: Vec<_> = signature.iter().map(|p| (p.offset, p.size)).collect();
    assert_eq!(sizes, [(0, 8), (8, 1), (10, 2), (16, 8), (24, 8), (32, 4)]);
    for (line, expected) in declared.iter().zip([
        ".u64 .ptr .global .align 16",
        ".u8",
        ".align 2 .b8",
        ".u64 .ptr .global .align 4",
        ".u64",
        ".u32",
    ]) {
        assert!(line.contains(expected), "{line}: {expected}");
    }
    contains(&out.ptx, &[".reqntid 64, 2, 1"]);
}

#[test]
fn vectors_beyond_all_measure() {
    for lanes in [0, 1025, u32::MAX] {
        let mut k = kernel("k", |_, _| Ok(()));
        k.locals.push(weft_ir::Local { name: "v".into(), ty: Type::Vector(Scalar::F64, lanes) });
        let e = rejected(k);
        assert_eq!(e.code, codes::NOT_MACHINE, "{e}");
    }
}
