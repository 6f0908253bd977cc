//! Wrong programs and wrong requests: what is reported, and where.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/host.rs"]
mod host;

use host::{buffer, failure, grid, machine, module, symmetric, words};
use weft_sim::{Arg, Config, Launch, Machine, Module};

/// One thread executes `body` with `%rd1` set to the argument; the launch must fail with `code`.
fn fault(m: &mut Machine, pe: usize, addr: u64, body: &str, code: &str) -> weft_sim::SimError {
    let module = module(
        "u64",
        &format!(
            ".reg .b64 %rd<8>; .reg .b32 %r<8>; .reg .b16 %h<4>; .reg .pred %p<4>;\nld.param.b64 %rd1, [p0];\n{body}"
        ),
    );
    failure(m.launch(&module, "k", &[grid(pe, 1, 1, vec![Arg::U64(addr)])]), code)
}

#[test]
fn out_of_bounds_names_the_allocation() {
    let mut m = machine(2);
    let x = buffer(&mut m, 1, "weights", &[0; 100]);
    let e = fault(&mut m, 1, x, "ld.global.b32 %r1, [%rd1+100];", "S003");
    assert!(e.message.contains("`weights`+100") && e.message.contains("100 bytes"), "{e}");
    assert!(e.message.contains("private memory of PE 1"), "{e}");
    let at = e.at.unwrap();
    assert_eq!((at.pe, at.cta, at.thread), (1, [0, 0, 0], Some([0, 0, 0])));
    assert_eq!(at.ptx_line, 8);
    assert_eq!(at.ptx_text, "ld.global.b32 %r1, [%rd1+100];");
    // In front of it, and a vector across its end.
    let e = fault(&mut m, 1, x, "st.global.b32 [%rd1+-4], 1;", "S003");
    assert!(e.message.contains("`weights`-4"), "{e}");
    fault(&mut m, 1, x, "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1+96];", "S003");
    fault(&mut m, 1, x, "red.global.add.u32 [%rd1+4096], 1;", "S003");
}

#[test]
fn the_thread_at_fault_is_named() {
    let module = module(
        "u64",
        ".reg .b64 %rd<4>; .reg .b32 %r<4>;
        ld.param.b64 %rd1, [p0]; mov.u32 %r1, %tid.y; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd3, %rd1, %rd2;
        st.global.b32 [%rd3], 1;",
    );
    let mut m = machine(1);
    let x = m.alloc(0, "x", 4 * 9, 4).unwrap();
    let launch = Launch::default().block([4, 10, 1]).args(vec![Arg::U64(x)]);
    let e = failure(m.launch(&module, "k", &[launch]), "S003");
    assert_eq!(e.at.unwrap().thread, Some([0, 9, 0]));
}

#[test]
fn misaligned_accesses() {
    let mut m = machine(1);
    let x = m.alloc(0, "x", 64, 256).unwrap();
    let e = fault(&mut m, 0, x, "ld.global.b32 %r1, [%rd1+2];", "S004");
    assert!(e.message.contains("`x`+2"), "{e}");
    fault(&mut m, 0, x, "ld.global.v2.b32 {%r1, %r2}, [%rd1+4];", "S004");
    fault(&mut m, 0, x, "atom.global.add.u64 %rd2, [%rd1+4], 1;", "S004");
    fault(&mut m, 0, x, ".shared .align 8 .b8 s[16]; ld.shared.b64 %rd2, [s+4];", "S004");
}

#[test]
fn addresses_belong_to_one_pe() {
    let mut m = machine(8);
    let x = symmetric(&mut m, "x", |_| words(&[0; 4]));
    let on_3 = m.local_addr(3, x).unwrap();
    let e = fault(&mut m, 5, on_3, "ld.global.b32 %r1, [%rd1];", "S002");
    assert!(e.message.contains("PE 3's address space") && e.message.contains("PE 5 uses"), "{e}");
    // The peer address of the same memory is fine on PE 5, and only there.
    let peer = m.peer_addr(5, x, 3).unwrap();
    let body = "ld.param.b64 %rd1, [p0]; st.global.b32 [%rd1], 1;";
    let ok = module("u64", &format!(".reg .b64 %rd<2>; {body}"));
    m.launch(&ok, "k", &[grid(5, 1, 1, vec![Arg::U64(peer)])]).unwrap();
    fault(&mut m, 3, peer, "ld.global.b32 %r1, [%rd1];", "S002");
    fault(&mut m, 0, 0, "ld.global.b32 %r1, [%rd1+8];", "S002");
    fault(&mut m, 0, u64::MAX - 15, "ld.global.b32 %r1, [%rd1];", "S002");
    // A pointer into the red zone between two allocations.
    let behind = m.local_addr(0, x).unwrap() + 16;
    let e = fault(&mut m, 0, behind, "st.global.b32 [%rd1], 1;", "S003");
    assert!(e.message.contains("`x`+16"), "{e}");
}

#[test]
fn multicast_addresses_are_for_multimem() {
    let mut m = machine(4);
    let x = symmetric(&mut m, "x", |_| words(&[0; 4]));
    let team = m.team(&[0, 2]).unwrap();
    let mc = m.multicast_addr(0, x, team).unwrap();
    for body in [
        "ld.global.b32 %r1, [%rd1];",
        "st.global.b32 [%rd1], 1;",
        "red.global.add.u32 [%rd1], 1;",
        "ld.b32 %r1, [%rd1];",
    ] {
        let e = fault(&mut m, 0, mc, body, "S005");
        assert!(e.help.contains("multimem"), "{e}");
    }
    let local = m.local_addr(0, x).unwrap();
    let e = fault(&mut m, 0, local, "multimem.ld_reduce.weak.global.add.f32 %r1, [%rd1];", "S005");
    assert!(e.message.contains("`x`+0") && e.message.contains("not a multicast address"), "{e}");
    fault(&mut m, 0, mc, "multimem.st.weak.global.f32 [%rd1+16], %r1;", "S003");
    fault(&mut m, 0, mc, "multimem.st.weak.global.v2.f32 [%rd1+4], {%r1, %r1};", "S004");
    // Only members have the address.
    assert_eq!(m.multicast_addr(1, x, team).unwrap_err().code, "S001");
    fault(&mut m, 2, mc, "multimem.st.weak.global.f32 [%rd1], %r1;", "S002");
}

#[test]
fn arithmetic_and_traps() {
    let mut m = machine(1);
    for (body, code) in [
        ("mov.b32 %r1, 0; div.u32 %r2, 7, %r1;", "S006"),
        ("mov.b32 %r1, 0; rem.s32 %r2, 7, %r1;", "S006"),
        ("trap;", "S010"),
        ("mov.b32 %r1, 16; bar.sync %r1;", "S011"),
        ("bar.sync 1, 33;", "S011"),
        ("bar.warp.sync 2;", "S011"),
    ] {
        fault(&mut m, 0, 0, body, code);
    }
    // -2^63 / -1 wraps as on hardware.
    let module = module("u64", ".reg .b64 %rd<4>; mov.b64 %rd1, 0x8000000000000000; div.s64 %rd2, %rd1, -1;");
    m.launch(&module, "k", &[grid(0, 1, 1, vec![Arg::U64(0)])]).unwrap();
}

#[test]
fn narrow_spaces_are_bounded() {
    let mut m = machine(1);
    let e = fault(&mut m, 0, 0, ".shared .align 4 .b8 s[64]; ld.shared.b32 %r1, [s+64];", "S003");
    assert!(e.message.contains("(size 64): `k.s`+64, which has 64 bytes"), "{e}");
    fault(&mut m, 0, 0, ".local .align 4 .b8 l[8]; mov.b64 %rd2, l; st.local.b32 [%rd2+16], 1;", "S003");
    fault(&mut m, 0, 0, "ld.local.b32 %r1, [0];", "S003");
    fault(&mut m, 0, 0, "ld.param.b32 %r1, [p0+8];", "S003");
    fault(&mut m, 0, 0x3_0000_0000, "st.b32 [%rd1], 1;", "S002");
    let module = Module::parse(
        ".version 8.0 .target sm_90 .address_size 64 .const .align 4 .b32 c = 1;
        .entry k() { .reg .b64 %rd<2>; mov.b64 %rd1, c; cvta.const.u64 %rd1, %rd1; st.b32 [%rd1], 2; ret; }",
    )
    .unwrap();
    failure(m.launch(&module, "k", &[grid(0, 1, 1, vec![])]), "S002");
}

#[test]
fn runaway_recursion() {
    let text = ".version 8.0 .target sm_90 .address_size 64
        .func f() { .local .b8 a[1000]; call.uni f; ret; }
        .entry k() { call.uni f; ret; }";
    let e = failure(machine(1).launch(&Module::parse(text).unwrap(), "k", &[grid(0, 1, 32, vec![])]), "S012");
    assert!(e.message.contains("call stack"), "{e}");
    let text = text.replace(".local .b8 a[1000];", "");
    failure(machine(1).launch(&Module::parse(&text).unwrap(), "k", &[grid(0, 1, 32, vec![])]), "S012");
}

#[test]
fn source_lines_come_from_loc() {
    let text = "
.version 8.0
.target sm_90
.address_size 64
	.file	1 \"./allreduce.weft\"
	.file	2 \"lib/barrier.weft\"
.visible .entry k()
{
	.reg .b32 %r<2>; .reg .b64 %rd<2>;
	.loc	1 10 5
	mov.b64 %rd1, 0;
	.loc	2 33 9, function_name $L__info_string0, inlined_at 1 12 3
	ld.global.b32 %r1, [%rd1];
	ret;
}
	.section	.debug_str
	{
$L__info_string0:
.b8 115,112,105,110,0
	}
";
    let module = Module::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let e = failure(machine(1).launch(&module, "k", &[grid(0, 1, 1, vec![])]), "S002");
    let source: Vec<String> = e.at.as_ref().unwrap().source.iter().map(|s| s.to_string()).collect();
    assert_eq!(source, ["lib/barrier.weft:33:9", "./allreduce.weft:12:3"]);
    let text = e.to_string();
    assert!(text.contains("PE 0, CTA (0, 0, 0), thread (0, 0, 0) of `k`"), "{text}");
    assert!(text.contains("PTX line 13: ld.global.b32"), "{text}");
}

#[test]
fn requests_that_make_no_sense() {
    let code = |r: Result<weft_sim::Stats, weft_sim::SimError>| r.unwrap_err().code;
    let k = Module::parse(
        ".version 8.0 .target sm_90 .address_size 64
        .extern .shared .b8 d[];
        .entry k(.param .u32 n) .reqntid 64, 1, 1 { ret; }
        .entry m() .maxntid 64, 2 { .reg .b64 %rd; mov.b64 %rd, d; ret; }",
    )
    .unwrap();
    let mut m = machine(2);
    let one = vec![Arg::U32(1)];
    assert_eq!(code(m.launch(&k, "nothing", &[])), "S001");
    assert_eq!(code(m.launch(&k, "k", &[grid(2, 1, 64, one.clone())])), "S001");
    assert_eq!(code(m.launch(&k, "k", &[grid(0, 1, 32, one.clone())])), "S001");
    assert_eq!(code(m.launch(&k, "k", &[grid(0, 0, 64, one.clone())])), "S001");
    assert_eq!(code(m.launch(&k, "k", &[grid(0, 1, 64, vec![])])), "S001");
    assert_eq!(code(m.launch(&k, "k", &[grid(0, 1, 64, vec![Arg::U64(1)])])), "S001");
    assert_eq!(code(m.launch(&k, "m", &[grid(0, 1, 129, vec![])])), "S001");
    assert_eq!(code(m.launch(&k, "m", &[grid(0, 1, 32, vec![]).dynamic_shared(228 << 10)])), "S001");
    let block = [u32::MAX, u32::MAX, u32::MAX];
    assert_eq!(code(m.launch(&k, "m", &[grid(0, 1, 32, vec![]).block(block)])), "S001");
    assert!(m.launch(&k, "m", &[grid(0, 1, 128, vec![]).dynamic_shared(227 << 10)]).is_ok());

    assert_eq!(Machine::new(Config::default().n_pes(0)).unwrap_err().code, "S001");
    assert_eq!(Machine::new(Config::default().n_pes(1 << 40)).unwrap_err().code, "S001");
    assert_eq!(m.alloc(2, "x", 1, 1).unwrap_err().code, "S001");
    assert_eq!(m.alloc(0, "x", 1, 3).unwrap_err().code, "S001");
    assert_eq!(m.alloc(0, "x", u64::MAX, 16).unwrap_err().code, "S012");
    assert_eq!(m.alloc_symmetric("x", u64::MAX / 2, 16).unwrap_err().code, "S012");
    assert_eq!(m.alloc(0, "x", 9 << 30, 16).unwrap_err().code, "S012");
    assert_eq!(m.team(&[]).unwrap_err().code, "S001");
    assert_eq!(m.team(&[0, 0]).unwrap_err().code, "S001");
    assert_eq!(m.team(&[0, 2]).unwrap_err().code, "S001");
    let x = m.alloc(0, "x", 8, 8).unwrap();
    assert_eq!(m.write(0, x, &[0; 9]).unwrap_err().code, "S003");
    assert_eq!(m.read(1, x, &mut [0; 1]).unwrap_err().code, "S002");
}

#[test]
fn unwritten_memory_is_poison() {
    let mut m = machine(1);
    let x = m.alloc(0, "x", 8, 8).unwrap();
    let mut bytes = [0; 4];
    m.read(0, x, &mut bytes).unwrap();
    assert!(f32::from_le_bytes(bytes).is_nan());
}

/// More local memory than the host has is an error, not an attempt.
#[test]
fn absurd_local_memory() {
    let text = ".version 8.0 .target sm_90 .address_size 64
        .entry k() { .local .b8 a[1000000000]; .reg .b64 %r; mov.b64 %r, a; ret; }";
    failure(machine(1).launch(&Module::parse(text).unwrap(), "k", &[grid(0, 1, 1024, vec![])]), "S012");
}
