//! Tests of operations on streams: puts, gets, signals, order, and NVSHMEM's collectives for every
//! type.

use crate::check::{Case, Checked, Num, data};
use crate::{ensure, for_numbers, same};
use weft::runtime::{Compare, DeviceTensor, Reduce, Signal, SignalOp, SymmetricTensor, World, error};

pub const CASES: &[Case] = &[
    Case::new("streams::put_and_get_in_a_ring", ring),
    Case::new("streams::put_with_signal", put_signal),
    Case::new("streams::signals_and_comparisons", signals),
    Case::new("streams::reductions_of_every_type", reductions),
    Case::new("streams::moves_of_every_type", moves),
    Case::new("streams::wrong_sizes_and_streams", wrong),
];

fn ring(world: &World) -> Checked {
    fn of_type<T: Num>(world: &World) -> Checked {
        let (me, n_pes, stream) = (world.my_pe(), world.n_pes(), world.stream());
        let (next, previous) = ((me + 1) % n_pes, (me + n_pes - 1) % n_pes);
        for (round, n) in (0..).zip([1usize, 7, 4096, 262_147]) {
            let (x, y) = (world.tensor::<T>(n)?, world.tensor::<T>(n)?);
            x.copy_from(&data(me, n, round), stream)?;
            world.barrier()?;
            let team = world.team();
            world.put(&y, &x, next, stream)?;
            team.barrier(stream)?;
            same!(y.to_vec(stream)?, data::<T>(previous, n, round), "put of {n}");
            team.barrier(stream)?; // nobody overwrites what is still read
            // The copies come from this GPU's own memory and are not awaited one by one.
            let own = DeviceTensor::from_slice(&data::<T>(me, n, round + 10), stream)?;
            for pe in 0..n_pes {
                if pe == next {
                    world.put_nbi(&y, &own, pe, stream)?;
                }
            }
            world.quiet(stream)?;
            world.team().barrier(stream)?;
            same!(y.to_vec(stream)?, data::<T>(previous, n, round + 10), "put_nbi of {n}");
            world.get(&own, &x, next, stream)?;
            same!(own.to_vec(stream)?, data::<T>(next, n, round), "get of {n}");
            world.get_nbi(&own, &x, previous, stream)?;
            world.fence(stream)?;
            same!(own.to_vec(stream)?, data::<T>(previous, n, round), "get_nbi of {n}");
            world.team().barrier(stream)?;
            world.barrier()?;
        }
        Ok(())
    }
    for_numbers!(of_type(world));
    Ok(())
}

fn put_signal(world: &World) -> Checked {
    let (me, n_pes, stream) = (world.my_pe(), world.n_pes(), world.stream());
    let (next, previous) = ((me + 1) % n_pes, (me + n_pes - 1) % n_pes);
    let n = 123_457;
    let (x, y) = (world.tensor::<u32>(n)?, world.tensor::<u32>(n)?);
    let ready = world.signal()?;
    for round in 1..20u32 {
        x.copy_from(&data(me, n, round), stream)?;
        let update = (&ready, SignalOp::Set, u64::from(round));
        match round % 2 {
            0 => world.put_signal(&y, &x, update, next, stream)?,
            _ => world.put_signal_nbi(&y, &x, update, next, stream)?,
        }
        world.signal_wait(&ready, Compare::Ge, u64::from(round), stream)?;
        same!(y.to_vec(stream)?, data::<u32>(previous, n, round), "data under signal {round}");
        world.quiet(stream)?;
        world.team().sync(stream)?;
    }
    Ok(())
}

fn signals(world: &World) -> Checked {
    let (n_pes, stream) = (world.n_pes(), world.stream());
    let counter = world.signal()?;
    for pe in 0..n_pes {
        world.signal_op(&counter, SignalOp::Add, u64::from(world.my_pe()) + 1, pe, stream)?;
    }
    let sum = u64::from(n_pes * (n_pes + 1) / 2);
    world.signal_wait(&counter, Compare::Eq, sum, stream)?;
    same!(counter.get(stream)?, sum, "the sum of all ranks");
    world.team().barrier(stream)?;
    // Every comparison lets the right values pass.
    let words = world.zeros::<u64>(6)?;
    for (i, compare) in Compare::ALL.into_iter().enumerate() {
        let signal = Signal::of(&words, i)?;
        for (value, against) in [(5, 5), (4, 5), (6, 5), (0, u64::MAX), (u64::MAX, 1 << 63)] {
            signal.set(value, stream)?;
            if compare.holds(value, against) {
                world.signal_wait(&signal, compare, against, stream)?;
            }
        }
        same!(signal.get(stream)?, u64::MAX, "after {compare:?}");
    }
    stream.synchronize()?;
    same!(Signal::of(&words, 6).unwrap_err().code, error::SHAPE, "a seventh of six");
    Ok(())
}

/// The result of a reduction of all PEs' data, in wrapping integers or exact floats.
fn reduced<T: Num + Into2>(op: Reduce, all: &[Vec<T>], i: usize) -> T {
    let values = all.iter().map(|v| v[i].into2());
    let fold = |f: fn(u64, u64) -> u64| values.clone().reduce(f).unwrap_or(0);
    T::small(match op {
        Reduce::Sum => fold(|a, b| a + b),
        Reduce::Prod => fold(|a, b| a * b),
        Reduce::Min => fold(u64::min),
        Reduce::Max => fold(u64::max),
        Reduce::And => fold(|a, b| a & b),
        Reduce::Or => fold(|a, b| a | b),
        Reduce::Xor => fold(|a, b| a ^ b),
    } as u32)
}

/// Small values as integers.
trait Into2 {
    fn into2(self) -> u64;
}

macro_rules! into2 {
    ($($ty:ty),*) => { $(impl Into2 for $ty { fn into2(self) -> u64 { self as u64 } })* };
}

into2!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64);

impl Into2 for half::f16 {
    fn into2(self) -> u64 {
        self.to_f32() as u64
    }
}

impl Into2 for half::bf16 {
    fn into2(self) -> u64 {
        self.to_f32() as u64
    }
}

/// The numbers 1, 2 and 3, whose products over eight PEs stay below 128 in most positions, and
/// otherwise 1.
fn factors<T: Num>(pe: u32, n: usize) -> Vec<T> {
    (0..n)
        .map(|i| T::small(if i as u32 % 8 == pe { 3 } else { 1 + u32::from(i as u32 % 5 == pe % 5) }))
        .collect()
}

fn reductions(world: &World) -> Checked {
    fn of_type<T: Num + Into2>(world: &World) -> Checked {
        let (me, n_pes, stream, team) = (world.my_pe(), world.n_pes() as usize, world.stream(), world.team());
        for n in [1usize, 7, 1030] {
            let (x, y) = (world.tensor::<T>(n)?, world.tensor::<T>(n)?);
            let (wide, part) = (world.tensor::<T>(n * n_pes)?, world.tensor::<T>(n)?);
            let all: Vec<Vec<T>> = (0..n_pes as u32).map(|pe| factors(pe, n)).collect();
            let all_wide: Vec<Vec<T>> = (0..n_pes as u32).map(|pe| factors(pe, n * n_pes)).collect();
            x.copy_from(&all[me as usize], stream)?;
            wide.copy_from(&all_wide[me as usize], stream)?;
            team.barrier(stream)?;
            for op in Reduce::ALL {
                let bitwise = matches!(op, Reduce::And | Reduce::Or | Reduce::Xor);
                if bitwise && !T::INTEGER {
                    same!(
                        team.reduce(op, &y, &x, stream).unwrap_err().code,
                        error::OPERATION,
                        "{op:?} of {}",
                        T::DTYPE
                    );
                    continue;
                }
                // NVSHMEM has bitwise operations for all integers.
                team.reduce(op, &y, &x, stream)?;
                let want: Vec<T> = (0..n).map(|i| reduced(op, &all, i)).collect();
                same!(y.to_vec(stream)?, want, "{op:?} of {n} {}", T::DTYPE);
                team.barrier(stream)?;
                team.reduce_scatter(op, &part, &wide, stream)?;
                let first = me as usize * n;
                let want: Vec<T> = (first..first + n).map(|i| reduced(op, &all_wide, i)).collect();
                same!(part.to_vec(stream)?, want, "{op:?} reduce-scatter of {n} {}", T::DTYPE);
                team.barrier(stream)?;
            }
        }
        Ok(())
    }
    for_numbers!(of_type(world));
    Ok(())
}

fn moves(world: &World) -> Checked {
    fn of_type<T: Num>(world: &World) -> Checked {
        let (me, n_pes, stream, team) = (world.my_pe(), world.n_pes(), world.stream(), world.team());
        for (round, n) in (0..).zip([1usize, 7, 1030]) {
            let all = n * n_pes as usize;
            let (x, gathered) = (world.tensor::<T>(n)?, world.tensor::<T>(all)?);
            let (from, to) = (world.tensor::<T>(all)?, world.tensor::<T>(all)?);
            x.copy_from(&data(me, n, round), stream)?;
            from.copy_from(&data(me, all, round), stream)?;
            team.barrier(stream)?;
            team.fcollect(&gathered, &x, stream)?;
            let want: Vec<T> = (0..n_pes).flat_map(|pe| data::<T>(pe, n, round)).collect();
            same!(gathered.to_vec(stream)?, want, "fcollect of {n} {}", T::DTYPE);
            team.alltoall(&to, &from, stream)?;
            let mine = me as usize * n..(me as usize + 1) * n;
            let want: Vec<T> =
                (0..n_pes).flat_map(|pe| data::<T>(pe, all, round)[mine.clone()].to_vec()).collect();
            same!(to.to_vec(stream)?, want, "alltoall of {n} {}", T::DTYPE);
            team.barrier(stream)?;
            for root in 0..n_pes {
                team.broadcast(&to, &from, root, stream)?;
                // Some versions of OpenSHMEM do not change the root's own destination, so only the
                // others are checked.
                if me != root {
                    same!(
                        to.to_vec(stream)?,
                        data::<T>(root, all, round),
                        "broadcast from {root} of {}",
                        T::DTYPE
                    );
                }
                team.barrier(stream)?;
            }
        }
        Ok(())
    }
    for_numbers!(of_type(world));
    // Types for which NVSHMEM has no name are moved as bytes, and are not used in computations.
    let x: SymmetricTensor<float8::F8E4M3> = world.zeros(5)?;
    let y: SymmetricTensor<float8::F8E4M3> = world.zeros(5 * world.n_pes() as usize)?;
    x.copy_from(&[float8::F8E4M3::from_f32(1.5 + world.my_pe() as f32); 5], world.stream())?;
    world.team().barrier(world.stream())?;
    world.team().fcollect(&y, &x, world.stream())?;
    for (i, v) in y.to_vec(world.stream())?.iter().enumerate() {
        ensure!(
            v.to_f32() == float8::F8E4M3::from_f32(1.5 + (i / 5) as f32).to_f32(),
            "element {i} is {v:?}"
        );
    }
    let e = world.team().reduce(Reduce::Sum, &x, &x, world.stream()).unwrap_err();
    same!(e.code, error::OPERATION, "sum of e4m3");
    Ok(())
}

fn wrong(world: &World) -> Checked {
    let (x, y) = (world.zeros::<f32>(8)?, world.zeros::<f32>(9)?);
    let stream = world.stream();
    same!(world.put(&x, &y, 0, stream).unwrap_err().code, error::SHAPE, "9 into 8");
    same!(world.put(&x, &x, 99, stream).unwrap_err().code, error::NOT_IN_TEAM, "PE 99");
    same!(world.team().reduce(Reduce::Sum, &x, &y, stream).unwrap_err().code, error::SHAPE, "reduce 9 to 8");
    if world.n_pes() > 1 {
        same!(world.team().fcollect(&x, &x, stream).unwrap_err().code, error::SHAPE, "gather into one part");
    }
    same!(world.team().broadcast(&x, &x, 99, stream).unwrap_err().code, error::NOT_IN_TEAM, "root 99");
    let gaps: SymmetricTensor<f32> = world.tensor(weft::layout::Layout::new(4, 2)?)?;
    same!(world.put(&gaps, &x, 0, stream).unwrap_err().code, error::SHAPE, "a layout with gaps");
    Ok(())
}
