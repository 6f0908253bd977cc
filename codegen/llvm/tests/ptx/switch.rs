//! Tests of in-switch operations.

use crate::harness::*;
use weft_ir::builder::{Built, Range};
use weft_ir::machine::{Builder, Kernel, Type};
use weft_ir::{Address, Dim, Memory, RedOp, Scalar, Scope, Sem, Space, Sreg, ValueType};

/// The inner loop of a two-shot allreduce as the passes leave it: a bounds check, and vectors of 16
/// bytes.
pub fn two_shot(elem: Scalar) -> Kernel {
    let build = || -> Built<Kernel> {
        let mut b = Builder::new("two_shot", [512, 1, 1]);
        let base = address(&mut b, "x_mc", Space::Multicast)?;
        let n = b.param("n", scalar(Scalar::I64))?;
        let tid = b.special(Sreg::ThreadIdx, Dim::X)?;
        let tid = b.convert(tid, Scalar::I64)?;
        let (threads, zero) = (b.int(Scalar::I64, 512)?, b.int(Scalar::I64, 0)?);
        b.for_loop((zero, n, threads), 4, Range { min: 0, max: None, div: 512 }, |b, i| {
            let at = b.binary(weft_ir::BinOp::Add, i, tid)?;
            let inside = b.compare(weft_ir::CmpOp::Lt, at, n)?;
            b.if_true(inside, |b| {
                let size = b.int(Scalar::I64, 16)?;
                let bytes = b.binary(weft_ir::BinOp::Mul, at, size)?;
                let place = b.emit(Address::PtrAdd { ptr: base, bytes })?;
                let op = Memory::LdReduce {
                    ptr: place,
                    op: RedOp::Add,
                    acc: Scalar::F32,
                    sem: Sem::Relaxed,
                    scope: Scope::Sys,
                };
                let value = b.emit_as(op, Type::Vector(elem, 16 / elem.bytes()))?;
                b.mc_store(place, value).map(|_| ())
            })?;
            Ok(())
        })?;
        Ok(b.finish())
    };
    build().unwrap()
}

#[test]
fn two_shot_for_two_targets() {
    for arch in ["sm_90a", "sm_100a"] {
        let out = compile_for(arch, vec![two_shot(Scalar::BF16)]);
        accepted(&out.ptx, arch);
        contains(
            &out.ptx,
            &[
                "multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2",
                "multimem.st.relaxed.sys.global.v4.bf16x2",
            ],
        );
        // ptxas is known to compile predicated multimem instructions wrongly.
        assert!(!out.ptx.lines().any(|l| l.contains('@') && l.contains("multimem")), "{}", out.ptx);
    }
}

/// Compiles every element type and width of an in-switch op for a target, each in a kernel of its
/// own. If a form does not exist, there must be an error with a help.
fn sweep(arch: &str, make: impl Fn(&mut Builder, weft_ir::Value, Type) -> Built<()>) -> (Vec<Kernel>, usize) {
    let (mut legal, mut illegal) = (Vec::new(), 0);
    for &s in Scalar::ALL {
        for lanes in [1, 2, 4, 8, 16] {
            if lanes * s.bytes() > 16 {
                continue;
            }
            let mut b = Builder::new(&format!("k_{s}_{lanes}"), [128, 1, 1]);
            let place = address(&mut b, "mc", Space::Multicast).unwrap();
            let Ok(()) = make(&mut b, place, Type::lanes_of(s, lanes)) else { continue };
            let k = b.finish();
            match weft_llvm::emit(&verified(vec![k.clone()]), &weft_llvm::Options::new(target(arch))) {
                Ok(_) => legal.push(k),
                Err(e) => {
                    assert!(e.code == weft_llvm::codes::NO_ACCESS || (700..750).contains(&e.code.0), "{e}");
                    assert!(e.help.is_some(), "{e}");
                    illegal += 1;
                }
            }
        }
    }
    (legal, illegal)
}

#[test]
fn legal_forms_assemble_and_others_are_errors() {
    for (arch, fp8) in [("sm_90a", false), ("sm_100a", true)] {
        let mut counts = Vec::new();
        let mut all = |what: &str, (kernels, illegal): (Vec<Kernel>, usize)| {
            counts.push((what.to_owned(), kernels.len(), illegal));
            let ptx = compile_for(arch, kernels).ptx;
            accepted(&ptx, arch);
            let named = ptx.lines().any(|l| l.contains("multimem") && l.contains("e4m3"));
            assert_eq!(named, fp8 && what != "red", "{what} on {arch}");
        };
        all(
            "load",
            sweep(arch, |b, place, ty| {
                let acc = ty.elem().unwrap();
                let op = Memory::LdReduce {
                    ptr: place,
                    op: RedOp::Add,
                    acc,
                    sem: Sem::Acquire,
                    scope: Scope::Gpu,
                };
                let x = b.emit_as(op, ty)?;
                let out = b.emit(Address::ToInt { a: place })?;
                let out = b.emit_as(Address::FromInt { a: out }, Type::Pointer(Space::Global))?;
                b.store(out, x).map(|_| ())
            }),
        );
        all(
            "store",
            sweep(arch, |b, place, ty| {
                let x = b.zero(&ty)?;
                let op = Memory::McStore { ptr: place, value: x, sem: Sem::Weak, scope: Scope::Sys };
                b.emit(op).map(|_| ())
            }),
        );
        all(
            "red",
            sweep(arch, |b, place, ty| {
                let value = b.zero(&ty)?;
                let op =
                    Memory::McRed { ptr: place, value, op: RedOp::Add, sem: Sem::Release, scope: Scope::Sys };
                b.emit(op).map(|_| ())
            }),
        );
        // f32 has 1 2 4 lanes, f64 1, f16 and bf16 2 4 8, i32 u32 i64 u64 1, and fp8 4 8 16 where
        // it exists.
        assert_eq!(counts[0].1, if fp8 { 20 } else { 14 }, "{counts:?}");
        assert_eq!(counts[2].1, 14, "{counts:?}");
        assert!(counts[1].1 > 30, "{counts:?}");
    }
}

#[test]
fn the_form_follows_type_width_op_and_order() {
    let form = |ty: Type, op, acc, sem| {
        let text = ptx("form", |b, _| {
            let place = address(b, "mc", Space::Multicast)?;
            let op = Memory::LdReduce { ptr: place, op, acc, sem, scope: Scope::Gpu };
            let x = b.emit_as(op, ty.clone())?;
            b.emit(Memory::McStore {
                ptr: place,
                value: x,
                sem: if sem == Sem::Acquire { Sem::Release } else { sem },
                scope: Scope::Gpu,
            })
            .map(|_| ())
        });
        let found = mnemonics(&text, "multimem");
        assert_eq!(found.len(), 2, "{text}");
        (found[0].clone(), found[1].clone())
    };
    use Scalar::*;
    let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(
        form(Type::Vector(F32, 4), RedOp::Add, F32, Sem::Relaxed),
        pair("multimem.ld_reduce.relaxed.gpu.global.add.v4.f32", "multimem.st.relaxed.gpu.global.v4.f32")
    );
    assert_eq!(
        form(Type::Vector(F16, 8), RedOp::Max, F16, Sem::Acquire),
        pair("multimem.ld_reduce.acquire.gpu.global.max.v4.f16x2", "multimem.st.release.gpu.global.v4.f16x2")
    );
    assert_eq!(
        form(Type::Vector(BF16, 2), RedOp::Add, F32, Sem::Weak),
        pair("multimem.ld_reduce.weak.global.add.acc::f32.bf16x2", "multimem.st.weak.global.bf16x2")
    );
    assert_eq!(
        form(Type::Scalar(I64), RedOp::Add, I64, Sem::Relaxed),
        pair("multimem.ld_reduce.relaxed.gpu.global.add.u64", "multimem.st.relaxed.gpu.global.s64")
    );
    assert_eq!(
        form(Type::Scalar(U32), RedOp::Xor, U32, Sem::Relaxed),
        pair("multimem.ld_reduce.relaxed.gpu.global.xor.b32", "multimem.st.relaxed.gpu.global.u32")
    );
}

#[test]
fn unused_results_and_equal_loads_stay() {
    let text = ptx("kept", |b, _| {
        let place = address(b, "mc", Space::Multicast)?;
        for _ in 0..2 {
            let op = Memory::LdReduce {
                ptr: place,
                op: RedOp::Add,
                acc: Scalar::F32,
                sem: Sem::Relaxed,
                scope: Scope::Sys,
            };
            b.emit_as(op, Type::Vector(Scalar::F32, 4))?;
        }
        Ok(())
    });
    assert_eq!(mnemonics(&text, "multimem.ld_reduce").len(), 2, "{text}");
}
