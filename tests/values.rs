//! Tests every elementwise op and conversion of every type through LLVM and PTX on the simulator.
//! The results must be those that `weft-ir` and `weft-llvm` document, including corner cases.
//!
//! The reference computes in `f64` and `i128` and shares no code with the compiler.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use half::{bf16, f16};
use weft_ir::builder::Built;
use weft_ir::machine::{Builder, Kernel, Module, Type};
use weft_ir::names::NumberKind;
use weft_ir::verify::verify;
use weft_ir::{
    Address, Arith, BinOp, CmpOp, Dim, Scalar, ShuffleMode, Space, Sreg, Thread, UnOp, Value, ValueType,
};
use weft_llvm::{Options, emit};
use weft_sim::{Arg, Config, Launch, Machine};

/// An exact number. Floats of every type are exact in `f64`.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Num {
    Int(i128),
    Float(f64),
}

/// The value of an element's bits.
fn decode(s: Scalar, bits: u64) -> Num {
    match s {
        Scalar::F16 => Num::Float(f16::from_bits(bits as u16).to_f64()),
        Scalar::BF16 => Num::Float(bf16::from_bits(bits as u16).to_f64()),
        Scalar::F32 => Num::Float(f32::from_bits(bits as u32).into()),
        Scalar::F64 => Num::Float(f64::from_bits(bits)),
        Scalar::E4M3 | Scalar::E5M2 => Num::Float(fp8(s, bits as u8)),
        _ if s.kind() == NumberKind::Signed => {
            let unused = 64 - s.bits();
            Num::Int(((bits << unused) as i64 >> unused).into())
        }
        _ => Num::Int(bits.into()),
    }
}

/// The number of an fp8 code (OCP 8-bit floating point, tables 1 and 2).
fn fp8(s: Scalar, code: u8) -> f64 {
    let (mantissa, bias) = if s == Scalar::E4M3 { (3, 7) } else { (2, 15) };
    let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(code & 0x7f) >> mantissa, i32::from(code) & ((1 << mantissa) - 1));
    let special = if s == Scalar::E4M3 { code & 0x7f == 0x7f } else { exponent == 31 };
    if special {
        return if s == Scalar::E5M2 && fraction == 0 { sign * f64::INFINITY } else { f64::NAN };
    }
    let implied = if exponent == 0 { 0 } else { 1 << mantissa };
    sign * f64::from(implied + fraction) * f64::powi(2.0, exponent.max(1) - bias - mantissa)
}

/// An integer as `f64`, rounded to odd if it is not exact, so that a second rounding to fewer bits
/// has the same result as a single one.
fn odd(n: i128) -> f64 {
    let near = n as f64;
    if near as i128 == n {
        return near;
    }
    let towards_zero = if (near as i128).abs() > n.abs() { f64::from_bits(near.to_bits() - 1) } else { near };
    f64::from_bits(towards_zero.to_bits() | 1)
}

/// The element of a type that is nearest to a number, as defined by the IR's conversion.
fn encode(s: Scalar, n: Num) -> u64 {
    match (s.kind(), n) {
        (NumberKind::Bool, Num::Int(n)) => (n != 0).into(),
        (NumberKind::Bool, Num::Float(x)) => (x != 0.0).into(),
        (NumberKind::Float, Num::Int(n)) if s == Scalar::F64 => (n as f64).to_bits(),
        (NumberKind::Float, Num::Int(n)) => encode(s, Num::Float(odd(n))),
        (NumberKind::Float, Num::Float(x)) => match s {
            Scalar::F16 => f16::from_f64(x).to_bits().into(),
            Scalar::BF16 => bf16::from_f64(x).to_bits().into(),
            Scalar::F32 => (x as f32).to_bits().into(),
            Scalar::F64 => x.to_bits(),
            _ => nearest_fp8(s, x).into(),
        },
        (_, Num::Int(n)) => n as u64 & mask(s),
        // Rust's `as` truncates, saturates, and converts NaN to 0.
        (NumberKind::Signed, Num::Float(x)) => {
            let (low, high) = (-(1i128 << (s.bits() - 1)), (1i128 << (s.bits() - 1)) - 1);
            (x as i128).clamp(low, high) as u64 & mask(s)
        }
        (NumberKind::Unsigned, Num::Float(x)) => (x as i128).clamp(0, mask(s).into()) as u64,
    }
}

/// The nearest finite code, found by trying all of them. For a tie it is the even one.
fn nearest_fp8(s: Scalar, x: f64) -> u8 {
    let sign = u8::from(x.is_sign_negative()) << 7;
    if x.is_nan() {
        return sign | 0x7f;
    }
    let distance = |code: &u8| (fp8(s, *code) - x.abs().min(1e9)).abs();
    let finite = (0..0x80u8).filter(|c| fp8(s, *c).is_finite());
    let best = finite.min_by(|a, b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))));
    sign | best.unwrap()
}

fn mask(s: Scalar) -> u64 {
    u64::MAX >> (64 - s.bits())
}

/// Elements of a type at which special cases occur (ends of ranges, ties, NaN, subnormals), and
/// some ordinary ones.
fn interesting(s: Scalar) -> Vec<u64> {
    let bits = s.bits();
    let mut all: Vec<u64> = match s.kind() {
        NumberKind::Bool => vec![0, 1],
        NumberKind::Float => {
            let plain = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.5, 1.0 / 3.0, 100.7, -77.25, 448.0, 464.0, 480.0]
                .into_iter()
                .chain([
                    65519.0,
                    65520.0,
                    1e-5,
                    -1e-7,
                    3e38,
                    -1e300,
                    2147483647.0,
                    -2147483649.0,
                    9.3e18,
                    1e20,
                ])
                .chain([f64::INFINITY, f64::NEG_INFINITY, f64::NAN]);
            let edges = [1, mask(s) >> 1, (mask(s) >> 1) - 1, 1 << (bits - 1) | 1, 3 << (bits - 3) | 1];
            plain.map(|x| encode(s, Num::Float(x))).chain(edges).collect()
        }
        _ => {
            let edges = [0, 1, 2, 3, 7, 31, 32, 63, 64, 100, u64::MAX, u64::MAX - 1, u64::MAX - 6];
            let powers = [bits - 1, bits - 2, bits / 2].map(|p| 1u64 << p);
            edges
                .into_iter()
                .chain(powers)
                .chain(powers.map(|p| p - 1))
                .chain(powers.map(|p| p + 1))
                .collect()
        }
    };
    all.iter_mut().for_each(|x| *x &= mask(s));
    all.sort_unstable();
    all.dedup();
    all
}

/// A kernel over arrays. Each thread loads `lanes` elements of every input, and stores the same
/// number to every output.
struct Elementwise {
    name: String,
    inputs: Vec<(Scalar, Vec<u64>)>,
    outputs: Vec<Scalar>,
    lanes: u32,
}

impl Elementwise {
    /// The number of threads that cover the inputs. The last ones are padded with zeros.
    fn threads(&self) -> u32 {
        (self.inputs[0].1.len() as u32).div_ceil(self.lanes)
    }

    fn kernel(&self, body: impl FnOnce(&mut Builder, &[Value]) -> Built<Vec<Value>>) -> Built<Kernel> {
        let mut b = Builder::new(&self.name, [self.threads(), 1, 1]);
        let mut pointers = |name: &str, n: usize| -> Built<Vec<Value>> {
            (0..n).map(|_| b.pointer_param(name, Space::Global, 16)).collect()
        };
        let ins = pointers("in", self.inputs.len())?;
        let outs = pointers("out", self.outputs.len())?;
        let tid = b.special(Sreg::ThreadIdx, Dim::X)?;
        let tid = b.convert(tid, Scalar::I64)?;
        let at = |b: &mut Builder, ptr, s: Scalar| {
            let size = b.int(Scalar::I64, i64::from(s.bytes() * self.lanes))?;
            let bytes = b.binary(BinOp::Mul, tid, size)?;
            b.emit(Address::PtrAdd { ptr, bytes })
        };
        let mut values = Vec::new();
        for (ptr, (s, _)) in ins.iter().zip(&self.inputs) {
            let place = at(&mut b, *ptr, *s)?;
            let mut parts = Vec::new();
            for (first, lanes) in pieces(*s, self.lanes) {
                let bytes = b.int(Scalar::I64, i64::from(first * s.bytes()))?;
                let place = b.emit(Address::PtrAdd { ptr: place, bytes })?;
                parts.push(b.load(place, Type::lanes_of(*s, lanes))?);
            }
            values.push(b.emit_as(Arith::Concat { parts }, Type::lanes_of(*s, self.lanes))?);
        }
        let results = body(&mut b, &values)?;
        for ((ptr, s), v) in outs.iter().zip(&self.outputs).zip(results) {
            let place = at(&mut b, *ptr, *s)?;
            for (first, lanes) in pieces(*s, self.lanes) {
                let bytes = b.int(Scalar::I64, i64::from(first * s.bytes()))?;
                let place = b.emit(Address::PtrAdd { ptr: place, bytes })?;
                let part = b.emit_as(Arith::Slice { a: v, first }, Type::lanes_of(*s, lanes))?;
                b.store(place, part)?;
            }
        }
        Ok(b.finish())
    }

    /// Runs the kernel and returns the outputs.
    fn run(&self, body: impl FnOnce(&mut Builder, &[Value]) -> Built<Vec<Value>>) -> Vec<Vec<u64>> {
        let kernel = self.kernel(body).unwrap_or_else(|e| panic!("{}: {e}", self.name));
        let module = verify(Module { kernels: vec![kernel], files: vec![] }).unwrap();
        let ptx =
            emit(&module, &Options::new("sm_90a".parse().unwrap())).unwrap_or_else(|e| panic!("{e}")).ptx;
        let module = weft_sim::Module::parse(&ptx).unwrap_or_else(|e| panic!("{e}\n{ptx}"));
        let mut machine = Machine::new(Config::default()).unwrap();
        let n = (self.threads() * self.lanes) as usize;
        let mut args = Vec::new();
        for (s, values) in &self.inputs {
            let width = s.bytes() as usize;
            let mut bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()[..width].to_vec()).collect();
            bytes.resize(n * width, 0);
            let at = machine.alloc(0, "in", bytes.len() as u64, 16).unwrap();
            machine.write(0, at, &bytes).unwrap();
            args.push(at);
        }
        for s in &self.outputs {
            args.push(machine.alloc(0, "out", n as u64 * u64::from(s.bytes()), 16).unwrap());
        }
        let values = args.iter().map(|a| Arg::U64(*a)).collect();
        let launch = Launch::default().block([self.threads(), 1, 1]).args(values);
        machine.launch(&module, &self.name, &[launch]).unwrap_or_else(|e| panic!("{e}\n{ptx}"));
        let read = |(s, at): (&Scalar, &u64)| {
            let width = s.bytes() as usize;
            let mut bytes = vec![0; n * width];
            machine.read(0, *at, &mut bytes).unwrap();
            let mut values = bytes.chunks(width).map(|c| {
                let mut word = [0; 8];
                word[..width].copy_from_slice(c);
                u64::from_le_bytes(word)
            });
            values.by_ref().take(self.inputs[0].1.len()).collect()
        };
        self.outputs.iter().zip(&args[self.inputs.len()..]).map(read).collect()
    }
}

/// Accesses of at most 16 bytes that together cover `lanes` elements.
fn pieces(s: Scalar, lanes: u32) -> impl Iterator<Item = (u32, u32)> {
    let max = (16 / s.bytes()).min(lanes);
    (0..lanes / max).map(move |i| (i * max, max))
}

/// Whether two elements are the same number. All NaNs are equal, and zeros differ in their sign.
fn same(s: Scalar, a: u64, b: u64) -> bool {
    let nan = |x| matches!(decode(s, x), Num::Float(x) if x.is_nan());
    a == b || (nan(a) && nan(b))
}

#[track_caller]
fn agree(what: &str, s: Scalar, inputs: &[(Scalar, u64)], got: u64, expected: u64) {
    let show = |(s, x): &(Scalar, u64)| format!("{:?} ({x:#x})", decode(*s, *x));
    assert!(
        same(s, got, expected),
        "{what} of {}: got {}, expected {}",
        inputs.iter().map(show).collect::<Vec<_>>().join(", "),
        show(&(s, got)),
        show(&(s, expected)),
    );
}

/// The numbers of lanes: one, and the number that fills 16 bytes.
fn shapes(s: Scalar) -> [u32; 2] {
    [1, 16 / s.bytes()]
}

/// All pairs of values, as two lists.
fn pairs(values: &[u64]) -> (Vec<u64>, Vec<u64>) {
    let all = values.iter().flat_map(|a| values.iter().map(move |b| (*a, *b)));
    all.unzip()
}

/// The types that have arithmetic.
fn arithmetic() -> impl Iterator<Item = Scalar> {
    Scalar::ALL.iter().copied().filter(|s| !s.is_fp8())
}

fn integer(op: BinOp, s: Scalar, a: i128, b: i128) -> i128 {
    let unsigned = b & i128::from(mask(s));
    match op {
        BinOp::Add => a + b,
        BinOp::Sub => a - b,
        BinOp::Mul => a.wrapping_mul(b),
        BinOp::Div => a.checked_div(b).unwrap_or(-1),
        BinOp::Rem => a.checked_rem(b).unwrap_or(a),
        BinOp::Min => a.min(b),
        BinOp::Max => a.max(b),
        BinOp::And => a & b,
        BinOp::Or => a | b,
        BinOp::Xor => a ^ b,
        BinOp::Shl if unsigned >= s.bits().into() => 0,
        BinOp::Shl => a << unsigned,
        BinOp::Shr => a >> unsigned.min(127),
    }
}

/// Rounds to the type once. `f64` has more than twice the bits of the 16-bit types plus two, so
/// that a second rounding of its result equals a single one. f32 is computed in f32.
fn float(op: BinOp, s: Scalar, a: f64, b: f64) -> u64 {
    macro_rules! by {
        ($a:expr, $b:expr) => {
            match op {
                BinOp::Add => $a + $b,
                BinOp::Sub => $a - $b,
                BinOp::Mul => $a * $b,
                BinOp::Div => $a / $b,
                _ => panic!("{op} of floats"),
            }
        };
    }
    // If one operand is NaN, the result is the other one. -0 is less than 0.
    let smaller = |a: f64, b: f64| if b.is_nan() || (!a.is_nan() && a.total_cmp(&b).is_le()) { a } else { b };
    match (op, s) {
        (BinOp::Min, _) => encode(s, Num::Float(smaller(a, b))),
        (BinOp::Max, _) => encode(s, Num::Float(-smaller(-a, -b))),
        (_, Scalar::F32) => by!(a as f32, b as f32).to_bits().into(),
        _ => encode(s, Num::Float(by!(a, b))),
    }
}

#[test]
fn binary_ops() {
    for s in arithmetic() {
        let exists = |op: &BinOp| match op {
            BinOp::And | BinOp::Or | BinOp::Xor => !s.is_float(),
            BinOp::Rem | BinOp::Shl | BinOp::Shr => s.is_int(),
            _ => s != Scalar::Bool,
        };
        let ops: Vec<BinOp> = BinOp::ALL.iter().copied().filter(exists).collect();
        let (a, b) = pairs(&interesting(s));
        for lanes in shapes(s) {
            if a.len() as u32 / lanes >= 1024 {
                continue;
            }
            let test = Elementwise {
                name: format!("binary_{s}"),
                inputs: vec![(s, a.clone()), (s, b.clone())],
                outputs: vec![s; ops.len()],
                lanes,
            };
            let out = test.run(|k, v| ops.iter().map(|op| k.binary(*op, v[0], v[1])).collect());
            for (op, results) in ops.iter().zip(&out) {
                for (i, got) in results.iter().enumerate() {
                    let expected = match (decode(s, a[i]), decode(s, b[i])) {
                        (Num::Float(x), Num::Float(y)) => float(*op, s, x, y),
                        (Num::Int(x), Num::Int(y)) => integer(*op, s, x, y) as u64 & mask(s),
                        _ => unreachable!(),
                    };
                    agree(&format!("{op} {s}x{lanes}"), s, &[(s, a[i]), (s, b[i])], *got, expected);
                }
            }
        }
    }
}

#[test]
fn comparisons_and_choices() {
    for s in arithmetic() {
        let (a, b) = pairs(&interesting(s));
        for lanes in shapes(s) {
            if a.len() as u32 / lanes >= 1024 {
                continue;
            }
            let test = Elementwise {
                name: format!("compare_{s}"),
                inputs: vec![(s, a.clone()), (s, b.clone())],
                outputs: [vec![Scalar::Bool; CmpOp::ALL.len()], vec![s]].concat(),
                lanes,
            };
            let out = test.run(|k, v| {
                let mut all: Vec<Value> =
                    CmpOp::ALL.iter().map(|op| k.compare(*op, v[0], v[1])).collect::<Built<_>>()?;
                all.push(k.select(all[0], v[0], v[1])?);
                Ok(all)
            });
            for i in 0..a.len() {
                let (x, y) = (decode(s, a[i]), decode(s, b[i]));
                let order = match (x, y) {
                    (Num::Float(x), Num::Float(y)) => x.partial_cmp(&y),
                    (Num::Int(x), Num::Int(y)) => Some(x.cmp(&y)),
                    _ => unreachable!(),
                };
                for (op, results) in CmpOp::ALL.iter().zip(&out) {
                    let expected = match op {
                        CmpOp::Eq => order.is_some_and(|o| o.is_eq()),
                        CmpOp::Ne => order.is_none_or(|o| o.is_ne()),
                        CmpOp::Lt => order.is_some_and(|o| o.is_lt()),
                        CmpOp::Le => order.is_some_and(|o| o.is_le()),
                        CmpOp::Gt => order.is_some_and(|o| o.is_gt()),
                        CmpOp::Ge => order.is_some_and(|o| o.is_ge()),
                    };
                    agree(
                        &format!("{op} {s}x{lanes}"),
                        Scalar::Bool,
                        &[(s, a[i]), (s, b[i])],
                        results[i],
                        expected.into(),
                    );
                }
                let chosen = if order.is_some_and(|o| o.is_eq()) { a[i] } else { b[i] };
                agree("select", s, &[(s, a[i]), (s, b[i])], out[CmpOp::ALL.len()][i], chosen);
            }
        }
    }
}

#[test]
fn conversions() {
    for &from in Scalar::ALL {
        let a = interesting(from);
        for lanes in [1, 2, 4] {
            let test = Elementwise {
                name: format!("convert_{from}"),
                inputs: vec![(from, a.clone())],
                outputs: Scalar::ALL.to_vec(),
                lanes,
            };
            let out = test.run(|k, v| Scalar::ALL.iter().map(|to| k.convert(v[0], *to)).collect());
            for (&to, results) in Scalar::ALL.iter().zip(&out) {
                for (x, got) in a.iter().zip(results) {
                    let expected = if to == from { *x } else { encode(to, decode(from, *x)) };
                    agree(&format!("{from} to {to} (x{lanes})"), to, &[(from, *x)], *got, expected);
                }
            }
        }
    }
}

#[test]
fn exact_unary_ops() {
    use UnOp::*;
    for s in arithmetic() {
        let ops: Vec<UnOp> = match s.kind() {
            NumberKind::Bool | NumberKind::Unsigned => vec![Not],
            NumberKind::Signed => vec![Not, Neg, Abs],
            NumberKind::Float => vec![Neg, Abs, Floor, Ceil, Round, Sqrt],
        };
        let a = interesting(s);
        for lanes in shapes(s) {
            let outputs = vec![s; ops.len()];
            let test =
                Elementwise { name: format!("unary_{s}"), inputs: vec![(s, a.clone())], outputs, lanes };
            let out = test.run(|k, v| ops.iter().map(|op| k.unary(*op, v[0])).collect());
            for (op, results) in ops.iter().zip(&out) {
                for (x, got) in a.iter().zip(results) {
                    let expected = match decode(s, *x) {
                        Num::Int(n) => match op {
                            Not if s == Scalar::Bool => u64::from(n == 0),
                            Not => !n as u64 & mask(s),
                            Neg => n.wrapping_neg() as u64 & mask(s),
                            _ => n.wrapping_abs() as u64 & mask(s),
                        },
                        Num::Float(n) => {
                            let exact = match op {
                                Neg => -n,
                                Abs => n.abs(),
                                Floor => n.floor(),
                                Ceil => n.ceil(),
                                Round => n.round_ties_even(),
                                _ if s == Scalar::F32 => f64::from((n as f32).sqrt()),
                                _ => n.sqrt(),
                            };
                            encode(s, Num::Float(exact))
                        }
                    };
                    agree(&format!("{op} {s}x{lanes}"), s, &[(s, *x)], *got, expected);
                }
            }
        }
    }
}

#[test]
fn approximate_functions() {
    use UnOp::*;
    type Reference = fn(f64) -> f64;
    // Each case has a function, the inputs, the greatest error relative to max(|result|, the
    // floor), and the floor (PTX ISA, each instruction).
    let cases: [(UnOp, Reference, std::ops::Range<f64>, f64, f64); 8] = [
        (Rsqrt, |x| 1.0 / x.sqrt(), 1e-6..1e6, 3e-7, 0.0),
        (Exp2, f64::exp2, -100.0..100.0, 3e-7, 0.0),
        (Exp, f64::exp, -80.0..80.0, 2e-5, 0.0),
        (Log2, f64::log2, 1e-6..1e6, 3e-7, 1.0),
        (Log, f64::ln, 1e-6..1e6, 3e-7, 1.0),
        (Tanh, f64::tanh, -8.0..8.0, 6e-4, 0.0),
        (Sin, f64::sin, -3.0..3.0, 1e-6, 1.0),
        (Cos, f64::cos, -3.0..3.0, 1e-6, 1.0),
    ];
    for s in [Scalar::F32, Scalar::F16, Scalar::BF16] {
        for (op, reference, range, error, floor) in &cases {
            let step = (range.end - range.start) / 255.0;
            let a: Vec<u64> =
                (0..256).map(|i| encode(s, Num::Float(range.start + step * f64::from(i)))).collect();
            let test = Elementwise {
                name: format!("{op}_{s}"),
                inputs: vec![(s, a.clone())],
                outputs: vec![s],
                lanes: 2,
            };
            let out = test.run(|k, v| Ok(vec![k.unary(*op, v[0])?]));
            for (x, got) in a.iter().zip(&out[0]) {
                let (Num::Float(x), Num::Float(got)) = (decode(s, *x), decode(s, *got)) else {
                    unreachable!()
                };
                let exact = reference(x);
                let rounded = match decode(s, encode(s, Num::Float(exact))) {
                    Num::Float(r) => r,
                    Num::Int(_) => unreachable!(),
                };
                // Rounding to the type adds half a unit in its last place. This is more for
                // subnormal numbers.
                let unit = match s {
                    Scalar::F16 => 1e-3,
                    Scalar::BF16 => 8e-3,
                    _ => 0.0,
                };
                let allowed = (error + unit) * exact.abs().max(*floor);
                assert!(
                    got == rounded
                        || (got - exact).abs() <= allowed
                        || (s == Scalar::F16 && exact.abs() < 1e-4),
                    "{op} {s} of {x}: got {got}, expected {exact}"
                );
            }
        }
    }
}

#[test]
fn fused_multiply_add_rounds_once() {
    for s in [Scalar::F16, Scalar::BF16, Scalar::F32, Scalar::F64] {
        // (1 + u)(1 - u) - 1 is -u^2, which would be lost if the product were rounded.
        let unit = match s {
            Scalar::F16 => 10,
            Scalar::BF16 => 7,
            Scalar::F32 => 23,
            _ => 52,
        };
        let u = f64::powi(2.0, -unit);
        let column = |x: f64| (s, vec![encode(s, Num::Float(x)); 8]);
        let inputs = vec![column(1.0 + u), column(1.0 - u), column(-1.0)];
        for lanes in shapes(s) {
            let name = format!("fma_{s}");
            let test = Elementwise { name, inputs: inputs.clone(), outputs: vec![s, s], lanes };
            let out = test.run(|k, v| {
                let fused = k.emit(Arith::Fma { a: v[0], b: v[1], c: v[2] })?;
                let product = k.binary(BinOp::Mul, v[0], v[1])?;
                Ok(vec![fused, k.binary(BinOp::Add, product, v[2])?])
            });
            for (fused, parts) in out[0].iter().zip(&out[1]) {
                assert_eq!(decode(s, *fused), Num::Float(-u * u), "{s}x{lanes}");
                assert_eq!(decode(s, *parts), Num::Float(0.0), "{s}x{lanes}");
            }
        }
    }
}

#[test]
fn shuffles() {
    const WARPS: usize = 2;
    for s in [Scalar::I8, Scalar::BF16, Scalar::F32, Scalar::U64] {
        for lanes in shapes(s) {
            let n = 32 * WARPS * lanes as usize;
            // The numbers differ in every element if possible, and at least in every lane.
            let a: Vec<u64> =
                (0..n as u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 7) & mask(s)).collect();
            let outputs = vec![s; ShuffleMode::ALL.len()];
            let name = format!("shuffle_{s}");
            let test = Elementwise { name, inputs: vec![(s, a.clone())], outputs, lanes };
            let by = 5;
            let out = test.run(|k, v| {
                let lane = k.int(Scalar::I32, by)?;
                ShuffleMode::ALL
                    .iter()
                    .map(|m| k.emit(Thread::Shuffle { value: v[0], mode: *m, lane }))
                    .collect()
            });
            for (mode, results) in ShuffleMode::ALL.iter().zip(&out) {
                for (i, got) in results.iter().enumerate() {
                    let (thread, element) = (i / lanes as usize, i % lanes as usize);
                    let (warp, lane, by) = (thread / 32, thread % 32, by as usize);
                    // If the lane does not exist, the thread keeps its own value.
                    let from = match mode {
                        ShuffleMode::Idx => by,
                        ShuffleMode::Up => lane.checked_sub(by).unwrap_or(lane),
                        ShuffleMode::Down => Some(lane + by).filter(|l| *l < 32).unwrap_or(lane),
                        ShuffleMode::Xor => lane ^ by,
                    };
                    let expected = a[(warp * 32 + from) * lanes as usize + element];
                    assert_eq!(*got, expected, "{mode} {s}x{lanes}, thread {thread}");
                }
            }
        }
    }
}
