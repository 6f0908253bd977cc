//! Tests of the properties of reductions: the error of quantised sums on data of several kinds, and
//! the bits of deterministic sums for any algorithm, plan, split and position.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use half::bf16;
use weft::collective::tuning::Tuning;
use weft::collective::{Algorithm, Call, Collective, Collectives, Config, Plan, Request, Sums};
use weft::runtime::{Element, Reduce, SimConfig, World};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The elements of a block, which has 16 elements in each of `unroll` runs that are `threads` runs
/// apart.
fn blocks(count: usize, n_pes: usize, (threads, unroll): (usize, usize)) -> Vec<Vec<usize>> {
    let row = count.div_ceil(16 * n_pes) * 16;
    let chunk = 16 * threads * unroll;
    let mut all = Vec::new();
    for pe in 0..n_pes {
        for first in (0..row).step_by(chunk) {
            for thread in 0..threads {
                let run = |u: usize| first + (u * threads + thread) * 16;
                let inside = |i: &usize| *i < row && pe * row + i < count;
                let of: Vec<usize> = (0..unroll)
                    .flat_map(|u| run(u)..run(u) + 16)
                    .filter(inside)
                    .map(|i| pe * row + i)
                    .collect();
                all.extend((!of.is_empty()).then_some(of));
            }
        }
    }
    all
}

/// Numbers of a kind that depend on the PE and the element, from a generator with a period of 2^64.
fn data(kind: &str, pe: u32, count: usize) -> Vec<f64> {
    let mut state = u64::from(pe) * 7919 + 17;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    // The sum of twelve numbers is approximately normal, with a standard deviation of 1.
    let normal = |uniform: &mut dyn FnMut() -> f64| (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
    (0..count)
        .map(|i| match kind {
            "normal" => normal(&mut uniform),
            // One element of 97 is a hundred times larger, as in hidden states.
            "outliers" => normal(&mut uniform) * if i % 97 == 5 { 100.0 } else { 1.0 },
            // The numbers of the PEs cancel, except for a small part.
            "opposite" => {
                (if pe == 0 { 1.0 } else { -1.0 }) * ((i % 31) as f64 + 1.0) + normal(&mut uniform) * 1e-3
            }
            "tiny" => normal(&mut uniform) * 1e-38,
            // The largest numbers of the two PEs are 126 and have the sum 252. The numbers that are
            // sent and the sum lie almost midway between two multiples of their scales, so that both
            // are rounded down by the greatest amount.
            "halfway" if i % 16 == 0 => 126.0,
            "halfway" => (i * 37 % 125) as f64 + if i * 2 / count == pe as usize { 0.99 } else { 0.499 },
            _ => 0.0,
        })
        .collect()
}

type Body<'a, T> = dyn Fn(&World, &Collectives) -> Result<Vec<T>, Failure> + Sync + 'a;

/// The results of `body` on every PE, on simulated PEs. The checks must find nothing.
fn on_pes<T: Send>(n_pes: u32, body: &Body<'_, T>) -> Vec<Vec<T>> {
    let job = World::simulated_with(&SimConfig::new(n_pes).checked()).unwrap();
    let results = job.run(|world| {
        let config = Config::default().ctas(Some(3)).tuning(Tuning::Model);
        body(world, &Collectives::with(world, world.team(), config)?)
    });
    let results = results.unwrap();
    let findings = job.simulation().findings();
    assert!(findings.is_empty(), "{findings:#?}");
    results
}

/// Launches a call by a plan.
fn launch(
    world: &World,
    collectives: &Collectives,
    plan: &PlanOf<'_>,
    call: &Call<'_>,
) -> Result<(), Failure> {
    let request = collectives.request(call, world.stream())?;
    Ok(collectives.launch(&plan(&request), call, world.stream())?)
}

/// The results of an allreduce on every PE, by a plan, in parts.
fn allreduce<T: Element>(
    n_pes: u32,
    plan: &PlanOf<'_>,
    parts: &[(usize, usize)],
    given: &(dyn Fn(u32) -> Vec<T> + Sync),
) -> Vec<Vec<T>> {
    on_pes(n_pes, &|world, collectives| {
        let given = given(world.my_pe());
        let x = world.zeros::<T>(given.len())?;
        let out = world.zeros::<T>(given.len())?;
        x.copy_from(&given, world.stream())?;
        world.barrier()?;
        for (from, to) in parts {
            let (x, out) = (x.slice(*from..*to)?, out.slice(*from..*to)?);
            let call = Call::new(Collective::AllReduce, &x, Some(&out));
            launch(world, collectives, plan, &call)?;
        }
        let got = out.to_vec(world.stream())?;
        world.barrier()?;
        Ok(got)
    })
}

/// The results of a reduce-scatter on every PE, by a plan, with a batch of rows split into parts.
/// `given` has one row for each PE.
fn reduce_scatter<T: Element>(
    n_pes: u32,
    plan: &PlanOf<'_>,
    parts: &[(usize, usize)],
    given: &(dyn Fn(u32) -> Vec<T> + Sync),
) -> Vec<Vec<T>> {
    on_pes(n_pes, &|world, collectives| {
        let given = given(world.my_pe());
        let count = given.len() / n_pes as usize;
        let out = world.zeros::<T>(count)?;
        let operands = parts.iter().map(|(from, to)| {
            let part: Vec<T> = given.chunks(count).flat_map(|row| &row[*from..*to]).copied().collect();
            let x = world.zeros::<T>(part.len())?;
            x.copy_from(&part, world.stream())?;
            Ok(x)
        });
        let operands = operands.collect::<Result<Vec<_>, Failure>>()?;
        world.barrier()?;
        for ((from, to), x) in parts.iter().zip(&operands) {
            let out = out.slice(*from..*to)?;
            let call = Call::new(Collective::ReduceScatter, x, Some(&out));
            launch(world, collectives, plan, &call)?;
        }
        let got = out.to_vec(world.stream())?;
        world.barrier()?;
        Ok(got)
    })
}

fn named(name: &str) -> &'static Algorithm {
    Algorithm::find(Collective::AllReduce, name).unwrap()
}

/// Checks that every element is within the bound of its own block, and that errors come near to
/// this bound.
#[test]
fn quantised_sums_are_within_their_bound() {
    let (threads, unroll) = (32, 2);
    for (n_pes, count, kind) in [
        (2u32, 5000usize, "normal"),
        (3, 4099, "outliers"),
        (2, 2048, "opposite"),
        (4, 1000, "tiny"),
        (2, 4000, "halfway"),
        (2, 333, "zeros"),
    ] {
        let given: Vec<Vec<f32>> =
            (0..n_pes).map(|pe| data(kind, pe, count).iter().map(|x| *x as f32).collect()).collect();
        let plan = |_: &Request| Plan { algorithm: named("quantised"), ctas: 2, threads: 32, unroll: 2 };
        let got = allreduce::<f32>(n_pes, &plan, &[(0, count)], &|pe| given[pe as usize].clone());
        assert!(got.iter().all(|of| of == &got[0]), "{kind}: PEs differ");
        let exact = |i: usize| given.iter().map(|of| f64::from(of[i])).sum::<f64>();
        let mut nearest: f64 = 0.0;
        for block in blocks(count, n_pes as usize, (threads, unroll)) {
            let max = |of: &dyn Fn(usize) -> f64| block.iter().map(|i| of(*i).abs()).fold(0.0, f64::max);
            let largest: Vec<f64> = given.iter().map(|of| max(&|i| f64::from(of[i]))).collect();
            // Blocks whose scale has no inverse become zeros, with an absolute error of their size.
            let tiny = 126.0 * 1e-36 * f64::from(n_pes);
            let bound = Sums::quantised_error(&largest, max(&exact)) + tiny;
            for i in &block {
                let error = (f64::from(got[0][*i]) - exact(*i)).abs();
                assert!(error <= bound, "{kind} over {n_pes}, element {i}: off by {error}, bound {bound}");
                nearest = nearest.max(error / bound);
            }
        }
        let min = match kind {
            "normal" => 0.5,
            "halfway" => 0.97,
            _ => 0.0,
        };
        assert!(nearest >= min, "{kind}: the bound is {:.2} times the greatest error", 1.0 / nearest);
    }
}

/// Checks that NaN and infinity appear in every result of their block, and nowhere else.
#[test]
fn quantised_blocks_with_infinities_are_nan() {
    let count = 2048;
    let given = |pe: u32| {
        let mut all: Vec<bf16> = data("normal", pe, count).into_iter().map(bf16::from_f64).collect();
        if pe == 1 {
            all[100] = bf16::INFINITY;
            all[1500] = bf16::NAN;
        }
        all
    };
    let plan = |_: &Request| Plan { algorithm: named("quantised"), ctas: 1, threads: 32, unroll: 1 };
    let got = allreduce::<bf16>(2, &plan, &[(0, count)], &given);
    for (i, x) in got[0].iter().enumerate() {
        let hit = [100, 1500].iter().any(|bad| bad / 16 == i / 16);
        assert_eq!(x.is_nan(), hit, "element {i} is {x}");
    }
}

/// Checks that quantised sums are used only if they are requested.
#[test]
fn quantised_sums_are_chosen_only_if_asked_for() {
    let choose = |sums, bytes: u64| {
        let request =
            Request { sums, ..Request::new(Collective::AllReduce, weft::runtime::DType::BF16, bytes / 2, 2) };
        Plan::choose(&request, 132, &weft::collective::Links::H200).unwrap().algorithm.name
    };
    for bytes in (10..31).map(|k| 1u64 << k) {
        assert_ne!(choose(Sums::Ordinary, bytes), "quantised", "{bytes}");
        assert_ne!(choose(Sums::Deterministic, bytes), "quantised", "{bytes}");
    }
    for bytes in [1u64 << 10, 1 << 20] {
        assert_eq!(choose(Sums::Quantised, bytes), "lamport", "{bytes}");
    }
    for bytes in [16u64 << 20, 64 << 20] {
        assert_eq!(choose(Sums::Quantised, bytes), "quantised", "{bytes}");
    }
}

/// The bits of sums over three PEs in the order of ranks. `all` has the elements of each PE. They are
/// chosen so that another order gives other bits.
fn ranked(all: &[Vec<f32>]) -> Vec<u32> {
    let sum = |i: usize, [a, b, c]: [usize; 3]| (all[a][i] + all[b][i] + all[c][i]).to_bits();
    let count = all[0].len();
    assert!((0..count).any(|i| sum(i, [2, 1, 0]) != sum(i, [0, 1, 2])));
    (0..count).map(|i| sum(i, [0, 1, 2])).collect()
}

fn bits(of: &[f32]) -> Vec<u32> {
    of.iter().map(|x| x.to_bits()).collect()
}

type PlanOf<'a> = dyn Fn(&Request) -> Plan + Sync + 'a;

/// Calls `check` with every algorithm of a collective that can make deterministic sums, and with
/// several plans of each.
fn each_strict_plan(
    collective: Collective,
    count: usize,
    check: &dyn Fn(&'static Algorithm, &PlanOf<'_>),
) -> usize {
    let any = Request::new(collective, weft::runtime::DType::F32, count as u64, 3);
    let strict = Request { sums: Sums::Deterministic, ..any };
    let allowed: Vec<_> = Algorithm::of(collective).filter(|a| a.allowed(&strict).is_ok()).collect();
    for algorithm in &allowed {
        for (threads, unroll) in [(32, 1), (64, 2)] {
            check(algorithm, &move |r: &Request| {
                let plan = Plan::of(algorithm, r, 3);
                let small = Plan { threads, unroll, ctas: plan.ctas.min(2), ..plan };
                match algorithm.name {
                    "net" => plan,
                    // One round needs a place for each element.
                    _ if algorithm.lamport && small.check(r, 3).is_err() => plan,
                    _ => small,
                }
            });
        }
    }
    allowed.len()
}

/// Checks that all algorithms, plans, splits and positions of deterministic sums give the same bits.
#[test]
fn deterministic_sums_have_the_same_bits() {
    const COUNT: usize = 1603;
    let given = |pe: u32| -> Vec<f32> { data("outliers", pe, COUNT).into_iter().map(|x| x as f32).collect() };
    let splits: [&[(usize, usize)]; 3] =
        [&[(0, COUNT)], &[(0, 700), (700, COUNT)], &[(0, 1), (1, 64), (64, 1000), (1000, COUNT)]];
    let ranked = ranked(&[0, 1, 2].map(given));
    let algorithms = each_strict_plan(Collective::AllReduce, COUNT, &|algorithm, plan| {
        // Three buffers take turns with `lamport`, so the fourth launch reads the places of the first.
        let many = if algorithm.lamport { splits[2] } else { splits[1 + algorithm.name.len() % 2] };
        for parts in [splits[0], many] {
            for of in allreduce::<f32>(3, plan, parts, &given) {
                assert!(bits(&of) == ranked, "{} {parts:?}", algorithm.name);
            }
        }
    });
    assert!(algorithms >= 6, "{algorithms}");
}

/// Checks the same for reduce-scatter, in which each PE receives its row of the sums.
#[test]
fn deterministic_sums_of_rows_have_the_same_bits() {
    const COUNT: usize = 812;
    let given =
        |pe: u32| -> Vec<f32> { data("outliers", pe, 3 * COUNT).into_iter().map(|x| x as f32).collect() };
    let splits: [&[(usize, usize)]; 3] =
        [&[(0, COUNT)], &[(0, 300), (300, COUNT)], &[(0, 4), (4, 5), (5, 500), (500, COUNT)]];
    let ranked = ranked(&[0, 1, 2].map(given));
    let algorithms = each_strict_plan(Collective::ReduceScatter, COUNT, &|algorithm, plan| {
        for parts in splits {
            let got = reduce_scatter::<f32>(3, plan, parts, &given);
            for (of, row) in got.iter().zip(ranked.chunks(COUNT)) {
                assert!(bits(of) == row, "{} {parts:?}", algorithm.name);
            }
        }
    });
    assert!(algorithms >= 4, "{algorithms}");
}

/// Checks that a handle with deterministic sums chooses among those algorithms for every size.
#[test]
fn a_handle_chooses_only_permitted_algorithms() {
    let job = World::simulated_with(&SimConfig::new(3)).unwrap();
    job.run(|world| -> Result<(), Failure> {
        let config = Config::default().ctas(Some(2)).tuning(Tuning::Model).sums(Sums::Deterministic);
        let collectives = Collectives::with(world, world.team(), config)?;
        let x = world.zeros::<bf16>(1 << 20)?;
        for count in [64, 1 << 14, 1 << 20] {
            let x = x.slice(0..count)?;
            let call = Call::new(Collective::AllReduce, &x, None);
            let request = collectives.request(&call, world.stream())?;
            assert_eq!(request.sums, Sums::Deterministic);
            let plan = collectives.plan(&call, world.stream())?;
            assert_eq!((plan.algorithm.sums)(&request), Sums::Deterministic, "{count}");
            let asked = Call { sums: Some(Sums::Quantised), ..call };
            assert_eq!(collectives.request(&asked, world.stream())?.sums, Sums::Quantised);
        }
        let call = Call { op: Reduce::Max, ..Call::new(Collective::AllReduce, &x, None) };
        collectives.run(&call, world.stream())?;
        Ok(world.barrier()?)
    })
    .unwrap();
}
