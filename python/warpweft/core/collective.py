"""Collectives of a team, in the order of a stream."""

from __future__ import annotations

from typing import Any

from .. import _dtypes, _native
from . import _state, memory, teams
from ._state import invalid


def _collective(name: str, team: Any, dst: Any, src: Any, op: str, root: int, stream: Any, parts: tuple) -> None:
    state, found = _state.get(), teams.team_of(team)
    sides = []
    for array, what in ((dst, "dst"), (src, "src")):
        sides.append(memory.buffer_of(array, what))
    (to, to_at, to_bytes, to_type), (of, of_at, of_bytes, of_type) = sides
    if to_type != of_type:
        raise invalid(f"dst has {to_type} elements, and src {of_type}", "both sides have one element type")
    n = found.n_pes
    size = _dtypes.BYTES[to_type]
    # As many elements as both sides have for each PE.
    to_parts, of_parts = (n if p else 1 for p in parts)
    count = min(to_bytes // to_parts, of_bytes // of_parts) // size
    if count == 0 or to_bytes != count * size * to_parts or of_bytes != count * size * of_parts:
        raise invalid(
            f"{name} of {n} PEs from {of_bytes // size} elements to {to_bytes // size}",
            f"dst has {to_parts} and src has {of_parts} parts of one size",
        )
    destination = memory.part(to, to_at, to_bytes, to_type)
    source = memory.part(of, of_at, of_bytes, of_type)
    stream = state.stream(stream)
    _native.collective(state.world._native, found._native, name, op, destination, source, root, stream)
    state.done()


def reduce(team: Any, dst_array: Any, src_array: Any, op: str, stream: Any = None) -> None:
    """Reduce ``src_array`` over the team into ``dst_array`` of every PE: ``sum``, ``min``, ``max``, ``prod``, bitwise."""
    _collective("reduce", team, dst_array, src_array, op, 0, stream, (False, False))


def reducescatter(team: Any, dst_array: Any, src_array: Any, op: str, stream: Any = None) -> None:
    """Reduce ``src_array`` over the team, each PE of which gets its part."""
    _collective("reduce_scatter", team, dst_array, src_array, op, 0, stream, (False, True))


def fcollect(team: Any, dst_array: Any, src_array: Any, stream: Any = None) -> None:
    """Gather ``src_array`` of all PEs, in the order of their ranks."""
    _collective("fcollect", team, dst_array, src_array, "sum", 0, stream, (True, False))


def alltoall(team: Any, dst_array: Any, src_array: Any, stream: Any = None) -> None:
    """Send part j of ``src_array`` to PE j."""
    _collective("alltoall", team, dst_array, src_array, "sum", 0, stream, (True, True))


def broadcast(team: Any, dst_array: Any, src_array: Any, root: int = 0, stream: Any = None) -> None:
    """Copy ``src_array`` of a rank to ``dst_array`` of every PE."""
    _collective("broadcast", team, dst_array, src_array, "sum", root, stream, (False, False))


def _meet(team: Any, sync: bool, stream: Any) -> None:
    state, found = _state.get(), teams.team_of(team)
    _native.team_barrier(state.world._native, found._native, sync, state.stream(stream))
    state.done()


def barrier(team: Any, stream: Any = None) -> None:
    """Let the stream wait for all PEs of a team and for what they sent."""
    _meet(team, False, stream)


def sync(team: Any, stream: Any = None) -> None:
    """Let the stream wait for all PEs of a team."""
    _meet(team, True, stream)


def barrier_all(stream: Any = None) -> None:
    """Let the stream wait for all PEs and for what they sent."""
    _meet(teams.Teams.TEAM_WORLD, False, stream)


def sync_all(stream: Any = None) -> None:
    """Let the stream wait for all PEs."""
    _meet(teams.Teams.TEAM_WORLD, True, stream)
