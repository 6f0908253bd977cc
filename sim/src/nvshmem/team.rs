//! PEs, teams and peers' addresses; fence and quiet; sync and barrier.

use super::table::{Family, Param, Size, row};
use super::{Call, Step, collective};
use crate::exec::Fault;

const TEAM: Param = ("team", Size::Int);
const PE: Param = ("pe", Size::Int);
const PTR: Param = ("ptr", Size::Long);
/// The value of `NVSHMEM_TEAM_INVALID`.
const INVALID: i32 = -1;
/// The result of queries without an answer.
const NOBODY: u64 = u32::MAX as u64;

pub(super) static FAMILY: Family = Family {
    title: "PEs, teams, addresses",
    meaning: "Team handles are those of `Team::handle`. NVSHMEM's predefined teams 0 (world), 1 (shared), 2\n\
              (node), 5 (GPU leaders) and 6 (multicast) contain all PEs. A PE outside the team is answered with\n\
              -1. `nvshmem_ptr` is null for memory that is not symmetric and without `Config::peer_access`.\n\
              `nvshmemx_mc_ptr` is null without `Config::multicast`.",
    rows: &[
        row("my_pe", &[], |c| Ok(Step::Done(c.my_pe() as u64))).thread().returns(Size::Int),
        row("n_pes", &[], |c| Ok(Step::Done(c.cx.memory.n_pes as u64))).thread().returns(Size::Int),
        row("team_my_pe", &[TEAM], |c| {
            let rank = c.team(c.args[0])?.and_then(|t| c.rank(t, c.my_pe()));
            Ok(Step::Done(rank.map_or(NOBODY, |r| r as u64)))
        })
        .thread()
        .returns(Size::Int),
        row("team_n_pes", &[TEAM], |c| {
            let team = c.team(c.args[0])?.filter(|&t| c.rank(t, c.my_pe()).is_some());
            Ok(Step::Done(team.map_or(NOBODY, |t| c.cx.memory.teams[t].members.len() as u64)))
        })
        .thread()
        .returns(Size::Int),
        row(
            "team_translate_pe",
            &[("src_team", Size::Int), ("src_pe", Size::Int), ("dst_team", Size::Int)],
            translate,
        )
        .thread()
        .returns(Size::Int),
        row("ptr", &[PTR, PE], ptr).thread().returns(Size::Long),
        row("mc_ptr", &[TEAM, PTR], mc_ptr).thread().extension().returns(Size::Long),
    ],
};

pub(super) static ORDERING: Family = Family {
    title: "Ordering and completion",
    meaning: "These functions concern the operations of the calling PE, whichever of its threads issued them.\n\
              After a fence, puts, signals, AMOs and plain stores to a PE take effect after the earlier ones to\n\
              that PE. A fence does not order gets. A quiet completes everything. A flush (of NVSHMEM 3.7) reads\n\
              the sources of non-blocking puts. The end of a kernel completes nothing: operations in flight\n\
              complete when all kernels of the launch have ended, and `NvshmemStats::unfinished` counts them.",
    rows: &[
        row("fence", &[], |c| {
            let pe = c.my_pe();
            c.cx.remote.wire.fence(pe);
            c.watch_fence(false);
            Ok(Step::Done(0))
        })
        .thread(),
        row("quiet", &[], |c| {
            quiet(c);
            c.watch_fence(true);
            Ok(Step::Done(0))
        })
        .thread(),
        row("flush", &[], |c| {
            let pe = c.my_pe();
            c.cx.remote.wire.flush(c.cx.memory, pe);
            Ok(Step::Done(0))
        })
        .extension(),
    ],
};

pub(super) static BARRIERS: Family = Family {
    title: "Sync and barrier",
    meaning: "All PEs of the team come, each with one call. A barrier begins with a quiet of the PE. A sync\n\
              completes no remote operations.",
    rows: &[
        row("team_sync", &[TEAM], |c| meet(c, false)).returns(Size::Int),
        row("sync_all", &[], |c| meet(c, false)),
        row("barrier", &[TEAM], |c| meet(c, true)).returns(Size::Int),
        row("barrier_all", &[], |c| meet(c, true)),
    ],
};

/// Completes all pending operations of the PE.
fn quiet(c: &mut Call<'_, '_>) {
    let pe = c.my_pe();
    c.cx.remote.wire.quiet(c.cx.memory, pe);
}

fn meet(c: &mut Call<'_, '_>, completes: bool) -> Result<Step, Fault> {
    // Functions for all PEs have no parameter, so theirs is 0, the world.
    let team = c.member_of(c.args[0])?;
    if completes && !c.waited {
        quiet(c);
        c.watch_meeting(true);
    }
    collective::meet(c, team, Vec::new(), Vec::new(), |_, _| {})
}

fn translate(c: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let [from, pe, to, ..] = c.args;
    let teams = c.team(from)?.zip(c.team(to)?);
    let rank = teams.and_then(|(from, to)| {
        let pe = *c.cx.memory.teams[from].members.get(pe as u32 as usize)?;
        c.rank(to, pe)
    });
    Ok(Step::Done(rank.map_or(NOBODY, |r| r as u64)))
}

fn ptr(c: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let [ptr, pe, ..] = c.args;
    let (me, n) = (c.my_pe(), c.cx.memory.n_pes);
    let pe = pe as u32 as usize;
    let reachable = pe < n && (c.cx.remote.peer_access || pe == me);
    let at = c.cx.memory.symmetric(me, ptr, 1).ok().filter(|_| reachable);
    Ok(Step::Done(at.map_or(0, |at| c.cx.memory.peer_addr(me, pe, at))))
}

fn mc_ptr(c: &mut Call<'_, '_>) -> Result<Step, Fault> {
    let [team, ptr, ..] = c.args;
    let me = c.my_pe();
    let team = c.team(team)?.filter(|_| c.cx.remote.multicast);
    let at = c.cx.memory.symmetric(me, ptr, 1).ok();
    Ok(Step::Done(team.zip(at).and_then(|(t, at)| c.cx.memory.multicast_addr(me, t, at)).unwrap_or(0)))
}

impl Call<'_, '_> {
    /// The team of a handle, or `None` for the handle that means "no team".
    pub(super) fn team(&self, handle: u64) -> Result<Option<usize>, Fault> {
        let handle = handle as u32 as i32;
        if handle == INVALID {
            return Ok(None);
        }
        match self.cx.memory.team_of(handle) {
            Some(team) => Ok(Some(team)),
            None => Err(self.fault(
                format_args!("{handle} is not a team"),
                "pass the handle of a team that the host created, or 0 for all PEs",
            )),
        }
    }

    /// Rank of a PE in a team.
    pub(super) fn rank(&self, team: usize, pe: usize) -> Option<usize> {
        self.cx.memory.teams[team].members.iter().position(|&p| p == pe)
    }

    /// The team of a handle, of which the PE is a member.
    pub(super) fn member_of(&self, handle: u64) -> Result<usize, Fault> {
        let (me, team) = (self.my_pe(), self.team(handle)?);
        if let Some(team) = team.filter(|&t| self.rank(t, me).is_some()) {
            return Ok(team);
        }
        let members = team.map(|t| &self.cx.memory.teams[t].members);
        let message = match members {
            Some(members) => format!("PE {me} is not in the team {members:?}"),
            None => "the team is NVSHMEM_TEAM_INVALID".to_string(),
        };
        Err(self.fault(message, "call a team's collective functions only on its members"))
    }
}
