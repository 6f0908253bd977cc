//! Tests of `weft::collective` on GPUs: every algorithm with the data of the simulator's test, in
//! any memory, in a graph that is replayed, and on two streams at once.

use crate::check::{Case, Checked, Num, datum};
use crate::{ensure, same};
use weft::collective::{Algorithm, Call, Collective, Collectives, Counts, Placement, Plan};
use weft::runtime::launch::AsArgument;
use weft::runtime::{DeviceTensor, Graph, Reduce, SymmetricTensor, World};

pub const CASES: &[Case] = &[
    Case::new("collective::allreduce", |w| algorithms(w, Collective::AllReduce)),
    Case::new("collective::all_gather", |w| algorithms(w, Collective::AllGather)),
    Case::new("collective::reduce_scatter", |w| algorithms(w, Collective::ReduceScatter)),
    Case::new("collective::broadcast", |w| algorithms(w, Collective::Broadcast)),
    Case::new("collective::all_to_all", |w| algorithms(w, Collective::AllToAll)),
    Case::new("collective::chosen_by_itself", chosen),
    Case::new("collective::graphs", graphs),
    Case::new("collective::two_streams", two_streams),
    Case::new("collective::what_does_not_fit", refused),
];

const COUNTS: [usize; 6] = [1, 7, 1024, 4099, 65_537, 1 << 19];
const ROUNDS: u32 = 3;

/// Element `i` of the data. It is below 128, or below 16 for a reduction, so that the sum of eight
/// is exact in every type.
fn given<T: Num>(collective: Collective, pe: u32, i: u64, round: u32) -> i64 {
    let n: u32 = of(datum::<u32>(pe, i as usize, round));
    i64::from(if collective.reduces() { n % 16 } else { n })
}

fn of(n: u32) -> u32 {
    n
}

fn data<T: Num>(collective: Collective, pe: u32, elements: u64, round: u32) -> Vec<T> {
    (0..elements).map(|i| T::small(given::<T>(collective, pe, i, round) as u32)).collect()
}

/// Both operands of a call, as tensors of the symmetric heap or not, and the offset of their first
/// element.
struct Operands<T> {
    counts: Counts,
    symmetric: Vec<SymmetricTensor<T>>,
    plain: Vec<DeviceTensor<T>>,
}

impl<T: Num> Operands<T> {
    /// Creates the operands. In place there is one, which has the size of the larger side. `skew`
    /// is the distance of its first element from an aligned address.
    fn new(
        world: &World,
        c: Collective,
        n: usize,
        place: Placement,
        symm: bool,
        skew: usize,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let counts = c.of_count(n as u64, size_of::<T>() as u64, world.n_pes());
        let sides = match place {
            Placement::OutOfPlace => vec![counts.send, counts.recv],
            Placement::InPlace => vec![counts.send.max(counts.recv)],
        };
        let (mut symmetric, mut plain) = (Vec::new(), Vec::new());
        for side in sides {
            match symm {
                true => symmetric
                    .push(world.tensor::<T>(side as usize + skew)?.slice(skew..side as usize + skew)?),
                false => plain.push(DeviceTensor::alloc(world.device(), side as usize)?),
            }
        }
        Ok(Operands { counts, symmetric, plain })
    }

    fn at(&self, i: usize) -> Option<&dyn AsArgument> {
        let symmetric = self.symmetric.get(i).map(|t| t as &dyn AsArgument);
        symmetric.or(self.plain.get(i).map(|t| t as &dyn AsArgument))
    }

    fn call(&self, collective: Collective, op: Reduce, root: u32) -> Result<Call<'_>, String> {
        let x = self.at(0).ok_or("no operand")?;
        Ok(Call { op, root, ..Call::new(collective, x, self.at(1)) })
    }

    fn write(&self, i: usize, data: &[T], world: &World) -> Checked {
        match (self.symmetric.get(i), self.plain.get(i)) {
            (Some(t), _) => t.copy_from(data, world.stream())?,
            (_, Some(t)) => t.copy_from(data, world.stream())?,
            _ => {}
        }
        Ok(())
    }

    fn read(&self, world: &World) -> Result<Vec<T>, Box<dyn std::error::Error>> {
        let last = self.symmetric.len().max(self.plain.len()).saturating_sub(1);
        Ok(match (self.symmetric.get(last), self.plain.get(last)) {
            (Some(t), _) => t.to_vec(world.stream())?,
            (_, Some(t)) => t.to_vec(world.stream())?,
            _ => Vec::new(),
        })
    }

    /// Stores this PE's data of a round at the place where the call reads it.
    fn fill(&self, world: &World, collective: Collective, round: u32) -> Checked {
        let me = world.my_pe();
        let mine = data::<T>(collective, me, self.counts.send, round);
        let in_place = self.at(1).is_none();
        if collective == Collective::AllGather && in_place {
            let mut all = vec![T::small(99); self.counts.recv as usize];
            let first = me as usize * self.counts.count as usize;
            all[first..first + mine.len()].copy_from_slice(&mine);
            return self.write(0, &all, world);
        }
        self.write(0, &mine, world)?;
        self.write(1, &vec![T::small(99); self.counts.recv as usize], world)
    }

    fn check(
        &self,
        world: &World,
        collective: Collective,
        op: Reduce,
        root: u32,
        round: u32,
        what: &str,
    ) -> Checked {
        let (me, counts) = (world.my_pe(), &self.counts);
        let got = self.read(world)?;
        // In place, a reduce-scatter's result is one part of the operand.
        let own = collective == Collective::ReduceScatter && self.at(1).is_none();
        let first = if own { me as usize * counts.count as usize } else { 0 };
        for i in 0..counts.recv {
            let give = |pe: u32, i: u64| given::<T>(collective, pe, i, round);
            let want = match collective {
                Collective::Broadcast => give(root, i),
                _ => collective.result(op, counts, world.n_pes(), me, i, give),
            };
            let found = got[first + i as usize];
            ensure!(
                found == T::small(want as u32),
                "{what}: round {round}, PE {me}, element {i} is {found:?}, expected {want}"
            );
        }
        Ok(())
    }
}

fn algorithms(world: &World, collective: Collective) -> Checked {
    let collectives = Collectives::new(world)?;
    let mut met = 0;
    for algorithm in Algorithm::of(collective) {
        for place in algorithm.places() {
            for (i, n) in COUNTS.into_iter().enumerate() {
                let symm = i % 2 == 0;
                met += match i % 3 {
                    0 => one::<half::bf16>(world, &collectives, algorithm, place, (n, symm, i))?,
                    1 => one::<i32>(world, &collectives, algorithm, place, (n, symm, i))?,
                    _ => one::<f32>(world, &collectives, algorithm, place, (n, symm, i))?,
                };
            }
        }
    }
    ensure!(met >= 12, "{met} requests were carried out");
    Ok(())
}

/// Tests one algorithm, placement and size. Returns 1 if it was carried out, and otherwise 0.
fn one<T: Num>(
    world: &World,
    collectives: &Collectives,
    algorithm: &'static Algorithm,
    place: Placement,
    (n, symm, i): (usize, bool, usize),
) -> Result<u32, Box<dyn std::error::Error>> {
    let (stream, collective) = (world.stream(), algorithm.collective);
    let op = [Reduce::Sum, Reduce::Max, Reduce::Min][i / 2 % 3];
    let root = i as u32 % world.n_pes();
    let operands = Operands::<T>::new(world, collective, n, place, symm, if i == 4 { 1 } else { 0 })?;
    let call = operands.call(collective, op, root)?;
    let request = collectives.request(&call, stream)?;
    // Quantised sums are not exact. tests/sums.rs and `weft bench --check` compare them with their
    // bound.
    if algorithm.allowed(&request).is_err() {
        return Ok(0);
    }
    let mut plan = Plan::of(algorithm, &request, collectives.max_ctas());
    if i % 2 == 1 {
        plan.unroll = 1;
    }
    let what = format!("{collective} {} {place:?} of {n} {}, symmetric {symm}", algorithm.name, T::DTYPE);
    for round in 0..ROUNDS {
        operands.fill(world, collective, round)?;
        collectives.launch(&plan, &call, stream).map_err(|e| format!("{what}: {e}"))?;
        operands.check(world, collective, op, root, round, &what)?;
    }
    Ok(1)
}

/// Tests the calls of a user, who passes no plan.
fn chosen(world: &World) -> Checked {
    let (collectives, stream) = (Collectives::new(world)?, world.stream());
    for (round, n) in (0..).zip([5usize, 8192, 200_000]) {
        for collective in Collective::ALL {
            for place in [Placement::OutOfPlace, Placement::InPlace] {
                let symm = !(collective == Collective::AllToAll && n > 8192);
                if !symm && place == Placement::InPlace {
                    continue;
                }
                let operands = Operands::<f32>::new(world, collective, n, place, symm, 0)?;
                operands.fill(world, collective, round)?;
                collectives.run(&operands.call(collective, Reduce::Sum, 0)?, stream)?;
                operands.check(
                    world,
                    collective,
                    Reduce::Sum,
                    0,
                    round,
                    &format!("{collective} {place:?} of {n}"),
                )?;
            }
        }
    }
    Ok(())
}

/// Tests several collectives of one handle in a graph that is replayed with new data.
fn graphs(world: &World) -> Checked {
    let (collectives, stream) = (Collectives::new(world)?, world.stream());
    let n = 3001;
    for (k, algorithm) in Algorithm::of(Collective::AllReduce).enumerate() {
        let operands = Operands::<f32>::new(world, Collective::AllReduce, n, Placement::OutOfPlace, true, 0)?;
        let gathered = Operands::<f32>::new(world, Collective::AllGather, n, Placement::OutOfPlace, true, 0)?;
        let call = operands.call(Collective::AllReduce, Reduce::Sum, 0)?;
        let gather = gathered.call(Collective::AllGather, Reduce::Sum, 0)?;
        let request = collectives.request(&call, stream)?;
        if algorithm.allowed(&request).is_err() {
            continue;
        }
        let plan = Plan::of(algorithm, &request, collectives.max_ctas());
        let other = collectives.plan(&gather, stream)?;
        collectives.prepare(&plan, &call, stream)?;
        collectives.prepare(&other, &gather, stream)?;
        let graph = Graph::capture(stream, |s| {
            (0..3).try_for_each(|_| {
                collectives.launch(&plan, &call, s)?;
                collectives.launch(&other, &gather, s)
            })
        })?;
        for round in 0..5 {
            operands.fill(world, Collective::AllReduce, round + k as u32)?;
            gathered.fill(world, Collective::AllGather, round)?;
            graph.launch()?;
            operands.check(world, Collective::AllReduce, Reduce::Sum, 0, round + k as u32, algorithm.name)?;
            gathered.check(world, Collective::AllGather, Reduce::Sum, 0, round, algorithm.name)?;
            // The kernels with barriers begin with one, and packets need none. New data overwrites
            // nothing that peers still read.
            world.barrier()?;
        }
    }
    Ok(())
}

/// Tests two handles on two streams that do not wait for each other, with few CTAs each.
fn two_streams(world: &World) -> Checked {
    let handles = [Collectives::new(world)?, Collectives::new(world)?];
    let streams = [world.stream().clone(), world.device().new_stream()?];
    let n = 2000;
    let operands =
        [0, 1].map(|_| Operands::<i32>::new(world, Collective::AllReduce, n, Placement::OutOfPlace, true, 0));
    let [a, b] = operands;
    let operands = [a?, b?];
    let mut plans = Vec::new();
    for (handle, operands) in handles.iter().zip(&operands) {
        let call = operands.call(Collective::AllReduce, Reduce::Sum, 0)?;
        let plan = Plan::of(
            Algorithm::find(Collective::AllReduce, "ll")?,
            &handle.request(&call, world.stream())?,
            4,
        );
        handle.prepare(&plan, &call, world.stream())?;
        plans.push(plan);
    }
    for (k, operands) in operands.iter().enumerate() {
        operands.fill(world, Collective::AllReduce, k as u32)?;
    }
    weft::runtime::cuda::wait_for(&streams[0])?;
    for _ in 0..20 {
        for k in 0..2 {
            // PEs begin with different streams.
            let k = (k + world.my_pe() as usize) % 2;
            handles[k].launch(
                &plans[k],
                &operands[k].call(Collective::AllReduce, Reduce::Sum, 0)?,
                &streams[k],
            )?;
        }
    }
    streams.iter().try_for_each(weft::runtime::cuda::wait_for)?;
    for (k, operands) in operands.iter().enumerate() {
        operands.check(world, Collective::AllReduce, Reduce::Sum, 0, k as u32, "two streams")?;
    }
    Ok(())
}

fn refused(world: &World) -> Checked {
    let (collectives, stream) = (Collectives::new(world)?, world.stream());
    let x = DeviceTensor::<f32>::alloc(world.device(), 100)?;
    let y = DeviceTensor::<f32>::alloc(world.device(), 101)?;
    let why = collectives.allreduce(&x, Some(&y), Reduce::Sum, stream).unwrap_err().to_string();
    ensure!(why.contains("x is 100 of f32, out is 101 of f32"), "{why}");
    let why = collectives.allreduce(&x, None, Reduce::Prod, stream).unwrap_err().to_string();
    ensure!(why.contains("supports sum, min and max, but not prod"), "{why}");
    let call = Call::new(Collective::AllReduce, &x, None);
    let request = collectives.request(&call, stream)?;
    let plan = Plan::of(Algorithm::find(Collective::AllReduce, "two_shot")?, &request, 8);
    let why = collectives.launch(&plan, &call, stream).unwrap_err().to_string();
    ensure!(why.contains("symmetric heap"), "{why}");
    let broadcast = Call { root: world.n_pes(), ..Call::new(Collective::Broadcast, &x, None) };
    ensure!(collectives.run(&broadcast, stream).is_err(), "a root that is no PE");
    let plan = Plan { ctas: 1 << 20, ..Plan::of(&Algorithm::ALL[0], &request, 8) };
    ensure!(plan.check(&request, 8).is_err(), "too many CTAs");
    same!(collectives.request(&call, stream)?.count, 100, "count");
    Ok(())
}
