//! The lowering of 8-bit floats, which are only converted, two at a time.

use super::{Lower, Lowered};
use crate::raw::{Cast, FloatIs, Val};
use weft_ir::Scalar;
use weft_ir::names::NumberKind;

/// Rounds `x` to fp8, to nearest with ties to even. Larger numbers become the largest finite
/// number, and NaN stays NaN.
pub(super) fn encode(s: Scalar, x: f64) -> u8 {
    // These are the number of mantissa bits, the exponent of the least normal number, and the code
    // of the largest finite number.
    let (mantissa, least, largest) = if s == Scalar::E4M3 { (3, -6, 0x7e) } else { (2, -14, 0x7b) };
    let sign = u8::from(x.is_sign_negative()) << 7;
    if x.is_nan() {
        return sign | 0x7f;
    }
    let magnitude = x.abs();
    // The number is beyond all finite ones. This test also keeps the exponent below in range.
    if magnitude >= 65536.0 {
        return sign | largest;
    }
    let exponent = (magnitude.log2().floor() as i32).max(least);
    // The code as a number: units of the last place, to which the exponents above the least one are
    // added.
    let units = (magnitude / f64::powi(2.0, exponent - mantissa)).round_ties_even() as i32;
    let code = units + ((exponent - least) << mantissa);
    sign | u8::try_from(code).unwrap_or(u8::MAX).min(largest)
}

impl<'c> Lower<'_, 'c> {
    /// The PTX name of an fp8 type.
    fn ptx_name(s: Scalar) -> &'static str {
        if s == Scalar::E4M3 { "e4m3x2" } else { "e5m2x2" }
    }

    /// Converts to f16, which can hold every fp8 number.
    pub(super) fn fp8_to_half(&self, a: Val<'c>, from: Scalar) -> Lowered<Val<'c>> {
        let ir = self.ir;
        let name = format!("llvm.nvvm.{}.to.f16x2.rn", Self::ptx_name(from));
        let (pair, byte) = (ir.int(16), ir.int(8));
        let mut halves = Vec::new();
        let lanes = ir.lanes(a);
        for two in lanes.chunks(2) {
            let two = [two[0], *two.get(1).unwrap_or(&ir.zero(byte))];
            let bits = ir.bitcast(ir.pack(&two, ir.vector(byte, 2)), pair);
            halves.extend(ir.lanes(self.intrinsic(&name, &[], &[bits])?));
        }
        halves.truncate(lanes.len());
        let ty = self.with_elem(a.ty(), ir.scalar(Scalar::F16));
        Ok(if ty.lanes().is_some() { ir.pack(&halves, ty) } else { halves[0] })
    }

    /// Converts from any type, rounding once and saturating.
    pub(super) fn to_fp8(&self, a: Val<'c>, from: Scalar, to: Scalar) -> Lowered<Val<'c>> {
        let ir = self.ir;
        let single = self.with_elem(a.ty(), ir.scalar(Scalar::F32));
        let a = match from.kind() {
            _ if from == Scalar::F32 => a,
            _ if from == Scalar::F64 => self.odd_f32(a)?,
            NumberKind::Float => ir.cast(Cast::LLVMFPExt, a, single),
            // The limits are beyond every fp8 number, and exact in f32.
            NumberKind::Signed if from.bits() > 16 => {
                let limit = |n| ir.constant(a.ty(), n);
                let low = self.intrinsic("llvm.smax", &[a.ty()], &[a, limit(-(1 << 17))])?;
                let both = self.intrinsic("llvm.smin", &[a.ty()], &[low, limit(1 << 17)])?;
                ir.cast(Cast::LLVMSIToFP, both, single)
            }
            NumberKind::Unsigned if from.bits() > 16 => {
                let low = self.intrinsic("llvm.umin", &[a.ty()], &[a, ir.constant(a.ty(), 1 << 17)])?;
                ir.cast(Cast::LLVMUIToFP, low, single)
            }
            NumberKind::Signed => ir.cast(Cast::LLVMSIToFP, a, single),
            _ => ir.cast(Cast::LLVMUIToFP, a, single),
        };
        let name = format!("llvm.nvvm.ff.to.{}.rn", Self::ptx_name(to));
        let (byte, f32) = (ir.int(8), ir.scalar(Scalar::F32));
        let mut bytes = Vec::new();
        let lanes = ir.lanes(a);
        for two in lanes.chunks(2) {
            // PTX puts its first operand into the upper half.
            let upper = *two.get(1).unwrap_or(&ir.zero(f32));
            let bits = self.intrinsic(&name, &[], &[upper, two[0]])?;
            bytes.extend(ir.lanes(ir.bitcast(bits, ir.vector(byte, 2))));
        }
        bytes.truncate(lanes.len());
        let ty = self.with_elem(a.ty(), byte);
        Ok(if ty.lanes().is_some() { ir.pack(&bytes, ty) } else { bytes[0] })
    }

    /// Converts f64 to f32 with rounding to odd. A second rounding to far fewer bits is then
    /// correct.
    fn odd_f32(&self, a: Val<'c>) -> Lowered<Val<'c>> {
        let ir = self.ir;
        let (f32, f64, int) = (ir.scalar(Scalar::F32), ir.scalar(Scalar::F64), ir.int(32));
        self.each_lane(a, self.with_elem(a.ty(), f32), |lane| {
            let cut = self.intrinsic("llvm.nvvm.d2f.rz", &[], &[lane])?;
            let exact = ir.fcmp(FloatIs::LLVMRealOEQ, ir.cast(Cast::LLVMFPExt, cut, f64), lane);
            let odd = ir.or(ir.bitcast(cut, int), ir.constant(int, 1));
            Ok(ir.select(exact, cut, ir.bitcast(odd, f32)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::encode;
    use float8::{F8E4M3, F8E5M2};
    use weft_ir::Scalar;

    /// Checks that every code converts to itself, and that numbers between two neighbours round to
    /// the nearer one, or to the even one at the midpoint.
    fn check(s: Scalar, largest: u8, value: impl Fn(u8) -> f64) {
        for code in 0..=largest {
            assert_eq!(encode(s, value(code)), code, "{s} {code:#x}");
            assert_eq!(encode(s, -value(code)), code | 0x80, "{s} -{code:#x}");
            if code < largest {
                let (low, high) = (value(code), value(code + 1));
                let (middle, step) = ((low + high) / 2.0, (high - low) / 1e6);
                assert_eq!(encode(s, middle - step), code, "{s} {code:#x}");
                assert_eq!(encode(s, middle + step), code + 1, "{s} {code:#x}");
                assert_eq!(encode(s, middle), code + (code & 1), "{s} {code:#x}");
            }
        }
        for beyond in [value(largest) * 1.2, 65535.9, 1e300, f64::INFINITY] {
            assert_eq!((encode(s, beyond), encode(s, -beyond)), (largest, largest | 0x80), "{s} {beyond}");
        }
        assert_eq!(encode(s, f64::NAN) & 0x7f, 0x7f);
        assert_eq!(encode(s, 5e-324), 0);
    }

    #[test]
    fn literals_are_the_nearest_numbers() {
        check(Scalar::E4M3, 0x7e, |c| F8E4M3::from_bits(c).to_f64());
        check(Scalar::E5M2, 0x7b, |c| F8E5M2::from_bits(c).to_f64());
    }
}
