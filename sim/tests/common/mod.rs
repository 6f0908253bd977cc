//! A harness for single instructions: a kernel in which every thread applies a few instructions to its own
//! operands, and the operands.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "shared by several test programs"
)]

use std::fmt::Write as _;
use weft_sim::{Arg, Config, Launch, Machine, Module};

/// What the bits of an operand are, which says how to draw interesting ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum In {
    B16,
    B32,
    B64,
    F16,
    Bf16,
    F16x2,
    Bf16x2,
    F32,
    F32x2,
    F64,
    Fp8x2,
    /// Shift amounts, positions and lengths: small, some too large.
    Small,
    /// 0 to 255, mostly small.
    Byte,
}

impl In {
    pub fn bits(self) -> u32 {
        match self {
            In::B16 | In::F16 | In::Bf16 | In::Fp8x2 => 16,
            In::B32 | In::F32 | In::F16x2 | In::Bf16x2 | In::Small | In::Byte => 32,
            In::B64 | In::F64 | In::F32x2 => 64,
        }
    }
}

/// Instructions on inputs `%a`, `%b`, `%c`, `%d` and outputs `%x`, `%y`; `%p` and `%q` are free predicates, `[%u4]` is
/// where the outputs go, `[%u8]` 16 bytes of shared memory.
#[derive(Debug, Clone)]
pub struct Case {
    pub body: String,
    pub ins: Vec<In>,
    /// Widths of the outputs.
    pub outs: Vec<u32>,
}

pub fn case(body: impl Into<String>, ins: &[In], outs: &[u32]) -> Case {
    Case { body: body.into(), ins: ins.to_vec(), outs: outs.to_vec() }
}

pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// A float of `exp` and `man` bits: special, near one, or any.
fn float(rng: &mut Rng, exp: u32, man: u32) -> u64 {
    let sign = rng.below(2) << (exp + man);
    let top = (1_u64 << exp) - 1;
    let bias = top >> 1;
    let fraction = rng.next() & ((1 << man) - 1);
    let magnitude = match rng.below(18) {
        0 => 0,
        1 => 1,
        2 => (1 << man) - 1,
        3 => 1 << man,
        4 => top << man,
        5 => top << man | fraction | 1 << (man - 1),
        6 => (top << man) - 1,
        7 => bias << man,
        8 => fraction,
        9 => (bias - 1 + rng.below(3)) << man | rng.below(4),
        10 | 11 => (bias + rng.below(u64::from(man) + 2) - u64::from(man) / 2) << man | fraction,
        // Signalling NaNs, and the same exponents again and again.
        13 => top << man | (fraction >> 1 | 1),
        14 => (bias + rng.below(2)) << man | fraction,
        12 => rng.below(top) << man | if rng.below(2) == 0 { fraction } else { 0 },
        _ => rng.below(top) << man | fraction,
    };
    sign | magnitude
}

fn integer(rng: &mut Rng, bits: u32) -> u64 {
    let m = if bits == 64 { u64::MAX } else { (1 << bits) - 1 };
    let v = match rng.below(8) {
        0 => rng.below(4),
        1 => 0_u64.wrapping_sub(rng.below(4)),
        2 => (1 << (bits - 1)) - rng.below(2),
        3 => 1 << rng.below(bits.into()),
        4 => (1 << rng.below(bits.into())) - 1,
        5 => rng.below(1 << 16),
        _ => rng.next(),
    };
    v & m
}

pub fn draw(kind: In, rng: &mut Rng) -> u64 {
    match kind {
        In::B16 => integer(rng, 16),
        In::B32 => integer(rng, 32),
        In::B64 => integer(rng, 64),
        In::F16 => float(rng, 5, 10),
        In::Bf16 => float(rng, 8, 7),
        In::F16x2 => float(rng, 5, 10) | float(rng, 5, 10) << 16,
        In::Bf16x2 => float(rng, 8, 7) | float(rng, 8, 7) << 16,
        In::F32 => float(rng, 8, 23),
        In::F32x2 => float(rng, 8, 23) | float(rng, 8, 23) << 32,
        In::F64 => float(rng, 11, 52),
        In::Fp8x2 => rng.next() & 0xffff,
        In::Byte => {
            let max = if rng.below(8) == 0 { 256 } else { 66 };
            rng.below(max)
        }
        In::Small => match rng.below(8) {
            0 => rng.next() & 0xffff_ffff,
            1 => rng.below(256),
            _ => rng.below(66),
        },
    }
}

/// PTX of a kernel `name` that applies the case to each thread's inputs.
/// Parameters: outputs, inputs, both as 8-byte words, `words * threads` of them, thread by thread.
pub fn kernel(name: &str, case: &Case) -> String {
    let mut k = String::new();
    let _ = write!(
        k,
        "\n.visible .entry {name}(.param .u64 {name}_out, .param .u64 {name}_in)\n{{\n\
         .reg .pred %p, %q;\n.reg .b32 %t<4>;\n.reg .b64 %u<9>;\n.shared .align 16 .b8 buf[4096];\n"
    );
    for (n, i) in ["a", "b", "c", "d"].iter().zip(&case.ins) {
        let _ = writeln!(k, ".reg .b{} %{n};", i.bits());
    }
    for (n, bits) in ["x", "y"].iter().zip(&case.outs) {
        let _ = writeln!(k, ".reg .b{bits} %{n};");
    }
    let _ = write!(
        k,
        "ld.param.b64 %u1, [{name}_out];\nld.param.b64 %u2, [{name}_in];\n\
         mov.u32 %t1, %tid.x;\nmov.u32 %t2, %ctaid.x;\nmov.u32 %t3, %ntid.x;\nmad.lo.s32 %t1, %t2, %t3, %t1;\n\
         mul.wide.u32 %u3, %t1, {};\nadd.s64 %u4, %u1, %u3;\nmul.wide.u32 %u5, %t1, {};\nadd.s64 %u6, %u2, %u5;\n\
         mov.u32 %t1, %tid.x;\nmul.wide.u32 %u7, %t1, 16;\nmov.u64 %u8, buf;\nadd.s64 %u8, %u8, %u7;\n",
        case.outs.len() * 8,
        case.ins.len() * 8
    );
    for (j, (n, i)) in ["a", "b", "c", "d"].iter().zip(&case.ins).enumerate() {
        let _ = writeln!(k, "ld.global.b{} %{n}, [%u6+{}];", i.bits(), j * 8);
    }
    let _ = writeln!(k, "{}", case.body);
    for (j, (n, bits)) in ["x", "y"].iter().zip(&case.outs).enumerate() {
        let _ = writeln!(k, "st.global.b{bits} [%u4+{}], %{n};", j * 8);
    }
    k.push_str("ret;\n}\n");
    k
}

pub const HEADER: &str = ".version 8.6\n.target sm_90a\n.address_size 64\n";

/// Inputs of a case: `threads` times its operands.
pub fn inputs(case: &Case, threads: usize, seed: u64) -> Vec<u64> {
    let mut rng = Rng(seed);
    (0..threads).flat_map(|_| case.ins.iter().map(|k| draw(*k, &mut rng)).collect::<Vec<_>>()).collect()
}

pub fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// Runs the case on the simulator over these inputs; outputs thread by thread.
pub fn run(case: &Case, inputs: &[u64]) -> Vec<u64> {
    let header = if case.body.contains("x2 ") && case.body.contains(".f32x2") {
        HEADER.replace("sm_90a", "sm_100a")
    } else {
        HEADER.to_string()
    };
    let text = format!("{header}{}", kernel("k", case));
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", case.body));
    let threads = inputs.len() / case.ins.len();
    let mut m = Machine::new(Config::default()).unwrap();
    let size = (threads * case.outs.len() * 8) as u64;
    let (out, input) =
        (m.alloc(0, "out", size, 8).unwrap(), m.alloc(0, "in", inputs.len() as u64 * 8, 8).unwrap());
    m.write(0, input, &bytes(inputs)).unwrap();
    m.write(0, out, &vec![0; size as usize]).unwrap();
    let block = threads.min(256) as u32;
    let launch = Launch::default()
        .grid([threads as u32 / block, 1, 1])
        .block([block, 1, 1])
        .args(vec![Arg::U64(out), Arg::U64(input)]);
    m.launch(&module, "k", &[launch]).unwrap_or_else(|e| panic!("{}: {e}", case.body));
    let mut data = vec![0; size as usize];
    m.read(0, out, &mut data).unwrap();
    data.chunks_exact(8).map(|b| u64::from_le_bytes(b.try_into().unwrap())).collect()
}
