//! Tests of printing, and of the end of a kernel with an error.

use crate::harness::*;
use weft_ir::{Debug, Scalar};
use weft_llvm::{Options, codes, emit};

#[test]
fn arguments_as_c_passes_them() {
    let text = ptx("hello", |b, at| {
        let mut args = Vec::new();
        for s in [Scalar::I32, Scalar::F16, Scalar::U8, Scalar::I64, Scalar::E4M3, Scalar::Bool] {
            args.push(unknown(b, at, scalar(s))?);
        }
        b.emit(Debug::Print { format: "%d %f %u %d %g %d 100%%\n".into(), args }).map(|_| ())
    });
    contains(&text, &["vprintf", ".extern .func"]);
    // The sizes and offsets are 4 at 0, 8 at 8, 4 at 16, 8 at 24, 8 at 32, 4 at 40.
    let stores = mnemonics(&text, "st.local");
    let sizes: Vec<_> = stores.iter().map(|m| m.rsplit('b').next().unwrap()).collect();
    assert_eq!(sizes, ["32", "64", "32", "64", "64", "32"], "{text}");
    for place in ["+8]", "+16]", "+24]", "+32]", "+40]"] {
        assert!(text.lines().any(|l| l.contains("st.local") && l.contains(place)), "{place}: {text}");
    }
    let bytes: Vec<_> = "%d %f %u %lld %g %d 100%%\n".bytes().map(|b| b.to_string()).collect();
    contains(&text, &[&bytes.join(", ")]);
}

#[test]
fn text_alone() {
    let text =
        ptx("hello", |b, _| b.emit(Debug::Print { format: "here\n".into(), args: vec![] }).map(|_| ()));
    contains(&text, &["vprintf"]);
    assert!(!text.contains(".local"), "{text}");
}

#[test]
fn formats_with_missing_arguments() {
    for (format, n) in [("%*d", 1), ("%.*f", 1), ("a\0%d", 1)] {
        let k = kernel("k", |b, at| {
            let s = if format.contains('f') { Scalar::F32 } else { Scalar::I32 };
            let args = (0..n).map(|_| unknown(b, at, scalar(s))).collect::<Result<Vec<_>, _>>()?;
            b.emit(Debug::Print { format: format.into(), args }).map(|_| ())
        });
        let e = emit(&verified(vec![k]), &Options::new(target("sm_90a"))).unwrap_err();
        assert_eq!(e.code, codes::BAD_FORMAT, "{format}");
    }
}

#[test]
fn an_assert_calls_a_function_that_ends_the_kernel() {
    let text = ptx("expects", |b, at| {
        let holds = unknown(b, at, scalar(Scalar::Bool))?;
        b.emit(Debug::Assert { cond: holds, text: "50% \0 \"x\"".into() })?;
        let one = b.int(Scalar::I32, 1)?;
        b.store(at, one).map(|_| ())
    });
    contains(&text, &[".extern .func __assertfail", "call.uni __assertfail", "st.global.b32", "trap;"]);
    // The C strings are the expectation, with the zero byte spelled out, the kernel, and no file.
    for string in ["50% \\0 \"x\"", "expects"] {
        let bytes: Vec<_> = string.bytes().map(|b| b.to_string()).collect();
        contains(&text, &[&bytes.join(", ")]);
    }
    let order = ["ld.global", "__assertfail", "st.global"].map(|word| mnemonics(&text, word).len());
    assert_eq!(order, [1, 1, 1], "{text}");
}

#[test]
fn a_trap_in_a_branch_ends_only_that() {
    let text = ptx("trap", |b, at| {
        let bad = unknown(b, at, scalar(Scalar::Bool))?;
        b.if_true(bad, |b| b.emit(Debug::Trap {}).map(|_| ()))?;
        let one = b.int(Scalar::I32, 1)?;
        b.store(at, one).map(|_| ())
    });
    contains(&text, &["trap;", "st.global.b32"]);
}
