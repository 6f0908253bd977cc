//! Tests of collectives by the copy engine on simulated PEs, where each copy is an agent of its own
//! that arrives late and in pieces. They cover every collective and placement, consecutive calls,
//! and graphs that are replayed, with all checks.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

use weft::collective::tuning::Tuning;
use weft::collective::{Algorithm, Call, Collective, Collectives, Config, Placement, Plan};
use weft::runtime::launch::AsArgument;
use weft::runtime::{DeviceTensor, Graph, SimConfig, SymmetricTensor, World};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const WITH_ENGINE: [Collective; 3] = [Collective::AllGather, Collective::Broadcast, Collective::AllToAll];

/// Element `i` of a PE's data in a round.
fn given(pe: u32, round: u32, i: u64) -> i32 {
    (pe * 100_000 + round * 10_000) as i32 + i as i32
}

/// Element `i` of a PE's result.
fn wanted(collective: Collective, (pe, root, round): (u32, u32, u32), count: u64, i: u64) -> i32 {
    match collective {
        Collective::Broadcast => given(root, round, i),
        Collective::AllGather => given((i / count) as u32, round, i % count),
        _ => given((i / count) as u32, round, u64::from(pe) * count + i % count),
    }
}

/// The operands of one call on one PE.
struct Operands {
    x: Option<DeviceTensor<i32>>,
    out: SymmetricTensor<i32>,
    /// The offset of this PE's own data in `out`, for calls in place.
    own: u64,
}

impl Operands {
    fn new(world: &World, collective: Collective, place: Placement, count: u64) -> Result<Operands, Failure> {
        let counts = collective.of_count(count, 4, world.n_pes());
        let x = match place {
            Placement::OutOfPlace => Some(DeviceTensor::zeros(counts.send as usize, world.stream())?),
            Placement::InPlace => None,
        };
        let own = if collective == Collective::AllGather { u64::from(world.my_pe()) * count } else { 0 };
        Ok(Operands { x, out: world.zeros(counts.send.max(counts.recv) as usize)?, own })
    }

    fn fill(&self, world: &World, data: &[i32]) -> Result<(), Failure> {
        match &self.x {
            Some(x) => x.copy_from(data, world.stream())?,
            None => {
                let own = self.own as usize;
                self.out.slice(own..own + data.len())?.copy_from(data, world.stream())?;
            }
        }
        Ok(())
    }

    fn call(&self, collective: Collective, root: u32) -> Call<'_> {
        match &self.x {
            Some(x) => Call { root, ..Call::new(collective, x, Some(&self.out as &dyn AsArgument)) },
            None => Call { root, ..Call::new(collective, &self.out, None) },
        }
    }
}

/// Makes several calls, each with other data, from the host or by one graph that is launched
/// repeatedly.
fn all(n_pes: u32, collective: Collective, place: Placement, graph: bool, count: u64) {
    let algorithm = Algorithm::find(collective, "engine").unwrap();
    if algorithm.kernel(place).is_none() {
        return;
    }
    let root = n_pes - 1;
    let job = World::simulated_with(&SimConfig::new(n_pes).checked().seed(count)).unwrap();
    let results = job.run(|world| -> Result<Vec<Vec<i32>>, Failure> {
        let config = Config::default().ctas(Some(1)).tuning(Tuning::Model);
        let collectives = Collectives::with(world, world.team(), config)?;
        let (me, stream) = (world.my_pe(), world.stream());
        let operands = Operands::new(world, collective, place, count)?;
        let call = operands.call(collective, root);
        let request = collectives.request(&call, stream)?;
        let plan = Plan::of(algorithm, &request, collectives.max_ctas());
        collectives.prepare(&plan, &call, stream)?;
        let captured = match graph {
            true => Some(Graph::capture(stream, |s| collectives.launch(&plan, &call, s))?),
            false => None,
        };
        let mut got = Vec::new();
        for round in 0..3 {
            let counts = request.counts();
            let sent: Vec<i32> = (0..counts.send).map(|i| given(me, round, i)).collect();
            if place == Placement::OutOfPlace || collective == Collective::AllGather || me == root {
                operands.fill(world, &sent)?;
            }
            match &captured {
                Some(graph) => graph.launch()?,
                None => collectives.launch(&plan, &call, stream)?,
            }
            got.push(operands.out.to_vec(stream)?);
            // The host writes the next round's data, to which another PE can still copy in place.
            world.barrier()?;
        }
        Ok(got)
    });
    let what = format!("{collective} {place:?} over {n_pes}, graph: {graph}");
    for (pe, rounds) in results.unwrap_or_else(|e| panic!("{what}: {e}")).iter().enumerate() {
        for (round, got) in rounds.iter().enumerate() {
            let at = (pe as u32, root, round as u32);
            let want: Vec<i32> = (0..got.len() as u64).map(|i| wanted(collective, at, count, i)).collect();
            assert_eq!(got, &want, "{what}: PE {pe}, round {round}");
        }
    }
    let findings = job.simulation().findings();
    assert!(findings.is_empty(), "{what}: {findings:#?}");
}

#[test]
fn calls_one_after_the_other() {
    for collective in WITH_ENGINE {
        for place in [Placement::OutOfPlace, Placement::InPlace] {
            for (n_pes, count) in [(2, 1027), (3, 64), (4, 5)] {
                all(n_pes, collective, place, false, count);
            }
        }
    }
}

#[test]
fn a_graph_that_is_launched_again() {
    for collective in WITH_ENGINE {
        for place in [Placement::OutOfPlace, Placement::InPlace] {
            all(3, collective, place, true, 130);
        }
    }
}

/// Checks that a PE waits only for data of this call's root, although roots have sent different
/// numbers of times.
#[test]
fn roots_of_broadcasts_take_turns() {
    let job = World::simulated_with(&SimConfig::new(3).checked()).unwrap();
    job.run(|world| -> Result<(), Failure> {
        let config = Config::default().ctas(Some(1)).tuning(Tuning::Model);
        let collectives = Collectives::with(world, world.team(), config)?;
        let stream = world.stream();
        let (x, out) = (world.zeros::<i32>(260)?, world.zeros::<i32>(260)?);
        for (round, root) in [1, 1, 2, 0, 2, 1].into_iter().enumerate() {
            let sent: Vec<i32> = (0..260).map(|i| given(world.my_pe(), round as u32, i)).collect();
            x.copy_from(&sent, stream)?;
            let call = Call { root, ..Call::new(Collective::Broadcast, &x, Some(&out)) };
            let algorithm = Algorithm::find(Collective::Broadcast, "engine")?;
            let plan = Plan::of(algorithm, &collectives.request(&call, stream)?, 1);
            collectives.launch(&plan, &call, stream)?;
            let want: Vec<i32> = (0..260).map(|i| given(root, round as u32, i)).collect();
            assert_eq!(out.to_vec(stream)?, want, "round {round} from PE {root}");
        }
        Ok(world.barrier()?)
    })
    .unwrap();
    let findings = job.simulation().findings();
    assert!(findings.is_empty(), "{findings:#?}");
}

/// Checks that other calls of the handle can come in between, and that calls of a handle need
/// nothing between them.
#[test]
fn calls_alternate_with_other_algorithms() {
    let job = World::simulated_with(&SimConfig::new(3).checked()).unwrap();
    job.run(|world| -> Result<(), Failure> {
        let config = Config::default().ctas(Some(2)).tuning(Tuning::Model);
        let collectives = Collectives::with(world, world.team(), config)?;
        let stream = world.stream();
        let (x, out) = (world.zeros::<i32>(48)?, world.zeros::<i32>(48)?);
        let sent: Vec<i32> = (0..48).map(|i| given(world.my_pe(), 0, i)).collect();
        x.copy_from(&sent, stream)?;
        world.barrier()?;
        let there = Call::new(Collective::AllToAll, &x, Some(&out));
        let back = Call::new(Collective::AllToAll, &out, Some(&x));
        for (k, name) in ["engine", "push", "staged", "engine", "ll", "engine"].into_iter().enumerate() {
            let call = if k % 2 == 0 { &there } else { &back };
            let algorithm = Algorithm::find(Collective::AllToAll, name)?;
            let plan = Plan::of(algorithm, &collectives.request(call, stream)?, 2);
            collectives.launch(&plan, call, stream)?;
        }
        // The data goes there and back again, three times.
        assert_eq!(x.to_vec(stream)?, sent);
        Ok(world.barrier()?)
    })
    .unwrap();
    let findings = job.simulation().findings();
    assert!(findings.is_empty(), "{findings:#?}");
}

/// Checks that the copy engine rejects memory outside of the symmetric heap, and PEs of other
/// nodes.
#[test]
fn unsupported_operands_are_errors_with_reasons() {
    let job = World::simulated_with(&SimConfig::new(2).node(Some(1))).unwrap();
    job.run(|world| -> Result<(), Failure> {
        let config = Config::default().ctas(Some(1)).tuning(Tuning::Model);
        let collectives = Collectives::with(world, world.team(), config)?;
        let algorithm = Algorithm::find(Collective::AllGather, "engine")?;
        let (x, out) = (world.zeros::<i32>(8)?, DeviceTensor::<i32>::zeros(16, world.stream())?);
        let call = Call::new(Collective::AllGather, &x, Some(&out));
        let request = collectives.request(&call, world.stream())?;
        let why = algorithm.can(&request).unwrap_err();
        assert!(why.contains("loads and stores that reach all PEs"), "{why}");
        let why = algorithm.can(&weft::collective::Request { reach: true, ..request }).unwrap_err();
        assert!(why.contains("needs its result in the symmetric heap"), "{why}");
        Ok(world.barrier()?)
    })
    .unwrap();
}
