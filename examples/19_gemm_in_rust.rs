//! A product of matrices whose kernel is written with the builder: D = A * transpose(B) by a role
//! that loads tiles and one that multiplies them. The same kernel as text is in
//! `19_gemm_in_rust.weft`, and both compile to the same PTX.

#![allow(clippy::expect_used, reason = "the shapes of the tiles are constants that have a layout")]

use half::bf16;
use std::error::Error;
use std::process::ExitCode;
use weft::gpu::{Grid, target};
use weft::ir::builder::{Built, Ctas};
use weft::ir::{
    Accumulator, Builder, Dim, Group, Int, IntTuple, Kernel, Layout, Module, ParamKind, Scalar, Space, Sreg,
    Type, Value,
};
use weft::layout::{Coord, swizzled_panels};
use weft::runtime::{DeviceTensor, World, launch, on_every_pe};
use weft::{Options, compile_module};

/// The rows and columns of a tile of D, the columns of a tile of A and B, and the number of stages.
const BM: u32 = 128;
const BN: u32 = 64;
const BK: u32 = 64;
const STAGES: u32 = 3;

fn main() -> ExitCode {
    on_every_pe(gemm)
}

/// The kernel's values that its roles share.
struct Shared {
    a: Value,
    b: Value,
    d: Value,
    /// The tiles of A and B in shared memory, of modes (rows, columns, stages).
    tiles: [Value; 2],
    /// The tile of D in shared memory.
    out: Value,
    pipe: Value,
    /// The first row and the first column of the CTA's tile of D.
    origin: [Int; 2],
    /// The number of tiles along K.
    steps: Int,
}

pub(crate) fn kernel() -> Built<Kernel> {
    // Two warpgroups: one multiplies, and one warp of the other loads.
    let mut b = Builder::new("gemm", [256, 1, 1]);
    let [m, n, k] = [("m", 1), ("n", 8), ("k", 8)].map(|(name, div)| extent(&mut b, name, div));
    let (m, n, k) = (m?, n?, k?);
    b.kernel_mut().head.grid = Some([m.ceil_div(&BM.into()), n.ceil_div(&BN.into()), 1.into()]);
    let shared = Shared {
        a: matrix(&mut b, "a", [&m, &k])?,
        b: matrix(&mut b, "b", [&n, &k])?,
        d: matrix(&mut b, "d", [&m, &n])?,
        tiles: [tile(&mut b, "sa", &[BM, BK, STAGES])?, tile(&mut b, "sb", &[BN, BK, STAGES])?],
        out: tile(&mut b, "sd", &[BM, BN])?,
        pipe: b.pipeline(STAGES)?,
        origin: [block(&mut b, Dim::X)? * Int::from(BM), block(&mut b, Dim::Y)? * Int::from(BN)],
        steps: k.ceil_div(&BK.into()),
    };
    b.role("multiply", 0..128, 240, |b| shared.multiply(b))?;
    b.role("load", 128..160, 40, |b| shared.load(b))?;
    Ok(b.finish())
}

/// Adds a parameter that is a positive multiple of `div`.
fn extent(b: &mut Builder, name: &str, div: i64) -> Built<Int> {
    let n = b.param_of(name, Type::Scalar(Scalar::I64), ParamKind::User, div)?;
    b.symbol(n)
}

/// Adds a parameter that is a matrix of contiguous rows.
fn matrix(b: &mut Builder, name: &str, [rows, cols]: [&Int; 2]) -> Built<Value> {
    let shape = IntTuple::tuple([rows, cols].map(IntTuple::from));
    let layout = Layout::row_major(shape).expect("two extents are a shape");
    b.param(name, Builder::tensor(Scalar::BF16, Space::Global, layout, 16))
}

/// Allocates tiles in shared memory in the swizzle that copies and products take.
fn tile(b: &mut Builder, name: &str, shape: &[u32]) -> Built<Value> {
    let extents: Vec<i64> = shape.iter().map(|n| i64::from(*n)).collect();
    let panels = swizzled_panels(&extents, 1, Scalar::BF16.bytes()).expect("the extents are positive");
    let (swizzle, layout) = panels.expect("rows of 128 bytes have a swizzle");
    let tile = b.shared(Scalar::BF16, layout, Some(swizzle))?;
    b.name_shared(tile, name);
    Ok(tile)
}

fn block(b: &mut Builder, dim: Dim) -> Built<Int> {
    let index = b.special(Sreg::BlockIdx, dim)?;
    b.symbol(index)
}

impl Shared {
    /// The tiles of A and B in a stage.
    fn stage(&self, b: &mut Builder, stage: Value) -> Built<[Value; 2]> {
        let at = Coord::Tuple(vec![Coord::All, Coord::All, b.symbol(stage)?.into()]);
        Ok([b.part(self.tiles[0], &at)?, b.part(self.tiles[1], &at)?])
    }

    /// Fills a stage with the tiles of each step along K.
    fn load(&self, b: &mut Builder) -> Built<()> {
        let [row, col] = &self.origin;
        b.for_each(0.into()..self.steps.clone(), 1.into(), 1, |b, j| {
            let stage = b.producer_acquire(self.pipe)?;
            let [to_a, to_b] = self.stage(b, stage)?;
            let k = j * Int::from(BK);
            let from_a = b.tile(self.a, &[(row.clone(), BM), (k.clone(), BK)])?;
            b.tma_load(to_a, &from_a, self.pipe, Ctas::OWN)?;
            let from_b = b.tile(self.b, &[(col.clone(), BN), (k, BK)])?;
            b.tma_load(to_b, &from_b, self.pipe, Ctas::OWN).map(drop)
        })?;
        Ok(())
    }

    /// Adds up the products of the stages, and copies the sums to D through shared memory.
    fn multiply(&self, b: &mut Builder) -> Built<()> {
        let sums = Accumulator { elem: Scalar::F32, rows: BM, cols: BN, over: [1, 1] };
        let zeros = b.accumulator(sums)?;
        let acc = b.local("acc", Type::Accumulator(sums));
        b.set(acc, zeros)?;
        b.for_each(0.into()..self.steps.clone(), 1.into(), 1, |b, _| {
            let stage = b.consumer_wait(self.pipe)?;
            let [tile_a, tile_b] = self.stage(b, stage)?;
            let old = b.get(acc)?;
            let new = b.mma(tile_a, tile_b, old)?;
            let new = b.mma_wait(new, 0)?;
            b.set(acc, new)?;
            b.consumer_release(self.pipe).map(drop)
        })?;
        let done = b.get(acc)?;
        let own = b.accumulator_read(done, 0, BN)?;
        let own = b.convert(own, Scalar::BF16)?;
        let part = b.accumulator_part(self.out, sums.over)?;
        b.store(part, own)?;
        b.sync(Group::Block)?;
        let [row, col] = self.origin.clone();
        let to = b.tile(self.d, &[(row, BM), (col, BN)])?;
        b.tma_store(&to, self.out)?;
        b.tma_wait(0).map(drop)
    }
}

/// Multiplies matrices whose extents no tile divides, and compares with sums on the host.
pub(crate) fn gemm(world: &World) -> Result<(), Box<dyn Error>> {
    let (m, n, k) = (200, 136, 264);
    let (device, stream) = (world.device(), world.stream());
    let module = Module { kernels: vec![kernel().map_err(|d| d.message)?], ..Module::default() };
    let compiled = compile_module(module, &Options::new(target(device)?))?;
    let info = compiled.describe().map_err(|d| d.message)?;
    let kernel = launch::Module::load(device, compiled.ptx.as_bytes(), info)?.kernel("gemm")?;

    let fill = |len, seed| (0..len).map(move |i| value(i * 7 + i / 11 + seed)).collect::<Vec<_>>();
    let (x, y) = (fill(m * k, 3 * world.my_pe() as usize), fill(n * k, 5));
    let a = DeviceTensor::<bf16>::zeros([m, k], stream)?;
    let b = DeviceTensor::<bf16>::zeros([n, k], stream)?;
    let d = DeviceTensor::<bf16>::zeros([m, n], stream)?;
    a.copy_from(&x, stream)?;
    b.copy_from(&y, stream)?;
    kernel.launch(stream, Grid::kernel(), (m as i64, n as i64, k as i64, &a, &b, &d))?;

    for (at, found) in d.to_vec(stream)?.into_iter().enumerate() {
        let (row, col) = (&x[at / n * k..][..k], &y[at % n * k..][..k]);
        // The sums are exact in f32, because the factors are small multiples of 1/8.
        let sum: f32 = row.iter().zip(col).map(|(a, b)| a.to_f32() * b.to_f32()).sum();
        if found != bf16::from_f32(sum) {
            return Err(format!("row {}, column {}: found {found}, expected {sum}", at / n, at % n).into());
        }
    }
    println!("PE {}: {m} x {n} products of {k} numbers are right", world.my_pe());
    Ok(())
}

/// A multiple of 1/8 from -1 to 1.
fn value(i: usize) -> bf16 {
    bf16::from_f32((i % 17) as f32 / 8.0 - 1.0)
}
