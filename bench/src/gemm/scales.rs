//! Scales of operands: their names, their values, and their memory on a device.

use super::data::mixed;
use super::measure::Result;
use weft::gemm::{Problem, Scales, Shape};
use weft_runtime::cuda::AnyDeviceTensor;
use weft_runtime::{DType, Device, IntoLayout, Stream, cublas};

/// The scales that can be measured, with their names, their numbers in kernels, and what they are for
/// cuBLASLt.
const ALL: [(Scales, &str, i64, cublas::Scales); 4] = [
    (Scales::None, "none", 0, cublas::Scales::None),
    (Scales::Matrices, "matrices", 1, cublas::Scales::Matrices),
    (Scales::Rows, "rows", 2, cublas::Scales::Rows),
    (Scales::Blocks, "blocks", 3, cublas::Scales::Blocks),
];

/// The number of elements along a side of a block that have one scale.
pub(super) const BLOCK: u64 = 128;

/// The scales that a word names.
///
/// # Errors
///
/// Fails for other words than `none`, `matrices`, `rows` and `blocks`.
pub fn scales(word: &str) -> std::result::Result<Scales, String> {
    let found = ALL.iter().find(|(_, name, ..)| *name == word);
    found.map(|(scales, ..)| *scales).ok_or_else(|| {
        let names = ALL.map(|(_, name, ..)| name);
        format!("`{word}` names no scales: expected {}", names.join(", "))
    })
}

/// The name of scales, their number in kernels, and what they are for cuBLASLt.
fn facts(scales: Scales) -> (&'static str, i64, cublas::Scales) {
    let found = ALL.iter().find(|(other, ..)| *other == scales);
    found.map_or(("unknown", 0, cublas::Scales::None), |(_, name, number, same)| (name, *number, *same))
}

pub(super) fn name(scales: Scales) -> &'static str {
    facts(scales).0
}

/// The number that kernels have as SCALES.
pub(super) fn number(scales: Scales) -> i64 {
    facts(scales).1
}

pub(super) fn of_cublas(scales: Scales) -> cublas::Scales {
    facts(scales).2
}

/// Scale `i` of an operand: a power of two from 1/4 to 4, so that multiplications are exact.
fn scale(i: u64, seed: u32) -> f32 {
    2f32.powi((mixed(mixed(i as u32) ^ !seed) >> 8) as i32 % 5 - 2)
}

/// The product of both scales of summand `l` of element (i, j), in a product with `k` of them.
pub(super) fn factor(scales: Scales, k: u64, seeds: [u32; 2], (i, j, l): (u64, u64, u64)) -> f64 {
    let along = k.div_ceil(BLOCK);
    let (a, b) = match scales {
        Scales::None => return 1.0,
        Scales::Matrices => (0, 0),
        Scales::Rows => (i, j),
        _ => (i * along + l / BLOCK, j / BLOCK * along + l / BLOCK),
    };
    f64::from(scale(a, seeds[0]) * scale(b, seeds[1]))
}

/// The scales of A and B in device memory.
pub struct Scaling {
    /// One after the other, with those along K adjacent, as kernels of warpweft read them.
    pub own: [AnyDeviceTensor; 2],
    /// The same scales where cuBLASLt reads them.
    cublas: [AnyDeviceTensor; 2],
    /// The first scale of A and the first one of B.
    first: [AnyDeviceTensor; 2],
}

impl Scaling {
    /// The scales of operands with these seeds, or none if they have none.
    pub(super) fn new(
        (device, stream): (&Device, &Stream),
        problem: &Problem,
        scales: Scales,
        seeds: [u32; 2],
    ) -> Result<Option<Scaling>> {
        if scales == Scales::None {
            return Ok(None);
        }
        let Shape { m, n, k } = problem.shape;
        let all = |count: u64, seed: u32| -> Vec<f32> { (0..count).map(|i| scale(i, seed)).collect() };
        let both = |[a, b]: [Vec<f32>; 2]| -> Result<[AnyDeviceTensor; 2]> {
            Ok([tensor(device, stream, &a)?, tensor(device, stream, &b)?])
        };
        let own = [all(scales.of_a(m, k), seeds[0]), all(scales.of_b(n, k), seeds[1])];
        let moved = match scales {
            Scales::Blocks => arranged(problem.shape, seeds),
            _ => own.clone(),
        };
        let first = seeds.map(|seed| all(1, seed));
        Ok(Some(Scaling { own: both(own)?, cublas: both(moved)?, first: both(first)? }))
    }

    /// What cuBLASLt reads: all scales, or the first of each matrix only.
    pub(super) fn of_cublas(&self, all: bool) -> (&AnyDeviceTensor, &AnyDeviceTensor) {
        let [a, b] = if all { &self.cublas } else { &self.first };
        (a, b)
    }
}

/// Scales of blocks with the layouts of [`cublas::Scales::Blocks`].
fn arranged(Shape { m, n, k }: Shape, seeds: [u32; 2]) -> [Vec<f32>; 2] {
    let along = k.div_ceil(BLOCK);
    let pitch = along.next_multiple_of(4);
    let a = (0..m * along).map(|x| scale(x % m * along + x / m, seeds[0]));
    let b = (0..n.div_ceil(BLOCK) * pitch).map(|x| match x % pitch {
        t if t < along => scale(x / pitch * along + t, seeds[1]),
        _ => 0.0,
    });
    [a.collect(), b.collect()]
}

fn tensor(device: &Device, stream: &Stream, numbers: &[f32]) -> Result<AnyDeviceTensor> {
    let tensor = AnyDeviceTensor::alloc(device, DType::F32, numbers.len().into_layout()?)?;
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    tensor.write(0, &bytes, stream)?;
    Ok(tensor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_have_names() {
        for (each, name, ..) in ALL {
            assert_eq!((scales(name), super::name(each)), (Ok(each), name));
        }
        let why = scales("tensor").unwrap_err();
        assert_eq!(why, "`tensor` names no scales: expected none, matrices, rows, blocks");
    }

    /// Each summand has the scales of its place, and cuBLASLt's memory has the same ones elsewhere.
    #[test]
    fn each_summand_has_its_scales() {
        let (shape, seeds) = (Shape::new(12, 272, 656), [3, 4]);
        let (along, pitch) = (6, 8);
        let [a, b] = arranged(shape, seeds);
        let counts =
            cublas::Product { m: 12, n: 272, k: 656, dtype: DType::E4M3, out: DType::BF16, b_columns: false };
        assert_eq!([a.len() as u64, b.len() as u64], cublas::Scales::Blocks.counts(&counts));
        for (i, j, l) in [(0, 0, 0), (11, 271, 655), (5, 127, 128), (7, 128, 511)] {
            let of = |scales| factor(scales, shape.k, seeds, (i, j, l));
            assert_eq!(of(Scales::None), 1.0);
            assert_eq!(of(Scales::Matrices), f64::from(scale(0, 3) * scale(0, 4)));
            assert_eq!(of(Scales::Rows), f64::from(scale(i, 3) * scale(j, 4)));
            let t = l / 128;
            assert_eq!(
                of(Scales::Blocks),
                f64::from(scale(i * along + t, 3) * scale(j / 128 * along + t, 4))
            );
            let there = a[(t * shape.m + i) as usize] * b[(j / 128 * pitch + t) as usize];
            assert_eq!(of(Scales::Blocks), f64::from(there));
        }
        let some: Vec<_> = (0..100).map(|i| scale(i, 3)).collect();
        for power in [0.25, 0.5, 1.0, 2.0, 4.0] {
            assert!(some.contains(&power), "{some:?}");
        }
        assert!(some.iter().all(|x| (0.25..=4.0).contains(x)));
    }
}
