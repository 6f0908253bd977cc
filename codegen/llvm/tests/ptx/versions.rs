//! Tests of `.version`, `.target` and line information.

use crate::harness::*;
use crate::switch::two_shot;
use weft_ir::diag::Span;
use weft_ir::machine::{Kernel, Module, Type};
use weft_ir::verify::verify;
use weft_ir::{Memory, RedOp, Scalar, Scope, Sem, Space};
use weft_isa::{PtxVersion, Target};
use weft_llvm::{Location, Options, Output, codes, emit};

/// The `.version` and `.target` of PTX.
fn head(out: &Output) -> (&str, &str) {
    let after = |word: &str| {
        let line = out.ptx.lines().find_map(|l| l.strip_prefix(word)).expect(word);
        line.trim()
    };
    (after(".version"), after(".target"))
}

#[test]
fn every_target_has_its_least_version() {
    let plain = kernel("plain", |b, at| {
        let x = unknown(b, at, Type::Vector(Scalar::F32, 4))?;
        let there = pointer(b, at, 16)?;
        b.store(there, x).map(|_| ())
    });
    for t in Target::all() {
        let out = compile_for(t.name(), vec![plain.clone()]);
        assert_eq!(head(&out), (t.min_ptx().to_string().as_str(), t.name()));
        assert_eq!(out.version, t.min_ptx());
        accepted(&out.ptx, t.name());
        let out = compile_for(t.name(), vec![two_shot(Scalar::F32)]);
        assert_eq!(out.version, t.min_ptx().max(PtxVersion::new(8, 1)));
        accepted(&out.ptx, t.name());
    }
}

fn asked(kernels: Vec<Kernel>, arch: &str, version: PtxVersion) -> Result<Output, weft_ir::diag::Diagnostic> {
    emit(&verified(kernels), &Options::new(target(arch)).ptx_version(Some(version)))
}

#[test]
fn an_asked_version_is_the_version() {
    for (major, minor) in [(8, 1), (8, 6), (9, 0), (9, 1), (9, 3)] {
        let version = PtxVersion::new(major, minor);
        let out = asked(vec![two_shot(Scalar::F32)], "sm_90a", version).unwrap();
        assert_eq!(head(&out), (version.to_string().as_str(), "sm_90a"));
        accepted(&out.ptx, "sm_90a");
    }
}

#[test]
fn a_version_that_is_too_low_is_reported_with_its_reason() {
    let plain = kernel("plain", |_, _| Ok(()));
    let e = asked(vec![plain], "sm_100a", PtxVersion::new(8, 1)).unwrap_err();
    assert_eq!(e.code, codes::OLD_PTX);
    assert_eq!(e.message, "target sm_100a needs PTX 8.6, but version 8.1 is requested");
    let e = asked(vec![two_shot(Scalar::BF16)], "sm_90a", PtxVersion::new(8, 1)).unwrap_err();
    assert_eq!(e.code, codes::OLD_PTX);
    assert!(e.message.contains("acc::f32.v4.bf16x2` needs PTX 8.2"), "{e}");
    assert!(e.help.unwrap().contains("8.2"));
}

#[test]
fn a_target_that_llvm_does_not_know_is_written_in() {
    let out = compile_for("sm_107a", vec![two_shot(Scalar::BF16)]);
    assert_eq!(head(&out), ("9.4", "sm_107a"));
}

/// A kernel whose ops come from lines of two files.
fn lined() -> Module {
    let mut k = kernel("lined", |b, at| {
        b.at(Span::new(0, 100, 110));
        let x = unknown(b, at, scalar(Scalar::F32))?;
        b.at(Span::new(1, 30, 31));
        let y = b.binary(weft_ir::BinOp::Add, x, x)?;
        b.at(Span::new(0, 120, 125));
        b.store(at, y).map(|_| ())
    });
    k.span = Span::new(0, 0, 10);
    Module { kernels: vec![k], files: vec!["k.weft".into(), "lib/parts.weft".into()] }
}

/// Every line has ten bytes.
fn locate(span: Span) -> Option<Location> {
    Some(Location { file: span.file, line: 1 + span.start / 10, column: 1 + span.start % 10 })
}

#[test]
fn instructions_have_their_lines() {
    let module = verify(lined()).unwrap();
    let out = emit(&module, &Options::new(target("sm_90a")).locate(&locate)).unwrap();
    accepted(&out.ptx, "sm_90a");
    contains(&out.ptx, &[".loc\t1 11 1", ".loc\t2 4 1", ".loc\t1 13 1", "k.weft\"", "lib/parts.weft\""]);
    assert!(!out.ptx.contains(".section"), "{}", out.ptx);
    let without = emit(&module, &Options::new(target("sm_90a"))).unwrap();
    assert!(!without.ptx.contains(".loc"));
}

#[test]
fn invalid_positions_do_no_harm() {
    let module = verify(lined()).unwrap();
    for place in [
        None,
        Some(Location { file: 77, line: 1, column: 1 }),
        Some(Location { file: 0, line: 0, column: 0 }),
    ] {
        let locate = move |_: Span| place;
        let out = emit(&module, &Options::new(target("sm_90a")).locate(&locate)).unwrap();
        accepted(&out.ptx, "sm_90a");
    }
}

#[test]
fn llvm_ir_and_timings_on_request() {
    let module = verified(vec![two_shot(Scalar::F32)]);
    let out = emit(&module, &Options::new(target("sm_90a")).keep_llvm(true)).unwrap();
    assert!(out.llvm_before.unwrap().contains("define ptx_kernel void @two_shot"));
    assert!(out.llvm.unwrap().contains("define ptx_kernel void @two_shot"));
    let names: Vec<_> = out.timings.iter().map(|t| t.0).collect();
    assert_eq!(names.first(), Some(&"lower"));
    assert_eq!(names.last(), Some(&"print"));
    let out = emit(&module, &Options::new(target("sm_90a"))).unwrap();
    assert!(out.llvm.is_none() && out.llvm_before.is_none());
}

#[test]
fn the_same_module_gives_the_same_text() {
    let module = verified(vec![two_shot(Scalar::BF16)]);
    let options = Options::new(target("sm_90a"));
    let first = emit(&module, &options).unwrap().ptx;
    let others: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn({
                let m = module.clone();
                move || emit(&m, &Options::new(target("sm_90a"))).unwrap().ptx
            })
        })
        .collect();
    for other in others {
        assert_eq!(other.join().unwrap(), first);
    }
}

#[test]
fn fp8_in_the_switch_needs_its_target() {
    let k = || {
        kernel("fp8", |b, _| {
            let place = address(b, "mc", Space::Multicast)?;
            let op = Memory::LdReduce {
                ptr: place,
                op: RedOp::Add,
                acc: Scalar::F16,
                sem: Sem::Relaxed,
                scope: Scope::Sys,
            };
            let x = b.emit_as(op, Type::Vector(Scalar::E4M3, 16))?;
            b.mc_store(place, x).map(|_| ())
        })
    };
    let out = compile_for("sm_100a", vec![k()]);
    accepted(&out.ptx, "sm_100a");
    contains(&out.ptx, &["multimem.ld_reduce.relaxed.sys.global.add.acc::f16.v4.e4m3x4"]);
    let e = emit(&verified(vec![k()]), &Options::new(target("sm_90a"))).unwrap_err();
    assert!((700..750).contains(&e.code.0), "{e}");
}
