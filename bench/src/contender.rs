//! The implementations that are measured: kernels of warpweft, and its peers in the same run.

use super::operation::Operation;
use super::own::Own;
use super::torch;
use weft::collective::{Algorithm, Collective, Placement, Request};
use weft_runtime::{DType, Reduce, nccl};

/// An implementation that is measured.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Contender {
    /// A kernel of warpweft.
    Ours(&'static Algorithm),
    /// The kernel of warpweft that [`weft::collective::Plan::choose`] chooses by size, type and
    /// links.
    Auto,
    /// A kernel from a file.
    Own(&'static Own),
    /// Remote operations of warpweft's language, lowered to loads and stores at the other PE's
    /// address.
    P2p,
    /// NVSHMEM's collective on a stream, or its device function in a kernel that is otherwise the
    /// same as warpweft's.
    Nvshmem,
    /// NVSHMEM's operation on a stream, which the copy engine carries out.
    Stream,
    /// NCCL with memory from cudaMalloc.
    Nccl,
    /// NCCL with registered windows, and with its symmetric kernels for the operations that have
    /// one.
    NcclSymm,
    /// A peer that is called from Python, by name: PyTorch's symmetric memory (one of its
    /// algorithms, or the fastest of them), or a kernel of an inference engine.
    Torch(&'static str),
}

/// The peers, in the order in which messages list them.
pub const PEERS: [Contender; 10] = [
    Contender::Nccl,
    Contender::NcclSymm,
    Contender::Nvshmem,
    Contender::Stream,
    Contender::Torch(torch::CONTENDERS[0]),
    Contender::Torch(torch::CONTENDERS[1]),
    Contender::Torch(torch::CONTENDERS[2]),
    Contender::Torch(torch::CONTENDERS[3]),
    Contender::Torch(torch::CONTENDERS[4]),
    Contender::Torch(torch::CONTENDERS[5]),
];

const BOTH: &[Placement] = &[Placement::OutOfPlace, Placement::InPlace];
const APART: &[Placement] = &[Placement::OutOfPlace];

/// The placements for which `has` is true.
fn places(has: impl Fn(Placement) -> bool) -> &'static [Placement] {
    match (has(Placement::OutOfPlace), has(Placement::InPlace)) {
        (true, true) => BOTH,
        (false, true) => &[Placement::InPlace],
        _ => APART,
    }
}

impl Contender {
    /// All contenders of warpweft for an operation.
    pub fn ours(operation: Operation) -> Vec<Contender> {
        match operation {
            Operation::Collective(c) => {
                // `auto` exists only if there are algorithms to choose from.
                let auto = Algorithm::of(c).next().map(|_| Contender::Auto);
                Algorithm::of(c).map(Contender::Ours).chain(auto).collect()
            }
            _ => vec![Contender::P2p],
        }
    }

    /// The algorithms that a list of names, or `all`, means for an operation.
    ///
    /// # Errors
    /// Fails for an unknown name. The message lists the known names.
    pub fn algorithms(operation: Operation, names: &str) -> Result<Vec<Contender>, String> {
        let all = Contender::ours(operation);
        let named: Vec<_> = all.iter().map(|c| (c.name(), *c)).collect();
        match names {
            "all" => Ok(all),
            names => pick(names, &named, &format!("algorithm of {operation}"), "all, or of "),
        }
    }

    /// The peers that a list of names means.
    ///
    /// # Errors
    /// Fails for an unknown name. The message lists the known names.
    pub fn peers(names: &str) -> Result<Vec<Contender>, String> {
        pick(names, &PEERS.map(|c| (c.name(), c)), "peer", "")
    }

    /// Whether a name is that of a peer.
    pub fn is_peer(name: &str) -> bool {
        PEERS.iter().any(|peer| peer.name() == name)
    }

    /// The name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Contender::Ours(a) => a.name,
            Contender::Auto => "auto",
            Contender::Own(own) => own.name(),
            Contender::P2p => "p2p",
            Contender::Nvshmem => "nvshmem",
            Contender::Stream => "nvshmem-stream",
            Contender::Nccl => "nccl",
            Contender::NcclSymm => "nccl-symm",
            Contender::Torch(name) => name,
        }
    }

    /// Whether the contender is an implementation of warpweft.
    pub fn is_ours(self) -> bool {
        matches!(self, Contender::Ours(_) | Contender::Auto | Contender::Own(_) | Contender::P2p)
    }

    /// Whether the contender is NCCL, with either kind of memory.
    pub fn is_nccl(self) -> bool {
        matches!(self, Contender::Nccl | Contender::NcclSymm)
    }

    /// The placements of the results that the contender supports.
    pub fn places(self, operation: Operation) -> &'static [Placement] {
        use Operation::Collective as Of;
        match (self, operation) {
            (Contender::Ours(a), _) => places(|place| a.kernel(place).is_some()),
            (Contender::Auto, Of(c)) => places(|place| Algorithm::of(c).any(|a| a.kernel(place).is_some())),
            (Contender::Torch(name), Of(c)) => places(|place| torch::has(name, c, place)),
            (Contender::Own(own), _) => own.places(),
            (_, Of(Collective::AllToAll)) => APART,
            (Contender::Nccl | Contender::NcclSymm, Of(_)) => BOTH,
            // NVSHMEM's other collectives do not work in place.
            (Contender::Nvshmem, Of(Collective::AllReduce)) => BOTH,
            _ => APART,
        }
    }

    /// Whether the contender supports that operation.
    ///
    /// # Errors
    ///
    /// Says why the contender does not support it.
    pub fn can(self, operation: Operation, dtype: DType, op: Reduce) -> Result<(), String> {
        let name = self.name();
        if dtype == DType::Bool {
            return Err("operations are measured with numbers, and bool is not a number type".into());
        }
        match (self, operation) {
            (Contender::Ours(a), Operation::Collective(collective)) => able(a, collective, dtype, op),
            (Contender::Auto, Operation::Collective(collective)) => {
                let mut all = Algorithm::of(collective).map(|a| able(a, collective, dtype, op));
                let first =
                    all.next().unwrap_or_else(|| Err(format!("warpweft has no algorithm for {operation}")));
                first.or_else(|why| all.find(Result::is_ok).unwrap_or(Err(why)))
            }
            (Contender::Own(_), Operation::Collective(_)) => Ok(()),
            (Contender::P2p, Operation::Collective(_)) => {
                Err(format!("{name} does not support {operation}: it measures put and get"))
            }
            (Contender::Ours(_) | Contender::Auto | Contender::Own(_), _) => {
                Err(format!("{name} is an algorithm of a collective, but {operation} is not a collective"))
            }
            (Contender::Stream, Operation::Put | Operation::Get) => Ok(()),
            (Contender::Stream, _) => Err(format!("nvshmem-stream has only put and get, not {operation}")),
            (Contender::Nccl | Contender::NcclSymm, Operation::Collective(c)) if c.reduces() => {
                nccl::reduces(dtype, op).map_err(|e| format!("{}: leave {name} out", e.message))
            }
            (Contender::Nccl | Contender::NcclSymm, Operation::Collective(_)) => Ok(()),
            (Contender::Nccl | Contender::NcclSymm, _) => {
                Err(format!("NCCL does not support {operation}: leave {name} out"))
            }
            (Contender::Torch(_), Operation::Collective(c)) => torch::can(name, c, dtype, op),
            (Contender::Torch(_), _) => Err(format!("{name} does not support {operation}: leave it out")),
            (Contender::Nvshmem, Operation::Collective(c))
                if c.reduces() && dtype.nvshmem_name().is_none() =>
            {
                Err(format!("NVSHMEM has no reductions of {dtype}: leave nvshmem out"))
            }
            _ => Ok(()),
        }
    }
}

/// Whether an algorithm supports the request for some placement. Which placement, and whether the
/// algorithm needs the switch, is checked when it is called.
fn able(a: &'static Algorithm, collective: Collective, dtype: DType, op: Reduce) -> Result<(), String> {
    let place =
        if a.kernel(Placement::OutOfPlace).is_some() { Placement::OutOfPlace } else { Placement::InPlace };
    let request = Request { op, place, multicast: true, ..Request::new(collective, dtype, 1, 1) };
    a.can(&request)
}

/// The items that comma-separated names stand for, each once.
pub(super) fn pick<C: Copy>(
    names: &str,
    known: &[(&'static str, C)],
    what: &str,
    or: &str,
) -> Result<Vec<C>, String> {
    let mut picked: Vec<(&str, C)> = Vec::new();
    for name in names.split(',') {
        let Some(contender) = known.iter().find(|(n, _)| *n == name) else {
            let known: Vec<_> = known.iter().map(|(n, _)| *n).collect();
            return Err(format!("`{name}` is not a known {what}: expected {or}{}", known.join(", ")));
        };
        if !picked.iter().any(|(n, _)| *n == name) {
            picked.push(*contender);
        }
    }
    Ok(picked.into_iter().map(|(_, contender)| contender).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLREDUCE: Operation = Operation::Collective(Collective::AllReduce);

    #[test]
    fn names_are_picked() {
        let names = |found: Result<Vec<Contender>, String>| -> Result<Vec<&str>, String> {
            found.map(|all| all.into_iter().map(Contender::name).collect())
        };
        let algorithms = |text: &str| names(Contender::algorithms(ALLREDUCE, text));
        let all = algorithms("all").unwrap();
        assert!(all.len() > 1 && all.last() == Some(&"auto"), "{all:?}");
        assert_eq!(algorithms(&format!("auto,{},auto", all[0])).unwrap(), ["auto", all[0]]);
        let none = algorithms("ring2").unwrap_err();
        assert!(
            none.starts_with("`ring2` is not a known algorithm of allreduce: expected all, or of "),
            "{none}"
        );
        assert_eq!(names(Contender::peers("nvshmem,nccl")).unwrap(), ["nvshmem", "nccl"]);
        assert_eq!(
            Contender::peers("mpi").unwrap_err(),
            "`mpi` is not a known peer: expected nccl, nccl-symm, nvshmem, nvshmem-stream, torch, torch-one-shot, \
             torch-two-shot, torch-multimem, flashinfer, vllm"
        );
        assert_eq!(names(Contender::algorithms(Operation::Put, "all")).unwrap(), ["p2p"]);
    }

    #[test]
    fn what_a_contender_cannot() {
        use Contender::{Auto, Nccl, NcclSymm, Nvshmem, P2p, Stream};
        let why = |c: Contender, operation, dtype, op| c.can(operation, dtype, op).err().unwrap_or_default();
        let gather = Operation::Collective(Collective::AllGather);
        for c in [Auto, Nvshmem, Nccl, NcclSymm] {
            assert_eq!(why(c, ALLREDUCE, DType::F32, Reduce::Sum), "");
            assert!(why(c, ALLREDUCE, DType::Bool, Reduce::Sum).contains("bool"));
        }
        assert!(why(Nvshmem, ALLREDUCE, DType::E4M3, Reduce::Sum).contains("e4m3"));
        assert_eq!(why(Nvshmem, gather, DType::E4M3, Reduce::Sum), "");
        assert!(why(Nccl, ALLREDUCE, DType::I16, Reduce::Sum).contains("sum of i16"));
        assert_eq!(why(Nccl, gather, DType::I16, Reduce::Sum), "");
        assert!(why(NcclSymm, Operation::Put, DType::F32, Reduce::Sum).contains("not support put"));
        assert!(why(Stream, Operation::Barrier, DType::F32, Reduce::Sum).contains("not barrier"));
        assert!(why(P2p, ALLREDUCE, DType::F32, Reduce::Sum).contains("not support allreduce"));
        assert_eq!(why(P2p, Operation::Signal, DType::F32, Reduce::Sum), "");
    }

    #[test]
    fn every_algorithm_has_a_place_and_a_type() {
        for operation in Operation::all() {
            for c in Contender::ours(operation) {
                assert!(!c.places(operation).is_empty(), "{}", c.name());
                assert_eq!(c.can(operation, DType::F32, Reduce::Sum), Ok(()), "{}", c.name());
            }
        }
    }
}
