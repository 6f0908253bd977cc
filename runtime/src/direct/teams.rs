//! Teams of a world without NVSHMEM, and the flags by which their members meet on streams.
//!
//! A slot of flags on every PE belongs to one team at a time. It has a flag for each member, in the
//! order of the team's ranks, and then the number of times that the team has met. The members agree
//! on the slot when they create the team.

use crate::error::{self, Error, Result};
use crate::nvshmem::sys;
use std::collections::BTreeMap;

/// The number of slots, and so of teams with more than one PE at a time.
pub(super) const MAX_TEAMS: usize = 64;

/// The size of all slots for this number of PEs, in bytes.
pub(super) fn bytes(n_pes: u32) -> usize {
    MAX_TEAMS * slot_bytes(n_pes)
}

/// The size of a slot in bytes.
pub(super) fn slot_bytes(n_pes: u32) -> usize {
    (n_pes as usize + 1) * size_of::<u64>()
}

/// A team that this PE is a member of.
#[derive(Clone, Debug)]
pub(super) struct Team {
    /// The PE of the world for each rank.
    pub members: Vec<u32>,
    pub slot: usize,
}

#[derive(Default, Debug)]
pub(super) struct Teams {
    by_handle: BTreeMap<sys::Team, Team>,
    /// The number of the team that was created last.
    last: sys::Team,
}

impl Teams {
    /// The predefined teams: all PEs, which are also those of the node, and this PE alone, for the
    /// PEs of the same rank on each node.
    pub fn new(me: u32, n_pes: u32) -> Teams {
        let all = Team { members: (0..n_pes).collect(), slot: 0 };
        let alone = Team { members: vec![me], slot: 1 };
        let by_handle = [(sys::TEAM_WORLD, all), (sys::TEAM_SAME_MYPE_NODE, alone)].into();
        Teams { by_handle, last: sys::TEAM_SAME_MYPE_NODE }
    }

    /// Returns the handle of a predefined team.
    pub fn resolve(handle: sys::Team) -> sys::Team {
        if matches!(handle, sys::TEAM_NODE | sys::TEAM_SHARED) { sys::TEAM_WORLD } else { handle }
    }

    pub fn get(&self, handle: sys::Team) -> Option<&Team> {
        self.by_handle.get(&handle)
    }

    pub fn members(&self, handle: sys::Team) -> Option<&[u32]> {
        self.get(handle).map(|team| &*team.members)
    }

    /// A mask of the slots that no team of this PE uses.
    pub fn free_slots(&self) -> u64 {
        self.by_handle.values().fold(u64::MAX, |free, team| free & !(1 << team.slot))
    }

    /// Creates a team of these PEs, with the first slot that is free on all of them.
    ///
    /// # Errors
    /// Fails if there is none (R0106).
    pub fn add(&mut self, members: Vec<u32>, free_on_all: u64) -> Result<sys::Team> {
        let slot = free_on_all.trailing_zeros() as usize;
        if slot >= MAX_TEAMS {
            let message = format!("PEs {members:?} already have {MAX_TEAMS} teams, which is the limit");
            return Err(Error::new(error::NVSHMEM, message).help("drop teams that are not used any more"));
        }
        self.last += 1;
        self.by_handle.insert(self.last, Team { members, slot });
        Ok(self.last)
    }

    pub fn remove(&mut self, handle: sys::Team) {
        self.by_handle.remove(&handle);
    }
}

/// The members of the row and of the column, `x_range` wide, that a rank is in.
pub(super) fn rows(members: &[u32], rank: usize, x_range: usize) -> [Vec<u32>; 2] {
    let (row, column) = (rank / x_range, rank % x_range);
    let pick = |wanted: &dyn Fn(usize) -> bool| {
        members.iter().zip(0..).filter(|(_, i)| wanted(*i)).map(|(pe, _)| *pe).collect()
    };
    [pick(&|i| i / x_range == row), pick(&|i| i % x_range == column)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_the_first_that_all_have_free() {
        let mut teams = Teams::new(2, 4);
        assert_eq!(teams.free_slots(), !0b11);
        let first = teams.add(vec![2, 3], teams.free_slots() & !0b100).unwrap();
        assert_eq!(teams.get(first).map(|t| t.slot), Some(3));
        let second = teams.add(vec![1, 2], teams.free_slots()).unwrap();
        assert_eq!(teams.get(second).map(|t| t.slot), Some(2));
        teams.remove(first);
        assert_eq!(teams.free_slots(), !0b111);
        assert_eq!(teams.add(vec![2], 0).unwrap_err().code, error::NVSHMEM);
        assert_eq!(Teams::resolve(sys::TEAM_NODE), sys::TEAM_WORLD);
        assert_eq!(teams.members(sys::TEAM_SAME_MYPE_NODE), Some(&[2][..]));
    }

    #[test]
    fn a_grid_has_rows_and_columns() {
        let members = [10, 11, 12, 13, 14];
        assert_eq!(rows(&members, 3, 2), [vec![12, 13], vec![11, 13]]);
        assert_eq!(rows(&members, 4, 2), [vec![14], vec![10, 12, 14]]);
    }
}
