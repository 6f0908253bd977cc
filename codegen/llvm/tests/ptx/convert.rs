//! Tests of conversions between types, and between scalars and vectors.

use crate::harness::*;
use weft_ir::builder::Built;
use weft_ir::machine::{Builder, Kernel, Type};
use weft_ir::{Address, Arith, BinOp, CmpOp, Scalar, UnOp, Value, ValueType};
use weft_llvm::{OptLevel, Options, emit};

#[test]
fn every_conversion_assembles() {
    for lanes in [1, 3, 4] {
        let all: Vec<_> = Scalar::ALL
            .iter()
            .map(|&from| {
                kernel(&format!("from_{from}"), |b, at| {
                    let wide = Type::Vector(from, 4);
                    let x = unknown(b, at, if from.bytes() == 8 { Type::Vector(from, 2) } else { wide })?;
                    let first = b.emit_as(Arith::Slice { a: x, first: 0 }, scalar(from))?;
                    let x = if lanes == 1 {
                        first
                    } else {
                        b.emit_as(Arith::Splat { a: first }, Type::Vector(from, lanes))?
                    };
                    for (i, &to) in Scalar::ALL.iter().enumerate() {
                        let y = b.convert(x, to)?;
                        for lane in 0..lanes {
                            let one = b.emit_as(Arith::Slice { a: y, first: lane }, scalar(to))?;
                            let out = pointer(b, at, 64 + 8 * (i as i64 * 4 + i64::from(lane)))?;
                            b.store(out, one)?;
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        for arch in ["sm_90", "sm_100a"] {
            accepted(&compile_for(arch, all.clone()).ptx, arch);
        }
    }
}

/// The instructions of one conversion.
fn conversion(from: Scalar, to: Scalar) -> Vec<String> {
    let text = ptx("convert", |b, at| {
        let x = unknown(b, at, scalar(from))?;
        let y = b.convert(x, to)?;
        b.store(at, y).map(|_| ())
    });
    mnemonics(&text, "cvt")
}

#[test]
fn conversions_are_native() {
    use Scalar::*;
    for (from, to, expected) in [
        (F32, BF16, "cvt.rn.bf16.f32"),
        (F32, F16, "cvt.rn.f16.f32"),
        (F64, BF16, "cvt.rn.bf16.f64"),
        (F64, F16, "cvt.rn.f16.f64"),
        (F64, F32, "cvt.rn.f32.f64"),
        (I64, BF16, "cvt.rn.bf16.s64"),
        (U64, F16, "cvt.rn.f16.u64"),
        (I32, F32, "cvt.rn.f32.s32"),
        (F32, I32, "cvt.rzi.s32.f32"),
        (F32, U32, "cvt.rzi.u32.f32"),
        (F64, I64, "cvt.rzi.s64.f64"),
    ] {
        assert_eq!(conversion(from, to), [expected], "{from} to {to}");
    }
    assert_eq!(conversion(F16, BF16), ["cvt.f32.f16", "cvt.rn.bf16.f32"]);
    assert_eq!(conversion(F32, E4M3), ["cvt.rn.satfinite.e4m3x2.f32"]);
    assert_eq!(conversion(E5M2, F16), ["cvt.rn.f16x2.e5m2x2"]);
}

#[test]
fn fp8_is_converted_two_at_a_time() {
    let text = ptx("quantize", |b, at| {
        let x = unknown(b, at, Type::Vector(Scalar::F32, 4))?;
        let y = b.convert(x, Scalar::E4M3)?;
        b.store(at, y).map(|_| ())
    });
    assert_eq!(mnemonics(&text, "cvt.rn.satfinite.e4m3x2.f32").len(), 2, "{text}");
    let text = ptx("widen", |b, at| {
        let x = unknown(b, at, Type::Vector(Scalar::E5M2, 4))?;
        let y = b.convert(x, Scalar::F16)?;
        b.store(at, y).map(|_| ())
    });
    assert_eq!(mnemonics(&text, "cvt.rn.f16x2.e5m2x2").len(), 2, "{text}");
}

#[test]
fn lanes_move_without_memory() {
    let text = ptx("lanes", |b, at| {
        let x = unknown(b, at, Type::Vector(Scalar::F32, 4))?;
        let low = b.emit_as(Arith::Slice { a: x, first: 0 }, Type::Vector(Scalar::F32, 2))?;
        let high = b.emit_as(Arith::Slice { a: x, first: 3 }, scalar(Scalar::F32))?;
        let again =
            b.emit_as(Arith::Concat { parts: vec![high, low, high] }, Type::Vector(Scalar::F32, 4))?;
        b.store(at, again).map(|_| ())
    });
    assert_eq!(mnemonics(&text, "ld.global").len(), 1, "{text}");
    assert_eq!(mnemonics(&text, "st.global"), ["st.global.v4.b32"]);
    assert!(!text.contains(".local"), "{text}");
}

#[test]
fn a_lane_beyond_the_last_is_the_last() {
    let text = ptx("extract", |b, at| {
        let x = unknown(b, at, Type::Vector(Scalar::I32, 4))?;
        let lane = b.int(Scalar::I32, 9)?;
        let y = b.emit(Arith::Extract { a: x, lane })?;
        b.store(at, y).map(|_| ())
    });
    // The fourth of the loaded elements is stored.
    contains(&text, &["{%r1, %r2, %r3, %r4}", "], %r4;"]);
    let text = ptx("insert", |b, at| {
        let x = unknown(b, at, Type::Vector(Scalar::I32, 4))?;
        let lane = unknown(b, at, scalar(Scalar::I64))?;
        let elem = b.int(Scalar::I32, 7)?;
        let y = b.emit(Arith::Insert { a: x, lane, elem })?;
        b.store(at, y).map(|_| ())
    });
    contains(&text, &["min.u64"]);
}

#[test]
fn addresses_are_numbers() {
    let text = ptx("address", |b, at| {
        let a = b.emit(Address::ToInt { a: at })?;
        b.store(at, a).map(|_| ())
    });
    contains(&text, &["st.global.b64"]);
}

/// The ways by which LLVM can learn that a value of one type has the bits of a value of another.
const WAYS: [&str; 4] = ["bits", "words", "stored", "loaded"];

/// A value of type `to` whose bits are those of a value of type `from`.
fn same_bits(b: &mut Builder, at: Value, way: &str, from: &Type, to: &Type, words: &Type) -> Built<Value> {
    let x = unknown(b, at, from.clone())?;
    let twice = b.binary(BinOp::Add, x, x)?;
    let out = pointer(b, at, 64)?;
    b.store(out, twice)?;
    match way {
        "bits" => b.emit_as(Arith::Bitcast { a: twice }, to.clone()),
        "words" => {
            let a = b.emit_as(Arith::Bitcast { a: twice }, words.clone())?;
            b.emit_as(Arith::Bitcast { a }, to.clone())
        }
        "stored" => unknown(b, out, to.clone()),
        _ => unknown(b, at, to.clone()),
    }
}

/// The ways to compare a value with zero, which LLVM turns into one comparison.
const TESTS: [&str; 4] = ["eq", "ne", "magnitude", "bool"];

fn compared_with_zero(b: &mut Builder, x: Value, test: &str) -> Built<Value> {
    let zero = b.zero(&b.ty(x).clone())?;
    match test {
        "eq" => b.compare(CmpOp::Eq, x, zero),
        "ne" => b.compare(CmpOp::Ne, zero, x),
        "magnitude" => {
            let magnitude = b.unary(UnOp::Abs, x)?;
            b.compare(CmpOp::Le, magnitude, zero)
        }
        _ => b.convert(x, Scalar::Bool),
    }
}

/// A kernel for every way and every test. In one kernel, LLVM would find that the bits are equal.
fn tests_of_other_half(from: Scalar, to: Scalar, lanes: u32) -> Vec<Kernel> {
    let [from, to, words] = [from, to, Scalar::U16].map(|s| Type::lanes_of(s, lanes));
    let all = WAYS.iter().flat_map(|way| TESTS.iter().map(move |test| (way, test)));
    all.map(|(way, test)| {
        kernel(&format!("{way}_{test}"), |b, at| {
            let x = same_bits(b, at, way, &from, &to, &words)?;
            let result = compared_with_zero(b, x, test)?;
            let out = pointer(b, at, 128)?;
            b.store(out, result).map(|_| ())
        })
    })
    .collect()
}

#[test]
fn values_of_f16_and_bf16_with_the_same_bits_are_compared_with_zero() {
    for (from, to) in [(Scalar::F16, Scalar::BF16), (Scalar::BF16, Scalar::F16)] {
        for lanes in [1, 2, 4, 8] {
            let module = verified(tests_of_other_half(from, to, lanes));
            for opt in [OptLevel::O0, OptLevel::O1, OptLevel::O2, OptLevel::O3] {
                let out = emit(&module, &Options::new(target("sm_90a")).opt(opt))
                    .unwrap_or_else(|e| panic!("{from} as {to}, {lanes} lanes, {opt:?}: {e}"));
                accepted(&out.ptx, "sm_90a");
                let comparisons = mnemonics(&out.ptx, "setp.");
                assert!(comparisons.len() >= WAYS.len() * TESTS.len(), "{}", out.ptx);
                for m in comparisons {
                    assert!(m.contains(&format!(".{to}")), "{m} in\n{}", out.ptx);
                }
            }
        }
    }
}
