//! The MLP of a transformer over all PEs, in two launches: all-gather and GEMM with SwiGLU, then
//! GEMM and reduce-scatter. The rows of the activations are distributed over the PEs, and so are the
//! columns between both products. Each PE compares its rows with a reference in float64.

use half::bf16;
use std::error::Error;
use std::process::ExitCode;
use weft::gemm::{Form, Fused, FusedPlan, Problem, Shape};
use weft::gpu::{Grid, Kernel};
use weft::runtime::{DType, DeviceTensor, SymmetricTensor, World, on_every_pe};

/// The rows of all PEs, the columns of the activations, and the columns between both products, of
/// all PEs.
const TOKENS: usize = 198;
const HIDDEN: usize = 128;
const BETWEEN: usize = 768;
/// The rows and columns of a tile of the first product, and the columns that are sent at once.
const TILE: (usize, usize) = (128, 128);
const PIECE: usize = 64;

fn main() -> ExitCode {
    on_every_pe(mlp)
}

/// Element (row, column) of a matrix with `columns` columns: a number of a few bits that depends on
/// the position.
fn element(matrix: usize, row: usize, column: usize, columns: usize) -> f32 {
    let at = row * columns + column;
    let bits = (at.wrapping_mul(2_654_435_761) ^ matrix.wrapping_mul(40_503)) >> 7;
    (bits % 17) as f32 / 32.0 - 0.25
}

/// The matrices: the activations, the gate weights, the weights of the gated values, and those of
/// the second product.
const X: usize = 0;
const GATE: usize = 1;
const UP: usize = 2;
const DOWN: usize = 3;

pub(crate) fn mlp(world: &World) -> Result<(), Box<dyn Error>> {
    let (me, n_pes, stream, team) =
        (world.my_pe() as usize, world.n_pes() as usize, world.stream(), world.team());
    let (rows, columns) = (TOKENS.div_ceil(n_pes), BETWEEN / n_pes);
    if columns * n_pes != BETWEEN || columns % 8 != 0 {
        return Err(format!("{BETWEEN} columns cannot be divided over {n_pes} PEs").into());
    }
    let first = me * columns;
    let fill =
        |n: usize, of: &dyn Fn(usize) -> f32| (0..n).map(|i| bf16::from_f32(of(i))).collect::<Vec<_>>();

    // This PE's rows are in its part of x; the rows of other PEs arrive in theirs.
    let x = world.zeros::<bf16>(&*format!("({rows},{HIDDEN},{n_pes}):({HIDDEN},1,{})", rows * HIDDEN))?;
    let flat = SymmetricTensor::<bf16>::view(x.buffer().clone(), x.offset(), n_pes * rows * HIDDEN)?;
    let own = |i: usize| element(X, me * rows + i / HIDDEN, i % HIDDEN, HIDDEN);
    flat.slice(me * rows * HIDDEN..(me + 1) * rows * HIDDEN)?
        .copy_from(&fill(rows * HIDDEN, &own), stream)?;
    let both = |i: usize| {
        let (matrix, row) = (i / (columns * HIDDEN), i / HIDDEN % columns);
        element(GATE + matrix, first + row, i % HIDDEN, HIDDEN)
    };
    let w = DeviceTensor::<bf16>::zeros(
        &*format!("({columns},2,{HIDDEN}):({HIDDEN},{},1)", columns * HIDDEN),
        stream,
    )?;
    w.copy_from(&fill(2 * columns * HIDDEN, &both), stream)?;
    let down = DeviceTensor::<bf16>::zeros([HIDDEN, columns], stream)?;
    let part = |i: usize| element(DOWN, i / columns, first + i % columns, BETWEEN);
    down.copy_from(&fill(HIDDEN * columns, &part), stream)?;
    let between = DeviceTensor::<bf16>::zeros([TOKENS, columns], stream)?;
    let out = DeviceTensor::<bf16>::zeros([rows, HIDDEN], stream)?;

    // Flags count launches, so they are zero before the first launch.
    let (pieces, tiles) = (HIDDEN.div_ceil(PIECE), rows.div_ceil(TILE.0));
    let flags =
        world.zeros::<u64>(&*format!("({pieces},{tiles},{n_pes}):(1,{pieces},{})", pieces * tiles))?;
    let started = world.zeros::<u64>(n_pes)?;
    let rounds = DeviceTensor::<u64>::zeros(16, stream)?;
    let [p, bm, bn, piece] = [n_pes, TILE.0, TILE.1, PIECE].map(|n| (n as i64).into());
    let defines = [("P", p), ("BM", bm), ("BN", bn), ("PIECE", piece)];
    let first_half = Kernel::compile(world, include_str!("all_gather_swiglu.weft"), &defines)?;
    let problem = Problem::new(Shape::new(TOKENS as u64, HIDDEN as u64, columns as u64), DType::BF16);
    let plan = FusedPlan::parse("bn=64,stages=4", Form::ReduceScatter)?;
    let second_half = Fused::new(world, world.team(), Form::ReduceScatter, problem, plan)?;

    for _ in 0..2 {
        let extents = (TOKENS as i64, columns as i64, HIDDEN as i64);
        let shared = (&flags, &started, &rounds, &team);
        first_half.launch(
            stream,
            Grid::Auto,
            (extents.0, extents.1, extents.2, &x, &w, &between, shared.0, shared.1, shared.2, shared.3),
        )?;
        second_half.launch(stream, &between, &down, &out)?;
    }

    let (have, end) = (out.to_vec(stream)?, TOKENS.min((me + 1) * rows));
    for row in me * rows..end {
        let want = reference(row);
        for (column, want) in want.into_iter().enumerate() {
            let have = have[(row - me * rows) * HIDDEN + column].to_f64();
            // The intermediate products, the data that each PE sends, and the sum are rounded to 8
            // bits.
            if (have - want).abs() > want.abs() / 64.0 + 0.02 {
                return Err(format!("PE {me}: ({row}, {column}) is {have}, expected {want}").into());
            }
        }
    }
    println!("PE {me}: rows {} to {end} of an MLP over {n_pes} PEs are correct", me * rows);
    world.barrier()?;
    Ok(())
}

/// A row of the result in float64.
fn reference(row: usize) -> Vec<f64> {
    let product = |matrix: usize, j: usize| -> f64 {
        let at = |l: usize| f64::from(element(X, row, l, HIDDEN)) * f64::from(element(matrix, j, l, HIDDEN));
        (0..HIDDEN).map(at).sum()
    };
    let between: Vec<f64> = (0..BETWEEN)
        .map(|j| {
            let gate = product(GATE, j);
            gate / (1.0 + (-gate).exp()) * product(UP, j)
        })
        .collect();
    let column =
        |i: usize| between.iter().enumerate().map(|(j, v)| v * f64::from(element(DOWN, i, j, BETWEEN))).sum();
    (0..HIDDEN).map(column).collect()
}
