//! The usual shapes of litmus tests, in many strengths, scopes and places.

use super::program::{Op, Order, Program, Scope, ThreadPlace, WEAK};

/// An access of a shape: what is read or written, and where.
#[derive(Clone, Copy)]
enum Access {
    R(usize),
    W(usize, u32),
    /// An exchange.
    X(usize, u32),
}

use Access::{R, W, X};

/// (name, the accesses of each thread)
const SHAPES: &[(&str, &[&[Access]])] = &[
    ("message passing", &[&[W(0, 1), W(1, 1)], &[R(1), R(0)]]),
    ("store buffering", &[&[W(0, 1), R(1)], &[W(1, 1), R(0)]]),
    ("load buffering", &[&[R(0), W(1, 1)], &[R(1), W(0, 1)]]),
    ("S", &[&[W(0, 2), W(1, 1)], &[R(1), W(0, 1)]]),
    ("R", &[&[W(0, 1), W(1, 1)], &[W(1, 2), R(0)]]),
    ("2+2W", &[&[W(0, 1), W(1, 2)], &[W(1, 1), W(0, 2)]]),
    ("coherence of reads", &[&[W(0, 1), W(0, 2)], &[R(0), R(0)]]),
    ("coherence of a read and a write", &[&[R(0), W(0, 1)], &[W(0, 2), R(0)]]),
    ("WRC", &[&[W(0, 1)], &[R(0), W(1, 1)], &[R(1), R(0)]]),
    ("ISA2", &[&[W(0, 1), W(1, 1)], &[R(1), W(2, 1)], &[R(2), R(0)]]),
    ("IRIW", &[&[W(0, 1)], &[W(1, 1)], &[R(0), R(1)], &[R(1), R(0)]]),
    ("a chain of exchanges", &[&[W(0, 1), X(1, 1)], &[X(1, 2)], &[R(1), R(0)]]),
    ("exchanges in turn", &[&[W(0, 1), X(1, 1)], &[X(1, 2), R(0)]]),
];

/// How the accesses of a thread are ordered.
#[derive(Clone, Copy)]
enum Strength {
    Weak,
    Relaxed(Scope),
    /// Every write releases, every read acquires.
    Synchronising(Scope),
    /// The last access of a thread synchronises; the others are weak.
    LastReleases(Scope),
    /// A fence between accesses that are relaxed.
    Fenced {
        sc: bool,
        scope: Scope,
        relaxed: Scope,
    },
}

fn strengths() -> Vec<Strength> {
    let mut all = vec![Strength::Weak];
    for scope in Scope::ALL {
        all.extend([Strength::Relaxed(scope), Strength::Synchronising(scope), Strength::LastReleases(scope)]);
        for sc in [false, true] {
            all.push(Strength::Fenced { sc, scope, relaxed: Scope::Sys });
            all.push(Strength::Fenced { sc, scope, relaxed: scope });
        }
    }
    all
}

fn access(access: Access, order: impl Fn(bool, bool) -> Order) -> Op {
    match access {
        R(at) => Op::Read { at, order: order(true, false) },
        W(at, value) => Op::Write { at, value, order: order(false, true) },
        // Exchanges are always strong.
        X(at, value) => {
            let order = order(true, true);
            Op::Exchange { at, value, order: Order { strong: order.strong.or(Some(Scope::Gpu)), ..order } }
        }
    }
}

fn thread(accesses: &[Access], first: bool, strength: Strength) -> Vec<Op> {
    let n = accesses.len();
    let synchronising =
        |scope, acquire: bool, release: bool| Order { acquire, release, ..Order::relaxed(scope) };
    let ordered = |i: usize, a: Access| match strength {
        Strength::Weak => access(a, |_, _| WEAK),
        Strength::Relaxed(scope) => access(a, |_, _| Order::relaxed(scope)),
        Strength::Synchronising(scope) => {
            access(a, |acquire, release| synchronising(scope, acquire, release))
        }
        // The first thread's data is weak and its flag a release; the others acquire first.
        Strength::LastReleases(scope) => {
            let flag = if first { i + 1 == n } else { i == 0 || i + 1 < n };
            access(a, |acquire, release| if flag { synchronising(scope, acquire, release) } else { WEAK })
        }
        Strength::Fenced { relaxed, .. } => access(a, |_, _| Order::relaxed(relaxed)),
    };
    let mut out = Vec::new();
    for (i, a) in accesses.iter().enumerate() {
        if let (Strength::Fenced { sc, scope, .. }, 1..) = (strength, i) {
            out.push(Op::Fence { sc, scope });
        }
        out.push(ordered(i, *a));
    }
    out
}

/// Where threads are: all in one CTA, in CTAs of one PE, on PEs of their own, or two CTAs of one PE and another PE.
fn places(threads: usize) -> Vec<Vec<ThreadPlace>> {
    let at = |pe, cta| ThreadPlace { pe, cta };
    let mut all = vec![
        vec![at(0, 0); threads],
        (0..threads).map(|t| at(0, t)).collect(),
        (0..threads).map(|t| at(t.min(2), 0)).collect(),
    ];
    if threads > 2 {
        all.push((0..threads).map(|t| at(t / 2, t % 2)).collect());
        all.push((0..threads).map(|t| at(usize::from(t + 1 == threads), t)).collect());
    }
    all
}

/// Every shape in every strength and place, with the locations in own and in peers' memory.
pub fn all() -> Vec<Program> {
    let mut all: Vec<Program> = Vec::new();
    for (_, accesses) in SHAPES {
        let locations = accesses.iter().flat_map(|t| t.iter()).map(|a| match a {
            R(at) | W(at, _) | X(at, _) => at + 1,
        });
        let locations = locations.max().unwrap_or(1);
        for strength in strengths() {
            let threads: Vec<Vec<Op>> =
                accesses.iter().enumerate().map(|(t, a)| thread(a, t == 0, strength)).collect();
            for places in places(threads.len()) {
                for homes in 0..1 << locations {
                    let homes = (0..locations).map(|at| homes >> at & 1).collect();
                    let threads = places.iter().copied().zip(threads.iter().cloned()).collect();
                    let program = Program { threads, homes };
                    if !all.contains(&program) {
                        all.push(program);
                    }
                }
            }
        }
    }
    all
}

/// A source of numbers: each call gives one below its argument.
fn numbers(seed: u64) -> impl FnMut(usize) -> usize {
    let mut state = seed;
    move |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    }
}

/// Programs in which data pass from the first thread to the last over a flag that others update, with scopes, strengths
/// and fences that are drawn.
pub fn handed_over(count: usize, seed: u64) -> Vec<Program> {
    let mut draw = numbers(seed);
    let mut program = || {
        let mut value = 0;
        let mut flag = |draw: &mut dyn FnMut(usize) -> usize, kinds: &[usize]| {
            value += 1;
            let scope = Scope::ALL[draw(Scope::ALL.len())];
            let synchronises = draw(4) == 0;
            let order = Order { acquire: synchronises, release: synchronises, ..Order::relaxed(scope) };
            match kinds[draw(kinds.len())] {
                0 => Op::Read { at: 1, order: Order { release: false, ..order } },
                1 => Op::Write { at: 1, value, order: Order { acquire: false, ..order } },
                _ => Op::Exchange { at: 1, value, order },
            }
        };
        let fence = |draw: &mut dyn FnMut(usize) -> usize| {
            let scope = Scope::ALL[draw(Scope::ALL.len())];
            (draw(4) > 0).then(|| Op::Fence { sc: draw(2) == 0, scope })
        };
        let between = draw(3);
        let mut threads = Vec::new();
        let mut first = vec![Op::Write { at: 0, value: 1, order: WEAK }];
        first.extend(fence(&mut draw));
        first.push(flag(&mut draw, &[0, 1, 1, 2]));
        threads.push(first);
        for _ in 0..between {
            let mut relay = vec![flag(&mut draw, &[0, 2, 2])];
            if matches!(relay[0], Op::Read { .. }) {
                relay.push(flag(&mut draw, &[1, 2]));
            }
            threads.push(relay);
        }
        let mut last = vec![flag(&mut draw, &[0, 0, 1, 2])];
        last.extend(fence(&mut draw));
        last.push(Op::Read { at: 0, order: WEAK });
        threads.push(last);
        let places =
            (0..threads.len()).map(|_| ThreadPlace { pe: draw(4) / 3, cta: draw(4) }).collect::<Vec<_>>();
        Program { threads: places.into_iter().zip(threads).collect(), homes: vec![draw(2), draw(2)] }
    };
    std::iter::repeat_with(&mut program).filter(|p| candidates(p) <= MAX_CANDIDATES).take(count).collect()
}

/// Most executions to judge of a program that is drawn.
const MAX_CANDIDATES: usize = 1000;

/// Programs of two or three threads that are drawn: `seed` gives the first, and each one the next.
pub fn drawn(count: usize, seed: u64) -> Vec<Program> {
    let mut draw = numbers(seed);
    let program = |draw: &mut dyn FnMut(usize) -> usize| {
        let mut value = 0;
        let mut op = |draw: &mut dyn FnMut(usize) -> usize| {
            let (at, scope) = (draw(2), Scope::ALL[draw(Scope::ALL.len())]);
            let order = match draw(5) {
                0 | 1 => WEAK,
                2 => Order::relaxed(scope),
                _ => Order { acquire: true, release: true, ..Order::relaxed(scope) },
            };
            value += 1;
            match draw(8) {
                0..=2 => Op::Read { at, order: Order { release: false, ..order } },
                3 | 4 => Op::Write { at, value, order: Order { acquire: false, ..order } },
                5 => Op::Fence { sc: draw(2) == 0, scope },
                _ => {
                    Op::Exchange { at, value, order: Order { strong: order.strong.or(Some(scope)), ..order } }
                }
            }
        };
        let threads = (0..2 + draw(2)).map(|_| {
            let place = ThreadPlace { pe: draw(2), cta: draw(4) };
            (place, (0..2 + draw(2)).map(|_| op(draw)).collect())
        });
        Program { threads: threads.collect(), homes: vec![draw(2), draw(2)] }
    };
    let small = |p: &Program| candidates(p) <= MAX_CANDIDATES;
    std::iter::repeat_with(|| program(&mut draw)).filter(small).take(count).collect()
}

/// How many executions of a program there are to judge.
fn candidates(program: &Program) -> usize {
    let ops = || program.threads.iter().flat_map(|(_, ops)| ops);
    let factorial = |n: usize| (1..=n).product::<usize>();
    let of_location = |at: usize| {
        let reads =
            ops().filter(|op| matches!(op, Op::Read { at: a, .. } | Op::Exchange { at: a, .. } if *a == at));
        let writes =
            ops().filter(|op| matches!(op, Op::Write { at: a, .. } | Op::Exchange { at: a, .. } if *a == at));
        let writes = writes.count();
        (writes + 1).pow(reads.count() as u32) * factorial(writes)
    };
    let fences = ops().filter(|op| matches!(op, Op::Fence { sc: true, .. })).count();
    (0..program.homes.len()).map(of_location).product::<usize>() * factorial(fences)
}

/// A read or a last value that an outcome has.
#[derive(Clone, Copy)]
pub enum Is {
    Read(usize, u32),
    Last(usize, u32),
}

impl Is {
    pub fn is(self, read: &[u32], last: &[u32]) -> bool {
        match self {
            Is::Read(n, value) => read[n] == value,
            Is::Last(at, value) => last[at] == value,
        }
    }
}

/// Programs with an outcome that no order of their accesses one after the other has, and that hardware shows.
pub fn weak() -> Vec<(&'static str, Program, Vec<Is>)> {
    use Is::{Last, Read};
    let outcomes: &[(&str, &[Is])] = &[
        ("message passing", &[Read(0, 1), Read(1, 0)]),
        ("store buffering", &[Read(0, 0), Read(1, 0)]),
        ("S", &[Read(0, 1), Last(0, 2)]),
        ("R", &[Read(0, 0), Last(1, 2)]),
        ("load buffering", &[Read(0, 1), Read(1, 1)]),
        ("2+2W", &[Last(0, 1), Last(1, 1)]),
        ("WRC", &[Read(0, 1), Read(1, 1), Read(2, 0)]),
        ("ISA2", &[Read(0, 1), Read(1, 1), Read(2, 0)]),
        ("IRIW", &[Read(0, 1), Read(1, 0), Read(2, 1), Read(3, 0)]),
    ];
    let mut all = Vec::new();
    for (name, weak) in outcomes {
        let accesses = SHAPES.iter().find(|(n, _)| n == name).unwrap().1;
        for strength in [Strength::Weak, Strength::Relaxed(Scope::Sys)] {
            for places in &places(accesses.len())[1..3] {
                let threads = accesses.iter().enumerate().map(|(t, a)| thread(a, t == 0, strength));
                let threads = places.iter().copied().zip(threads).collect();
                all.push((*name, Program { threads, homes: vec![1; 3] }, weak.to_vec()));
            }
        }
    }
    all
}
