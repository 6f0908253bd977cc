//! Data that depends on PE, element and round. The numbers are whole and so small that every sum of
//! them is exact.

use half::{bf16, f16};
use std::ops::Range;
use weft_runtime::{DType, Element};

/// A number type that a benchmark computes with.
pub trait Number: Element {
    /// The largest number up to which the type represents every whole number.
    const EXACT: u64;

    /// Converts a whole number to the type.
    fn of(n: i64) -> Self;

    /// The number as a float.
    fn as_f64(self) -> f64;
}

macro_rules! numbers {
    ($($ty:ty, $exact:expr, |$n:ident| $value:expr, $float:expr;)*) => {
        $(impl Number for $ty {
            const EXACT: u64 = $exact;

            fn of($n: i64) -> $ty { $value }

            fn as_f64(self) -> f64 { ($float as fn($ty) -> f64)(self) }
        })*
    };
}

numbers! {
    i8, 127, |n| n as i8, f64::from;
    i16, 32767, |n| n as i16, f64::from;
    i32, (1 << 31) - 1, |n| n as i32, f64::from;
    i64, 1 << 62, |n| n, |x| x as f64;
    u8, 255, |n| n as u8, f64::from;
    u16, 65535, |n| n as u16, f64::from;
    u32, 1 << 31, |n| n as u32, f64::from;
    u64, 1 << 62, |n| n as u64, |x| x as f64;
    f16, 1 << 11, |n| f16::from_f32(n as f32), f64::from;
    bf16, 1 << 8, |n| bf16::from_f32(n as f32), f64::from;
    f32, 1 << 24, |n| n as f32, f64::from;
    f64, 1 << 53, |n| n as f64, f64::from;
    float8::F8E4M3, 1 << 4, |n| float8::F8E4M3::from_f32(n as f32), |x| x.to_f64();
    float8::F8E5M2, 1 << 3, |n| float8::F8E5M2::from_f32(n as f32), |x| x.to_f64();
}

/// Calls a generic function for the Rust type of a `DType`. For `bool`, which is not a number, the
/// result is the second argument.
macro_rules! with_number {
    ($dtype:expr, $bool:expr, $f:ident $args:tt) => {
        match $dtype {
            weft_runtime::DType::Bool => $bool,
            weft_runtime::DType::I8 => $f::<i8> $args,
            weft_runtime::DType::I16 => $f::<i16> $args,
            weft_runtime::DType::I32 => $f::<i32> $args,
            weft_runtime::DType::I64 => $f::<i64> $args,
            weft_runtime::DType::U8 => $f::<u8> $args,
            weft_runtime::DType::U16 => $f::<u16> $args,
            weft_runtime::DType::U32 => $f::<u32> $args,
            weft_runtime::DType::U64 => $f::<u64> $args,
            weft_runtime::DType::F16 => $f::<half::f16> $args,
            weft_runtime::DType::BF16 => $f::<half::bf16> $args,
            weft_runtime::DType::F32 => $f::<f32> $args,
            weft_runtime::DType::F64 => $f::<f64> $args,
            weft_runtime::DType::E4M3 => $f::<float8::F8E4M3> $args,
            weft_runtime::DType::E5M2 => $f::<float8::F8E5M2> $args,
        }
    };
}
pub(super) use with_number;

/// The greatest number in the data if so many numbers are added; 0 if no sum of them would be
/// exact.
pub fn limit(dtype: DType, summands: u32) -> u64 {
    fn exact<T: Number>() -> u64 {
        T::EXACT
    }
    with_number!(dtype, 0, exact()).min(1 << 15) / u64::from(summands.max(1))
}

/// Element `i` of PE `pe` in a round, from 0 to `limit`.
pub fn datum(pe: u32, i: u64, round: u32, limit: u64) -> i64 {
    // SplitMix64's finalizer (Steele, Lea, Flood, 2014): each bit depends on all.
    let mut x = i ^ (u64::from(pe) << 40) ^ (u64::from(round) << 52);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) % (limit + 1)) as i64
}

/// Splits the elements into consecutive ranges, calls `work` for each on this PE's share of the
/// host's cores, and returns the results in order.
pub fn in_parts<R: Send>(n_pes: u32, elements: u64, work: impl Fn(Range<u64>) -> R + Sync) -> Vec<R> {
    /// Fewer elements do not repay the cost of a thread.
    const MIN_ELEMENTS: u64 = 1 << 16;
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let threads = (cores / u64::from(n_pes.max(1))).min(elements / MIN_ELEMENTS).max(1);
    let part = elements.div_ceil(threads).max(1);
    let ranges: Vec<_> =
        (0..threads).map(|t| (t * part).min(elements)..((t + 1) * part).min(elements)).collect();
    if threads == 1 {
        return ranges.into_iter().map(work).collect();
    }
    std::thread::scope(|scope| {
        let started: Vec<_> = ranges.into_iter().map(|range| scope.spawn(|| work(range))).collect();
        let joined = started.into_iter().map(|t| t.join().unwrap_or_else(|e| std::panic::resume_unwind(e)));
        joined.collect()
    })
}

/// Calls `work` for each item on the host's cores, and returns the results in order.
pub fn in_each<I: Sync, R: Send>(items: &[I], work: impl Fn(&I) -> R + Sync) -> Vec<R> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let part = items.len().div_ceil(cores).max(1);
    let done = std::thread::scope(|scope| {
        let work = &work;
        let started: Vec<_> = items
            .chunks(part)
            .map(|items| scope.spawn(move || items.iter().map(work).collect::<Vec<R>>()))
            .collect();
        let joined = started.into_iter().map(|t| t.join().unwrap_or_else(|e| std::panic::resume_unwind(e)));
        joined.collect::<Vec<_>>()
    });
    done.into_iter().flatten().collect()
}

/// Makes elements on every PE, each from its index.
pub fn made<T: Number>(n_pes: u32, elements: u64, of: impl Fn(u64) -> T + Sync) -> Vec<T> {
    in_parts(n_pes, elements, |range| range.map(&of).collect::<Vec<T>>()).concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact_in_every_type() {
        fn check_limit<T: Number>(summands: i64, limit: i64) {
            let sum = T::of(summands * limit);
            // The next whole number has another value, or the type has no next one.
            assert_ne!(sum, T::of(summands * limit - 1), "{:?}", T::DTYPE);
            assert!(u64::try_from(summands * limit).unwrap() <= T::EXACT);
        }
        for dtype in DType::ALL.iter().filter(|d| **d != DType::Bool) {
            for summands in [1, 2, 8] {
                let limit = limit(*dtype, summands) as i64;
                assert!(limit > 0, "{dtype}, {summands}");
                with_number!(*dtype, (), check_limit(summands.into(), limit));
            }
        }
        assert_eq!(limit(DType::E5M2, 9), 0);
        assert_eq!(limit(DType::BF16, 8), 32);
    }

    #[test]
    fn parts_are_all_in_order() {
        for n in [0, 1, 65_536, 300_001] {
            let of = |i: u64| (i % 251) as u8;
            assert_eq!(made::<u8>(1, n, of), (0..n).map(of).collect::<Vec<_>>());
        }
    }

    #[test]
    fn data_differ_by_pe_element_and_round() {
        let of = |pe, round| (0..64).map(|i| datum(pe, i, round, 1000)).collect::<Vec<_>>();
        assert_ne!(of(0, 0), of(1, 0));
        assert_ne!(of(0, 0), of(0, 1));
        assert_ne!(of(0, 1)[0..32], of(0, 1)[32..]);
        let all: Vec<_> = (0..10_000).map(|i| datum(1, i, 2, 5)).collect();
        assert_eq!((all.iter().min(), all.iter().max()), (Some(&0), Some(&5)));
    }
}
