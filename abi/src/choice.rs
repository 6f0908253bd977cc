//! The implementation of operations on other PEs' memory: what the user requests, and what is
//! decided.

use crate::words;
use serde::{Deserialize, Serialize};

words! {
    /// The way in which compiled code carries out in-switch operations.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    Lowering {
        /// Code uses `multimem` instructions on the team's multicast address, which the launch passes.
        Multimem = "multimem",
        /// Code uses loads, stores and reductions at every PE's own address. The launch passes a table of
        /// these.
        Unicast = "unicast",
    }
}

words! {
    /// The way in which a user asks for in-switch operations to be carried out.
    /// [`decide`](LoweringRequest::decide) makes a [`Lowering`] of it.
    #[derive(Default)]
    LoweringRequest {
        /// Use the switch if the team has a multicast address, and every PE's own address otherwise.
        #[default]
        Auto = "auto",
        /// Always use `multimem` instructions.
        Multimem = "multimem",
        /// Always use loads, stores and reductions at every PE's own address.
        Unicast = "unicast",
    }
}

impl LoweringRequest {
    /// The lowering for a team that has a multicast address or not. Only `Auto` depends on that.
    pub fn decide(self, multicast: bool) -> Lowering {
        match (self, multicast) {
            (LoweringRequest::Multimem, _) | (LoweringRequest::Auto, true) => Lowering::Multimem,
            (LoweringRequest::Unicast, _) | (LoweringRequest::Auto, false) => Lowering::Unicast,
        }
    }
}

impl From<Lowering> for LoweringRequest {
    fn from(decided: Lowering) -> LoweringRequest {
        match decided {
            Lowering::Multimem => LoweringRequest::Multimem,
            Lowering::Unicast => LoweringRequest::Unicast,
        }
    }
}

words! {
    /// The way in which remote memory operations (`put`, `get`, signals, atomics) are carried out.
    #[derive(Default)]
    Transport {
        /// Use direct loads and stores if they reach the other PE, and NVSHMEM's function otherwise. The code
        /// has both, behind one test of the other PE's address.
        #[default]
        Auto = "auto",
        /// Call NVSHMEM's functions, also for ranks and addresses. They work over any transport.
        Nvshmem = "nvshmem",
        /// Use loads, stores and atomics at the other PE's address, without a call. They must reach all PEs.
        P2p = "p2p",
    }
}

impl Transport {
    /// The transport that replaces this one in a world without NVSHMEM, where loads and stores
    /// reach all PEs.
    pub fn without_nvshmem(self) -> Transport {
        if self == Transport::Auto { Transport::P2p } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_auto_depends_on_the_team() {
        for asked in LoweringRequest::ALL {
            let decided = [true, false].map(|multicast| asked.decide(multicast));
            match asked {
                LoweringRequest::Auto => assert_eq!(decided, [Lowering::Multimem, Lowering::Unicast]),
                asked => assert_eq!(decided.map(LoweringRequest::from), [*asked; 2]),
            }
        }
    }
}
