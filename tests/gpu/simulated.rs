//! Tests of features that only simulated worlds have: findings, statistics, seeds, nodes, and
//! reports of deadlocks.

use libtest_mimic::{Failed, Trial};
use weft::gpu::{GpuError, Grid, Kernel};
use weft::runtime::{SimConfig, Simulation, World, error};
use weft::{Define, KernelFile, Lowering, Options};

const TWO_SHOT: &str = include_str!("../../examples/allreduce_two_shot.weft");

/// A kernel in which every PE but the first writes to PE 0. Without the barrier, nothing orders the
/// writes before its read.
const GATHER: &str =
    "kernel gather<ORDERED: bool>(x: symm<u32, (96):(1)>, out: global<u32, (96):(1)>, sync: barrier,
    team: team) block(96)
{
    let there = partition(peer(x, 0, team), threads());
    if my_pe(team) == 1 {
        for i in 0..size<1>(there) { there[_, i] = 7; }
    }
    if ORDERED { barrier(sync, team, acq_rel, sys); }
    let from = partition(x, threads());
    let to = partition(out, threads());
    for i in 0..size<1>(to) { to[_, i] = from[_, i]; }
}";

type Test = fn() -> Result<(), Failed>;

pub fn trials() -> Vec<Trial> {
    let all: [(&str, Test); 6] = [
        ("a_racy_kernel_is_found_and_an_ordered_one_is_not", races),
        ("statistics_count_what_kernels_did", statistics),
        ("a_kernel_that_waits_for_a_pe_is_a_deadlock_on_every_pe", deadlock),
        ("one_seed_gives_one_run", seeds),
        ("nodes_of_every_size_have_one_result", nodes),
        ("two_kernels_on_two_streams_wait_for_each_other", streams),
    ];
    all.into_iter().map(|(name, test)| Trial::test(format!("simulated::world::{name}"), test)).collect()
}

/// Sums over PEs with the two-shot kernel. Returns the result on every PE, and the statistics of
/// the run.
fn two_shot(config: &SimConfig, n: usize) -> Result<(Vec<Vec<f32>>, Simulation), GpuError> {
    let job = World::simulated_with(config)?;
    let sums = job.run(|world| {
        let kernel = Kernel::compile(world, TWO_SHOT, &[("N", Define::Int(n as i64))])?;
        let (x, sync, stream) = (world.tensor::<f32>(n)?, world.kernel_barrier(3)?, world.stream());
        let value = |i: usize| (world.my_pe() as usize * 5 + i % 13) as f32;
        x.copy_from(&(0..n).map(value).collect::<Vec<_>>(), stream)?;
        kernel.launch(stream, Grid::of(3), (&x, &sync, &world.team()))?;
        let sum = x.to_vec(stream)?;
        world.barrier()?;
        Ok::<_, GpuError>(sum)
    })?;
    Ok((sums, job.simulation()))
}

fn want(n_pes: usize, n: usize) -> Vec<f32> {
    (0..n).map(|i| (0..n_pes).map(|pe| (pe * 5 + i % 13) as f32).sum()).collect()
}

fn races() -> Result<(), Failed> {
    for ordered in [false, true] {
        let mut found = 0;
        for seed in 0..6 {
            let config = SimConfig::new(2).checked().seed(seed);
            let job = World::simulated_with(&config)?;
            job.run(|world| {
                let kernel = Kernel::compile(world, GATHER, &[("ORDERED", ordered.into())])?;
                let (x, sync, stream) = (world.zeros::<u32>(96)?, world.kernel_barrier(1)?, world.stream());
                let out = weft::runtime::DeviceTensor::<u32>::zeros(96, stream)?;
                kernel.launch(stream, Grid::of(1), (&x, &out, &sync, &world.team()))?;
                if ordered && world.my_pe() == 0 {
                    assert_eq!(out.to_vec(stream)?, vec![7; 96], "seed {seed}");
                }
                Ok::<_, GpuError>(world.barrier()?)
            })?;
            let findings = job.simulation().findings();
            if let (true, Some(f)) = (ordered, findings.first()) {
                return Err(format!("seed {seed}: {f}").into());
            }
            found += usize::from(findings.iter().any(|f| f.code == "S030" && f.other.is_some()));
        }
        assert_eq!(found, if ordered { 0 } else { 6 }, "runs with a race");
    }
    // The kernel is correct for all lengths and schedules.
    for seed in 0..4 {
        let (sums, simulation) = two_shot(&SimConfig::new(3).checked().seed(seed), 1003)?;
        assert!(sums.iter().all(|sum| *sum == want(3, 1003)), "seed {seed}");
        assert!(simulation.findings().is_empty(), "seed {seed}: {}", simulation.findings()[0]);
    }
    Ok(())
}

fn statistics() -> Result<(), Failed> {
    let (sums, simulation) = two_shot(&SimConfig::new(4), 4099)?;
    assert!(sums.iter().all(|sum| *sum == want(4, 4099)));
    let stats = simulation.stats();
    assert_eq!(stats.len(), 1, "one launch of a kernel of a program's");
    let (_, lanes) = stats[0].count("multimem.ld_reduce");
    let reduced: u64 = stats[0].multicast.iter().map(|m| m.ld_reduce).sum();
    assert!(lanes > 0 && reduced == 4099 * 4, "{lanes} lanes, {reduced} bytes");
    assert!(!stats[0].lines.is_empty(), "the lines of the one module that ran");
    Ok(())
}

fn deadlock() -> Result<(), Failed> {
    let job = World::simulated(3)?;
    let ran = job.run(|world| {
        let kernel = Kernel::compile(world, TWO_SHOT, &[("N", Define::Int(100))])?;
        let (x, sync, stream) = (world.zeros::<f32>(100)?, world.kernel_barrier(1)?, world.stream());
        if world.my_pe() != 2 {
            kernel.launch(stream, Grid::of(1), (&x, &sync, &world.team()))?;
        }
        let e = x.to_vec(stream).and_then(|_| world.barrier()).unwrap_err();
        assert_eq!(e.code, error::SIMULATED, "{e}");
        assert!(
            e.message.contains("S008") && e.message.contains("PE 0") && e.message.contains("PE 1"),
            "{e}"
        );
        assert!(e.message.contains("PE 2 waits in `barrier` for the other PEs"), "{e}");
        Err::<(), GpuError>(e.into())
    });
    assert!(ran.is_err());
    let stopped = job.simulation().stopped().ok_or("nothing stopped")?;
    assert_eq!(stopped.code, "S008");
    assert!(stopped.notes.iter().any(|n| n.contains("PE 1")), "{stopped}");
    Ok(())
}

fn seeds() -> Result<(), Failed> {
    let run = |seed| {
        let config = SimConfig::new(3).checked().seed(seed);
        two_shot(&config, 1003).map(|(sums, simulation)| (sums, simulation.stats()))
    };
    let (first, again, other) = (run(3)?, run(3)?, run(4)?);
    assert_eq!(first, again);
    assert_eq!(first.0, other.0);
    assert_ne!(first.1, other.1, "another seed polls as often as the first");
    Ok(())
}

/// A kernel with a put that is done in place within a node, and by NVSHMEM's function to other
/// nodes.
const RING: &str = "kernel ring(x: symm<u32, (500):(1)>, y: symm<u32, (500):(1)>, team: team) block(128) {
    put<block>(y, x, (my_pe(team) + 1) % n_pes(team), team);
    barrier<block>(team);
}";

fn nodes() -> Result<(), Failed> {
    for (node, stores, calls) in [(4, true, false), (2, true, true), (1, false, true)] {
        let job = World::simulated_with(&SimConfig::new(4).node(Some(node)))?;
        job.run(|world| {
            let mut options = Options::new(weft::gpu::target(world.device())?);
            options.lowering = Lowering::Unicast;
            let kernel = Kernel::with(world, KernelFile::parse("ring.weft", RING)?, options)?;
            let (x, y, stream) = (world.tensor::<u32>(500)?, world.zeros::<u32>(500)?, world.stream());
            let data = |pe: u32| (0..500).map(|i| pe * 1000 + i).collect::<Vec<u32>>();
            x.copy_from(&data(world.my_pe()), stream)?;
            world.barrier()?;
            kernel.launch(stream, Grid::of(1), (&x, &y, &world.team()))?;
            assert_eq!(y.to_vec(stream)?, data((world.my_pe() + 3) % 4), "nodes of {node}");
            Ok::<_, GpuError>(world.barrier()?)
        })?;
        let stats = job.simulation().stats();
        let puts: u64 =
            stats.iter().flat_map(|s| &s.nvshmem.calls).filter(|c| c.0.contains("putmem")).map(|c| c.1).sum();
        let stored: u64 = stats.iter().map(|s| s.remote_stores).sum();
        assert_eq!(
            (stored >= 100, puts > 0),
            (stores, calls),
            "nodes of {node}: {stored} stores, {puts} calls"
        );
    }
    Ok(())
}

/// A kernel in which each PE waits for the other's write, so that none ends unless they run at the
/// same time.
const PING: &str = "kernel ping<FIRST: bool>(flags: symm<u32, (2):(1)>) block(32) {
    if thread_idx() == 0 {
        if FIRST {
            store<release, sys>(flags[0], 1);
            while load<acquire, sys>(flags[1]) == 0 {}
        } else {
            while load<acquire, sys>(flags[0]) == 0 {}
            store<release, sys>(flags[1], 1);
        }
    }
}";

fn streams() -> Result<(), Failed> {
    World::simulated(2)?.run(|world| {
        let compile = |first: bool| Kernel::compile(world, PING, &[("FIRST", first.into())]);
        let (first, second) = (compile(true)?, compile(false)?);
        let other = world.device().new_stream()?;
        let flags = world.zeros::<u32>(2)?;
        first.launch(world.stream(), Grid::of(1), (&flags,))?;
        second.launch(&other, Grid::of(1), (&flags,))?;
        assert_eq!(flags.to_vec(world.stream())?, [1, 1]);
        Ok::<_, GpuError>(world.barrier()?)
    })?;
    Ok(())
}
