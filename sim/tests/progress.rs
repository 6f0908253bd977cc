//! Programs that cannot go on, programs that only seem so, and what is said about them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/host.rs"]
mod host;

use host::{buffer, failure, grid, machine, module, read_words, symmetric, words};
use weft_sim::{Arg, Config, Machine, Module};

/// Waits until the word at the first argument reaches the second.
fn wait() -> Module {
    module(
        "u64 u32",
        ".reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p;
        ld.param.b64 %rd1, [p0]; ld.param.b32 %r1, [p1];
    W:  ld.acquire.sys.global.b32 %r2, [%rd1];
        setp.lt.u32 %p, %r2, %r1;
        @%p bra W;",
    )
}

#[test]
fn a_flag_that_nobody_sets() {
    let mut m = machine(3);
    let flag = symmetric(&mut m, "flag", |pe| words(&[pe as u32]));
    let launches: Vec<_> = (0..3)
        .map(|pe| grid(pe, 1, 64, vec![Arg::U64(m.local_addr(pe, flag).unwrap()), Arg::U32(1)]))
        .collect();
    let e = failure(m.launch(&wait(), "k", &launches), "S008");
    // PEs 1 and 2 have their value; only PE 0 waits, with both warps.
    let [note, finished] = e.notes.as_slice() else { panic!("{e}") };
    assert!(note.starts_with("PE 0 CTA (0, 0, 0) warps 0 to 1: polls `flag`+0"), "{e}");
    assert!(note.contains(", reads 0") && note.contains("ld.acquire.sys"), "{e}");
    assert_eq!(finished, "finished: PE 1, PE 2");
    assert_eq!(e.at.unwrap().ptx_line, 8);
}

#[test]
fn a_late_signal_is_no_deadlock() {
    // PE 1 counts to a million first, without touching memory, then signals.
    let text = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 flag, .param .u32 pe)
{
    .reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p<3>;
    ld.param.b64 %rd1, [flag]; ld.param.b32 %r1, [pe];
    setp.eq.u32 %p1, %r1, 1;
    @%p1 bra COUNT;
W:  ld.volatile.global.b32 %r2, [%rd1];
    setp.eq.u32 %p2, %r2, 0;
    @%p2 bra W;
    ret;
COUNT:
    mov.b32 %r3, 0;
L:  add.s32 %r3, %r3, 1;
    setp.lt.u32 %p2, %r3, 1000000;
    @%p2 bra L;
    st.release.sys.global.b32 [%rd1], 1;
    ret;
}";
    let module = Module::parse(text).unwrap();
    let mut m = machine(2);
    let flag = symmetric(&mut m, "flag", |_| words(&[0]));
    let args =
        |m: &Machine, pe: usize| vec![Arg::U64(m.peer_addr(pe, flag, 0).unwrap()), Arg::U32(pe as u32)];
    let launches = [grid(0, 1, 32, args(&m, 0)), grid(1, 1, 1, args(&m, 1))];
    let stats = m.launch(&module, "k", &launches).unwrap();
    assert!(stats.warp_instructions > 3_000_000);
}

#[test]
fn a_bounded_wait_runs_out_by_itself() {
    let module = module(
        "u64",
        ".reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p<3>;
        ld.param.b64 %rd1, [p0]; mov.b32 %r1, 0;
    W:  ld.acquire.sys.global.b32 %r2, [%rd1];
        add.s32 %r1, %r1, 1;
        setp.gt.u32 %p1, %r1, 300000;
        @%p1 trap;
        setp.eq.u32 %p2, %r2, 0;
        @%p2 bra W;",
    );
    let mut m = machine(1);
    let flag = buffer(&mut m, 0, "flag", &words(&[0]));
    failure(m.launch(&module, "k", &[grid(0, 1, 1, vec![Arg::U64(flag)])]), "S010");
}

#[test]
fn a_missing_thread_at_a_barrier() {
    let module = module(
        "u64",
        ".reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p<3>;
        ld.param.b64 %rd1, [p0]; mov.u32 %r1, %tid.x;
        setp.lt.u32 %p1, %r1, 32;
        @%p1 bra W;
        bar.sync 2;
        ret;
    W:  ld.acquire.gpu.global.b32 %r2, [%rd1];
        setp.eq.u32 %p2, %r2, 0;
        @%p2 bra W;
        bar.sync 2;",
    );
    let mut m = machine(1);
    let flag = buffer(&mut m, 0, "flag", &words(&[0]));
    let e = failure(m.launch(&module, "k", &[grid(0, 1, 96, vec![Arg::U64(flag)])]), "S008");
    let text = e.to_string();
    assert!(text.contains("warps 1 to 2: waits at barrier 2 (64 of 96 threads arrived)"), "{text}");
    assert!(text.contains("warp 0: polls `flag`+0"), "{text}");
}

#[test]
fn a_barrier_in_divergent_code() {
    let module = module(
        "",
        ".reg .b32 %r<4>; .reg .pred %p<3>;
        mov.u32 %r1, %laneid; setp.lt.u32 %p1, %r1, 16;
        @%p1 bra A;
        bar.sync 0;
        bra.uni J;
    A:  bar.sync 0;
    J:",
    );
    let e = failure(machine(1).launch(&module, "k", &[grid(0, 1, 32, vec![])]), "S007");
    let text = e.to_string();
    assert!(text.contains("lanes 0x0000ffff") && text.contains("lanes 0xffff0000"), "{text}");
    // The unaligned form allows it.
    let body = ".reg .b32 %r<4>; .reg .pred %p<3>;
        mov.u32 %r1, %laneid; setp.lt.u32 %p1, %r1, 16;
        @%p1 bra A;
        barrier.sync 0;
        bra.uni J;
    A:  barrier.sync 0;
    J:";
    let stats = machine(1).launch(&host::module("", body), "k", &[grid(0, 1, 32, vec![])]).unwrap();
    assert_eq!(stats.barriers, 1);
}

#[test]
fn a_shuffle_without_its_members() {
    let module = module(
        "",
        ".reg .b32 %r<4>; .reg .pred %p<3>;
        mov.u32 %r1, %laneid; setp.lt.u32 %p1, %r1, 16;
        @%p1 bra J;
        shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;
        ret;
    J:  bra J;",
    );
    let e = failure(machine(1).launch(&module, "k", &[grid(0, 1, 32, vec![])]), "S008");
    assert!(e.to_string().contains("waits for lanes 0x0000ffff"), "{e}");
    assert!(e.to_string().contains("loops without reading memory"), "{e}");
}

#[test]
fn different_counts_at_one_barrier() {
    let module = module(
        "",
        ".reg .b32 %r<4>; .reg .pred %p<3>;
        mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 32;
        @%p1 bra A;
        bar.sync 1, 64;
        ret;
    A:  bar.sync 1, 96;",
    );
    failure(machine(1).launch(&module, "k", &[grid(0, 1, 96, vec![])]), "S007");
}

/// A grid-wide barrier works for as many CTAs as are resident, and is a reported deadlock for more.
#[test]
fn more_ctas_than_are_resident() {
    let module = module(
        "u64",
        ".reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p<3>;
        ld.param.b64 %rd1, [p0]; mov.u32 %r1, %nctaid.x;
        red.release.gpu.global.add.u32 [%rd1], 1;
    W:  ld.acquire.gpu.global.b32 %r2, [%rd1];
        setp.lt.u32 %p1, %r2, %r1;
        @%p1 bra W;",
    );
    // 2 SMs of 2048 threads hold 4 CTAs of 1024; one thread of each counts for simplicity.
    let run = |ctas| {
        let mut m = Machine::new(Config::default().sms(2)).unwrap();
        let count = buffer(&mut m, 0, "count", &words(&[0]));
        let body = grid(0, ctas, 1024, vec![Arg::U64(count)]);
        let r = m.launch(&module, "k", &[body]);
        (r, read_words(&m, 0, count, 1)[0])
    };
    // All 1024 threads of a CTA add: the condition is met as soon as any CTA has run.
    assert!(run(64).0.is_ok());
    let one = module_of_one_thread();
    let run = |ctas| {
        let mut m = Machine::new(Config::default().sms(2)).unwrap();
        let count = buffer(&mut m, 0, "count", &words(&[0]));
        m.launch(&one, "k", &[grid(0, ctas, 1024, vec![Arg::U64(count)])])
    };
    assert!(run(4).is_ok());
    let e = failure(run(5), "S015");
    assert!(e.to_string().contains("1 of 5 CTAs of `k` have not started: at most 4"), "{e}");
}

fn module_of_one_thread() -> Module {
    module(
        "u64",
        ".reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p<3>;
        ld.param.b64 %rd1, [p0]; mov.u32 %r1, %nctaid.x; mov.u32 %r3, %tid.x;
        setp.ne.u32 %p2, %r3, 0;
        @%p2 bra END;
        red.release.gpu.global.add.u32 [%rd1], 1;
    W:  ld.acquire.gpu.global.b32 %r2, [%rd1];
        setp.lt.u32 %p1, %r2, %r1;
        @%p1 bra W;
    END: bar.sync 0;",
    )
}

#[test]
fn the_step_limit() {
    let module = module("", ".reg .b32 %r<2>; mov.b32 %r1, 0;\nL: add.s32 %r1, %r1, 1;\nbra L;");
    let mut m = Machine::new(Config::default().step_limit(100_000)).unwrap();
    let e = failure(m.launch(&module, "k", &[grid(0, 1, 32, vec![])]), "S009");
    assert!(e.message.contains("100000"), "{e}");
    assert_eq!(e.notes.len(), 1, "{e}");
}

/// A loop whose state comes round only after many iterations is recognised all the same.
#[test]
fn a_long_cycle() {
    let module = module(
        "",
        ".reg .b32 %r<3>; .reg .pred %p;
        mov.b32 %r1, 1;
    L:  mad.lo.u32 %r1, %r1, 1664525, 1013904223;
        and.b32 %r1, %r1, 65535;
        bra L;",
    );
    failure(machine(1).launch(&module, "k", &[grid(0, 1, 1, vec![])]), "S008");
}

/// Waiting by an atomic that changes nothing, and by a read through a function.
#[test]
fn other_ways_to_wait() {
    for body in [
        "W: atom.global.cas.b32 %r2, [%rd1], 1, 2; setp.ne.u32 %p, %r2, 1; @%p bra W;",
        "W: atom.global.add.u32 %r2, [%rd1], 0; setp.ne.u32 %p, %r2, 1; @%p bra W;",
        "W: atom.global.exch.b32 %r2, [%rd1], 0; setp.ne.u32 %p, %r2, 1; @%p bra W;",
        "W: nanosleep.u32 100; ld.volatile.global.b32 %r2, [%rd1]; setp.ne.u32 %p, %r2, 1; @%p bra W;",
    ] {
        let text =
            format!(".reg .b64 %rd<4>; .reg .b32 %r<4>; .reg .pred %p; ld.param.b64 %rd1, [p0];\n{body}");
        let mut m = machine(1);
        let flag = buffer(&mut m, 0, "flag", &words(&[0]));
        let e =
            failure(m.launch(&module("u64", &text), "k", &[grid(0, 2, 64, vec![Arg::U64(flag)])]), "S008");
        let [note, finished] = e.notes.as_slice() else { panic!("{e}") };
        assert!(note.contains("`flag`+0"), "{e}");
        assert_eq!(finished, "no thread has finished");
    }
    let text = ".version 8.0 .target sm_90 .address_size 64
        .func (.param .b32 r) get(.param .b64 a) {
            .reg .b64 %rd; .reg .b32 %v; ld.param.b64 %rd, [a]; ld.relaxed.gpu.global.b32 %v, [%rd];
            st.param.b32 [r], %v; ret; }
        .entry k(.param .u64 p) {
            .reg .b64 %rd; .reg .b32 %v; .reg .pred %q; ld.param.b64 %rd, [p];
            W: { .param .b64 a; .param .b32 r; st.param.b64 [a], %rd; call.uni (r), get, (a); ld.param.b32 %v, [r]; }
            setp.eq.u32 %q, %v, 0; @%q bra W; ret; }";
    let mut m = machine(1);
    let flag = buffer(&mut m, 0, "flag", &words(&[0]));
    failure(m.launch(&Module::parse(text).unwrap(), "k", &[grid(0, 1, 32, vec![Arg::U64(flag)])]), "S008");
}

/// Lane 0 waits for the word at p0, and the others for the word at p1, which each count rounds and
/// look at a limit at p2 as watched waits do. The loops leave by their last branch, and the value
/// of lane 0's loop is compared by a predicate that other predicates join.
#[test]
fn lanes_of_a_warp_wait_for_different_words() {
    let text = ".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2)
{
    .reg .b64 %rd<8>; .reg .b32 %r<12>; .reg .pred %p<12>;
    ld.param.b64 %rd1, [p0];
    ld.param.b64 %rd2, [p1];
    ld.param.b64 %rd3, [p2];
    mov.u32 %r1, %tid.x;
    mov.b32 %r2, 0;
    mov.b32 %r7, 0;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra $OTHERS;
$FIRST:
    ld.acquire.sys.global.v2.b32 {%r3, %r4}, [%rd1];
    setp.ne.b32 %p2, %r3, 7;
    setp.ne.b32 %p3, %r4, 0;
    or.pred %p4, %p2, %p3;
    @%p4 bra $COUNT;
    bra.uni $END;
$COUNT:
    add.s32 %r2, %r2, 1;
    and.b32 %r5, %r2, 63;
    setp.ne.b32 %p5, %r5, 0;
    @%p5 bra $FIRST;
    ld.global.b32 %r6, [%rd3];
    setp.gt.s32 %p6, %r2, %r6;
    @!%p6 bra $FIRST;
    bra.uni $FIRST;
$OTHERS:
    ld.relaxed.sys.global.b32 %r8, [%rd2];
    add.s32 %r7, %r7, 1;
    and.b32 %r9, %r7, 63;
    setp.eq.b32 %p7, %r9, 0;
    mov.b32 %r10, %r8;
    setp.lt.s32 %p8, %r10, -2;
    not.pred %p9, %p8;
    @%p9 bra $OTHERS;
$END:
    ret;
}";
    let mut m = Machine::new(Config::default().n_pes(1).step_limit(40_003)).unwrap();
    let x = symmetric(&mut m, "x", |_| words(&[0, 0]));
    let y = symmetric(&mut m, "y", |_| words(&[3]));
    let limit = symmetric(&mut m, "limit", |_| words(&[1 << 20]));
    m.set_name(limit, weft_sim::Name::of_reports());
    let args = [x, y, limit].map(|at| Arg::U64(m.local_addr(0, at).unwrap())).to_vec();
    let e = failure(m.launch(&Module::parse(text).unwrap(), "k", &[grid(0, 1, 32, args)]), "S009");
    let [first, others] = e.notes.as_slice() else { panic!("{e}") };
    let polls = |line: &str, lanes: &str, what: &str| line.contains(lanes) && line.contains(what);
    let clock = "looks at the clock in a wait that reports itself";
    assert!(
        polls(first, "lanes 0x00000001", "polls `x`+0") && first.contains("reads 0 and waits for 7,")
            || polls(first, "lanes 0x00000001", clock),
        "{e}"
    );
    assert!(polls(others, "lanes 0xfffffffe", "polls `y`+0"), "{e}");
    assert!(others.contains("reads 3 and waits for less than -2,"), "{e}");
}
