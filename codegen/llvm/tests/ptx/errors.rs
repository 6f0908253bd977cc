//! Tests of errors and their messages.

use crate::harness::*;
use weft_ir::diag::{Code, Span};
use weft_ir::machine::{Builder, Inst, Kernel, Local, Module, Op, Type};
use weft_ir::typing::{MISMATCH, WRONG_SPACE};
use weft_ir::verify::{BAD_ORDER, verify};
use weft_ir::{Address, Memory, Scalar, Scope, Sem, Space, Value};
use weft_llvm::{Options, codes, emit};

/// The codes that the verifier reports for a kernel.
fn found(k: Kernel) -> Vec<Code> {
    let result = verify(Module { kernels: vec![k], files: vec![] });
    result.err().into_iter().flatten().map(|d| d.code).collect()
}

/// A kernel with an op that the builder would have rejected.
fn malformed(op: impl FnOnce(Value, Value) -> (Op, Type)) -> Kernel {
    let mut k = kernel("k", |b, _| b.int(Scalar::I32, 1).map(|_| ()));
    let at = |k: &Kernel, i: usize| k.body.0[i];
    let (pointer, number) = (at(&k, 0), at(&k, 3));
    let (op, ty) = op(pointer, number);
    let v = k.insts.push(Inst { op, ty, span: Span::NONE });
    k.body.0.push(v);
    k
}

#[test]
fn malformed_machine_code_is_rejected_by_the_verifier() {
    let (sem, scope) = (Sem::Relaxed, Scope::Sys);
    let vector = |n| Type::Vector(Scalar::F32, n);
    let cases = [
        ("24 bytes", MISMATCH, malformed(|ptr, _| (Memory::Load { ptr, sem, scope }.into(), vector(6)))),
        ("32 bytes", MISMATCH, malformed(|ptr, _| (Memory::Load { ptr, sem, scope }.into(), vector(8)))),
        ("no lanes", MISMATCH, malformed(|ptr, _| (Memory::Load { ptr, sem, scope }.into(), vector(0)))),
        (
            "a pointer to registers",
            MISMATCH,
            malformed(|ptr, _| (Address::FromInt { a: ptr }.into(), Type::Pointer(Space::Register))),
        ),
        (
            "a number as an address",
            MISMATCH,
            malformed(|_, one| (Memory::Store { ptr: one, value: one, sem, scope }.into(), Type::Unit)),
        ),
        (
            "multimem at a global address",
            WRONG_SPACE,
            malformed(|ptr, value| (Memory::McStore { ptr, value, sem, scope }.into(), Type::Unit)),
        ),
        (
            "an alignment of 3 bytes",
            MISMATCH,
            malformed(|_, _| {
                let op = Address::Shared { name: "".into(), bytes: 4, align: 3 };
                (op.into(), Type::Pointer(Space::Shared))
            }),
        ),
        (
            "a store that acquires",
            BAD_ORDER,
            malformed(|ptr, value| {
                (Memory::Store { ptr, value, sem: Sem::Acquire, scope }.into(), Type::Unit)
            }),
        ),
    ];
    assert_eq!(found(malformed(|ptr, _| (Memory::Load { ptr, sem, scope }.into(), vector(4)))), []);
    for (what, code, k) in cases {
        assert_eq!(found(k), [code], "{what}");
    }
}

#[test]
fn accesses_of_odd_sizes() {
    for ty in [Type::Vector(Scalar::F32, 3), Type::Vector(Scalar::F32, 8), Type::Vector(Scalar::I8, 5)] {
        kernel("k", |b, at| {
            let e = unknown(b, at, ty.clone()).unwrap_err();
            assert_eq!(e.code, MISMATCH, "{e}");
            assert!(e.message.contains("vector<") && e.help.is_some(), "{e}");
            Ok(())
        });
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
fn parameters_match_the_abi() {
    let mut b = Builder::new("k", [64, 2, 1]);
    let s = b.pointer_param("s", Space::Symmetric, 16).unwrap();
    b.param("flag", scalar(Scalar::Bool)).unwrap();
    b.param("half", scalar(Scalar::F16)).unwrap();
    b.pointer_param("t", Space::Global, 4).unwrap();
    b.param("s_mc", scalar(Scalar::U64)).unwrap();
    let pe = b.param("my_pe", scalar(Scalar::I32)).unwrap();
    b.store(s, pe).unwrap();
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
fn variables_beyond_all_measure() {
    for ty in [
        Type::Vector(Scalar::F64, 0),
        Type::Vector(Scalar::F64, 1025),
        Type::Vector(Scalar::F64, u32::MAX),
        Type::Pointer(Space::Register),
        Type::Unit,
    ] {
        let mut k = kernel("k", |_, _| Ok(()));
        k.locals.push(Local { name: "v".into(), ty });
        assert_eq!(found(k), [MISMATCH]);
    }
}
