//! What a launch needs to know of compiled code: stored beside it, and all that this room knows of a kernel.

use super::extent::{Extent, Extents};
use crate::DType;
use crate::error::{Error, NO_KERNEL, Result};
use crate::nvshmem::Version;
use serde::{Deserialize, Serialize};
use std::fmt;
use weft_abi::Lowering;

/// In place of a team's index: all PEs, which no parameter brings.
pub const WORLD: u32 = u32::MAX;

/// Compiled code.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ModuleInfo {
    /// As in PTX's `.target`: `sm_90a`.
    pub target: String,
    /// As in PTX's `.version`: `8.1`.
    pub ptx_version: String,
    /// How in-switch operations are carried out.
    pub lowering: Lowering,
    /// NVSHMEM's device functions that the code calls and does not have: it cannot be loaded before it is joined with
    /// an object that has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub external: Vec<String>,
    /// Which NVSHMEM's device functions are in the code: the host's must be of the same version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvshmem: Option<Version>,
    /// Entry points.
    pub kernels: Vec<KernelInfo>,
}

/// An entry point.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct KernelInfo {
    /// Its name in the PTX.
    pub name: String,
    /// Threads a CTA (x, y, z).
    pub block: [u32; 3],
    /// CTAs a cluster, if the code says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<[u32; 3]>,
    /// CTAs, if the kernel says so; else the caller chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grid: Option<[Extent; 3]>,
    /// Whether it tells CTAs apart by y and z; else a grid has only x.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub planes: bool,
    /// Its parameters: the caller's, in the order of the text, then those that the launch fills in.
    pub params: Vec<ParamInfo>,
}

/// A parameter.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ParamInfo {
    /// Its name.
    pub name: String,
    /// Bytes from the start of the parameters.
    pub offset: u32,
    /// In bytes; 0 for a team, of which only hidden parameters tell the code.
    pub size: u32,
    /// What it is.
    #[serde(flatten)]
    pub kind: ParamKind,
}

/// What a parameter is. `base` and `team` are indices of parameters; [`WORLD`] is the team of all PEs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ParamKind {
    /// The address of a tensor.
    Tensor {
        /// Element type.
        dtype: DType,
        /// Shape and strides, in elements.
        layout: Extents,
        /// Whose memory.
        space: Space,
        /// Of its address, in bytes; a power of two.
        align: u32,
    },
    /// A number.
    Scalar {
        /// Its type.
        dtype: DType,
        /// A positive multiple of this; 0 where it can be any number.
        #[serde(default, skip_serializing_if = "is_zero")]
        multiple_of: i64,
    },
    /// The address of a barrier's counters.
    Barrier,
    /// A team, which is not passed.
    Team,
    /// Hidden: the multicast address of `base` in `team`.
    Multicast {
        /// A symmetric tensor or barrier.
        base: u32,
        /// A team.
        team: u32,
    },
    /// Hidden: the address of a table of `base`'s address on every PE of `team`, a `u64` each.
    Peers {
        /// A symmetric tensor or barrier.
        base: u32,
        /// A team.
        team: u32,
    },
    /// Hidden: as `Peers`, with 0 for a PE whose memory loads and stores do not reach.
    Reach {
        /// A symmetric tensor or barrier.
        base: u32,
        /// A team.
        team: u32,
    },
    /// Hidden: NVSHMEM's number of `team` (`i32`).
    TeamHandle {
        /// A team.
        team: u32,
    },
    /// Hidden: this PE's rank in `team` (`i32`).
    MyPe {
        /// A team.
        team: u32,
    },
    /// Hidden: PEs of `team` (`i32`).
    NPes {
        /// A team.
        team: u32,
    },
}

/// Whose memory a tensor is in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Space {
    /// The symmetric heap's.
    Symm,
    /// This GPU's; symmetric memory is that too.
    Global,
}

impl ParamKind {
    /// Whether the launch fills it in.
    pub fn is_hidden(&self) -> bool {
        use ParamKind::{Barrier, Scalar, Team, Tensor};
        !matches!(self, Tensor { .. } | Scalar { .. } | Barrier | Team)
    }
}

impl fmt::Display for ParamKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParamKind::Tensor { dtype, layout, space: Space::Symm, .. } => {
                write!(f, "symm<{dtype}, {layout}>")
            }
            ParamKind::Tensor { dtype, layout, space: Space::Global, .. } => {
                write!(f, "global<{dtype}, {layout}>")
            }
            ParamKind::Scalar { dtype, .. } => dtype.fmt(f),
            ParamKind::Barrier => f.write_str("barrier"),
            ParamKind::Team => f.write_str("team"),
            ParamKind::Multicast { base, team } => write!(f, "multicast(%{base}, {})", shown(*team)),
            ParamKind::Peers { base, team } => write!(f, "peers(%{base}, {})", shown(*team)),
            ParamKind::Reach { base, team } => write!(f, "reach(%{base}, {})", shown(*team)),
            ParamKind::TeamHandle { team } => write!(f, "team({})", shown(*team)),
            ParamKind::MyPe { team } => write!(f, "my_pe({})", shown(*team)),
            ParamKind::NPes { team } => write!(f, "n_pes({})", shown(*team)),
        }
    }
}

fn shown(team: u32) -> String {
    if team == WORLD { "world".into() } else { format!("%{team}") }
}

impl ModuleInfo {
    /// The entry point of that name.
    ///
    /// # Errors
    /// `R0504`, with the names there are.
    pub fn kernel(&self, name: &str) -> Result<&KernelInfo> {
        self.kernels.iter().find(|k| k.name == name).ok_or_else(|| {
            let names: Vec<_> = self.kernels.iter().map(|k| format!("`{}`", k.name)).collect();
            Error::new(NO_KERNEL, format!("the module has no kernel `{name}`"))
                .help(format!("it has {}", if names.is_empty() { "none".into() } else { names.join(", ") }))
        })
    }
}

impl KernelInfo {
    /// Threads a CTA.
    pub fn threads(&self) -> u32 {
        self.block.iter().fold(1, |n, b| n.saturating_mul(*b))
    }

    /// The caller's parameters: those arguments are given for, in order.
    pub fn arguments(&self) -> impl Iterator<Item = (usize, &ParamInfo)> {
        self.params.iter().enumerate().filter(|(_, p)| !p.kind.is_hidden())
    }

    /// Whether its CTAs wait for those of other PEs: then all of them must be on the GPU at once.
    pub fn has_barrier(&self) -> bool {
        self.params.iter().any(|p| p.kind == ParamKind::Barrier)
    }

    /// Bytes of all parameters.
    pub fn param_bytes(&self) -> usize {
        self.params.iter().map(|p| p.offset.saturating_add(p.size) as usize).max().unwrap_or(0)
    }
}

/// Whether code for a target runs on a device of that compute capability (PTX ISA, `.target`): `sm_90a` on 9.0 alone,
/// `sm_100f` on 10.0 and later 10.x, `sm_80` on all from 8.0.
pub fn runs_on(target: &str, (major, minor): (u32, u32)) -> bool {
    let Some(rest) = target.strip_prefix("sm_") else { return false };
    let number = rest.trim_end_matches(['a', 'f']);
    let Ok(least) = number.parse::<u32>() else { return false };
    let device = major * 10 + minor;
    match &rest[number.len()..] {
        "" => device >= least,
        "a" => device == least,
        "f" => device >= least && major == least / 10,
        _ => false,
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_zero(n: &i64) -> bool {
    *n == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_for_an_architecture_runs_on_it_alone() {
        for (target, on, not) in [
            ("sm_80", vec![(8, 0), (8, 9), (9, 0), (12, 0)], vec![(7, 5)]),
            ("sm_90a", vec![(9, 0)], vec![(8, 9), (10, 0)]),
            ("sm_100f", vec![(10, 0), (10, 3)], vec![(9, 0), (12, 0)]),
            ("sm_", vec![], vec![(9, 0)]),
            ("compute_90", vec![], vec![(9, 0)]),
            ("sm_90af", vec![], vec![(9, 0)]),
        ] {
            assert!(on.iter().all(|c| runs_on(target, *c)), "{target}");
            assert!(!not.iter().any(|c| runs_on(target, *c)), "{target}");
        }
    }
}
