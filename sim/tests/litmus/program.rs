//! Programs of a few threads, and what a machine makes of them.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use weft_sim::{Arg, Check, Config, Launch, Machine, Module};

/// Threads that an operation is ordered with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Scope {
    Cta,
    Cluster,
    Gpu,
    Sys,
}

/// CTAs of a cluster.
const CLUSTER: usize = 2;

impl Scope {
    pub const ALL: [Scope; 4] = [Scope::Cta, Scope::Cluster, Scope::Gpu, Scope::Sys];

    fn name(self) -> &'static str {
        ["cta", "cluster", "gpu", "sys"][self as usize]
    }
}

/// How an access is ordered; `None` is weak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Order {
    pub strong: Option<Scope>,
    pub acquire: bool,
    pub release: bool,
}

pub const WEAK: Order = Order { strong: None, acquire: false, release: false };

impl Order {
    pub fn relaxed(scope: Scope) -> Order {
        Order { strong: Some(scope), ..WEAK }
    }

    pub fn acquire(scope: Scope) -> Order {
        Order { acquire: true, ..Order::relaxed(scope) }
    }

    pub fn release(scope: Scope) -> Order {
        Order { release: true, ..Order::relaxed(scope) }
    }

    fn modifiers(self) -> String {
        let Some(scope) = self.strong else { return String::new() };
        let sem = match (self.acquire, self.release) {
            (false, false) => "relaxed",
            (true, false) => "acquire",
            (false, true) => "release",
            (true, true) => "acq_rel",
        };
        format!(".{sem}.{}", scope.name())
    }
}

/// An instruction. Locations and values are numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    Read {
        at: usize,
        order: Order,
    },
    Write {
        at: usize,
        value: u32,
        order: Order,
    },
    /// Writes and reads what was there.
    Exchange {
        at: usize,
        value: u32,
        order: Order,
    },
    Fence {
        sc: bool,
        scope: Scope,
    },
}

/// Where a thread runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ThreadPlace {
    pub pe: usize,
    pub cta: usize,
}

impl ThreadPlace {
    /// Whether a scope of a thread here includes one there.
    pub fn includes(self, scope: Scope, other: ThreadPlace) -> bool {
        match scope {
            Scope::Cta => self == other,
            Scope::Cluster => self.pe == other.pe && self.cta / CLUSTER == other.cta / CLUSTER,
            Scope::Gpu => self.pe == other.pe,
            Scope::Sys => true,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    pub threads: Vec<(ThreadPlace, Vec<Op>)>,
    /// The PE in whose memory each location is.
    pub homes: Vec<usize>,
}

/// What was read, by thread and in its order, and what each location holds at the end.
pub type Outcome = (Vec<u32>, Vec<u32>);

impl Program {
    /// Reads of all threads.
    pub fn reads(&self) -> usize {
        let reads = |op: &&Op| matches!(op, Op::Read { .. } | Op::Exchange { .. });
        self.threads.iter().flat_map(|(_, ops)| ops).filter(reads).count()
    }

    fn n_pes(&self) -> usize {
        let pes = self.threads.iter().map(|(at, _)| at.pe).chain(self.homes.iter().copied());
        pes.max().unwrap_or(0) + 1
    }

    /// The number of each thread among those of its CTA.
    fn slots(&self) -> Vec<usize> {
        let mut next: BTreeMap<ThreadPlace, usize> = BTreeMap::new();
        let mut slot = |at: &ThreadPlace| {
            let n = next.entry(*at).or_default();
            *n += 1;
            *n - 1
        };
        self.threads.iter().map(|(at, _)| slot(at)).collect()
    }

    /// The kernel that all PEs launch: each thread finds its part by its PE, CTA and warp.
    fn ptx(&self) -> String {
        let homes = self.homes.len();
        let params = (0..=homes).map(|i| format!(".param .b64 p{i}")).collect::<Vec<_>>().join(", ");
        let mut out = format!(
            ".version 8.5\n.target sm_90\n.address_size 64\n.visible .entry k({params}, .param .b32 pe) .reqnctapercluster {CLUSTER} {{\n\
             .reg .pred %p<2>;\n.reg .b32 %r<8>;\n.reg .b64 %a<9>;\n\
             ld.param.b32 %r0, [pe];\nmov.u32 %r1, %ctaid.x;\nmov.u32 %r2, %tid.x;\n\
             shl.b32 %r0, %r0, 20;\nshl.b32 %r1, %r1, 10;\nadd.u32 %r0, %r0, %r1;\nadd.u32 %r0, %r0, %r2;\n"
        );
        for i in 0..=homes {
            let _ = writeln!(out, "ld.param.b64 %a{i}, [p{i}];");
        }
        for (t, ((at, _), slot)) in self.threads.iter().zip(self.slots()).enumerate() {
            let key = (at.pe << 20) + (at.cta << 10) + slot * 32;
            let _ = writeln!(out, "setp.eq.u32 %p0, %r0, {key};\n@%p0 bra T{t};");
        }
        out.push_str("ret;\n");
        let mut read = 0;
        for (t, (_, ops)) in self.threads.iter().enumerate() {
            let _ = writeln!(out, "T{t}:");
            let first = read;
            for op in ops {
                let r = 3 + read - first;
                let _ = match op {
                    Op::Read { at, order } => {
                        read += 1;
                        writeln!(out, "ld{}.global.b32 %r{r}, [%a{at}];", order.modifiers())
                    }
                    Op::Write { at, value, order } => {
                        writeln!(out, "st{}.global.b32 [%a{at}], {value};", order.modifiers())
                    }
                    Op::Exchange { at, value, order } => {
                        read += 1;
                        writeln!(out, "atom{}.global.exch.b32 %r{r}, [%a{at}], {value};", order.modifiers())
                    }
                    Op::Fence { sc, scope } => {
                        let sem = if *sc { "sc" } else { "acq_rel" };
                        writeln!(out, "fence.{sem}.{};", scope.name())
                    }
                };
            }
            for n in first..read {
                let _ = writeln!(out, "st.global.b32 [%a{homes}+{}], %r{};", 4 * n, 3 + n - first);
            }
            out.push_str("ret;\n");
        }
        out.push_str("}\n");
        out
    }

    /// The outcomes of runs with these seeds, and the first seed of each.
    pub fn outcomes(&self, seeds: std::ops::Range<u64>) -> BTreeMap<Outcome, u64> {
        let module = self.module();
        let mut all = BTreeMap::new();
        for seed in seeds {
            all.entry(self.run(&module, seed, None).0).or_insert(seed);
        }
        all
    }

    /// The same, with whether a race was found in the run.
    pub fn checked_outcomes(&self, seeds: std::ops::Range<u64>) -> BTreeMap<(Outcome, bool), u64> {
        let module = self.module();
        let mut all = BTreeMap::new();
        for seed in seeds {
            all.entry(self.run(&module, seed, Some(Check::default()))).or_insert(seed);
        }
        all
    }

    fn module(&self) -> Module {
        Module::parse(&self.ptx()).unwrap_or_else(|e| panic!("{e}\n{}", self.ptx()))
    }

    /// The outcome of a run, and whether something was found.
    fn run(&self, module: &Module, seed: u64, check: Option<Check>) -> (Outcome, bool) {
        let n_pes = self.n_pes();
        let config =
            Config::default().n_pes(n_pes).seed(seed).explore(true).check(check).memory_limit(1 << 20);
        let mut m = Machine::new(config).unwrap();
        let places: Vec<_> = self.homes.iter().map(|_| m.alloc_symmetric("x", 4, 4).unwrap()).collect();
        for pe in 0..n_pes {
            for place in &places {
                let at = m.local_addr(pe, *place).unwrap();
                m.write(pe, at, &[0; 4]).unwrap();
            }
        }
        let bytes = 4 * self.reads().max(1) as u64;
        let out: Vec<u64> = (0..n_pes).map(|pe| m.alloc(pe, "out", bytes, 4).unwrap()).collect();
        let ctas = self.threads.iter().map(|(at, _)| at.cta + 1).max().unwrap_or(1);
        let ctas = ctas.next_multiple_of(CLUSTER) as u32;
        let warps = self.slots().into_iter().max().unwrap_or(0) as u32 + 1;
        let launches: Vec<Launch> = (0..n_pes)
            .map(|pe| {
                let at = |(place, home): (&weft_sim::Symmetric, &usize)| {
                    Arg::U64(m.peer_addr(pe, *place, *home).unwrap())
                };
                let mut args: Vec<Arg> = places.iter().zip(&self.homes).map(at).collect();
                args.extend([Arg::U64(out[pe]), Arg::U32(pe as u32)]);
                Launch::default().pe(pe).grid([ctas, 1, 1]).block([warps * 32, 1, 1]).args(args)
            })
            .collect();
        m.launch(module, "k", &launches).unwrap_or_else(|e| panic!("{e}\n{self}"));
        let word = |pe: usize, at: u64| {
            let mut bytes = [0; 4];
            m.read(pe, at, &mut bytes).unwrap();
            u32::from_le_bytes(bytes)
        };
        let mut read = Vec::new();
        for (at, ops) in &self.threads {
            for op in ops {
                if matches!(op, Op::Read { .. } | Op::Exchange { .. }) {
                    read.push(word(at.pe, out[at.pe] + 4 * read.len() as u64));
                }
            }
        }
        let last = places.iter().zip(&self.homes);
        let last = last.map(|(place, home)| word(*home, m.local_addr(*home, *place).unwrap()));
        ((read, last.collect()), !m.take_findings().is_empty())
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NAMES: [&str; 4] = ["x", "y", "z", "w"];
        for (at, home) in self.homes.iter().enumerate() {
            write!(f, "{}@{home} ", NAMES[at])?;
        }
        for (place, ops) in &self.threads {
            write!(f, "| PE {} CTA {}:", place.pe, place.cta)?;
            for op in ops {
                match op {
                    Op::Read { at, order } => write!(f, " ld{} {};", order.modifiers(), NAMES[*at])?,
                    Op::Write { at, value, order } => {
                        write!(f, " st{} {}={value};", order.modifiers(), NAMES[*at])?;
                    }
                    Op::Exchange { at, value, order } => {
                        write!(f, " exch{} {}={value};", order.modifiers(), NAMES[*at])?;
                    }
                    Op::Fence { sc, scope } => {
                        write!(f, " fence.{}.{};", if *sc { "sc" } else { "acq_rel" }, scope.name())?;
                    }
                }
            }
        }
        Ok(())
    }
}
