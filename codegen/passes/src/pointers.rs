//! Ranks, sizes and addresses of teams, from hidden parameters or from NVSHMEM's functions.

use crate::edit::Emit;
use crate::remote::library::{TEAM_WORLD, call};
use crate::{Options, hidden};
use weft_ir::builder::Built;
use weft_ir::mixed::{Builder, Type};
use weft_ir::{Bridge, Hidden, Int, Memory, Scalar, Scope, Sem, Space, TeamRef, Value, Var};

const I32: Type = Type::Scalar(Scalar::I32);

/// The source of ranks and addresses.
#[derive(Clone, Copy)]
pub(crate) struct AddressSource {
    library: bool,
}

/// The addresses of a symmetric parameter on all PEs.
#[derive(Clone, Copy)]
pub(crate) enum Peers {
    /// A table with one address per rank.
    Table(Value),
    /// The address on this PE, from which NVSHMEM computes the others, and the number of the team
    /// if ranks are not those of the world.
    Library(Value, Option<Value>),
}

impl AddressSource {
    pub fn of(options: &Options) -> AddressSource {
        AddressSource { library: options.library_pointers }
    }

    /// This PE's rank (`i32`).
    pub fn my_pe(self, b: &mut Builder, team: TeamRef) -> Built<Value> {
        self.number(b, team, "my_pe", Hidden::MyPe { team: team.0 })
    }

    /// The number of PEs of a team (`i32`).
    pub fn n_pes(self, b: &mut Builder, team: TeamRef) -> Built<Value> {
        self.number(b, team, "n_pes", Hidden::NPes { team: team.0 })
    }

    fn number(self, b: &mut Builder, team: TeamRef, name: &str, kind: Hidden) -> Built<Value> {
        match (self.library, team) {
            (false, _) => parameter(b, kind),
            (true, TeamRef::WORLD) => call(b, &format!("nvshmem_{name}"), vec![], I32),
            (true, team) => {
                let handle = handle(b, team)?;
                call(b, &format!("nvshmem_team_{name}"), vec![handle], I32)
            }
        }
    }

    /// The multicast address of parameter `base`, as a pointer.
    pub fn multicast(self, b: &mut Builder, base: u32, team: TeamRef) -> Built<Value> {
        if !self.library {
            let bits = parameter(b, Hidden::Multicast { base, team: team.0 })?;
            return b.address(bits, Space::Multicast);
        }
        let args = vec![handle(b, team)?, here(b, base)?];
        call(b, "nvshmemx_mc_ptr", args, Type::Pointer(Space::Multicast))
    }

    /// The addresses of parameter `base` on the PEs of a team.
    pub fn peers(self, b: &mut Builder, base: u32, team: TeamRef) -> Built<Peers> {
        if !self.library {
            let bits = parameter(b, Hidden::Peers { base, team: team.0 })?;
            return b.address(bits, Space::Global).map(Peers::Table);
        }
        let handle = if team == TeamRef::WORLD { None } else { Some(handle(b, team)?) };
        Ok(Peers::Library(here(b, base)?, handle))
    }
}

impl Peers {
    /// The address on the PE with this rank, as a pointer.
    pub fn address(self, b: &mut Builder, pe: &Int) -> Built<Value> {
        match self {
            Peers::Table(table) => {
                let ptr = b.offset(table, &(pe * Int::from(8)))?;
                let load = Memory::Load { ptr, sem: Sem::Weak, scope: Scope::Sys };
                let bits = b.emit_as(load, Type::Scalar(Scalar::I64))?;
                b.address(bits, Space::Peer)
            }
            Peers::Library(here, handle) => {
                let pe = b.index(pe.clone())?;
                let mut pe = b.convert(pe, Scalar::I32)?;
                if let Some(handle) = handle {
                    let world = b.i32(TEAM_WORLD)?;
                    pe = call(b, "nvshmem_team_translate_pe", vec![handle, pe, world], I32)?;
                }
                call(b, "nvshmem_ptr", vec![here, pe], Type::Pointer(Space::Peer))
            }
        }
    }
}

/// The value of a hidden parameter.
pub(crate) fn parameter(b: &mut Builder, kind: Hidden) -> Built<Value> {
    let index = hidden::param(b.kernel_mut(), kind);
    b.emit(Var::Param { index })
}

/// NVSHMEM's number of a team.
fn handle(b: &mut Builder, team: TeamRef) -> Built<Value> {
    match team {
        TeamRef::WORLD => b.i32(TEAM_WORLD),
        team => parameter(b, Hidden::TeamHandle { team: team.0 }),
    }
}

/// The address of a parameter on this PE.
fn here(b: &mut Builder, index: u32) -> Built<Value> {
    let base = b.emit(Var::Param { index })?;
    b.emit(Bridge::AddressOf { base })
}
