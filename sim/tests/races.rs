//! What the race detector finds in small programs, and what it leaves alone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use weft_sim::{Arg, Check, Config, Finding, Launch, Machine, Module};

const HEADER: &str = ".version 8.6 .target sm_90 .address_size 64\n";

/// Two PEs (or one), each with `grid` CTAs of `block` threads; the kernel gets its own and the other PE's address of a
/// symmetric buffer of 4 KiB, written by the host, and the PE's number.
fn run(n_pes: usize, grid: u32, block: u32, body: &str, seed: u64) -> Vec<Finding> {
    run_with("", n_pes, grid, block, body, seed)
}

fn run_with(declare: &str, n_pes: usize, grid: u32, block: u32, body: &str, seed: u64) -> Vec<Finding> {
    let text = format!(
        "{HEADER}{declare}.visible .entry k(.param .u64 own, .param .u64 peer, .param .u32 pe) {{
.reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .pred %p<8>;
.shared .align 16 .b8 sm[4096];
ld.param.u64 %rd1, [own]; ld.param.u64 %rd2, [peer]; ld.param.u32 %r1, [pe];
mov.u32 %r2, %tid.x; mov.u32 %r3, %ctaid.x; mul.wide.u32 %rd3, %r2, 4;
mov.u64 %rd4, sm; add.u64 %rd5, %rd4, %rd3; add.u64 %rd6, %rd1, %rd3; add.u64 %rd7, %rd2, %rd3;
setp.eq.u32 %p1, %r2, 0; setp.eq.u32 %p2, %r1, 0; setp.eq.u32 %p3, %r3, 0;
{body}
ret; }}"
    );
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{e}"));
    let config = Config::default().n_pes(n_pes).seed(seed).explore(true).check(Some(Check::default()));
    let mut m = Machine::new(config).unwrap();
    let buffer = m.alloc_symmetric("x", 4096, 128).unwrap();
    for pe in 0..n_pes {
        let at = m.local_addr(pe, buffer).unwrap();
        m.write(pe, at, &[0; 4096]).unwrap();
    }
    let launches: Vec<Launch> = (0..n_pes)
        .map(|pe| {
            Launch::default()
                .pe(pe)
                .grid([grid, 1, 1])
                .block([block, 1, 1])
                .cluster([1, 1, 1])
                .dynamic_shared(0)
                .args(vec![
                    Arg::U64(m.local_addr(pe, buffer).unwrap()),
                    Arg::U64(m.peer_addr(pe, buffer, (pe + 1) % n_pes).unwrap()),
                    Arg::U32(pe as u32),
                ])
        })
        .collect();
    m.launch(&module, "k", &launches).unwrap_or_else(|e| panic!("{e}"));
    m.take_findings()
}

#[test]
fn a_store_of_what_memory_held_before_races_with_a_store_under_way() {
    // Both PEs store their number to PE 0's memory, which holds 0.
    let body = "@%p2 st.global.u32 [%rd6], %r1; @!%p2 st.global.u32 [%rd7], %r1;";
    for seed in 0..200 {
        let found = run(2, 1, 1, body, seed);
        assert!(found.iter().any(|f| f.code == "S030"), "seed {seed}: {found:?}");
    }
}

#[test]
fn later_accesses_hide_no_earlier_ones() {
    // CTA 0 is the last to arrive; nothing orders its plain store behind the arrivals of the others.
    let arrivals = |order: &str| {
        format!(
            "@!%p1 bra END; atom.{order}.gpu.global.add.u32 %r4, [%rd1], 1; setp.eq.u32 %p4, %r4, 3;
             @%p4 st.global.u32 [%rd1], 0; END:"
        )
    };
    assert_eq!(codes(1, 4, 32, &arrivals("relaxed")), ["S030"]);
    assert_eq!(codes(1, 4, 32, &arrivals("acq_rel")), [""; 0]);
    // A weak store and then a release of the same thread; a weak load and then a strong one.
    let hidden = |first: &str, second: &str, other: &str| {
        format!(
            "@!%p1 bra END; @!%p3 bra OTHER; {first} {second} bra.uni END;
             OTHER: mov.u32 %r6, 0; WAIT: add.u32 %r6, %r6, 1; setp.lt.u32 %p5, %r6, 200; @%p5 bra WAIT; {other} END:"
        )
    };
    let (weak, strong) = ("st.global.u32 [%rd1], 1;", "st.release.gpu.global.u32 [%rd1], 2;");
    let reader = "ld.relaxed.gpu.global.u32 %r5, [%rd1];";
    assert_eq!(codes(1, 2, 32, &hidden(weak, strong, reader)), ["S031"]);
    assert_eq!(codes(1, 2, 32, &hidden(strong, strong, reader)), [""; 0]);
    let writer = "st.relaxed.gpu.global.u32 [%rd1], 3;";
    assert_eq!(codes(1, 2, 32, &hidden("ld.global.u32 %r5, [%rd1];", reader, writer)), ["S030"]);
    assert_eq!(codes(1, 2, 32, &hidden(reader, reader, writer)), [""; 0]);
}

/// The codes that seeds find, each once.
fn codes(n_pes: usize, grid: u32, block: u32, body: &str) -> Vec<&'static str> {
    let mut all: Vec<&str> =
        (0..8).flat_map(|s| run(n_pes, grid, block, body, s)).map(|f| f.code.as_str()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn shared_memory_needs_a_barrier() {
    let exchange = |sync: &str| {
        format!(
            "st.shared.u32 [%rd5], %r2; {sync} xor.b32 %r4, %r2, 33; mul.wide.u32 %rd8, %r4, 4;
             add.u64 %rd8, %rd4, %rd8; ld.shared.u32 %r5, [%rd8];"
        )
    };
    assert_eq!(codes(1, 1, 128, &exchange("")), ["S030", "S036"]);
    assert_eq!(codes(1, 1, 128, &exchange("bar.sync 0;")), [""; 0]);
    let found = run(1, 1, 128, &exchange(""), 0);
    let text = found.iter().find(|f| f.code == "S030").unwrap().to_string();
    assert!(text.contains("sm`+") && text.contains("CTA"), "{text}");
}

#[test]
fn lanes_of_a_warp_need_one_too() {
    let exchange = |sync: &str| {
        format!(
            "st.shared.u32 [%rd5], %r2; {sync} xor.b32 %r4, %r2, 1; mul.wide.u32 %rd8, %r4, 4;
             add.u64 %rd8, %rd4, %rd8; ld.shared.u32 %r5, [%rd8];"
        )
    };
    assert_eq!(codes(1, 1, 32, &exchange("")), ["S030"]);
    assert_eq!(codes(1, 1, 32, &exchange("bar.warp.sync -1;")), [""; 0]);
    // At one instruction or at two.
    let two = "setp.lt.u32 %p4, %r2, 7; @%p4 bra low; bar.warp.sync -1; bra on; low: bar.warp.sync -1; on:";
    assert_eq!(codes(1, 1, 32, &exchange(two)), [""; 0]);
    // A vote orders no memory.
    assert_eq!(codes(1, 1, 32, &exchange("vote.sync.all.pred %p4, %p1, -1;")), ["S030"]);
}

#[test]
fn one_instruction_may_write_the_same_value_twice() {
    assert_eq!(codes(1, 1, 32, "st.shared.u32 [%rd4], 7;"), [""; 0]);
    assert_eq!(codes(1, 1, 32, "st.shared.u32 [%rd4], %r2;"), ["S030"]);
    // And so may threads that do not know of each other, as compilers let them do: there is one result.
    assert_eq!(codes(1, 1, 64, "st.shared.u32 [%rd4], 7;"), [""; 0]);
    assert_eq!(codes(1, 1, 64, "shr.u32 %r4, %r2, 5; st.shared.u32 [%rd4], %r4;"), ["S030"]);
}

/// PE 0 writes data into PE 1 and sets a flag there; PE 1 waits for it and reads.
fn message(store: &str, fence: &str, load: &str, after: &str) -> String {
    format!(
        "@!%p2 bra wait; @!%p1 bra done;
         st.u32 [%rd2], 42; {fence}
         {store} [%rd2+128], 1; bra done;
         wait: @!%p1 bra done;
         again: {load} %r6, [%rd1+128]; setp.eq.u32 %p5, %r6, 0; @%p5 bra again; {after}
         ld.u32 %r7, [%rd1];
         done:"
    )
}

#[test]
fn messages_between_pes() {
    let release = "st.release.sys.u32";
    let acquire = "ld.acquire.sys.u32";
    let one = |s: &str, f: &str, l: &str, a: &str| codes(2, 1, 32, &message(s, f, l, a));
    let none: [&str; 0] = [];
    assert_eq!(one(release, "", acquire, ""), none);
    assert_eq!(one("st.relaxed.sys.u32", "fence.acq_rel.sys;", acquire, ""), none);
    assert_eq!(one(release, "", "ld.relaxed.sys.u32", "fence.acq_rel.sys;"), none);
    assert_eq!(one("st.volatile.u32", "membar.sys;", "ld.volatile.u32", "membar.sys;"), none);
    assert_eq!(one("st.volatile.u32", "membar.sys;", "ld.volatile.u32", ""), ["S031"]);
    assert_eq!(one("st.relaxed.sys.u32", "", acquire, ""), ["S031"]);
    assert_eq!(one(release, "", "ld.relaxed.sys.u32", ""), ["S031"]);
    assert_eq!(one("st.relaxed.sys.u32", "membar.gl;", acquire, ""), ["S032"]);
    assert_eq!(one("st.release.gpu.u32", "", acquire, ""), ["S032"]);
    assert_eq!(one(release, "", "ld.acquire.gpu.u32", ""), ["S032"]);
    // The flag itself races, and orders nothing.
    assert_eq!(one("st.u32", "membar.sys;", acquire, ""), ["S030", "S031"]);
}

#[test]
fn the_report_names_both_and_the_remedy() {
    let found = run(2, 1, 32, &message("st.relaxed.sys.u32", "", "ld.acquire.sys.u32", ""), 3);
    assert_eq!(found.len(), 1, "{found:?}");
    let f = &found[0];
    let (at, other) = (&f.at.place, &f.other.as_ref().unwrap().place);
    assert_eq!((at.pe, other.pe, at.thread, other.thread), (1, 0, Some([0; 3]), Some([0; 3])));
    assert!(at.ptx_text.contains("ld.u32") && other.ptx_text.contains("st.u32"), "{f}");
    let l = f.location.as_ref().unwrap();
    assert_eq!((l.name.as_str(), l.space.pe(), l.offset, l.bytes), ("x", 1, 0, 4));
    assert!(f.help.contains(".release.sys"), "{f}");
}

#[test]
fn a_ticket_orders_all_who_took_one() {
    // Every CTA writes its slot, takes a ticket; the last one reads all slots.
    let body = |order: &str| {
        format!(
            "@!%p1 bra done; mul.wide.u32 %rd8, %r3, 4; add.u64 %rd9, %rd1, %rd8; st.u32 [%rd9+256], %r3;
             {order} %r8, [%rd1], 1; setp.ne.u32 %p5, %r8, 15; @%p5 bra done;
             mov.u32 %r9, 0;
             sum: mul.wide.u32 %rd8, %r9, 4; add.u64 %rd9, %rd1, %rd8; ld.u32 %r10, [%rd9+256];
             add.u32 %r9, %r9, 1; setp.lt.u32 %p6, %r9, 16; @%p6 bra sum;
             done:"
        )
    };
    assert_eq!(codes(1, 16, 32, &body("atom.acq_rel.gpu.global.add.u32")), [""; 0]);
    assert_eq!(codes(1, 16, 32, &body("atom.relaxed.gpu.global.add.u32")), ["S031"]);
    assert_eq!(codes(1, 16, 32, &body("membar.gl; atom.global.add.u32")), ["S031"]);
    assert_eq!(
        codes(
            1,
            16,
            32,
            &(body("membar.gl; atom.global.add.u32")
                .replace("mov.u32 %r9, 0;", "membar.gl; mov.u32 %r9, 0;"))
        ),
        [""; 0]
    );
}

#[test]
fn a_barrier_passes_on_what_one_thread_learnt() {
    // Thread 0 of PE 1 waits; all its threads read what all threads of PE 0 wrote before their barrier.
    let body = "@!%p2 bra wait;
         st.u32 [%rd7], %r2; bar.sync 0; @!%p1 bra done; st.release.sys.u32 [%rd2+2048], 1; bra done;
         wait: @!%p1 bra meet;
         again: ld.acquire.sys.u32 %r6, [%rd1+2048]; setp.eq.u32 %p5, %r6, 0; @%p5 bra again;
         meet: bar.sync 0; ld.u32 %r7, [%rd6];
         done:";
    assert_eq!(codes(2, 1, 128, body), [""; 0]);
    assert_eq!(codes(2, 1, 128, &body.replace("bar.sync 0; @!%p1", "@!%p1")), ["S030"]);
    let none_after = body.replace("meet: bar.sync 0;", "meet:");
    assert_eq!(codes(2, 1, 128, &none_after), ["S030"]);
}

#[test]
fn atomics_that_do_not_include_each_other() {
    let body = |scope: &str| {
        format!(
            "@!%p2 bra b; red.relaxed.{scope}.global.add.u32 [%rd2], 1; bra done;
        b: red.relaxed.{scope}.global.add.u32 [%rd1], 1; done:"
        )
    };
    assert_eq!(codes(2, 1, 1, &body("sys")), [""; 0]);
    assert_eq!(codes(2, 1, 1, &body("gpu")), ["S032"]);
}

#[test]
fn bytes_are_told_apart() {
    let body =
        "add.u64 %rd8, %rd4, %rd3; cvt.u64.u32 %rd9, %r2; add.u64 %rd9, %rd4, %rd9; st.shared.u8 [%rd9], 1; ";
    assert_eq!(codes(1, 1, 128, body), [""; 0]);
    let body = format!("{body} ld.shared.u32 %r5, [%rd4];");
    assert_eq!(codes(1, 1, 128, &body), ["S030", "S036"]);
}

/// Calls of NVSHMEM's: `name(args)`, each argument a register or number with its type.
fn call(name: &str, args: &[(&str, &str)]) -> String {
    let params: String = args
        .iter()
        .enumerate()
        .map(|(i, (t, v))| format!(".param .{t} p{i}; st.param.{t} [p{i}], {v};\n"))
        .collect();
    let names: Vec<String> = (0..args.len()).map(|i| format!("p{i}")).collect();
    format!("{{ {params} call.uni {name}, ({}); }}\n", names.join(", "))
}

/// With the functions declared.
fn remote(body: &str, seeds: std::ops::Range<u64>) -> Vec<&'static str> {
    let declare = ".extern .func nvshmem_putmem_nbi(.param .b64 a, .param .b64 b, .param .b64 c, .param .b32 d);
.extern .func nvshmem_putmem(.param .b64 a, .param .b64 b, .param .b64 c, .param .b32 d);
.extern .func nvshmem_getmem_nbi(.param .b64 a, .param .b64 b, .param .b64 c, .param .b32 d);
.extern .func nvshmem_fence(); .extern .func nvshmem_quiet(); .extern .func nvshmem_barrier_all();
.extern .func nvshmemx_signal_op(.param .b64 a, .param .b64 b, .param .b32 c, .param .b32 d);
.extern .func nvshmem_putmem_signal_nbi(.param .b64 a, .param .b64 b, .param .b64 c, .param .b64 d, .param .b64 e, .param .b32 f, .param .b32 g);
.extern .func (.param .b64 r) nvshmem_signal_wait_until(.param .b64 a, .param .b32 b, .param .b64 c);\n";
    let mut all: Vec<&str> =
        seeds.flat_map(|s| run_with(declare, 2, 1, 32, body, s)).map(|f| f.code.as_str()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn remote_operations() {
    let data = "add.u64 %rd10, %rd1, 256; add.u64 %rd11, %rd1, 1024; add.u64 %rd12, %rd1, 2048;";
    let put = call("nvshmem_putmem_nbi", &[("b64", "%rd11"), ("b64", "%rd10"), ("b64", "64"), ("b32", "1")]);
    let blocking = put.replace("putmem_nbi", "putmem");
    let fence = call("nvshmem_fence", &[]);
    let quiet = call("nvshmem_quiet", &[]);
    let signal = call("nvshmemx_signal_op", &[("b64", "%rd12"), ("b64", "1"), ("b32", "9"), ("b32", "1")]);
    let wait = call("nvshmem_signal_wait_until", &[("b64", "%rd12"), ("b32", "0"), ("b64", "1")])
        .replace("call.uni nvs", ".param .b64 r; call.uni (r), nvs");
    let with_signal = call(
        "nvshmem_putmem_signal_nbi",
        &[
            ("b64", "%rd11"),
            ("b64", "%rd10"),
            ("b64", "64"),
            ("b64", "%rd12"),
            ("b64", "1"),
            ("b32", "9"),
            ("b32", "1"),
        ],
    );
    let pair = |sender: &str, receiver: &str| {
        remote(
            &format!(
                "{data} @!%p1 bra done; @!%p2 bra receive; {sender} bra done; receive: {receiver} done:"
            ),
            0..12,
        )
    };
    let none: [&str; 0] = [];
    let read = "ld.u32 %r7, [%rd11];";
    let recv = format!("{wait} {read}");
    assert_eq!(pair(&format!("st.u32 [%rd10], 5; {put} {fence} {signal} {quiet}"), &recv), none);
    assert_eq!(pair(&format!("st.u32 [%rd10], 5; {put} {signal} {quiet}"), &recv), ["S034"]);
    assert_eq!(pair(&format!("{put} {fence} {signal} {quiet}"), read), ["S034"]);
    assert_eq!(pair(&format!("{with_signal} {quiet}"), &recv), none);
    assert_eq!(pair(&format!("{put} st.u32 [%rd10], 5; {quiet}"), ""), ["S034"]);
    assert_eq!(pair(&format!("{put} {quiet} st.u32 [%rd10], 5;"), ""), none);
    assert_eq!(pair(&format!("{blocking} st.u32 [%rd10], 5; {quiet}"), ""), none);
    let get = call("nvshmem_getmem_nbi", &[("b64", "%rd10"), ("b64", "%rd11"), ("b64", "64"), ("b32", "1")]);
    assert_eq!(pair(&format!("{get} ld.u32 %r7, [%rd10]; {quiet}"), ""), ["S034"]);
    assert_eq!(pair(&format!("{get} {quiet} ld.u32 %r7, [%rd10];"), ""), none);
    // A barrier over the PEs orders all.
    let barrier = call("nvshmem_barrier_all", &[]);
    let body = format!("{data} @!%p1 bra done; @!%p2 bra meet; {put} meet: {barrier} {read} done:");
    assert_eq!(remote(&body, 0..8), none);
    let body = format!("{data} @!%p1 bra done; @!%p2 bra meet; {put} meet: {read} {barrier} done:");
    assert_eq!(remote(&body, 0..8), ["S034"]);
}

#[test]
fn launches_of_a_stream_are_ordered_on_their_pe_only() {
    // Every PE stores to the other and reads what it got; without a barrier at the end the next launch's store may come
    // before the other has read.
    let text = format!(
        "{HEADER}.visible .entry k(.param .u64 own, .param .u64 peer, .param .u32 epoch) {{
.reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<8>;
ld.param.u64 %rd1, [own]; ld.param.u64 %rd2, [peer]; ld.param.u32 %r1, [epoch];
st.u32 [%rd2], %r1; st.release.sys.u32 [%rd2+128], %r1;
a: ld.acquire.sys.u32 %r2, [%rd1+128]; setp.lt.u32 %p1, %r2, %r1; @%p1 bra a;
ld.u32 %r3, [%rd1];
CLOSING
ret; }}"
    );
    let closing = "st.release.sys.u32 [%rd2+256], %r1;
b: ld.acquire.sys.u32 %r2, [%rd1+256]; setp.lt.u32 %p1, %r2, %r1; @%p1 bra b;";
    for (closing, expected) in [("", 1), (closing, 0)] {
        let module = Module::parse(&text.replace("CLOSING", closing)).unwrap_or_else(|e| panic!("{e}"));
        let mut found = 0;
        for seed in 0..20 {
            let config = Config::default().n_pes(2).seed(seed).explore(true).check(Some(Check::default()));
            let mut m = Machine::new(config).unwrap();
            let x = m.alloc_symmetric("x", 512, 128).unwrap();
            let grids = |m: &Machine, epoch: u32| -> Vec<Launch> {
                let args = |pe| {
                    let (own, peer) = (m.local_addr(pe, x).unwrap(), m.peer_addr(pe, x, 1 - pe).unwrap());
                    vec![Arg::U64(own), Arg::U64(peer), Arg::U32(epoch)]
                };
                let launch = |pe| {
                    Launch::default()
                        .pe(pe)
                        .grid([1; 3])
                        .block([1; 3])
                        .cluster([1; 3])
                        .dynamic_shared(0)
                        .args(args(pe))
                };
                (0..2).map(launch).collect()
            };
            for pe in 0..2 {
                let own = m.local_addr(pe, x).unwrap();
                m.write(pe, own, &[0; 512]).unwrap();
            }
            let rounds: Vec<Vec<Launch>> = (1..4).map(|e| grids(&m, e)).collect();
            let rounds: Vec<&[Launch]> = rounds.iter().map(Vec::as_slice).collect();
            m.launch_in_order(&module, "k", &rounds).unwrap_or_else(|e| panic!("{e}"));
            found += usize::from(m.take_findings().iter().any(|f| f.code == "S030"));
        }
        assert_eq!(found > 0, expected > 0, "{found} seeds");
    }
}
