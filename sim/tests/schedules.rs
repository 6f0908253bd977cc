//! Schedules that the seed chooses, and stores that others see late.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use weft_sim::{Arg, Config, Launch, Machine, Module};

const SEEDS: u64 = 200;

/// PE 0 stores data and flag to PE 1, which waits for the flag and copies the data to `x[64]`.
fn message(store: &str, fence: &str) -> Module {
    Module::parse(&format!(
        ".version 8.6 .target sm_90 .address_size 64
.visible .entry k(.param .u64 own, .param .u64 peer, .param .u32 pe) {{
.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<4>;
ld.param.u64 %rd1, [own]; ld.param.u64 %rd2, [peer]; ld.param.u32 %r1, [pe];
setp.eq.u32 %p1, %r1, 0; @!%p1 bra wait;
st.u32 [%rd2], 42; {fence} {store} [%rd2+128], 1; bra done;
wait: ld.acquire.sys.u32 %r2, [%rd1+128]; setp.eq.u32 %p2, %r2, 0; @%p2 bra wait;
ld.u32 %r3, [%rd1]; st.u32 [%rd1+256], %r3;
done: ret; }}"
    ))
    .unwrap_or_else(|e| panic!("{e}"))
}

fn run(module: &Module, seed: u64, explore: bool) -> (u32, String) {
    let mut m = Machine::new(Config::default().n_pes(2).seed(seed).explore(explore)).unwrap();
    let x = m.alloc_symmetric("x", 512, 128).unwrap();
    let mut launches = Vec::new();
    for pe in 0..2 {
        let own = m.local_addr(pe, x).unwrap();
        m.write(pe, own, &[0; 512]).unwrap();
        let args = vec![Arg::U64(own), Arg::U64(m.peer_addr(pe, x, 1 - pe).unwrap()), Arg::U32(pe as u32)];
        launches.push(
            Launch::default().pe(pe).grid([1; 3]).block([1; 3]).cluster([1; 3]).dynamic_shared(0).args(args),
        );
    }
    let stats = m.launch(module, "k", &launches).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    let mut out = [0; 4];
    m.read(1, m.local_addr(1, x).unwrap() + 256, &mut out).unwrap();
    (u32::from_le_bytes(out), format!("{stats:?}"))
}

#[test]
fn stores_are_seen_late_unless_ordered() {
    let wrong = |store: &str, fence: &str| {
        let module = message(store, fence);
        (0..SEEDS).filter(|&s| run(&module, s, true).0 != 42).count()
    };
    assert!(wrong("st.relaxed.sys.u32", "") > 10);
    assert!(wrong("st.u32", "") > 5);
    assert!(wrong("st.release.gpu.u32", "") > 10, "a scope that does not reach the other PE");
    assert!(wrong("st.relaxed.sys.u32", "fence.acq_rel.gpu;") > 10);
    assert_eq!(wrong("st.release.sys.u32", ""), 0);
    assert_eq!(wrong("st.relaxed.sys.u32", "fence.acq_rel.sys;"), 0);
    assert_eq!(wrong("st.volatile.u32", "membar.sys;"), 0);
    // Without exploring, others see every store at once.
    let module = message("st.relaxed.sys.u32", "");
    assert!((0..SEEDS).all(|s| run(&module, s, false).0 == 42));
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let module = message("st.relaxed.sys.u32", "");
    for seed in 0..50 {
        assert_eq!(run(&module, seed, true), run(&module, seed, true), "seed {seed}");
    }
    let different: std::collections::BTreeSet<String> = (0..50).map(|s| run(&module, s, true).1).collect();
    assert!(different.len() > 5, "seeds choose different schedules");
}

#[test]
fn a_cta_sees_its_own_stores() {
    // Every thread stores, meets the others, and reads what its neighbour has stored.
    let module = Module::parse(
        ".version 8.6 .target sm_90 .address_size 64
.visible .entry k(.param .u64 x, .param .u64 unused, .param .u32 pe) {
.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<2>;
ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd3, %rd1, %rd2;
st.global.u32 [%rd3], 0; add.u32 %r2, %r1, 7; st.global.u32 [%rd3], %r2; bar.sync 0;
xor.b32 %r3, %r1, 33; mul.wide.u32 %rd2, %r3, 4; add.u64 %rd4, %rd1, %rd2; ld.global.u32 %r4, [%rd4];
add.u32 %r3, %r3, 7; setp.ne.u32 %p1, %r3, %r4; @%p1 trap; bar.sync 0;
atom.global.add.u32 %r5, [%rd3], 1; setp.ne.u32 %p1, %r5, %r2; @%p1 trap;
ret; }",
    )
    .unwrap_or_else(|e| panic!("{e}"));
    for seed in 0..SEEDS {
        let config = Config::default().seed(seed).explore(true);
        let mut m = Machine::new(config).unwrap();
        let x = m.alloc(0, "x", 512, 16).unwrap();
        let args = vec![Arg::U64(x), Arg::U64(0), Arg::U32(0)];
        let launch = Launch::default()
            .pe(0)
            .grid([1; 3])
            .block([128, 1, 1])
            .cluster([1; 3])
            .dynamic_shared(0)
            .args(args);
        m.launch(&module, "k", &[launch]).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}
