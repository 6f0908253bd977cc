//! Complete small kernels, on one PE and on many.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/host.rs"]
mod host;

use host::{buffer, floats, grid, machine, module, read_floats, read_words, symmetric, words};
use weft_sim::{Arg, Config, Launch, Machine, Module, Stats};

/// Two-shot allreduce; returns every PE's result.
fn two_shot(n_pes: usize, n: u32, ctas: u32, seed: u64) -> (Vec<Vec<f32>>, Stats) {
    let module = Module::parse(include_str!("ptx/two_shot.ptx")).unwrap_or_else(|e| panic!("{e}"));
    let mut m = Machine::new(Config::default().n_pes(n_pes).seed(seed)).unwrap();
    let value = |pe: usize| (0..n).map(|i| (i % 1000) as f32 + pe as f32).collect::<Vec<_>>();
    let x = symmetric(&mut m, "x", |pe| floats(&value(pe)));
    let sync = symmetric(&mut m, "sync", |_| words(&vec![0; ctas as usize]));
    let team = m.team(&(0..n_pes).collect::<Vec<_>>()).unwrap();
    let launches: Vec<Launch> = (0..n_pes)
        .map(|pe| {
            let args = vec![
                Arg::U64(m.multicast_addr(pe, x, team).unwrap()),
                Arg::U64(m.multicast_addr(pe, sync, team).unwrap()),
                Arg::U64(m.local_addr(pe, sync).unwrap()),
                Arg::U32(n),
                Arg::U32(pe as u32),
                Arg::U32(n_pes as u32),
            ];
            grid(pe, ctas, 512, args)
        })
        .collect();
    let stats = m.launch(&module, "two_shot", &launches).unwrap_or_else(|e| panic!("{e}"));
    let out = (0..n_pes).map(|pe| read_floats(&m, pe, m.local_addr(pe, x).unwrap(), n as usize)).collect();
    (out, stats)
}

#[test]
fn two_shot_over_sizes_and_teams() {
    for (n_pes, n, ctas) in
        [(1, 4, 1), (2, 37, 1), (3, 1000, 2), (8, 4099, 2), (5, 1, 1), (8, 7, 3), (4, 16384, 4)]
    {
        let (out, stats) = two_shot(n_pes, n, ctas, u64::from(n));
        let offsets: f32 = (0..n_pes).map(|p| p as f32).sum();
        for (pe, values) in out.iter().enumerate() {
            for (i, &v) in values.iter().enumerate() {
                assert_eq!(v, (i % 1000) as f32 * n_pes as f32 + offsets, "PE {pe} element {i} of {n}");
            }
        }
        // Every element is reduced once and stored once, by whoever owns it.
        let traffic = &stats.multicast[0];
        assert_eq!((traffic.ld_reduce, traffic.st), (u64::from(n) * 4, u64::from(n) * 4));
        assert_eq!(traffic.team.len(), n_pes);
        assert_eq!(stats.count("multimem.red"), stats.count("multimem.red.release.sys.global.add.u32"));
        assert_eq!(stats.count("multimem.red").1, 2 * n_pes as u64 * u64::from(ctas));
        assert_eq!(traffic.red, 4 * stats.count("multimem.red").1);
        // Four bar.sync in every CTA.
        assert_eq!(stats.barriers, 4 * n_pes as u64 * u64::from(ctas));
    }
}

#[test]
fn a_seed_gives_one_schedule() {
    let run = |seed| two_shot(4, 3000, 2, seed).1;
    assert_eq!(run(7), run(7));
    // Different seeds interleave differently: the spin loops run a different number of times.
    let counts: std::collections::HashSet<u64> = (0..8).map(|s| run(s).warp_instructions).collect();
    assert!(counts.len() > 1);
}

#[test]
fn vector_add_with_a_tail() {
    let module = Module::parse(include_str!("ptx/vector_add.ptx")).unwrap();
    let n = 10_001_usize;
    let (a, b): (Vec<f32>, Vec<f32>) = (0..n).map(|i| (i as f32, 0.5 * i as f32)).unzip();
    let mut m = machine(1);
    let (pa, pb) = (buffer(&mut m, 0, "a", &floats(&a)), buffer(&mut m, 0, "b", &floats(&b)));
    let out = m.alloc(0, "out", 4 * n as u64, 16).unwrap();
    let args = vec![Arg::U64(out), Arg::U64(pa), Arg::U64(pb), Arg::U32(n as u32)];
    let stats = m.launch(&module, "vector_add", &[grid(0, n.div_ceil(96) as u32, 96, args)]).unwrap();
    for (i, v) in read_floats(&m, 0, out, n).into_iter().enumerate() {
        assert_eq!(v, 1.5 * i as f32);
    }
    assert_eq!(stats.count("st.global.b32").1, n as u64);
    assert_eq!(stats.links, [0]);
}

/// A sum over a CTA: shuffles in each warp, shared memory between the warps, the last warp's lanes shuffled again.
const BLOCK_SUM: &str = "
    .reg .b64 %rd<8>; .reg .b32 %r<20>; .reg .pred %p<4>;
    .shared .align 4 .b8 part[128];
    ld.param.b64 %rd1, [p0]; ld.param.b64 %rd2, [p1];
    mov.u32 %r1, %tid.x; mov.u32 %r15, %ctaid.x; mov.u32 %r16, %ntid.x;
    mad.lo.s32 %r17, %r15, %r16, %r1;
    mul.wide.u32 %rd3, %r17, 4; add.s64 %rd4, %rd1, %rd3; ld.global.b32 %r2, [%rd4];
    shfl.sync.down.b32 %r3, %r2, 16, 31, -1; add.rn.f32 %r2, %r2, %r3;
    shfl.sync.down.b32 %r3, %r2, 8, 31, -1; add.rn.f32 %r2, %r2, %r3;
    shfl.sync.down.b32 %r3, %r2, 4, 31, -1; add.rn.f32 %r2, %r2, %r3;
    shfl.sync.down.b32 %r3, %r2, 2, 31, -1; add.rn.f32 %r2, %r2, %r3;
    shfl.sync.down.b32 %r3, %r2, 1, 31, -1; add.rn.f32 %r2, %r2, %r3;
    and.b32 %r4, %r1, 31; shr.u32 %r5, %r1, 5;
    mov.u32 %r6, part; shl.b32 %r7, %r5, 2; add.s32 %r8, %r6, %r7;
    setp.ne.u32 %p1, %r4, 0;
    @%p1 bra JOIN;
    st.shared.b32 [%r8], %r2;
JOIN:
    bar.sync 0;
    setp.ne.u32 %p2, %r5, 0;
    @%p2 bra END;
    shr.u32 %r9, %r16, 5;
    setp.lt.u32 %p3, %r4, %r9;
    mov.b32 %r10, 0;
    shl.b32 %r11, %r4, 2; add.s32 %r12, %r6, %r11;
    @%p3 ld.shared.b32 %r10, [%r12];
    shfl.sync.bfly.b32 %r3, %r10, 16, 31, -1; add.rn.f32 %r10, %r10, %r3;
    shfl.sync.bfly.b32 %r3, %r10, 8, 31, -1; add.rn.f32 %r10, %r10, %r3;
    shfl.sync.bfly.b32 %r3, %r10, 4, 31, -1; add.rn.f32 %r10, %r10, %r3;
    shfl.sync.bfly.b32 %r3, %r10, 2, 31, -1; add.rn.f32 %r10, %r10, %r3;
    shfl.sync.bfly.b32 %r3, %r10, 1, 31, -1; add.rn.f32 %r10, %r10, %r3;
    setp.ne.u32 %p1, %r4, 0;
    @%p1 bra END;
    mul.wide.u32 %rd5, %r15, 4; add.s64 %rd6, %rd2, %rd5; st.global.b32 [%rd6], %r10;
END:";

#[test]
fn block_reduction() {
    let module = module("u64 u64", BLOCK_SUM);
    assert_eq!(module.kernel("k").unwrap().shared_bytes, 128);
    for threads in [32_u32, 256, 1024] {
        let n = 3 * threads as usize;
        let data: Vec<f32> = (0..n).map(|i| (i * i % 97) as f32).collect();
        let mut m = machine(1);
        let input = buffer(&mut m, 0, "in", &floats(&data));
        let out = m.alloc(0, "out", 12, 4).unwrap();
        m.launch(&module, "k", &[grid(0, 3, threads, vec![Arg::U64(input), Arg::U64(out)])]).unwrap();
        let want: Vec<f32> = data.chunks(threads as usize).map(|c| c.iter().sum()).collect();
        assert_eq!(read_floats(&m, 0, out, 3), want);
    }
}

/// 8 PEs arrive at a counter on every PE by multimem.red and each waits on its own copy, twice.
#[test]
fn barrier_across_eight_pes() {
    let module = module(
        "u64 u64 u64 u32",
        ".reg .b64 %rd<6>; .reg .b32 %r<6>; .reg .pred %p;
        ld.param.b64 %rd1, [p0]; ld.param.b64 %rd2, [p1]; ld.param.b64 %rd3, [p2]; ld.param.b32 %r1, [p3];
        // Before the barrier: tell the right neighbour who I am.
        st.relaxed.sys.global.b32 [%rd3], %r1;
        multimem.red.release.sys.global.add.u32 [%rd1], 1;
    W:  ld.acquire.sys.global.b32 %r2, [%rd2];
        setp.lt.u32 %p, %r2, 8;
        @%p bra W;
        // After it: the left neighbour's message has come.
        ld.relaxed.sys.global.b32 %r3, [%rd2+4];
        st.global.b32 [%rd2+8], %r3;",
    );
    let mut m = machine(8);
    let flags = symmetric(&mut m, "flags", |_| words(&[0, 99, 99]));
    let team = m.team(&[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
    let launches: Vec<Launch> = (0..8)
        .map(|pe| {
            let args = vec![
                Arg::U64(m.multicast_addr(pe, flags, team).unwrap()),
                Arg::U64(m.local_addr(pe, flags).unwrap()),
                Arg::U64(m.peer_addr(pe, flags, (pe + 1) % 8).unwrap() + 4),
                Arg::U32(pe as u32),
            ];
            grid(pe, 1, 1, args)
        })
        .collect();
    let stats = m.launch(&module, "k", &launches).unwrap();
    for pe in 0..8 {
        let got = read_words(&m, pe, m.local_addr(pe, flags).unwrap(), 3);
        assert_eq!(got, [8, (pe as u32 + 7) % 8, (pe as u32 + 7) % 8]);
        assert_eq!(stats.link(8, pe, (pe + 1) % 8), 4);
        assert_eq!(stats.link(8, (pe + 1) % 8, pe), 0);
    }
}

#[test]
fn printing() {
    let text = include_str!("ptx/printf.ptx");
    let module = Module::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let mut m = machine(2);
    let launches: Vec<Launch> = (0..2).map(|pe| grid(pe, 1, 2, vec![Arg::U32(pe as u32)])).collect();
    let stats = m.launch(&module, "hello", &launches).unwrap();
    let mut lines: Vec<&str> = stats.printed.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "PE 0: pe 0 thread 0: -1 4294967295 ffffffff -7000000000 1.500000 2.5 1e+20 abc Z 100%",
            "PE 0: pe 0 thread 1: -1 4294967295 ffffffff -7000000000 1.500000 2.5 1e+20 abc Z 100%",
            "PE 1: pe 1 thread 0: -1 4294967295 ffffffff -7000000000 1.500000 2.5 1e+20 abc Z 100%",
            "PE 1: pe 1 thread 1: -1 4294967295 ffffffff -7000000000 1.500000 2.5 1e+20 abc Z 100%",
        ]
    );
}

/// fib(n) by a function that calls itself, each lane to its own depth.
#[test]
fn recursion_diverges_and_returns() {
    let text = "
.version 8.6
.target sm_90a
.address_size 64
.func (.param .b32 result) fib(.param .b32 n)
{
    .reg .b32 %r<8>; .reg .pred %p;
    ld.param.b32 %r1, [n];
    setp.lt.u32 %p, %r1, 2;
    @%p bra BASE;
    add.s32 %r2, %r1, -1;
    {
    .param .b32 a; .param .b32 r;
    st.param.b32 [a], %r2;
    call.uni (r), fib, (a);
    ld.param.b32 %r3, [r];
    }
    add.s32 %r4, %r1, -2;
    {
    .param .b32 a; .param .b32 r;
    st.param.b32 [a], %r4;
    call.uni (r), fib, (a);
    ld.param.b32 %r5, [r];
    }
    add.s32 %r6, %r3, %r5;
    st.param.b32 [result], %r6;
    ret;
BASE:
    st.param.b32 [result], %r1;
    ret;
}
.visible .entry k(.param .u64 out)
{
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    .param .b32 a; .param .b32 r;
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 15;
    st.param.b32 [a], %r2;
    call (r), fib, (a);
    ld.param.b32 %r3, [r];
    ld.param.b64 %rd1, [out];
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.b32 [%rd3], %r3;
}";
    let module = Module::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let mut m = machine(1);
    let out = m.alloc(0, "out", 64 * 4, 4).unwrap();
    m.launch(&module, "k", &[grid(0, 1, 64, vec![Arg::U64(out)])]).unwrap();
    let mut fib = vec![0, 1];
    for i in 2..16 {
        fib.push(fib[i - 1] + fib[i - 2]);
    }
    for (i, v) in read_words(&m, 0, out, 64).into_iter().enumerate() {
        assert_eq!(v, fib[i % 16]);
    }
}

/// Dynamic shared memory lies behind the static, generic addresses reach both and local memory.
#[test]
fn windows_of_generic_addresses() {
    let text = "
.version 8.6
.target sm_90a
.address_size 64
.extern .shared .align 16 .b8 dyn[];
.shared .align 8 .b8 fixed[24];
.visible .entry k(.param .u64 out)
{
    .local .align 8 .b8 depot[16];
    .reg .b64 %rd<20>; .reg .b32 %r<10>; .reg .pred %p<6>;
    ld.param.b64 %rd1, [out];
    mov.b64 %rd2, dyn; cvta.shared.u64 %rd3, %rd2;
    mov.b64 %rd4, fixed; cvta.shared.u64 %rd5, %rd4;
    mov.b64 %rd6, depot; cvta.local.u64 %rd7, %rd6;
    st.b32 [%rd3+4], 11;
    st.b32 [%rd5], 22;
    st.b32 [%rd7+8], 33;
    ld.shared.b32 %r1, [dyn+4]; st.global.b32 [%rd1], %r1;
    ld.shared.b32 %r2, [fixed]; st.global.b32 [%rd1+4], %r2;
    ld.local.b32 %r3, [depot+8]; st.global.b32 [%rd1+8], %r3;
    isspacep.shared %p1, %rd3; isspacep.local %p2, %rd7; isspacep.global %p3, %rd1; isspacep.global %p4, %rd5;
    selp.b32 %r4, 1, 0, %p1; selp.b32 %r5, 2, 0, %p2; selp.b32 %r6, 4, 0, %p3; selp.b32 %r7, 8, 0, %p4;
    or.b32 %r4, %r4, %r5; or.b32 %r4, %r4, %r6; or.b32 %r4, %r4, %r7; st.global.b32 [%rd1+12], %r4;
    cvta.to.shared.u64 %rd8, %rd3; sub.s64 %rd9, %rd8, %rd4; st.global.b64 [%rd1+16], %rd9;
    mov.u32 %r8, %dynamic_smem_size; st.global.b32 [%rd1+24], %r8;
    ret;
}";
    let module = Module::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let kernel = module.kernel("k").unwrap();
    assert_eq!((kernel.shared_bytes, kernel.dynamic_shared), (32, true));
    let mut m = machine(1);
    let out = m.alloc(0, "out", 28, 8).unwrap();
    let launch = grid(0, 1, 1, vec![Arg::U64(out)]).dynamic_shared(64);
    m.launch(&module, "k", &[launch]).unwrap();
    assert_eq!(read_words(&m, 0, out, 7), [11, 22, 33, 7, 32, 0, 64]);
}

/// Module variables: initial values, addresses in initialisers, one copy a PE, kept between launches.
#[test]
fn module_variables() {
    let text = "
.version 8.6
.target sm_90a
.address_size 64
.const .align 4 .b8 table[8] = {1, 0, 0, 0, 0xff, 0xff};
.visible .global .align 4 .u32 count = 5;
.visible .global .align 8 .u64 pointers[2] = {generic(count), generic(table)+4};
.visible .entry k()
{
    .reg .b64 %rd<4>; .reg .b32 %r<4>;
    ld.global.b64 %rd1, [pointers];
    ld.global.b64 %rd2, [pointers+8];
    ld.b32 %r1, [%rd2];
    atom.global.add.u32 %r2, [%rd1], %r1;
    ld.const.b32 %r3, [table];
    red.global.add.u32 [count], %r3;
}";
    let module = Module::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let mut m = machine(2);
    let at = m.symbol(1, &module, "count").unwrap();
    m.write(1, at, &words(&[100])).unwrap();
    for _ in 0..2 {
        m.launch(&module, "k", &[grid(0, 1, 1, vec![]), grid(1, 1, 1, vec![])]).unwrap();
    }
    let at0 = m.symbol(0, &module, "count").unwrap();
    assert_eq!(read_words(&m, 0, at0, 1), [5 + 2 * (0xffff + 1)]);
    assert_eq!(read_words(&m, 1, at, 1), [100 + 2 * (0xffff + 1)]);
    assert!(m.symbol(0, &module, "nothing").is_err());
}

/// A jump table that sends every lane elsewhere; the lanes meet again.
#[test]
fn jump_table() {
    let module = module(
        "u64",
        ".reg .b64 %rd<4>; .reg .b32 %r<6>;
        ld.param.b64 %rd1, [p0]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 3;
    T:  .branchtargets A, B, C, A;
        brx.idx %r2, T;
    A:  mov.b32 %r3, 10; bra.uni J;
    B:  mov.b32 %r3, 20; bra.uni J;
    C:  mov.b32 %r3, 30;
    J:  activemask.b32 %r4;
        mul.wide.u32 %rd2, %r1, 8; add.s64 %rd3, %rd1, %rd2; st.global.v2.b32 [%rd3], {%r3, %r4};",
    );
    let mut m = machine(1);
    let out = m.alloc(0, "out", 64 * 8, 8).unwrap();
    m.launch(&module, "k", &[grid(0, 1, 64, vec![Arg::U64(out)])]).unwrap();
    for (i, v) in read_words(&m, 0, out, 128).chunks(2).enumerate() {
        assert_eq!(v, [[10, 20, 30, 10][i % 4], u32::MAX], "lane {i}");
    }
}

/// Lane 0 waits for lane 31 of its own warp, in a loop that comes first in the program.
#[test]
fn lanes_of_a_warp_are_scheduled_independently() {
    let module = module(
        "u64",
        ".reg .b64 %rd<4>; .reg .b32 %r<6>; .reg .pred %p<4>;
        ld.param.b64 %rd1, [p0]; mov.u32 %r1, %tid.x;
        setp.eq.u32 %p1, %r1, 31;
        @%p1 bra SET;
    W:  ld.volatile.global.b32 %r2, [%rd1];
        setp.eq.u32 %p2, %r2, 0;
        @%p2 bra W;
        bra.uni END;
    SET: st.volatile.global.b32 [%rd1], 1;
    END: red.global.add.u32 [%rd1+4], 1;",
    );
    let mut m = machine(1);
    let flag = buffer(&mut m, 0, "flag", &words(&[0, 0]));
    m.launch(&module, "k", &[grid(0, 1, 32, vec![Arg::U64(flag)])]).unwrap();
    assert_eq!(read_words(&m, 0, flag, 2), [1, 32]);
}

/// A spin lock taken by every thread of several CTAs: mutual exclusion and progress.
#[test]
fn spin_lock() {
    let module = module(
        "u64",
        ".reg .b64 %rd<4>; .reg .b32 %r<6>; .reg .pred %p<4>;
        ld.param.b64 %rd1, [p0];
    TRY: atom.acquire.gpu.global.cas.b32 %r1, [%rd1], 0, 1;
        setp.ne.u32 %p1, %r1, 0;
        @%p1 bra TRY;
        ld.global.b32 %r2, [%rd1+4];
        add.s32 %r2, %r2, 1;
        st.global.b32 [%rd1+4], %r2;
        atom.release.gpu.global.exch.b32 %r3, [%rd1], 0;",
    );
    let mut m = machine(1);
    let lock = buffer(&mut m, 0, "lock", &words(&[0, 0]));
    m.launch(&module, "k", &[grid(0, 3, 96, vec![Arg::U64(lock)])]).unwrap();
    assert_eq!(read_words(&m, 0, lock, 2), [0, 288]);
}

/// Producer and consumer warps with bar.arrive and counts; an exited warp does not hold up a full barrier.
#[test]
fn named_barriers_and_exits() {
    let module = module(
        "u64",
        ".reg .b64 %rd<4>; .reg .b32 %r<8>; .reg .pred %p<4>;
        .shared .align 4 .b8 box[4];
        ld.param.b64 %rd1, [p0]; mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; mov.u32 %r5, box;
        setp.eq.u32 %p1, %r2, 2;
        @%p1 exit;
        setp.eq.u32 %p2, %r2, 1;
        @%p2 bra CONSUMER;
        st.shared.b32 [%r5], 77;
        bar.arrive 3, 64;
        bra.uni ALL;
    CONSUMER:
        bar.sync 3, 64;
        ld.shared.b32 %r3, [%r5];
        st.global.b32 [%rd1], %r3;
    ALL: bar.sync 0;
        red.global.add.u32 [%rd1+4], 1;",
    );
    let mut m = machine(1);
    let out = buffer(&mut m, 0, "out", &words(&[0, 0]));
    let stats = m.launch(&module, "k", &[grid(0, 1, 96, vec![Arg::U64(out)])]).unwrap();
    assert_eq!(read_words(&m, 0, out, 2), [77, 64]);
    assert_eq!(stats.barriers, 2);
}

#[test]
fn special_registers_in_three_dimensions() {
    let module = module(
        "u64",
        ".reg .b64 %rd<4>; .reg .b32 %r<20>;
        ld.param.b64 %rd1, [p0];
        mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z;
        mov.u32 %r4, %ntid.x; mov.u32 %r5, %ntid.y; mov.u32 %r6, %ntid.z;
        mov.u32 %r7, %ctaid.x; mov.u32 %r8, %ctaid.y; mov.u32 %r9, %ctaid.z;
        mad.lo.u32 %r10, %r3, %r5, %r2; mad.lo.u32 %r10, %r10, %r4, %r1;
        mov.u32 %r16, %nctaid.y; mov.u32 %r17, %nctaid.x;
        mad.lo.u32 %r11, %r9, %r16, %r8; mad.lo.u32 %r11, %r11, %r17, %r7;
        mul.lo.u32 %r12, %r4, %r5; mul.lo.u32 %r12, %r12, %r6;
        mad.lo.u32 %r13, %r11, %r12, %r10;
        mov.u32 %r14, %laneid; mov.u32 %r15, %warpid;
        shl.b32 %r15, %r15, 5; add.u32 %r14, %r14, %r15; sub.u32 %r14, %r14, %r10;
        add.u32 %r13, %r13, %r14;
        mul.wide.u32 %rd2, %r13, 4; add.s64 %rd3, %rd1, %rd2;
        red.global.add.u32 [%rd3], 1;",
    );
    let mut m = machine(1);
    let n = 3 * 2 * 4 * 5 * 3 * 2;
    let out = buffer(&mut m, 0, "out", &words(&vec![0; n]));
    let launch = Launch::default().grid([3, 2, 4]).block([5, 3, 2]).args(vec![Arg::U64(out)]);
    m.launch(&module, "k", &[launch]).unwrap();
    assert_eq!(read_words(&m, 0, out, n), vec![1; n]);
}

/// PTX as LLVM 22 printed it: a call of a device function, vprintf, shared memory, shuffles, a constant table,
/// atomics, a block of inline assembly with multimem, volatile and atomic accesses, a jump table.
#[test]
fn llvm_output() {
    let module = Module::parse(include_str!("ptx/llvm_everything.ptx")).unwrap_or_else(|e| panic!("{e}"));
    let n = 500_usize;
    let mut m = machine(2);
    let value = |pe: usize, i: usize| (i % 13) as f32 * 0.25 + 0.25 + pe as f32;
    let x = symmetric(&mut m, "x", |pe| floats(&(0..516).map(|i| value(pe, i)).collect::<Vec<_>>()));
    let out = buffer(&mut m, 0, "out", &words(&[0; 516]));
    let team = m.team(&[0, 1]).unwrap();
    let agg: Vec<u8> = (0..4_u64).flat_map(|v| (v + 1).to_le_bytes()).collect();
    let args = vec![
        Arg::U64(m.local_addr(0, x).unwrap()),
        Arg::U64(m.multicast_addr(0, x, team).unwrap()),
        Arg::U64(out),
        Arg::U32(n as u32),
        Arg::U16(0x3c00),
        Arg::U8(0xff),
        Arg::Bytes(agg),
    ];
    // The last warp is partly beyond n: the shuffle of its lanes needs them all, so leave them out of the CTA.
    let reqntid = module.kernel("k").unwrap().reqntid;
    assert_eq!(reqntid, Some([512, 1, 1]));
    let stats = m.launch(&module, "k", &[grid(0, 1, 512, args.clone())]);
    let e = stats.unwrap_err();
    assert_eq!(e.code, "S011", "lanes that have exited cannot be shuffled from: {e}");
    let mut args = args;
    args[3] = Arg::U32(512);
    let stats = m.launch(&module, "k", &[grid(0, 1, 512, args)]).unwrap_or_else(|e| panic!("{e}"));
    let helper = |v: f32| if v + v > 1.0 { (v + v) / v } else { v + v };
    let got = read_floats(&m, 0, out, 512);
    for (i, v) in got.into_iter().enumerate() {
        let r = helper(value(0, i ^ 1 ^ 4));
        let reduced = value(0, i) + value(1, i);
        assert_eq!(v, (r + 1.0 + 0.5) * 3.0 + reduced, "thread {i}");
    }
    assert_eq!(read_words(&m, 0, out + 512 * 4, 4), [5, 6, 1, 1]);
    assert_eq!(stats.printed.lines().count(), 512);
    assert!(stats.printed.starts_with("PE 0: pe "), "{}", &stats.printed[..80]);
}

/// PTX as NVRTC 13.5 printed it for a row-wise softmax in CUDA C++ (typed registers, line information).
#[test]
fn nvrtc_output() {
    let module = Module::parse(include_str!("ptx/nvrtc_softmax.ptx")).unwrap_or_else(|e| panic!("{e}"));
    let (rows, n) = (3_usize, 300_usize);
    let x: Vec<f32> = (0..rows * n).map(|i| ((i * 37 % 101) as f32 - 50.0) * 0.1).collect();
    let mut m = machine(1);
    let input = buffer(&mut m, 0, "x", &floats(&x));
    let out = m.alloc(0, "y", 4 * x.len() as u64, 16).unwrap();
    let args = vec![Arg::U64(out), Arg::U64(input), Arg::U32(n as u32)];
    m.launch(&module, "softmax", &[grid(0, rows as u32, 128, args)]).unwrap_or_else(|e| panic!("{e}"));
    let got = read_floats(&m, 0, out, x.len());
    for (row, got) in x.chunks(n).zip(got.chunks(n)) {
        let sum: f64 = row.iter().map(|v| f64::from(*v).exp()).sum();
        for (v, g) in row.iter().zip(got) {
            let want = f64::from(*v).exp() / sum;
            assert!((f64::from(*g) - want).abs() <= 1e-6 * want, "{g} for {want}");
        }
    }
}
