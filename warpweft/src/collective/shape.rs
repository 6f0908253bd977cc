//! Describes the collectives: the data of each PE before and after, and the bandwidth as nccl-tests
//! computes it from the time.

use std::fmt;
use weft_runtime::Reduce;

/// A collective operation of a team.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Collective {
    /// Every PE gets the reduction of all PEs' elements.
    AllReduce,
    /// Every PE gets all PEs' elements.
    AllGather,
    /// Every PE gets its part of the reduction.
    ReduceScatter,
    /// Every PE gets the root's elements.
    Broadcast,
    /// Every PE gets its part of each PE's elements.
    AllToAll,
}

/// The numbers of elements of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Elements of the smaller side of a PE, which nccl-tests calls `count` and a kernel calls `N`.
    pub count: u64,
    /// Elements that a PE sends.
    pub send: u64,
    /// Elements that a PE receives.
    pub recv: u64,
    /// Bytes of the larger side, which nccl-tests calls `size`.
    pub bytes: u64,
}

impl Collective {
    /// Every collective, in the order of the variants.
    pub const ALL: [Collective; 5] = [
        Collective::AllReduce,
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::Broadcast,
        Collective::AllToAll,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        ["allreduce", "allgather", "reducescatter", "broadcast", "alltoall"][self as usize]
    }

    /// The collective of that name.
    pub fn parse(name: &str) -> Option<Collective> {
        Collective::ALL.into_iter().find(|c| c.name() == name)
    }

    /// Whether elements of several PEs are combined into one.
    pub fn reduces(self) -> bool {
        matches!(self, Collective::AllReduce | Collective::ReduceScatter)
    }

    /// The number of parts of the larger side: one for each PE if it is divided.
    pub fn parts(self, n_pes: u32) -> u64 {
        match self {
            Collective::AllReduce | Collective::Broadcast => 1,
            Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll => n_pes.into(),
        }
    }

    /// The numbers of elements for `bytes` bytes on the larger side. They are fewer if the parts do not
    /// divide them, and none if there is not one element for each part.
    pub fn counts(self, bytes: u64, element: u64, n_pes: u32) -> Option<Counts> {
        let parts = self.parts(n_pes);
        let count = bytes / (element * parts);
        (count > 0).then(|| self.of_count(count, element, n_pes))
    }

    /// The numbers of elements for a kernel's `n`.
    pub fn of_count(self, count: u64, element: u64, n_pes: u32) -> Counts {
        let whole = count * self.parts(n_pes);
        let (send, recv) = match self {
            Collective::AllReduce | Collective::Broadcast => (count, count),
            Collective::AllGather => (count, whole),
            Collective::ReduceScatter => (whole, count),
            Collective::AllToAll => (whole, whole),
        };
        Counts { count, send, recv, bytes: whole * element }
    }

    /// The shapes of a PE's operand and result, with a row for each PE if they have parts.
    pub fn shapes(self, counts: &Counts, n_pes: u32) -> [Vec<usize>; 2] {
        [counts.send, counts.recv].map(|n| {
            let count = counts.count as usize;
            if self.parts(n_pes) > 1 && n > counts.count {
                vec![n_pes as usize, count]
            } else {
                vec![n as usize]
            }
        })
    }

    /// Bus bandwidth for algorithm bandwidth: what each link carries for a byte of the size (nccl-tests,
    /// doc/PERFORMANCE.md).
    pub fn bus_factor(self, n_pes: u32) -> f64 {
        let others = f64::from(n_pes.saturating_sub(1)) / f64::from(n_pes.max(1));
        match self {
            Collective::AllReduce => 2.0 * others,
            Collective::AllGather | Collective::ReduceScatter | Collective::AllToAll => others,
            Collective::Broadcast => 1.0,
        }
    }

    /// The expected element `i` on PE `pe`, if `input(pe, i)` is each PE's input.
    pub fn result(
        self,
        op: Reduce,
        counts: &Counts,
        n_pes: u32,
        pe: u32,
        i: u64,
        input: impl Fn(u32, u64) -> i64,
    ) -> i64 {
        let reduced = |i: u64| {
            let all = (0..n_pes).map(|pe| input(pe, i));
            match op {
                Reduce::Min => all.min().unwrap_or_default(),
                Reduce::Max => all.max().unwrap_or_default(),
                _ => all.sum(),
            }
        };
        match self {
            Collective::AllReduce => reduced(i),
            Collective::ReduceScatter => reduced(u64::from(pe) * counts.count + i),
            Collective::AllGather => input((i / counts.count) as u32, i % counts.count),
            Collective::Broadcast => input(0, i),
            Collective::AllToAll => {
                input((i / counts.count) as u32, u64::from(pe) * counts.count + i % counts.count)
            }
        }
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_those_of_nccl_tests() {
        // doc/PERFORMANCE.md: 2(n-1)/n, (n-1)/n, (n-1)/n, 1, (n-1)/n.
        let of = |n| Collective::ALL.map(|c| c.bus_factor(n));
        assert_eq!(of(8), [1.75, 0.875, 0.875, 1.0, 0.875]);
        assert_eq!(of(2), [1.0, 0.5, 0.5, 1.0, 0.5]);
        assert_eq!(of(1), [0.0, 0.0, 0.0, 1.0, 0.0]);
    }

    #[test]
    fn counts_are_whole_elements_for_each_pe() {
        let counts = |c: Collective, bytes| c.counts(bytes, 4, 8).map(|k| (k.count, k.send, k.recv, k.bytes));
        assert_eq!(counts(Collective::AllReduce, 1024), Some((256, 256, 256, 1024)));
        assert_eq!(counts(Collective::Broadcast, 7), Some((1, 1, 1, 4)));
        assert_eq!(counts(Collective::AllGather, 1000), Some((31, 31, 248, 992)));
        assert_eq!(counts(Collective::ReduceScatter, 1024), Some((32, 256, 32, 1024)));
        assert_eq!(counts(Collective::ReduceScatter, 31), None);
        assert_eq!(counts(Collective::AllReduce, 3), None);
        assert!(counts(Collective::AllGather, u64::MAX).is_some());
    }

    #[test]
    fn results_by_hand() {
        // PE p has 100 p + i; 2 PEs.
        let input = |pe: u32, i: u64| i64::from(pe) * 100 + i as i64;
        let result = |c: Collective, op, pe, i| {
            let counts = c.counts(32, 4, 2).unwrap();
            c.result(op, &counts, 2, pe, i, input)
        };
        assert_eq!(result(Collective::AllReduce, Reduce::Sum, 1, 3), 106);
        assert_eq!(result(Collective::AllReduce, Reduce::Min, 1, 3), 3);
        assert_eq!(result(Collective::ReduceScatter, Reduce::Sum, 1, 3), 7 + 107);
        assert_eq!(result(Collective::ReduceScatter, Reduce::Max, 0, 3), 103);
        assert_eq!(result(Collective::AllGather, Reduce::Sum, 0, 6), 102);
        assert_eq!(result(Collective::Broadcast, Reduce::Sum, 1, 6), 6);
        assert_eq!(result(Collective::AllToAll, Reduce::Sum, 1, 6), 106);
    }

    #[test]
    fn names_read_back() {
        assert!(Collective::ALL.into_iter().all(|c| Collective::parse(c.name()) == Some(c)));
        assert_eq!(serde_json::to_string(&Collective::AllReduce).unwrap(), "\"allreduce\"");
    }
}
