//! The products of experts alone, and one product with as many rows.

use super::{Form, Variant};
use crate::BenchError;
use crate::gemm::data::{Data, Values};
use crate::rounds::Call;
use weft::collective::Flat;
use weft::gemm::{self, Shape};
use weft::gpu::{Grid, Kernel, target};
use weft::moe::Problem;
use weft::{Define, KernelFile, Options};
use weft_runtime::{DeviceTensor, Element, World, cublas};

type Result<T> = std::result::Result<T, BenchError>;

fn count(n: u64) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}

/// The number of rows of each of `groups` groups that share out `rows`: equal ones, or such that the largest have about
/// ten times as many as the smallest.
fn shares(rows: u64, groups: u64, even: bool) -> Vec<u64> {
    let weight = |g: u64| if even { 1 } else { 1 + g * 7 % 10 };
    let before =
        |g: u64| (0..g).map(weight).sum::<u64>() * rows / (0..groups).map(weight).sum::<u64>().max(1);
    (0..groups).map(|g| before(g + 1) - before(g)).collect()
}

/// Allocates random elements on the device.
fn filled<T: Element>(world: &World, elements: u64) -> Result<DeviceTensor<T>> {
    let tensor = DeviceTensor::alloc(world.device(), count(elements))?;
    let data = Data::new(world.device(), &gemm::Problem::new(Shape { m: 1, n: 8, k: 8 }, T::DTYPE))?;
    data.fill_one(&tensor, elements, (1, Values::Real), world.stream())?;
    Ok(tensor)
}

/// The kernel `moe_products`, over rows of a PE's experts.
pub(super) fn grouped<'a, T: Element>(
    world: &World,
    problem: &Problem,
    variant: &Variant,
    b: &'a DeviceTensor<T>,
) -> Result<Call<'a>> {
    let Problem { hidden, columns, experts, dtype, out, .. } = *problem;
    let pes = world.n_pes();
    let groups = u64::from(experts / pes);
    let sizes = shares(problem.tokens * u64::from(problem.choices), groups, variant.form == Form::Even);
    let mut spans = Vec::new();
    let mut room: u64 = 0;
    for rows in sizes {
        spans.extend([room, room + rows].map(|n| i32::try_from(n).unwrap_or(i32::MAX)));
        room += rows.next_multiple_of(Problem::ALIGN);
    }
    let mut options = Options::new(target(world.device())?);
    let int = |n: u64| Define::Int(i64::try_from(n).unwrap_or(i64::MAX));
    let plan = variant.plan;
    let numbers = [
        ("P", pes),
        ("EXPERTS", experts),
        ("BN", plan.bn),
        ("BK", plan.bk),
        ("STAGES", plan.stages),
        ("OUTS", variant.outs.unwrap_or(if plan.stages > 3 { 1 } else { 2 })),
    ];
    options.defines.extend(numbers.map(|(name, n)| (name.to_owned(), int(n.into()))));
    options.defines.extend([("T", dtype), ("OUT", out)].map(|(name, t)| (name.to_owned(), Define::from(t))));
    let file =
        KernelFile::parse("weft::moe_products", weft::library::part("moe_products").unwrap_or_default());
    let kernel = Kernel::with(world.device(), file.map_err(weft::gpu::GpuError::from)?, options)?;
    let x: DeviceTensor<T> = filled(world, room * hidden)?;
    let y: DeviceTensor<T> = DeviceTensor::alloc(world.device(), count(room * columns))?;
    let spans = DeviceTensor::from_slice(&spans, world.stream())?;
    let unread = DeviceTensor::<f32>::zeros(1, world.stream())?;
    let extents = [columns, hidden, room].map(|n| i64::try_from(n).unwrap_or(i64::MAX));
    Ok(Box::new(move |s| {
        let [n, h, room] = extents;
        let arguments =
            (n, h, room, &Flat(&x), &Flat(b), &Flat(&unread), &Flat(&unread), &Flat(&spans), &Flat(&y));
        Ok(kernel.launch(s, Grid::Auto, arguments)?)
    }))
}

/// cuBLASLt's product of as many rows with one matrix.
pub(super) fn one<'a, T: Element>(world: &World, problem: &Problem) -> Result<Call<'a>> {
    let Problem { hidden, columns, dtype, out, .. } = *problem;
    let rows = problem.tokens * u64::from(problem.choices);
    let product = cublas::Product { m: rows, n: columns, k: hidden, dtype, out, b_columns: false };
    let matmul = cublas::Matmul::new(world.device(), product)?;
    let none = || BenchError::Request("cuBLASLt named no algorithm".into());
    let algorithm = matmul.algorithms(1)?.into_iter().next().ok_or_else(none)?;
    let x: DeviceTensor<T> = filled(world, rows * hidden)?;
    let first: DeviceTensor<T> = filled(world, columns * hidden)?;
    let y: DeviceTensor<T> = DeviceTensor::alloc(world.device(), count(rows * columns))?;
    Ok(Box::new(move |s| Ok(matmul.launch(&algorithm, (&x, &first, &y), s)?)))
}

#[cfg(test)]
mod tests {
    use super::shares;

    #[test]
    fn shares_are_all_rows() {
        for (rows, groups) in [(8192, 64), (16384, 8), (5, 8)] {
            for even in [false, true] {
                let all = shares(rows, groups, even);
                assert_eq!((all.len() as u64, all.iter().sum::<u64>()), (groups, rows));
            }
        }
        let uneven = shares(8192, 64, false);
        assert!(uneven.iter().max() > uneven.iter().min().map(|n| n * 8).as_ref(), "{uneven:?}");
        assert!(shares(8192, 64, true).iter().all(|n| *n == 128));
    }
}
