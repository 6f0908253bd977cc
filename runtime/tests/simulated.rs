//! Worlds of simulated PEs: memory, order on streams, what PEs do together, and how jobs end that go wrong.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use weft_runtime::cuda::Event;
use weft_runtime::{Compare, DeviceTensor, Error, Graph, Reduce, Result, SignalOp, SimConfig, World, error};

/// Sizes that are no multiples of anything.
const N: usize = 1003;

fn datum(pe: u32, i: usize, round: u32) -> u32 {
    pe * 1_000_003 + i as u32 * 7 + round * 131
}

fn data(pe: u32, n: usize, round: u32) -> Vec<u32> {
    (0..n).map(|i| datum(pe, i, round)).collect()
}

/// Runs a body on so many simulated PEs, with every schedule of a few seeds, and not for ever.
fn run<T: Send>(n_pes: u32, body: impl Fn(&World) -> Result<T> + Sync) -> Vec<T> {
    World::simulated(n_pes).unwrap().run(body).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn tensors_are_symmetric_and_copies_reach_every_pe() {
    let sums = run(3, |world| {
        let (me, stream) = (world.my_pe(), world.stream());
        let x = world.tensor::<u32>(N)?;
        x.copy_from(&data(me, N, 0), stream)?;
        world.barrier()?;
        for pe in 0..world.n_pes() {
            assert_eq!(x.peer(pe)?.to_vec(stream)?, data(pe, N, 0), "PE {pe} as PE {me} sees it");
        }
        world.barrier()?;
        let next = (me + 1) % world.n_pes();
        x.peer(next)?.copy_from(&data(me, N, 1), stream)?;
        world.barrier()?;
        assert_eq!(x.to_vec(stream)?, data((me + 2) % 3, N, 1));
        assert_eq!(x.slice(5..9)?.to_vec(stream)?, data((me + 2) % 3, N, 1)[5..9]);
        let zeros = world.zeros::<f32>([3, 5])?;
        assert_eq!(zeros.to_vec(stream)?, vec![0.0; 15]);
        assert_eq!(x.peer(3).unwrap_err().code, error::NOT_IN_TEAM);
        Ok(x.to_vec(stream)?.iter().map(|v| u64::from(*v)).sum::<u64>())
    });
    let want: Vec<u64> =
        (0..3).map(|me| data((me + 2) % 3, N, 1).iter().map(|v| u64::from(*v)).sum()).collect();
    assert_eq!(sums, want);
}

#[test]
fn memory_is_freed_and_its_end_is_told_to_all() {
    let config = SimConfig::new(2).memory_limit(8 << 20);
    let job = World::simulated_with(&config).unwrap();
    job.run(|world| -> Result<()> {
        for round in 0..60 {
            let x = world.tensor::<u32>(300_000 + round as usize)?;
            let y = DeviceTensor::<u32>::alloc(world.device(), 200_000_usize)?;
            x.copy_from(&data(world.my_pe(), 300_000 + round as usize, round), world.stream())?;
            y.fill(7, world.stream())?;
        }
        let e = world.buffer(5 << 20).unwrap_err();
        assert_eq!(e.code, error::OUT_OF_MEMORY, "{e}");
        let e = DeviceTensor::<u8>::alloc(world.device(), 9_usize << 20).unwrap_err();
        assert_eq!(e.code, error::OUT_OF_MEMORY, "{e}");
        assert_eq!(world.zeros::<u8>(1000)?.to_vec(world.stream())?, vec![0; 1000]);
        Ok(())
    })
    .unwrap();
}

#[test]
fn puts_gets_and_signals_follow_their_streams() {
    run(4, |world| {
        let (me, n, stream) = (world.my_pe(), world.n_pes(), world.stream());
        let (next, previous) = ((me + 1) % n, (me + n - 1) % n);
        let (source, dest) = (world.tensor::<u32>(N)?, world.zeros::<u32>(N)?);
        source.copy_from(&data(me, N, 0), stream)?;
        world.put(&dest, &source, next, stream)?;
        world.team().barrier(stream)?;
        assert_eq!(dest.to_vec(stream)?, data(previous, N, 0));
        let own = DeviceTensor::<u32>::zeros(N, stream)?;
        world.get(&own, &source, (me + 2) % n, stream)?;
        assert_eq!(own.to_vec(stream)?, data((me + 2) % n, N, 0));
        // A signal behind data, round after round, with nobody's host waiting in between.
        let ready = world.signal()?;
        for round in 1..6 {
            let other = world.device().new_stream()?;
            source.copy_from(&data(me, N, round), stream)?;
            let update = (&ready, SignalOp::Add, 1);
            match round % 2 {
                0 => world.put_signal_nbi(&dest, &source, update, next, stream)?,
                _ => world.put_signal(&dest, &source, update, next, stream)?,
            }
            world.signal_wait(&ready, Compare::Ge, u64::from(round), &other)?;
            assert_eq!(dest.to_vec(&other)?, data(previous, N, round), "round {round}");
            assert_eq!(ready.get(&other)?, u64::from(round));
            world.quiet(stream)?;
            world.barrier()?;
        }
        world.signal_op(&ready, SignalOp::Set, 99, next, stream)?;
        world.signal_wait(&ready, Compare::Eq, 99, stream)?;
        world.barrier()
    });
}

#[test]
fn teams_split_and_their_collectives_agree_with_plain_sums() {
    run(4, |world| {
        let (me, n, stream, all) = (world.my_pe(), world.n_pes(), world.stream(), world.team());
        let even = all.split_strided(0, 2, 2)?;
        assert_eq!(even.as_ref().map(|t| t.members().to_vec()), (me % 2 == 0).then(|| vec![0, 2]));
        let (row, column) = all.split_2d(3)?;
        let rows = [vec![0, 1, 2], vec![3]];
        assert_eq!(row.members(), rows[(me / 3) as usize]);
        assert_eq!(column.members(), if me % 3 == 0 { vec![0, 3] } else { vec![me] });
        let backwards = all.list(&[3, 1, 0])?;
        assert_eq!(
            backwards.as_ref().map(weft_runtime::Team::my_pe),
            [Some(2), Some(1), None, Some(0)][me as usize]
        );
        for team in [Some(&all), even.as_ref(), Some(&row), Some(&column), backwards.as_ref()] {
            let (x, y) = (world.tensor::<f32>(N)?, world.zeros::<f32>(N)?);
            let value = |pe: u32, i: usize| (pe * 3 + 1) as f32 * (i % 37) as f32;
            x.copy_from(&(0..N).map(|i| value(me, i)).collect::<Vec<_>>(), stream)?;
            world.barrier()?;
            if let Some(team) = team {
                team.reduce(Reduce::Sum, &y, &x, stream)?;
                let sum = |i| team.members().iter().map(|pe| value(*pe, i)).sum::<f32>();
                assert_eq!(y.to_vec(stream)?, (0..N).map(sum).collect::<Vec<_>>(), "{team:?}");
                team.broadcast(&y, &x, team.n_pes() - 1, stream)?;
                let last = *team.members().last().unwrap();
                assert_eq!(y.to_vec(stream)?, (0..N).map(|i| value(last, i)).collect::<Vec<_>>());
            }
            world.barrier()?;
        }
        // Moves of all PEs, of a type that NVSHMEM has no name for.
        let part = 31;
        let byte =
            |from: u32, to: u32, i: usize| float8::F8E4M3::from_f32((from * 4 + to + i as u32 % 3) as f32);
        let x = world.tensor::<float8::F8E4M3>(part * n as usize)?;
        let y = world.tensor::<float8::F8E4M3>(part * n as usize)?;
        x.copy_from(
            &(0..n).flat_map(|to| (0..part).map(move |i| byte(me, to, i))).collect::<Vec<_>>(),
            stream,
        )?;
        world.barrier()?;
        all.alltoall(&y, &x, stream)?;
        let want: Vec<_> = (0..n).flat_map(|from| (0..part).map(move |i| byte(from, me, i))).collect();
        assert_eq!(y.to_vec(stream)?, want);
        all.fcollect(&y, &x.slice(0..part)?, stream)?;
        let want: Vec<_> = (0..n).flat_map(|from| (0..part).map(move |i| byte(from, 0, i))).collect();
        assert_eq!(y.to_vec(stream)?, want);
        let e = all.reduce(Reduce::Sum, &y, &x, stream).unwrap_err();
        assert_eq!(e.code, error::OPERATION, "{e}");
        world.barrier()
    });
}

#[test]
fn nodes_bound_what_loads_and_stores_reach() {
    let config = SimConfig::new(4).node(Some(2));
    let job = World::simulated_with(&config).unwrap();
    job.run(|world| -> Result<()> {
        let (me, stream) = (world.my_pe(), world.stream());
        let x = world.tensor::<u32>(N)?;
        x.copy_from(&data(me, N, 0), stream)?;
        world.barrier()?;
        let node = me / 2 * 2;
        assert_eq!(world.team_node()?.members(), [node, node + 1]);
        assert_eq!(world.team_same_place()?.members(), [me % 2, me % 2 + 2]);
        assert_eq!(world.team_shared()?.my_pe(), me % 2);
        let other = (me + 2) % 4;
        assert_eq!(x.peer(other).unwrap_err().code, error::UNREACHABLE);
        assert_eq!(x.peer(node)?.to_vec(stream)?, data(node, N, 0));
        assert!(x.multicast(&world.team_node()?).is_some() && x.multicast(&world.team()).is_none());
        // Puts and gets go everywhere.
        let y = DeviceTensor::<u32>::zeros(N, stream)?;
        world.get(&y, &x, other, stream)?;
        assert_eq!(y.to_vec(stream)?, data(other, N, 0));
        world.barrier()
    })
    .unwrap();
}

#[test]
fn registered_memory_and_exported_tensors_stay_as_long_as_they_are_used() {
    use weft_runtime::ImportedTensor;
    use weft_runtime::dlpark::ffi::DLManagedTensorVersioned;
    run(2, |world| {
        let (me, stream) = (world.my_pe(), world.stream());
        let buffer = world.register(world.vmm(N * 4)?)?;
        let x = weft_runtime::SymmetricTensor::<u32>::view(buffer, 256, N)?;
        x.copy_from(&data(me, N, 0), stream)?;
        world.barrier()?;
        let y = DeviceTensor::<u32>::zeros(N, stream)?;
        world.get(&y, &x, 1 - me, stream)?;
        assert_eq!(y.to_vec(stream)?, data(1 - me, N, 0));
        // SAFETY: it is refused: it is no mapping.
        #[allow(unsafe_code, reason = "the address is refused before it is used")]
        let refused = unsafe { world.register_raw(y.address(), N * 4) };
        assert_eq!(refused.unwrap_err().code, error::REGISTER);

        let exported = x.to_dlpack::<DLManagedTensorVersioned>()?;
        drop(x);
        // SAFETY: exported above.
        #[allow(unsafe_code, reason = "DLPack hands addresses over")]
        let imported: ImportedTensor<u32> = unsafe { ImportedTensor::from_dlpack(exported)? };
        assert_eq!(imported.device(), world.device());
        let z = world.zeros::<u32>(N)?;
        world.put(&z, &imported, 1 - me, stream)?;
        world.team().barrier(stream)?;
        assert_eq!(z.to_vec(stream)?, data(1 - me, N, 0));
        drop(imported);
        world.collect()
    });
}

#[test]
fn graphs_replay_what_was_captured_on_several_streams() {
    run(3, |world| {
        let (me, n, stream) = (world.my_pe(), world.n_pes(), world.stream());
        let (x, y, z) = (world.tensor::<u32>(N)?, world.zeros::<u32>(N)?, world.zeros::<u32>(N)?);
        let other = world.device().new_stream()?;
        let (begun, done) = (Event::new(world.device())?, Event::new(world.device())?);
        let graph = Graph::capture(stream, |stream| -> Result<()> {
            begun.capture(stream)?;
            let fork = Event::record(stream)?;
            fork.wait(&other)?;
            world.put(&z, &x, (me + 2) % n, &other)?;
            let join = Event::record(&other)?;
            world.put(&y, &x, (me + 1) % n, stream)?;
            join.wait(stream)?;
            world.team().barrier(stream)?;
            done.capture(stream)
        })?;
        assert!(y.to_vec(stream)?.iter().all(|v| *v == 0), "nothing runs while it is captured");
        for round in 1..5 {
            x.copy_from(&data(me, N, round), stream)?;
            world.barrier()?;
            graph.launch()?;
            assert_eq!(y.to_vec(stream)?, data((me + 2) % n, N, round));
            assert_eq!(z.to_vec(stream)?, data((me + 1) % n, N, round));
            assert!(begun.elapsed_us(&done)? >= 0.0);
            world.barrier()?;
        }
        Ok(())
    });
}

#[test]
fn events_order_streams_and_hosts() {
    run(2, |world| {
        let (me, stream, other) = (world.my_pe(), world.stream(), world.device().new_stream()?);
        let (x, flag) = (world.zeros::<u32>(N)?, world.signal()?);
        // The other stream waits for a signal; this one for the other stream.
        world.signal_wait(&flag, Compare::Eq, 5, &other)?;
        let reached = Event::record(&other)?;
        reached.wait(stream)?;
        let copy = DeviceTensor::<u32>::zeros(N, &other)?;
        world.get(&copy, &x, me, stream)?;
        x.peer(1 - me)?.copy_from(&data(me, N, 0), &world.device().default_stream())?;
        world.signal_op(&flag, SignalOp::Set, 5, 1 - me, &world.device().default_stream())?;
        reached.synchronize()?;
        assert_eq!(copy.to_vec(stream)?, data(1 - me, N, 0));
        world.barrier()
    });
}

#[test]
fn a_failure_of_one_pe_ends_the_others_and_is_the_jobs() {
    let began = Instant::now();
    let job = World::simulated(3).unwrap();
    let others = AtomicU32::new(0);
    let e = job.run(|world| -> Result<()> {
        if world.my_pe() == 1 {
            return Err(Error::new(error::SHAPE, "the reason of PE 1"));
        }
        let e = world.barrier().unwrap_err();
        assert_eq!((e.code, e.message.contains("the reason of PE 1")), (error::PEER_DIED, true), "{e}");
        others.fetch_add(1, Ordering::SeqCst);
        Err(e)
    });
    assert_eq!(e.unwrap_err().message, "the reason of PE 1");
    assert_eq!(others.load(Ordering::SeqCst), 2);
    let e = World::simulated(2).unwrap().run(|world| -> Result<()> {
        if world.my_pe() == 0 {
            panic!("a panic of PE 0");
        }
        world.barrier()
    });
    let e = e.unwrap_err();
    assert_eq!((e.code, e.message.contains("a panic of PE 0")), (error::PEER_DIED, true), "{e}");
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[test]
fn waits_that_nobody_ends_say_who_waits_for_what() {
    // On the device.
    let job = World::simulated(2).unwrap();
    let e = job.run(|world| -> Result<()> {
        let signal = world.signal()?;
        if world.my_pe() == 1 {
            world.signal_wait(&signal, Compare::Ne, 0, world.stream())?;
        }
        world.stream().synchronize()?;
        world.barrier()
    });
    let e = e.unwrap_err();
    assert_eq!(e.code, error::SIMULATED, "{e}");
    assert!(e.message.contains("S008") && e.message.contains("signal_wait_until"), "{e}");
    assert!(e.message.contains("PE 0 waits in `barrier` for the other PEs"), "{e}");
    assert_eq!(job.simulation().stopped().unwrap().code, "S008");
    // On the host: different calls, and a PE that has gone.
    run(2, |world| {
        let met = if world.my_pe() == 0 { world.buffer(64).map(drop) } else { world.barrier() };
        let e = met.unwrap_err();
        assert_eq!(e.code, error::COLLECTIVE, "{e}");
        assert!(e.message.contains("allocation of 64 bytes") && e.message.contains("barrier"), "{e}");
        world.barrier()
    });
    let e = World::simulated(2).unwrap().run(|world| -> Result<()> {
        match world.my_pe() {
            0 => world.team().list(&[0]).map(drop),
            _ => world.barrier(),
        }
    });
    let e = e.unwrap_err();
    assert!(e.code == error::COLLECTIVE || e.code == error::PEER_DIED, "{e}");
}

#[test]
fn unequal_sizes_are_an_error_on_every_pe() {
    run(2, |world| {
        let e = world.buffer(1000 + 24 * world.my_pe() as usize).unwrap_err();
        assert_eq!(e.code, error::COLLECTIVE);
        assert!(e.message.contains("1000") && e.message.contains("1024"), "{e}");
        let (x, y) = (world.zeros::<f32>(64)?, world.zeros::<f32>(64)?);
        let n = if world.my_pe() == 1 { 32 } else { 64 };
        let e = world.team().reduce(Reduce::Sum, &y.slice(0..n)?, &x.slice(0..n)?, world.stream());
        assert_eq!(e.unwrap_err().code, error::COLLECTIVE);
        world.team().reduce(Reduce::Sum, &y, &x, world.stream())?;
        assert_eq!(y.to_vec(world.stream())?, vec![0.0; 64]);
        world.barrier()
    });
}

/// Two PEs write to the same memory: a race, unless something on their streams or hosts comes in between.
#[test]
fn the_order_of_streams_events_and_hosts_is_known_to_the_check_for_races() {
    let puts = |order: u32| {
        let job = World::simulated_with(&SimConfig::new(2).checked()).unwrap();
        job.run(|world| -> Result<()> {
            let (me, stream) = (world.my_pe(), world.stream());
            let (x, y) = (world.zeros::<u32>(N)?, world.zeros::<u32>(N)?);
            let other = world.device().new_stream()?;
            world.barrier()?;
            match order {
                // Nothing.
                0 => world.put(&y, &x, 0, stream)?,
                // One PE's put, and after all have come the other's.
                1 => {
                    for pe in 0..2 {
                        if pe == me {
                            world.put(&y, &x, 0, stream)?;
                        }
                        world.team().barrier(stream)?;
                    }
                }
                // One PE alone, on two streams of which one waits for the other, in both directions.
                2 if me == 0 => {
                    world.put(&y, &x, 1, stream)?;
                    world.quiet(stream)?;
                    Event::record(stream)?.wait(&other)?;
                    world.put(&y, &x, 1, &other)?;
                    world.quiet(&other)?;
                    other.synchronize()?;
                    world.put(&y, &x, 1, stream)?;
                }
                // The same without the wait.
                3 if me == 0 => {
                    world.put(&y, &x, 1, stream)?;
                    world.put(&y, &x, 1, &other)?;
                }
                _ => {}
            }
            world.barrier()
        })
        .unwrap();
        job.simulation().findings()
    };
    for (order, racy) in [(0, true), (1, false), (2, false), (3, true)] {
        let found = puts(order);
        assert_eq!(!found.is_empty(), racy, "order {order}: {found:?}");
        assert!(found.iter().all(|f| f.at.place.kernel.ends_with("_on_stream")), "{found:?}");
    }
}

/// What one seed does, it does again, whatever the threads do.
#[test]
fn one_seed_gives_one_run() {
    let told = |seed: u64| {
        let config = SimConfig::new(3).seed(seed).explore(true);
        let job = World::simulated_with(&config).unwrap();
        let out = job.run(|world| -> Result<Vec<u32>> {
            let (me, stream) = (world.my_pe(), world.stream());
            let (x, y) = (world.tensor::<u32>(7)?, world.zeros::<u32>(7)?);
            x.copy_from(&data(me, 7, 0), stream)?;
            world.barrier()?;
            // Unordered: which of the two comes last is the schedule's. The threads are not as fast as each other.
            std::thread::sleep(Duration::from_millis(u64::from((seed as u32 + me * 7) % 11)));
            world.put(&y, &x, 0, stream)?;
            world.barrier()?;
            let out = y.to_vec(stream)?;
            world.barrier()?;
            Ok(out)
        });
        out.unwrap()
    };
    let runs: Vec<_> = (0..12).map(|seed| (told(seed), told(seed))).collect();
    assert!(runs.iter().all(|(a, b)| a == b), "{runs:?}");
    assert!(runs.iter().any(|(a, _)| *a != runs[0].0), "every seed gave the same: {:?}", runs[0].0);
}

#[test]
fn worlds_last_from_one_call_to_the_next() {
    let config = SimConfig::new(4).heap(Some(1 << 20));
    let job = World::simulated_with(&config).unwrap();
    let worlds = job.worlds().unwrap();
    let all = |results: Vec<Result<Tensor>>| results.into_iter().collect::<Result<Vec<_>>>().unwrap();
    type Tensor = weft_runtime::SymmetricTensor<u32>;
    let tensors = all(job.each(&worlds, |world| {
        let x = world.zeros::<u32>(64)?;
        x.buffer().free_later();
        x.copy_from(&data(world.my_pe(), 64, 1), world.stream())?;
        Ok(x)
    }));
    // A later call of all PEs finds the memory of the one before, at the same place in this process.
    let host = |pe: usize| job.simulation().host_address(pe as u32, tensors[pe].address(), 256).unwrap();
    let before: Vec<usize> = (0..4).map(host).collect();
    let sums = job.each(&worlds, |world| -> Result<Vec<u32>> {
        let (stream, me) = (world.stream(), world.my_pe() as usize);
        let next = world.zeros::<u32>(64)?;
        world.put(&next, &tensors[me], (world.my_pe() + 1) % 4, stream)?;
        world.quiet(stream)?;
        world.barrier()?;
        next.to_vec(stream)
    });
    for (pe, got) in sums.into_iter().enumerate() {
        assert_eq!(got.unwrap(), data((pe as u32 + 3) % 4, 64, 1));
    }
    assert_eq!((0..4).map(host).collect::<Vec<_>>(), before);
    // An error of one PE is its own; who waits for it gets one too, and the worlds go on.
    let results = job.each(&worlds, |world| match world.my_pe() {
        2 => Err(Error::new(error::SHAPE, "PE 2 will not")),
        _ => world.barrier(),
    });
    let codes: Vec<_> = results.into_iter().map(|r| r.unwrap_err().code).collect();
    assert_eq!(codes, [error::COLLECTIVE, error::COLLECTIVE, error::SHAPE, error::COLLECTIVE]);
    assert!(job.each(&worlds, World::barrier).into_iter().all(|r| r.is_ok()));
    // A heap of a fixed size does not grow.
    let full = job.each(&worlds, |world| world.tensor::<u32>(1 << 20).map(drop));
    assert!(full.into_iter().all(|r| r.unwrap_err().code == error::OUT_OF_MEMORY));
    drop(tensors);
    let ended = job.each(&worlds, |world| Ok::<_, Error>(world.clone().finalize()?.len()));
    assert!(ended.into_iter().all(|leaks| leaks == Ok(0)));
}

#[test]
fn an_interrupt_ends_every_wait() {
    let config = SimConfig::new(2).stop(Some(Arc::default()));
    let job = World::simulated_with(&config).unwrap();
    let worlds = job.worlds().unwrap();
    let results = std::thread::scope(|scope| {
        let simulation = job.simulation();
        scope.spawn(move || {
            std::thread::sleep(std::time::Duration::from_millis(100));
            simulation.interrupt();
        });
        // PE 1 is busy, as far as PE 0 knows.
        job.each(&worlds, |world| match world.my_pe() {
            0 => world.barrier(),
            _ => {
                std::thread::sleep(std::time::Duration::from_millis(300));
                world.barrier()
            }
        })
    });
    assert!(results.into_iter().all(|r| r.unwrap_err().code == error::INTERRUPTED));
}
