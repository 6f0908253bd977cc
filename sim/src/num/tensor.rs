//! The dot products of tensor cores.
//!
//! The manual leaves open how a tensor core adds. [`Dot`] does the same as an H100 and an H200 (Xie
//! et al., MMA-Sim, arXiv 2511.10909; Khattak and Mikaitis, Accurate models of NVIDIA tensor cores,
//! arXiv 2512.07004; bit for bit in `tests/hardware_launches.rs`). The products are exact. A group
//! of products and the accumulator are aligned to the largest exponent among them. Bits below a
//! fixed number of fraction bits are cut off. The sum of the rest is exact and is rounded once,
//! towards zero into single precision and to nearest into half.

use super::format::{F32, F64, Format, Rounding};
use super::{float::Style, mask, sext};

/// The type of a matrix' elements in a multiplication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Element {
    /// A float in the low bits of an element, or in the high ones for TF32.
    Float(Format),
    Int {
        bits: u32,
        signed: bool,
    },
    /// 32 single bits.
    Word,
}

/// The arithmetic for the products of two rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arithmetic {
    Float(Dot),
    /// The 8-bit floats of `mma.sync`, which an H200 widens to half precision. The products of the
    /// first two of each four elements, then those of the others, are summed up from zero; the
    /// accumulator is added last.
    Halves(Dot),
    /// The sums of `mma.m8n8k4`, which an H200 computes in single precision: fused multiply-adds in
    /// the order of K from zero into an accumulator of this format, or in pairs for half precision.
    Quad(Format),
    /// Sequential fused multiply-adds.
    Double(Rounding),
    /// Exact integer sums, which wrap around in 32 bits or clamp.
    Int {
        saturate: bool,
    },
    /// Counts the bits of `a ^ b` or `a & b`.
    Count {
        xor: bool,
    },
}

/// Floating-point dot products into an accumulator of this format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Dot {
    pub accumulator: Format,
    /// The number of products that are added at once.
    pub group: usize,
    /// The number of fraction bits kept below the largest exponent.
    pub fraction: u32,
}

/// The value `m * 2^(e - fraction bits of the format)`.
#[derive(Debug, Clone, Copy)]
struct Term {
    m: i32,
    e: i32,
}

/// The exponent of zero, which is below all others whatever is added to it.
const NOTHING: i32 = -1 << 20;

/// Splits a finite value into its parts.
#[inline]
fn split(f: Format, v: u64) -> Term {
    let m = (v & mask(f.man)) as i32;
    let e = (v >> f.man & mask(f.exp)) as i32;
    let bias = (1 << (f.exp - 1)) - 1;
    let (m, e) = match (e, m) {
        (0, 0) => (0, NOTHING),
        (0, _) => (m, 1 - bias),
        _ => (m | 1 << f.man, e - bias),
    };
    Term { m: if v & f.sign() != 0 { -m } else { m }, e }
}

/// Returns `v * 2^by`, cut off towards zero.
#[inline]
fn shifted(v: i64, by: i32) -> i64 {
    match by {
        0.. => v << by.min(62),
        -62..0 => {
            let cut = (v.unsigned_abs() >> -by) as i64;
            if v < 0 { -cut } else { cut }
        }
        _ => 0,
    }
}

/// The element's format, and its bits in it.
fn read(f: Format, v: u64) -> u64 {
    if f == super::TF32 { v >> 13 & mask(19) } else { v & mask(f.bits()) }
}

fn finite(f: Format, v: u64) -> bool {
    !f.is_nan(v) && !f.is_inf(v)
}

impl Dot {
    /// Returns `acc + a . b` for rows of bits in these formats.
    fn run(self, (fa, a): (Format, &[Term]), (fb, b): (Format, &[Term]), acc: u64) -> u64 {
        let products = (fa.man + fb.man) as i32;
        let fraction = self.fraction as i32;
        let mut acc = acc;
        for (a, b) in a.chunks(self.group).zip(b.chunks(self.group)) {
            if !finite(self.accumulator, acc) {
                return acc;
            }
            let c = split(self.accumulator, acc);
            let top = a.iter().zip(b).fold(c.e, |top, (a, b)| top.max(a.e + b.e));
            let start = shifted(c.m.into(), fraction - self.accumulator.man as i32 - (top - c.e));
            let sum = a.iter().zip(b).fold(start, |sum, (a, b)| {
                sum + shifted(i64::from(a.m) * i64::from(b.m), fraction - products - (top - a.e - b.e))
            });
            acc = self.round(sum, top - fraction);
        }
        acc
    }

    /// Returns `sum * 2^e` in the accumulator's format.
    fn round(self, sum: i64, e: i32) -> u64 {
        if sum == 0 {
            return 0;
        }
        // The sum has fewer than 53 bits, and exponents are those of bf16 products at worst: exact.
        let x = sum as f64 * f64::from_bits(((e + 1023) as u64) << 52);
        if self.accumulator != F32 {
            return self.accumulator.encode(x, Rounding::Nearest, false);
        }
        if x.abs() >= 2_f64.powi(128) {
            return F32.encode(x, Rounding::Nearest, false);
        }
        let kept = self.fraction.min(F32.man);
        let short = Format { man: kept, ..F32 };
        let v = short.encode(x, Rounding::Zero, false) << (F32.man - kept);
        // A value that is cut off to zero is not -0.
        if v == F32.sign() { 0 } else { v }
    }
}

/// A matrix with rows of `k` elements.
pub(crate) struct Rows<'a> {
    pub element: Element,
    pub bits: &'a [u64],
}

impl Rows<'_> {
    /// Returns the elements as integers.
    fn integers(&self) -> Vec<i64> {
        let value = |&v: &u64| match self.element {
            Element::Int { bits, signed: true } => sext(v, bits),
            Element::Int { bits, .. } => (v & mask(bits)) as i64,
            _ => v as i64,
        };
        self.bits.iter().map(value).collect()
    }

    /// Returns two of each four elements.
    fn pairs(&self, first: usize) -> (Element, Vec<u64>) {
        (
            self.element,
            self.bits.chunks(4).flat_map(|four| four.iter().skip(first).take(2)).copied().collect(),
        )
    }

    fn format(&self) -> Format {
        match self.element {
            Element::Float(f) => f,
            _ => F64,
        }
    }
}

/// Computes `acc += a * transpose(b)`: `a` has rows of `k` elements, `b` columns of `k`, and `acc`
/// a row for each row of `a`.
pub(crate) fn multiply(arithmetic: Arithmetic, k: usize, a: &Rows<'_>, b: &Rows<'_>, acc: &mut [u64]) {
    if k == 0 || b.bits.is_empty() {
        return;
    }
    let n = b.bits.len() / k;
    match arithmetic {
        Arithmetic::Float(dot) => multiply_floats(dot, k, n, a, b, acc),
        Arithmetic::Halves(dot) => {
            let mut sums = vec![0; acc.len()];
            for first in [0, 2] {
                let (a, b) = (a.pairs(first), b.pairs(first));
                let rows = |element, bits| Rows { element, bits };
                multiply_floats(dot, k / 2, n, &rows(a.0, &a.1), &rows(b.0, &b.1), &mut sums);
            }
            let style = Style::new(dot.accumulator);
            acc.iter_mut().zip(sums).for_each(|(c, sum)| *c = style.add(*c, sum));
        }
        Arithmetic::Quad(accumulator) => {
            let single = Style::new(F32);
            let wide = |f: Format, v: u64| F32.encode(f.decode(v), Rounding::Nearest, false);
            let [fa, fb] = [a, b].map(Rows::format);
            each(k, n, a.bits, b.bits, acc, |a, b, c| {
                let fma = |sum, (&a, &b): (&u64, &u64)| single.fma(wide(fa, a), wide(fb, b), sum);
                let c = wide(accumulator, c);
                let all = if accumulator == F32 {
                    single.add(c, a.iter().zip(b).fold(0, fma))
                } else {
                    // Each pair begins with a product, which can be -0, as if it were added to -0.
                    let two = |(a, b): (&[u64], &[u64])| a.iter().zip(b).fold(F32.sign(), fma);
                    a.chunks(2).zip(b.chunks(2)).map(two).fold(c, |c, sum| single.add(c, sum))
                };
                accumulator.encode(F32.decode(all), Rounding::Nearest, false)
            });
        }
        Arithmetic::Double(rounding) => {
            let style = Style { rounding, ..Style::new(F64) };
            each(k, n, a.bits, b.bits, acc, |a, b, c| {
                a.iter().zip(b).fold(c, |c, (&a, &b)| style.fma(a, b, c))
            });
        }
        Arithmetic::Int { saturate } => each(k, n, &a.integers(), &b.integers(), acc, |a, b, c| {
            let sum = a.iter().zip(b).fold(sext(c, 32), |sum, (&a, &b)| sum + a * b);
            let sum = if saturate { sum.clamp(i32::MIN.into(), i32::MAX.into()) } else { sum };
            sum as u64 & mask(32)
        }),
        Arithmetic::Count { xor } => each(k, n, a.bits, b.bits, acc, |a, b, c| {
            let both = |(&a, &b): (&u64, &u64)| if xor { a ^ b } else { a & b };
            let count = a.iter().zip(b).map(both).map(|v| u64::from(v.count_ones())).sum::<u64>();
            c.wrapping_add(count) & mask(32)
        }),
    }
}

/// Calls `f(row of a, row of b, accumulator)` for each element of the result.
fn each<T>(k: usize, n: usize, a: &[T], b: &[T], acc: &mut [u64], f: impl Fn(&[T], &[T], u64) -> u64) {
    for (a, out) in a.chunks_exact(k).zip(acc.chunks_exact_mut(n)) {
        for (b, c) in b.chunks_exact(k).zip(out) {
            *c = f(a, b, *c);
        }
    }
}

fn multiply_floats(dot: Dot, k: usize, n: usize, a: &Rows<'_>, b: &Rows<'_>, acc: &mut [u64]) {
    let (fa, fb) = (a.format(), b.format());
    let terms = |f: Format, bits: &[u64]| bits.iter().map(|&v| split(f, read(f, v))).collect::<Vec<_>>();
    let special = |f: Format, row: &[u64]| row.iter().any(|&v| !finite(f, read(f, v)));
    let (ta, tb) = (terms(fa, a.bits), terms(fb, b.bits));
    let odd_b: Vec<bool> = b.bits.chunks_exact(k).map(|row| special(fb, row)).collect();
    for (i, (row, out)) in ta.chunks_exact(k).zip(acc.chunks_exact_mut(n)).enumerate() {
        let bits_a = &a.bits[i * k..(i + 1) * k];
        let odd_a = special(fa, bits_a);
        for (j, (column, c)) in tb.chunks_exact(k).zip(out).enumerate() {
            *c = if odd_a || odd_b[j] || !finite(dot.accumulator, *c) {
                // With a NaN or an infinity the result is one of these, in any order of addition.
                let value = |f: Format, v: u64| f.decode(read(f, v));
                let bits_b = &b.bits[j * k..(j + 1) * k];
                let sum = bits_a.iter().zip(bits_b).map(|(&a, &b)| value(fa, a) * value(fb, b)).sum::<f64>();
                dot.accumulator.encode(sum + dot.accumulator.decode(*c), Rounding::Nearest, false)
            } else {
                dot.run((fa, row), (fb, column), *c)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BF16, E4M3, F16};
    use super::*;

    const HALF: Dot = Dot { accumulator: F32, group: 16, fraction: 25 };

    fn one(dot: Dot, f: Format, a: &[f64], b: &[f64], c: f64) -> f64 {
        let bits = |x: &[f64]| x.iter().map(|&x| f.encode(x, Rounding::Nearest, false)).collect::<Vec<_>>();
        let (a, b) = (bits(a), bits(b));
        let mut acc = [dot.accumulator.encode(c, Rounding::Nearest, false)];
        let rows = |bits| Rows { element: Element::Float(f), bits };
        multiply(Arithmetic::Float(dot), a.len(), &rows(&a), &rows(&b), &mut acc);
        dot.accumulator.decode(acc[0])
    }

    #[test]
    fn small_sums_are_exact() {
        for k in [4, 8, 16, 32] {
            let a: Vec<f64> = (0..k).map(|i| f64::from(i) - 3.5).collect();
            let b: Vec<f64> = (0..k).map(|i| f64::from(i * i % 7) - 2.0).collect();
            let want = a.iter().zip(&b).map(|(a, b)| a * b).sum::<f64>() + 0.25;
            assert_eq!(one(HALF, F16, &a, &b, 0.25), want);
            assert_eq!(one(HALF, BF16, &a, &b, 0.25), want);
        }
    }

    #[test]
    fn what_lies_far_below_the_largest_is_cut_off() {
        let tiny = 2_f64.powi(-13);
        // 2^-26 is below 25 fraction bits of 1; sixteen of them would have been 2^-22 together.
        assert_eq!(one(HALF, F16, &[tiny; 16], &[tiny; 16], 1.0), 1.0);
        // 2^-25 is not: the sum of fifteen is, cut to single precision, 3 units of 2^-23.
        let half = 2_f64.powi(-12);
        assert_eq!(one(HALF, F16, &[tiny; 15], &[half; 15], 1.0), 1.0 + 3.0 * 2_f64.powi(-23));
        // With the sign turned, they come off a value just above 1: cut off too, not rounded down.
        assert_eq!(one(HALF, F16, &[tiny; 15], &[-half; 15], 1.0), 1.0 - 8.0 * 2_f64.powi(-24));
        // 8-bit floats of wgmma keep 13 bits.
        let eight = Dot { accumulator: F32, group: 32, fraction: 13 };
        let x = 2_f64.powi(-7);
        assert_eq!(one(eight, E4M3, &[x; 32], &[x; 32], 1.0), 1.0);
        assert_eq!(one(eight, E4M3, &[x; 32], &[x; 32], 0.0), 32.0 * x * x);
    }

    #[test]
    fn half_accumulators_round_to_nearest() {
        let dot = Dot { accumulator: F16, ..HALF };
        let tiny = 2_f64.powi(-12);
        assert_eq!(one(dot, F16, &[tiny], &[3.0], 1.0), 1.0 + 2_f64.powi(-10));
        assert_eq!(one(dot, F16, &[60000.0, 60000.0], &[1.0, 1.0], 0.0), f64::INFINITY);
    }

    #[test]
    fn infinities_and_nans() {
        let inf = f64::INFINITY;
        assert_eq!(one(HALF, F16, &[inf, 1.0], &[2.0, 1.0], 0.0), inf);
        assert!(one(HALF, F16, &[inf, inf], &[1.0, -1.0], 0.0).is_nan());
        assert!(one(HALF, F16, &[inf, 1.0], &[0.0, 1.0], 0.0).is_nan());
        assert_eq!(one(HALF, BF16, &[3e38, 3e38], &[3e38, 1.0], 0.0), inf);
        assert_eq!(one(HALF, F16, &[1.0], &[1.0], -inf), -inf);
    }

    #[test]
    fn integers_wrap_or_clamp() {
        let element = Element::Int { bits: 8, signed: true };
        let (a, b) = ([0x80, 0x7f], [0x80, 0x7f]);
        for (saturate, want) in [(false, 0x8000_7f00), (true, i32::MAX as u64)] {
            let mut acc = [i32::MAX as u64];
            multiply(
                Arithmetic::Int { saturate },
                2,
                &Rows { element, bits: &a },
                &Rows { element, bits: &b },
                &mut acc,
            );
            assert_eq!(acc[0], want);
        }
        let mut acc = [5];
        let row = |bits| Rows { element: Element::Word, bits };
        multiply(Arithmetic::Count { xor: true }, 2, &row(&[0xff, 1]), &row(&[0xf, 0]), &mut acc);
        assert_eq!(acc[0], 10);
    }
}
