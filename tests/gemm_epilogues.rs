//! Tests epilogues of `weft::gemm::Fused` on simulated GPUs, against the same computation on the
//! host in float64.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use weft::collective::Flat;
use weft::gemm::{
    Activation, Epilogue, Form, Fused, FusedOperands, FusedPlan, FusedTeam, Machine, Problem, Scales, Shape,
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
struct Case {
    form: Form,
    problem: Problem,
    epilogue: Epilogue,
    pes: usize,
}

impl Case {
    fn rows_of_a_pe(&self) -> usize {
        (self.problem.shape.m as usize).div_ceil(self.pes)
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
        let sum: f64 =
            (0..k).map(|l| element(Input::A, of_a, i * k + l) * element(Input::B, of_b, j * k + l)).sum();
        let scale = |of, pe, at| element(of, pe, at);
        match self.epilogue.scales {
            Scales::None => sum,
            Scales::Matrices => sum * scale(Input::ScaleA, of_a, 0) * scale(Input::ScaleB, of_b, 0),
            Scales::Rows => sum * scale(Input::ScaleA, of_a, i) * scale(Input::ScaleB, of_b, j),
        }
    }

    /// Element (i, j) of the result of PE `me`, and a bound of its error. For a reduce-scatter, i
    /// counts the PE's own rows.
    fn expected(&self, me: usize, i: usize, j: usize) -> (f64, f64) {
        let Epilogue { bias, activation, gated, residual, divide, .. } = self.epilogue;
        let part = self.rows_of_a_pe();
        let of_column = |column: usize| {
            let (sum, size) = match self.form {
                Form::AllGather => {
                    // A single scale of a whole matrix is the same on all PEs.
                    let owner = i / part;
                    let sum = self.product((owner, me), i % part, column);
                    let sum = if self.epilogue.scales == Scales::Matrices {
                        sum / element(Input::ScaleA, owner, 0) * element(Input::ScaleA, me, 0)
                    } else {
                        sum
                    };
                    (sum, sum.abs())
                }
                _ => {
                    let row = if self.form == Form::ReduceScatter { me * part + i } else { i };
                    let parts = (0..self.pes).map(|pe| self.product((pe, pe), row, column));
                    parts.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()))
                }
            };
            let owner = if self.form == Form::AllReduce { i / part } else { me };
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
            let owner = if self.form == Form::AllReduce { i / part } else { me };
            y += element(Input::Residual, owner, i * self.columns() + j);
        }
        if divide {
            y /= DIVISOR;
        }
        // The PEs' partial results are rounded to 8 bits before they are sent, and the result is
        // rounded to its own type.
        let unit = if self.problem.out.bytes() == 1 { 1.0 / 16.0 } else { 1.0 / 256.0 };
        let sent = if self.form == Form::AllGather { 1e-5 } else { 1.0 / 256.0 };
        let by = if divide { DIVISOR } else { 1.0 };
        (y, sent * size / by + unit * y.abs() + 1e-3)
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

fn elements(t: &AnyTensor, pe: u32, n: usize, stream: &Stream) -> Result<Vec<f64>, BenchError> {
    let size = t.dtype().bytes() as usize;
    let mut bytes = vec![0; n * size];
    t.buffer().read(pe, 0, &mut bytes, stream)?;
    Ok(bytes.chunks(size).map(|x| read_number(t.dtype(), x).as_f64()).collect())
}

fn check(world: &World, case: &Case, plan: &str) -> Result<(), BenchError> {
    let Case { form, problem, epilogue, pes } = *case;
    let me = world.my_pe() as usize;
    let ([m, n, k], part, columns) = (case.extents(), case.rows_of_a_pe(), case.columns());
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
    let rows = epilogue.scales == Scales::Rows;
    let scale_a = match gather {
        true => {
            let each = if rows { part } else { 1 };
            filled(world, DType::F32, each * pes, place(Input::ScaleA, each, 1))?
        }
        false => filled(world, DType::F32, if rows { m } else { 1 }, all(Input::ScaleA))?,
    };
    let scale_b = filled(world, DType::F32, if rows { n } else { 1 }, all(Input::ScaleB))?;
    let bias = filled(world, more, n, all(Input::Bias))?;
    let d_rows = if form == Form::ReduceScatter { part } else { m };
    let residual = filled(world, more, d_rows * columns, all(Input::Residual))?;
    let scale = filled(world, DType::F32, 1, |_| DIVISOR)?;
    let d = filled(world, problem.out, d_rows * columns, |_| 1.5)?;

    let plan = FusedPlan::parse(plan, form).unwrap();
    let fused = Fused::with(world, world.team(), form, problem, epilogue, plan)?;
    let [a, b, scale_a, scale_b, bias, residual, to] =
        [&a, &b, &scale_a, &scale_b, &bias, &residual, &d].map(|t| Flat(t));
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

    let found = elements(&d, world.my_pe(), d_rows * columns, world.stream())?;
    let own = if form == Form::ReduceScatter { part.min(m.saturating_sub(me * part)) } else { m };
    for (i, row) in found.chunks(columns).enumerate().take(own) {
        for (j, is) in row.iter().enumerate() {
            let (expected, bound) = case.expected(me, i, j);
            assert!(
                (is - expected).abs() <= bound,
                "{form:?} {problem} {epilogue:?}: PE {me} has {is} at ({i}, {j}), expected {expected}"
            );
        }
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
    let case = Case { form, problem, epilogue, pes };
    World::simulated(pes as u32).unwrap().run(|world| check(world, &case, plan)).unwrap();
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

/// Checks that missing and superfluous operands of an epilogue are rejected, and that a plan
/// without a place for an operand is too.
#[test]
fn invalid_operands_are_rejected() {
    let problem = Problem::new(Shape::new(128, 64, 64), DType::BF16);
    let form = Form::ReduceScatter;
    let fits = |epilogue: Epilogue, form, plan: &str| {
        let choice = weft::gemm::Choice::parse(plan, form).unwrap();
        epilogue.fits(form, &problem, &choice).map_err(|e| e.to_string())
    };
    let bias = Epilogue { bias: true, ..Epilogue::default() };
    assert_eq!(fits(bias, form, "bn=64"), Ok(()));
    assert!(fits(bias, form, "sequence").unwrap_err().contains("no place for an epilogue"));
    assert!(fits(bias, form, "send=add").unwrap_err().contains("no function can follow"));
    assert!(fits(bias, Form::AllReduce, "decode=1").unwrap_err().contains("no place"));
    let gated = Epilogue { gated: true, ..Epilogue::default() };
    assert!(fits(gated, form, "bn=64").unwrap_err().contains("no gates"));
    assert!(fits(gated, Form::AllGather, "bn=128,ctas=2").unwrap_err().contains("ctas=1"));
    assert!(fits(gated, Form::AllGather, "bn=64").unwrap_err().contains("half of bn"));
    assert_eq!(fits(gated, Form::AllGather, "bn=128"), Ok(()));

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
