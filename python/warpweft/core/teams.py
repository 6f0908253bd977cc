"""Teams: sets of PEs with numbers of their own."""

from __future__ import annotations

import enum
import itertools
import warnings
from dataclasses import dataclass
from typing import Any, Optional, Sequence

from .._errors import ArgumentError
from . import _state
from ._state import NvshmemWarning, invalid


class Teams(enum.IntEnum):
    """The predefined teams."""

    TEAM_INVALID = -1
    TEAM_WORLD = 0
    TEAM_SHARED = 1
    TEAM_NODE = 2
    TEAM_SAME_MYPE_NODE = 3
    TEAM_SAME_GPU = 4
    TEAM_GPU_LEADERS = 5


_PREDEFINED: dict = {
    Teams.TEAM_WORLD: "world",
    Teams.TEAM_SHARED: "shared",
    Teams.TEAM_NODE: "node",
    Teams.TEAM_SAME_MYPE_NODE: "same_mype_node",
    # Every PE has its own GPU.
    Teams.TEAM_GPU_LEADERS: "world",
}

#: Numbers of teams that programs make follow those of the predefined ones.
_HANDLES = itertools.count(16)


@dataclass
class TeamConfig:
    """Options of a team, which are accepted and change nothing here."""

    version: int = 2
    num_contexts: int = 0
    uniqueid: int = 0


def team_of(team: Any) -> Any:
    """Return the team of a handle."""
    state = _state.get()
    if hasattr(team, "members"):
        return team
    handle = int(team) if hasattr(team, "__index__") else team
    if handle not in state.teams:
        name = _PREDEFINED.get(handle)
        if name is None:
            raise invalid(f"there is no team {team!r}", "pass one of Teams, or a handle that a split returned")
        state.teams[handle] = state.world.team_named(name)
    return state.teams[handle]


def _keep(team: Any) -> int:
    if team is None:
        return int(Teams.TEAM_INVALID)
    handle = next(_HANDLES)
    _state.get().teams[handle] = team
    return handle


def team_my_pe(team: Any) -> int:
    """Return this PE's rank in a team."""
    return team_of(team).my_pe


def team_n_pes(team: Any) -> int:
    """Return the number of PEs in a team."""
    return team_of(team).n_pes


def team_translate_pe(src_team: Any, src_pe: int, dest_team: Any) -> int:
    """Return the rank in another team of a rank in this one; -1 where it is not in it."""
    members = team_of(src_team).members
    if not 0 <= src_pe < len(members):
        raise invalid(f"the team has no PE {src_pe}", f"it has {len(members)} PEs")
    others = team_of(dest_team).members
    return others.index(members[src_pe]) if members[src_pe] in others else -1


def team_split_strided(
    parent_team: Any,
    start: int,
    stride: int,
    size: int,
    config: Optional[TeamConfig] = None,
    config_mask: int = 0,
    new_team_name: Optional[str] = None,
) -> int:
    """Return the handle of the team of every ``stride``-th PE; TEAM_INVALID in other PEs. *Collective* over the parent.

    Where the parent has no such PEs, the handle is TEAM_INVALID on every PE, with a warning, as NVSHMEM has it.
    """
    parent = team_of(parent_team)
    try:
        return _keep(parent.split_strided(start, stride, size))
    except ArgumentError as e:
        if e.code != "R0303":
            raise
        warnings.warn(str(e), NvshmemWarning, stacklevel=2)
        return int(Teams.TEAM_INVALID)


def team_split_2d(
    parent_team: Any,
    xrange: int,
    xaxis_config: Optional[TeamConfig] = None,
    xaxis_mask: int = 0,
    yaxis_config: Optional[TeamConfig] = None,
    yaxis_mask: int = 0,
    new_team_name: Optional[str] = None,
) -> tuple:
    """Return the handles of this PE's row, ``xrange`` PEs wide, and of its column. *Collective* over the parent."""
    return tuple(_keep(part) for part in team_of(parent_team).split_2d(xrange))


def team_init(
    config: Optional[TeamConfig] = None,
    config_mask: int = 0,
    n_pes: Optional[int] = None,
    my_pe: Optional[int] = None,
    new_team_name: Optional[str] = None,
    pes: Optional[Sequence[int]] = None,
) -> int:
    """Return the handle of a team of any PEs. *Collective* over them.

    NVSHMEM's form tells each PE only its own rank, and finds the members by a number that they share; here ``pes`` lists
    them, in the order of their ranks. Without it the team is of all PEs.
    """
    state = _state.get()
    members = list(range(state.world.n_pes)) if pes is None else list(pes)
    if n_pes is not None and pes is not None and n_pes != len(members):
        raise invalid(f"n_pes is {n_pes}, and {len(members)} PEs are listed", "both are the size of the team")
    if state.world.my_pe not in members:
        return int(Teams.TEAM_INVALID)
    if pes is None:
        return _keep(state.world.team_named("world"))
    return _keep(state.world.team.of(members))


def team_destroy(team: Any) -> None:
    """Give a team's handle up."""
    if int(team) in _PREDEFINED:
        raise invalid("a predefined team stays", "destroy teams that a split has made")
    if _state.get().teams.pop(int(team), None) is None:
        raise invalid(f"there is no team {team!r}", "it was destroyed, or this PE is not in it")
