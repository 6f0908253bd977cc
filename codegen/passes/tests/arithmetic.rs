//! Tests of symbolic integers as instructions, and of reductions among threads.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod common;

use common::machine::{Arg, World};
use common::{layout, lower, module, num};
use proptest::prelude::*;
use weft_ir::builder::Built;
use weft_ir::*;
use weft_passes::Lowering;

#[derive(Clone, Debug)]
enum Expr {
    Const(i64),
    Var(usize),
    Pair(u8, Box<Expr>, Box<Expr>),
}

fn expr() -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![(-9i64..70).prop_map(Expr::Const), (0usize..3).prop_map(Expr::Var)];
    leaf.prop_recursive(4, 24, 2, |inner| {
        (0u8..10, inner.clone(), inner).prop_map(|(op, a, b)| Expr::Pair(op, a.into(), b.into()))
    })
}

impl Expr {
    fn int(&self, vars: &[Int; 3]) -> Int {
        let Expr::Pair(op, a, b) = self else {
            return match self {
                Expr::Const(n) => Int::from(*n),
                Expr::Var(i) => vars[*i].clone(),
                Expr::Pair(..) => unreachable!(),
            };
        };
        let (a, b) = (a.int(vars), b.int(vars));
        match op {
            0 | 1 => a + b,
            2 => a - b,
            3 => a * b,
            4 => a.floor_div(&b),
            5 => a.ceil_div(&b),
            6 => a.rem(&b),
            7 => a.min(&b),
            8 => a.max(&b),
            _ => a.bit_xor(&b),
        }
    }
}

fn read_i64(bytes: &[u8]) -> i64 {
    i64::from_le_bytes(bytes[..8].try_into().unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn expressions_have_their_values(e in expr(), n in 1i64..1000, lo in -50i64..50, eighth in 1i64..40) {
        let mut b = Builder::new("e", [1, 1, 1]);
        let out = b.param("out", Builder::tensor(Scalar::I64, Space::Global, layout(&[1], &[1]), 8)).unwrap();
        // There is a positive number, a number of which nothing is known, and a multiple of 8.
        let known = b.param("n", Type::Scalar(Scalar::I32)).unwrap();
        let divided = b.param_of("m", Type::Scalar(Scalar::I64), ParamKind::User, 8).unwrap();
        let any = b.int(Scalar::I64, lo).unwrap();
        let zero = b.param("zero", Type::Scalar(Scalar::I64)).unwrap();
        let any = b.binary(BinOp::Add, any, zero).unwrap();
        let one = b.int(Scalar::I64, 1).unwrap();
        let any = b.binary(BinOp::Sub, any, one).unwrap();
        let vars = [b.symbol(known).unwrap(), b.symbol(any).unwrap(), b.symbol(divided).unwrap()];
        let sum = e.int(&vars);
        prop_assume!(sum.poison().is_none());
        let value = [n, lo, eighth * 8];
        let ids = [known, any, divided];
        let want = sum.subst(&mut |v| ids.iter().position(|i| i.0 == v.id).map(|i| Int::from(value[i])));
        prop_assume!(want.as_const().is_some_and(|w| w.abs() < 1 << 40));
        let index = b.index(sum).unwrap();
        b.store(out, index).unwrap();
        let lowered = lower(b.finish(), Lowering::Multimem);
        let args = vec![Arg::Memory(vec![vec![0; 8]], 8), Arg::Int(n), Arg::Int(eighth * 8), Arg::Int(1)];
        let mut w = World::new(1, [1, 1, 1], args);
        w.launch_lowered(&lowered);
        prop_assert_eq!(read_i64(w.memory(0, 0)), want.as_const().unwrap());
    }

    #[test]
    fn reductions_reduce(
        x in 1u32..70, y in 1u32..4, z in 1u32..3,
        block in any::<bool>(),
        op in prop::sample::select(RedOp::ALL.to_vec()),
        elem in prop::sample::select(vec![
            Scalar::F32, Scalar::F16, Scalar::BF16, Scalar::F64, Scalar::I32, Scalar::U8, Scalar::I16, Scalar::I64,
        ]),
        lanes in 1u32..4,
        seed in any::<u32>(),
    ) {
        let bitwise = matches!(op, RedOp::And | RedOp::Or | RedOp::Xor);
        prop_assume!(!(elem.is_float() && (bitwise || op == RedOp::Mul)));
        let group = if block { Group::Block } else { Group::Warp };
        let kernel = reduction([x, y, z], group, op, elem, lanes).unwrap();
        let n = (x * y * z * lanes) as usize;
        let mut state = seed;
        let mut input = Vec::new();
        for _ in 0..n {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let value = i64::from(state >> 27) - 7;
            let bits = if elem.is_float() { num::float_bits(elem, value as f64) } else { num::bits(elem, value) };
            input.extend(&bits.to_le_bytes()[..elem.bytes() as usize]);
        }
        let args = vec![Arg::Memory(vec![input.clone()], 16), Arg::Memory(vec![vec![0; input.len()]], 16)];
        let (mut want, mut have) = (World::new(1, [1, 1, 1], args.clone()), World::new(1, [1, 1, 1], args));
        let lowered = lower(kernel.clone(), Lowering::Multimem);
        want.launch(&module(kernel).kernels[0]);
        have.launch_lowered(&lowered);
        prop_assert_eq!(want.memory(1, 0), have.memory(1, 0));
    }
}

/// The kernel computes `out[t] = reduce(in[t])` twice, so that shared memory is used again.
fn reduction(block: [u32; 3], group: Group, op: RedOp, elem: Scalar, lanes: u32) -> Built<Kernel> {
    let mut b = Builder::new("r", block);
    let tensor = || Builder::tensor(elem, Space::Global, layout(&[1], &[1]), 16);
    let (from, to) = (b.param("from", tensor())?, b.param("to", tensor())?);
    let mut index = Int::ZERO;
    for (dim, extent) in [(Dim::Z, 1), (Dim::Y, block[1]), (Dim::X, block[0])] {
        let at = b.special(Sreg::ThreadIdx, dim)?;
        index = index * Int::from(extent) + b.symbol(at)?;
    }
    // Z counts whole planes.
    let at = index * Int::from(lanes);
    let part = layout(&[lanes.into()], &[1]);
    let from = b.view(from, at.clone(), part.clone(), vec![])?;
    let to = b.view(to, at, part, vec![])?;
    let v = b.load(from)?;
    let first = b.emit(Together::Reduce { value: v, op, group })?;
    let both = b.binary(if elem.is_float() { BinOp::Min } else { BinOp::Xor }, v, first)?;
    let v = b.emit(Together::Reduce { value: both, op: RedOp::Max, group })?;
    b.store(to, v)?;
    Ok(b.finish())
}

#[test]
fn truth_values_are_reduced() {
    for (op, want) in [(RedOp::And, 0u8), (RedOp::Or, 1)] {
        let mut b = Builder::new("any", [48, 1, 1]);
        let out =
            b.param("out", Builder::tensor(Scalar::I32, Space::Global, layout(&[1], &[1]), 16)).unwrap();
        let tid = b.special(Sreg::ThreadIdx, Dim::X).unwrap();
        let n = b.int(Scalar::I32, 40).unwrap();
        let c = b.compare(CmpOp::Eq, tid, n).unwrap();
        let all = b.emit(Together::Reduce { value: c, op, group: Group::Block }).unwrap();
        let (one, zero) = (b.int(Scalar::I32, 1).unwrap(), b.int(Scalar::I32, 0).unwrap());
        let x = b.select(all, one, zero).unwrap();
        let at = b.symbol(tid).unwrap();
        let to = b.view(out, at, layout(&[1], &[1]), vec![]).unwrap();
        b.store(to, x).unwrap();
        let lowered = lower(b.finish(), Lowering::Multimem);
        let mut w = World::new(1, [1, 1, 1], vec![Arg::Memory(vec![vec![9; 192]], 16)]);
        w.launch_lowered(&lowered);
        assert!(w.memory(0, 0).chunks(4).all(|x| x == [want, 0, 0, 0]));
    }
}
