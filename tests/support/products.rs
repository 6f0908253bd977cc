//! Products with epilogues on simulated PEs, compared with the same computation on the host in float64.

use weft::collective::Flat;
use weft::gemm::{Activation, Choice, Epilogue, Form, Fused, FusedOperands, Problem, Scales, Shape};
use weft::runtime::memory::AnyTensor;
use weft::runtime::{DType, IntoLayout, SimConfig, Stream, World};
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
        if self.form == Form::AllToAll {
            return i / self.max_rows();
        }
        let each = self.plan == "sequence" || self.plan.starts_with("decode");
        let owned = self.form == Form::AllReduce && !each;
        if owned { self.owner(i) } else { me }
    }

    /// How often a sum is rounded before it is complete, apart from the roundings of its parts.
    fn additions(&self) -> f64 {
        match self.plan {
            "sequence" if self.adds_up() => 2.0,
            plan if plan.contains("send=add") => 2.0 * self.pes as f64,
            _ => 0.0,
        }
    }

    fn adds_up(&self) -> bool {
        matches!(self.form, Form::ReduceScatter | Form::AllReduce)
    }

    /// The row of A, and of a residual of an all-to-all, that row i of the result of PE `me` is for.
    fn sent(&self, me: usize, i: usize) -> usize {
        self.first(me) + i % self.max_rows()
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
        let Epilogue { bias, activation, gated, residual, divide, row_scales, .. } = self.epilogue;
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
                Form::AllToAll => {
                    let from = i / self.max_rows();
                    let sum = self.product((from, from), self.sent(me, i), column);
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
            let row = if self.form == Form::AllToAll { self.sent(me, i) } else { i };
            y += element(Input::Residual, owner, row * self.columns() + j);
        }
        if divide {
            y /= DIVISOR;
        }
        // The conversion to 8 bits saturates.
        let y = if self.problem.out == DType::E4M3 && !row_scales { y.clamp(-448.0, 448.0) } else { y };
        // The PEs' partial results are rounded to 8 bits before they are sent, and the result is
        // rounded to its own type.
        let unit = match self.problem.out {
            DType::E5M2 => 1.0 / 8.0,
            DType::E4M3 => 1.0 / 16.0,
            _ => 1.0 / 256.0,
        };
        let sent = if self.adds_up() { 1.0 / 256.0 } else { 1e-5 };
        let by = if divide { DIVISOR } else { 1.0 };
        let added = self.additions() / 512.0 * (size + 4.0);
        (y, (sent * size + added) / by + unit * y.abs() + 1e-3)
    }
}

/// The number by which results are divided.
const DIVISOR: f64 = 8.0;

/// An epilogue with scales of rows, a bias, an activation and a residual.
pub fn scaled_and(activation: Activation) -> Epilogue {
    Epilogue { scales: Scales::Rows, bias: true, activation, residual: true, ..Epilogue::default() }
}

/// An epilogue with a scale for each matrix and a bias, whose results are divided by a scale.
pub fn narrowed() -> Epilogue {
    Epilogue { scales: Scales::Matrices, bias: true, divide: true, ..Epilogue::default() }
}

/// A symmetric tensor with these elements.
pub fn filled(
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
    let d_rows = match form {
        Form::AllToAll => part * pes,
        _ if case.plan.contains("send=add") => part,
        _ => own_rows,
    };
    // Symmetric memory has the same size on all PEs, and results lie at its beginning.
    let d_elements = if form == Form::ReduceScatter { part * columns } else { d_rows * columns };
    let residual = filled(world, more, (part * columns).max(own_rows * columns), all(Input::Residual))?;
    let scale = filled(world, DType::F32, 1, |_| DIVISOR)?;
    let d = filled(world, problem.out, d_elements, |_| 1.5)?;
    let [residual, to] =
        [(&residual, own_rows), (&d, d_rows)].map(|(t, rows)| beginning(t, (rows * columns).max(1)));
    let (residual, to) = (residual?, to?);

    let blocks = columns.div_ceil(128);
    let row_scales = filled(world, DType::F32, m * blocks, |_| f64::NAN)?;
    let scales_of_d = row_scales.clone();
    let [a, b, scale_a, scale_b, bias, residual, to, row_scales] =
        [&a, &b, &scale_a, &scale_b, &bias, &residual, &to, &row_scales].map(|t| Flat(t));
    let scales = epilogue.scales != Scales::None;
    let mut x = FusedOperands::new(&a, &b, &to);
    x.scale_a = scales.then_some(&scale_a);
    x.scale_b = scales.then_some(&scale_b);
    x.bias = epilogue.bias.then_some(&bias);
    x.residual = epilogue.residual.then_some(&residual);
    x.scale = epilogue.divide.then_some(&scale);
    x.row_scales = epilogue.row_scales.then_some(&row_scales);
    world.stream().synchronize()?;
    world.wait_for_all()?;
    fused.launch_with(world.stream(), &x)?;
    fused.launch_with(world.stream(), &x)?;
    world.stream().synchronize()?;

    let mut found = elements(&d, world.my_pe(), d_elements, world.stream())?;
    if epilogue.row_scales {
        let scales = elements(&scales_of_d, world.my_pe(), own_rows * blocks, world.stream())?;
        multiply_rows(&mut found, columns, &scales, problem.out);
    }
    let own = if form == Form::ReduceScatter { case.own(me) } else { d_rows };
    for (i, row) in found.chunks(columns).enumerate().take(own) {
        if form == Form::AllToAll && i % part >= case.own(me) {
            // A sequence sends whole parts, and one launch only the rows of this PE.
            let stays = case.plan == "sequence" || row.iter().all(|x| *x == 1.5);
            assert!(stays, "{form:?} {problem}: PE {me} has other elements in row {i}");
            continue;
        }
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

/// Multiplies each 128 columns of a row by their scale. Before that, the largest magnitude of them is that of the type.
fn multiply_rows(found: &mut [f64], columns: usize, scales: &[f64], dtype: DType) {
    let range = if dtype == DType::E5M2 { 57344.0 } else { 448.0 };
    let mut scales = scales.iter();
    for (i, row) in found.chunks_mut(columns).enumerate() {
        for block in row.chunks_mut(128) {
            let peak = block.iter().fold(0.0, |peak: f64, x| peak.max(x.abs()));
            assert!(peak == range || peak == 0.0, "row {i}: the largest magnitude is {peak}, not {range}");
            let scale = scales.next().copied().unwrap_or(f64::NAN);
            block.iter_mut().for_each(|x| *x *= scale);
        }
    }
}

pub fn run(
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

/// Runs a sequence of a product and a collective on GPUs with `sms` multiprocessors.
pub fn run_sequence(form: Form, sms: u32, (m, n, k): (u64, u64, u64), epilogue: Epilogue) {
    let problem = Problem { out: FP8.1, ..Problem::new(Shape::new(m, n, k), FP8.0) };
    let case = Case { form, problem, epilogue, pes: 2, rows: &[], plan: "sequence" };
    let job = World::simulated_with(&SimConfig::new(2).sms(sms)).unwrap();
    job.run(|world| check(world, &case)).unwrap();
}

/// Runs a product of PEs with these numbers of rows.
pub fn run_uneven(
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

pub const FP8: (DType, DType) = (DType::E4M3, DType::BF16);
pub const BF16: (DType, DType) = (DType::BF16, DType::BF16);
