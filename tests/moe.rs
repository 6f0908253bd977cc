//! Tests of `weft::moe` on simulated PEs: the example with its reference, and invalid input.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

#[path = "../examples/17_moe.rs"]
#[expect(dead_code, reason = "a test has no `main` of its own")]
mod example;

use weft::collective::Flat;
use weft::gpu::GpuError;
use weft::moe::{Moe, Plan, Problem, Routes};
use weft::runtime::memory::AnyTensor;
use weft::runtime::{DType, DeviceTensor, Error, IntoLayout, Team, World};
use weft_bench::moe::{Contender, Form, Request, Variant, run};
use weft_run::array::{Number, write_number};

#[test]
fn results_are_those_of_the_reference() {
    for pes in [1, 2, 3] {
        let run = |world: &World| Ok::<_, Error>(example::moe(world).map_err(|e| e.to_string()));
        for outcome in World::simulated(pes).unwrap().run(run).unwrap() {
            outcome.unwrap();
        }
    }
}

type Made = fn(&World, Team, Problem, Plan) -> Result<Moe, GpuError>;

fn small(world: &World, form: Made, rows: Option<u64>) -> (Moe, DeviceTensor<half::bf16>) {
    let mut problem = Problem::new(8, 16, 4, 2, DType::BF16);
    problem.max_rows = rows;
    let plan = Plan { bn: 64, stages: 2, ..Plan::default() };
    let x = DeviceTensor::zeros([8, 16], world.stream()).unwrap();
    (form(world, world.team(), problem, plan).unwrap(), x)
}

/// The results of `check` after a dispatch on two PEs with these experts and counts of tokens, and
/// after a correct one.
fn routed(form: Made, rows: Option<u64>, ids: fn(u32) -> [i32; 16], live: i32) -> Vec<(String, bool)> {
    let run = |world: &World| {
        let stream = world.stream();
        let (moe, x) = small(world, form, rows);
        let all = DeviceTensor::<i32>::zeros([8, 2], stream)?;
        let count = DeviceTensor::<i32>::zeros(1, stream)?;
        all.copy_from(&ids(world.my_pe()), stream)?;
        count.copy_from(&[live], stream)?;
        let routes = Routes { ids: &all, live: &count };
        moe.dispatch(stream, &x, &routes)?;
        let said = moe.check(stream).err().map_or(String::new(), |e| e.to_string());
        // The state is right for the next launch.
        count.copy_from(&[1], stream)?;
        all.copy_from(&[0; 16], stream)?;
        moe.dispatch(stream, &x, &routes)?;
        Ok::<_, GpuError>((said, moe.check(stream).is_ok()))
    };
    World::simulated(2).unwrap().run(run).unwrap()
}

#[test]
fn wrong_routes_are_errors_on_every_pe() {
    let right = |_| [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3];
    for form in [Moe::for_few as Made, Moe::for_many] {
        assert_eq!(routed(form, None, right, 8), [(String::new(), true), (String::new(), true)]);
        for (rows, ids, live, says) in [
            (None, (|pe| [if pe == 1 { 4 } else { 0 }; 16]) as fn(u32) -> [i32; 16], 8, "not one of 0 to 3"),
            (None, |pe| [if pe == 0 { -1 } else { 0 }; 16], 8, "not one of 0 to 3"),
            (None, right, 9, "more than 8 tokens"),
            (Some(300), |_| [0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 2, 3], 8, ""),
            (Some(255), right, 8, "room for"),
        ] {
            for (said, mended) in routed(form, rows, ids, live) {
                assert_eq!(said.contains("R0506"), !says.is_empty(), "{said}");
                assert!(said.contains(says), "{said}");
                assert!(mended);
            }
        }
    }
}

/// Checks that the benchmark's own launches give the results that its check expects.
#[test]
fn the_benchmark_checks_results() {
    let problem = Problem { columns: 72, ..Problem::new(8, 64, 4, 2, DType::BF16) };
    let plan = Plan { bn: 64, stages: 2, ..Plan::default() };
    let forms = [Form::Many, Form::Few, Form::Apart];
    let request = Request {
        // All experts of a token are on one PE, which adds up their results.
        problems: vec![problem, Problem { choices: 4, ..problem }],
        contenders: forms.map(|form| Contender::Ours(Variant { form, ..Variant::from(plan) })).to_vec(),
        iters: 1,
        warmup: 1,
        repeats: 1,
        graph: false,
        check: true,
    };
    let reports = World::simulated(2).unwrap().run(|world| run(world, &request, &mut |_, _| Ok(())));
    for report in reports.unwrap() {
        assert_eq!(report.rows.len(), 6);
        for checked in report.rows.iter().map(|row| row.checked.as_ref().unwrap()) {
            assert_eq!(checked.elements, 0, "{checked:?}");
            assert!(checked.of > 30, "{checked:?}");
        }
    }
}

#[test]
fn invalid_problems_and_plans_are_rejected() {
    let problem = Problem::new(4096, 4096, 64, 8, DType::BF16);
    assert!(problem.check(2).is_ok() && Plan::default().fits(&problem, 2).is_ok());
    assert!(problem.check(3).unwrap_err().to_string().contains("equal parts"));
    assert!(Problem { hidden: 4095, ..problem }.check(2).unwrap_err().to_string().contains("16 bytes"));
    assert!(Problem { dtype: DType::F32, ..problem }.check(2).unwrap_err().to_string().contains("bf16"));
    assert!(Problem { tokens: 1 << 40, ..problem }.check(2).unwrap_err().to_string().contains("2^31"));
    let plan: Plan = "stages=8".parse().unwrap();
    assert!(plan.fits(&problem, 2).unwrap_err().to_string().contains("shared memory"));
    assert_eq!(plan.to_string().parse(), Ok(plan));
    assert!("lag=1".parse::<Plan>().unwrap_err().contains("no `lag`"));
}

/// Tests 8-bit tokens and matrices with scales that are powers of two, against the same computation
/// on the host.
#[test]
fn scales_travel_with_their_tokens() {
    const TOKENS: usize = 6;
    const HIDDEN: usize = 64;
    const COLUMNS: usize = 72;
    let number = |seed: usize, i: usize| ((i * 7 + i / 11 + seed * 5) % 7) as f64 - 3.0;
    let power = |seed: usize, i: usize| 2f64.powi((i + seed) as i32 % 3 - 1);
    let expert = |pe: usize, i: usize| (i * 3 + pe + i / 4) % 4;
    let gate = |i: usize| 0.25 * (1 + i % 3) as f64;
    let body = |world: &World| {
        let (me, stream) = (world.my_pe() as usize, world.stream());
        let problem = Problem::new(TOKENS as u64, HIDDEN as u64, 4, 2, DType::E4M3);
        let problem = Problem { columns: COLUMNS as u64, ..problem };
        let plan = Plan { bn: 64, stages: 2, ..Plan::of(&problem) };
        let few = Moe::for_few(world, world.team(), problem, plan)?;
        let many = Moe::for_many(world, world.team(), problem, plan)?;
        let bytes = |n: usize, seed: usize| -> Result<AnyTensor, Error> {
            let mut all = Vec::new();
            (0..n).for_each(|i| write_number(DType::E4M3, Number::Float(number(seed, i)), &mut all));
            let buffer = world.buffer(n)?;
            buffer.write(0, &all, stream)?;
            AnyTensor::new(buffer, DType::E4M3, n.into_layout()?)
        };
        let floats = |n: usize, of: &dyn Fn(usize) -> f64| {
            DeviceTensor::from_slice(&(0..n).map(|i| of(i) as f32).collect::<Vec<_>>(), stream)
        };
        let x = bytes(TOKENS * HIDDEN, me)?;
        let x = Flat(&x);
        let b = bytes(2 * COLUMNS * HIDDEN, 8 + me)?;
        let scales = floats(TOKENS, &|i| power(me, i))?;
        let scale_b = floats(2 * COLUMNS, &|i| power(8 + me, i))?;
        let experts: Vec<i32> = (0..2 * TOKENS).map(|i| expert(me, i) as i32).collect();
        let ids = DeviceTensor::<i32>::zeros([TOKENS, 2], stream)?;
        ids.copy_from(&experts, stream)?;
        let live = DeviceTensor::from_slice(&[TOKENS as i32], stream)?;
        let gates = DeviceTensor::<f32>::zeros([TOKENS, 2], stream)?;
        gates.copy_from(&(0..2 * TOKENS).map(|i| gate(i) as f32).collect::<Vec<_>>(), stream)?;
        let out = DeviceTensor::<half::bf16>::zeros([TOKENS, COLUMNS], stream)?;
        let routes = Routes { ids: &ids, live: &live };
        assert!(many.experts(stream, &x, &routes, &b).unwrap_err().to_string().contains("experts_scaled"));
        let apart = |moe: &Moe| {
            moe.experts_scaled(stream, (&x, &scales), &routes, (&b, &scale_b))?;
            moe.combine(stream, &routes, &gates, &out)
        };
        let layer =
            |moe: &Moe| moe.layer_scaled(stream, (&x, &scales), &routes, (&b, &scale_b), &gates, &out);
        type Call<'a> = &'a dyn Fn(&Moe) -> Result<(), GpuError>;
        let calls: [(&Moe, Call<'_>); 4] = [(&few, &apart), (&many, &apart), (&few, &layer), (&many, &layer)];
        for (moe, call) in calls {
            out.copy_from(&[half::bf16::NAN; TOKENS * COLUMNS], stream)?;
            call(moe)?;
            call(moe)?;
            moe.check(stream)?;
            for (i, is) in out.to_vec(stream)?.into_iter().enumerate() {
                let (token, column) = (i / COLUMNS, i % COLUMNS);
                let of_choice = |c: usize| {
                    let e = expert(me, token * 2 + c);
                    let (pe, row) = (e / 2, e % 2 * COLUMNS + column);
                    let both = |l: usize| number(me, token * HIDDEN + l) * number(8 + pe, row * HIDDEN + l);
                    let sum = (0..HIDDEN).map(both).sum::<f64>();
                    gate(token * 2 + c) * sum * power(me, token) * power(8 + pe, row)
                };
                let (sum, size) = (of_choice(0) + of_choice(1), of_choice(0).abs() + of_choice(1).abs());
                assert!(
                    (is.to_f64() - sum).abs() <= size / 64.0,
                    "({token}, {column}) is {is}, expected {sum}"
                );
            }
        }
        Ok::<_, GpuError>(())
    };
    World::simulated(2).unwrap().run(body).unwrap();
}
