//! NVSHMEM's functions in kernels: all of them, with all their types, at all scopes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/calls.rs"]
mod calls;
#[path = "common/host.rs"]
mod host;

use calls::{Kernel, kernel, launch, longs, machine_of, read_longs};
use host::{buffer, symmetric};
use std::collections::BTreeSet;
use weft_sim::{Arg, Config, Launch, Machine, Module, Symmetric, Team, nvshmem_functions};

/// What LLVM makes of calls with narrow integers and structures; a ring on several PEs under several schedules.
#[test]
fn ring_by_llvm() {
    let module = Module::parse(include_str!("ptx/nvshmem_ring.ptx")).unwrap_or_else(|e| panic!("{e}"));
    for (n_pes, threads, seed) in [(1, 32, 0), (2, 64, 1), (3, 100, 2), (4, 1024, 3), (4, 33, 4), (8, 128, 5)]
    {
        let mut m = machine_of(n_pes, seed);
        let bytes = 1000;
        let data = |pe: usize| (0..bytes).map(|i| (i * 7 + pe * 31) as u8).collect::<Vec<_>>();
        let dst = m.alloc_symmetric("dst", bytes as u64, 16).unwrap();
        let src = symmetric(&mut m, "src", data);
        let signal = symmetric(&mut m, "signal", |_| longs(&[0]));
        let narrow = symmetric(&mut m, "narrow", |_| vec![0; 4]);
        let out: Vec<u64> = (0..n_pes).map(|pe| m.alloc(pe, "out", 32, 8).unwrap()).collect();
        let grids: Vec<Launch> = (0..n_pes)
            .map(|pe| {
                let at = |s| Arg::U64(m.local_addr(pe, s).unwrap());
                let args =
                    vec![at(dst), at(src), Arg::U64(bytes as u64), at(signal), at(narrow), Arg::U64(out[pe])];
                host::grid(pe, 1, threads, args)
            })
            .collect();
        let stats = m.launch(&module, "ring", &grids).unwrap_or_else(|e| panic!("{e}"));
        for (pe, out) in out.iter().enumerate() {
            let mut got = vec![0; bytes];
            m.read(pe, m.local_addr(pe, dst).unwrap(), &mut got).unwrap();
            assert_eq!(got, data((pe + n_pes - 1) % n_pes), "PE {pe} of {n_pes}");
            // On the right of each PE lie the PE's own numbers.
            let half = 0x3c00 + pe as u64;
            assert_eq!(read_longs(&m, pe, *out, 4), [7, (pe as u64).wrapping_neg(), half, half]);
        }
        assert_eq!(stats.nvshmem.calls("nvshmemx_putmem_signal_nbi_block"), n_pes as u64);
        assert_eq!(stats.nvshmem.calls("nvshmem_my_pe"), n_pes as u64 * u64::from(threads));
        if n_pes > 2 {
            // Data, signal, one and two bytes there; one, two and two back.
            assert_eq!(stats.nvshmem.links[1], 1000 + 8 + 1 + 2);
            assert_eq!(stats.nvshmem.links[n_pes], 5);
        }
        assert_eq!(stats.nvshmem.unfinished, 0);
    }
}

#[test]
fn queries() {
    let module = kernel(4, |k| {
        k.call("nvshmem_my_pe", &[], "%w0").call("nvshmem_n_pes", &[], "%w1");
        k.line("cvt.u32.u64 %w9, %a0;");
        k.call("nvshmem_team_my_pe", &["%w9"], "%w2").call("nvshmem_team_n_pes", &["%w9"], "%w3");
        k.call("nvshmem_team_translate_pe", &["%w9", "1", "0"], "%w4");
        k.call("nvshmem_team_translate_pe", &["0", "0", "%w9"], "%w5");
        k.call("nvshmem_team_translate_pe", &["%w9", "9", "0"], "%w6");
        k.call("nvshmem_team_my_pe", &["-1"], "%w7");
        for i in 0..8 {
            k.line(&format!("cvt.s64.s32 %x0, %w{i}; st.global.b64 [%a3+{}], %x0;", 8 * i));
        }
        k.call("nvshmem_ptr", &["%a1", "2"], "%x1").call("nvshmemx_mc_ptr", &["%w9", "%a1"], "%x2");
        k.call("nvshmem_ptr", &["%a2", "2"], "%x3").call("nvshmem_ptr", &["%a1", "-1"], "%x4");
        k.call("nvshmem_ptr", &["%a1", "%w0"], "%x5");
        for i in 1..6 {
            k.line(&format!("st.global.b64 [%a3+{}], %x{i};", 56 + 8 * i));
        }
    });
    for (peer_access, multicast) in [(true, true), (false, false)] {
        let mut m =
            Machine::new(Config::default().n_pes(4).peer_access(peer_access).multicast(multicast)).unwrap();
        let team = m.team(&[3, 1]).unwrap();
        assert_eq!((Team::WORLD.handle(), team.handle()), (0, 7));
        let x = m.alloc_symmetric("x", 64, 16).unwrap();
        let private: Vec<u64> = (0..4).map(|pe| m.alloc(pe, "private", 64, 16).unwrap()).collect();
        let out: Vec<u64> = (0..4).map(|pe| m.alloc(pe, "out", 128, 16).unwrap()).collect();
        launch(&mut m, &module, 1, |m, pe| {
            vec![team.handle() as u64, m.local_addr(pe, x).unwrap(), private[pe], out[pe]]
        })
        .unwrap();
        let minus = u64::MAX;
        for pe in 0..4 {
            let rank = [minus, 1, minus, 0][pe];
            let size = if rank == minus { minus } else { 2 };
            let got = read_longs(&m, pe, out[pe], 13);
            assert_eq!(got[..8], [pe as u64, 4, rank, size, 1, minus, minus, minus]);
            let reach = |to: usize| if peer_access || to == pe { m.peer_addr(pe, x, to).unwrap() } else { 0 };
            let mc = if multicast { m.multicast_addr(pe, x, team).unwrap_or(0) } else { 0 };
            assert_eq!(got[8..], [reach(2), mc, 0, 0, reach(pe)], "PE {pe}");
        }
    }
}

/// Type of a function's elements: bytes, whether signed, whether floating.
fn element(ty: &str) -> (usize, bool, bool) {
    match ty {
        "char" | "schar" | "int8" => (1, true, false),
        "uchar" | "uint8" | "mem" | "8" => (1, false, false),
        "short" | "int16" => (2, true, false),
        "ushort" | "uint16" | "16" => (2, false, false),
        "int" | "int32" => (4, true, false),
        "uint" | "uint32" | "32" => (4, false, false),
        "long" | "longlong" | "int64" | "ptrdiff" => (8, true, false),
        "ulong" | "ulonglong" | "uint64" | "size" | "64" => (8, false, false),
        "128" => (16, false, false),
        "half" | "bfloat16" => (2, true, true),
        "float" => (4, true, true),
        "double" => (8, true, true),
        _ => panic!("type {ty}"),
    }
}

/// A small integer in a type.
fn encode(ty: &str, v: i64) -> Vec<u8> {
    let (bytes, _, _) = element(ty);
    match ty {
        "float" => (v as f32).to_le_bytes().to_vec(),
        "double" => (v as f64).to_le_bytes().to_vec(),
        "bfloat16" => (v as f32).to_le_bytes()[2..].to_vec(),
        "half" => half(v as f32).to_le_bytes().to_vec(),
        _ => i128::from(v).to_le_bytes()[..bytes].to_vec(),
    }
}

/// Half precision of an integer up to 2048.
fn half(x: f32) -> u16 {
    let bits = x.to_bits();
    if x == 0.0 {
        return 0;
    }
    let exponent = (bits >> 23 & 0xff) as i32 - 127 + 15;
    ((bits >> 16 & 0x8000) | (exponent as u32) << 10 | (bits >> 13 & 0x3ff)) as u16
}

/// One element as the literal of a register of `bytes` bytes.
fn literal(ty: &str, v: i64) -> String {
    let mut bytes = encode(ty, v);
    bytes.resize(8, 0);
    format!("{:#x}", u64::from_le_bytes(bytes.try_into().unwrap()))
}

/// A machine of some PEs with `dst` (poisoned with 0xaa), `src`, a signal and a result.
struct Bench {
    m: Machine,
    dst: Symmetric,
    src: Symmetric,
    signal: Symmetric,
    out: Vec<u64>,
}

const N: usize = 3;
const ROOM: usize = 512;

impl Bench {
    fn new(seed: u64, src: impl Fn(usize) -> Vec<u8>) -> Bench {
        let mut m = machine_of(N, seed);
        let dst = symmetric(&mut m, "dst", |_| vec![0xaa; ROOM]);
        let padded = |pe| {
            let mut data = src(pe);
            data.resize(ROOM, 0xbb);
            data
        };
        let src = symmetric(&mut m, "src", padded);
        let signal = symmetric(&mut m, "signal", |_| longs(&[0]));
        let out = (0..N).map(|pe| buffer(&mut m, pe, "out", &[0xcc; 64])).collect();
        Bench { m, dst, src, signal, out }
    }

    /// Runs a kernel with `dst`, `src`, `signal`, `out` as `%a0` to `%a3` and the next PE as `%w0`.
    fn run(&mut self, scope: &str, write: impl FnOnce(&mut Kernel)) -> weft_sim::Stats {
        let module = kernel(4, |k| {
            k.call("nvshmem_my_pe", &[], "%w0").line("add.u32 %w0, %w0, 1; rem.u32 %w0, %w0, 3;");
            write(k);
        });
        let (dst, src, signal, out) = (self.dst, self.src, self.signal, self.out.clone());
        let threads = match scope {
            "" => 1,
            "_warp" => 32,
            _ => 70,
        };
        let args = |m: &Machine, pe: usize| {
            let at = |s| m.local_addr(pe, s).unwrap();
            vec![at(dst), at(src), at(signal), out[pe]]
        };
        launch(&mut self.m, &module, threads, args).unwrap_or_else(|e| panic!("{e}"))
    }

    fn read(&self, pe: usize, what: Symmetric, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        self.m.read(pe, self.m.local_addr(pe, what).unwrap(), &mut out).unwrap();
        out
    }

    fn result(&self, pe: usize) -> u64 {
        read_longs(&self.m, pe, self.out[pe], 1)[0]
    }
}

/// `name` without prefix and scope, the type in it, and the scope.
fn parts(name: &str) -> (String, String, &str) {
    let body = name.strip_prefix("nvshmemx_").or(name.strip_prefix("nvshmem_")).unwrap();
    let (body, scope) =
        ["_warp", "_block"].into_iter().find_map(|s| Some((body.strip_suffix(s)?, s))).unwrap_or((body, ""));
    let sized = ["put", "get", "iput", "iget", "alltoall", "broadcast", "fcollect"];
    if let Some((start, rest)) = sized.into_iter().find_map(|start| Some((start, body.strip_prefix(start)?)))
    {
        let (width, tail) = rest.split_once('_').unwrap_or((rest, ""));
        let tail = if tail.is_empty() { String::new() } else { format!("_{tail}") };
        return (format!("{start}{tail}"), width.to_string(), scope);
    }
    match body.split_once('_') {
        Some((ty, rest)) if !matches!(ty, "signal" | "team" | "my" | "n" | "mc" | "sync" | "barrier") => {
            (rest.to_string(), ty.to_string(), scope)
        }
        _ => (body.to_string(), String::new(), scope),
    }
}

/// Values of a PE: element `i` of its source.
fn value(pe: usize, i: usize) -> i64 {
    (pe * 20 + i) as i64 + 1
}

fn values(ty: &str, pe: usize, n: usize) -> Vec<u8> {
    (0..n).flat_map(|i| encode(ty, value(pe, i))).collect()
}

fn rma(name: &str, what: &str, ty: &str, scope: &str, seed: u64) {
    let (size, ..) = element(ty);
    let mut b = Bench::new(seed, |pe| values(ty, pe, 12));
    let count = 5;
    let before = |pe: usize| (pe + N - 1) % N;
    let signalled = what.contains("signal");
    b.run(scope, |k| {
        match what {
            "iput" | "iget" => k.call(name, &["%a0", "%a1", "3", "2", "4", "%w0"], ""),
            _ if signalled => k.call(name, &["%a0", "%a1", "5", "%a2", "40", "10", "%w0"], ""),
            _ => k.call(name, &["%a0", "%a1", "5", "%w0"], ""),
        };
        k.call("nvshmem_quiet", &[], "");
    });
    for pe in 0..N {
        let from = if what.contains("get") { (pe + 1) % N } else { before(pe) };
        let mut expected = vec![0xaa; 12 * size];
        if what.starts_with('i') {
            for i in 0..4 {
                expected[3 * i * size..(3 * i + 1) * size].copy_from_slice(&encode(ty, value(from, 2 * i)));
            }
        } else {
            expected[..count * size].copy_from_slice(&values(ty, from, count));
        }
        assert_eq!(b.read(pe, b.dst, 12 * size), expected, "{name} on PE {pe}");
        assert_eq!(b.read(pe, b.signal, 8), longs(&[if signalled { 40 } else { 0 }]), "{name}");
    }
}

fn single(name: &str, what: &str, ty: &str) {
    let (size, signed, float) = element(ty);
    let v = if signed { -3 } else { 200 };
    let mut b = Bench::new(7, |pe| encode(ty, v - pe as i64));
    b.run("", |k| {
        let param = if size < 4 && !float { "b32" } else { "" };
        match (what, param, size) {
            ("p", ..) => {
                // Integers narrower than 32 bits come widened.
                let text = if float || size == 8 { literal(ty, v) } else { format!("{v}") };
                k.call(name, &["%a0", &text, "%w0"], "")
            }
            (_, "b32", _) => {
                k.call(name, &["%a1", "%w0"], "%w1").line("cvt.s64.s32 %x0, %w1; st.global.b64 [%a3], %x0;")
            }
            (_, _, 2) => {
                k.call(name, &["%a1", "%w0"], "%h1").line("cvt.u64.u16 %x0, %h1; st.global.b64 [%a3], %x0;")
            }
            (_, _, 4) => {
                k.call(name, &["%a1", "%w0"], "%w1").line("cvt.u64.u32 %x0, %w1; st.global.b64 [%a3], %x0;")
            }
            _ => k.call(name, &["%a1", "%w0"], "%x0").line("st.global.b64 [%a3], %x0;"),
        };
        k.call("nvshmem_quiet", &[], "");
    });
    for pe in 0..N {
        if what == "p" {
            assert_eq!(b.read(pe, b.dst, size), encode(ty, v), "{name}");
            continue;
        }
        let v = v - ((pe + 1) % N) as i64;
        let expected = match (float, size) {
            (false, 1 | 2) => v as u64,
            (_, 8) => u64::from_le_bytes(encode(ty, v).try_into().unwrap()),
            _ => encode(ty, v).iter().rev().fold(0, |n, b| n << 8 | u64::from(*b)),
        };
        assert_eq!(b.result(pe), expected, "{name} on PE {pe}");
    }
}

/// One element from 10 by an AMO with the value 6.
fn amo(name: &str, what: &str, ty: &str) {
    let (size, ..) = element(ty);
    let op = what.strip_prefix("atomic_").unwrap();
    let new = match op {
        "fetch" => 10,
        "set" | "swap" | "compare_swap" => 6,
        "inc" | "fetch_inc" => 11,
        "add" | "fetch_add" => 16,
        "and" | "fetch_and" => 2,
        "or" | "fetch_or" => 14,
        "xor" | "fetch_xor" => 12,
        _ => panic!("{name}"),
    };
    let returns = op.starts_with("fetch") || op.ends_with("swap");
    let mut b = Bench::new(3, |_| encode(ty, 10));
    let (ten, six) = (literal(ty, 10), literal(ty, 6));
    let result = match (returns, size) {
        (false, _) => "",
        (_, 2) => "%h1",
        (_, 4) => "%w1",
        _ => "%x0",
    };
    b.run("", |k| {
        match op {
            "fetch" | "inc" | "fetch_inc" => k.call(name, &["%a1", "%w0"], result),
            "compare_swap" => k.call(name, &["%a1", &ten, &six, "%w0"], result),
            _ => k.call(name, &["%a1", &six, "%w0"], result),
        };
        match size {
            _ if !returns => k.line(""),
            2 => k.line("cvt.u64.u16 %x0, %h1; st.global.b64 [%a3], %x0;"),
            4 => k.line("cvt.u64.u32 %x0, %w1; st.global.b64 [%a3], %x0;"),
            _ => k.line("st.global.b64 [%a3], %x0;"),
        };
        k.call("nvshmem_quiet", &[], "");
        if op == "compare_swap" {
            // Another condition: nothing happens.
            k.call("nvshmem_barrier_all", &[], "");
            let seven = literal(ty, 7);
            k.call(name, &["%a1", &ten, &seven, "%w0"], result);
        }
    });
    for pe in 0..N {
        assert_eq!(b.read(pe, b.src, size), encode(ty, new), "{name}");
        if returns {
            let old = encode(ty, 10).iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
            assert_eq!(b.result(pe), old, "{name}");
        }
    }
}

/// Waits and tests on five elements, -2 to 2 (or 1 to 5), where element 1 has the status "left out".
fn wait(name: &str, what: &str, ty: &str) {
    let (size, signed, _) = element(ty);
    let base = if signed { -2 } else { 1 };
    let vector = what.ends_with("_vector");
    let kind = what.trim_end_matches("_vector");
    let tests = kind.starts_with("test");
    for (cmp, middle) in (0..6).flat_map(|cmp| [(cmp, base), (cmp, base + 2), (cmp, base + 9)]) {
        let mut b = Bench::new(1, |_| (0..5).flat_map(|i| encode(ty, base + i)).collect());
        let holds =
            |v: i64| [v == middle, v != middle, v > middle, v <= middle, v < middle, v >= middle][cmp];
        let (lone, several) = (!kind.contains("_a") && !kind.contains("_some"), kind.ends_with("_some"));
        let taking: Vec<i64> = if lone { vec![0] } else { vec![0, 2, 3, 4] };
        let good: Vec<i64> = taking.iter().copied().filter(|i| holds(base + i)).collect();
        let enough =
            if lone || kind.ends_with("_all") { good.len() == taking.len() } else { !good.is_empty() };
        if !tests && !enough {
            continue;
        }
        let cmp = cmp.to_string();
        let text = if size == 8 { literal(ty, middle) } else { format!("{middle}") };
        let returns = tests || kind.ends_with("_any") || several;
        let long = returns && !(tests && (lone || kind.ends_with("_all")));
        b.run("", |k| {
            // Status: element 1 is left out. Values to compare with: in `dst`, which is symmetric but need not be.
            k.line("st.global.v2.b32 [%a3+16], {0, 1}; st.global.v2.b32 [%a3+24], {0, 0}; st.global.b32 [%a3+32], 0;");
            k.line("add.u64 %x1, %a3, 16; add.u64 %x2, %a0, 64;");
            for i in 0..5 {
                let (bits, at) = (size * 8, i * size);
                k.line(&format!("st.global.b{bits} [%a0+{at}], {};", literal(ty, middle)));
            }
            let value = if vector { "%a0" } else { &text };
            let result = match (returns, long) {
                (false, _) => "",
                (_, true) => "%x0",
                _ => "%w1",
            };
            match kind {
                _ if lone => k.call(name, &["%a1", &cmp, value], result),
                _ if several => k.call(name, &["%a1", "5", "%x2", "%x1", &cmp, value], result),
                _ => k.call(name, &["%a1", "5", "%x1", &cmp, value], result),
            };
            if returns && !long {
                k.line("cvt.u64.u32 %x0, %w1;");
            }
            if returns {
                k.line("st.global.b64 [%a3], %x0;");
            }
        });
        for pe in 0..if returns { N } else { 0 } {
            let got = b.result(pe);
            if several {
                assert_eq!(got, good.len() as u64, "{name} {cmp} {middle}");
                let indices = b.m.local_addr(pe, b.dst).unwrap() + 64;
                assert_eq!(
                    read_longs(&b.m, pe, indices, good.len()),
                    good.iter().map(|i| *i as u64).collect::<Vec<_>>()
                );
            } else if long && good.is_empty() {
                assert_eq!(got, u64::MAX, "{name} {cmp} {middle}");
            } else if long {
                assert!(good.contains(&(got as i64)), "{name} {cmp} {middle}: {got} of {good:?}");
            } else {
                assert_eq!(got, u64::from(enough), "{name} {cmp} {middle}");
            }
        }
    }
}

fn collective(name: &str, what: &str, ty: &str, scope: &str) {
    let (size, ..) = element(ty);
    let count = 3;
    // Of the source: `parts` times `count` elements.
    let source = |pe: usize| values(ty, pe, N * count);
    let mut b = Bench::new(11, source);
    let op = what.split_once('_').map_or("", |(op, _)| op);
    let fold = |i: usize| {
        let all = (0..N).map(|pe| value(pe, i));
        match op {
            "sum" => all.sum(),
            "prod" => all.product(),
            "min" => all.min().unwrap(),
            "max" => all.max().unwrap(),
            "and" => all.reduce(|a, b| a & b).unwrap(),
            "or" => all.reduce(|a, b| a | b).unwrap(),
            _ => all.reduce(|a, b| a ^ b).unwrap(),
        }
    };
    // Products exceed what half-precision types hold exactly.
    let folded = |range: std::ops::Range<usize>| -> Vec<u8> {
        range
            .flat_map(|i| match (op, ty) {
                ("prod", "half" | "bfloat16") => rounded_product(ty, i),
                _ => encode(ty, fold(i)),
            })
            .collect()
    };
    b.run(scope, |k| {
        if what == "broadcast" {
            k.call(name, &["0", "%a0", "%a1", "3", "2"], "%w1");
        } else {
            k.call(name, &["0", "%a0", "%a1", "3"], "%w1");
        }
        k.line("cvt.u64.u32 %x0, %w1; st.global.b64 [%a3], %x0;");
    });
    for pe in 0..N {
        let expected: Vec<u8> = match what {
            "broadcast" => values(ty, 2, count),
            "fcollect" => (0..N).flat_map(|p| values(ty, p, count)).collect(),
            "alltoall" => (0..N)
                .flat_map(|p| (pe * count..(pe + 1) * count).flat_map(move |i| encode(ty, value(p, i))))
                .collect(),
            w if w.ends_with("_reduce") => folded(0..count),
            _ => folded(pe * count..(pe + 1) * count),
        };
        let mut got = b.read(pe, b.dst, expected.len() + size);
        assert_eq!(got.split_off(expected.len()), vec![0xaa; size], "{name} wrote too much");
        assert_eq!(got, expected, "{name} on PE {pe}");
        assert_eq!(b.result(pe), 0);
    }
}

/// The product of element `i` of all PEs, rounded to the type at every step.
fn rounded_product(ty: &str, i: usize) -> Vec<u8> {
    let bits = if ty == "half" { 11 } else { 8 };
    let round = |x: i64| {
        let excess = (64 - x.leading_zeros()).saturating_sub(bits);
        let (step, low) = (1 << excess, x & ((1_i64 << excess) - 1));
        let down = x - low;
        match (2 * low).cmp(&step) {
            std::cmp::Ordering::Less => down,
            std::cmp::Ordering::Greater => down + step,
            std::cmp::Ordering::Equal => down + (down & step),
        }
    };
    encode(ty, (1..N).fold(value(0, i), |a, pe| round(a * value(pe, i))))
}

/// Every function of the table is called and does what it says.
#[test]
fn every_function() {
    let mut untested = BTreeSet::new();
    for (seed, f) in nvshmem_functions().enumerate() {
        let name = f.name();
        let (what, ty, scope) = parts(name);
        match what.as_str() {
            "p" | "g" => single(name, &what, &ty),
            w if w.starts_with("atomic_") => amo(name, w, &ty),
            w if w.starts_with("wait_until") || w.starts_with("test") => wait(name, w, &ty),
            w if w.ends_with("reduce") || w.ends_with("reducescatter") => collective(name, w, &ty, scope),
            w @ ("fcollect" | "alltoall" | "broadcast") => collective(name, w, &ty, scope),
            w if ["put", "get", "iput", "iget"].iter().any(|s| w.starts_with(s)) => {
                rma(name, w, &ty, scope, seed as u64);
            }
            _ => {
                untested.insert(name);
            }
        }
    }
    // These have tests of their own.
    let others = [
        "nvshmem_barrier",
        "nvshmem_barrier_all",
        "nvshmem_fence",
        "nvshmem_my_pe",
        "nvshmem_n_pes",
        "nvshmem_ptr",
        "nvshmem_quiet",
        "nvshmem_signal_fetch",
        "nvshmem_signal_wait_until",
        "nvshmem_sync_all",
        "nvshmem_team_my_pe",
        "nvshmem_team_n_pes",
        "nvshmem_team_sync",
        "nvshmem_team_translate_pe",
        "nvshmemx_barrier_all_block",
        "nvshmemx_barrier_all_warp",
        "nvshmemx_barrier_block",
        "nvshmemx_barrier_warp",
        "nvshmemx_flush",
        "nvshmemx_flush_block",
        "nvshmemx_flush_warp",
        "nvshmemx_mc_ptr",
        "nvshmemx_signal_op",
        "nvshmemx_sync_all_block",
        "nvshmemx_sync_all_warp",
        "nvshmemx_team_sync_block",
        "nvshmemx_team_sync_warp",
    ];
    assert_eq!(untested.into_iter().collect::<Vec<_>>(), others);
}

/// Rounds of a ring: every PE gives its right neighbour in the team a number, by turns in two slots, meets the others
/// and reads what it was given. `a2` is the team, `%w10` the PE on the right, `%x10` a number of the PE's own.
fn rounds(name: &str, threads: u32, with_team: bool, completes: bool, seed: u64) -> weft_sim::Stats {
    const ROUNDS: usize = 7;
    let module = kernel(4, |k| {
        k.line("cvt.u32.u64 %w9, %a2;");
        k.call("nvshmem_team_my_pe", &["%w9"], "%w1").call("nvshmem_team_n_pes", &["%w9"], "%w2");
        k.line("setp.eq.u32 %p0, %w1, -1; @%p0 bra END;\nadd.u32 %w3, %w1, 1; rem.u32 %w3, %w3, %w2;");
        k.call("nvshmem_team_translate_pe", &["%w9", "%w3", "0"], "%w10");
        k.line("cvt.u64.u32 %x10, %w1; mul.lo.u64 %x10, %x10, 100; mov.u64 %x11, 0; mov.u32 %w4, %tid.x;");
        k.line("setp.ne.u32 %p1, %w4, 0;\nLOOP:\nand.b64 %x1, %x11, 1; shl.b64 %x1, %x1, 3; add.u64 %x2, %a0, %x1;");
        k.line("add.u64 %x3, %x10, %x11; @%p1 bra MEET; st.global.b64 [%a1], %x3;");
        if completes {
            k.call("nvshmem_putmem_nbi", &["%x2", "%a1", "8", "%w10"], "");
        } else {
            // A sync completes nothing but what is complete: a plain store to the peer.
            k.call("nvshmem_ptr", &["%x2", "%w10"], "%x4").line("st.relaxed.sys.global.b64 [%x4], %x3;");
        }
        k.line("MEET:");
        if threads == 1 || name.ends_with("_warp") || name.ends_with("_block") {
            k.call(name, if with_team { &["%w9"] } else { &[] }, "");
        } else {
            k.line("@%p1 bra MET;");
            k.call(name, if with_team { &["%w9"] } else { &[] }, "");
            k.line("MET: bar.sync 0;");
        }
        k.line("ld.volatile.global.b64 %x5, [%x2]; shl.b64 %x6, %x11, 3; add.u64 %x6, %x6, %a3; @!%p1 st.global.b64 [%x6], %x5;");
        k.line(&format!("add.u64 %x11, %x11, 1; setp.lt.u64 %p2, %x11, {ROUNDS}; @%p2 bra LOOP;\nEND:"));
    });
    let mut m = machine_of(5, seed);
    let members = if with_team { vec![4, 0, 2] } else { vec![0, 1, 2, 3, 4] };
    let team = if with_team { m.team(&members).unwrap() } else { Team::WORLD };
    let x = m.alloc_symmetric("x", 16, 16).unwrap();
    let own = m.alloc_symmetric("own", 8, 16).unwrap();
    let out: Vec<u64> = (0..5).map(|pe| m.alloc(pe, "out", ROUNDS as u64 * 8, 8).unwrap()).collect();
    let stats = launch(&mut m, &module, threads, |m, pe| {
        let at = |s| m.local_addr(pe, s).unwrap();
        vec![at(x), at(own), team.handle() as u64, out[pe]]
    })
    .unwrap_or_else(|e| panic!("{name}: {e}"));
    for (rank, &pe) in members.iter().enumerate() {
        let left = (rank + members.len() - 1) % members.len();
        let expected: Vec<u64> = (0..ROUNDS).map(|i| (left * 100 + i) as u64).collect();
        assert_eq!(read_longs(&m, pe, out[pe], ROUNDS), expected, "{name} on PE {pe}");
    }
    stats
}

#[test]
fn barriers_and_syncs() {
    for (seed, f) in nvshmem_functions().enumerate() {
        let name = f.name();
        let (what, _, scope) = parts(name);
        if !["barrier", "barrier_all", "team_sync", "sync_all"].contains(&what.as_str()) {
            continue;
        }
        for threads in [1, 32, 100] {
            if threads > 32 && scope == "_warp" {
                continue;
            }
            let with_team = !what.ends_with("_all");
            let stats = rounds(name, threads, with_team, what.starts_with("barrier"), seed as u64);
            // One call a round and PE.
            assert_eq!(stats.nvshmem.calls(name), 7 * if with_team { 3 } else { 5 }, "{name}");
        }
    }
}

/// Warps of a CTA wait for different signals, and several CTAs put at a time.
#[test]
fn many_threads_at_once() {
    let module = kernel(4, |k| {
        k.call("nvshmem_my_pe", &[], "%w0").line("xor.b32 %w0, %w0, 1;");
        // Thread t of CTA c owns long 256 c + t: it puts it, signals, and waits for the other PE's signal.
        k.line("mov.u32 %w1, %tid.x; mov.u32 %w2, %ctaid.x; mad.lo.u32 %w3, %w2, 256, %w1; mul.wide.u32 %x0, %w3, 8;");
        k.line("add.u64 %x1, %a0, %x0; add.u64 %x2, %a1, %x0; add.u64 %x3, %a2, %x0; cvt.u64.u32 %x4, %w3; st.global.b64 [%x2], %x4;");
        k.call("nvshmem_put64_signal_nbi", &["%x1", "%x2", "1", "%x3", "5", "9", "%w0"], "");
        k.call("nvshmem_signal_wait_until", &["%x3", "0", "5"], "%x5");
        k.line("ld.global.b64 %x6, [%x1]; add.u64 %x6, %x6, %x5;");
        k.line("and.b32 %w4, %w1, 1; setp.eq.u32 %p1, %w4, 1; @%p1 bra ODD;");
        // Lanes of a warp make different calls.
        k.call("nvshmem_uint64_atomic_fetch_add", &["%a3", "%x6", "%w0"], "%x7").line("bra END;\nODD:");
        k.call("nvshmem_uint64_atomic_add", &["%a3", "%x6", "%w0"], "").call("nvshmem_quiet", &[], "");
        k.line("END:");
    });
    for seed in 0..4 {
        let mut m = machine_of(2, seed);
        let n = 4 * 256;
        let [dst, src, signal] = ["dst", "src", "signal"].map(|name| {
            let s = m.alloc_symmetric(name, n * 8, 16).unwrap();
            for pe in 0..2 {
                m.write(pe, m.local_addr(pe, s).unwrap(), &vec![0; n as usize * 8]).unwrap();
            }
            s
        });
        let sum = symmetric(&mut m, "sum", |_| longs(&[0]));
        let grids: Vec<Launch> = (0..2)
            .map(|pe| {
                let args = [dst, src, signal, sum].map(|s| Arg::U64(m.local_addr(pe, s).unwrap())).to_vec();
                host::grid(pe, 4, 256, args)
            })
            .collect();
        m.launch(&module, "k", &grids).unwrap_or_else(|e| panic!("{e}"));
        for pe in 0..2 {
            let total = read_longs(&m, pe, m.local_addr(pe, sum).unwrap(), 1)[0];
            assert_eq!(total, n * (n - 1) / 2 + 5 * n);
        }
    }
}

/// Collective functions of a team in an order of its own, in place; subtraction of bits tells the order of a reduction.
#[test]
fn collectives_of_a_team() {
    let module = kernel(3, |k| {
        k.line("cvt.u32.u64 %w9, %a2;").call("nvshmem_team_my_pe", &["%w9"], "%w1");
        k.line("setp.eq.u32 %p0, %w1, -1; @%p0 bra END; mul.wide.u32 %x0, %w1, 16; add.u64 %x1, %a0, %x0;");
        // Two longs of each PE, in place: a source at another offset on every PE.
        k.call("nvshmemx_int64_fcollect_block", &["%w9", "%a0", "%x1", "2"], "%w2");
        k.call("nvshmemx_float_sum_reduce_block", &["%w9", "%a1", "%a1", "3"], "%w2");
        k.line("END:");
    });
    for seed in 0..10 {
        let mut m = machine_of(4, seed);
        let members = [3, 0, 2];
        let team = m.team(&members).unwrap();
        let x = symmetric(&mut m, "x", |pe| longs(&[pe as u64 * 10 + 1; 6]));
        // The order shows: 2^24 + 1 - 2^24 is 0 in this one and 1 in others.
        let of = |pe| match pe {
            3 => [16_777_216.0_f32, 1.0, 2.0],
            0 => [1.0, -16_777_216.0, 2.0],
            _ => [-16_777_216.0, 16_777_216.0, 2.0],
        };
        let y = symmetric(&mut m, "y", |pe| host::floats(&of(pe)));
        let stats = launch(&mut m, &module, 64, |m, pe| {
            vec![m.local_addr(pe, x).unwrap(), m.local_addr(pe, y).unwrap(), team.handle() as u64]
        })
        .unwrap_or_else(|e| panic!("{e}"));
        for pe in members {
            let got = read_longs(&m, pe, m.local_addr(pe, x).unwrap(), 6);
            assert_eq!(got, [31, 31, 1, 1, 21, 21]);
            assert_eq!(host::read_floats(&m, pe, m.local_addr(pe, y).unwrap(), 3), [0.0, 1.0, 6.0]);
        }
        assert_eq!(read_longs(&m, 1, m.local_addr(1, x).unwrap(), 6), [11; 6]);
        // 16 bytes of the fcollect, 12 of the reduction; none to or from the PE that is not in the team.
        assert_eq!(stats.nvshmem.links[3 * 4], 28);
        assert_eq!(stats.nvshmem.links[4..8], [0; 4]);
    }
}

/// A PE that still reads the destination of a collective function when another comes to it may find the result there.
#[test]
fn destinations_have_to_be_ready() {
    let module = kernel(2, |k| {
        k.call("nvshmem_my_pe", &[], "%w0").line("setp.eq.u32 %p0, %w0, 0; @%p0 bra MEET;");
        // PE 1 reads for a while before it comes.
        k.line("mov.u32 %w1, 0;\nLOOP: ld.volatile.global.b64 %x0, [%a0]; add.u32 %w1, %w1, 1; setp.lt.u32 %p1, %w1, 2000; @%p1 bra LOOP;");
        k.line("st.global.b64 [%a1], %x0;\nMEET:");
        k.call("nvshmem_uint64_broadcast", &["0", "%a0", "%a0", "1", "0"], "%w2");
    });
    let seen = |seed| {
        let mut m = machine_of(2, seed);
        let x = symmetric(&mut m, "x", |pe| longs(&[if pe == 0 { 7 } else { 1 }]));
        let out = buffer(&mut m, 1, "out", &[0; 8]);
        launch(&mut m, &module, 1, |m, pe| vec![m.local_addr(pe, x).unwrap(), if pe == 1 { out } else { 0 }])
            .unwrap();
        assert_eq!(read_longs(&m, 1, m.local_addr(1, x).unwrap(), 1), [7]);
        read_longs(&m, 1, out, 1)[0]
    };
    let all: BTreeSet<u64> = (0..20).map(seen).collect();
    assert_eq!(all.into_iter().collect::<Vec<_>>(), [1, 7]);
}
