//! Operands of products. They are made on the device by a formula that the host can evaluate for
//! each element, so that single elements of the product can be computed in float64.

use super::super::BenchError;
use super::super::data::in_each;
use super::scales::{Scaling, factor};
use weft::collective::Flat;
use weft::gemm::{Major, Problem, Scales, Shape};
use weft::gpu::{GpuError, Grid, Kernel, target};
use weft::{KernelFile, Options};
use weft_ir::Scalar;
use weft_lang::evaluate::unit_roundoff;
use weft_layout::Layout;
use weft_run::array::{Number, read_number, write_number};
use weft_runtime::cuda::AnyDeviceTensor;
use weft_runtime::launch::AsArgument;
use weft_runtime::{DType, Device, DeviceTensor, IntoLayout, Stream};

type Result<T> = std::result::Result<T, BenchError>;

/// The text of the kernels that fill and compare tensors.
const TEXT: &str = include_str!("gemm.weft");

/// The numbers that operands are filled with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Values {
    /// -1, 0 and 1, of which three in four are 0, so that every sum is exact in every result type
    /// and in any order of additions.
    Whole,
    /// Random numbers in [-1, 1).
    Real,
}

/// Makes and compares tensors on a device.
pub struct Data {
    fill: Kernel,
    differ: Kernel,
}

/// A, B and D in device memory, and the scales of A and B if they have any.
pub struct Operands {
    pub a: AnyDeviceTensor,
    pub b: AnyDeviceTensor,
    pub d: AnyDeviceTensor,
    pub scaling: Option<Scaling>,
    seeds: [u32; 2],
}

impl Data {
    /// Compiles the kernels for operands and results of a problem's types.
    pub fn new(device: &Device, problem: &Problem) -> Result<Data> {
        let file = KernelFile::parse("bench-gemm.weft", TEXT).map_err(GpuError::from)?;
        let file = std::sync::Arc::new(file);
        let compile = |name: &str, dtype: DType| -> Result<Kernel> {
            let mut options = Options::new(target(device)?);
            options.kernel = Some(name.into());
            options.defines.insert("T".into(), dtype.into());
            Ok(Kernel::with(device, file.clone(), options)?)
        };
        Ok(Data { fill: compile("fill", problem.dtype)?, differ: compile("differ", problem.out)? })
    }

    /// The operands of a problem; each set has its own seed. Scales are filled at once.
    pub fn operands(
        &self,
        (device, stream): (&Device, &Stream),
        problem: &Problem,
        scales: Scales,
        set: u32,
    ) -> Result<Operands> {
        let Problem { shape: Shape { m, n, k }, dtype, b, .. } = *problem;
        let b = match b {
            Major::Row => matrix(n, k)?,
            Major::Column => format!("({n},{k}):(1,{n})").as_str().into_layout()?,
        };
        let seeds = [2 * set + 1, 2 * set + 2];
        Ok(Operands {
            a: AnyDeviceTensor::alloc(device, dtype, matrix(m, k)?)?,
            b: AnyDeviceTensor::alloc(device, dtype, b)?,
            d: self.result(device, problem)?,
            scaling: Scaling::new((device, stream), problem, scales, seeds)?,
            seeds,
        })
    }

    /// Memory for a result of a problem.
    pub fn result(&self, device: &Device, problem: &Problem) -> Result<AnyDeviceTensor> {
        let Problem { shape: Shape { m, n, .. }, out, .. } = *problem;
        Ok(AnyDeviceTensor::alloc(device, out, matrix(m, n)?)?)
    }

    /// Fills a tensor of `elements` elements of the operands' type.
    pub fn fill_one(
        &self,
        t: &dyn AsArgument,
        elements: u64,
        (seed, values): (u32, Values),
        stream: &Stream,
    ) -> Result<()> {
        let n = i64::try_from(elements).unwrap_or(i64::MAX);
        let arguments = (n, seed, values == Values::Whole, &Flat(t));
        Ok(self.fill.launch(stream, Grid::of(1024), arguments)?)
    }

    /// Fills A and B.
    pub fn fill(&self, operands: &Operands, values: Values, stream: &Stream) -> Result<()> {
        for (t, seed) in [(&operands.a, operands.seeds[0]), (&operands.b, operands.seeds[1])] {
            let n = elements(t);
            self.fill.launch(stream, Grid::of(1024), (n, seed, values == Values::Whole, &Flat(t)))?;
        }
        Ok(())
    }

    /// The number of elements in which two results differ, and the least index of one.
    pub fn differing(&self, x: &AnyDeviceTensor, y: &AnyDeviceTensor, stream: &Stream) -> Result<(u64, u64)> {
        let count = DeviceTensor::from_slice(&[0, u64::MAX], stream)?;
        self.differ.launch(stream, Grid::of(1024), (elements(x), &Flat(x), &Flat(y), &count))?;
        let count = count.to_vec(stream)?;
        Ok((count.first().copied().unwrap_or(0), count.get(1).copied().unwrap_or(0)))
    }
}

impl Operands {
    /// The bytes of all three tensors.
    pub fn bytes(problem: &Problem) -> u64 {
        let Problem { shape: Shape { m, n, k }, dtype, out, .. } = problem;
        (m * k + n * k) * u64::from(dtype.bytes()) + m * n * u64::from(out.bytes())
    }
}

/// An element of a result that is not what it should be.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Wrong {
    /// The row of the element.
    pub row: u64,
    /// The column of the element.
    pub column: u64,
    /// The value that was found there.
    pub found: f64,
    /// What it should be.
    pub expected: f64,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Wrong { row, column, found, expected } = self;
        write!(f, "element ({row}, {column}) is {found}, expected {expected}")
    }
}

/// A matrix whose rows are contiguous.
fn matrix(rows: u64, columns: u64) -> Result<Layout> {
    let extent = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    Ok([extent(rows), extent(columns)].into_layout()?)
}

fn elements(t: &AnyDeviceTensor) -> i64 {
    i64::try_from(t.bytes()).unwrap_or(i64::MAX) / i64::from(t.dtype().bytes())
}

/// The same function as `mixed` in the kernels' text.
pub(super) fn mixed(i: u32) -> u32 {
    let mut h = i;
    h ^= h >> 16;
    h = h.wrapping_mul(0x7feb_352d);
    h ^= h >> 15;
    h = h.wrapping_mul(0x846c_a68b);
    h ^ h >> 16
}

/// Element `i` of an operand, as `fill` makes it.
pub(crate) fn value(i: u64, seed: u32, values: Values) -> f64 {
    let h = mixed(mixed(i as u32) ^ seed) >> 8;
    match (values, h % 8) {
        (Values::Real, _) => f64::from(h) / 8_388_608.0 - 1.0,
        (Values::Whole, 0) => -1.0,
        (Values::Whole, 1) => 1.0,
        (Values::Whole, _) => 0.0,
    }
}

/// A number rounded to an element type.
pub(crate) fn rounded(dtype: Scalar, x: f64) -> f64 {
    let mut bytes = Vec::new();
    write_number(dtype, Number::Float(x), &mut bytes);
    read_number(dtype, &bytes).as_f64()
}

/// Element (i, j) of the product in float64, and the sum of the magnitudes of its summands.
fn product(
    problem: &Problem,
    scales: Scales,
    seeds: [u32; 2],
    values: Values,
    (i, j): (u64, u64),
) -> (f64, f64) {
    let Problem { shape: Shape { n, k, .. }, dtype, b, .. } = *problem;
    (0..k).fold((0.0, 0.0), |(sum, magnitudes), l| {
        let at = match b {
            Major::Row => j * k + l,
            Major::Column => l * n + j,
        };
        let x = rounded(dtype, value(i * k + l, seeds[0], values));
        let y = rounded(dtype, value(at, seeds[1], values));
        let summand = x * y * factor(scales, k, seeds, (i, j, l));
        (sum + summand, magnitudes + summand.abs())
    })
}

/// The positions of a result that are checked: the corners, the edges of tiles that are cut off,
/// and random ones.
pub(crate) fn samples(shape: Shape, seed: u32) -> Vec<(u64, u64)> {
    /// The number of random positions.
    const RANDOM: u32 = 48;
    let Shape { m, n, .. } = shape;
    let mut all = vec![(0, 0), (m - 1, n - 1), (0, n - 1), (m - 1, 0), (m / 2, n - 1), (m - 1, n / 2)];
    let random = |i: u32, extent: u64| u64::from(mixed(i ^ seed)) % extent;
    all.extend((0..RANDOM).map(|i| (random(2 * i, m), random(2 * i + 1, n))));
    all
}

/// Samples of a product in float64: their positions and, for each, the sum and the sum of the
/// magnitudes of its summands.
pub struct Expected {
    values: Values,
    samples: Vec<((u64, u64), (f64, f64))>,
}

impl Expected {
    /// The results for operands that were filled with `values`, times these scales.
    pub fn of(problem: &Problem, scales: Scales, operands: &Operands, values: Values) -> Expected {
        let places = samples(problem.shape, operands.seeds[0]);
        let sums = in_each(&places, |place| product(problem, scales, operands.seeds, values, *place));
        Expected { values, samples: places.into_iter().zip(sums).collect() }
    }

    /// Compares samples of D. Returns the number of wrong samples, the number of all samples, and
    /// the first wrong one.
    ///
    /// A sum may differ by one unit roundoff of the accumulator's type for each addition, relative
    /// to the sum of magnitudes, and is rounded once to its type. Matrix instructions multiply f32
    /// as tf32, and accumulate fp8 with at least 13 bits (Hopper).
    ///
    /// # Errors
    ///
    /// Fails if the CUDA driver rejects a copy (R0103).
    pub fn check(
        &self,
        problem: &Problem,
        d: &AnyDeviceTensor,
        stream: &Stream,
    ) -> Result<(u64, u64, Option<Wrong>)> {
        let Problem { shape, dtype, out, .. } = *problem;
        let unit = match dtype {
            _ if self.values == Values::Whole => 0.0,
            DType::F32 => shape.k as f64 * 2.0 * unit_roundoff(DType::F32) + 2f64.powi(-9),
            dtype if dtype.bytes() == 1 => shape.k as f64 * 2f64.powi(-13),
            _ => shape.k as f64 * 2.0 * unit_roundoff(DType::F32),
        };
        let bytes = out.bytes() as usize;
        let (mut wrong, mut first) = (0, None);
        for ((row, column), (sum, scale)) in self.samples.iter().copied() {
            let at = usize::try_from(row * shape.n + column).unwrap_or(usize::MAX).saturating_mul(bytes);
            let found = read_number(out, &d.read(at, bytes, stream)?).as_f64();
            let expected = rounded(out, sum);
            let bound = unit * scale * (1.0 + unit_roundoff(out)) + 2.0 * unit_roundoff(out) * sum.abs();
            let near = self.values == Values::Real && (found - sum).abs() <= bound;
            if found != expected && !near {
                wrong += 1;
                first.get_or_insert(Wrong { row, column, found, expected });
            }
        }
        Ok((wrong, self.samples.len() as u64, first))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_runtime::World;

    /// The host computes the same elements as the device, and a check finds the wrong elements and
    /// no others.
    #[test]
    fn data_and_checks_agree_with_the_device() {
        let all = World::simulated(1).unwrap().run(|world| {
            let stream = world.stream();
            for (dtype, b, scales) in [
                (DType::BF16, Major::Column, Scales::None),
                (DType::E4M3, Major::Row, Scales::Rows),
                (DType::F32, Major::Row, Scales::None),
            ] {
                let problem = Problem { b, ..Problem::new(Shape::new(9, 16, 32), dtype) };
                let data = Data::new(world.device(), &problem)?;
                let set = data.operands((world.device(), stream), &problem, scales, 1)?;
                for values in [Values::Whole, Values::Real] {
                    data.fill(&set, values, stream)?;
                    check_operands(&set, values, stream)?;
                    check_results(&problem, scales, &data, &set, values, stream)?;
                }
            }
            Ok::<_, BenchError>(())
        });
        all.unwrap();
    }

    fn numbers(t: &AnyDeviceTensor, stream: &Stream) -> Result<Vec<f64>> {
        let bytes = t.read(0, t.bytes(), stream)?;
        let each = bytes.chunks(t.dtype().bytes() as usize);
        Ok(each.map(|x| read_number(t.dtype(), x).as_f64()).collect())
    }

    fn check_operands(set: &Operands, values: Values, stream: &Stream) -> Result<()> {
        for (t, seed) in [(&set.a, set.seeds[0]), (&set.b, set.seeds[1])] {
            let made = numbers(t, stream)?;
            let known: Vec<_> =
                (0..made.len() as u64).map(|i| rounded(t.dtype(), value(i, seed, values))).collect();
            assert_eq!(made, known, "{values:?} of {}", t.dtype());
            assert!(made.iter().any(|x| *x > 0.0) && made.iter().any(|x| *x < 0.0));
        }
        Ok(())
    }

    fn check_results(
        problem: &Problem,
        scales: Scales,
        data: &Data,
        set: &Operands,
        values: Values,
        stream: &Stream,
    ) -> Result<()> {
        let Shape { m, n, .. } = problem.shape;
        // Nothing was written, so no sample is right.
        set.d.fill(0xff, stream)?;
        let expected = Expected::of(problem, scales, set, values);
        let (wrong, of, first) = expected.check(problem, &set.d, stream)?;
        assert!(wrong == of && of > 50 && first.is_some_and(|w| w.found.is_nan()));
        // The host's own product passes; with one corner changed, only that corner is reported.
        let mut bytes = Vec::new();
        for i in 0..m {
            for j in 0..n {
                let (sum, _) = product(problem, scales, set.seeds, values, (i, j));
                write_number(problem.out, Number::Float(sum), &mut bytes);
            }
        }
        set.d.write(0, &bytes, stream)?;
        assert_eq!(expected.check(problem, &set.d, stream)?.0, 0);
        let other = data.result(&stream.device(), problem)?;
        set.d.copy_to(&other, stream)?;
        assert_eq!(data.differing(&set.d, &other, stream)?.0, 0);
        let size = problem.out.bytes() as usize;
        let mut corner = Vec::new();
        write_number(problem.out, Number::Float(1000.0), &mut corner);
        set.d.write(bytes.len() - size, &corner, stream)?;
        let (wrong, _, first) = expected.check(problem, &set.d, stream)?;
        let first = first.map(|w| (w.row, w.column));
        assert!(wrong >= 1 && first == Some((m - 1, n - 1)), "{wrong} {first:?}");
        assert_eq!(data.differing(&set.d, &other, stream)?, (1, m * n - 1));
        Ok(())
    }

    #[test]
    fn samples_lie_within() {
        for shape in [Shape::new(1, 1, 8), Shape::new(3, 8, 8), Shape::new(4001, 8184, 8)] {
            let all = samples(shape, 7);
            assert!(all.iter().all(|(i, j)| *i < shape.m && *j < shape.n), "{shape}");
            assert!(all.contains(&(0, 0)) && all.contains(&(shape.m - 1, shape.n - 1)));
        }
    }
}
