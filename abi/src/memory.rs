//! Memory spaces, and scopes of accesses.

use crate::words;
use serde::{Deserialize, Serialize};

words! {
    /// The memory space that a tensor is in.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    Space {
        /// The memory of this GPU.
        Global = "global",
        /// This PE's part of the symmetric heap.
        #[serde(rename = "symm")]
        Symmetric = "symm",
        /// Another PE's part of the symmetric heap, through its unicast address.
        Peer = "peer",
        /// All PEs' parts at once, through the team's multicast address. Only `multimem` operations
        /// access it.
        Multicast = "multicast",
        /// The CTA's shared memory.
        Shared = "shared",
        /// The shared memory of another CTA of the cluster.
        Cluster = "cluster",
        /// A thread's registers.
        Register = "register",
    }
}

impl Space {
    /// Whether it is shared memory of this CTA or of another CTA of the cluster.
    pub fn is_shared(self) -> bool {
        matches!(self, Space::Shared | Space::Cluster)
    }
}

words! {
    /// The threads among which a memory order holds.
    Scope {
        /// The threads of one CTA.
        Cta = "cta",
        /// The threads of one cluster.
        Cluster = "cluster",
        /// The threads of one GPU.
        Gpu = "gpu",
        /// All threads of the system, including those of other PEs and the host.
        Sys = "sys",
    }
}
