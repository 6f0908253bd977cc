//! Tests of calls of functions that another module defines.

use crate::harness::*;
use weft_ir::builder::Built;
use weft_ir::level::Machine;
use weft_ir::machine::{Builder, Kernel, Module, Type};
use weft_ir::text::{parse_module, print_module};
use weft_ir::verify::{BAD_FUNCTION, verify};
use weft_ir::{Call, Scalar, Space, Value};
use weft_llvm::{Options, codes, emit};

/// Emits a call.
fn call(b: &mut Builder, name: &str, args: &[Value], result: Type) -> Built<Value> {
    b.emit_as(Call::Function { function: name.into(), args: args.to_vec() }, result)
}

/// A kernel that passes addresses of two spaces, integers of every width and both floats, and gets
/// a pointer.
fn everything(name: &str) -> Kernel {
    kernel(name, |b, at| {
        let shared = shared(b, 128)?;
        let mut args = vec![at, shared];
        use Scalar::*;
        for s in [I8, U8, I16, U16, I32, U64, F32, F64] {
            args.push(unknown(b, at, scalar(s))?);
        }
        let peer = call(b, "library_f", &args, Type::Pointer(Space::Peer))?;
        let small = call(b, "library_g", &[peer], scalar(I16))?;
        b.store(at, small)?;
        call(b, "library_h", &[], Type::Unit).map(|_| ())
    })
}

#[test]
fn externs_are_declared_once_with_c_types() {
    let out = compile(vec![everything("a"), everything("b")]);
    accepted_as_object(&out.ptx, "sm_90a");
    let declared: Vec<_> = out.ptx.lines().filter(|l| l.starts_with(".extern .func")).collect();
    assert_eq!(declared.len(), 3, "{}", out.ptx);
    // Both pointers are converted to generic addresses.
    assert!(out.ptx.matches("cvta.").count() >= 2, "{}", out.ptx);
    let calls = mnemonics(&out.ptx, "call");
    assert_eq!(calls.len(), 6, "{}", out.ptx);
}

#[test]
fn a_call_is_neither_moved_nor_duplicated() {
    // Threads may have to meet in it, so no condition is put around it and it is not duplicated,
    // although its result is not used.
    let text = compile(vec![kernel("k", |b, at| {
        let n = unknown(b, at, scalar(Scalar::I32))?;
        let seen = call(b, "library_f", &[n], scalar(Scalar::I32))?;
        let zero = b.int(Scalar::I32, 0)?;
        let some = b.compare(weft_ir::CmpOp::Gt, n, zero)?;
        b.if_true(some, |b| b.store(at, seen).map(|_| ())).map(|_| ())
    })])
    .ptx;
    let (call, branch) = (text.find("call.uni").unwrap(), text.find("@%p").unwrap());
    assert!(call < branch, "{text}");
    assert_eq!(text.matches("call.uni").count(), 1, "{text}");
}

#[test]
fn the_text_form_reads_back() {
    let module = Module { kernels: vec![everything("k")], files: vec![] };
    let text = print_module(&module);
    assert!(text.contains("call \"library_g\", [%") && text.contains("] : i16"), "{text}");
    assert_eq!(print_module(&parse_module::<Machine>(&text).unwrap()), text);
}

#[test]
fn names_and_signatures_are_checked() {
    let bad = |name: &str, result: Type| {
        let k = kernel("k", |b, at| {
            call(b, "f", &[at], Type::Unit)?;
            call(b, name, &[at], result).map(|_| ())
        });
        verify(Module { kernels: vec![k], files: vec![] }).unwrap_err()[0].code
    };
    for name in ["", "a-b", "1a", "k", "llvm.trap", "a\0b", "é"] {
        assert_eq!(bad(name, Type::Unit), BAD_FUNCTION, "{name}");
    }
    assert_eq!(bad("f", scalar(Scalar::I32)), BAD_FUNCTION);
    let k = kernel("k", |b, _| call(b, "vprintf", &[], Type::Unit).map(|_| ()));
    let e = emit(&verified(vec![k]), &Options::new(target("sm_90a"))).unwrap_err();
    assert_eq!(e.code, codes::BAD_NAME);
}

#[test]
fn types_without_a_c_register_are_rejected() {
    for s in [Scalar::Bool, Scalar::F16, Scalar::BF16, Scalar::E4M3] {
        kernel("k", |b, at| {
            let x = unknown(b, at, scalar(s))?;
            assert_eq!(call(b, "f", &[x], Type::Unit).unwrap_err().code, weft_ir::typing::MISMATCH, "{s}");
            assert!(call(b, "f", &[at], Type::Vector(Scalar::F32, 2)).is_err());
            Ok(())
        });
    }
}
