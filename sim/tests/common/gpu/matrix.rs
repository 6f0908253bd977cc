//! Matrix instructions of a warp: `mma`, `wmma`, `ldmatrix`, `stmatrix`, `movmatrix`.

use super::super::common::Rng;
use super::data::{
    BF16, E4M3, E5M2, F16, F32, F64, Format, KINDS, OperandName, TF32, bytes, floats, integers,
};
use super::{HEADER, Job};
use std::fmt::Write as _;

const WARPS: usize = 64;

/// An operand's fragment in a lane: how many registers, of what.
#[derive(Debug, Clone, Copy)]
struct Fragment {
    registers: usize,
    of: Option<Format>,
}

const fn of(format: Format, registers: usize) -> Fragment {
    Fragment { registers, of: Some(format) }
}

const fn int(registers: usize) -> Fragment {
    Fragment { registers, of: None }
}

impl Fragment {
    fn bits(self) -> usize {
        if self.of == Some(F64) { 64 } else { 32 }
    }
    fn words(self) -> usize {
        self.registers * self.bits() / 32
    }
    fn draw(self, trial: usize, part: OperandName, rng: &mut Rng) -> Vec<u32> {
        match self.of {
            Some(f) => floats(f, KINDS[trial % KINDS.len()], part, self.words(), rng),
            None => integers(self.words(), rng),
        }
    }
    fn names(self, prefix: &str) -> String {
        let names: Vec<_> = (0..self.registers).map(|i| format!("%{prefix}{i}")).collect();
        format!("{{{}}}", names.join(", "))
    }
}

/// A lane loads its fragments, the warp executes one instruction, the lane stores its result.
fn multiply(mnemonic: &str, [a, b, c]: [Fragment; 3], metadata: Option<&str>, seed: u64) -> Job {
    let stride = 4 * (a.words() + b.words() + c.words() + usize::from(metadata.is_some()));
    let mut k = format!(
        "{HEADER}.visible .entry k(.param .u64 k_out, .param .u64 k_in)\n{{\n.reg .b64 %u<8>;\n.reg .b32 %t<4>, %e;\n"
    );
    for (n, f) in [("a", a), ("b", b), ("c", c), ("d", c)] {
        let _ = writeln!(k, ".reg .b{} %{n}<{}>;", f.bits(), f.registers);
    }
    let _ = write!(
        k,
        "ld.param.b64 %u1, [k_out];\nld.param.b64 %u2, [k_in];\nmov.u32 %t1, %tid.x;\nmov.u32 %t2, %ctaid.x;\n\
         mad.lo.s32 %t1, %t2, 32, %t1;\nmad.wide.u32 %u2, %t1, {stride}, %u2;\nmad.wide.u32 %u1, %t1, {}, %u1;\n",
        4 * c.words()
    );
    let mut at = 0;
    for (n, f) in [("a", a), ("b", b), ("c", c)] {
        for i in 0..f.registers {
            let _ = writeln!(k, "ld.global.b{} %{n}{i}, [%u2+{at}];", f.bits());
            at += f.bits() / 8;
        }
    }
    let tail = metadata.map_or(String::new(), |selector| {
        let _ = writeln!(k, "ld.global.b32 %e, [%u2+{at}];");
        format!(", %e, {selector}")
    });
    let _ = writeln!(
        k,
        "{mnemonic} {}, {}, {}, {}{tail};",
        c.names("d"),
        a.names("a"),
        b.names("b"),
        c.names("c")
    );
    for i in 0..c.registers {
        let _ = writeln!(k, "st.global.b{} [%u1+{}], %d{i};", c.bits(), i * c.bits() / 8);
    }
    k.push_str("ret;\n}\n");
    let mut rng = Rng(seed);
    let mut input = Vec::new();
    for trial in 0..WARPS {
        for _ in 0..32 {
            for (f, part) in [(a, OperandName::A), (b, OperandName::B), (c, OperandName::C)] {
                input.extend(f.draw(trial, part, &mut rng));
            }
            if metadata.is_some() {
                // Of each four elements two, in their order.
                let pairs = [0x4_u32, 0x8, 0xc, 0x9, 0xd, 0xe];
                input.push((0..8).fold(0, |w, i| w | pairs[rng.below(6) as usize] << (4 * i)));
            }
        }
    }
    let raw = if c.of.is_some() { 16 * 128 * c.words() } else { 512 };
    Job::simple(mnemonic, k, [WARPS as u32, 32], bytes(&input), WARPS * 128 * c.words()).raw(raw)
}

fn floating() -> Vec<(String, [Fragment; 3])> {
    let mut l: Vec<(String, [Fragment; 3])> = Vec::new();
    let mut add = |form: &str, types: &str, f: [Fragment; 3]| {
        l.push((format!("mma.sync.aligned.{form}.{types}"), f));
    };
    for (form, a, b) in [("m16n8k8.row.col", 2, 1), ("m16n8k16.row.col", 4, 2)] {
        add(form, "f32.f16.f16.f32", [of(F16, a), of(F16, b), of(F32, 4)]);
        add(form, "f16.f16.f16.f16", [of(F16, a), of(F16, b), of(F16, 2)]);
        add(form, "f32.bf16.bf16.f32", [of(BF16, a), of(BF16, b), of(F32, 4)]);
    }
    for form in ["m8n8k4.row.col", "m8n8k4.col.row"] {
        add(form, "f32.f16.f16.f32", [of(F16, 2), of(F16, 2), of(F32, 8)]);
        add(form, "f16.f16.f16.f16", [of(F16, 2), of(F16, 2), of(F16, 4)]);
    }
    add("m16n8k4.row.col", "f32.tf32.tf32.f32", [of(TF32, 2), of(TF32, 1), of(F32, 4)]);
    add("m16n8k8.row.col", "f32.tf32.tf32.f32", [of(TF32, 4), of(TF32, 2), of(F32, 4)]);
    for (form, a, b, c) in
        [("m8n8k4", 1, 1, 2), ("m16n8k4", 2, 1, 4), ("m16n8k8", 4, 2, 4), ("m16n8k16", 8, 4, 4)]
    {
        add(&format!("{form}.row.col"), "f64.f64.f64.f64", [of(F64, a), of(F64, b), of(F64, c)]);
    }
    for (at, a) in [("e4m3", E4M3), ("e5m2", E5M2)] {
        for (bt, b) in [("e4m3", E4M3), ("e5m2", E5M2)] {
            for (form, ra, rb) in [("m16n8k16.row.col", 2, 1), ("m16n8k32.row.col", 4, 2)] {
                add(form, &format!("f32.{at}.{bt}.f32"), [of(a, ra), of(b, rb), of(F32, 4)]);
                add(form, &format!("f16.{at}.{bt}.f16"), [of(a, ra), of(b, rb), of(F16, 2)]);
            }
        }
    }
    l
}

fn integer() -> Vec<(String, [Fragment; 3])> {
    let mut l = Vec::new();
    for (bits, shapes) in [
        (8, [("m8n8k16", 1, 1, 2), ("m16n8k16", 2, 1, 4), ("m16n8k32", 4, 2, 4)]),
        (4, [("m8n8k32", 1, 1, 2), ("m16n8k32", 2, 1, 4), ("m16n8k64", 4, 2, 4)]),
    ] {
        for (shape, a, b, c) in shapes {
            for (at, bt) in [("u", "u"), ("s", "s"), ("u", "s"), ("s", "u")] {
                for sat in ["", ".satfinite"] {
                    let name = format!("mma.sync.aligned.{shape}.row.col{sat}.s32.{at}{bits}.{bt}{bits}.s32");
                    l.push((name, [int(a), int(b), int(c)]));
                }
            }
        }
    }
    for (shape, a, b, c) in [("m8n8k128", 1, 1, 2), ("m16n8k128", 2, 1, 4), ("m16n8k256", 4, 2, 4)] {
        for op in ["xor", "and"] {
            let name = format!("mma.sync.aligned.{shape}.row.col.s32.b1.b1.s32.{op}.popc");
            l.push((name, [int(a), int(b), int(c)]));
        }
    }
    l
}

fn sparse() -> Vec<(String, [Fragment; 3], &'static str)> {
    let name = |form: &str| format!("mma.sp::ordered_metadata.sync.aligned.{form}");
    vec![
        (name("m16n8k16.row.col.f32.f16.f16.f32"), [of(F16, 2), of(F16, 2), of(F32, 4)], "0x1"),
        (name("m16n8k32.row.col.f32.f16.f16.f32"), [of(F16, 4), of(F16, 4), of(F32, 4)], "0x0"),
        (name("m16n8k32.row.col.f16.f16.f16.f16"), [of(F16, 4), of(F16, 4), of(F16, 2)], "0x1"),
        (name("m16n8k32.row.col.f32.bf16.bf16.f32"), [of(BF16, 4), of(BF16, 4), of(F32, 4)], "0x0"),
        (name("m16n8k64.row.col.f32.e4m3.e4m3.f32"), [of(E4M3, 4), of(E4M3, 4), of(F32, 4)], "0x0"),
        (name("m16n8k64.row.col.s32.s8.s8.s32"), [int(4), int(4), int(4)], "0x0"),
    ]
}

/// `wmma` from and to global memory, so that the fragments' layout does not matter.
fn wmma(shape: &str, [at, bt]: [&str; 2], layouts: [&str; 3], ab: Fragment, c: Fragment, seed: u64) -> Job {
    let number =
        |i: usize| shape.split(['m', 'n', 'k']).nth(i).and_then(|s| s.parse().ok()).unwrap_or(0_usize);
    let (m, n, k) = (number(1), number(2), number(3));
    let element = |t: &str| t.trim_start_matches(|x: char| x.is_alphabetic()).parse::<usize>().unwrap_or(16);
    let width = |t: &str| if t == "tf32" { 32 } else { element(t) };
    let (abytes, bbytes, cbytes) = (m * k * width(at) / 8, n * k * width(at) / 8, m * n * width(bt) / 8);
    let each = |layout: &str, row: usize, col: usize| if layout == "row" { col } else { row };
    let (sa, sb, sc) = (each(layouts[0], m, k), each(layouts[1], k, n), each(layouts[2], m, n));
    let stride = abytes + bbytes + cbytes;
    let b_registers = if at == "tf32" || at == "f16" { ab.registers } else { ab.registers * n / m };
    let b = Fragment { registers: b_registers.max(1), of: ab.of };
    let rounding = if at == "f64" { ".rn" } else { "" };
    let types = match at {
        "f16" => format!("{bt}.{bt}"),
        "s8" | "u8" | "bf16" | "tf32" | "f64" => format!("{bt}.{at}.{at}.{bt}"),
        _ => String::new(),
    };
    let [la, lb, lc] = layouts;
    let shared = format!(
        "{HEADER}.visible .entry k(.param .u64 k_out, .param .u64 k_in)\n{{\n.reg .b64 %u<8>;\n.reg .b32 %t<4>;\n\
         .reg .b{w} %a<{ra}>;\n.reg .b{w} %b<{rb}>;\n.reg .b{wc} %c<{rc}>;\n.reg .b{wc} %d<{rc}>;\n\
         ld.param.b64 %u1, [k_out];\nld.param.b64 %u2, [k_in];\nmov.u32 %t2, %ctaid.x;\n\
         mad.wide.u32 %u2, %t2, {stride}, %u2;\nmad.wide.u32 %u1, %t2, {cbytes}, %u1;\n\
         add.u64 %u3, %u2, {abytes};\nadd.u64 %u4, %u3, {bbytes};\n\
         wmma.load.a.sync.aligned.{la}.{shape}.global.{at} {a}, [%u2], {sa};\n\
         wmma.load.b.sync.aligned.{lb}.{shape}.global.{at} {b}, [%u3], {sb};\n\
         wmma.load.c.sync.aligned.{lc}.{shape}.global.{bt} {c}, [%u4], {sc};\n\
         wmma.mma.sync.aligned.{la}.{lb}.{shape}{rounding}.{types} {d}, {a}, {b}, {c};\n\
         wmma.store.d.sync.aligned.{lc}.{shape}.global.{bt} [%u1], {d}, {sc};\nret;\n}}\n",
        w = ab.bits(),
        wc = c.bits(),
        ra = ab.registers,
        rb = b.registers,
        rc = c.registers,
        a = ab.names("a"),
        b = b.names("b"),
        c = c.names("c"),
        d = c.names("d"),
    );
    let mut rng = Rng(seed);
    let mut input = Vec::new();
    let trials = 16;
    for trial in 0..trials {
        for (f, part, size) in
            [(ab, OperandName::A, abytes), (ab, OperandName::B, bbytes), (c, OperandName::C, cbytes)]
        {
            let whole = Fragment { registers: size * 8 / f.bits(), ..f };
            input.extend(whole.draw(trial, part, &mut rng));
        }
    }
    let name = format!("wmma.{la}.{lb}.{lc}.{shape}.{at}.{bt}");
    Job::simple(&name, shared, [trials as u32, 32], bytes(&input), trials * cbytes).raw(2048)
}

fn wmmas() -> Vec<Job> {
    let mut l = Vec::new();
    for (i, shape) in ["m16n16k16", "m32n8k16", "m8n32k16"].into_iter().enumerate() {
        let seed = 900 + 10 * i as u64;
        l.push(wmma(shape, ["f16", "f32"], ["row", "col", "row"], of(F16, 8), of(F32, 8), seed));
        l.push(wmma(shape, ["f16", "f16"], ["col", "row", "col"], of(F16, 8), of(F16, 4), seed + 1));
    }
    l.push(wmma("m16n16k16", ["f16", "f32"], ["row", "row", "col"], of(F16, 8), of(F32, 8), 940));
    l.push(wmma("m16n16k16", ["bf16", "f32"], ["row", "col", "row"], of(BF16, 4), of(F32, 8), 941));
    l.push(wmma("m16n16k16", ["s8", "s32"], ["row", "col", "row"], int(2), int(8), 942));
    l.push(wmma("m16n16k16", ["u8", "s32"], ["col", "row", "row"], int(2), int(8), 943));
    l.push(wmma("m16n16k8", ["tf32", "f32"], ["row", "col", "row"], of(TF32, 4), of(F32, 8), 944));
    l.push(wmma("m8n8k4", ["f64", "f64"], ["row", "col", "row"], of(F64, 1), of(F64, 2), 945));
    l
}

/// One warp moves 8x8 matrices between 4 KiB of shared memory, at rows anywhere, and registers.
fn moves() -> Vec<Job> {
    let mut l = Vec::new();
    let mut add = |name: &str, registers: usize, body: &str| {
        let names = int(registers).names("r");
        let mut k = format!(
            "{HEADER}.visible .entry k(.param .u64 k_out, .param .u64 k_in)\n{{\n.reg .b64 %u<8>;\n.reg .b32 %t<9>;\n\
             .reg .b32 %r<{registers}>;\n.reg .pred %p;\n.shared .align 128 .b8 buf[4096];\n\
             ld.param.b64 %u1, [k_out];\nld.param.b64 %u2, [k_in];\nmov.u32 %t1, %tid.x;\nmov.u32 %t2, %ctaid.x;\n\
             mad.wide.u32 %u2, %t2, 4736, %u2;\nmad.wide.u32 %u1, %t2, 4608, %u1;\nmov.u32 %t3, buf;\n\
             mul.wide.u32 %u3, %t1, 4;\nadd.u64 %u4, %u2, %u3;\nmad.lo.u32 %t4, %t1, 4, %t3;\nmov.u32 %t5, 0;\n\
             IN:\nld.global.b32 %t6, [%u4];\nst.shared.b32 [%t4], %t6;\nadd.u64 %u4, %u4, 128;\n\
             add.u32 %t4, %t4, 128;\nadd.u32 %t5, %t5, 1;\nsetp.lt.u32 %p, %t5, 32;\n@%p bra IN;\n\
             add.u64 %u4, %u2, %u3;\n"
        );
        for i in 0..registers {
            let _ = writeln!(k, "ld.global.b32 %r{i}, [%u4+{}];", 4096 + 128 * i);
        }
        let _ = write!(
            k,
            "ld.global.b32 %t7, [%u4+4608];\nadd.u32 %t7, %t7, %t3;\nbar.sync 0;\n{}\nbar.sync 0;\n\
             add.u64 %u5, %u1, %u3;\nmad.lo.u32 %t4, %t1, 4, %t3;\nmov.u32 %t5, 0;\n\
             OUT:\nld.shared.b32 %t6, [%t4];\nst.global.b32 [%u5], %t6;\nadd.u64 %u5, %u5, 128;\n\
             add.u32 %t4, %t4, 128;\nadd.u32 %t5, %t5, 1;\nsetp.lt.u32 %p, %t5, 32;\n@%p bra OUT;\n\
             add.u64 %u5, %u1, %u3;\n",
            body.replace("{}", &names)
        );
        for i in 0..registers {
            let _ = writeln!(k, "st.global.b32 [%u5+{}], %r{i};", 4096 + 128 * i);
        }
        k.push_str("ret;\n}\n");
        let mut rng = Rng(700);
        let mut input = Vec::new();
        for _ in 0..8 {
            input.extend(integers(1024 + 128, &mut rng));
            // A row for each lane, no two the same.
            let mut rows: Vec<u32> = (0..256).collect();
            input.extend((0..32).map(|_| 16 * rows.swap_remove(rng.below(rows.len() as u64) as usize)));
        }
        l.push(Job::simple(name, k, [8, 32], bytes(&input), 8 * 4608));
    };
    for (x, n) in [("x1", 1), ("x2", 2), ("x4", 4)] {
        for t in ["", ".trans"] {
            let load = format!("ldmatrix.sync.aligned.m8n8.{x}{t}.shared.b16");
            add(&load, n, &format!("{load} {{}}, [%t7];"));
            let store = format!("stmatrix.sync.aligned.m8n8.{x}{t}.shared.b16");
            add(&store, n, &format!("{store} [%t7], {{}};"));
        }
    }
    add("movmatrix", 1, "movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r0;");
    l
}

pub fn jobs() -> Vec<Job> {
    let mut l = Vec::new();
    let plain = floating().into_iter().chain(integer()).map(|(n, f)| (n, f, None));
    for (i, (name, f, metadata)) in
        plain.chain(sparse().into_iter().map(|(n, f, s)| (n, f, Some(s)))).enumerate()
    {
        l.push(multiply(&name, f, metadata, 1000 + i as u64));
    }
    l.extend(wmmas());
    l.extend(moves());
    l
}
