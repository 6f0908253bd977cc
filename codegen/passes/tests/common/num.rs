//! Numbers as their bits, with one lane per `u64`.

use half::{bf16, f16};
use weft_ir::{BinOp, CmpOp, NumberKind, RedOp, Scalar, UnOp};

/// The value of an integer.
pub fn int(s: Scalar, bits: u64) -> i64 {
    let shift = 64 - s.bits();
    match s.kind() {
        NumberKind::Signed => ((bits << shift) as i64) >> shift,
        _ => ((bits << shift) >> shift) as i64,
    }
}

/// The bits of an integer, modulo its width.
pub fn bits(s: Scalar, n: i64) -> u64 {
    let shift = 64 - s.bits();
    (n as u64) << shift >> shift
}

/// The value of a float.
pub fn float(s: Scalar, bits: u64) -> f64 {
    match s {
        Scalar::F16 => f16::from_bits(bits as u16).to_f64(),
        Scalar::BF16 => bf16::from_bits(bits as u16).to_f64(),
        Scalar::F32 => f32::from_bits(bits as u32).into(),
        Scalar::F64 => f64::from_bits(bits),
        other => panic!("no arithmetic in {other}"),
    }
}

/// The bits of a float, rounded to nearest even. It is rounded once, after exact or
/// double-precision arithmetic.
pub fn float_bits(s: Scalar, x: f64) -> u64 {
    match s {
        Scalar::F16 => f16::from_f64(x).to_bits().into(),
        Scalar::BF16 => bf16::from_f64(x).to_bits().into(),
        Scalar::F32 => (x as f32).to_bits().into(),
        Scalar::F64 => x.to_bits(),
        // Elements out of bounds read as 0 in every type.
        other if x == 0.0 => bits(other, 0),
        other => panic!("no arithmetic in {other}"),
    }
}

pub fn convert(from: Scalar, to: Scalar, x: u64) -> u64 {
    match (from.is_float(), to.is_float()) {
        (true, true) if from == to => x,
        (true, true) => float_bits(to, float(from, x)),
        (false, true) => float_bits(to, int(from, x) as f64),
        (true, false) => bits(to, float(from, x) as i64),
        (false, false) => bits(to, int(from, x)),
    }
}

pub fn binary(op: BinOp, s: Scalar, a: u64, b: u64) -> u64 {
    if s.is_float() {
        let (x, y) = (float(s, a), float(s, b));
        let r = match op {
            BinOp::Add => x + y,
            BinOp::Sub => x - y,
            BinOp::Mul => x * y,
            BinOp::Div => x / y,
            BinOp::Min => x.min(y),
            BinOp::Max => x.max(y),
            other => panic!("{other} of floats"),
        };
        return float_bits(s, r);
    }
    let (x, y) = (int(s, a), int(s, b));
    let unsigned = s.kind() == NumberKind::Unsigned;
    let r = match op {
        BinOp::Add => x.wrapping_add(y),
        BinOp::Sub => x.wrapping_sub(y),
        BinOp::Mul => x.wrapping_mul(y),
        BinOp::Div if unsigned => (x as u64 / y as u64) as i64,
        BinOp::Rem if unsigned => (x as u64 % y as u64) as i64,
        BinOp::Div => x.wrapping_div(y),
        BinOp::Rem => x.wrapping_rem(y),
        BinOp::Min if unsigned => (x as u64).min(y as u64) as i64,
        BinOp::Max if unsigned => (x as u64).max(y as u64) as i64,
        BinOp::Min => x.min(y),
        BinOp::Max => x.max(y),
        BinOp::And => x & y,
        BinOp::Or => x | y,
        BinOp::Xor => x ^ y,
        BinOp::Shl if y >= s.bits().into() => 0,
        BinOp::Shl => x << y,
        BinOp::Shr if unsigned && y >= s.bits().into() => 0,
        BinOp::Shr if unsigned => (x as u64 >> y) as i64,
        BinOp::Shr => x >> y.min(63),
    };
    bits(s, r)
}

pub fn unary(op: UnOp, s: Scalar, a: u64) -> u64 {
    match (op, s.is_float()) {
        (UnOp::Neg, true) => float_bits(s, -float(s, a)),
        (UnOp::Neg, false) => bits(s, int(s, a).wrapping_neg()),
        (UnOp::Not, false) if s == Scalar::Bool => 1 - a,
        (UnOp::Not, false) => bits(s, !int(s, a)),
        other => panic!("{other:?}"),
    }
}

pub fn compare(op: CmpOp, s: Scalar, a: u64, b: u64) -> u64 {
    let order = match s.kind() {
        NumberKind::Float => float(s, a).partial_cmp(&float(s, b)),
        NumberKind::Signed => Some(int(s, a).cmp(&int(s, b))),
        _ => Some(a.cmp(&b)),
    };
    let is = match (op, order) {
        (CmpOp::Ne, None) => true,
        (_, None) => false,
        (CmpOp::Eq, Some(o)) => o.is_eq(),
        (CmpOp::Ne, Some(o)) => o.is_ne(),
        (CmpOp::Lt, Some(o)) => o.is_lt(),
        (CmpOp::Le, Some(o)) => o.is_le(),
        (CmpOp::Gt, Some(o)) => o.is_gt(),
        (CmpOp::Ge, Some(o)) => o.is_ge(),
    };
    is.into()
}

pub fn combine(op: RedOp, s: Scalar, a: u64, b: u64) -> u64 {
    let op = match op {
        RedOp::Add => BinOp::Add,
        RedOp::Mul => BinOp::Mul,
        RedOp::Min => BinOp::Min,
        RedOp::Max => BinOp::Max,
        RedOp::And => BinOp::And,
        RedOp::Or => BinOp::Or,
        RedOp::Xor => BinOp::Xor,
    };
    binary(op, s, a, b)
}
