//! Asynchronous copies, their groups, and mbarriers: right uses over many schedules, and wrong ones.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/host.rs"]
mod host;

use host::{buffer, failure, module, read_words, words};
use std::collections::HashSet;
use weft_sim::{Arg, Config, Launch, Machine, SimError, Stats};

const N: usize = 256;

/// `%rd1` is the input (words 1000, 1001, ...), `%rd2` the output, `%r1` the thread; `s` is shared memory, `bar` and
/// `bar2` mbarriers in it.
const HEAD: &str = "
    .reg .b64 %rd<16>; .reg .b32 %r<32>; .reg .b16 %h<4>; .reg .pred %p<8>; .reg .f32 %f<8>; .reg .f64 %fd<4>;
    .shared .align 128 .b8 s[1024]; .shared .align 8 .b64 bar; .shared .align 8 .b64 bar2;
    ld.param.b64 %rd1, [p0]; ld.param.b64 %rd2, [p1];
    mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; mul.lo.u32 %r2, %r1, 4; mov.u32 %r3, s; add.u32 %r4, %r3, %r2;
    cvt.u64.u32 %rd3, %r2; add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3;
    st.shared.b32 [%r4], 7; bar.sync 0;
";

fn launch(body: &str, grid: Launch, seed: u64) -> (Result<Stats, SimError>, Vec<u32>) {
    let k = module("u64 u64", &format!("{HEAD}{body}"));
    let mut m = Machine::new(Config::default().seed(seed)).unwrap();
    let input: Vec<u32> = (1000..1000 + N as u32).collect();
    let (x, y) = (buffer(&mut m, 0, "x", &words(&input)), buffer(&mut m, 0, "y", &words(&[0; N])));
    let args = vec![Arg::U64(x), Arg::U64(y)];
    let result = m.launch(&k, "k", &[grid.args(args)]);
    (result, read_words(&m, 0, y, N))
}

fn threads(n: u32) -> Launch {
    Launch::default().block([n, 1, 1])
}

/// Runs over many schedules; the output's first words are always these.
fn always(body: &str, grid: Launch, expected: &[u32]) {
    for seed in 0..40 {
        let (result, out) = launch(body, grid.clone(), seed);
        result.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(&out[..expected.len()], expected, "seed {seed}");
    }
}

/// Runs over many schedules; the output's first word is each of these some time.
fn sometimes(body: &str, grid: Launch, expected: &[u32]) {
    let found: HashSet<u32> = (0..60)
        .map(|seed| {
            let (result, out) = launch(body, grid.clone(), seed);
            result.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
            out[0]
        })
        .collect();
    assert_eq!(found, expected.iter().copied().collect());
}

/// Fails with this code in every schedule, and the report says so.
fn fails(body: &str, grid: Launch, code: &str, says: &str) -> SimError {
    let mut last = None;
    for seed in 0..8 {
        let e = failure(launch(body, grid.clone(), seed).0, code);
        assert!(e.to_string().contains(says), "seed {seed}: {e}");
        last = Some(e);
    }
    last.unwrap()
}

const STORE: &str = "ld.shared.b32 %r9, [%r4]; st.global.b32 [%rd5], %r9;";

// ---- cp.async ----------------------------------------------------------------------------------------------

#[test]
fn copies_of_all_sizes() {
    let all: Vec<u32> = (1000..1064).collect();
    let body = |copy: &str| format!("{copy} cp.async.wait_all; bar.sync 0; {STORE}");
    always(&body("cp.async.ca.shared.global [%r4], [%rd4], 4;"), threads(64), &all);
    for (modifiers, bytes) in [
        ("ca.shared::cta.global", 8),
        ("ca.shared.global.L2::128B", 16),
        ("cg.shared.global", 16),
        ("cg.shared::cta.global.L2::cache_hint.L2::64B", 16),
    ] {
        let hint = if modifiers.contains("hint") { ", %rd7" } else { "" };
        let copy = format!(
            "rem.u32 %r5, %r2, {bytes}; setp.eq.u32 %p2, %r5, 0; mov.b64 %rd7, 0;
            @%p2 cp.async.{modifiers} [%r4], [%rd4], {bytes}{hint};"
        );
        always(&body(&copy), threads(64), &all);
    }
}

/// What the source does not give is zero; a source of which nothing is read need not exist.
#[test]
fn copies_that_fill() {
    let body = |copy: &str| format!("@%p1 {copy} cp.async.wait_all; bar.sync 0; {STORE}");
    let fill =
        |n: usize| [1000, 1001, 1002, 1003, 7, 7].map(|v: u32| if v >= 1000 + n as u32 { 0 } else { v });
    for n in [0, 1, 3, 4] {
        let copy = format!("cp.async.cg.shared.global [%r4], [%rd4], 16, {};", 4 * n);
        always(&body(&copy), threads(6), &fill(n));
    }
    always(&body("cp.async.ca.shared.global [%r4], [%rd4], 16, %p1;"), threads(6), &fill(0));
    always(&body("cp.async.ca.shared.global [%r4], [%rd4], 16, !%p1;"), threads(6), &fill(4));
    always(&body("cp.async.ca.shared.global [%r4], [0], 4, 0;"), threads(6), &[0, 7, 7, 7, 7, 7]);
}

/// Before it is waited for, a copy has landed or not, and has read its source or not.
#[test]
fn copies_land_late() {
    let read = "ld.shared.b32 %r9, [s]; st.global.b32 [%rd2], %r9;";
    let copy = "@!%p1 ret; cp.async.ca.shared.global [%r4], [%rd4], 4;";
    sometimes(&format!("{copy} {read}"), threads(1), &[7, 1000]);
    sometimes(&format!("{copy} cp.async.commit_group; {read}"), threads(1), &[7, 1000]);
    sometimes(
        &format!("{copy} cp.async.commit_group; cp.async.wait_group 1; {read}"),
        threads(1),
        &[7, 1000],
    );
    // Of two groups the first is complete, the second perhaps.
    let two = "cp.async.commit_group; cp.async.ca.shared.global [%r4+4], [%rd4+4], 4; cp.async.commit_group;
        cp.async.wait_group 1;";
    let second = "ld.shared.b32 %r9, [s+4]; st.global.b32 [%rd2], %r9;";
    let fill = "st.shared.b32 [s+4], 8;";
    always(&format!("{fill} {copy} {two} {read}"), threads(1), &[1000]);
    sometimes(&format!("{fill} {copy} {two} {second}"), threads(1), &[8, 1001]);
    always(&format!("{fill} {copy} {two} cp.async.wait_group 0; {second}"), threads(1), &[1001]);
    // The source is overwritten while the copy may still read it.
    sometimes(&format!("{copy} st.global.b32 [%rd4], 5; cp.async.wait_all; {read}"), threads(1), &[5, 1000]);
    always(&format!("{copy} cp.async.wait_all; st.global.b32 [%rd4], 5; {read}"), threads(1), &[1000]);
}

/// A pipeline of four stages: each thread copies its own words and waits for its own groups.
#[test]
fn a_pipeline() {
    let body = "
        mov.u32 %r5, 0; mov.u32 %r10, 0;
    F:  mad.lo.u32 %r6, %r5, 128, %r4; mul.wide.u32 %rd6, %r5, 128; add.u64 %rd6, %rd6, %rd4;
        cp.async.ca.shared.global [%r6], [%rd6], 4; cp.async.commit_group;
        add.u32 %r5, %r5, 1; setp.lt.u32 %p2, %r5, 3; @%p2 bra F;
        mov.u32 %r7, 0;
    L:  add.u32 %r5, %r7, 3; setp.ge.u32 %p3, %r5, 8; @%p3 bra S;
        and.b32 %r6, %r5, 3; mad.lo.u32 %r6, %r6, 128, %r4; mul.wide.u32 %rd6, %r5, 128; add.u64 %rd6, %rd6, %rd4;
        cp.async.ca.shared.global [%r6], [%rd6], 4;
    S:  cp.async.commit_group; cp.async.wait_group 3;
        and.b32 %r6, %r7, 3; mad.lo.u32 %r6, %r6, 128, %r4; ld.shared.b32 %r8, [%r6]; add.u32 %r10, %r10, %r8;
        add.u32 %r7, %r7, 1; setp.lt.u32 %p2, %r7, 8; @%p2 bra L;
        st.global.b32 [%rd5], %r10;";
    let sums: Vec<u32> = (0..32).map(|t| (0..8).map(|i| 1000 + 32 * i + t).sum()).collect();
    always(body, threads(32), &sums);
}

#[test]
fn copies_and_mbarriers() {
    let wait = "W: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra W;";
    let body = |count: u32, arrive: &str| {
        format!(
            "@%p1 mbarrier.init.shared.b64 [bar], {count}; bar.sync 0;
            cp.async.ca.shared.global [%r4], [%rd4], 4; {arrive} {wait}
            xor.b32 %r5, %r4, 4; ld.shared.b32 %r9, [%r5]; st.global.b32 [%rd5], %r9;"
        )
    };
    let swapped: Vec<u32> = (0..64).map(|i| 1000 + (i ^ 1)).collect();
    always(&body(64, "cp.async.mbarrier.arrive.noinc.shared.b64 [bar];"), threads(64), &swapped);
    let increments = "cp.async.mbarrier.arrive.shared::cta.b64 [bar]; mbarrier.arrive.shared.b64 _, [bar];";
    always(&body(64, increments), threads(64), &swapped);
    // Without the arrival of its own the phase never ends.
    let e =
        fails(&body(64, "cp.async.mbarrier.arrive.shared::cta.b64 [bar];"), threads(64), "S008", "mbarrier");
    assert!(
        e.notes.iter().any(|n| n.contains("phase 0 (parity 0) waits for 64 more of its 64 arrivals")),
        "{e}"
    );
}

#[test]
fn wrong_copies() {
    let one = |body: &str, code: &str, says: &str| fails(body, threads(1), code, says);
    one(
        "cp.async.ca.shared.global [%r4], [%rd4], 8, 12;",
        "S011",
        "src-size of 12 bytes, but a cp-size of 8",
    );
    one("cp.async.ca.shared.global [%r4+4], [%rd4], 16;", "S004", "not aligned to 16");
    one("cp.async.ca.shared.global [%r4], [%rd4+4], 16;", "S004", "`x`+4");
    one("cp.async.ca.shared.global [%r4], [%rd4+1024], 4;", "S003", "`x`+1024");
    one("cp.async.ca.shared.global [%r4+2048], [%rd4], 4;", "S003", "out of bounds");
    one("cp.async.mbarrier.arrive.noinc.shared.b64 [bar];", "S014", "it was not initialised");
}

// ---- mbarrier ----------------------------------------------------------------------------------------------

#[test]
fn phases_and_states() {
    let body = "
        mbarrier.init.shared.b64 [bar], 3;
        mbarrier.arrive.shared.b64 %rd6, [bar]; mbarrier.test_wait.shared.b64 %p2, [bar], %rd6;
        mbarrier.pending_count.b64 %r5, %rd6;
        mbarrier.test_wait.parity.shared.b64 %p3, [bar], 1;
        mbarrier.arrive.noComplete.shared.b64 %rd7, [bar], 1; mbarrier.pending_count.b64 %r6, %rd7;
        mbarrier.arrive_drop.release.cta.shared.b64 %rd8, [bar];
        mbarrier.test_wait.acquire.cta.shared.b64 %p4, [bar], %rd6;
        mbarrier.test_wait.parity.relaxed.cta.shared.b64 %p5, [bar], 0;
        mbarrier.arrive.shared::cta.b64 %rd9, [bar], 2; mbarrier.pending_count.b64 %r7, %rd9;
        mbarrier.test_wait.parity.shared.b64 %p6, [bar], 1;
        mbarrier.inval.shared.b64 [bar];
        mbarrier.init.b64 [%rd10], 1; mbarrier.arrive.b64 %rd6, [%rd10]; mbarrier.test_wait.b64 %p7, [%rd10], %rd6;
        selp.u32 %r10, 1, 0, %p2; selp.u32 %r11, 1, 0, %p3; selp.u32 %r12, 1, 0, %p4; selp.u32 %r13, 1, 0, %p5;
        selp.u32 %r14, 1, 0, %p6; selp.u32 %r15, 1, 0, %p7;
        st.global.v4.b32 [%rd2], {%r10, %r11, %r12, %r13}; st.global.v4.b32 [%rd2+16], {%r14, %r15, %r5, %r6};
        st.global.b32 [%rd2+32], %r7;";
    let body = format!("mov.u64 %rd10, bar2; cvta.shared.u64 %rd10, %rd10; {body}");
    always(&body, threads(1), &[0, 1, 1, 1, 1, 1, 3, 2, 2]);
}

/// Producers and consumers hand a buffer of one word to each other, 20 times.
#[test]
fn a_ring_of_one() {
    let body = "
        @%p1 mbarrier.init.shared.b64 [bar], 32; @%p1 mbarrier.init.shared.b64 [bar2], 32; bar.sync 0;
        and.b32 %r5, %r1, 31; mad.lo.u32 %r6, %r5, 4, %r3; mov.u32 %r7, 0; mov.u32 %r10, 0;
        setp.ge.u32 %p2, %r1, 32; @%p2 bra C;
    P:  and.b32 %r8, %r7, 1; xor.b32 %r9, %r8, 1;
    W:  mbarrier.try_wait.parity.shared.b64 %p3, [bar2], %r9, 100; @!%p3 bra W;
        mad.lo.u32 %r11, %r7, 100, %r1; st.shared.b32 [%r6], %r11; mbarrier.arrive.shared.b64 _, [bar];
        add.u32 %r7, %r7, 1; setp.lt.u32 %p4, %r7, 20; @%p4 bra P; ret;
    C:  and.b32 %r8, %r7, 1;
    V:  mbarrier.test_wait.parity.shared.b64 %p3, [bar], %r8; @!%p3 bra V;
        ld.shared.b32 %r11, [%r6]; mad.lo.u32 %r10, %r10, 3, %r11; mbarrier.arrive.shared.b64 _, [bar2];
        add.u32 %r7, %r7, 1; setp.lt.u32 %p4, %r7, 20; @%p4 bra C;
        st.global.b32 [%rd5+-128], %r10;";
    let expected: Vec<u32> = (0..32)
        .map(|t| (0..20).fold(0_u32, |sum, i| sum.wrapping_mul(3).wrapping_add(100 * i + t)))
        .collect();
    always(body, threads(64), &expected);
}

#[test]
fn transaction_counts() {
    let body = "
        mbarrier.init.shared.b64 [bar], 1;
        mbarrier.expect_tx.shared.b64 [bar], 100; mbarrier.arrive.expect_tx.shared.b64 _, [bar], 28;
        mbarrier.test_wait.parity.shared.b64 %p2, [bar], 0;
        mbarrier.complete_tx.relaxed.cta.shared.b64 [bar], 127;
        mbarrier.test_wait.parity.shared.b64 %p3, [bar], 0;
        mbarrier.complete_tx.relaxed.cta.shared.b64 [bar], 1;
        mbarrier.test_wait.parity.shared.b64 %p4, [bar], 0;
        mbarrier.complete_tx.shared.b64 [bar], 8; mbarrier.arrive.expect_tx.shared.b64 _, [bar], 8;
        mbarrier.test_wait.parity.shared.b64 %p5, [bar], 1;
        selp.u32 %r10, 1, 0, %p2; selp.u32 %r11, 1, 0, %p3; selp.u32 %r12, 1, 0, %p4; selp.u32 %r13, 1, 0, %p5;
        st.global.v4.b32 [%rd2], {%r10, %r11, %r12, %r13};";
    always(body, threads(1), &[0, 0, 1, 1]);
}

#[test]
fn wrong_mbarriers() {
    let init = "mbarrier.init.shared.b64 [bar], 2;";
    let one = |body: &str, says: &str| {
        let e = fails(&format!("{init} {body}"), threads(1), "S014", says);
        assert!(e.message.contains("bar") || !says.contains("mbarrier at"), "{e}");
    };
    one("mbarrier.arrive.shared.b64 _, [bar2];", "it was not initialised");
    one(
        "mbarrier.inval.shared.b64 [bar]; mbarrier.test_wait.parity.shared.b64 %p2, [bar], 0;",
        "it was invalidated",
    );
    one("st.shared.b64 [bar], 0; mbarrier.arrive.shared.b64 _, [bar];", "has been overwritten");
    one("mbarrier.init.shared.b64 [bar], 2;", "this memory already holds an mbarrier, in phase 0");
    one("mbarrier.arrive.shared.b64 _, [bar], 3;", "3 arrivals, but phase 0 waits for 2 more of its 2");
    one(
        "mbarrier.arrive.noComplete.shared.b64 %rd6, [bar], 2;",
        "the arrival has .noComplete, but it completes the phase",
    );
    one("mbarrier.init.shared.b64 [bar2], 0;", "0 arrivals");
    one("mbarrier.expect_tx.shared.b64 [bar], 1048576;", "the transaction count is 1048576 bytes");
    one(
        "mbarrier.arrive.shared.b64 _, [bar]; mbarrier.arrive.expect_tx.shared.b64 _, [bar], 8;
        mbarrier.complete_tx.shared.b64 [bar], 16;",
        "copies have brought 8 bytes more than phase 0 expected",
    );
    one("mbarrier.test_wait.parity.shared.b64 %p2, [bar], 2;", "the phase parity is 2");
    one(
        "mbarrier.arrive.shared.b64 %rd6, [bar]; mbarrier.arrive.shared.b64 _, [bar]; mbarrier.arrive.shared.b64 _, [bar], 2;
        mbarrier.test_wait.shared.b64 %p2, [bar], %rd6;",
        "the state belongs to phase 0, but the mbarrier is in phase 2",
    );
    fails(
        "mov.u64 %rd6, 16; mbarrier.arrive.b64 _, [%rd1];",
        threads(1),
        "S014",
        "place mbarriers in shared memory",
    );
    fails(
        "mbarrier.init.shared.b64 [bar], 1; barrier.cluster.arrive; barrier.cluster.wait;
        mov.u32 %r5, %cluster_ctarank; xor.b32 %r5, %r5, 1; mov.u64 %rd6, bar; cvta.shared.u64 %rd6, %rd6;
        mapa.u64 %rd6, %rd6, %r5; mbarrier.test_wait.parity.b64 %p2, [%rd6], 0; barrier.cluster.arrive;
        barrier.cluster.wait;",
        threads(1).grid([2, 1, 1]).cluster([2, 1, 1]),
        "S014",
        "a thread cannot wait at an mbarrier of another CTA",
    );
    fails("mbarrier.init.shared.b64 [s+4], 1;", threads(1), "S004", "not aligned to 8");
}

/// Who waits for a phase that nobody completes is told what is missing.
#[test]
fn waits_without_end() {
    let wait = |init: u32, work: &str, parity: u32| {
        format!(
            "@%p1 mbarrier.init.shared.b64 [bar], {init}; bar.sync 0; {work}
        W:  mbarrier.try_wait.parity.shared.b64 %p2, [bar], {parity}; @!%p2 bra W;"
        )
    };
    let arrive = "mbarrier.arrive.shared.b64 _, [bar];";
    let e = fails(&wait(65, arrive, 0), threads(64), "S008", "warps 0 to 1");
    assert!(e.to_string().contains("waits for 1 more of its 65 arrivals"), "{e}");
    assert!(e.to_string().contains("`k.bar`"), "{e}");
    // The wrong parity: the phase that the arrivals completed is not the one waited for.
    let e = fails(&wait(64, arrive, 1), threads(64), "S008", "waits at the mbarrier");
    assert!(e.to_string().contains("phase 1 (parity 1) waits for 64 more of its 64 arrivals"), "{e}");
    let e = fails(
        &wait(64, "@%p1 mbarrier.expect_tx.shared.b64 [bar], 64; mbarrier.arrive.shared.b64 _, [bar];", 0),
        threads(64),
        "S008",
        "mbarrier",
    );
    assert!(
        e.to_string().contains("waits for 0 more of its 64 arrivals and 64 bytes of asynchronous copies"),
        "{e}"
    );
}

// ---- bulk copies -------------------------------------------------------------------------------------------

const WAIT: &str = "W: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; @!%p2 bra W;";
const INIT: &str = "@%p1 mbarrier.init.shared.b64 [bar], 1; fence.proxy.async; bar.sync 0;";

#[test]
fn bulk_loads() {
    let all: Vec<u32> = (1000..1064).collect();
    for form in ["shared::cluster.global", "shared::cta.global"] {
        let body = format!(
            "{INIT} @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;
            @%p1 cp.async.bulk.{form}.mbarrier::complete_tx::bytes [s], [%rd1], 256, [bar]; {WAIT} {STORE}"
        );
        always(&body, threads(64), &all);
    }
    // Before the wait the bytes are there or not.
    let early = format!(
        "{INIT} mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;
        cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [s], [%rd1], 256, [bar];
        ld.shared.b32 %r9, [s]; st.global.b32 [%rd2], %r9; {WAIT}"
    );
    sometimes(&early, threads(1), &[7, 1000]);
}

#[test]
fn bulk_stores() {
    let all: Vec<u32> = (0..64).map(|i| i * i).collect();
    let fill =
        "mul.lo.u32 %r5, %r1, %r1; st.shared.b32 [%r4], %r5; fence.proxy.async.shared::cta; bar.sync 0;";
    let copy =
        "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [s], 256; @%p1 cp.async.bulk.commit_group;";
    for wait in ["cp.async.bulk.wait_group 0;", "cp.async.bulk.wait_group.read 0;"] {
        always(&format!("{fill} {copy} @%p1 {wait}"), threads(64), &all);
        // Overwritten behind the wait: the old values are on their way.
        always(&format!("{fill} {copy} @%p1 {wait} @%p1 st.shared.b32 [s+4], 99;"), threads(64), &all);
    }
    // Overwritten before it.
    let early = format!("{fill} {copy} @%p1 st.shared.b32 [s], 99; @%p1 cp.async.bulk.wait_group 0;");
    sometimes(&early, threads(64), &[0, 99]);
    // Read back too early.
    let back = "@%p1 ld.global.b32 %r9, [%rd2+16]; @%p1 st.global.b32 [%rd2], %r9;";
    let read = format!("{fill} {copy} @%p1 cp.async.bulk.wait_group.read 0; {back} bar.sync 0;");
    let found: HashSet<u32> = (0..60).map(|seed| launch(&read, threads(64), seed).1[0]).collect();
    assert!(found.contains(&0) && found.contains(&16), "{found:?}");
    // Of each 16 bytes those that the mask says.
    let masked = "mov.b16 %h1, 0xf00f;
        @%p1 cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd2], [s], 32, %h1; @%p1 cp.async.bulk.commit_group;
        @%p1 cp.async.bulk.wait_group 0;";
    always(&format!("{fill} {masked}"), threads(64), &[0, 0, 0, 9, 16, 0, 0, 49, 0]);
}

#[test]
fn bulk_reductions() {
    let cases: [(&str, &str, [u32; 2]); 8] = [
        ("add.u32", "st.shared.v2.b32 [s], {5, 6};", [105, 206]),
        ("min.s32", "st.shared.v2.b32 [s], {-1, 1000};", [u32::MAX, 200]),
        ("max.u32", "st.shared.v2.b32 [s], {3, 1000};", [100, 1000]),
        ("inc.u32", "st.shared.v2.b32 [s], {100, 1000};", [0, 201]),
        ("xor.b32", "st.shared.v2.b32 [s], {1, 8};", [101, 192]),
        ("and.b64", "st.shared.v2.b32 [s], {4, 8};", [4, 8]),
        ("add.u64", "st.shared.v2.b32 [s], {-1, 0};", [99, 201]),
        ("add.noftz.f16", "st.shared.v2.b32 [s], {0, 0};", [100, 200]),
    ];
    for (op, fill, expected) in cases {
        let body = format!(
            "@!%p1 ret; st.global.v2.b32 [%rd2], {{100, 200}}; {fill} fence.proxy.async;
            cp.reduce.async.bulk.global.shared::cta.bulk_group.{op} [%rd2], [s], 16; cp.async.bulk.commit_group;
            cp.async.bulk.wait_group 0;"
        );
        always(&body, threads(1), &expected);
    }
    // All CTAs at once: each element is reduced atomically.
    let body = "st.shared.b32 [%r4], 2; fence.proxy.async.shared::cta; bar.sync 0; @!%p1 ret;
        cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd2], [s], 256; cp.async.bulk.commit_group;
        cp.async.bulk.wait_group 0;";
    always(body, threads(64).grid([20, 1, 1]), &[40; 64]);
}

/// CTA 0 of a cluster sends to all others: by multicast, by copies from shared memory, element by element.
#[test]
fn across_the_cluster() {
    let grid = |ctas: u32| threads(32).grid([ctas, 1, 1]).cluster([ctas, 1, 1]);
    let head = |bytes: u32| {
        format!(
            "{INIT} barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
            mov.u32 %r5, %cluster_ctarank; setp.eq.and.u32 %p3, %r5, 0, %p1;
            @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], {bytes};"
        )
    };
    // CTA r writes its words behind those of the others.
    let tail = format!(
        "{WAIT} mul.wide.u32 %rd6, %r5, 128; add.u64 %rd5, %rd5, %rd6; {STORE}
        barrier.cluster.arrive; barrier.cluster.wait;"
    );
    let copied: Vec<u32> = (0..128).map(|i| 1000 + i % 32).collect();
    let multicast = "mov.b16 %h1, 15; @%p3 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes\
        .multicast::cluster [s], [%rd1], 128, [bar], %h1;";
    always(&format!("{} {multicast} {tail}", head(128)), grid(4), &copied);
    let each = |send: &str| {
        format!(
            "{} ld.global.b32 %r8, [%rd4]; @%p3 mov.u32 %r10, 0; add.u32 %r11, %r4, 512;
            st.shared.b32 [%r11], %r8; fence.proxy.async.shared::cta; bar.sync 0;
            setp.ne.u32 %p4, %r5, 0; @%p4 bra E; mov.u32 %r10, 0;
        S:  mapa.shared::cluster.u32 %r12, %r4, %r10; mapa.shared::cluster.u32 %r13, bar, %r10;
            mapa.shared::cluster.u32 %r14, s, %r10;
            {send}
            add.u32 %r10, %r10, 1; setp.lt.u32 %p5, %r10, 4; @%p5 bra S;
        E:  {tail}",
            head(128)
        )
    };
    let send = "@%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r14], [s+512], 128, [%r13];";
    always(&each(send), grid(4), &copied);
    let send = "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r12], %r8, [%r13];";
    always(&each(send), grid(4), &copied);
    // The words held 7.
    let added: Vec<u32> = copied.iter().map(|v| v + 7).collect();
    let send =
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r12], %r8, [%r13];";
    always(&each(send), grid(4), &added);
    let send = "@%p1 cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 \
        [%r14], [s+512], 128, [%r13];";
    always(&each(send), grid(4), &added);
}

/// Threads of other CTAs arrive at a CTA's mbarrier.
#[test]
fn remote_arrivals() {
    let body = format!(
        "@%p1 mbarrier.init.shared.b64 [bar], 64; fence.mbarrier_init.release.cluster;
        barrier.cluster.arrive; barrier.cluster.wait;
        mapa.shared::cluster.u32 %r5, bar, 0; mapa.shared::cluster.u32 %r6, %r4, 0; mov.u32 %r7, %cluster_ctarank;
        mad.lo.u32 %r6, %r7, 128, %r6; mad.lo.u32 %r8, %r7, 32, %r1;
        st.shared::cluster.b32 [%r6], %r8; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r5];
        setp.ne.u32 %p3, %r7, 0; @%p3 bra E;
        {WAIT}
        ld.shared.b32 %r9, [%r4]; st.global.b32 [%rd5], %r9; ld.shared.b32 %r9, [%r4+128]; st.global.b32 [%rd5+128], %r9;
    E:  barrier.cluster.arrive; barrier.cluster.wait;"
    );
    let all: Vec<u32> = (0..64).collect();
    always(&body, threads(32).grid([2, 1, 1]).cluster([2, 1, 1]), &all);
}

#[test]
fn wrong_bulk_copies() {
    let one = |body: &str, code: &str, says: &str| fails(&format!("{INIT} {body}"), threads(1), code, says);
    let load = "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes";
    one(&format!("{load} [s], [%rd1], 24, [bar];"), "S014", "a bulk copy has 24 bytes");
    one(&format!("{load} [s+8], [%rd1], 16, [bar];"), "S004", "not aligned to 16");
    one(&format!("{load} [s], [%rd1+8], 16, [bar];"), "S004", "`x`+8");
    one(&format!("{load} [s], [%rd1+1008], 32, [bar];"), "S003", "`x`+1008");
    one(&format!("{load} [s+1040], [%rd1], 32, [bar];"), "S003", "out of bounds");
    one(&format!("{load} [s], [%rd1], 16, [bar2]; {WAIT}"), "S014", "it was not initialised");
    let e = one(
        &format!(
            "{load} [s], [%rd1], 16, [bar]; st.shared.b64 [bar], 0; nanosleep.u32 9; bar.sync 0; {WAIT}"
        ),
        "S014",
        "has been overwritten",
    );
    assert_eq!(e.at.unwrap().thread, Some([0, 0, 0]));
    // More bytes than the phase expects.
    one(
        &format!("mbarrier.arrive.expect_tx.shared.b64 _, [bar], 16; {load} [s], [%rd1], 64, [bar]; nanosleep.u32 9; {WAIT}
            V: mbarrier.try_wait.parity.shared.b64 %p2, [bar], 1; @!%p2 bra V;"),
        "S014",
        "more than phase",
    );
    // Fewer.
    let e = one(
        &format!("mbarrier.arrive.expect_tx.shared.b64 _, [bar], 96; {load} [s], [%rd1], 64, [bar]; {WAIT}"),
        "S008",
        "waits for 0 more of its 1 arrivals and 32 bytes",
    );
    assert!(e.notes.iter().any(|n| n.contains("mbarrier")), "{e}");
    // The CTA ends before its shared memory has been read.
    let store = "cp.async.bulk.global.shared::cta.bulk_group [%rd2], [s], 256;";
    one(store, "S014", "ends while this operation may still read its shared memory");
    one(
        &format!("{store} cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 1;"),
        "S014",
        "may still read its shared memory",
    );
    // Another CTA's shared memory and this one's mbarrier.
    fails(
        &format!(
            "{INIT} mov.u32 %r5, %cluster_ctarank; xor.b32 %r5, %r5, 1; mapa.shared::cluster.u32 %r5, s, %r5;
            cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r5], [%rd1], 16, [bar];"
        ),
        threads(1).grid([2, 1, 1]).cluster([2, 1, 1]),
        "S014",
        "of different CTAs",
    );
    fails(
        &format!(
            "{INIT} mov.b16 %h1, 6; cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes\
            .multicast::cluster [s], [%rd1], 16, [bar], %h1;"
        ),
        threads(1).grid([2, 1, 1]).cluster([2, 1, 1]),
        "S014",
        "a multicast has the CTA mask 0x6, but the cluster has 2 CTAs",
    );
}

/// Bulk copies and reductions from shared memory to all members of a team.
#[test]
fn bulk_multicast() {
    let run = |op: &str, seed: u64| {
        let k = module(
            "u64 u32",
            &format!(
                ".reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .pred %p1; .shared .align 128 .b8 s[256];
                ld.param.b64 %rd1, [p0]; ld.param.b32 %r1, [p1]; mov.u32 %r2, %tid.x; setp.ne.u32 %p1, %r2, 0;
                mov.u32 %r3, s; mad.lo.u32 %r3, %r2, 4, %r3; mad.lo.u32 %r4, %r1, 1000, %r2; st.shared.b32 [%r3], %r4;
                fence.proxy.async.shared::cta; bar.sync 0; @%p1 ret;
                {op} [%rd1], [s], 256; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"
            ),
        );
        let mut m = Machine::new(Config::default().n_pes(3).seed(seed)).unwrap();
        let x = host::symmetric(&mut m, "x", |pe| words(&[pe as u32; 64]));
        let team = m.team(&[2, 0]).unwrap();
        let launches: Vec<Launch> = [0, 2]
            .iter()
            .map(|&pe| {
                let args = vec![Arg::U64(m.multicast_addr(pe, x, team).unwrap()), Arg::U32(pe as u32 + 1)];
                threads(64).pe(pe).args(args)
            })
            .collect();
        let stats = m.launch(&k, "k", &launches).unwrap_or_else(|e| panic!("{e}"));
        let counted = stats.multicast.iter().find(|t| t.team == [2, 0]).unwrap();
        assert_eq!((counted.st + counted.red, stats.links.iter().sum::<u64>()), (512, 0));
        [0, 1, 2].map(|pe| read_words(&m, pe, m.local_addr(pe, x).unwrap(), 64))
    };
    for seed in 0..20 {
        let [a, b, c] =
            run("multimem.cp.reduce.async.bulk.relaxed.sys.global.shared::cta.bulk_group.add.u32", seed);
        assert!((0..64).all(|i| a[i] == 4000 + 2 * i as u32 && b[i] == 1 && c[i] == 4002 + 2 * i as u32));
        let [a, b, c] = run("multimem.cp.async.bulk.global.shared::cta.bulk_group", seed);
        let from = |v: u32, i: usize| v == 1000 + i as u32 || v == 3000 + i as u32;
        assert!((0..64).all(|i| from(a[i], i) && b[i] == 1 && from(c[i], i)));
    }
}

/// Bulk copies are on the timeline, from issue to landing.
#[test]
fn timeline() {
    let body = format!(
        "{HEAD}{INIT} @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;
        @%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [s], [%rd1], 256, [bar]; {WAIT}
        @%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [s], 128; @%p1 cp.async.bulk.commit_group;
        @%p1 cp.async.bulk.wait_group 0;"
    );
    let k = module("u64 u64", &body);
    for seed in 0..10 {
        let trace = Some(weft_sim::TraceConfig::default());
        let mut m = Machine::new(Config::default().seed(seed).trace(trace)).unwrap();
        let [x, y] = ["x", "y"].map(|name| buffer(&mut m, 0, name, &words(&[1; N])));
        let launch = threads(64).args(vec![Arg::U64(x), Arg::U64(y)]);
        m.launch(&k, "k", &[launch]).unwrap();
        let t = m.take_trace().transfers;
        let bytes = |what: &str| t.iter().filter(|t| t.what == what).map(|t| t.bytes).sum::<usize>();
        assert_eq!((bytes("bulk load"), bytes("bulk store")), (256, 128), "{t:?}");
        assert!(t.iter().all(|t| t.start <= t.end && (t.from, t.to) == (0, 0)));
    }
}
