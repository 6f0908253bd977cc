//! Parameters that no caller passes: the launch fills them in.

use crate::{EntryKind, MapShape, Scalar};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The index that stands for the team of all PEs (`NVSHMEM_TEAM_WORLD`), which no parameter brings.
pub const WORLD: u32 = u32::MAX;

/// A parameter that the launch fills in. `base` and `team` are indices of the kernel's parameters; the team of all
/// PEs is [`WORLD`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Hidden {
    /// The multicast address of `base` in `team`.
    Multicast {
        /// A symmetric tensor or barrier.
        base: u32,
        /// The parameter that brings the team, or [`WORLD`].
        team: u32,
    },
    /// The address of a table of `base`'s address on every PE of `team`, a `u64` each.
    Peers {
        /// A symmetric tensor or barrier.
        base: u32,
        /// The parameter that brings the team, or [`WORLD`].
        team: u32,
    },
    /// The address of a table like [`Peers`](Hidden::Peers), with 0 for a PE whose memory loads and stores do
    /// not reach.
    Reach {
        /// A symmetric tensor or barrier.
        base: u32,
        /// The parameter that brings the team, or [`WORLD`].
        team: u32,
    },
    /// The tensor map of `base`, by value.
    TensorMap {
        /// The tensor parameter that the map describes.
        base: u32,
        /// The boxes that are copied.
        map: MapShape,
    },
    /// The address of a table of the tensor maps of `base` on every PE of `team`, one behind the other.
    PeerMaps {
        /// The parameter that brings the symmetric tensor.
        base: u32,
        /// The parameter that brings the team, or [`WORLD`].
        team: u32,
        /// The boxes that are copied.
        map: MapShape,
    },
    /// NVSHMEM's number of `team`.
    TeamHandle {
        /// The parameter that brings the team, or [`WORLD`].
        team: u32,
    },
    /// This PE's rank in `team`.
    MyPe {
        /// The parameter that brings the team, or [`WORLD`].
        team: u32,
    },
    /// The number of PEs of `team`.
    NPes {
        /// The parameter that brings the team, or [`WORLD`].
        team: u32,
    },
    /// The address of the [watch block](crate::watch) of the kernel.
    Watch {},
}

impl Hidden {
    /// The name in kernel descriptions and in the IR's text.
    pub fn name(self) -> &'static str {
        match self {
            Hidden::Multicast { .. } => "multicast",
            Hidden::Peers { .. } => "peers",
            Hidden::Reach { .. } => "reach",
            Hidden::TensorMap { .. } => "tensor_map",
            Hidden::PeerMaps { .. } => "peer_maps",
            Hidden::TeamHandle { .. } => "team",
            Hidden::MyPe { .. } => "my_pe",
            Hidden::NPes { .. } => "n_pes",
            Hidden::Watch {} => "watch",
        }
    }

    /// The one of that [`name`](Hidden::name), of a parameter and a team, or of a team alone.
    pub fn parse(name: &str, base: Option<u32>, team: u32) -> Option<Hidden> {
        Some(match (name, base) {
            ("multicast", Some(base)) => Hidden::Multicast { base, team },
            ("peers", Some(base)) => Hidden::Peers { base, team },
            ("reach", Some(base)) => Hidden::Reach { base, team },
            ("team", None) => Hidden::TeamHandle { team },
            ("my_pe", None) => Hidden::MyPe { team },
            ("n_pes", None) => Hidden::NPes { team },
            ("watch", None) => Hidden::Watch {},
            _ => return None,
        })
    }

    /// The parameter whose address it is about.
    pub fn base(self) -> Option<u32> {
        match self {
            Hidden::Multicast { base, .. }
            | Hidden::Peers { base, .. }
            | Hidden::Reach { base, .. }
            | Hidden::PeerMaps { base, .. }
            | Hidden::TensorMap { base, .. } => Some(base),
            Hidden::TeamHandle { .. } | Hidden::MyPe { .. } | Hidden::NPes { .. } | Hidden::Watch {} => None,
        }
    }

    /// The boxes that are copied, of tensor maps.
    pub fn map(self) -> Option<MapShape> {
        match self {
            Hidden::TensorMap { map, .. } | Hidden::PeerMaps { map, .. } => Some(map),
            _ => None,
        }
    }

    /// The team parameter, or [`WORLD`].
    pub fn team(self) -> u32 {
        match self {
            Hidden::Multicast { team, .. }
            | Hidden::Peers { team, .. }
            | Hidden::Reach { team, .. }
            | Hidden::PeerMaps { team, .. } => team,
            Hidden::TeamHandle { team } | Hidden::MyPe { team } | Hidden::NPes { team } => team,
            Hidden::TensorMap { .. } | Hidden::Watch {} => WORLD,
        }
    }

    /// The form in which it is passed: addresses as `u64`, numbers as `i32`, tensor maps by value.
    pub fn entry(self) -> EntryKind {
        match self {
            Hidden::Multicast { .. }
            | Hidden::Peers { .. }
            | Hidden::Reach { .. }
            | Hidden::PeerMaps { .. }
            | Hidden::Watch {} => EntryKind::Number(Scalar::U64),
            Hidden::TensorMap { .. } => EntryKind::Map,
            Hidden::TeamHandle { .. } | Hidden::MyPe { .. } | Hidden::NPes { .. } => {
                EntryKind::Number(Scalar::I32)
            }
        }
    }
}

impl fmt::Display for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.name())?;
        if let Some(base) = self.base() {
            write!(f, "%{base}, ")?;
        }
        if let Hidden::TensorMap { map, .. } = self {
            return write!(f, "{map})");
        }
        match self.team() {
            WORLD => f.write_str("world")?,
            team => write!(f, "%{team}")?,
        }
        self.map().map_or(Ok(()), |map| write!(f, ", {map}"))?;
        f.write_str(")")
    }
}
