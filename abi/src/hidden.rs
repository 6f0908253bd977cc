//! Parameters that the caller does not pass, because the launch fills them in.

use crate::{EntryKind, MapShape, Scalar};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The index that stands for the team of all PEs (`NVSHMEM_TEAM_WORLD`), which is not a parameter.
pub const WORLD: u32 = u32::MAX;

/// A parameter that the launch fills in. `base` and `team` are indices of the kernel's parameters.
/// [`WORLD`] is the team of all PEs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Hidden {
    /// The multicast address of `base` in `team`.
    Multicast {
        /// The parameter that is a symmetric tensor or barrier.
        base: u32,
        /// The team parameter, or [`WORLD`].
        team: u32,
    },
    /// The address of a table with the address of `base` on every PE of `team`. Each entry is a
    /// `u64`.
    Peers {
        /// The parameter that is a symmetric tensor or barrier.
        base: u32,
        /// The team parameter, or [`WORLD`].
        team: u32,
    },
    /// The address of a table like [`Peers`](Hidden::Peers), with 0 for a PE whose memory is out of
    /// reach for loads and stores.
    Reach {
        /// The parameter that is a symmetric tensor or barrier.
        base: u32,
        /// The team parameter, or [`WORLD`].
        team: u32,
    },
    /// The tensor map of `base`, which is passed by value.
    TensorMap {
        /// The tensor parameter that the map describes.
        base: u32,
        /// The boxes of the tensor that are copied.
        map: MapShape,
    },
    /// The address of a table of the tensor maps of `base` on every PE of `team`. The maps are
    /// consecutive.
    PeerMaps {
        /// The parameter that is the symmetric tensor.
        base: u32,
        /// The team parameter, or [`WORLD`].
        team: u32,
        /// The boxes of the tensor that are copied.
        map: MapShape,
    },
    /// The number of `team` in NVSHMEM.
    TeamHandle {
        /// The team parameter, or [`WORLD`].
        team: u32,
    },
    /// This PE's rank in `team`.
    MyPe {
        /// The team parameter, or [`WORLD`].
        team: u32,
    },
    /// The number of PEs of `team`.
    NPes {
        /// The team parameter, or [`WORLD`].
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

    /// The hidden parameter with that [`name`](Hidden::name) for a parameter and a team, or for a
    /// team alone.
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

    /// The parameter that the hidden parameter belongs to, if there is one.
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

    /// The boxes that are copied, for tensor maps.
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

    /// The form in which it is passed: addresses as `u64`, numbers as `i32`, and tensor maps by
    /// value.
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
