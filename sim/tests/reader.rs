//! The PTX reader: places and words of errors, limits, and text that nobody would write.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/host.rs"]
mod host;

use host::grid;
use proptest::prelude::*;
use weft_sim::{Config, Machine, Module, PtxError};

fn in_kernel(body: &str) -> String {
    format!(
        ".version 8.6\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 p0)\n{{\n{body}\nret;\n}}\n"
    )
}

fn error(text: &str) -> PtxError {
    Module::parse(text).expect_err(text)
}

fn body_error(body: &str) -> PtxError {
    let e = error(&in_kernel(&format!(
        ".reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .b16 %h<9>; .reg .pred %p<4>;\n{body}"
    )));
    assert_eq!(e.line, 7, "{e}");
    e
}

#[test]
fn unknown_instructions_and_modifiers_are_errors() {
    for (body, code, words) in [
        ("frobnicate.u32 %r1, %r2;", "P003", "`frobnicate` is not simulated"),
        ("mapa.shared.u64 %rd1, %rd2, 0;", "P004", "`.shared` is not a modifier of `mapa`"),
        ("tex.1d.v4.f32.f32 {%r1, %r2, %r3, %r4}, %rd1;", "P003", "`tex`"),
        ("add.frob.s32 %r1, %r2, %r3;", "P004", "`.frob` is not a modifier of `add`"),
        ("add.sat.u32 %r1, %r2, %r3;", "P004", "`add.sat.u32` is not a form"),
        ("ld.global.relaxed.b32 %r1, [%rd1];", "P004", "`ld.global.relaxed.b32`"),
        ("cvt.u32.f32 %r1, %r2;", "P004", ".rni"),
        ("cvt.rn.f64.f32 %rd1, %r2;", "P004", "exact"),
        ("barrier.cluster.sync.aligned;", "P004", "cluster"),
        ("bar.sync;", "P005", "0 operands"),
        ("setp.lo.s32 %p1, %r1, %r2;", "P004", "`.lo`"),
        ("add.s32 %r1, %r2;", "P005", "d, a, b"),
        ("add.s32 %r1, %r2, %rd1;", "P005", "`%rd1` has 64 bits"),
        ("add.f32 %r1, %h1, %r1;", "P005", "`%h1` has 16 bits"),
        ("add.s32 %p1, %r2, %r1;", "P005", "`%p1` is a predicate"),
        ("ld.global.b64 %r1, [%rd1];", "P005", "at least as wide as the type"),
        ("ld.global.b32 %r1, [%r2];", "P005", "a global address needs 64"),
        ("ld.global.v8.b64 {%rd1, %rd2, %rd3, %rd4, %rd5, %rd6, %rd7, %rd8}, [%rd1];", "P004", "32 bytes"),
        ("mov.b32 %r1, %nothing;", "P006", "`%nothing` is not declared"),
        ("mov.b32 %r1, %r9;", "P006", "`%r9`"),
        ("mov.b32 %r1, %r01;", "P006", "`%r01`"),
        ("bra NOWHERE;", "P006", "`NOWHERE`"),
        ("bra %r1;", "P005", "not a label"),
        ("@%r1 ret;", "P006", "`%r1` is not a predicate"),
        ("call.uni nowhere;", "P006", "`nowhere`"),
        ("call.uni %rd1;", "P007", "indirect"),
        ("selp.b32 %r1, %r2, %r3, %r4;", "P005", "`%r4` is not a predicate"),
        ("mov.b32 %r1, 0d0000000000000000;", "P005", "32 bits"),
        ("add.f32 %r1, %r1, 2;", "P005", "literal"),
        ("add.u32 %r1, %tid.x, 2;", "P005", "with mov"),
        ("mov.u64 %rd1, %tid.x;", "P005", "32 bits"),
        ("add.u64 %rd1, %rd1, p0;", "P005", "with mov"),
        ("ld.global.b32 %r1, [%rd1-4];", "P001", "`]`"),
        ("lop3.b32 %r1, %r2, %r3, %r4, 256;", "P005", "0 to 255"),
        ("lop3.b32 %r1, %r2, %r3, %r4, %r5;", "P005", "integer literal"),
        ("ld.global.L2::cache_hint.b32 %r1, [%rd1];", "P005", "cache-policy"),
        ("tld4.r.2d [tex, {%r1, %r2}];", "P003", "`tld4`"),
    ] {
        let e = body_error(body);
        assert_eq!(e.code, code, "{e}");
        assert!(e.to_string().contains(words), "{e}\nshould say: {words}");
        assert!(e.text.contains(body.trim_end_matches(';').split(' ').next_back().unwrap()), "{e}");
    }
}

#[test]
fn syntax_errors_have_places() {
    let e = error(&in_kernel("  add.s32 %r1 %r2;"));
    assert_eq!((e.code.as_str(), e.line, e.column), ("P001", 6, 15), "{e}");
    let e = error(".version 8.0\n.target sm_90\n.bogus\n");
    assert_eq!((e.code.as_str(), e.line), ("P001", 3), "{e}");
    assert!(e.message.contains("`.bogus`"), "{e}");
    for (text, words) in [
        ("", "no `.version`"),
        ("define void @f()", "expected a `.`"),
        (".version 8.0 .target sm_90 .address_size 32", "64-bit"),
        (".version 8.0 .entry k() { ret;", "ends inside a block"),
        (".version 8.0 .entry k( { ret; }", "expected `)`"),
        (".version 8.0 .entry k() .frob { ret; }", "`.frob`"),
        (".version 8.0 .entry k() { .reg .v4 .f32 %v; ret; }", "vector registers"),
        (".version 8.0 .entry k() { .reg .q32 %v; ret; }", "`.q32`"),
        (".version 8.0 .entry k() { ret; } .entry k() { ret; }", "defined twice"),
        (".version 8.0 .entry k() { .reg .b32 %r; .reg .b32 %r; ret; }", "declared twice"),
        (".version 8.0 .entry k() { A: A: ret; }", "declared twice"),
        (".version 8.0 .global .b32 x; .global .b32 x;", "declared twice"),
        (".version 8.0 .global .b32 x = 99999999999999999999;", "64-bit integer"),
        (".version 8.0 .global .b32 x = y;", "the address of `y`"),
        (".version 8.0 .global .b32 x[2] = {1, 2, 3};", "more initial values"),
        (".version 8.0 .shared .b32 x = 1;", "cannot have an initialiser"),
        (".version 8.0 .extern .global .b32 x;", "without a definition"),
        (".version 8.0 .global .b32 x[];", "has no size"),
        (".version 8.0 .global .align 3 .b32 x;", "alignment 3"),
        (".version 8.0 .extern .func f(); .entry k() { call.uni f; ret; }", "external"),
        (".version 8.0 .func (.reg .b32 r) f() { ret; }", "register parameters"),
        (".version 8.0 .entry k() { .reg .b32 %r; mov.b32 %r, 0f12; }", "8 hexadecimal digits"),
        (".version 8.0 .file 1 \"abc", "closing quote"),
    ] {
        let e = error(text);
        assert!(e.to_string().contains(words), "{e}\nshould say: {words}");
    }
}

#[test]
fn absurd_sizes_are_errors() {
    for text in [
        in_kernel(".reg .b32 %r<4000000000>;"),
        in_kernel(".reg .b32 %r<99999999999999999>;"),
        in_kernel(".local .b8 x[99999999999];"),
        in_kernel(".local .b64 x[1000000000][1000000000][1000000000];"),
        ".version 8.0 .global .b8 x[18446744073709551615];".to_string(),
        ".version 8.0 .entry k(.param .b8 p[40000]) { ret; }".to_string(),
        format!(".version 8.0 .entry k() {}", "{".repeat(100_000)),
        format!(".version 8.0 .global .b8 x[1] = {}", "{".repeat(100_000)),
    ] {
        let e = error(&text);
        assert_eq!(e.code, "P002", "{e}");
    }
    // Long names and many digits cost no more than their length.
    let digits = "9".repeat(1 << 20);
    assert_eq!(error(&in_kernel(&format!("mov.b32 %r{digits}, 1;"))).code, "P006");
    let garbage = "\u{fffd}#~ @@".repeat(1 << 17);
    assert_eq!(error(&garbage).line, 1);
    let comment = format!(".version 8.0 /* {}", "*".repeat(1 << 20));
    assert!(Module::parse(&comment).is_ok());
}

/// Scopes, numbers, comments and other details of the syntax.
#[test]
fn details_of_the_syntax() {
    let text = in_kernel(
        "/* a */ .reg .b32 %r<3>, %s; .reg .b64 %rd; .reg .pred %p; // b
        mov.b32 %r1, 0x1FU; mov.b32 %r1, 017; mov.b32 %r1, 0b101; mov.b32 %r1, -0f3F800000; mov.b64 %rd, 0d3FF0000000000000;
        mov.b64 %rd, 1.5; mov.f32 %r1, -2.5e-1; mov.pred %p, -1; mov.b32 %s, WARP_SZ;
        { .reg .b32 %r1; .reg .b64 %r2; mov.b64 %r2, 1; L: @%p bra L2; bra L2; L2: }
        { .reg .b32 %q<2>; mov.b32 %q1, 1; L: bra M; M: }
        .loc 1 2 3
        .pragma \"nounroll\";
        ld.param::entry.b64 %rd, [p0+0];
        ld.global.b32 _, [%rd+-4];
        bar.warp.sync -1;
        brkpt;",
    );
    let m = Module::parse(&text).unwrap_or_else(|e| panic!("{e}"));
    let k = m.kernel("k").unwrap();
    assert_eq!((k.params[0].name.as_str(), k.params[0].size, k.param_bytes()), ("p0", 8, 8));
    assert_eq!((m.target(), m.version()), ("sm_90a", (8, 6)));
    // A register of an inner block is gone behind it.
    let e = error(&in_kernel("{ .reg .b32 %q; } mov.b32 %q, 1;"));
    assert_eq!(e.code, "P006");
}

const SEEDS: &[&str] = &[
    include_str!("ptx/two_shot.ptx"),
    include_str!("ptx/llvm_everything.ptx"),
    include_str!("ptx/printf.ptx"),
    include_str!("ptx/vector_add.ptx"),
];

/// Words of a text and the white space and punctuation between them.
fn tokens(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut start = 0;
    for (i, c) in text.char_indices() {
        if !(c.is_ascii_alphanumeric() || matches!(c, '_' | '%' | '$')) {
            out.extend([&text[start..i], &text[i..i + c.len_utf8()]]);
            start = i + c.len_utf8();
        }
    }
    out.push(&text[start..]);
    out.retain(|t| !t.is_empty());
    out
}

/// Parses a text and, if it is PTX, runs each kernel with odd arguments and all checks for a while: anything but a panic
/// is fine.
fn survive(text: &str) {
    let Ok(module) = Module::parse(text) else { return };
    let config = Config::default()
        .n_pes(2)
        .seed(text.len() as u64)
        .explore(true)
        .step_limit(20_000)
        .memory_limit(64 << 20)
        .sms(1)
        .check(Some(weft_sim::Check::default()));
    let mut m = Machine::new(config).unwrap();
    let x = m.alloc_symmetric("x", 4096, 16).unwrap();
    let team = m.team(&[0, 1]).unwrap();
    for k in module.kernels() {
        let args = |pe: usize| {
            let pointers = [m.local_addr(pe, x).unwrap(), m.multicast_addr(pe, x, team).unwrap()];
            let arg = |(i, p): (usize, &weft_sim::Param)| {
                let word = if p.size == 8 { pointers[i % 2] } else { 40 };
                let mut bytes = word.to_le_bytes().to_vec();
                bytes.resize(p.size, 0);
                weft_sim::Arg::Bytes(bytes)
            };
            k.params.iter().enumerate().map(arg).collect::<Vec<_>>()
        };
        let threads = k.reqntid.map_or(40, |r| r[0]);
        let grids = [grid(0, 2, threads, args(0)), grid(1, 1, threads, args(1))];
        let _ = m.launch(&module, &k.name, &grids);
    }
}

proptest! {
    #[test]
    fn bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        survive(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn ptx_words_never_panic(words in prop::collection::vec(
        prop::sample::select(vec![
            ".version", "8.0", ".entry", "k", "(", ")", "{", "}", "[", "]", ";", ",", ".reg", ".b32", "%r<4>", "%r1",
            "+", "-", "|", "!", "@", ".loc", "1", "0x", "0f", ".", ":", "ld", ".global", "_", ".param", "=", "\"", "/*",
        ]), 0..60)) {
        let sep = [" ", ""];
        let text: String = words.iter().enumerate().flat_map(|(i, w)| [*w, sep[i % 2]]).collect();
        survive(&format!(".version 8.0 {text}"));
    }

    /// Programs with words dropped, doubled, exchanged, replaced by others and numbers changed.
    #[test]
    fn mutants_never_panic(
        seed in 0..SEEDS.len(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..7_u8), 1..6),
    ) {
        let mut words = tokens(SEEDS[seed]);
        for (i, j, how) in edits {
            let (i, j) = (i.index(words.len()), j.index(words.len()));
            match how {
                0 => { words.remove(i); }
                1 => words.insert(i, words[j]),
                2 => words.swap(i, j),
                3 => words[i] = "4294967295",
                4 => words[i] = "-1",
                5 => words[i] = "\0é",
                _ => words[i] = words[j],
            }
        }
        survive(&words.concat());
    }
}
