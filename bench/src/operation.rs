//! The operations that can be measured: the collectives, and remote operations in kernels.

use serde::{Deserialize, Serialize};
use std::fmt;
use weft::collective::{Collective, Counts};
use weft_runtime::Reduce;

/// An operation that is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "&'static str", try_from = "String")]
pub enum Operation {
    /// A collective of all PEs.
    Collective(Collective),
    /// Each PE puts to the next one, all at the same time.
    Put,
    /// Each PE gets from the previous one, all at the same time.
    Get,
    /// A word and a signal that follows it, from PE 0 to PE 1 and back. The result is half of a
    /// round trip.
    Signal,
    /// A barrier of all PEs.
    Barrier,
}

impl Operation {
    /// Every operation that can be measured.
    pub fn all() -> impl Iterator<Item = Operation> {
        let rest = [Operation::Put, Operation::Get, Operation::Signal, Operation::Barrier];
        Collective::ALL.into_iter().map(Operation::Collective).chain(rest)
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Collective(c) => c.name(),
            Operation::Put => "put",
            Operation::Get => "get",
            Operation::Signal => "signal",
            Operation::Barrier => "barrier",
        }
    }

    /// The operation of that name.
    ///
    /// # Errors
    /// Fails for an unknown name. The message lists the known names.
    pub fn parse(name: &str) -> Result<Operation, String> {
        Operation::all().find(|o| o.name() == name).ok_or_else(|| {
            let known: Vec<_> = Operation::all().map(Operation::name).collect();
            format!("`{name}` is not an operation that can be measured: expected one of {}", known.join(", "))
        })
    }

    /// Whether the operation combines elements of several PEs into one.
    pub fn reduces(self) -> bool {
        matches!(self, Operation::Collective(c) if c.reduces())
    }

    /// Whether the bytes that it moves depend on the size; a signal and a barrier have no size.
    pub fn has_size(self) -> bool {
        !matches!(self, Operation::Signal | Operation::Barrier)
    }

    /// The number of parts of the larger buffer: one for each PE if it is divided.
    pub fn parts(self, n_pes: u32) -> u64 {
        match self {
            Operation::Collective(c) => c.parts(n_pes),
            _ => 1,
        }
    }

    /// The elements for `bytes` bytes of the larger buffer, rounded down to whole parts; none if
    /// there is not one element for each part.
    pub fn counts(self, bytes: u64, element: u64, n_pes: u32) -> Option<Counts> {
        match self {
            Operation::Collective(c) => c.counts(bytes, element, n_pes),
            Operation::Put | Operation::Get => {
                let count = bytes / element;
                (count > 0).then_some(Counts { count, send: count, recv: count, bytes: count * element })
            }
            // A signal moves one word of eight bytes, and a barrier moves nothing.
            Operation::Signal => Some(Counts { count: 1, send: 1, recv: 1, bytes: 8 }),
            Operation::Barrier => Some(Counts { count: 0, send: 1, recv: 1, bytes: 0 }),
        }
    }

    /// The ratio of bus bandwidth to algorithm bandwidth: the bytes that each link carries for a
    /// byte of the size (nccl-tests, doc/PERFORMANCE.md; sendrecv has 1 there).
    pub fn bus_factor(self, n_pes: u32) -> f64 {
        match self {
            Operation::Collective(c) => c.bus_factor(n_pes),
            _ => 1.0,
        }
    }

    /// The expected element `i` on PE `pe`, if `given(pe, i)` is each PE's input.
    pub fn result(
        self,
        op: Reduce,
        counts: &Counts,
        n_pes: u32,
        pe: u32,
        i: u64,
        given: impl Fn(u32, u64) -> i64,
    ) -> i64 {
        match self {
            Operation::Collective(c) => c.result(op, counts, n_pes, pe, i, given),
            _ => given((pe + n_pes - 1) % n_pes, i),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<Operation> for &'static str {
    fn from(operation: Operation) -> &'static str {
        operation.name()
    }
}

impl TryFrom<String> for Operation {
    type Error = String;

    fn try_from(name: String) -> Result<Operation, String> {
        Operation::parse(&name)
    }
}

impl From<Collective> for Operation {
    fn from(collective: Collective) -> Operation {
        Operation::Collective(collective)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for operation in Operation::all() {
            assert_eq!(Operation::parse(operation.name()), Ok(operation));
            let json = serde_json::to_string(&operation).unwrap();
            assert_eq!(serde_json::from_str::<Operation>(&json).unwrap(), operation);
        }
        let none = Operation::parse("allsum").unwrap_err();
        assert!(
            none.contains("`allsum`") && none.contains("broadcast") && none.ends_with("barrier"),
            "{none}"
        );
    }

    #[test]
    fn neighbours() {
        let counts = Operation::Put.counts(10, 4, 3).unwrap();
        assert_eq!((counts.count, counts.bytes), (2, 8));
        assert_eq!(Operation::Get.counts(3, 4, 3), None);
        let given = |pe: u32, i: u64| i64::from(pe) * 100 + i as i64;
        let of = |o: Operation, pe| o.result(Reduce::Sum, &counts, 3, pe, 1, given);
        assert_eq!([of(Operation::Put, 0), of(Operation::Put, 2)], [201, 101]);
        assert_eq!([of(Operation::Get, 0), of(Operation::Get, 2)], [201, 101]);
        assert_eq!(Operation::Barrier.counts(1 << 20, 4, 3).unwrap().bytes, 0);
    }
}
