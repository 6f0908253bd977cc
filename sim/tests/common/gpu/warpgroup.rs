//! `wgmma`: a CTA of one warpgroup fills shared memory with the operands, byte by byte as they come, multiplies, and
//! stores its registers.

use super::super::common::Rng;
use super::data::{
    BF16, DataKind, E4M3, E5M2, F16, F32, Format, KINDS, OperandName, TF32, bytes, floats, integers,
};
use super::{HEADER, Job};
use std::fmt::Write as _;

/// How an operand lies in shared memory: the fields of its matrix descriptor.
#[derive(Debug, Clone, Copy)]
struct Layout {
    /// Bytes after the start of the operand's memory.
    start: u32,
    leading: u32,
    stride: u32,
    /// 0 none, 1 of 128 bytes, 2 of 64, 3 of 32.
    swizzle: u64,
}

impl Layout {
    const PLAIN: Layout = Layout { start: 0, leading: 128, stride: 256, swizzle: 0 };
    /// All of the descriptor but the address.
    fn bits(self) -> u64 {
        u64::from(self.leading >> 4) << 16 | u64::from(self.stride >> 4) << 32 | self.swizzle << 62
    }
}

#[derive(Debug, Clone)]
struct Multiply {
    name: String,
    /// `m64n8k16.f32.f16.f16`
    form: String,
    /// What follows scale-d: imm-scale and imm-trans.
    immediates: &'static str,
    n: usize,
    a: Option<Format>,
    b: Option<Format>,
    d: Option<Format>,
    /// A in registers.
    registers: bool,
    /// Whether the accumulators are added.
    accumulate: bool,
    /// Bytes of shared memory of A and of B.
    size: [usize; 2],
    layouts: [Layout; 2],
    /// Bytes by which the descriptors' addresses go on, for each further instruction into the same accumulators.
    chain: Vec<u32>,
    trials: usize,
    seed: u64,
}

fn draw(f: Option<Format>, kind: DataKind, part: OperandName, words: usize, rng: &mut Rng) -> Vec<u32> {
    match f {
        Some(f) => floats(f, kind, part, words, rng),
        None => integers(words, rng),
    }
}

fn job(m: &Multiply) -> Job {
    let dwords = if m.d == Some(F16) { m.n / 4 } else { m.n / 2 };
    let a_registers = if m.registers { 4 } else { 0 };
    let [sa, sb] = m.size;
    let per_thread = 4 * (dwords + a_registers);
    let stride = sa + sb + 128 * per_thread;
    let mut k = format!(
        "{HEADER}.visible .entry k(.param .u64 k_out, .param .u64 k_in)\n{{\n.reg .b64 %u<12>;\n.reg .b32 %t<12>;\n\
         .reg .b32 %d<{dwords}>;\n.reg .b32 %a<4>;\n.reg .pred %p, %q;\n.shared .align 1024 .b8 buf[{}];\n\
         ld.param.b64 %u1, [k_out];\nld.param.b64 %u2, [k_in];\nmov.u32 %t1, %tid.x;\nmov.u32 %t2, %ctaid.x;\n\
         mad.wide.u32 %u2, %t2, {stride}, %u2;\nmad.wide.u32 %u1, %t2, {}, %u1;\nmov.u32 %t3, buf;\n\
         mul.wide.u32 %u3, %t1, 4;\nadd.u64 %u4, %u2, %u3;\nmad.lo.u32 %t4, %t1, 4, %t3;\nmul.lo.u32 %t5, %t1, 4;\n\
         setp.ge.u32 %p, %t5, {};\n@%p bra FILLED;\n\
         FILL:\nld.global.b32 %t6, [%u4];\nst.shared.b32 [%t4], %t6;\nadd.u64 %u4, %u4, 512;\n\
         add.u32 %t4, %t4, 512;\nadd.u32 %t5, %t5, 512;\nsetp.lt.u32 %p, %t5, {};\n@%p bra FILL;\n\
         FILLED:\nadd.u64 %u4, %u2, {};\nmad.wide.u32 %u4, %t1, {per_thread}, %u4;\n\
         mad.wide.u32 %u5, %t1, {}, %u1;\n",
        sa + sb,
        128 * 4 * dwords,
        sa + sb,
        sa + sb,
        sa + sb,
        4 * dwords
    );
    for i in 0..dwords {
        let _ = writeln!(k, "ld.global.b32 %d{i}, [%u4+{}];", 4 * i);
    }
    for i in 0..a_registers {
        let _ = writeln!(k, "ld.global.b32 %a{i}, [%u4+{}];", 4 * (dwords + i));
    }
    k.push_str("fence.proxy.async.shared::cta;\nbar.sync 0;\n");
    let _ = writeln!(k, "setp.ne.u32 %q, {}, 0;\nwgmma.fence.sync.aligned;", u32::from(m.accumulate));
    let names: Vec<_> = (0..dwords).map(|i| format!("%d{i}")).collect();
    for (i, go) in std::iter::once(&0).chain(&m.chain).enumerate() {
        for (r, base, l) in [("%u8", 0, m.layouts[0]), ("%u9", sa, m.layouts[1])] {
            let _ = write!(
                k,
                "add.u32 %t7, %t3, {};\nand.b32 %t7, %t7, 0x3ffff;\nshr.u32 %t7, %t7, 4;\ncvt.u64.u32 {r}, %t7;\n\
                 or.b64 {r}, {r}, 0x{:x};\n",
                base + (l.start + go) as usize,
                l.bits()
            );
        }
        if i > 0 {
            k.push_str("setp.eq.u32 %q, 0, 0;\n");
        }
        let a = if m.registers { "{%a0, %a1, %a2, %a3}" } else { "%u8" };
        let _ = writeln!(
            k,
            "wgmma.mma_async.sync.aligned.{} {{{}}}, {a}, %u9, %q{};",
            m.form,
            names.join(", "),
            m.immediates
        );
    }
    k.push_str("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n");
    for i in 0..dwords {
        let _ = writeln!(k, "st.global.b32 [%u5+{}], %d{i};", 4 * i);
    }
    k.push_str("ret;\n}\n");
    let mut rng = Rng(m.seed);
    let mut input = Vec::new();
    for trial in 0..m.trials {
        let kind = KINDS[trial % KINDS.len()];
        input.extend(draw(m.a, kind, OperandName::A, sa / 4, &mut rng));
        input.extend(draw(m.b, kind, OperandName::B, sb / 4, &mut rng));
        for _ in 0..128 {
            input.extend(draw(m.d, kind, OperandName::C, dwords, &mut rng));
            input.extend(draw(m.a, kind, OperandName::A, a_registers, &mut rng));
        }
    }
    let result = 512 * dwords;
    let few = if m.registers || m.trials < 16 { 6 } else { 16 };
    let raw = if m.d.is_none() || m.n > 8 { 512 } else { few * result };
    Job::simple(&m.name, k, [m.trials as u32, 128], bytes(&input), m.trials * result).raw(raw)
}

/// What the arithmetic does, on tiles as small as there are.
fn arithmetic(l: &mut Vec<Multiply>) {
    let halves = ", 1, 1, 0, 0";
    let floats = ", 1, 1";
    for (types, k, a, b, d, immediates) in [
        ("f32.f16.f16", 16, F16, F16, F32, halves),
        ("f16.f16.f16", 16, F16, F16, F16, halves),
        ("f32.bf16.bf16", 16, BF16, BF16, F32, halves),
        ("f32.tf32.tf32", 8, TF32, TF32, F32, floats),
        ("f32.e4m3.e4m3", 32, E4M3, E4M3, F32, floats),
        ("f16.e4m3.e4m3", 32, E4M3, E4M3, F16, floats),
        ("f32.e4m3.e5m2", 32, E4M3, E5M2, F32, floats),
        ("f32.e5m2.e4m3", 32, E5M2, E4M3, F32, floats),
        ("f32.e5m2.e5m2", 32, E5M2, E5M2, F32, floats),
        ("f16.e5m2.e5m2", 32, E5M2, E5M2, F16, floats),
    ] {
        let form = format!("m64n8k{k}.{types}");
        let plain = Multiply {
            name: format!("wgmma.{form}"),
            form: form.clone(),
            immediates,
            n: 8,
            a: Some(a),
            b: Some(b),
            d: Some(d),
            registers: false,
            accumulate: true,
            size: [2048, 256],
            layouts: [Layout::PLAIN, Layout::PLAIN],
            chain: Vec::new(),
            trials: 24,
            seed: 2000 + l.len() as u64,
        };
        l.push(Multiply {
            name: format!("wgmma.{form} A in registers"),
            registers: true,
            // There is no imm-trans-a.
            immediates: if immediates == halves { ", 1, 1, 0" } else { floats },
            seed: plain.seed + 100,
            ..plain.clone()
        });
        l.push(Multiply {
            name: format!("wgmma.{form} scale-d 0, negated"),
            accumulate: false,
            immediates: if immediates == halves { ", -1, 1, 0, 0" } else { ", 1, -1" },
            trials: 8,
            seed: plain.seed + 200,
            ..plain.clone()
        });
        l.push(Multiply {
            name: format!("wgmma.{form} four times"),
            size: [4 * 2048, 1024 + 2048 * 3],
            chain: vec![2048, 4096, 6144],
            trials: 8,
            seed: plain.seed + 300,
            ..plain.clone()
        });
        l.push(plain);
    }
    for at in ["s8", "u8"] {
        for bt in ["s8", "u8"] {
            for sat in ["", ".satfinite"] {
                let form = format!("m64n8k32{sat}.s32.{at}.{bt}");
                l.push(Multiply {
                    name: format!("wgmma.{form}"),
                    form: form.replace("m64n8k32.satfinite.s32", "m64n8k32.s32").clone(),
                    immediates: "",
                    n: 8,
                    a: None,
                    b: None,
                    d: None,
                    registers: sat.is_empty() && at == "s8",
                    accumulate: true,
                    size: [2048, 256],
                    layouts: [Layout::PLAIN, Layout::PLAIN],
                    chain: Vec::new(),
                    trials: 8,
                    seed: 2500 + l.len() as u64,
                });
                if !sat.is_empty() {
                    let last = l.last_mut().unwrap();
                    last.form = format!("m64n8k32.s32.{at}.{bt}.satfinite");
                }
            }
        }
    }
    l.push(Multiply {
        name: "wgmma.m64n8k256.s32.b1.b1.and.popc".into(),
        form: "m64n8k256.s32.b1.b1.and.popc".into(),
        immediates: "",
        n: 8,
        a: None,
        b: None,
        d: None,
        registers: false,
        accumulate: true,
        size: [2048, 256],
        layouts: [Layout::PLAIN, Layout::PLAIN],
        chain: Vec::new(),
        trials: 8,
        seed: 2600,
    });
}

/// Where the elements lie: all swizzles, both majors, strides of which none is implied.
fn layouts(l: &mut Vec<Multiply>) {
    let plain = |leading, stride| Layout { start: 0, leading, stride, swizzle: 0 };
    let swizzled = |swizzle, start, leading, stride| Layout { start, leading, stride, swizzle };
    let base = Multiply {
        name: String::new(),
        form: "m64n64k16.f32.f16.f16".into(),
        immediates: "",
        n: 64,
        a: Some(F16),
        b: Some(F16),
        d: Some(F32),
        registers: false,
        accumulate: false,
        size: [16384, 16384],
        layouts: [Layout::PLAIN; 2],
        chain: Vec::new(),
        trials: 1,
        seed: 0,
    };
    let both = [
        plain(128, 256),
        plain(1024, 128),
        plain(128, 1024),
        plain(4096, 512),
        swizzled(3, 0, 16, 256),
        swizzled(2, 0, 16, 512),
        swizzled(2, 32, 16, 512),
        swizzled(1, 0, 16, 1024),
        swizzled(1, 64, 16, 1024),
        swizzled(1, 96, 16, 1024),
        swizzled(3, 0, 4096, 1024),
        swizzled(3, 0, 1024, 512),
        swizzled(2, 0, 4096, 1024),
        swizzled(2, 0, 1024, 2048),
        swizzled(1, 0, 4096, 1024),
        swizzled(1, 0, 1024, 2048),
        swizzled(1, 2048, 2048, 4096),
    ];
    for (i, layout) in both.into_iter().enumerate() {
        for (ta, tb, immediates) in
            [(0, 0, ", 1, 1, 0, 0"), (1, 0, ", 1, 1, 1, 0"), (0, 1, ", 1, 1, 0, 1"), (1, 1, ", 1, 1, 1, 1")]
        {
            let Layout { start, leading, stride, swizzle } = layout;
            // Eight groups of rows, that far apart, do not fit.
            if 8 * stride as usize > base.size[1] && tb == 0 {
                continue;
            }
            l.push(Multiply {
                name: format!(
                    "wgmma layout: start {start}, leading {leading}, stride {stride}, swizzle {swizzle}, \
                     transposed {ta} {tb}"
                ),
                immediates,
                layouts: [layout, layout],
                seed: 3000 + 4 * i as u64 + 2 * ta + tb,
                ..base.clone()
            });
        }
    }
    let wide = |form: &str, n, immediates, a, d, seed| Multiply {
        name: format!("wgmma.{form}, swizzle 128"),
        form: form.into(),
        immediates,
        n,
        a,
        b: a,
        d,
        layouts: [swizzled(1, 32, 16, 1024); 2],
        size: [8192, (n / 8) * 1024],
        seed,
        ..base.clone()
    };
    l.push(wide("m64n256k16.f32.bf16.bf16", 256, ", 1, 1, 0, 0", Some(BF16), Some(F32), 3500));
    l.push(wide("m64n128k16.f16.f16.f16", 128, ", 1, 1, 0, 0", Some(F16), Some(F16), 3501));
    l.push(wide("m64n24k8.f32.tf32.tf32", 24, ", 1, 1", Some(TF32), Some(F32), 3502));
    l.push(wide("m64n104k32.f32.e4m3.e4m3", 104, ", 1, 1", Some(E4M3), Some(F32), 3503));
    l.push(wide("m64n96k32.s32.s8.s8", 96, "", None, None, 3504));
}

pub fn jobs() -> Vec<Job> {
    let mut l = Vec::new();
    arithmetic(&mut l);
    layouts(&mut l);
    l.iter().map(job).collect()
}
