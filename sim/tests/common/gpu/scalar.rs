//! Instructions of single threads and of warps that the corpus of instructions (`corpus.rs`) does not have.

use super::super::common::In::{self, B16, B32, B64, Bf16, Bf16x2, F16, F16x2, F32};
use super::super::common::{Case, bytes, case, inputs, kernel};
use super::{HEADER, Job};

const THREADS: usize = 512;

/// Video instructions (9.7.18): 32-bit and SIMD.
fn video(l: &mut Vec<Case>) {
    let mut add = |body: String, ins: &[In]| l.push(case(body, ins, &[32]));
    for op in ["vadd", "vsub", "vabsdiff", "vmin", "vmax"] {
        for (d, a, b) in
            [("u32", "u32", "u32"), ("s32", "s32", "s32"), ("s32", "u32", "s32"), ("u32", "s32", "s32")]
        {
            for sat in ["", ".sat"] {
                add(format!("{op}.{d}.{a}.{b}{sat} %x, %a.h1, %b.b2;"), &[B32, B32]);
                add(format!("{op}.{d}.{a}.{b}{sat} %x, %a, %b;"), &[B32, B32]);
            }
            for second in ["add", "min", "max"] {
                add(format!("{op}.{d}.{a}.{b}.sat.{second} %x, %a.b0, %b.h0, %c;"), &[B32; 3]);
            }
            add(format!("{op}.{d}.{a}.{b}.sat %x.b1, %a, %b, %c;"), &[B32; 3]);
            add(format!("{op}.{d}.{a}.{b} %x.h1, %a, %b.b3, %c;"), &[B32; 3]);
        }
    }
    for mode in ["clamp", "wrap"] {
        for op in ["vshl", "vshr"] {
            for (d, a) in [("u32", "u32"), ("s32", "s32"), ("u32", "s32")] {
                add(format!("{op}.{d}.{a}.u32.{mode} %x, %a, %b.b0;"), &[B32, B32]);
                add(format!("{op}.{d}.{a}.u32.sat.{mode}.add %x, %a.h1, %b, %c;"), &[B32, B32, B32]);
            }
        }
    }
    for (a, b) in [("u32", "u32"), ("s32", "s32"), ("u32", "s32")] {
        let d = if a == "u32" && b == "u32" { "u32" } else { "s32" };
        for m in ["", ".sat", ".shr7", ".sat.shr15"] {
            add(format!("vmad.{d}.{a}.{b}{m} %x, %a.h0, %b.h1, %c;"), &[B32; 3]);
            add(format!("vmad.{d}.{a}.{b}{m} %x, %a, %b, %c;"), &[B32; 3]);
        }
    }
    add("vmad.u32.u32.u32.po %x, %a.h0, %b.h1, %c;".into(), &[B32; 3]);
    add("vmad.s32.s32.s32 %x, -%a, %b.b1, %c;".into(), &[B32; 3]);
    for op in ["eq", "ne", "lt", "le", "gt", "ge"] {
        add(format!("vset.u32.u32.{op} %x, %a.b0, %b.b3;"), &[B32, B32]);
        add(format!("vset.s32.s32.{op} %x, %a, %b.h1;"), &[B32, B32]);
        add(format!("vset.s32.u32.{op}.add %x, %a, %b, %c;"), &[B32; 3]);
        for n in [2, 4] {
            add(format!("vset{n}.u32.u32.{op} %x, %a, %b, %c;"), &[B32; 3]);
            add(format!("vset{n}.s32.s32.{op}.add %x, %a, %b, %c;"), &[B32; 3]);
        }
    }
    for n in [2, 4] {
        for op in ["vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax"] {
            for (d, a, b) in [("u32", "u32", "u32"), ("s32", "s32", "s32"), ("s32", "u32", "s32")] {
                for sat in ["", ".sat"].into_iter().filter(|s| op != "vavrg" || s.is_empty()) {
                    add(format!("{op}{n}.{d}.{a}.{b}{sat} %x, %a, %b, %c;"), &[B32; 3]);
                }
                add(format!("{op}{n}.{d}.{a}.{b}.add %x, %a, %b, %c;"), &[B32; 3]);
            }
        }
    }
    add("vadd2.u32.u32.u32 %x.h10, %a.h12, %b.h30, %c;".into(), &[B32; 3]);
    add("vmax2.s32.s32.s32 %x.h1, %a.h31, %b.h20, %c;".into(), &[B32; 3]);
    add("vadd4.u32.u32.u32.sat %x.b310, %a.b7654, %b.b0123, %c;".into(), &[B32; 3]);
}

fn arithmetic(l: &mut Vec<Case>) {
    for (t, k) in [("u16", B16), ("u32", B32), ("u64", B64), ("s16", B16), ("s32", B32), ("s64", B64)] {
        for op in ["div", "rem"] {
            let b = k.bits();
            l.push(case(format!("or.b{b} %b, %b, 1;\n{op}.{t} %x, %a, %b;"), &[k, k], &[b]));
        }
    }
    for (t, k) in [("f16", F16), ("f16x2", F16x2), ("bf16", Bf16), ("bf16x2", Bf16x2)] {
        l.push(case(format!("fma.rn.oob.{t} %x, %a, %b, %c;"), &[k; 3], &[k.bits()]));
        l.push(case(format!("fma.rn.oob.relu.{t} %x, %a, %b, %c;"), &[k; 3], &[k.bits()]));
    }
    l.push(case("cvt.rna.satfinite.tf32.f32 %x, %a;", &[F32], &[32]));
    for (t, k) in [("f32", F32), ("f16", F16), ("f64", In::F64)] {
        for d in ["s8", "u8", "s16", "u32"] {
            let register = if d == "u32" { 32 } else { 16 };
            l.push(case(format!("cvt.rni.sat.{d}.{t} %x, %a;"), &[k], &[register]));
        }
    }
    for d in ["s32", "u32", "s64", "u64"] {
        let bits = if d.ends_with("64") { 64 } else { 32 };
        l.push(case(format!("cvt.rzi.ftz.{d}.f32 %x, %a;"), &[F32], &[bits]));
    }
    for t in ["s8", "u8", "s16", "u16", "s32"] {
        let body = format!(
            "st.shared.b64 [%u8], %a;\nld.shared.{t} %x, [%u8+4];\nst.shared.b64 [%u8+8], %a;\nst.shared.{} [%u8+8], %x;\n\
             ld.shared.b64 %y, [%u8+8];",
            t.replace('s', "u").replace("u32", "b32")
        );
        l.push(case(body, &[B64], &[64, 64]));
    }
    for op in ["and", "or"] {
        let body = format!(
            "setp.lt.s32 %q, %c, 0;\nlop3.{op}.b32 %x|%p, %a, %b, %c, 0x48, %q;\nselp.b32 %y, 1, 0, %p;"
        );
        l.push(case(body, &[B32; 3], &[32, 32]));
    }
}

fn atomics(l: &mut Vec<Case>) {
    for (space, at) in [("global", "%u4"), ("shared", "%u8")] {
        let setup = format!(
            "{{\n.reg .b128 %w<4>;\nmov.b128 %w1, {{%a, %b}};\nmov.b128 %w2, {{%c, %d}};\nst.{space}.b64 [{at}], %a;\n\
             st.{space}.b64 [{at}+8], %b;\n"
        );
        let rest = format!(
            "mov.b128 {{%x, %y}}, %w3;\nld.{space}.b64 %a, [{at}];\nld.{space}.b64 %b, [{at}+8];\n\
             xor.b64 %x, %x, %a;\nadd.u64 %y, %y, %b;\n}}"
        );
        for op in [format!("exch.b128 %w3, [{at}], %w2"), format!("cas.b128 %w3, [{at}], %w1, %w2")] {
            l.push(case(format!("{setup}atom.{space}.{op};\n{rest}"), &[B64; 4], &[64, 64]));
        }
    }
    for (vec, ty, k) in [
        ("v4", "f32", F32),
        ("v8", "f16", F16x2),
        ("v8", "bf16", Bf16x2),
        ("v4", "f16x2", F16x2),
        ("v4", "bf16x2", Bf16x2),
    ] {
        let ops: &[&str] = if ty == "f32" { &["add"] } else { &["add.noftz", "min.noftz", "max.noftz"] };
        for op in ops {
            let kind = if vec == "v8" { "16" } else { "32" };
            let split = |r: [&str; 4], tag: &str| {
                if vec == "v8" {
                    let mut s = String::new();
                    for (i, r) in r.iter().enumerate() {
                        s += &format!("mov.b32 {{%h{tag}{}, %h{tag}{}}}, {r};\n", 2 * i, 2 * i + 1);
                    }
                    let names: Vec<_> = (0..8).map(|i| format!("%h{tag}{i}")).collect();
                    (s, names.join(", "))
                } else {
                    (String::new(), r.join(", "))
                }
            };
            let (unpack, b) = split(["%c", "%d", "%a", "%b"], "b");
            let old: Vec<_> = (0..if vec == "v8" { 8 } else { 4 }).map(|i| format!("%o{i}")).collect();
            let body = format!(
                "{{\n.reg .b{kind} %o<8>;\n.reg .b16 %hb<8>;\n.reg .b64 %v<4>;\n{unpack}mad.lo.u32 %t1, %t2, %t3, %t1;\n\
                 cvt.u64.u32 %v1, %t1;\nmul.lo.u64 %v1, %v1, 16;\nmov.u64 %v2, pool;\nadd.u64 %v1, %v1, %v2;\n\
                 st.global.v4.b32 [%v1], {{%a, %b, %c, %d}};\n\
                 atom.global.{op}.{vec}.{ty} {{{}}}, [%v1], {{{b}}};\nred.global.{op}.{vec}.{ty} [%v1], {{{b}}};\n\
                 ld.global.v2.b64 {{%x, %y}}, [%v1];\n}}",
                old.join(", ")
            );
            l.push(case(body, &[k; 4], &[64, 64]));
        }
    }
}

/// Parts of a warp: each side of a branch has its own mask.
fn warps(l: &mut Vec<Case>) {
    let sides = |one: &str, two: &str| {
        format!(
            "setp.lt.s32 %q, %a, 0;\nvote.sync.ballot.b32 %t2, %q, -1;\nnot.b32 %t3, %t2;\n@%q bra LESS;\n{one}\n\
             bra.uni JOIN;\nLESS:\n{two}\nJOIN:\nbar.warp.sync -1;"
        )
    };
    for op in ["add.s32", "min.u32", "max.s32", "xor.b32", "and.b32"] {
        let each = |m: &str| format!("redux.sync.{op} %x, %b, {m};");
        // Some bits are one in all lanes.
        let body = format!("or.b32 %b, %b, 0x5a;\n{}", sides(&each("%t3"), &each("%t2")));
        l.push(case(body, &[B32, B32], &[32]));
    }
    for mode in ["any", "all"] {
        let p = if mode == "all" { "|%p" } else { "" };
        let bits = if mode == "all" { 0 } else { 3 };
        let each = |m: &str| format!("match.{mode}.sync.b32 %x{p}, %b, {m};");
        l.push(case(
            format!("and.b32 %b, %b, {bits};\n{}", sides(&each("%t3"), &each("%t2"))),
            &[B32, B32],
            &[32],
        ));
    }
    l.push(case(sides("activemask.b32 %x;", "activemask.b32 %x;\nnot.b32 %x, %x;"), &[B32], &[32]));
    l.push(case(
        sides(
            "elect.sync %x|%p, %t3;\nselp.b32 %y, 1, 0, %p;",
            "elect.sync %x|%p, %t2;\nselp.b32 %y, 2, 0, %p;",
        ),
        &[B32],
        &[32, 32],
    ));
}

/// The NaN that fills boxes of tensors, by turns in each operand.
fn outside(l: &mut Vec<Case>) {
    for (t, k) in [("f16", F16), ("f16x2", F16x2), ("bf16", Bf16), ("bf16x2", Bf16x2)] {
        let nans = if k.bits() == 16 { ["0x7ff7", "0xfff7"] } else { ["0x7ff73c00", "0x12347ff7"] };
        let turns: String = ["a", "b", "c"]
            .iter()
            .flat_map(|operand| nans.map(|nan| (operand, nan)))
            .enumerate()
            .map(|(i, (operand, nan))| {
                format!("setp.eq.u32 %p, %t2, {i};\n@%p mov.b{} %{operand}, {nan};\n", k.bits())
            })
            .collect();
        let text = format!("and.b32 %t2, %t1, 7;\n{turns}fma.rn.oob.{t} %x, %a, %b, %c;");
        l.push(case(text, &[k; 3], &[k.bits()]));
    }
}

pub fn jobs() -> Vec<Job> {
    let mut l = Vec::new();
    video(&mut l);
    arithmetic(&mut l);
    atomics(&mut l);
    warps(&mut l);
    outside(&mut l);
    l.iter()
        .enumerate()
        .map(|(i, c)| {
            let pool = if c.body.contains("pool") { ".global .align 16 .b8 pool[8192];\n" } else { "" };
            let ptx = format!("{HEADER}{pool}{}", kernel("k", c)).replace("8.7", "8.6");
            let input = bytes(&inputs(c, THREADS, 5000 + i as u64));
            let out = THREADS * c.outs.len() * 8;
            Job::simple(&c.body.replace('\n', " "), ptx, [2, 256], input, out).raw(512)
        })
        .collect()
}
