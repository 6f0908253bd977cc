//! How operations on other PEs' memory are compiled: what the user asks for, and what is decided.

use crate::words;
use serde::{Deserialize, Serialize};

words! {
    /// How in-switch operations are carried out in compiled code.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    Lowering {
        /// By `multimem` instructions on the team's multicast address, which the launch passes.
        Multimem = "multimem",
        /// By loads, stores and reductions at every PE's own address; the launch passes a table of these.
        Unicast = "unicast",
    }
}

words! {
    /// How in-switch operations should be carried out: what the user asks for. [`decide`](LoweringRequest::decide)
    /// makes a [`Lowering`] of it.
    #[derive(Default)]
    LoweringRequest {
        /// By the switch where the team has a multicast address, else by every PE's own address.
        #[default]
        Auto = "auto",
        /// By `multimem` instructions.
        Multimem = "multimem",
        /// By loads, stores and reductions at every PE's own address.
        Unicast = "unicast",
    }
}

impl LoweringRequest {
    /// The lowering for a team, which has a multicast address or not. Only `Auto` depends on that.
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
    /// How remote memory operations (`put`, `get`, signals, atomics) are carried out.
    #[derive(Default)]
    Transport {
        /// In place for PEs that loads and stores reach, else by NVSHMEM's function. The code has both, behind one
        /// test of the other PE's address.
        #[default]
        Auto = "auto",
        /// By NVSHMEM's functions, which also tell ranks and addresses, over any transport.
        Nvshmem = "nvshmem",
        /// By loads, stores and atomics at the other PE's address, without a call. All PEs must be in reach.
        P2p = "p2p",
    }
}

impl Transport {
    /// What it is in a world without NVSHMEM, where all PEs are in reach.
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
