//! Tests epilogues of `weft::gemm::Fused` on simulated GPUs, against the same computation on the
//! host in float64.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use weft::collective::Flat;
use weft::gemm::{
    Activation, Choice, Epilogue, Form, Fused, FusedOperands, FusedPlan, FusedTeam, Machine, Problem, Scales,
    Shape,
};
use weft::runtime::memory::AnyTensor;
use weft::runtime::{DType, IntoLayout, Stream, World};
use weft_bench::BenchError;
use weft_run::array::{Number, read_number, write_number};

/// The matrix or vector to which an element belongs.
#[derive(Clone, Copy)]
enum Input {
    A,
    B,
    ScaleA,
    ScaleB,
    Bias,
    Residual,
}

/// An element that depends on the PE and the index. It has few bits, so that fp8 can represent it
/// and sums of products are exact.
fn element(of: Input, pe: usize, i: usize) -> f64 {
    let n = (i * 7 + i / 11 + pe * 5 + of as usize * 3) % 13;
    match of {
        Input::A | Input::B => n as f64 - 6.0,
        Input::ScaleA | Input::ScaleB => 2f64.powi(n as i32 % 4 - 5),
        Input::Bias | Input::Residual => n as f64 / 4.0 - 1.0,
    }
}

/// A product that is distributed over PEs.
#[derive(Clone, Copy)]
struct Case<'a> {
    form: Form,
    problem: Problem,
    epilogue: Epilogue,
    pes: usize,
    /// The rows of each PE. Without numbers, the PEs have equal parts.
    rows: &'a [u64],
    /// The text of the plan.
    plan: &'a str,
}

impl Case<'_> {
    /// The largest number of rows of a PE.
    fn max_rows(&self) -> usize {
        let equal = self.problem.shape.m.div_ceil(self.pes as u64);
        self.rows.iter().copied().max().unwrap_or(equal) as usize
    }

    /// The first row of a PE among all rows.
    fn first(&self, pe: usize) -> usize {
        if self.rows.is_empty() {
            return (pe * self.max_rows()).min(self.problem.shape.m as usize);
        }
        self.rows[..pe].iter().sum::<u64>() as usize
    }

    /// The number of rows of a PE.
    fn own(&self, pe: usize) -> usize {
        let end = if pe + 1 == self.pes { self.problem.shape.m as usize } else { self.first(pe + 1) };
        end - self.first(pe)
    }

    /// The PE whose bias and residual element (i, j) of PE `me` has. Each PE adds its own to sums of packets and of a sequence.
    fn finisher(&self, me: usize, i: usize) -> usize {
        let each = self.plan == "sequence" || self.plan.starts_with("decode");
        let owned = self.form == Form::AllReduce && !each;
        if owned { self.owner(i) } else { me }
    }

    /// How often a sum is rounded before it is complete, apart from the roundings of its parts.
    fn additions(&self) -> f64 {
        match self.plan {
            "sequence" => 2.0,
            plan if plan.contains("send=add") => 2.0 * self.pes as f64,
            _ => 0.0,
        }
    }

    /// The PE that a row of all belongs to.
    fn owner(&self, row: usize) -> usize {
        (0..self.pes).rfind(|pe| self.own(*pe) > 0 && self.first(*pe) <= row).unwrap()
    }

    fn extents(&self) -> [usize; 3] {
        let Shape { m, n, k } = self.problem.shape;
        [m, n, k].map(|extent| extent as usize)
    }

    fn columns(&self) -> usize {
        self.epilogue.columns(self.problem.shape.n) as usize
    }

    /// Element (i, j) of the product of PE `pe`'s A with the transposed B, times the scales.
    fn product(&self, (of_a, of_b): (usize, usize), i: usize, j: usize) -> f64 {
        let [.., k] = self.extents();
        let one = |l: usize| element(Input::A, of_a, i * k + l) * element(Input::B, of_b, j * k + l);
        let sum: f64 = (0..k).map(one).sum();
        let scale = |of, pe, at| element(of, pe, at);
        let blocks = k.div_ceil(128);
        match self.epilogue.scales {
            Scales::None => sum,
            Scales::Matrices => sum * scale(Input::ScaleA, of_a, 0) * scale(Input::ScaleB, of_b, 0),
            Scales::Rows => sum * scale(Input::ScaleA, of_a, i) * scale(Input::ScaleB, of_b, j),
            Scales::Blocks => (0..blocks)
                .map(|t| {
                    let sum: f64 = (t * 128..k.min(t * 128 + 128)).map(one).sum();
                    let of_b = scale(Input::ScaleB, of_b, j / 128 * blocks + t);
                    sum * scale(Input::ScaleA, of_a, i * blocks + t) * of_b
                })
                .sum(),
            other => panic!("{other:?}"),
        }
    }

    /// Element (i, j) of the result of PE `me`, and a bound of its error. For a reduce-scatter, i
    /// counts the PE's own rows.
    fn expected(&self, me: usize, i: usize, j: usize) -> (f64, f64) {
        let Epilogue { bias, activation, gated, residual, divide, .. } = self.epilogue;
        let of_column = |column: usize| {
            let (sum, size) = match self.form {
                Form::AllGather => {
                    // A single scale of a whole matrix is the same on all PEs.
                    let owner = self.owner(i);
                    let sum = self.product((owner, me), i - self.first(owner), column);
                    let sum = if self.epilogue.scales == Scales::Matrices {
                        sum / element(Input::ScaleA, owner, 0) * element(Input::ScaleA, me, 0)
                    } else {
                        sum
                    };
                    (sum, sum.abs())
                }
                _ => {
                    let row = if self.form == Form::ReduceScatter { self.first(me) + i } else { i };
                    let parts = (0..self.pes).map(|pe| self.product((pe, pe), row, column));
                    parts.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()))
                }
            };
            let owner = self.finisher(me, i);
            (sum + if bias { element(Input::Bias, owner, column) } else { 0.0 }, size)
        };
        let active = |x: f64| match activation {
            Activation::None => x,
            Activation::Relu => x.max(0.0),
            Activation::Silu => x / (1.0 + (-x).exp()),
            Activation::GeluTanh => {
                x / (1.0 + (-1.595_769_121_605_730_8 * (x + 0.044_715 * x * x * x)).exp())
            }
            Activation::Gelu => panic!("the host has no erf"),
        };
        let (x, size) = of_column(j);
        let mut y = active(x);
        if gated {
            y *= of_column(j + self.columns()).0;
        }
        if residual {
            let owner = self.finisher(me, i);
            y += element(Input::Residual, owner, i * self.columns() + j);
        }
        if divide {
            y /= DIVISOR;
        }
        // The conversion to 8 bits saturates.
        let y = if self.problem.out == DType::E4M3 { y.clamp(-448.0, 448.0) } else { y };
        // The PEs' partial results are rounded to 8 bits before they are sent, and the result is
        // rounded to its own type.
        let unit = if self.problem.out.bytes() == 1 { 1.0 / 16.0 } else { 1.0 / 256.0 };
        let sent = if self.form == Form::AllGather { 1e-5 } else { 1.0 / 256.0 };
        let by = if divide { DIVISOR } else { 1.0 };
        let added = self.additions() / 512.0 * (size + 4.0);
        (y, (sent * size + added) / by + unit * y.abs() + 1e-3)
    }
}

/// The number by which results are divided.
const DIVISOR: f64 = 8.0;

/// A symmetric tensor with these elements.
fn filled(
    world: &World,
    dtype: DType,
    n: usize,
    element: impl Fn(usize) -> f64,
) -> Result<AnyTensor, BenchError> {
    let mut bytes = Vec::new();
    (0..n).for_each(|i| write_number(dtype, Number::Float(element(i)), &mut bytes));
    let buffer = world.buffer(bytes.len())?;
    buffer.write(0, &bytes, world.stream())?;
    Ok(AnyTensor::new(buffer, dtype, n.into_layout()?)?)
}

/// The first elements of a tensor.
fn beginning(t: &AnyTensor, n: usize) -> Result<AnyTensor, BenchError> {
    Ok(AnyTensor::new(t.buffer().clone(), t.dtype(), n.into_layout()?)?)
}

fn elements(t: &AnyTensor, pe: u32, n: usize, stream: &Stream) -> Result<Vec<f64>, BenchError> {
    let size = t.dtype().bytes() as usize;
    let mut bytes = vec![0; n * size];
    t.buffer().read(pe, 0, &mut bytes, stream)?;
    Ok(bytes.chunks(size).map(|x| read_number(t.dtype(), x).as_f64()).collect())
}

fn check(world: &World, case: &Case<'_>) -> Result<(), BenchError> {
    let Case { form, problem, epilogue, rows, plan, .. } = *case;
    let plan = Choice::parse(plan, form).unwrap();
    if rows.is_empty() {
        let fused = Fused::with(world, world.team(), form, problem, epilogue, plan)?;
        return launches(world, case, &fused);
    }
    let mut fused = Fused::uneven(world, world.team(), form, problem, epilogue, rows, plan)?;
    launches(world, case, &fused)?;
    // Other launches have other rows.
    let mut turned = rows.to_vec();
    turned.rotate_left(1);
    fused.set_rows(world, world.stream(), &turned)?;
    assert_eq!(fused.rows(), Some(&turned[..]));
    launches(world, &Case { rows: &turned, ..*case }, &fused)
}

/// Checks the result of two launches, one after the other.
fn launches(world: &World, case: &Case<'_>, fused: &Fused) -> Result<(), BenchError> {
    let Case { form, problem, epilogue, pes, .. } = *case;
    let me = world.my_pe() as usize;
    let ([m, n, k], part, columns) = (case.extents(), case.max_rows(), case.columns());
    let gather = form == Form::AllGather;
    // For an all-gather, each PE's rows are in its own part, and the others' parts are empty.
    let mine =
        |rows: usize, each: usize| move |i: usize| (i / (rows * each) == me).then_some(i % (rows * each));
    let place = |of: Input, rows: usize, each: usize| {
        let own = mine(rows, each);
        move |i: usize| own(i).map_or(f64::NAN, |i| element(of, me, i))
    };
    let all = |of: Input| move |i: usize| element(of, me, i);
    let a = match gather {
        true => filled(world, problem.dtype, part * pes * k, place(Input::A, part, k))?,
        false => filled(world, problem.dtype, m * k, all(Input::A))?,
    };
    let b = filled(world, problem.dtype, n * k, all(Input::B))?;
    let more = Epilogue::dtype(&problem);
    let [of_a, of_b] = [epilogue.scales.of_a(if gather { part } else { m } as u64, k as u64), {
        epilogue.scales.of_b(n as u64, k as u64)
    }]
    .map(|n| (n as usize).max(1));
    let scale_a = match gather {
        true => filled(world, DType::F32, of_a * pes, place(Input::ScaleA, of_a, 1))?,
        false => filled(world, DType::F32, of_a, all(Input::ScaleA))?,
    };
    let scale_b = filled(world, DType::F32, of_b, all(Input::ScaleB))?;
    let bias = filled(world, more, n, all(Input::Bias))?;
    let equal = case.rows.is_empty();
    let own_rows = match form {
        Form::ReduceScatter if equal => part,
        Form::ReduceScatter => case.own(me),
        _ => m,
    };
    // A symmetric D has the same number of rows on all PEs.
    let d_rows = if case.plan.contains("send=add") { part } else { own_rows };
    // Symmetric memory has the same size on all PEs, and results lie at its beginning.
    let d_elements = if form == Form::ReduceScatter { part * columns } else { m * columns };
    let residual = filled(world, more, d_elements, all(Input::Residual))?;
    let scale = filled(world, DType::F32, 1, |_| DIVISOR)?;
    let d = filled(world, problem.out, d_elements, |_| 1.5)?;
    let [residual, to] =
        [(&residual, own_rows), (&d, d_rows)].map(|(t, rows)| beginning(t, (rows * columns).max(1)));
    let (residual, to) = (residual?, to?);

    let [a, b, scale_a, scale_b, bias, residual, to] =
        [&a, &b, &scale_a, &scale_b, &bias, &residual, &to].map(|t| Flat(t));
    let scales = epilogue.scales != Scales::None;
    let mut x = FusedOperands::new(&a, &b, &to);
    x.scale_a = scales.then_some(&scale_a);
    x.scale_b = scales.then_some(&scale_b);
    x.bias = epilogue.bias.then_some(&bias);
    x.residual = epilogue.residual.then_some(&residual);
    x.scale = epilogue.divide.then_some(&scale);
    world.stream().synchronize()?;
    world.wait_for_all()?;
    fused.launch_with(world.stream(), &x)?;
    fused.launch_with(world.stream(), &x)?;
    world.stream().synchronize()?;

    let found = elements(&d, world.my_pe(), d_elements, world.stream())?;
    let own = if form == Form::ReduceScatter { case.own(me) } else { m };
    for (i, row) in found.chunks(columns).enumerate().take(own) {
        for (j, is) in row.iter().enumerate() {
            let (expected, bound) = case.expected(me, i, j);
            assert!(
                (is - expected).abs() <= bound,
                "{form:?} {problem} {epilogue:?}: PE {me} has {is} at ({i}, {j}), expected {expected}"
            );
        }
    }
    // Nothing is written behind the rows of this PE.
    if !equal {
        assert!(found[own * columns..].iter().all(|x| *x == 1.5), "{form:?} {problem}: PE {me} wrote more");
    }
    world.wait_for_all()?;
    Ok(())
}

fn run(
    form: Form,
    pes: usize,
    (m, n, k): (u64, u64, u64),
    types: (DType, DType),
    epilogue: Epilogue,
    plan: &str,
) {
    let problem = Problem { out: types.1, ..Problem::new(Shape::new(m, n, k), types.0) };
    let case = Case { form, problem, epilogue, pes, rows: &[], plan };
    World::simulated(pes as u32).unwrap().run(|world| check(world, &case)).unwrap();
}

/// Runs a product of PEs with these numbers of rows.
fn run_uneven(
    form: Form,
    rows: &[u64],
    (n, k): (u64, u64),
    types: (DType, DType),
    epilogue: Epilogue,
    plan: &str,
) {
    let shape = Shape::new(rows.iter().sum(), n, k);
    let problem = Problem { out: types.1, ..Problem::new(shape, types.0) };
    let case = Case { form, problem, epilogue, pes: rows.len(), rows, plan };
    World::simulated(rows.len() as u32).unwrap().run(|world| check(world, &case)).unwrap();
}

const FP8: (DType, DType) = (DType::E4M3, DType::BF16);
const BF16: (DType, DType) = (DType::BF16, DType::BF16);

#[test]
fn an_all_gather_brings_scales_along() {
    let scaled = Epilogue { scales: Scales::Rows, bias: true, ..Epilogue::default() };
    run(Form::AllGather, 3, (140, 80, 128), FP8, scaled, "bn=64,bk=128,stages=2,strip=32,piece=64");
    let whole = Epilogue { scales: Scales::Matrices, activation: Activation::Relu, ..Epilogue::default() };
    run(Form::AllGather, 2, (70, 72, 144), FP8, whole, "bn=64,bk=128,stages=2");
}

#[test]
fn gates_of_an_all_gather() {
    let gated = Epilogue {
        activation: Activation::Silu,
        gated: true,
        residual: true,
        divide: true,
        bias: true,
        ..Epilogue::default()
    };
    run(Form::AllGather, 2, (131, 96, 72), BF16, gated, "bn=64,stages=2,strip=32");
    let scaled = Epilogue { scales: Scales::Rows, gated: true, ..Epilogue::default() };
    run(Form::AllGather, 2, (20, 160, 64), FP8, scaled, "bn=64,bk=128,stages=2,strip=32");
}

#[test]
fn sums_of_scaled_products() {
    let all = Epilogue {
        scales: Scales::Rows,
        bias: true,
        activation: Activation::GeluTanh,
        residual: true,
        ..Epilogue::default()
    };
    run(Form::ReduceScatter, 3, (131, 80, 128), FP8, all, "bn=64,bk=128,stages=2,strip=32,send=bulk");
    let narrow = Epilogue { scales: Scales::Matrices, bias: true, divide: true, ..Epilogue::default() };
    let types = (DType::E4M3, DType::E4M3);
    run(Form::ReduceScatter, 2, (40, 80, 128), types, narrow, "bn=64,bk=128,stages=2");
}

#[test]
fn an_allreduce_adds_the_residual_once() {
    let all = Epilogue { scales: Scales::Rows, bias: true, residual: true, ..Epilogue::default() };
    run(Form::AllReduce, 3, (131, 80, 128), FP8, all, "bn=64,bk=128,stages=2,strip=32");
    let plain = Epilogue { residual: true, activation: Activation::Relu, ..Epilogue::default() };
    run(Form::AllReduce, 2, (50, 72, 64), BF16, plain, "bn=64,stages=2,ctas=2,send=tma");
}

/// Checks sums that are made in the memory of their owner, which adds the bias and the residual to its own part.
#[test]
fn sums_in_the_memory_of_the_owner() {
    let all =
        Epilogue { scales: Scales::Rows, bias: true, residual: true, divide: true, ..Epilogue::default() };
    let plan = "bn=64,bk=128,stages=2,strip=32,send=add";
    run(Form::ReduceScatter, 3, (131, 80, 128), FP8, all, plan);
    let blocks = Epilogue { scales: Scales::Blocks, ..Epilogue::default() };
    run(Form::ReduceScatter, 2, (50, 144, 272), FP8, blocks, plan);
}

#[test]
fn sums_by_the_switch() {
    let all = Epilogue {
        scales: Scales::Rows,
        bias: true,
        activation: Activation::Relu,
        residual: true,
        divide: true,
        ..Epilogue::default()
    };
    run(Form::AllReduce, 3, (131, 80, 128), FP8, all, "bn=64,bk=128,stages=2,strip=32,send=switch");
    let matrices = Epilogue { scales: Scales::Matrices, bias: true, ..Epilogue::default() };
    run(Form::AllReduce, 2, (50, 72, 128), FP8, matrices, "bn=64,bk=128,stages=2,ctas=2,send=switch");
}

#[test]
fn packets_of_scaled_products() {
    let all = Epilogue {
        scales: Scales::Rows,
        bias: true,
        activation: Activation::Silu,
        residual: true,
        ..Epilogue::default()
    };
    run(Form::AllReduce, 3, (9, 80, 144), FP8, all, "decode=1,bn=16,split=2,stages=2,flights=2");
    let narrow = Epilogue { scales: Scales::Matrices, bias: true, divide: true, ..Epilogue::default() };
    let types = (DType::E4M3, DType::E4M3);
    run(Form::AllReduce, 2, (5, 80, 144), types, narrow, "decode=1,bn=16,split=1,stages=2");
}

/// Checks scales that change along K, of which the last block is cut.
#[test]
fn scales_of_blocks() {
    let blocks = Epilogue { scales: Scales::Blocks, bias: true, residual: true, ..Epilogue::default() };
    run(Form::AllGather, 2, (70, 144, 144), FP8, blocks, "bn=128,bk=128,stages=2,strip=32,piece=128");
    let plan = "bn=64,bk=128,stages=2,strip=32,outs=2,ins=0";
    run(Form::ReduceScatter, 3, (50, 80, 272), FP8, blocks, &format!("{plan},send=bulk"));
    run(Form::AllReduce, 2, (20, 144, 144), FP8, blocks, &format!("{plan},ctas=2"));
    run_uneven(Form::AllGather, &[5, 0, 30], (80, 144), FP8, blocks, "bn=64,bk=128,stages=2,strip=32");
    run_uneven(Form::ReduceScatter, &[5, 0, 30], (80, 144), FP8, blocks, plan);
}

#[test]
fn an_all_gather_of_uneven_rows() {
    let scaled = Epilogue { scales: Scales::Rows, bias: true, residual: true, ..Epilogue::default() };
    let plan = "bn=64,bk=128,stages=2,strip=32";
    run_uneven(Form::AllGather, &[5, 0, 133], (80, 128), FP8, scaled, plan);
    let plain = Epilogue::default();
    run_uneven(Form::AllGather, &[30, 129, 0, 7], (72, 64), BF16, plain, "bn=64,stages=2,ctas=2");
    let gated = Epilogue { activation: Activation::Silu, gated: true, ..Epilogue::default() };
    run_uneven(Form::AllGather, &[40, 3], (96, 72), BF16, gated, "bn=64,stages=2,strip=32");
}

#[test]
fn sums_of_uneven_rows() {
    let all = Epilogue {
        scales: Scales::Rows,
        bias: true,
        activation: Activation::Relu,
        residual: true,
        ..Epilogue::default()
    };
    let plan = "bn=64,bk=128,stages=2,strip=32,send=bulk";
    run_uneven(Form::ReduceScatter, &[70, 0, 5], (80, 128), FP8, all, plan);
    let plain = Epilogue::default();
    run_uneven(Form::ReduceScatter, &[30, 129, 0, 7], (72, 64), BF16, plain, "bn=64,stages=2,ctas=2,lag=0");
    let narrow = Epilogue { divide: true, bias: true, ..Epilogue::default() };
    let types = (DType::E4M3, DType::E4M3);
    run_uneven(Form::ReduceScatter, &[9, 0], (80, 128), types, narrow, "bn=64,bk=128,stages=2,ins=0,outs=1");
}

/// Checks sums of uneven rows in the memory of their owner. The owner's rows cut tiles, between which those of other PEs lie.
#[test]
fn uneven_sums_in_the_memory_of_the_owner() {
    let all =
        Epilogue { scales: Scales::Rows, bias: true, residual: true, divide: true, ..Epilogue::default() };
    let plan = "bn=64,bk=128,stages=2,strip=32,send=add";
    run_uneven(Form::ReduceScatter, &[70, 0, 133], (80, 128), FP8, all, plan);
    let plain = Epilogue::default();
    run_uneven(
        Form::ReduceScatter,
        &[30, 129, 0, 7],
        (72, 64),
        BF16,
        plain,
        "bn=64,stages=2,ctas=2,send=add",
    );
    let blocks = Epilogue { scales: Scales::Blocks, ..Epilogue::default() };
    run_uneven(Form::ReduceScatter, &[3, 50], (144, 272), FP8, blocks, plan);
}

/// Checks a product for each PE and a collective, which the model chooses for few rows.
#[test]
fn a_sequence_of_uneven_rows() {
    let plain = Epilogue::default();
    run_uneven(Form::AllGather, &[5, 0, 133], (80, 64), BF16, plain, "sequence");
    run_uneven(Form::AllGather, &[1, 7], (64, 144), FP8, plain, "sequence");
    run_uneven(Form::ReduceScatter, &[70, 0, 5], (80, 64), BF16, plain, "sequence");
    run_uneven(Form::ReduceScatter, &[0, 9, 3, 2], (72, 40), (DType::F16, DType::F32), plain, "sequence");
}

/// Checks a product with an epilogue, or a kernel that completes sums.
#[test]
fn epilogues_of_a_sequence() {
    let scaled = Epilogue { scales: Scales::Rows, bias: true, residual: true, ..Epilogue::default() };
    let all = Epilogue { activation: Activation::GeluTanh, ..scaled };
    let narrow = Epilogue { scales: Scales::Matrices, bias: true, divide: true, ..Epilogue::default() };
    let types = (DType::E4M3, DType::E4M3);
    let blocks = Epilogue { scales: Scales::Blocks, ..Epilogue::default() };
    for form in [Form::AllGather, Form::ReduceScatter, Form::AllReduce] {
        run(form, 3, (140, 80, 128), FP8, all, "sequence");
        run(form, 2, (40, 80, 128), types, narrow, "sequence");
        run(form, 2, (20, 144, 272), FP8, blocks, "sequence");
    }
    let gated = Epilogue { activation: Activation::Silu, gated: true, divide: true, ..scaled };
    run(Form::AllGather, 2, (70, 160, 64), FP8, gated, "sequence");
    run(Form::ReduceScatter, 4, (9, 80, 128), types, Epilogue::default(), "sequence");
    run_uneven(Form::AllGather, &[5, 0, 30], (80, 144), FP8, all, "sequence");
    run_uneven(Form::AllGather, &[5, 33], (80, 144), FP8, narrow, "sequence");
    run_uneven(Form::ReduceScatter, &[0, 9, 20], (80, 144), FP8, all, "sequence");
    run_uneven(
        Form::ReduceScatter,
        &[7, 20],
        (80, 144),
        types,
        Epilogue { scales: Scales::Blocks, ..narrow },
        "sequence",
    );
}

#[test]
fn few_uneven_rows_on_eight_pes() {
    let rows = [9, 0, 1, 0, 0, 33, 0, 2];
    let plain = Epilogue::default();
    run_uneven(Form::ReduceScatter, &rows, (64, 64), BF16, plain, "bn=64,stages=2,send=tma");
    run_uneven(Form::AllGather, &rows, (64, 64), BF16, plain, "bn=64,stages=2");
}

/// Checks that rows which do not make the problem, or for which there is no memory, are errors on all PEs.
#[test]
fn invalid_rows_are_rejected() {
    let problem = Problem::new(Shape::new(100, 64, 64), DType::BF16);
    let none = Epilogue::default();
    let plan = |text: &str, form| Choice::parse(text, form).unwrap();
    World::simulated(2)
        .unwrap()
        .run(|world| {
            let made = |form, rows: &[u64], text: &str| {
                let made = Fused::uneven(world, world.team(), form, problem, none, rows, plan(text, form));
                made.map(drop).unwrap_err().to_string()
            };
            let form = Form::ReduceScatter;
            assert!(made(form, &[100], "bn=64").contains("rows for 1 PEs, and the team has 2"));
            assert!(made(form, &[50, 49], "bn=64").contains("99 together, and m is 100"));
            assert!(made(form, &[u64::MAX, 101], "bn=64").contains("more than 2^64"));
            assert!(made(Form::AllReduce, &[99, 1], "bn=64").contains("none has rows of its own"));
            let different = [99 - u64::from(world.my_pe()), 1 + u64::from(world.my_pe())];
            assert!(made(form, &different, "bn=64,stages=2").contains("different products"));

            let choice = plan("bn=64,stages=2", form);
            let mut fused = Fused::uneven(world, world.team(), form, problem, none, &[60, 40], choice)?;
            let mut set = |rows: &[u64]| fused.set_rows(world, world.stream(), rows).unwrap_err().to_string();
            assert!(set(&[61, 0]).contains("PE 0 of the team has 61 rows"));
            assert!(set(&[1, 1, 1]).contains("rows for 3 PEs"));
            assert!(set(&[0, 0]).contains("m is 0"));
            assert!(set(&[u64::from(world.my_pe()), 1]).contains("different products"));
            assert_eq!(fused.rows(), Some(&[60, 40][..]));
            let mut equal = Fused::new(world, world.team(), form, problem, choice)?;
            let error = equal.set_rows(world, world.stream(), &[60, 40]).unwrap_err();
            assert!(error.to_string().contains("equal parts"), "{error}");
            assert!(equal.rows().is_none());

            let choice = plan("sequence", form);
            let mut fused = Fused::uneven(world, world.team(), form, problem, none, &[60, 40], choice)?;
            let error = fused.set_rows(world, world.stream(), &[61, 0]).unwrap_err();
            assert!(error.to_string().contains("memory for 60"), "{error}");

            let auto = |form| Fused::auto_uneven(world, world.team(), form, problem, none, &[60, 40]);
            assert_eq!(auto(Form::AllGather)?.rows(), Some(&[60, 40][..]));
            let error = auto(Form::AllReduce).map(drop).unwrap_err();
            assert!(error.to_string().contains("none has rows of its own"), "{error}");
            Ok::<_, BenchError>(())
        })
        .unwrap();
}

/// Checks that missing and superfluous operands of an epilogue are rejected, and that a plan
/// without a place for an operand is too.
#[test]
fn invalid_operands_are_rejected() {
    let problem = Problem::new(Shape::new(128, 64, 64), DType::BF16);
    let form = Form::ReduceScatter;
    let fits = |epilogue: Epilogue, form, plan: &str| {
        let choice = Choice::parse(plan, form).unwrap();
        epilogue.fits(form, &problem, &choice).map_err(|e| e.to_string())
    };
    let bias = Epilogue { bias: true, ..Epilogue::default() };
    assert_eq!(fits(bias, form, "bn=64"), Ok(()));
    assert_eq!(fits(bias, form, "sequence"), Ok(()));
    assert_eq!(fits(bias, form, "send=add"), Ok(()));
    assert_eq!(fits(bias, Form::AllReduce, "decode=1"), Ok(()));
    let active = Epilogue { activation: Activation::Relu, ..Epilogue::default() };
    assert!(fits(active, form, "send=add").unwrap_err().contains("no activation can follow"));
    let gated = Epilogue { gated: true, ..Epilogue::default() };
    assert!(fits(gated, form, "bn=64").unwrap_err().contains("no gates"));
    assert!(fits(gated, form, "sequence").unwrap_err().contains("no gates"));
    assert!(fits(gated, Form::AllGather, "bn=128,ctas=2").unwrap_err().contains("ctas=1"));
    assert!(fits(gated, Form::AllGather, "bn=64").unwrap_err().contains("half of bn"));
    assert_eq!(fits(gated, Form::AllGather, "bn=128"), Ok(()));
    let blocks = Epilogue { scales: Scales::Blocks, ..Epilogue::default() };
    assert!(fits(blocks, form, "bn=128,ins=0").unwrap_err().contains("several blocks"));
    assert!(fits(blocks, form, "bn=128,bk=128,stages=2").unwrap_err().contains("no warp"));
    assert!(fits(blocks, form, "bn=128,bk=128,stages=3,ins=0").unwrap_err().contains("shared memory"));
    assert_eq!(fits(blocks, form, "bn=128,bk=128,stages=2,ins=0"), Ok(()));
    assert_eq!(fits(blocks, form, "bn=128,bk=128,stages=2,send=add"), Ok(()));
    let switch = fits(blocks, Form::AllReduce, "bn=128,bk=128,stages=2,send=switch");
    assert!(switch.unwrap_err().contains("no warp"));
    assert!(fits(blocks, Form::AllReduce, "decode=1").unwrap_err().contains("transpose"));
    let both = Epilogue { gated: true, ..blocks };
    for plan in ["bn=128,bk=128,stages=2", "sequence"] {
        assert!(fits(both, Form::AllGather, plan).unwrap_err().contains("other columns"));
    }

    let team = FusedTeam {
        machine: Machine { target: "sm_90a".parse().unwrap(), sms: 132 },
        pes: 2,
        multicast: true,
        links: weft::collective::Links::H200,
    };
    for form in Form::ALL {
        let (choice, _) = team.choose_with(form, &problem, &bias).unwrap();
        assert_eq!(bias.fits(form, &problem, &choice).map_err(|e| e.to_string()), Ok(()));
    }

    let world = World::simulated(1).unwrap();
    world
        .run(|world| {
            let plan = FusedPlan::parse("bn=64,stages=2", form).unwrap();
            let fused = Fused::with(world, world.team(), form, problem, bias, plan)?;
            let t = filled(world, DType::BF16, 128 * 64, |_| 1.0)?;
            let t = Flat(&t);
            let said = |x: &FusedOperands<'_>| fused.launch_with(world.stream(), x).unwrap_err().to_string();
            assert!(said(&FusedOperands::new(&t, &t, &t)).contains("`bias` is missing"));
            let more = FusedOperands { bias: Some(&t), scale: Some(&t), ..FusedOperands::new(&t, &t, &t) };
            assert!(said(&more).contains("`scale` is given"));
            Ok::<_, BenchError>(())
        })
        .unwrap();
}
