//! Thread-block clusters: coordinates, the cluster's barrier, shared memory of other CTAs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/host.rs"]
mod host;

use host::{failure, machine, module, read_words};
use weft_sim::{Arg, Config, Launch, Machine, Module, SimError, Stats};

/// Registers that the bodies use.
const REGISTERS: &str = ".reg .b64 %rd<16>; .reg .b32 %r<32>; .reg .pred %p<8>; ld.param.b64 %rd1, [p0];\n";

fn kernel(body: &str) -> Module {
    module("u64", &format!("{REGISTERS}{body}"))
}

/// `ctas` CTAs of `threads` threads in clusters of `cluster`, with a buffer of a word each.
fn run(
    kernel: &Module,
    ctas: u32,
    cluster: u32,
    threads: u32,
    seed: u64,
) -> Result<(Vec<u32>, Stats), SimError> {
    let mut m = Machine::new(Config::default().seed(seed)).unwrap();
    let n = (ctas * threads) as usize;
    let out = m.alloc(0, "out", n as u64 * 4, 16).unwrap();
    let launch = Launch::default()
        .grid([ctas, 1, 1])
        .block([threads, 1, 1])
        .cluster([cluster, 1, 1])
        .args(vec![Arg::U64(out)]);
    let stats = m.launch(kernel, "k", &[launch])?;
    Ok((read_words(&m, 0, out, n), stats))
}

/// `%rd3` becomes the address of the thread's word.
const WORD: &str =
    "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, %r2, %r3;
    mul.wide.u32 %rd2, %r4, 4; add.s64 %rd3, %rd1, %rd2;\n";

/// Each thread gets its neighbour CTA's value, through every kind of address.
const NEIGHBOUR: &str = "
    .shared .align 4 .b32 x[64];
    mov.u32 %r5, %cluster_ctarank; mov.u32 %r6, %cluster_nctarank;
    mov.u32 %r7, x; mad.lo.u32 %r8, %r3, 4, %r7;
    st.shared.b32 [%r8], %r4;
    barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    add.u32 %r9, %r5, 1; rem.u32 %r9, %r9, %r6;
    mapa.shared::cluster.u32 %r10, %r8, %r9;
    ld.shared::cluster.b32 %r11, [%r10];
    cvt.u64.u32 %rd4, %r8; cvta.shared.u64 %rd4, %rd4;
    mapa.u64 %rd5, %rd4, %r9;
    ld.b32 %r12, [%rd5];
    getctarank.u64 %r13, %rd5;
    getctarank.shared::cluster.u32 %r14, %r8;
    isspacep.shared::cluster %p1, %rd5; isspacep.shared::cta %p2, %rd4; isspacep.shared::cta %p3, %rd5;
    setp.eq.u32 %p4, %r11, %r12; setp.eq.and.u32 %p4, %r13, %r9, %p4; setp.eq.and.u32 %p4, %r14, %r5, %p4;
    and.pred %p4, %p4, %p1; and.pred %p4, %p4, %p2; not.pred %p3, %p3; and.pred %p4, %p4, %p3;
    @!%p4 trap;
    st.global.b32 [%rd3], %r11;
    barrier.cluster.arrive.relaxed; barrier.cluster.wait;\n";

#[test]
fn shared_memory_of_the_neighbour() {
    let k = kernel(&format!("{WORD}{NEIGHBOUR}"));
    for seed in 0..20 {
        let (out, _) = run(&k, 8, 4, 40, seed).unwrap();
        for (i, v) in (0..).zip(&out) {
            let (cta, thread) = (i / 40, i % 40);
            assert_eq!(*v, (cta / 4 * 4 + (cta + 1) % 4) * 40 + thread);
        }
    }
}

#[test]
fn coordinates() {
    let names = ["clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid"];
    let mut body = String::new();
    for (i, name) in names.iter().flat_map(|n| ["x", "y", "z"].map(|d| format!("{n}.{d}"))).enumerate() {
        body += &format!("mov.u32 %r{}, %{name};\n", i + 8);
    }
    body += "mov.u32 %r20, %cluster_ctarank; mov.u32 %r21, %cluster_nctarank; mov.pred %p1, %is_explicit_cluster;
        selp.u32 %r22, 1, 0, %p1;
        mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %ctaid.z;
        mad.lo.u32 %r4, %r3, 4, %r2; mad.lo.u32 %r4, %r4, 6, %r1; mul.wide.u32 %rd2, %r4, 60; add.s64 %rd3, %rd1, %rd2;\n";
    for i in 0..15 {
        body += &format!("st.global.b32 [%rd3+{}], %r{};\n", 4 * i, i + 8);
    }
    let k = kernel(&body);
    let mut m = machine(1);
    let out = m.alloc(0, "out", 6 * 4 * 2 * 60, 16).unwrap();
    let launch = Launch::default().grid([6, 4, 2]).cluster([3, 2, 1]).args(vec![Arg::U64(out)]);
    m.launch(&k, "k", &[launch]).unwrap();
    let words = read_words(&m, 0, out, 48 * 15);
    for (n, got) in words.chunks(15).enumerate() {
        let [x, y, z] = [n as u32 % 6, n as u32 / 6 % 4, n as u32 / 24];
        let (cx, cy) = (x % 3, y % 2);
        assert_eq!(got, [x / 3, y / 2, z, 2, 2, 2, cx, cy, 0, 3, 2, 1, cx + 3 * cy, 6, 1]);
    }
}

/// The CTA of rank 0 sums what all CTAs of the cluster add to its counter.
#[test]
fn atomics_on_the_leader() {
    let k = kernel(
        "
    .shared .align 8 .b32 sum;
    mov.u32 %r1, %tid.x; mov.u32 %r2, sum; setp.eq.u32 %p1, %r1, 0;
    @%p1 st.shared.b32 [sum], 0;
    barrier.cluster.arrive; barrier.cluster.wait;
    mapa.shared::cluster.u32 %r3, sum, 0;
    red.relaxed.cluster.shared::cluster.add.u32 [%r3], 1;
    cvt.u64.u32 %rd4, %r3; cvta.shared::cluster.u64 %rd4, %rd4;
    atom.add.u32 %r4, [%rd4], 1;
    barrier.cluster.arrive; barrier.cluster.wait;
    mov.u32 %r5, %cluster_ctarank; setp.ne.or.u32 %p2, %r5, 0, !%p1;
    @%p2 ret;
    ld.shared.b32 %r6, [sum];
    mov.u32 %r7, %clusterid.x; mul.wide.u32 %rd2, %r7, 4; add.s64 %rd3, %rd1, %rd2;
    st.global.b32 [%rd3], %r6;",
    );
    for seed in 0..10 {
        assert_eq!(run(&k, 12, 3, 50, seed).unwrap().0[..4], [300; 4]);
    }
}

/// `.reqnctapercluster` is a cluster without being asked for; another one is refused.
#[test]
fn compiled_for_clusters() {
    let text = |directives: &str| {
        format!(
            ".version 8.6 .target sm_90 .address_size 64
            .visible .entry k(.param .u64 p0) {directives} {{ {REGISTERS}{WORD}
            mov.u32 %r5, %cluster_nctarank; st.global.b32 [%rd3], %r5; ret; }}"
        )
    };
    let k = Module::parse(&text(".explicitcluster .reqnctapercluster 2, 1, 1")).unwrap();
    assert_eq!(k.kernel("k").unwrap().cluster, Some([2, 1, 1]));
    assert_eq!(run(&k, 4, 1, 1, 0).unwrap().0, [2; 4]);
    assert_eq!(run(&k, 4, 2, 1, 0).unwrap().0, [2; 4]);
    assert_eq!(run(&k, 4, 4, 1, 0).unwrap_err().code, "S001");
    let e = run(&k, 3, 1, 1, 0).unwrap_err();
    assert!(e.message.contains("not a multiple of clusters"), "{e}");
    let k = Module::parse(&text(".maxclusterrank 4")).unwrap();
    assert_eq!(run(&k, 8, 4, 1, 0).unwrap().0, [4; 8]);
    assert_eq!(run(&k, 8, 8, 1, 0).unwrap_err().code, "S001");
    let k = kernel("");
    assert_eq!(run(&k, 32, 32, 1, 0).unwrap_err().code, "S001");
    assert_eq!(run(&k, 16, 0, 1, 0).unwrap_err().code, "S001");
}

#[test]
fn wrong_uses() {
    let fails = |body: &str, code: &str, says: &str| {
        let e = failure(run(&kernel(body), 4, 2, 32, 0).map(|(_, s)| s), code);
        assert!(e.to_string().contains(says), "{e}");
    };
    fails("barrier.cluster.wait;", "S007", "without an arrival");
    fails("barrier.cluster.arrive; barrier.cluster.arrive;", "S007", "a second barrier.cluster.arrive");
    fails("mapa.shared::cluster.u32 %r1, 0, 2;", "S011", "mapa has rank 2, but the cluster has 2 CTAs");
    fails("mov.u32 %r1, 0x5000000; ld.shared::cluster.b32 %r2, [%r1];", "S002", "the cluster has 2 CTAs");
    fails("mov.u32 %r1, 0x1000000; ld.shared.b32 %r2, [%r1];", "S003", "out of bounds");
    fails(
        ".shared .b32 x; mov.u32 %r1, x; mapa.shared::cluster.u32 %r1, %r1, 1; ld.shared::cluster.b32 %r2, [%r1+4];",
        "S003",
        "of the cluster's CTA 1 are out of bounds (size 4)",
    );
    // The lanes of a warp come to an aligned arrival in two parts.
    fails(
        "mov.u32 %r1, %laneid; setp.lt.u32 %p1, %r1, 16; @%p1 bra A;
        barrier.cluster.arrive.aligned; bra B; A: barrier.cluster.arrive.aligned; B: barrier.cluster.wait.aligned;",
        "S007",
        "only part of a warp",
    );
}

/// A CTA's shared memory ends with it: who reads it later must have waited.
#[test]
fn a_cta_that_has_ended() {
    let k = kernel(
        ".shared .b32 x; mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p1, %r1, 1; st.shared.b32 [x], 0; @%p1 ret;
        mov.u32 %r2, 0;
    L:  add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 2000; @%p2 bra L;
        mapa.shared::cluster.u32 %r3, x, 1; ld.shared::cluster.b32 %r4, [%r3];",
    );
    let e = failure(run(&k, 2, 2, 32, 0).map(|(_, s)| s), "S003");
    assert!(e.help.contains("ends with it"), "{e}");
}

/// One CTA waits for a cluster barrier to which the other does not come: the report counts.
#[test]
fn a_missing_cta() {
    let k = kernel(
        "mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p1, %r1, 1; @%p1 bra L;
        barrier.cluster.arrive; barrier.cluster.wait; ret;
    L:  ld.volatile.global.b32 %r2, [%rd1]; setp.ne.u32 %p2, %r2, 5; @%p2 bra L;",
    );
    let e = failure(run(&k, 2, 2, 64, 0).map(|(_, s)| s), "S008");
    assert!(e.to_string().contains("at the cluster barrier (64 of 128 threads arrived)"), "{e}");
    // Threads that exit are not waited for.
    let k = kernel(
        "mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p1, %r1, 1; @%p1 ret;
        barrier.cluster.arrive; barrier.cluster.wait;",
    );
    for seed in 0..10 {
        let (_, stats) = run(&k, 2, 2, 64, seed).unwrap();
        assert_eq!(stats.barriers, 1);
    }
}

/// More clusters than are resident at once run one after another.
#[test]
fn many_clusters() {
    let k = kernel(&format!("{WORD}{NEIGHBOUR}"));
    let mut m = Machine::new(Config::default().sms(3)).unwrap();
    let out = m.alloc(0, "out", 4 * 64 * 400, 16).unwrap();
    let launch =
        Launch::default().grid([400, 1, 1]).block([64, 1, 1]).cluster([5, 1, 1]).args(vec![Arg::U64(out)]);
    m.launch(&k, "k", &[launch]).unwrap();
    let words = read_words(&m, 0, out, 64 * 400);
    assert!((0..).zip(&words).all(|(i, v)| *v == (i / 320 * 5 + (i / 64 + 1) % 5) * 64 + i % 64));
}
