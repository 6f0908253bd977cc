//! Teams are sets of PEs that take part in collectives, with their own numbering.
//!
//! Source: NVSHMEM API, Team Management. All calls that create a team are collective over its
//! parent (or, for a list, over the listed PEs), and so is dropping one.

use crate::error::{self, Error, Result};
use crate::nvshmem::sys;
use crate::world::{Entered, Inner, World};
use std::fmt;
use std::sync::Arc;

impl World {
    /// Returns the team of all PEs.
    pub fn team(&self) -> Team {
        Team::world(self.0.clone())
    }

    /// Returns the team of the PEs of this host.
    ///
    /// # Errors
    /// Fails after the world has ended (R0305).
    pub fn team_node(&self) -> Result<Team> {
        Team::predefined(&self.0, sys::TEAM_NODE, "node")
    }

    /// Returns the team of the PEs whose memory this one reaches by loads and stores.
    ///
    /// # Errors
    /// Fails after the world has ended (R0305).
    pub fn team_shared(&self) -> Result<Team> {
        Team::predefined(&self.0, sys::TEAM_SHARED, "shared")
    }

    /// Returns the team of the PEs that have this PE's rank on their hosts.
    ///
    /// # Errors
    /// Fails after the world has ended (R0305).
    pub fn team_same_place(&self) -> Result<Team> {
        Team::predefined(&self.0, sys::TEAM_SAME_MYPE_NODE, "same place on each node")
    }
}

/// A team that this PE is a member of.
pub struct Team {
    pub(crate) world: Arc<Inner>,
    pub(crate) handle: sys::Team,
    /// The PE of the world for each rank in the team.
    pub(crate) members: Arc<[u32]>,
    my_pe: u32,
    name: String,
    /// Whether dropping it ends the team; predefined teams do not end.
    owned: bool,
    /// Whether it was created from a list, so that its parts are too. NVSHMEM's own splits need
    /// ascending members with a constant distance, and crash PEs that are not in a part of any
    /// other team (3.5).
    listed: bool,
}

impl Team {
    pub(crate) fn world(world: Arc<Inner>) -> Team {
        let (members, my_pe) = (world.everyone.clone(), world.control.rank());
        Team {
            world,
            handle: sys::TEAM_WORLD,
            members,
            my_pe,
            name: "world".into(),
            owned: false,
            listed: false,
        }
    }

    pub(crate) fn predefined(world: &Arc<Inner>, handle: sys::Team, name: &str) -> Result<Team> {
        let _entered = world.enter()?;
        Team::of_handle(world, handle, name.into(), false)
    }

    fn of_handle(world: &Arc<Inner>, handle: sys::Team, name: String, owned: bool) -> Result<Team> {
        let library = &world.library;
        let handle = library.resolve(handle);
        let bad = || Error::new(error::NVSHMEM, format!("team {name} has no members"));
        let n = library.team_n_pes(handle).ok_or_else(bad)?;
        let my_pe = library.team_my_pe(handle).ok_or_else(bad)?;
        let members = (0..n).map(|pe| library.translate(handle, pe, sys::TEAM_WORLD).ok_or_else(bad));
        let members = members.collect::<Result<_>>()?;
        Ok(Team { world: world.clone(), handle, members, my_pe, name, owned, listed: false })
    }

    /// Returns the rank of this PE in the team.
    pub fn my_pe(&self) -> u32 {
        self.my_pe
    }

    /// Returns the number of PEs of the team.
    pub fn n_pes(&self) -> u32 {
        self.members.len() as u32
    }

    /// Returns the PEs of the world, by rank in the team.
    pub fn members(&self) -> &[u32] {
        &self.members
    }

    /// Returns the PE of the world that has a rank in this team.
    ///
    /// # Errors
    /// Fails for a rank that is not in the team (R0303).
    pub fn world_pe(&self, pe: u32) -> Result<u32> {
        self.members.get(pe as usize).copied().ok_or_else(|| self.no_member(pe))
    }

    /// Returns the rank in another team of a rank in this one, or `None` if that PE is not a member
    /// there.
    ///
    /// # Errors
    /// Fails for a rank that is not in this team (R0303).
    pub fn translate(&self, pe: u32, to: &Team) -> Result<Option<u32>> {
        let world = self.world_pe(pe)?;
        Ok(to.members.iter().position(|m| *m == world).map(|i| i as u32))
    }

    /// Creates the team of this one's ranks `start`, `start + stride`, …, with `size` members.
    /// Returns `None` in PEs that are not in it. This call is *collective* over this team.
    ///
    /// # Errors
    /// Fails if a rank is not in this team (R0303), or if its PEs request different teams (R0301).
    pub fn split_strided(&self, start: u32, stride: u32, size: u32) -> Result<Option<Team>> {
        let world = self.enter()?;
        let n = self.n_pes();
        let last = (size.checked_sub(1)).and_then(|k| k.checked_mul(stride)?.checked_add(start));
        match last {
            None => return Err(self.refuse(format!("{size} PEs, {stride} apart from {start}"))),
            Some(last) if last >= n || (stride == 0 && size > 1) => {
                return Err(
                    self.refuse(format!("{size} PEs, {stride} apart from {start}, of a team of {n} PEs"))
                );
            }
            Some(_) => {}
        }
        self.together(&format!("split_strided({start}, {stride}, {size}) of team {}", self.name))?;
        if self.listed {
            return self.list(&(0..size).map(|i| start + i * stride).collect::<Vec<_>>());
        }
        // The stride of one PE has no meaning, and NVSHMEM's is signed.
        let stride = if size == 1 { 1 } else { stride };
        let handle = world.library.split_strided(self.handle, start, stride, size)?;
        let name = format!("{}[{start}::{stride}; {size}]", self.name);
        handle.map(|h| Team::of_handle(&self.world, h, name, true)).transpose()
    }

    /// Splits this team as a grid `x_range` wide, into the team of this PE's row and that of its column.
    /// Every PE of the team must call it.
    ///
    /// # Errors
    /// Fails for a width of 0 (R0303), or if the PEs ask for different widths (R0301).
    pub fn split_2d(&self, x_range: u32) -> Result<(Team, Team)> {
        let world = self.enter()?;
        if x_range == 0 {
            return Err(self.refuse("a row must have at least one PE".into()));
        }
        let x_range = x_range.min(self.n_pes());
        self.together(&format!("split_2d({x_range}) of team {}", self.name))?;
        if self.listed {
            let (row, column) = (self.my_pe / x_range, self.my_pe % x_range);
            let part = |of: &dyn Fn(u32) -> bool| {
                let ranks: Vec<u32> = (0..self.n_pes()).filter(|pe| of(*pe)).collect();
                self.list(&ranks)?.ok_or_else(|| self.bad_split(format!("PEs {ranks:?}")))
            };
            return Ok((part(&|pe| pe / x_range == row)?, part(&|pe| pe % x_range == column)?));
        }
        let (x, y) = world.library.split_2d(self.handle, x_range)?;
        let team = |handle: Option<sys::Team>, axis: &str| match handle {
            Some(h) => Team::of_handle(&self.world, h, format!("{}.{axis}", self.name), true),
            None => Err(Error::new(error::NVSHMEM, format!("split_2d({x_range}) created no {axis} team"))),
        };
        Ok((team(x, "x")?, team(y, "y")?))
    }

    /// Creates the team of these ranks, in this order. Returns `None` in PEs that are not listed.
    /// This call is *collective* over the listed PEs; others need not call it.
    ///
    /// # Errors
    /// Fails if a rank is not in this team or is listed twice (R0303), or if the PEs list different
    /// ones (R0301).
    pub fn list(&self, pes: &[u32]) -> Result<Option<Team>> {
        let world = self.enter()?;
        let list = pes.iter().map(|pe| self.world_pe(*pe)).collect::<Result<Vec<_>>>()?;
        let mut sorted = list.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != list.len() || list.is_empty() {
            return Err(self.bad_split(format!(
                "the PEs {pes:?} must contain at least one rank, and each rank only once"
            )));
        }
        let Some(me) = list.iter().position(|pe| *pe == world.control.rank()) else { return Ok(None) };
        // The first PE of the list creates the id by which all of them identify the team.
        let id = if me == 0 { world.library.team_unique_id()? } else { 0 };
        let ids = world.control.exchange(&sorted, &format!("team of PEs {list:?}"), &id.to_le_bytes())?;
        let first = sorted.iter().position(|pe| *pe == list[0]).unwrap_or(0);
        let id = ids.get(first).and_then(|b| b.as_slice().try_into().ok()).map_or(0, u64::from_le_bytes);
        let handle = world.library.team_init(id, &list, me as u32)?;
        let mut team = Team::of_handle(&self.world, handle, format!("{list:?}"), true)?;
        team.members = list.into();
        team.listed = true;
        Ok(Some(team))
    }

    /// Makes an exchange of all PEs of the team.
    pub(crate) fn together(&self, what: &str) -> Result<()> {
        let mut sorted = self.members.to_vec();
        sorted.sort_unstable();
        self.world.control.exchange(&sorted, what, &[]).map(drop)
    }

    pub(crate) fn enter(&self) -> Result<Entered<'_>> {
        self.world.enter()
    }

    fn no_member(&self, pe: u32) -> Error {
        Error::new(
            error::NOT_IN_TEAM,
            format!("PE {pe} is not in team {}, which has {} PEs", self.name, self.n_pes()),
        )
    }

    /// Makes the error of [`bad_split`](Team::bad_split), and reports it to the team.
    fn refuse(&self, what: String) -> Error {
        let mut sorted = self.members.to_vec();
        sorted.sort_unstable();
        self.world.refuse(&sorted, self.bad_split(what))
    }

    fn bad_split(&self, what: String) -> Error {
        Error::new(error::NOT_IN_TEAM, format!("team {} cannot be split this way: {what}", self.name))
    }
}

impl fmt::Debug for Team {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Team({}: PE {} of {:?})", self.name, self.my_pe, self.members)
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        if !self.owned || self.world.ended() || std::thread::panicking() {
            return;
        }
        let destroyed = self.enter().and_then(|w| {
            w.device.wait()?;
            self.together(&format!("drop of team {}", self.name))?;
            w.library.team_destroy(self.handle);
            Ok(())
        });
        if let Err(e) = destroyed {
            self.world.print_error(&format!("team {} was not destroyed", self.name), &e);
        }
    }
}
