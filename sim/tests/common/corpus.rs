//! Instructions whose results the ISA defines bit by bit (or nearly all of them), in their forms.

use super::common::In::{self, B16, B32, B64, Bf16, Bf16x2, Byte, F16, F16x2, F32, F32x2, F64, Fp8x2, Small};
use super::common::{Case, case};

fn of(ty: &str) -> In {
    match ty {
        "f16" => F16,
        "bf16" => Bf16,
        "f16x2" => F16x2,
        "bf16x2" => Bf16x2,
        "f32" => F32,
        "f32x2" => F32x2,
        "f64" => F64,
        t if t.ends_with("16x2") || t.ends_with("32") => B32,
        t if t.ends_with("16") => B16,
        t if t.ends_with("64") => B64,
        _ => panic!("no operand kind for {ty}"),
    }
}

struct List(Vec<Case>);

impl List {
    fn add(&mut self, body: String, ins: &[In], outs: &[u32]) {
        self.0.push(case(body, ins, outs));
    }
    /// `op d, a`, `op d, a, b`, ... with all operands of the type that ends the mnemonic.
    fn same(&mut self, op: &str, operands: usize) {
        let k = of(op.rsplit('.').next().unwrap_or(""));
        let names = ["%a", "%b", "%c"][..operands].join(", ");
        self.add(format!("{op} %x, {names};"), &vec![k; operands], &[k.bits()]);
    }
}

/// `sm_100` says whether forms are included that sm_90 does not have.
pub fn corpus(sm_100: bool) -> Vec<Case> {
    let mut l = List(Vec::new());
    let ints = ["u16", "u32", "u64", "s16", "s32", "s64"];
    for t in ints {
        for op in ["add", "sub", "mul.lo", "mul.hi", "min", "max"] {
            l.same(&format!("{op}.{t}"), 2);
        }
        for op in ["mad.lo", "mad.hi", "sad"] {
            l.same(&format!("{op}.{t}"), 3);
        }
    }
    for t in ["s16", "s32", "s64"] {
        l.same(&format!("abs.{t}"), 1);
        l.same(&format!("neg.{t}"), 1);
    }
    for (t, wide) in [("u16", 32), ("s16", 32), ("u32", 64), ("s32", 64)] {
        l.add(format!("mul.wide.{t} %x, %a, %b;"), &[of(t), of(t)], &[wide]);
        let k = if wide == 32 { B32 } else { B64 };
        l.add(format!("mad.wide.{t} %x, %a, %b, %c;"), &[of(t), of(t), k], &[wide]);
    }
    for op in ["add.u16x2", "add.s16x2", "min.u16x2", "max.s16x2", "max.relu.s16x2", "min.relu.s16x2"] {
        l.same(op, 2);
    }
    for op in ["add.sat.s32", "sub.sat.s32", "max.relu.s32", "min.relu.s32"] {
        l.same(op, 2);
    }
    l.same("mad.hi.sat.s32", 3);
    for t in ["b16", "b32", "b64"] {
        for op in ["and", "or", "xor"] {
            l.same(&format!("{op}.{t}"), 2);
        }
        for op in ["not", "cnot"] {
            l.same(&format!("{op}.{t}"), 1);
        }
        l.add(format!("shl.{t} %x, %a, %b;"), &[of(t), Small], &[of(t).bits()]);
    }
    for t in ints {
        l.add(format!("shr.{t} %x, %a, %b;"), &[of(t), Small], &[of(t).bits()]);
    }
    for m in ["l.clamp", "l.wrap", "r.clamp", "r.wrap"] {
        l.add(format!("shf.{m}.b32 %x, %a, %b, %c;"), &[B32, B32, Small], &[32]);
    }
    for t in ["b32", "b64"] {
        l.add(format!("popc.{t} %x, %a;"), &[of(t)], &[32]);
        l.add(format!("clz.{t} %x, %a;"), &[of(t)], &[32]);
        l.same(&format!("brev.{t}"), 1);
        l.add(format!("bfi.{t} %x, %a, %b, %c, %d;"), &[of(t), of(t), Byte, Byte], &[of(t).bits()]);
    }
    for t in ["u32", "s32", "u64", "s64"] {
        l.add(format!("bfe.{t} %x, %a, %b, %c;"), &[of(t), Byte, Byte], &[of(t).bits()]);
        l.add(format!("bfind.{t} %x, %a;"), &[of(t)], &[32]);
        l.add(format!("bfind.shiftamt.{t} %x, %a;"), &[of(t)], &[32]);
    }
    for m in ["clamp", "wrap"] {
        l.add(format!("bmsk.{m}.b32 %x, %a, %b;"), &[Small, Small], &[32]);
        for t in ["u32", "s32"] {
            l.add(format!("szext.{m}.{t} %x, %a, %b;"), &[B32, Small], &[32]);
        }
    }
    l.add("and.b32 %b, %b, 31;\nshr.s32 %c, %c, 26;\nfns.b32 %x, %a, %b, %c;".into(), &[B32; 3], &[32]);
    l.add("prmt.b32 %x, %a, %b, %c;".into(), &[B32, B32, B32], &[32]);
    for m in ["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"] {
        l.add(format!("prmt.b32.{m} %x, %a, %b, %c;"), &[B32, B32, B32], &[32]);
    }
    for (a, b) in [("u32", "u32"), ("u32", "s32"), ("s32", "u32"), ("s32", "s32")] {
        l.add(format!("dp4a.{a}.{b} %x, %a, %b, %c;"), &[B32; 3], &[32]);
        l.add(format!("dp2a.lo.{a}.{b} %x, %a, %b, %c;"), &[B32; 3], &[32]);
        l.add(format!("dp2a.hi.{a}.{b} %x, %a, %b, %c;"), &[B32; 3], &[32]);
    }
    for m in ["hi", "lo"] {
        for t in ["u32", "s32"] {
            l.same(&format!("mul24.{m}.{t}"), 2);
            l.same(&format!("mad24.{m}.{t}"), 3);
        }
    }
    for lut in [0x80, 0x96, 0xe8, 0xca, 0x1b] {
        l.add(format!("lop3.b32 %x, %a, %b, %c, {lut};"), &[B32; 3], &[32]);
    }
    for t in ["u32", "u64"] {
        let k = of(t);
        let two = [k.bits(), k.bits()];
        l.add(format!("add.cc.{t} %x, %a, %b;\naddc.{t} %y, %c, 0;"), &[k; 3], &two);
        l.add(format!("add.cc.{t} %x, %a, %b;\naddc.cc.{t} %x, %b, %c;\naddc.{t} %y, 0, 0;"), &[k; 3], &two);
        l.add(format!("sub.cc.{t} %x, %a, %b;\nsubc.{t} %y, %c, %a;"), &[k; 3], &two);
        l.add(format!("mad.lo.cc.{t} %x, %a, %b, %c;\nmadc.hi.{t} %y, %a, %b, 0;"), &[k; 3], &two);
        l.add(format!("sub.cc.{t} %x, %a, %b;\nsubc.cc.{t} %x, %b, %c;\nsubc.{t} %y, 0, 0;"), &[k; 3], &two);
    }
    comparisons(&mut l);
    floats(&mut l, sm_100);
    halves(&mut l);
    conversions(&mut l);
    atomics(&mut l);
    warps(&mut l);
    l.0
}

/// Instructions of which the ISA bounds only the error.
pub fn approximate() -> Vec<Case> {
    let mut l = List(Vec::new());
    for op in
        ["rcp.approx", "sqrt.approx", "rsqrt.approx", "sin.approx", "cos.approx", "lg2.approx", "ex2.approx"]
    {
        l.same(&format!("{op}.f32"), 1);
        l.same(&format!("{op}.ftz.f32"), 1);
    }
    l.same("tanh.approx.f32", 1);
    l.same("div.approx.f32", 2);
    l.same("div.full.f32", 2);
    l.same("div.full.ftz.f32", 2);
    for t in ["f16", "f16x2", "bf16", "bf16x2"] {
        l.same(&format!("tanh.approx.{t}"), 1);
        l.same(&format!("ex2.approx.{}{t}", if t.starts_with('b') { "ftz." } else { "" }), 1);
    }
    l.same("rcp.approx.ftz.f64", 1);
    l.same("rsqrt.approx.ftz.f64", 1);
    l.same("rsqrt.approx.f64", 1);
    l.0
}

fn comparisons(l: &mut List) {
    let select = "selp.b32 %x, 1, 0, %p;\nselp.b32 %y, 1, 0, %q;";
    for t in ["u16", "u32", "u64", "s16", "s32", "s64"] {
        for op in ["eq", "ne", "lt", "le", "gt", "ge"] {
            l.add(format!("setp.{op}.{t} %p|%q, %a, %b;\n{select}"), &[of(t), of(t)], &[32, 32]);
        }
    }
    for op in ["lo", "ls", "hi", "hs"] {
        l.add(format!("setp.{op}.u32 %p|%q, %a, %b;\n{select}"), &[B32, B32], &[32, 32]);
    }
    for t in ["f32", "f64", "f16", "bf16"] {
        for op in ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"]
        {
            if of(t).bits() == 16 {
                l.add(format!("setp.{op}.{t} %p, %a, %b;\nselp.b32 %x, 1, 0, %p;"), &[of(t), of(t)], &[32]);
            } else {
                l.add(format!("setp.{op}.{t} %p|%q, %a, %b;\n{select}"), &[of(t), of(t)], &[32, 32]);
            }
        }
    }
    for op in ["eq", "lt", "geu"] {
        l.add(format!("setp.{op}.ftz.f32 %p|%q, %a, %b;\n{select}"), &[F32, F32], &[32, 32]);
        l.add(format!("setp.{op}.f16x2 %p|%q, %a, %b;\n{select}"), &[F16x2, F16x2], &[32, 32]);
    }
    for op in ["and", "or", "xor"] {
        let body = format!("setp.lt.s32 %q, %a, 5;\nsetp.gt.{op}.s32 %p|%q, %a, %b, !%q;\n{select}");
        l.add(body, &[B32, B32], &[32, 32]);
    }
    l.add("set.lt.u32.f32 %x, %a, %b;".into(), &[F32, F32], &[32]);
    l.add("set.gt.f32.s32 %x, %a, %b;".into(), &[B32, B32], &[32]);
    l.add("slct.b32.s32 %x, %a, %b, %c;".into(), &[B32; 3], &[32]);
    l.add("slct.b32.f32 %x, %a, %b, %c;".into(), &[B32, B32, F32], &[32]);
}

fn floats(l: &mut List, sm_100: bool) {
    for r in ["rn", "rz", "rm", "rp"] {
        for t in ["f32", "f64", "ftz.f32"] {
            for op in ["add", "sub", "mul"] {
                l.same(&format!("{op}.{r}.{t}"), 2);
            }
            l.same(&format!("fma.{r}.{t}"), 3);
            l.same(&format!("div.{r}.{t}"), 2);
            l.same(&format!("sqrt.{r}.{t}"), 1);
            l.same(&format!("rcp.{r}.{t}"), 1);
        }
    }
    for op in ["add.sat.f32", "mul.sat.f32", "add.ftz.sat.f32"] {
        l.same(op, 2);
    }
    l.same("fma.rn.sat.f32", 3);
    for op in ["min", "max"] {
        for t in ["f32", "f64", "ftz.f32", "NaN.f32", "xorsign.abs.f32", "NaN.xorsign.abs.f32"] {
            l.same(&format!("{op}.{t}"), 2);
        }
    }
    for t in ["f32", "ftz.f32", "f64"] {
        l.same(&format!("abs.{t}"), 1);
        l.same(&format!("neg.{t}"), 1);
    }
    l.same("copysign.f32", 2);
    l.same("copysign.f64", 2);
    for t in ["f32", "f64"] {
        for op in ["finite", "infinite", "number", "notanumber", "normal", "subnormal"] {
            l.add(format!("testp.{op}.{t} %p, %a;\nselp.b32 %x, 1, 0, %p;"), &[of(t)], &[32]);
        }
    }
    // Just below the smallest normal number, by products: what is flushed?
    for (a, b) in [
        ("3f7fffff", "00800000"),
        ("20000400", "1fffff00"),
        ("207fffff", "1f800000"),
        ("1fffffff", "20000000"),
    ] {
        for m in ["rn", "rp", "rz"] {
            for c in ["00000000", "80000000"] {
                let set = format!("mov.b32 %a, 0f{a};\nmov.b32 %b, 0f{b};");
                l.add(
                    format!("{set}\nfma.{m}.ftz.f32 %x, %a, %b, 0f{c};\nmul.{m}.ftz.f32 %y, %a, %b;"),
                    &[F32; 2],
                    &[32, 32],
                );
            }
        }
    }
    l.add(
        "mov.b32 %a, 0x80028001;\nfma.rn.ftz.f32 %x, %a, 0f3f800000, %b;\nadd.rn.ftz.f32 %y, %a, %b;".into(),
        &[B32, F32],
        &[32, 32],
    );
    if sm_100 {
        for op in ["add.rn.f32x2", "mul.rn.f32x2", "add.rz.ftz.f32x2"] {
            l.same(op, 2);
        }
        l.same("fma.rn.f32x2", 3);
        l.add("add.rn.f32.bf16 %x, %a, %b;".into(), &[Bf16, F32], &[32]);
        l.add("fma.rn.f32.f16 %x, %a, %b, %c;".into(), &[F16, F16, F32], &[32]);
    }
}

fn halves(l: &mut List) {
    for t in ["f16", "f16x2", "bf16", "bf16x2"] {
        for op in ["add.rn", "sub.rn", "mul.rn", "min", "max", "min.NaN", "max.NaN", "max.xorsign.abs"] {
            l.same(&format!("{op}.{t}"), 2);
        }
        l.same(&format!("fma.rn.{t}"), 3);
        l.same(&format!("fma.rn.relu.{t}"), 3);
        l.same(&format!("abs.{t}"), 1);
        l.same(&format!("neg.{t}"), 1);
    }
    for t in ["f16", "f16x2"] {
        for op in ["add.sat", "mul.ftz", "add.ftz.sat", "sub.rn.ftz", "min.ftz"] {
            l.same(&format!("{op}.{t}"), 2);
        }
        l.same(&format!("fma.rn.sat.{t}"), 3);
        l.same(&format!("fma.rn.ftz.{t}"), 3);
    }
}

fn conversions(l: &mut List) {
    let width = |t: &str| {
        t.trim_start_matches(|c: char| c.is_ascii_alphabetic()).parse::<u32>().unwrap_or(32).max(16)
    };
    let ints = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"];
    let register = |t: &str| match width(t) {
        16 => B16,
        32 => B32,
        _ => B64,
    };
    for d in ints {
        for a in ints {
            l.add(format!("cvt.{d}.{a} %x, %a;"), &[register(a)], &[width(d).max(32)]);
            let bits = |t: &str| t[1..].parse::<u32>().unwrap_or(0);
            let fits = match (&a[..1], &d[..1]) {
                ("u", "s") => bits(d) > bits(a),
                ("s", "u") => false,
                _ => bits(d) >= bits(a),
            };
            if !fits {
                l.add(format!("cvt.sat.{d}.{a} %x, %a;"), &[register(a)], &[width(d)]);
            }
        }
    }
    for f in ["f16", "bf16", "f32", "f64"] {
        for i in ints.into_iter().filter(|i| f != "bf16" || i.len() > 2) {
            for r in ["rn", "rz", "rm", "rp"] {
                l.add(format!("cvt.{r}.{f}.{i} %x, %a;"), &[register(i)], &[of(f).bits()]);
                l.add(format!("cvt.{r}i.{i}.{f} %x, %a;"), &[of(f)], &[width(i)]);
            }
        }
    }
    for r in ["rn", "rz", "rm", "rp"] {
        for (d, a) in [
            ("f16", "f32"),
            ("f16", "f64"),
            ("bf16", "f64"),
            ("f32", "f64"),
            ("bf16", "f16"),
            ("f16", "bf16"),
        ] {
            l.add(format!("cvt.{r}.{d}.{a} %x, %a;"), &[of(a)], &[of(d).bits()]);
        }
        for t in ["f16", "f32", "f64", "bf16"] {
            l.add(format!("cvt.{r}i.{t}.{t} %x, %a;"), &[of(t)], &[of(t).bits()]);
        }
        l.add(format!("cvt.{r}.ftz.f32.f64 %x, %a;"), &[F64], &[32]);
        l.add(format!("cvt.{r}.sat.f32.f64 %x, %a;"), &[F64], &[32]);
    }
    for (d, a) in [("f32", "f16"), ("f32", "bf16"), ("f64", "f32"), ("f64", "f16"), ("f64", "bf16")] {
        l.add(format!("cvt.{d}.{a} %x, %a;"), &[of(a)], &[of(d).bits()]);
    }
    l.add("cvt.ftz.f64.f32 %x, %a;".into(), &[F32], &[64]);
    l.add("cvt.sat.f32.f32 %x, %a;".into(), &[F32], &[32]);
    l.add("cvt.sat.f32.f16 %x, %a;".into(), &[F16], &[32]);
    for r in ["rn", "rz"] {
        for m in ["", ".relu", ".satfinite", ".relu.satfinite"] {
            l.add(format!("cvt.{r}{m}.f16.f32 %x, %a;"), &[F32], &[16]);
            l.add(format!("cvt.{r}{m}.bf16.f32 %x, %a;"), &[F32], &[16]);
            l.add(format!("cvt.{r}{m}.f16x2.f32 %x, %a, %b;"), &[F32, F32], &[32]);
            l.add(format!("cvt.{r}{m}.bf16x2.f32 %x, %a, %b;"), &[F32, F32], &[32]);
        }
        for m in ["", ".relu"] {
            l.add(format!("cvt.{r}{m}.tf32.f32 %x, %a;"), &[F32], &[32]);
        }
    }
    l.add("cvt.rna.tf32.f32 %x, %a;".into(), &[F32], &[32]);
    for t in ["e4m3x2", "e5m2x2"] {
        for m in ["", ".relu"] {
            l.add(format!("cvt.rn.satfinite{m}.{t}.f32 %x, %a, %b;"), &[F32, F32], &[16]);
            l.add(format!("cvt.rn.satfinite{m}.{t}.f16x2 %x, %a;"), &[F16x2], &[16]);
            l.add(format!("cvt.rn{m}.f16x2.{t} %x, %a;"), &[Fp8x2], &[32]);
        }
    }
    l.add("cvt.pack.sat.s16.s32 %x, %a, %b;".into(), &[B32, B32], &[32]);
    l.add("cvt.pack.sat.u16.s32 %x, %a, %b;".into(), &[B32, B32], &[32]);
    l.add("mov.b64 %x, {%a, %b};\nmov.b64 {%y, _}, %x;".into(), &[B32, B32], &[64, 32]);
    l.add("mov.b32 {%x, %y}, %a;".into(), &[B32], &[16, 16]);
}

fn atomics(l: &mut List) {
    let ops: &[(&str, &str)] = &[
        ("add", "u32 s32 u64 f32 f64"),
        ("min", "u32 s32 u64 s64"),
        ("max", "u32 s32 u64 s64"),
        ("and", "b32 b64"),
        ("or", "b32 b64"),
        ("xor", "b32 b64"),
        ("inc", "u32"),
        ("dec", "u32"),
        ("exch", "b32 b64"),
        ("add.noftz", "f16 f16x2 bf16 bf16x2"),
    ];
    for (space, at) in [("global", "%u4+8"), ("shared", "%u8")] {
        for (op, types) in ops {
            for t in types.split(' ') {
                let (k, b) = (of(t), of(t).bits());
                let (before, after) =
                    (format!("st.{space}.b{b} [{at}], %a;"), format!("ld.{space}.b{b} %y, [{at}];"));
                l.add(format!("{before}\natom.{space}.{op}.{t} %x, [{at}], %b;\n{after}"), &[k, k], &[b, b]);
                if *op != "exch" {
                    let body =
                        format!("{before}\nred.{space}.{op}.{t} [{at}], %b;\nmov.b{b} %x, %b;\n{after}");
                    l.add(body, &[k, k], &[b, b]);
                }
            }
        }
        for (t, k) in [("b16", B16), ("b32", B32), ("b64", B64)] {
            let b = k.bits();
            let body = format!(
                "st.{space}.{t} [{at}], %a;\natom.{space}.cas.{t} %x, [{at}], %b, %c;\n\
                 atom.{space}.cas.{t} %x, [{at}], %a, %c;\nld.{space}.{t} %y, [{at}];"
            );
            l.add(body, &[k; 3], &[b, b]);
        }
    }
    for (t, op) in
        [("v2.f32", "add"), ("v2.f16x2", "add.noftz"), ("v2.bf16x2", "min.noftz"), ("v2.bf16x2", "max.noftz")]
    {
        let k = if t == "v2.f32" {
            F32
        } else if t == "v2.f16x2" {
            F16x2
        } else {
            Bf16x2
        };
        let vec = t.split('.').next().unwrap_or("");
        let ty = t.split('.').next_back().unwrap_or("");
        let body = format!(
            "st.global.v2.b32 [%u4+8], {{%a, %b}};\natom.global.{op}.{vec}.{ty} {{%t1, %t2}}, [%u4+8], {{%c, %d}};\n\
             ld.global.v2.b32 {{%x, %y}}, [%u4+8];"
        );
        l.add(body, &[k; 4], &[32, 32]);
    }
}

fn warps(l: &mut List) {
    let select = "selp.b32 %y, 1, 0, %p;";
    for m in ["up", "down", "bfly", "idx"] {
        // The segment and clamp operand is the same in all lanes: 8-lane segments, whole warp, odd ones.
        for c in ["0x181f", "0x1f", "0", "0x1807", "0x1c03"] {
            l.add(format!("shfl.sync.{m}.b32 %x|%p, %a, %b, {c}, -1;\n{select}"), &[B32, Small], &[32, 32]);
        }
    }
    let test = "setp.lt.s32 %q, %a, 0;";
    for m in ["all", "any", "uni"] {
        l.add(format!("{test}\nvote.sync.{m}.pred %p, %q, -1;\n{select}\nmov.b32 %x, 0;"), &[B32], &[32, 32]);
    }
    l.add(format!("{test}\nvote.sync.ballot.b32 %x, !%q, -1;"), &[B32], &[32]);
    for t in ["b32", "b64"] {
        let k = of(t);
        l.add(format!("and.{t} %a, %a, 7;\nmatch.any.sync.{t} %x, %a, -1;"), &[k], &[32]);
        l.add(format!("and.{t} %a, %a, 0;\nmatch.all.sync.{t} %x|%p, %a, -1;\n{select}"), &[k], &[32, 32]);
        l.add(format!("match.all.sync.{t} %x|%p, %a, -1;\n{select}"), &[k], &[32, 32]);
    }
    for op in
        ["add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32", "xor.b32"]
    {
        l.add(format!("redux.sync.{op} %x, %a, -1;"), &[B32], &[32]);
    }
    l.add(format!("elect.sync %x|%p, -1;\n{select}"), &[B32], &[32, 32]);
    l.add(
        format!("{test}\nbar.red.popc.u32 %x, 0, %q;\nbar.red.or.pred %p, 0, !%q;\n{select}"),
        &[B32],
        &[32, 32],
    );
    l.add(format!("{test}\nbar.red.and.pred %p, 1, %q;\n{select}\nmov.b32 %x, %a;"), &[Small], &[32, 32]);
    // Divergence: odd lanes take another way and come back.
    let diverge = "and.b32 %t1, %a, 1;\nsetp.eq.u32 %p, %t1, 0;\n@%p bra EVEN;\nadd.u32 %x, %a, 5;\nbra.uni JOIN;\n\
                   EVEN:\nmul.lo.u32 %x, %a, 3;\nJOIN:\nshfl.sync.down.b32 %x, %x, 1, 31, -1;";
    l.add(diverge.into(), &[B32], &[32]);
}
