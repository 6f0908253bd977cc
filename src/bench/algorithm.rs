//! Who is measured: our kernels, and peers in the same run.

use crate::collective::{Collective, Counts, Place};
use weft_runtime::{DType, Reduce};

/// A kernel of the examples. Its parameters are `x`, `out` unless it works in place, a barrier, and the team; `T` and
/// `N` are the type and the count.
#[derive(Debug)]
pub struct Algorithm {
    /// What it computes.
    pub collective: Collective,
    /// As the command line names it.
    pub name: &'static str,
    /// Its text.
    pub source: &'static str,
    /// Where its results are.
    pub place: Place,
    /// Elements that a PE's threads go through.
    pub work: fn(&Counts, u64) -> u64,
}

/// The reduction that the kernels of the examples do.
const REDUCTION: Reduce = Reduce::Sum;

/// Every algorithm.
pub static ALGORITHMS: [Algorithm; 5] = [
    Algorithm {
        collective: Collective::AllReduce,
        name: "one_shot",
        source: include_str!("../../examples/allreduce_one_shot.weft"),
        place: Place::OutOfPlace,
        work: |c, _| c.count,
    },
    Algorithm {
        collective: Collective::AllReduce,
        name: "two_shot",
        source: include_str!("../../examples/allreduce_two_shot.weft"),
        place: Place::InPlace,
        work: |c, n_pes| c.count.div_ceil(n_pes),
    },
    Algorithm {
        collective: Collective::AllGather,
        name: "push",
        source: include_str!("../../examples/all_gather.weft"),
        place: Place::OutOfPlace,
        work: |c, _| c.count,
    },
    Algorithm {
        collective: Collective::ReduceScatter,
        name: "pull",
        source: include_str!("../../examples/reduce_scatter.weft"),
        place: Place::OutOfPlace,
        work: |c, _| c.count,
    },
    Algorithm {
        collective: Collective::Broadcast,
        name: "push",
        source: include_str!("../../examples/broadcast.weft"),
        place: Place::InPlace,
        work: |c, _| c.count,
    },
];

impl Algorithm {
    /// Those of a collective.
    pub fn of(collective: Collective) -> impl Iterator<Item = &'static Algorithm> {
        ALGORITHMS.iter().filter(move |a| a.collective == collective)
    }
}

/// An algorithm, or a peer.
#[derive(Clone, Copy, Debug)]
pub enum Contender {
    /// A kernel of ours.
    Ours(&'static Algorithm),
    /// NVSHMEM's collective on a stream.
    Nvshmem,
}

/// Peers, as the command line names them.
pub const PEERS: [(&str, Contender); 1] = [("nvshmem", Contender::Nvshmem)];

impl Contender {
    /// The algorithms that a list of names, or `all`, means for a collective.
    ///
    /// # Errors
    /// A name that is none, with those there are.
    pub fn algorithms(collective: Collective, names: &str) -> Result<Vec<Contender>, String> {
        let all: Vec<_> = Algorithm::of(collective).map(|a| (a.name, Contender::Ours(a))).collect();
        match names {
            "all" => Ok(all.into_iter().map(|(_, a)| a).collect()),
            names => pick(names, &all, &format!("algorithm of {collective}"), "all, or of "),
        }
    }

    /// The peers that a list of names means.
    ///
    /// # Errors
    /// A name that is none, with those there are.
    pub fn peers(names: &str) -> Result<Vec<Contender>, String> {
        pick(names, &PEERS, "peer", "")
    }

    /// As the table names it.
    pub fn name(self) -> &'static str {
        match self {
            Contender::Ours(a) => a.name,
            Contender::Nvshmem => "nvshmem",
        }
    }

    /// Where results can be.
    pub fn places(self, collective: Collective) -> &'static [Place] {
        match (self, collective) {
            (Contender::Ours(Algorithm { place: Place::InPlace, .. }), _) => &[Place::InPlace],
            (Contender::Nvshmem, Collective::AllReduce) => &[Place::OutOfPlace, Place::InPlace],
            _ => &[Place::OutOfPlace],
        }
    }

    /// Whether it has that operation, or why not.
    ///
    /// # Errors
    /// Why not.
    pub fn can(self, collective: Collective, dtype: DType, op: Reduce) -> Result<(), String> {
        let name = self.name();
        match self {
            _ if dtype == DType::Bool => {
                Err("collectives are measured over numbers, and bool is none".into())
            }
            _ if !collective.reduces() => Ok(()),
            Contender::Ours(_) if op != REDUCTION => {
                Err(format!("{name} does {} only, and not {}", REDUCTION.name(), op.name()))
            }
            Contender::Nvshmem if dtype.nvshmem_name().is_none() => {
                Err(format!("NVSHMEM moves {dtype} and does not reduce it: leave --against nvshmem out"))
            }
            _ => Ok(()),
        }
    }
}

/// What comma-separated names stand for, each once.
fn pick(names: &str, known: &[(&str, Contender)], what: &str, or: &str) -> Result<Vec<Contender>, String> {
    let mut picked: Vec<Contender> = Vec::new();
    for name in names.split(',') {
        let Some((_, contender)) = known.iter().find(|(n, _)| *n == name) else {
            let known: Vec<_> = known.iter().map(|(n, _)| *n).collect();
            return Err(format!("`{name}` is no {what}: expected {or}{}", known.join(", ")));
        };
        if picked.iter().all(|c| c.name() != name) {
            picked.push(*contender);
        }
    }
    Ok(picked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{RunOptions, run_file};
    use crate::{KernelFile, Lowering, Options};

    /// The table tells the truth about each kernel: what it computes, where, and that it takes `T` and `N`.
    #[test]
    fn every_algorithm_computes_its_collective() {
        let words =
            [("allreduce", "allreduce"), ("all_gather", "allgather"), ("reduce_scatter", "reducescatter")];
        for a in &ALGORITHMS {
            let file = KernelFile::parse("kernel.weft", a.source).unwrap();
            let mut compile = Options::new("sm_90a".parse().unwrap());
            compile.lowering = Lowering::Unicast;
            compile.defines.insert("N".into(), 100.into());
            compile.defines.insert("T".into(), weft_ir::Scalar::BF16.into());
            let outcome = run_file(&file, &RunOptions::new(compile, 3)).unwrap();
            assert!(outcome.passed(), "{}", a.name);
            let reference = outcome.compiled.references[0].as_ref().unwrap();
            let computes = words.iter().find(|(word, _)| **word == *reference.name);
            let computes = computes.map_or(&*reference.name, |(_, name)| name);
            assert_eq!(
                (computes, reference.args.len()),
                (
                    a.collective.name(),
                    match a.place {
                        Place::InPlace => 1,
                        Place::OutOfPlace => 2,
                    }
                )
            );
        }
    }

    #[test]
    fn names_are_picked() {
        let names = |found: Result<Vec<Contender>, String>| -> Result<Vec<&str>, String> {
            found.map(|all| all.into_iter().map(Contender::name).collect())
        };
        let algorithms = |text| names(Contender::algorithms(Collective::AllReduce, text));
        assert_eq!(algorithms("all").unwrap(), ["one_shot", "two_shot"]);
        assert_eq!(algorithms("two_shot,one_shot,two_shot").unwrap(), ["two_shot", "one_shot"]);
        assert_eq!(
            algorithms("ring").unwrap_err(),
            "`ring` is no algorithm of allreduce: expected all, or of one_shot, two_shot"
        );
        assert_eq!(names(Contender::peers("nvshmem")).unwrap(), ["nvshmem"]);
        assert_eq!(Contender::peers("mpi").unwrap_err(), "`mpi` is no peer: expected nvshmem");
    }

    #[test]
    fn what_a_contender_cannot() {
        let ours = Contender::Ours(&ALGORITHMS[0]);
        let can = |c: Contender, collective, dtype, op| c.can(collective, dtype, op).is_ok();
        assert!(can(ours, Collective::AllReduce, DType::E4M3, Reduce::Sum));
        assert!(!can(ours, Collective::AllReduce, DType::F32, Reduce::Min));
        assert!(can(Contender::Nvshmem, Collective::AllReduce, DType::F32, Reduce::Min));
        assert!(!can(Contender::Nvshmem, Collective::AllReduce, DType::E4M3, Reduce::Sum));
        assert!(can(Contender::Nvshmem, Collective::AllGather, DType::E4M3, Reduce::Sum));
        assert!(!can(ours, Collective::AllReduce, DType::Bool, Reduce::Sum));
    }
}
