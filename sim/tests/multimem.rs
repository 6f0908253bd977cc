//! In-switch operations against a plain reference: every legal form, over teams in different orders.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "common/host.rs"]
mod host;

use host::{grid, machine};
use std::fmt::Write as _;
use weft_sim::{Arg, Machine, Module, Symmetric};

/// Exact value of a narrow float.
fn decode(exp: u32, man: u32, inf: bool, v: u64) -> f64 {
    let bits = 1 + exp + man;
    let sign = if v >> (bits - 1) & 1 == 1 { -1.0 } else { 1.0 };
    let bias = (1 << (exp - 1)) - 1;
    let (e, f) = ((v >> man & ((1 << exp) - 1)) as i32, (v & ((1 << man) - 1)) as f64);
    let top = (1 << exp) - 1;
    let unit = 2_f64.powi(-(man as i32));
    match e {
        0 => sign * f * unit * 2_f64.powi(1 - bias),
        _ if e == top && inf => {
            if f == 0.0 {
                sign * f64::INFINITY
            } else {
                f64::NAN
            }
        }
        _ if e == top && f as u64 == (1 << man) - 1 => f64::NAN,
        _ => sign * (1.0 + f * unit) * 2_f64.powi(e - bias),
    }
}

/// The nearest value of a narrow float, ties to even, by search: slow and plain.
fn round(exp: u32, man: u32, inf: bool, x: f64) -> f64 {
    if x.is_nan() || x.is_infinite() {
        return if inf { x } else { f64::NAN };
    }
    let quantum = |x: f64| {
        let e = if x == 0.0 { 1 - ((1 << (exp - 1)) - 1) } else { x.abs().log2().floor() as i32 };
        // log2 may be off by one at a power of two.
        let e = if 2_f64.powi(e) > x.abs() {
            e - 1
        } else if 2_f64.powi(e + 1) <= x.abs() {
            e + 1
        } else {
            e
        };
        2_f64.powi(e.max(1 - ((1 << (exp - 1)) - 1)) - man as i32)
    };
    let q = quantum(x);
    let r = (x / q).round_ties_even() * q;
    let bias = (1 << (exp - 1)) - 1;
    let largest = if inf { (2.0 - 2_f64.powi(-(man as i32))) * 2_f64.powi(bias) } else { 448.0 };
    if r.abs() > largest { if inf { f64::INFINITY.copysign(x) } else { f64::NAN } } else { r }
}

/// An element type of the reference.
#[derive(Clone, Copy)]
struct Elem {
    name: &'static str,
    bits: u32,
    /// Exponent and significand bits and infinities of floats.
    float: Option<(u32, u32, bool)>,
}

const fn float(name: &'static str, bits: u32, exp: u32, man: u32, inf: bool) -> Elem {
    Elem { name, bits, float: Some((exp, man, inf)) }
}

const FLOATS: &[Elem] = &[
    float("f16", 16, 5, 10, true),
    float("bf16", 16, 8, 7, true),
    float("f32", 32, 8, 23, true),
    float("f64", 64, 11, 52, true),
    float("e4m3", 8, 4, 3, false),
    float("e5m2", 8, 5, 2, true),
];

impl Elem {
    fn of(ty: &str) -> Elem {
        let base = ty.strip_suffix("x2").or(ty.strip_suffix("x4")).unwrap_or(ty);
        match FLOATS.iter().find(|e| e.name == base) {
            Some(e) => *e,
            None => Elem { name: "int", bits: base[1..].parse().unwrap(), float: None },
        }
    }

    fn value(self, bits: u64) -> f64 {
        match self.float {
            Some((8, 23, _)) => f64::from(f32::from_bits(bits as u32)),
            Some((11, ..)) => f64::from_bits(bits),
            Some((e, m, inf)) => decode(e, m, inf, bits),
            None => panic!("an integer"),
        }
    }

    fn round(self, x: f64) -> f64 {
        match self.float {
            Some((8, 23, _)) => f64::from(x as f32),
            Some((11, ..)) => x,
            Some((e, m, inf)) => round(e, m, inf, x),
            None => panic!("an integer"),
        }
    }
}

/// The reduction of one element over the team, as numbers: integers exact in i128, floats in f64.
fn reference(ty: &str, op: &str, acc: &str, members: &[u64]) -> Result<u64, f64> {
    let e = Elem::of(ty);
    let Some(_) = e.float else {
        let signed = ty.starts_with('s');
        let value = |v: u64| {
            if signed { i128::from((v << (64 - e.bits)) as i64 >> (64 - e.bits)) } else { i128::from(v) }
        };
        let f = |a: i128, b: i128| match op {
            "add" => a + b,
            "min" => a.min(b),
            "max" => a.max(b),
            "and" => a & b,
            "or" => a | b,
            _ => a ^ b,
        };
        let r = members.iter().map(|v| value(*v)).reduce(f).unwrap();
        return Ok(r as u64 & (u64::MAX >> (64 - e.bits)));
    };
    let acc = match acc {
        "" => e,
        a => Elem::of(a.trim_start_matches(".acc::")),
    };
    let f = |a: f64, b: f64| match op {
        "add" => acc.round(a + b),
        "min" => a.min(b),
        _ => a.max(b),
    };
    Err(e.round(members.iter().map(|v| e.value(*v)).reduce(f).unwrap()))
}

/// Contents of PE `pe` at word `i`: small numbers of both signs that add up with rounding.
fn data(ty: &str, pe: usize, i: usize) -> u64 {
    let e = Elem::of(ty);
    let h = (pe as u64 * 0x9e37_79b9 + i as u64 * 0x85eb_ca6b).wrapping_mul(0xc2b2_ae3d_27d4_eb4f) >> 7;
    let Some((exp, man, _)) = e.float else { return h & (u64::MAX >> (64 - e.bits)) };
    let bias = (1 << (exp - 1)) - 1;
    let sign = h & 1;
    let exponent = bias - 2 + (h >> 1) % 5;
    let fraction = (h >> 8) & ((1 << man) - 1);
    sign << (exp + man) | exponent << man | fraction
}

struct Team {
    m: Machine,
    x: Symmetric,
    team: weft_sim::Team,
    members: Vec<usize>,
}

/// 6 PEs, a team of some of them in an unusual order, 16 lanes of 16 bytes each.
fn team(ty: &str, members: &[usize]) -> Team {
    let mut m = machine(6);
    let x = m.alloc_symmetric("x", 16 * 32, 16).unwrap();
    let e = Elem::of(ty);
    for pe in 0..6 {
        let n = 16 * 32 * 8 / e.bits as usize;
        let bytes: Vec<u8> =
            (0..n).flat_map(|i| data(ty, pe, i).to_le_bytes()[..e.bits as usize / 8].to_vec()).collect();
        let addr = m.local_addr(pe, x).unwrap();
        m.write(pe, addr, &bytes).unwrap();
    }
    let team = m.team(members).unwrap();
    Team { m, x, team, members: members.to_vec() }
}

/// Register bits and count of a vector form.
fn registers(ty: &str, vec: usize) -> (u32, usize) {
    let e = Elem::of(ty);
    let packed = if ty.ends_with("x2") {
        2
    } else if ty.ends_with("x4") {
        4
    } else {
        1
    };
    (e.bits * packed, vec)
}

fn kernel(body: &str, bits: u32, count: usize) -> Module {
    let mut text = String::from(".version 9.0\n.target sm_100a\n.address_size 64\n");
    let _ = write!(
        text,
        ".visible .entry k(.param .u64 mc, .param .u64 out)\n{{\n.reg .b64 %rd<8>; .reg .b32 %t; .reg .b{bits} %v<9>;\n\
         ld.param.b64 %rd1, [mc]; ld.param.b64 %rd2, [out]; mov.u32 %t, %tid.x;\n\
         mul.wide.u32 %rd3, %t, {}; add.s64 %rd4, %rd1, %rd3; add.s64 %rd5, %rd2, %rd3;\n{body}\nret;\n}}\n",
        bits as usize / 8 * count
    );
    Module::parse(&text).unwrap_or_else(|e| panic!("{e}"))
}

fn list(n: usize) -> String {
    let names: Vec<String> = (0..n).map(|i| format!("%v{i}")).collect();
    if n == 1 { names[0].clone() } else { format!("{{{}}}", names.join(", ")) }
}

fn suffix(vec: usize) -> String {
    if vec == 1 { String::new() } else { format!(".v{vec}") }
}

/// Plain stores or loads of the vector's registers one by one.
fn plain(ld: bool, bits: u32, count: usize) -> String {
    (0..count).fold(String::new(), |mut s, i| {
        let at = i * bits as usize / 8;
        let _ = if ld {
            writeln!(s, "ld.global.b{bits} %v{i}, [%rd5+{at}];")
        } else {
            writeln!(s, "st.global.b{bits} [%rd5+{at}], %v{i};")
        };
        s
    })
}

/// The forms: type, operations, vectors, accumulator.
fn forms() -> Vec<(&'static str, &'static str, &'static [usize], &'static str)> {
    let mut out: Vec<(_, _, &'static [usize], _)> = vec![
        ("f32", "add", &[1, 2, 4], ""),
        ("f64", "add", &[1], ""),
        ("b32", "and or xor", &[1], ""),
        ("b64", "and or xor", &[1], ""),
        ("s64", "min max", &[1], ""),
    ];
    for t in ["u32", "s32", "u64"] {
        out.push((t, "add min max", &[1], ""));
    }
    for t in ["f16", "bf16"] {
        out.push((t, "add min max", &[2, 4, 8], ""));
        out.push((t, "add", &[2, 4, 8], ".acc::f32"));
    }
    for t in ["f16x2", "bf16x2"] {
        out.push((t, "add min max", &[1, 2, 4], ""));
        out.push((t, "add", &[1, 2, 4], ".acc::f32"));
    }
    for (acc, ops) in [("", "add min max"), (".acc::f16", "add")] {
        for t in ["e4m3", "e5m2"] {
            out.push((t, ops, &[4, 8], acc));
        }
        for t in ["e4m3x2", "e5m2x2"] {
            out.push((t, ops, &[2, 4, 8], acc));
        }
        for t in ["e4m3x4", "e5m2x4"] {
            out.push((t, ops, &[1, 2, 4], acc));
        }
    }
    out
}

fn words(bytes: &[u8], bits: u32) -> Vec<u64> {
    let word = |c: &[u8]| c.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b));
    bytes.chunks_exact(bits as usize / 8).map(word).collect()
}

#[test]
fn ld_reduce_in_every_form() {
    for (ty, ops, vecs, acc) in forms() {
        for (op, &vec) in ops.split(' ').flat_map(|op| vecs.iter().map(move |v| (op, v))) {
            let mut t = team(ty, &[4, 0, 5, 1]);
            let (bits, count) = registers(ty, vec);
            let inst = format!("multimem.ld_reduce.relaxed.sys.global.{op}{acc}{}.{ty}", suffix(vec));
            let body = format!("{inst} {}, [%rd4];\n{}", list(count), plain(false, bits, count));
            let module = kernel(&body, bits, count);
            let n = 32 * bits as usize / 8 * count;
            let out = t.m.alloc(5, "out", n as u64, 16).unwrap();
            let mc = t.m.multicast_addr(5, t.x, t.team).unwrap();
            let stats =
                t.m.launch(&module, "k", &[grid(5, 1, 32, vec![Arg::U64(mc), Arg::U64(out)])]).unwrap();
            assert_eq!(stats.multicast[0].ld_reduce, n as u64, "{inst}");
            let mut got = vec![0; n];
            t.m.read(5, out, &mut got).unwrap();
            let e = Elem::of(ty);
            for (i, &v) in words(&got, e.bits).iter().enumerate() {
                let members: Vec<u64> = t.members.iter().map(|&pe| data(ty, pe, i)).collect();
                match reference(ty, op, acc, &members) {
                    Ok(want) => assert_eq!(v, want, "{inst} element {i} of {members:x?}"),
                    Err(want) => {
                        let x = e.value(v);
                        assert!(
                            x == want || x.is_nan() && want.is_nan(),
                            "{inst} element {i}: {x} for {want}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn st_in_every_form() {
    for (ty, vecs) in [("b32", &[1][..]), ("u64", &[1]), ("s32", &[1]), ("f64", &[1])]
        .into_iter()
        .chain(forms().into_iter().filter(|f| f.3.is_empty() && f.0.contains('f')).map(|f| (f.0, f.2)))
        .chain(forms().into_iter().filter(|f| f.3.is_empty() && f.0.starts_with('e')).map(|f| (f.0, f.2)))
    {
        for &vec in vecs {
            let mut t = team(ty, &[2, 3]);
            let (bits, count) = registers(ty, vec);
            let inst = format!("multimem.st.release.gpu.global{}.{ty}", suffix(vec));
            let body = format!("{}{inst} [%rd4], {};", plain(true, bits, count), list(count));
            let module = kernel(&body, bits, count);
            let n = 32 * bits as usize / 8 * count;
            let values: Vec<u8> = (0..n).map(|i| (i * 7 + 3) as u8).collect();
            let src = t.m.alloc(3, "src", n as u64, 16).unwrap();
            t.m.write(3, src, &values).unwrap();
            let before = |t: &Team, pe: usize| {
                let mut b = vec![0; 16 * 32];
                t.m.read(pe, t.m.local_addr(pe, t.x).unwrap(), &mut b).unwrap();
                b
            };
            let old: Vec<Vec<u8>> = (0..6).map(|pe| before(&t, pe)).collect();
            let mc = t.m.multicast_addr(3, t.x, t.team).unwrap();
            t.m.launch(&module, "k", &[grid(3, 1, 32, vec![Arg::U64(mc), Arg::U64(src)])]).unwrap();
            for (pe, old) in old.into_iter().enumerate() {
                let now = before(&t, pe);
                let member = t.members.contains(&pe);
                assert_eq!(
                    now[..n],
                    if member { values[..n].to_vec() } else { old[..n].to_vec() },
                    "{inst} PE {pe}"
                );
                assert_eq!(now[n..], old[n..], "{inst} PE {pe} behind");
            }
        }
    }
}

#[test]
fn red_in_every_form() {
    let sums = forms().into_iter().filter(|f| f.3.is_empty() && !f.0.starts_with('e'));
    for (ty, ops, vecs, _) in sums {
        let is_float = Elem::of(ty).float.is_some();
        for op in ops.split(' ').filter(|op| !is_float || *op == "add") {
            for &vec in vecs {
                let mut t = team(ty, &[1, 5, 0]);
                let (bits, count) = registers(ty, vec);
                let inst = format!("multimem.red.relaxed.sys.global.{op}{}.{ty}", suffix(vec));
                let body = format!("{}{inst} [%rd4], {};", plain(true, bits, count), list(count));
                let module = kernel(&body, bits, count);
                let n = 32 * bits as usize / 8 * count;
                let e = Elem::of(ty);
                let operands: Vec<u8> = (0..n * 8 / e.bits as usize)
                    .flat_map(|i| data(ty, 9, i).to_le_bytes()[..e.bits as usize / 8].to_vec())
                    .collect();
                let src = t.m.alloc(0, "src", n as u64, 16).unwrap();
                t.m.write(0, src, &operands).unwrap();
                let mc = t.m.multicast_addr(0, t.x, t.team).unwrap();
                t.m.launch(&module, "k", &[grid(0, 1, 32, vec![Arg::U64(mc), Arg::U64(src)])]).unwrap();
                for pe in 0..6 {
                    let mut now = vec![0; n];
                    t.m.read(pe, t.m.local_addr(pe, t.x).unwrap(), &mut now).unwrap();
                    for (i, &v) in words(&now, e.bits).iter().enumerate() {
                        let old = data(ty, pe, i);
                        if !t.members.contains(&pe) {
                            assert_eq!(v, old, "{inst} PE {pe}");
                            continue;
                        }
                        match reference(ty, op, "", &[old, data(ty, 9, i)]) {
                            Ok(want) => assert_eq!(v, want, "{inst} PE {pe} element {i}"),
                            Err(want) => assert_eq!(e.value(v), want, "{inst} PE {pe} element {i}"),
                        }
                    }
                }
            }
        }
    }
}

/// The accumulator matters, and so does the team's order: 2048 + 1 + 1 + 1 in half precision.
#[test]
fn accumulator_precision_and_order() {
    let run = |members: &[usize], acc: &str| {
        let mut m = machine(4);
        let x = m.alloc_symmetric("x", 4, 4).unwrap();
        for pe in 0..4 {
            let v: u32 = if pe == 0 { 0x6800_6800 } else { 0x3c00_3c00 };
            let at = m.local_addr(pe, x).unwrap();
            m.write(pe, at, &v.to_le_bytes()).unwrap();
        }
        let team = m.team(members).unwrap();
        let body =
            format!("multimem.ld_reduce.weak.global.add{acc}.f16x2 %v0, [%rd4];\nst.global.b32 [%rd5], %v0;");
        let out = m.alloc(0, "out", 4, 4).unwrap();
        let mc = m.multicast_addr(0, x, team).unwrap();
        m.launch(&kernel(&body, 32, 1), "k", &[grid(0, 1, 1, vec![Arg::U64(mc), Arg::U64(out)])]).unwrap();
        let mut b = [0; 2];
        m.read(0, out, &mut b).unwrap();
        decode(5, 10, true, u16::from_le_bytes(b).into())
    };
    assert_eq!(run(&[0, 1, 2, 3], ""), 2048.0);
    assert_eq!(run(&[1, 2, 3, 0], ""), 2052.0);
    assert_eq!(run(&[0, 1, 2, 3], ".acc::f32"), 2052.0);
}

#[test]
fn illegal_forms_are_rejected() {
    let parse = |inst: &str| {
        let regs = ".reg .b32 %r<9>; .reg .b64 %d<9>; .reg .b16 %h<9>;";
        let text = format!(
            ".version 9.0 .target sm_100a .address_size 64 .entry k(.param .u64 p) {{ {regs} {inst} ret; }}"
        );
        Module::parse(&text)
    };
    let good = [
        "multimem.ld_reduce.add.f32 %r1, [%d1];",
        "multimem.ld_reduce.weak.global.add.f32 %r1, [%d1+16];",
        "multimem.ld_reduce.acquire.cta.global.min.v2.f16 {%h1, %h2}, [%d1];",
        "multimem.red.add.u32 [%d1], 1;",
    ];
    for inst in good {
        assert!(parse(inst).is_ok(), "{inst}: {}", parse(inst).unwrap_err());
    }
    let bad = [
        // no scope, or one too many
        "multimem.ld_reduce.relaxed.global.add.f32 %r1, [%d1];",
        "multimem.ld_reduce.weak.sys.global.add.f32 %r1, [%d1];",
        "multimem.red.sys.global.add.u32 [%d1], 1;",
        // semantics the operation does not have
        "multimem.ld_reduce.release.sys.global.add.f32 %r1, [%d1];",
        "multimem.st.acquire.sys.global.f32 [%d1], %r1;",
        "multimem.red.weak.global.add.u32 [%d1], 1;",
        "multimem.ld_reduce.volatile.global.add.f32 %r1, [%d1];",
        // types, operations, vectors
        "multimem.ld_reduce.add.s64 %d2, [%d1];",
        "multimem.ld_reduce.min.f32 %r1, [%d1];",
        "multimem.ld_reduce.and.u32 %r1, [%d1];",
        "multimem.ld_reduce.add.f16 %h1, [%d1];",
        "multimem.ld_reduce.add.v8.f16x2 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%d1];",
        "multimem.ld_reduce.add.v2.f64 {%d2, %d3}, [%d1];",
        "multimem.ld_reduce.add.v2.u32 {%r1, %r2}, [%d1];",
        "multimem.st.v2.b32 [%d1], {%r1, %r2};",
        "multimem.red.add.v4.e4m3 [%d1], {%h1, %h2, %h3, %h4};",
        "multimem.red.min.f16x2 [%d1], %r1;",
        // accumulators
        "multimem.ld_reduce.min.acc::f32.f16x2 %r1, [%d1];",
        "multimem.ld_reduce.add.acc::f32.f32 %r1, [%d1];",
        "multimem.ld_reduce.add.acc::f16.f16x2 %r1, [%d1];",
        "multimem.ld_reduce.add.acc::f32.e4m3x4 %r1, [%d1];",
        // spaces and operands
        "multimem.ld_reduce.shared.add.f32 %r1, [%d1];",
        "multimem.ld_reduce.add.v4.f32 {%r1, %r2}, [%d1];",
        "multimem.ld_reduce.add.f32 %d2, [%d1];",
        "multimem.ld_reduce.L2::cache_hint.add.f32 %r1, [%d1], %d2;",
    ];
    for inst in bad {
        let e = parse(inst).expect_err(inst);
        assert!(matches!(e.code.as_str(), "P004" | "P005"), "{inst}: {e}");
    }
}
