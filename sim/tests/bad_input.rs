//! Input that makes no sense ends in an error, soon and without much memory: never in a panic.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};
use weft_sim::{Arg, Check, Config, Launch, Machine, Module, Stats};

const HEAD: &str = ".version 8.6 .target sm_90a .address_size 64\n";

fn machine() -> Machine {
    let check = Some(Check::default());
    Machine::new(Config::default().step_limit(100_000).memory_limit(256 << 20).check(check)).unwrap()
}

/// Runs a kernel `k(p)` of this body; `p` is the address of 4 KiB. The error's code, and whether it has a place.
fn run(before: &str, body: &str, launch: Launch) -> Result<Stats, (&'static str, bool, String)> {
    let text = format!(
        "{HEAD}{before}\n.entry k(.param .u64 p)\n{{ .reg .b64 %d<9>; .reg .b32 %r<9>; .reg .pred %p;\n\
         ld.param.b64 %d0, [p];\n{body}\nret; }}"
    );
    let module = Module::parse(&text).map_err(|e| (e.code.as_str(), e.line > 1, e.to_string()))?;
    let mut m = machine();
    let p = m.alloc(0, "p", 4096, 16).unwrap();
    m.launch(&module, "k", &[launch.args(vec![Arg::U64(p)])])
        .map_err(|e| (e.code.as_str(), e.at.is_some(), e.to_string()))
}

#[track_caller]
fn fails(before: &str, body: &str, want: &str) {
    let (code, placed, message) = run(before, body, Launch::default()).unwrap_err();
    assert_eq!(code, want, "{message}");
    assert!(placed, "{message}");
}

/// Every text, cut off anywhere, is read or refused with a line within it.
#[test]
fn truncated_files() {
    let texts = [
        include_str!("ptx/nvrtc_softmax.ptx"),
        include_str!("ptx/two_shot.ptx"),
        include_str!("ptx/nvshmem_ring.ptx"),
        include_str!("ptx/printf.ptx"),
    ];
    for text in texts {
        let lines = text.lines().count();
        let step = (text.len() / 150).max(1);
        for end in (0..text.len()).step_by(step).filter(|end| text.is_char_boundary(*end)) {
            if let Err(e) = Module::parse(&text[..end]) {
                assert!((1..=lines + 1).contains(&(e.line as usize)), "{e}");
            }
        }
    }
}

#[test]
fn absurd_declarations() {
    let many = |what: &str, n: usize| what.repeat(n);
    for text in [
        ".entry k() { .reg .b32 %r<4294967295>; ret; }".to_string(),
        ".entry k() { .reg .b32 %r<4294967296>; ret; }".to_string(),
        ".global .b8 x[1152921504606846976];".to_string(),
        ".const .b64 x[2147483648][2147483648];".to_string(),
        ".entry k() { .shared .b64 x[2305843009213693952]; ret; }".to_string(),
        ".global .align 1073741824 .b8 x[4];".to_string(),
        ".global .align 3 .b8 x[4];".to_string(),
        format!(".entry k() {{ {} ret; }}", many(".reg .b64 %a<1000>; {", 5000)),
        format!(".entry k() {{ .reg .b32 %r; mov.b32 %r, {}1; }}", many("-", 100_000)),
        format!(".entry k() {{ .reg .b64 %r; ld.global.v4.b32 {{{}}}, [%r]; }}", many("%r, ", 100_000)),
        format!(".entry k({}) {{ ret; }}", many(".param .b64 p, ", 100_000)),
        format!(".global .b32 x[1] = {{{}}};", many("1, ", 100_000)),
    ] {
        let start = Instant::now();
        let Err(e) = Module::parse(&format!("{HEAD}{text}")) else {
            panic!("{}", &text[..text.len().min(100)])
        };
        assert!(e.line >= 1 && start.elapsed() < Duration::from_secs(5), "{:?}: {e}", start.elapsed());
    }
}

#[test]
fn control_flow_out_of_bounds() {
    let table = "T: .branchtargets A, B;";
    fails("", &format!("{table} mov.b32 %r0, 2; brx.idx %r0, T; A: B:"), "S011");
    fails("", &format!("{table} mov.b32 %r0, -1; brx.idx %r0, T; A: B:"), "S011");
    fails(".func f();", "call f;", "P007");
    // Calls go to functions by name only.
    fails("", "P: .callprototype _ (); mov.b64 %d1, 12345; call %d1, (), P;", "P007");
    fails("", "L: bra L;", "S008");
}

#[test]
fn memory_that_is_not_to_be_written() {
    fails(".const .b32 c[4];", "mov.b64 %d1, c; cvta.const.u64 %d1, %d1; st.b32 [%d1], 1;", "S002");
    fails(".func f() { ret; }", "mov.b64 %d1, f; st.global.b32 [%d1], 1;", "P006");
    fails("", "mov.b64 %d1, k; st.b64 [%d1], %d1;", "P006");
    fails("", "st.global.b32 [%d0+4096], 1;", "S003");
    fails("", "st.global.b32 [%d0+-4], 1;", "S003");
    fails("", "mov.b64 %d1, -1; ld.global.b8 %r0, [%d1];", "S002");
    fails("", "mov.b64 %d1, -8; ld.b64 %d2, [%d1+16];", "S002");
    fails(".shared .b32 s;", "ld.shared.b64 %d1, [s];", "S003");
}

#[test]
fn launches_out_of_bounds() {
    let launch = |grid, block| run("", "st.global.b32 [%d0], 1;", Launch::default().grid(grid).block(block));
    for (grid, block) in [
        ([0, 1, 1], [1, 1, 1]),
        ([1, 1, 1], [1025, 1, 1]),
        ([1, 1, 1], [1, 1, 65]),
        ([1, 65536, 1], [1, 1, 1]),
        ([1 << 31, 1, 1], [1, 1, 1]),
        ([u32::MAX; 3], [u32::MAX; 3]),
    ] {
        assert_eq!(launch(grid, block).unwrap_err().0, "S001", "{grid:?} {block:?}");
    }
    // The largest grids are possible; this one is given up when the steps are used up.
    let start = Instant::now();
    let (code, _, message) = launch([(1 << 31) - 1, 65535, 65535], [1024, 1, 1]).unwrap_err();
    assert!(code == "S009" && start.elapsed() < Duration::from_secs(10), "{:?}: {message}", start.elapsed());
}

/// More registers than any GPU has, in as many warps as are resident at once.
#[test]
fn registers_without_end() {
    let n = 20_000;
    let lines = |f: &dyn Fn(usize) -> String| (0..n).map(f).collect::<String>();
    let first = lines(&|i| format!("mov.b64 %x{i}, {i};\n"));
    let then = lines(&|i| format!("add.u64 %d0, %d0, %x{i};\n"));
    let body = format!(".reg .b64 %x<{n}>;\n{first}bar.sync 0;\n{then}");
    let (grid, block) = ([10_000, 1, 1], [1024, 1, 1]);
    let (code, _, message) = run("", &body, Launch::default().grid(grid).block(block)).unwrap_err();
    // As few CTAs are resident as their registers fit into memory.
    assert!(code == "S009" && message.contains("at most 1 of this size are resident"), "{message}");
}
