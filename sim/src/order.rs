//! The memory order of an instruction (PTX ISA 8, memory consistency model): strength, scope, acquire and release.

/// The threads among which a strong operation is ordered and atomic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Scope {
    Cta,
    Cluster,
    Gpu,
    Sys,
}

impl Scope {
    /// All scopes from the narrowest to the widest.
    pub(crate) const ALL: [Scope; 4] = [Scope::Cta, Scope::Cluster, Scope::Gpu, Scope::Sys];

    pub(crate) fn parse(name: &str) -> Option<Scope> {
        Some(match name {
            "cta" => Scope::Cta,
            "cluster" => Scope::Cluster,
            "gpu" | "gl" => Scope::Gpu,
            "sys" => Scope::Sys,
            _ => return None,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Scope::Cta => "cta",
            Scope::Cluster => "cluster",
            Scope::Gpu => "gpu",
            Scope::Sys => "sys",
        }
    }
}

/// The role of an access in synchronisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Order {
    /// The scope of a strong operation; `None` means weak.
    pub strong: Option<Scope>,
    pub acquire: bool,
    pub release: bool,
    /// Whether it uses the read-only path (`ld.global.nc`), which does not see writes of the same
    /// launch.
    pub non_coherent: bool,
}

impl Order {
    pub(crate) const WEAK: Order =
        Order { strong: None, acquire: false, release: false, non_coherent: false };
    /// The order of the reductions of `cp.reduce.async.bulk` (PTX ISA).
    pub(crate) const RELAXED_GPU: Order = Order { strong: Some(Scope::Gpu), ..Order::WEAK };
    /// The order of a synchronising operation of the whole system.
    pub(crate) const RELAXED_SYS: Order = Order { strong: Some(Scope::Sys), ..Order::WEAK };
}

/// The order that a fence establishes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fence {
    pub scope: Scope,
    pub acquire: bool,
    pub release: bool,
    /// Whether it is a `fence.sc`.
    pub sequential: bool,
}

impl Fence {
    /// A fence `fence.acq_rel`.
    pub(crate) fn acq_rel(scope: Scope) -> Fence {
        Fence { scope, acquire: true, release: true, sequential: false }
    }

    /// A fence `fence.acquire`.
    pub(crate) fn acquire(scope: Scope) -> Fence {
        Fence { release: false, ..Fence::acq_rel(scope) }
    }

    /// A fence `fence.release`.
    pub(crate) fn release(scope: Scope) -> Fence {
        Fence { acquire: false, ..Fence::acq_rel(scope) }
    }
}
