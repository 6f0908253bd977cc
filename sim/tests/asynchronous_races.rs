//! Races with asynchronous copies: what the detector finds where a wait, a barrier or a proxy fence is missing, and
//! that it finds nothing where they are not.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use weft_sim::{Arg, Check, Config, Finding, Launch, Machine, Module, SimError};

/// `[%rd1]` are 1 KiB that the host has written, `[%rd2]` another; `s` is shared memory, `bar` and `bar2` are mbarriers, `%r1`
/// the thread, `%p1` says that it is the first, `%r4` is the thread's word of `s`.
fn findings(body: &str, ctas: u32, threads: u32, seed: u64) -> Vec<Finding> {
    try_findings(body, ctas, threads, seed).unwrap_or_else(|e| panic!("seed {seed}: {e}"))
}

fn try_findings(body: &str, ctas: u32, threads: u32, seed: u64) -> Result<Vec<Finding>, SimError> {
    let text = format!(
        ".version 8.6 .target sm_90a .address_size 64
        .visible .entry k(.param .u64 p0, .param .u64 p1) {{
        .reg .b64 %rd<16>; .reg .b32 %r<32>; .reg .pred %p<8>;
        .shared .align 128 .b8 s[1024]; .shared .align 8 .b64 bar; .shared .align 8 .b64 bar2;
        ld.param.b64 %rd1, [p0]; ld.param.b64 %rd2, [p1];
        mov.u32 %r1, %tid.x; setp.eq.u32 %p1, %r1, 0; mul.lo.u32 %r2, %r1, 4; mov.u32 %r3, s; add.u32 %r4, %r3, %r2;
        cvt.u64.u32 %rd3, %r2; add.u64 %rd4, %rd1, %rd3; add.u64 %rd5, %rd2, %rd3; xor.b32 %r5, %r4, 128;
        {body}
        ret; }}"
    );
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{e}"));
    let mut m = Machine::new(Config::default().seed(seed).check(Some(Check::default()))).unwrap();
    let [x, y] = ["x", "y"].map(|name| {
        let addr = m.alloc(0, name, 1024, 128).unwrap();
        m.write(0, addr, &[1; 1024]).unwrap();
        addr
    });
    let cluster = if ctas > 1 { [ctas, 1, 1] } else { [1, 1, 1] };
    let args = vec![Arg::U64(x), Arg::U64(y)];
    let launch = Launch::default().grid([ctas, 1, 1]).block([threads, 1, 1]).cluster(cluster).args(args);
    m.launch(&module, "k", &[launch])?;
    Ok(m.take_findings())
}

/// In every schedule there is a finding of this code, which says so; and none of another.
fn finds(body: &str, code: &str, says: &str) {
    for seed in 0..10 {
        let found = findings(body, 1, 64, seed);
        assert!(!found.is_empty(), "seed {seed}: nothing is found in {body}");
        for f in &found {
            assert_eq!(f.code, code, "seed {seed}: {f}");
            assert!(f.to_string().contains(says), "seed {seed}: {f}");
        }
    }
}

fn clean(body: &str, ctas: u32) {
    for seed in 0..20 {
        if let Some(f) = findings(body, ctas, 64, seed).first() {
            panic!("seed {seed}: {f}\nin {body}");
        }
    }
}

const COPY: &str = "cp.async.ca.shared.global [%r4], [%rd4], 4; cp.async.commit_group;";

#[test]
fn copies_of_threads() {
    clean(&format!("{COPY} cp.async.wait_group 0; ld.shared.b32 %r9, [%r4];"), 1);
    clean(&format!("{COPY} cp.async.wait_group 0; bar.sync 0; ld.shared.b32 %r9, [%r5];"), 1);
    // Not waited for; waited for by another group's number; no barrier before another thread reads.
    finds(&format!("{COPY} ld.shared.b32 %r9, [%r4];"), "S035", "cp.async");
    finds(&format!("{COPY} bar.sync 0; ld.shared.b32 %r9, [%r5];"), "S035", "cp.async");
    finds(&format!("{COPY} cp.async.wait_group 1; ld.shared.b32 %r9, [%r4];"), "S035", "cp.async");
    let e = format!("{COPY} cp.async.wait_group 0; ld.shared.b32 %r9, [%r5];");
    assert!(findings(&e, 1, 64, 1).iter().any(|f| f.code == "S030" || f.code == "S035"));
    // The next copy into what others may still read.
    let again = format!("{COPY} cp.async.wait_group 0; bar.sync 0; ld.shared.b32 %r9, [%r5];");
    clean(&format!("{again} bar.sync 0; {COPY} cp.async.wait_all;"), 1);
    assert!(!findings(&format!("{again} {COPY} cp.async.wait_all;"), 1, 64, 3).is_empty());
    // Its source is written before it has been read.
    clean(&format!("{COPY} cp.async.wait_all; st.global.b32 [%rd4], 3;"), 1);
    finds(&format!("{COPY} st.global.b32 [%rd4], 3; cp.async.wait_all;"), "S035", "cp.async");
}

const INIT: &str = "@%p1 mbarrier.init.shared.b64 [bar], 1; @%p1 mbarrier.init.shared.b64 [bar2], 64;
    @%p1 fence.mbarrier_init.release.cluster; bar.sync 0;";
const LOAD: &str = "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256;
    @%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [s], [%rd1], 256, [bar];";

fn wait(bar: &str, parity: u32, n: u32) -> String {
    format!("W{n}: mbarrier.try_wait.parity.shared.b64 %p2, [{bar}], {parity}; @!%p2 bra W{n};")
}

#[test]
fn bulk_loads() {
    let w = wait("bar", 0, 0);
    clean(&format!("{INIT} {LOAD} {w} ld.shared.b32 %r9, [%r4];"), 1);
    finds(&format!("{INIT} {LOAD} bar.sync 0; ld.shared.b32 %r9, [%r4]; {w}"), "S035", "cp.async.bulk");
    // Relaxed waits learn nothing.
    let relaxed = "W: mbarrier.try_wait.parity.relaxed.cta.shared.b64 %p2, [bar], 0; @!%p2 bra W;";
    finds(&format!("{INIT} {LOAD} bar.sync 0; {relaxed} ld.shared.b32 %r9, [%r4];"), "S035", "cp.async.bulk");
    // The buffer is loaded again when all have arrived at the other mbarrier, or too early.
    let read = "ld.shared.b32 %r9, [%r4];";
    let free = "mbarrier.arrive.shared.b64 _, [bar2];";
    let again = format!("{} {LOAD} {}", wait("bar2", 0, 2), wait("bar", 1, 3));
    clean(&format!("{INIT} {LOAD} {w} {read} {free} {again} {read}"), 1);
    let early = format!("{LOAD} {} {free}", wait("bar", 1, 3));
    let found = findings(&format!("{INIT} {LOAD} {w} {read} {early} {read}"), 1, 64, 0);
    assert!(!found.is_empty());
}

/// That a later copy on another mbarrier is complete says nothing of an earlier one.
#[test]
fn two_mbarriers() {
    let init = "@%p1 mbarrier.init.shared.b64 [bar], 1; @%p1 mbarrier.init.shared.b64 [bar2], 1; bar.sync 0;";
    let load = "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar2], 256;
        @%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [s], [%rd1], 256, [bar];
        @%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [s+256], [%rd1], 256, [bar2]; bar.sync 0;";
    let (first, second) = (wait("bar", 0, 0), wait("bar2", 0, 1));
    let read = "ld.shared.b32 %r9, [%r4];";
    clean(&format!("{init} {load} {first} {second} {read} ld.shared.b32 %r9, [%r4+256];"), 1);
    finds(&format!("{init} {load} {second} {read} {first}"), "S035", "cp.async.bulk");
    finds(&format!("{init} {load} {first} ld.shared.b32 %r9, [%r4+256]; {second}"), "S035", "cp.async.bulk");
    // Neither does a group of the other kind.
    let copy = "cp.async.ca.shared.global [%r4+512], [%rd4], 4; cp.async.commit_group;";
    finds(
        &format!("{init} {copy} {load} {first} {second} ld.shared.b32 %r9, [%r4+512];"),
        "S035",
        "cp.async",
    );
}

#[test]
fn bulk_stores() {
    let fill = "st.shared.b32 [%r4], %r1;";
    let store =
        "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [s], 256; @%p1 cp.async.bulk.commit_group;";
    let all = "@%p1 cp.async.bulk.wait_group 0; bar.sync 0;";
    let read = "@%p1 cp.async.bulk.wait_group.read 0; bar.sync 0;";
    let fence = "fence.proxy.async.shared::cta;";
    clean(&format!("{fill} {fence} bar.sync 0; {store} {all} {fill} ld.global.b32 %r9, [%rd5];"), 1);
    clean(&format!("{fill} {fence} bar.sync 0; {store} {read} {fill}"), 1);
    // Without the fence the async proxy may see old bytes.
    finds(&format!("{fill} bar.sync 0; {store} {all}"), "S033", "fence.proxy.async");
    // Without the barrier it may overtake other threads.
    assert!(!findings(&format!("{fill} {fence} {store} {all}"), 1, 64, 0).is_empty());
    // The source is overwritten, or the result read, too early.
    let end = "@%p1 cp.async.bulk.wait_group 0;";
    finds(&format!("{fill} {fence} bar.sync 0; {store} bar.sync 0; {fill} {end}"), "S035", "cp.async.bulk");
    finds(
        &format!("{fill} {fence} bar.sync 0; {store} {read} ld.global.b32 %r9, [%rd5]; {end}"),
        "S035",
        "cp.async.bulk",
    );
}

/// Threads hand words to each other by an mbarrier's release and acquire.
#[test]
fn arrivals_release() {
    let init = "@%p1 mbarrier.init.shared.b64 [bar], 64; bar.sync 0;";
    let write = "st.shared.b32 [%r4], %r1;";
    let read = "ld.shared.b32 %r9, [%r5];";
    let w = wait("bar", 0, 0);
    clean(&format!("{init} {write} mbarrier.arrive.shared.b64 _, [bar]; {w} {read}"), 1);
    let states = "mbarrier.arrive.shared.b64 %rd6, [bar]; W: mbarrier.test_wait.shared.b64 %p2, [bar], %rd6; @!%p2 bra W;";
    clean(&format!("{init} {write} {states} {read}"), 1);
    let relaxed = "mbarrier.arrive.relaxed.cta.shared.b64 _, [bar];";
    finds(&format!("{init} {write} {relaxed} {w} {read}"), "S030", "ld.shared");
    clean(&format!("{init} {write} fence.acq_rel.cta; {relaxed} {w} {read}"), 1);
    finds(&format!("{init} mbarrier.arrive.shared.b64 _, [bar]; {write} {w} {read}"), "S030", "ld.shared");
    // cp.async and its arrival.
    let copy = "cp.async.ca.shared.global [%r4], [%rd4], 4; cp.async.mbarrier.arrive.noinc.shared.b64 [bar];";
    clean(&format!("{init} {copy} {w} {read}"), 1);
    // The initialisation must be visible to the others.
    let early = "@%p1 mbarrier.init.shared.b64 [bar], 64; @!%p1 nanosleep.u32 100; bar.warp.sync -1;";
    let body = format!("{early} mbarrier.arrive.shared.b64 _, [bar];");
    let found: Vec<Finding> =
        (0..40).filter_map(|seed| try_findings(&body, 1, 64, seed).ok()).flatten().collect();
    assert!(found.iter().all(|f| f.code == "S030") && !found.is_empty(), "{found:?}");
}

/// Across a cluster: multicast, remote stores and arrivals.
#[test]
fn clusters() {
    let head = "@%p1 mbarrier.init.shared.b64 [bar], 1; @%p1 fence.mbarrier_init.release.cluster;
        barrier.cluster.arrive.relaxed; barrier.cluster.wait.acquire;
        mov.u32 %r6, %cluster_ctarank; setp.eq.and.u32 %p3, %r6, 0, %p1;";
    let tail = "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;";
    let load = "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 256; .reg .b16 %h; mov.b16 %h, 3;
        @%p3 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [s], [%rd1], 256, [bar], %h;";
    let w = wait("bar", 0, 0);
    let read = "ld.shared.b32 %r9, [%r4];";
    clean(&format!("{head} {load} {w} {read} {tail}"), 2);
    for seed in 0..5 {
        let found = findings(&format!("{head} {load} {read} {w} {tail}"), 2, 64, seed);
        assert!(found.iter().any(|f| f.code == "S035"), "{found:?}");
    }
    // Plain stores to the other CTA, with the cluster's barrier or without.
    let send =
        "xor.b32 %r7, %r6, 1; mapa.shared::cluster.u32 %r8, %r4, %r7; st.shared::cluster.b32 [%r8], %r1;";
    clean(&format!("{head} {send} {tail} {read}"), 2);
    for seed in 0..5 {
        let relaxed = "barrier.cluster.arrive.relaxed; barrier.cluster.wait.acquire;";
        assert!(!findings(&format!("{head} {send} {relaxed} {read} {tail}"), 2, 64, seed).is_empty());
    }
}
