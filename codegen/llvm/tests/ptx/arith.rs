//! Tests of arithmetic.

use crate::harness::*;
use weft_ir::builder::Built;
use weft_ir::machine::{Builder, Type};
use weft_ir::names::NumberKind;
use weft_ir::{Arith, BinOp, CmpOp, Constant, Scalar, UnOp, Value, ValueType};
use weft_llvm::{OptLevel, Options, emit};

const FLOATS: [Scalar; 4] = [Scalar::F16, Scalar::BF16, Scalar::F32, Scalar::F64];

/// A scalar and a 16-byte vector of a type.
fn shapes(s: Scalar) -> [Type; 2] {
    [Type::Scalar(s), Type::lanes_of(s, 16 / s.bytes())]
}

/// Whether the verifier has an op of a type.
fn exists(s: Scalar, op: BinOp) -> bool {
    use BinOp::*;
    match op {
        Add | Sub | Mul | Div | Min | Max => s != Scalar::Bool,
        Rem | Shl | Shr => s.is_int(),
        And | Or | Xor => !s.is_float(),
    }
}

/// A kernel that stores `f` of two unknown values.
fn binary(
    b: &mut Builder,
    at: Value,
    ty: &Type,
    f: impl Fn(&mut Builder, Value, Value) -> Built<Value>,
) -> Built<()> {
    let x = unknown(b, at, ty.clone())?;
    let there = pointer(b, at, 16)?;
    let y = unknown(b, there, ty.clone())?;
    let z = f(b, x, y)?;
    // Each result has an address of its own. Otherwise only the last one would remain.
    let out = pointer(b, at, 32 * b.kernel().insts.len() as i64)?;
    b.store(out, z)?;
    Ok(())
}

#[test]
fn every_binary_op_of_every_type_assembles() {
    let all: Vec<_> = Scalar::ALL
        .iter()
        .filter(|s| !s.is_fp8())
        .map(|&s| {
            kernel(&format!("binary_{s}"), |b, at| {
                for op in BinOp::ALL.iter().filter(|op| exists(s, **op)) {
                    for ty in shapes(s) {
                        binary(b, at, &ty, |b, x, y| b.binary(*op, x, y))?;
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

#[test]
fn every_comparison_and_select_assembles() {
    let all: Vec<_> = Scalar::ALL
        .iter()
        .filter(|s| !s.is_fp8())
        .map(|&s| {
            kernel(&format!("compare_{s}"), |b, at| {
                for op in CmpOp::ALL {
                    for ty in shapes(s) {
                        binary(b, at, &ty, |b, x, y| {
                            let c = b.compare(*op, x, y)?;
                            let z = b.select(c, y, x)?;
                            let out = pointer(b, at, 32 * b.kernel().insts.len() as i64)?;
                            b.store(out, c)?;
                            Ok(z)
                        })?;
                    }
                }
                Ok(())
            })
        })
        .collect();
    accepted(&compile(all).ptx, "sm_90a");
}

#[test]
fn every_unary_op_assembles() {
    let mut all = Vec::new();
    for &s in Scalar::ALL.iter().filter(|s| !s.is_fp8()) {
        all.push(kernel(&format!("unary_{s}"), |b, at| {
            for &op in UnOp::ALL {
                let exists = match op {
                    UnOp::Neg | UnOp::Abs => matches!(s.kind(), NumberKind::Float | NumberKind::Signed),
                    UnOp::Not => !s.is_float(),
                    UnOp::Sqrt | UnOp::Rsqrt | UnOp::Floor | UnOp::Ceil | UnOp::Round => s.is_float(),
                    _ => s.is_float() && s != Scalar::F64,
                };
                for ty in shapes(s) {
                    if exists {
                        binary(b, at, &ty, |b, x, _| b.unary(op, x))?;
                    }
                }
            }
            Ok(())
        }));
    }
    for arch in ["sm_90", "sm_100a"] {
        accepted(&compile_for(arch, all.clone()).ptx, arch);
    }
}

#[test]
fn fma_is_one_instruction_and_nothing_else_becomes_one() {
    for s in FLOATS {
        let both = ptx("fma", |b, at| {
            for ty in shapes(s) {
                binary(b, at, &ty, |b, x, y| b.emit(Arith::Fma { a: x, b: y, c: y }))?;
            }
            Ok(())
        });
        assert!(!mnemonics(&both, "fma.rn").is_empty(), "{both}");
        let neither = ptx("mul_add", |b, at| {
            for ty in shapes(s) {
                binary(b, at, &ty, |b, x, y| {
                    let product = b.binary(BinOp::Mul, x, y)?;
                    b.binary(BinOp::Add, product, y)
                })?;
            }
            Ok(())
        });
        assert!(mnemonics(&neither, "fma").is_empty(), "{neither}");
        // Without `.rn`, ptxas can contract.
        for m in mnemonics(&neither, "mul.").iter().chain(&mnemonics(&neither, "add.")) {
            assert!(m.contains(".rn.") || m.contains(".s64") || m.contains(".u64"), "{m} in\n{neither}");
        }
        assert!(!neither.contains("ftz") && !both.contains("ftz"));
    }
}

#[test]
fn half_vectors_are_packed() {
    for (s, name) in [(Scalar::F16, "f16x2"), (Scalar::BF16, "bf16x2")] {
        let text = ptx("packed", |b, at| {
            binary(b, at, &Type::Vector(s, 8), |b, x, y| {
                let sum = b.binary(BinOp::Add, x, y)?;
                let product = b.binary(BinOp::Mul, sum, y)?;
                let least = b.binary(BinOp::Min, product, x)?;
                let sum = b.emit(Arith::Fma { a: least, b: x, c: y })?;
                b.unary(UnOp::Abs, sum)
            })
        });
        for op in ["add.rn", "mul.rn", "min", "fma.rn", "abs"] {
            assert_eq!(mnemonics(&text, &format!("{op}.{name}")).len(), 4, "{text}");
        }
    }
}

#[test]
fn division_and_roots_are_rounded_right() {
    let text = ptx("div", |b, at| {
        for s in [Scalar::F32, Scalar::F64] {
            binary(b, at, &scalar(s), |b, x, y| {
                let q = b.binary(BinOp::Div, x, y)?;
                b.unary(UnOp::Sqrt, q)
            })?;
        }
        Ok(())
    });
    contains(&text, &["div.rn.f32", "sqrt.rn.f32", "div.rn.f64", "sqrt.rn.f64"]);
}

#[test]
fn approximate_functions_are_one_instruction() {
    let text = ptx("approx", |b, at| {
        use UnOp::*;
        for op in [Rsqrt, Exp2, Log2, Tanh, Sin, Cos] {
            binary(b, at, &scalar(Scalar::F32), |b, x, _| b.unary(op, x))?;
        }
        Ok(())
    });
    for m in [
        "rsqrt.approx.f32",
        "ex2.approx.ftz.f32",
        "lg2.approx.f32",
        "tanh.approx.f32",
        "sin.approx.f32",
        "cos.approx.f32",
    ] {
        assert_eq!(mnemonics(&text, m).len(), 1, "{m}: {text}");
    }
}

#[test]
fn errors_for_f64_functions_say_what_to_do() {
    use UnOp::*;
    for op in [Exp, Exp2, Log, Log2, Tanh, Sin, Cos] {
        let k = kernel("f", |b, at| binary(b, at, &scalar(Scalar::F64), |b, x, _| b.unary(op, x)));
        let e = emit(&verified(vec![k]), &Options::new(target("sm_90a"))).unwrap_err();
        assert_eq!(e.code, weft_llvm::codes::NO_FUNCTION);
        assert_eq!(e.message, format!("f64 `{op}` does not exist without libdevice"));
        assert!(e.help.unwrap().contains("f32"));
    }
}

/// The result to which LLVM folds `op` of two integers.
fn folded(s: Scalar, op: BinOp, x: i64, y: i64) -> i64 {
    let text = ptx("folded", |b, at| {
        let (x, y) = (b.int(s, x)?, b.int(s, y)?);
        let z = b.binary(op, x, y)?;
        let z = b.convert(z, Scalar::I64)?;
        b.store(at, z).map(|_| ())
    });
    stored(&text)
}

/// The constant in the only store.
fn stored(text: &str) -> i64 {
    let lines: Vec<_> = text.lines().filter(|l| l.trim().starts_with("st.")).collect();
    let [line] = lines[..] else { panic!("not one store in\n{text}") };
    let number = line.rsplit([' ', '\t']).next().unwrap().trim_end_matches(';');
    number.parse().unwrap_or_else(|_| panic!("no constant in `{line}`"))
}

#[test]
fn integer_corner_cases_have_results() {
    use BinOp::*;
    use Scalar::*;
    let least = i64::from(i32::MIN);
    for (s, op, x, y, z) in [
        (I32, Div, 7, 0, -1),
        (I32, Rem, 7, 0, 7),
        (U32, Div, 7, 0, (1 << 32) - 1),
        (U32, Rem, 7, 0, 7),
        (I32, Div, least, -1, least),
        (I32, Rem, least, -1, 0),
        (I32, Div, -7, 2, -3),
        (I32, Rem, -7, 2, -1),
        (I32, Div, 7, -1, -7),
        (I64, Div, i64::MIN, -1, i64::MIN),
        (I8, Div, -128, -1, -128),
        (I32, Shl, 1, 31, least),
        (I32, Shl, 1, 32, 0),
        (I32, Shl, 1, -1, 0),
        (U32, Shr, 1 << 31, 31, 1),
        (U32, Shr, 1 << 31, 40, 0),
        (I32, Shr, least, 40, -1),
        (I32, Shr, least, -1, -1),
        (I8, Shr, -128, 9, -1),
        (U8, Shl, 255, 4, 240),
        (U8, Add, 255, 1, 0),
        (I16, Mul, -32768, -1, -32768),
        (I32, Min, -1, 1, -1),
        (U8, Max, 255, 1, 255),
    ] {
        assert_eq!(folded(s, op, x, y), z, "{x} {op} {y}: {s}");
    }
}

#[test]
fn min_and_max_give_the_number() {
    let fold = |op, x: f64, y: f64| {
        let text = ptx("folded", |b, at| {
            let (x, y) = (b.float(Scalar::F32, x)?, b.float(Scalar::F32, y)?);
            let z = b.binary(op, x, y)?;
            let bits = b.emit_as(Arith::Bitcast { a: z }, scalar(Scalar::I32))?;
            b.store(at, bits).map(|_| ())
        });
        f32::from_bits(stored(&text) as u32)
    };
    assert_eq!(fold(BinOp::Min, f64::NAN, 2.0), 2.0);
    assert_eq!(fold(BinOp::Max, 2.0, f64::NAN), 2.0);
    assert_eq!(fold(BinOp::Max, 2.0, 3.0), 3.0);
    assert!(fold(BinOp::Min, 0.0, -0.0).is_sign_negative());
    assert!(fold(BinOp::Max, f64::NAN, f64::NAN).is_nan());
}

#[test]
fn magnitudes_and_negations() {
    let text = ptx("abs", |b, at| {
        binary(b, at, &scalar(Scalar::I32), |b, x, _| b.unary(UnOp::Abs, x))?;
        binary(b, at, &scalar(Scalar::F32), |b, x, y| {
            let sum = b.binary(BinOp::Add, x, y)?;
            let magnitude = b.unary(UnOp::Abs, sum)?;
            b.binary(BinOp::Mul, magnitude, y)
        })
    });
    contains(&text, &["abs.s32", "abs.f32"]);
}

#[test]
fn rounding_to_integers() {
    let text = ptx("rounding", |b, at| {
        for op in [UnOp::Floor, UnOp::Ceil, UnOp::Round] {
            binary(b, at, &scalar(Scalar::F32), |b, x, _| b.unary(op, x))?;
        }
        Ok(())
    });
    contains(&text, &["cvt.rmi.f32.f32", "cvt.rpi.f32.f32", "cvt.rni.f32.f32"]);
}

#[test]
fn optimisation_levels_have_the_same_instructions() {
    let k = kernel("levels", |b, at| {
        binary(b, at, &Type::Vector(Scalar::F32, 4), |b, x, y| b.binary(BinOp::Add, x, y))
    });
    for opt in [OptLevel::O0, OptLevel::O1, OptLevel::O2, OptLevel::O3] {
        let out = emit(&verified(vec![k.clone()]), &Options::new(target("sm_90a")).opt(opt)).unwrap();
        accepted(&out.ptx, "sm_90a");
        assert_eq!(mnemonics(&out.ptx, "add.rn.f32").len(), 4, "{opt:?}\n{}", out.ptx);
        assert_eq!(mnemonics(&out.ptx, "ld.global.v4").len(), 2, "{opt:?}\n{}", out.ptx);
    }
}

#[test]
fn literals_are_rounded_once() {
    let text = ptx("literals", |b, at| {
        for (i, s) in [Scalar::E4M3, Scalar::E5M2, Scalar::BF16, Scalar::F16].into_iter().enumerate() {
            let x = b.emit_as(Arith::Const { value: Constant::Float(1.0 / 3.0) }, scalar(s))?;
            let int = if s.is_fp8() { Scalar::U8 } else { Scalar::U16 };
            let bits = b.emit_as(Arith::Bitcast { a: x }, scalar(int))?;
            let bits = b.convert(bits, Scalar::I32)?;
            let out = pointer(b, at, 4 * i as i64)?;
            b.store(out, bits)?;
        }
        Ok(())
    });
    // 1/3 is 0x2b in e4m3 (0.34375), 0x35 in e5m2 (0.3125), 0x3eab in bf16, 0x3555 in f16.
    for bits in [0x2b, 0x35, 0x3eab, 0x3555] {
        assert!(text.contains(&format!(", {bits};")), "{bits}: {text}");
    }
}
