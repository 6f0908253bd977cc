//! Tests of loads, stores, atomics and fences.

use crate::harness::*;
use weft_ir::builder::Built;
use weft_ir::machine::{Builder, Type};
use weft_ir::{Address, Arith, Memory, RedOp, Scalar, Scope, Sem, Space, Thread, Value, ValueType};
use weft_llvm::{Options, codes, emit};

fn load(b: &mut Builder, place: Value, ty: Type, sem: Sem, scope: Scope) -> Built<Value> {
    b.emit_as(Memory::Load { ptr: place, sem, scope }, ty)
}

fn store(b: &mut Builder, place: Value, value: Value, sem: Sem, scope: Scope) -> Built<()> {
    b.emit(Memory::Store { ptr: place, value, sem, scope }).map(|_| ())
}

/// Every type of 1, 2, 4, 8 and 16 bytes.
fn accesses() -> Vec<Type> {
    let all = Scalar::ALL.iter().flat_map(|&s| {
        [1, 2, 4, 8, 16].into_iter().filter(move |n| n * s.bytes() <= 16).map(move |n| Type::lanes_of(s, n))
    });
    all.collect()
}

#[test]
fn every_access_of_every_order_assembles() {
    let orders = [(Sem::Weak, Sem::Weak), (Sem::Relaxed, Sem::Relaxed), (Sem::Acquire, Sem::Release)];
    for arch in ["sm_90", "sm_100a"] {
        let mut all = Vec::new();
        for (i, &scope) in Scope::ALL.iter().enumerate() {
            for (from, to) in orders {
                for space in ["global", "shared"] {
                    all.push(kernel(&format!("copy_{space}_{from}_{i}"), |b, at| {
                        let there = if space == "shared" { shared(b, 1024)? } else { at };
                        for ty in accesses() {
                            let x = load(b, there, ty, from, scope)?;
                            let out = pointer(b, there, 32 * (b.kernel().insts.len() as i64 % 8))?;
                            store(b, out, x, to, scope)?;
                        }
                        Ok(())
                    }));
                }
            }
        }
        accepted(&compile_for(arch, all).ptx, arch);
    }
}

#[test]
fn weak_vectors_are_one_access() {
    let text = ptx("vectors", |b, at| {
        for (i, ty) in
            [Type::Vector(Scalar::BF16, 8), Type::Vector(Scalar::E4M3, 16), Type::Vector(Scalar::F64, 2)]
                .into_iter()
                .enumerate()
        {
            let from = pointer(b, at, 16 * i as i64)?;
            let x = load(b, from, ty, Sem::Weak, Scope::Sys)?;
            let to = pointer(b, at, 256 + 16 * i as i64)?;
            store(b, to, x, Sem::Weak, Scope::Sys)?;
        }
        Ok(())
    });
    assert_eq!(mnemonics(&text, "ld.global"), ["ld.global.v4.b32", "ld.global.v4.b32", "ld.global.v2.b64"]);
    assert_eq!(mnemonics(&text, "st.global"), ["st.global.v4.b32", "st.global.v4.b32", "st.global.v2.b64"]);
}

#[test]
fn strong_accesses_have_order_and_scope() {
    let text = ptx("strong", |b, at| {
        let x = load(b, at, scalar(Scalar::U32), Sem::Acquire, Scope::Sys)?;
        store(b, at, x, Sem::Release, Scope::Gpu)?;
        let x = load(b, at, scalar(Scalar::F32), Sem::Relaxed, Scope::Cluster)?;
        store(b, at, x, Sem::Relaxed, Scope::Cta)?;
        let x = load(b, at, Type::Vector(Scalar::F16, 4), Sem::Relaxed, Scope::Sys)?;
        store(b, at, x, Sem::Release, Scope::Sys)?;
        let x = load(b, at, Type::Vector(Scalar::BF16, 8), Sem::Acquire, Scope::Sys)?;
        store(b, at, x, Sem::Release, Scope::Sys)
    });
    assert_eq!(
        mnemonics(&text, "ld."),
        [
            "ld.param.b64",
            "ld.acquire.sys.global.b32",
            "ld.relaxed.cluster.global.b32",
            "ld.relaxed.sys.global.b64",
            "ld.acquire.sys.global.v4.b32",
        ]
    );
    assert_eq!(
        mnemonics(&text, "st."),
        [
            "st.release.gpu.global.b32",
            "st.relaxed.cta.global.b32",
            "st.release.sys.global.b64",
            "st.release.sys.global.v4.b32",
        ]
    );
}

#[test]
fn a_bool_has_one_byte() {
    let text = ptx("truth", |b, at| {
        let x = load(b, at, scalar(Scalar::Bool), Sem::Weak, Scope::Sys)?;
        let out = pointer(b, at, 1)?;
        store(b, out, x, Sem::Weak, Scope::Sys)
    });
    contains(&text, &["ld.global.b8", "st.global.b8"]);
}

/// The instruction of one reduction or atomic.
fn atomic(ty: Type, op: Option<RedOp>, fetch: bool, sem: Sem, scope: Scope) -> String {
    let text = ptx("atomic", |b, at| {
        let value = unknown(b, at, ty.clone())?;
        if !fetch {
            b.emit(Memory::Red { ptr: at, value, op: op.unwrap(), sem, scope })?;
            return Ok(());
        }
        let old = b.emit(Memory::Atomic { ptr: at, value, op, sem, scope })?;
        let out = pointer(b, at, 64)?;
        b.store(out, old).map(|_| ())
    });
    let found = [mnemonics(&text, "red."), mnemonics(&text, "atom.")].concat();
    assert_eq!(found.len(), 1, "{text}");
    found[0].clone()
}

#[test]
fn atomics_have_order_and_scope() {
    use Scalar::*;
    let add = Some(RedOp::Add);
    for (ty, op, fetch, sem, scope, expected) in [
        (scalar(U32), add, false, Sem::Release, Scope::Sys, "red.release.sys.global.add.u32"),
        (scalar(I64), add, false, Sem::Relaxed, Scope::Gpu, "red.relaxed.gpu.global.add.u64"),
        (scalar(F32), add, false, Sem::Relaxed, Scope::Sys, "red.relaxed.sys.global.add.f32"),
        (Type::Vector(F32, 4), add, false, Sem::Relaxed, Scope::Sys, "red.relaxed.sys.global.add.v4.f32"),
        (
            Type::Vector(BF16, 8),
            add,
            false,
            Sem::Relaxed,
            Scope::Sys,
            "red.relaxed.sys.global.add.noftz.v4.bf16x2",
        ),
        (
            Type::Vector(F16, 2),
            add,
            false,
            Sem::Relaxed,
            Scope::Gpu,
            "red.relaxed.gpu.global.add.noftz.f16x2",
        ),
        (scalar(I32), Some(RedOp::Min), false, Sem::Relaxed, Scope::Gpu, "red.relaxed.gpu.global.min.s32"),
        (scalar(U64), Some(RedOp::Xor), false, Sem::Relaxed, Scope::Gpu, "red.relaxed.gpu.global.xor.b64"),
        (scalar(U32), add, true, Sem::AcqRel, Scope::Sys, "atom.acq_rel.sys.global.add.u32"),
        (scalar(F64), add, true, Sem::Acquire, Scope::Gpu, "atom.acquire.gpu.global.add.f64"),
        (scalar(F32), None, true, Sem::Relaxed, Scope::Sys, "atom.relaxed.sys.global.exch.b32"),
        (scalar(U64), None, true, Sem::Release, Scope::Cluster, "atom.release.cluster.global.exch.b64"),
    ] {
        assert_eq!(atomic(ty.clone(), op, fetch, sem, scope), expected, "{ty}");
    }
}

#[test]
fn atomics_that_memory_lacks_are_errors() {
    use Scalar::*;
    for (ty, op, space) in [
        (scalar(F64), RedOp::Min, Space::Global),
        (scalar(F32), RedOp::Mul, Space::Global),
        (scalar(I8), RedOp::Add, Space::Global),
        (Type::Vector(I32, 4), RedOp::Add, Space::Global),
        (scalar(F32), RedOp::Max, Space::Shared),
        (scalar(I16), RedOp::Add, Space::Shared),
    ] {
        let k = kernel("k", |b, at| {
            let value = unknown(b, at, ty.clone())?;
            let place = if space == Space::Shared { shared(b, 1024)? } else { at };
            let op = Memory::Red { ptr: place, value, op, sem: Sem::Relaxed, scope: Scope::Gpu };
            b.emit(op).map(|_| ())
        });
        let e = emit(&verified(vec![k]), &Options::new(target("sm_90a"))).unwrap_err();
        assert!(e.code == codes::NO_ACCESS || (700..750).contains(&e.code.0), "{ty}: {e}");
        assert!(e.help.is_some(), "{e}");
    }
}

#[test]
fn compare_and_swap_has_order_and_scope() {
    for (s, expected) in
        [(Scalar::U32, "atom.acquire.sys.global.cas.b32"), (Scalar::F64, "atom.acquire.sys.global.cas.b64")]
    {
        let text = ptx("cas", |b, at| {
            let expected = unknown(b, at, scalar(s))?;
            let there = pointer(b, at, 8)?;
            let value = unknown(b, there, scalar(s))?;
            let op = Memory::AtomicCas { ptr: at, expected, value, sem: Sem::Acquire, scope: Scope::Sys };
            let old = b.emit(op)?;
            let out = pointer(b, at, 16)?;
            b.store(out, old).map(|_| ())
        });
        assert_eq!(mnemonics(&text, "atom."), [expected], "{text}");
    }
}

#[test]
fn shared_atomics_have_fences_for_order() {
    let text = ptx("shared", |b, at| {
        let counter = shared(b, 1024)?;
        let value = unknown(b, at, scalar(Scalar::U32))?;
        let op =
            Memory::Atomic { ptr: counter, value, op: Some(RedOp::Add), sem: Sem::AcqRel, scope: Scope::Cta };
        let old = b.emit(op)?;
        b.store(at, old).map(|_| ())
    });
    assert_eq!(mnemonics(&text, "fence"), ["fence.acq_rel.cta", "fence.acq_rel.cta"]);
    contains(&text, &["atom.shared.add.u32"]);
}

#[test]
fn shared_memory_is_declared_once_with_its_alignment() {
    let text = ptx("tile", |b, at| {
        let place = shared(b, 1024)?;
        let x = unknown(b, at, Type::Vector(Scalar::F32, 4))?;
        b.store(place, x)?;
        b.emit(Thread::GroupBarrier { group: weft_ir::Group::Block })?;
        let there = pointer(b, place, 512)?;
        let y = unknown(b, there, Type::Vector(Scalar::F32, 4))?;
        b.store(at, y).map(|_| ())
    });
    let declared: Vec<_> = text.lines().filter(|l| l.contains(".shared") && l.contains(".b8")).collect();
    assert_eq!(declared.len(), 1, "{text}");
    assert!(declared[0].contains(".align 16") && declared[0].contains("[1024]"), "{declared:?}");
    contains(&text, &["st.shared.v4.b32", "ld.shared.v4.b32", "bar"]);
}

#[test]
fn too_much_shared_memory_is_an_error() {
    let sized = |bytes: u64| kernel("k", |b, _| shared(b, bytes).map(|_| ()));
    let options = Options::new(target("sm_90a"));
    assert!(emit(&verified(vec![sized(227 * 1024)]), &options).is_ok());
    let e = emit(&verified(vec![sized(227 * 1024 + 4)]), &options).unwrap_err();
    assert_eq!(e.code, codes::TOO_MUCH_SHARED);
    assert!(e.message.contains("232452 bytes"), "{e}");
    for huge in [1 << 62, u64::MAX] {
        assert_eq!(emit(&verified(vec![sized(huge)]), &options).unwrap_err().code, codes::TOO_MUCH_SHARED);
    }
}

#[test]
fn shared_memory_beyond_48_kib_is_dynamic() {
    let two = |first: u64| {
        kernel("k", |b, at| {
            let (a, c) = (shared(b, first)?, shared(b, 4096)?);
            let x = unknown(b, at, Type::Scalar(Scalar::F32))?;
            b.store(a, x)?;
            b.store(c, x).map(|_| ())
        })
    };
    let options = Options::new(target("sm_90a"));
    let text = |first| emit(&verified(vec![two(first)]), &options).unwrap().ptx;
    let (fits, dynamic) = (text(44 * 1024), text(44 * 1024 + 16));
    assert!(!fits.contains(".extern .shared"), "{fits}");
    contains(&dynamic, &[".extern .shared .align 1024 .b8", "+45072]"]);
}

#[test]
fn fences() {
    let text = ptx("fences", |b, _| {
        for (sem, scope) in [
            (Sem::AcqRel, Scope::Sys),
            (Sem::SeqCst, Scope::Gpu),
            (Sem::Acquire, Scope::Cluster),
            (Sem::Release, Scope::Cta),
        ] {
            b.emit(Thread::Fence { sem, scope })?;
        }
        Ok(())
    });
    let expected = ["fence.acq_rel.sys", "fence.sc.gpu", "fence.acq_rel.cluster", "fence.acq_rel.cta"];
    assert_eq!(mnemonics(&text, "fence"), expected);
}

#[test]
fn peers_are_reached_through_tables_of_addresses() {
    let text = ptx("peers", |b, _| {
        let table = b.param("peers", scalar(Scalar::U64))?;
        let bits = b.emit_as(Arith::Bitcast { a: table }, scalar(Scalar::I64))?;
        let at = b.emit_as(Address::FromInt { a: bits }, Type::Pointer(Space::Global))?;
        let there = pointer(b, at, 24)?;
        let a = unknown(b, there, scalar(Scalar::I64))?;
        let peer = b.emit_as(Address::FromInt { a }, Type::Pointer(Space::Peer))?;
        let one = b.int(Scalar::U32, 1)?;
        let op = Memory::Red { ptr: peer, value: one, op: RedOp::Add, sem: Sem::Release, scope: Scope::Sys };
        b.emit(op).map(|_| ())
    });
    contains(&text, &["ld.global.b64", "+24]", "red.release.sys.global.add.u32"]);
}
