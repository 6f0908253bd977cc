"""What `nvshmem.core` keeps of a process, or of a simulated PE: its world, its memory and its teams."""

from __future__ import annotations

import bisect
import enum
import threading
from typing import Any, Optional

from .. import _fork, _streams, worlds
from .._errors import Error


class NvshmemError(Error):
    """An operation failed."""


class NvshmemInvalid(NvshmemError, ValueError):
    """A call has wrong arguments, or comes before ``init`` or after ``finalize``."""


class NvshmemWarning(Warning):
    """Something is allowed but may be wrong."""


def invalid(message: str, help: str = "") -> NvshmemInvalid:
    """Return the exception for a call with wrong arguments."""
    return NvshmemInvalid(message, code="W0001", help=help)


class InitStatus(enum.IntEnum):
    """How far the runtime is."""

    STATUS_NOT_INITIALIZED = 0
    STATUS_IS_BOOTSTRAPPED = 1
    STATUS_IS_INITIALIZED = 2
    STATUS_FINALIZED = 4


class State:
    """The runtime of one PE."""

    def __init__(self, world: worlds.World):
        self.world = world
        #: Symmetric memory by its address: (address, buffer), ascending.
        self.buffers: list = []
        self.teams: dict = {}
        self.lock = threading.RLock()

    def add(self, buffer: Any) -> None:
        """Remember memory."""
        with self.lock:
            at = bisect.bisect_left([address for address, _ in self.buffers], buffer.handle)
            self.buffers.insert(at, (buffer.handle, buffer))

    def remove(self, buffer: Any) -> None:
        """Forget memory."""
        with self.lock:
            self.buffers = [pair for pair in self.buffers if pair[1] is not buffer]

    def around(self, address: int, nbytes: int) -> Optional[Any]:
        """Return the memory that lies around bytes, if there is such memory."""
        with self.lock:
            at = bisect.bisect_right([start for start, _ in self.buffers], address) - 1
            if at < 0:
                return None
            start, buffer = self.buffers[at]
            return buffer if address + nbytes <= start + buffer.size else None

    def stream(self, stream: Any) -> Optional[int]:
        """Return the handle of a stream, or of the current one."""
        if self.world.is_simulated:
            return None
        return _streams.of(stream, self.world.device)

    def done(self) -> None:
        """On a simulated PE, wait for an operation: NumPy has no streams."""
        if self.world.is_simulated:
            self.world.synchronize()


_PROCESS: dict = {"state": None, "status": InitStatus.STATUS_NOT_INITIALIZED}


# A child of fork has no runtime: its parent's belongs to the parent.
_fork.in_child(lambda: _PROCESS.update(state=None, status=InitStatus.STATUS_NOT_INITIALIZED))


def get() -> State:
    """Return the state of this PE."""
    world = worlds.current()
    state = getattr(world, "_core", None) if world is not None else _PROCESS["state"]
    if state is None:
        raise invalid("the runtime is not initialised", "call init() first")
    return state


def put(state: Optional[State], status: InitStatus) -> None:
    """Begin or end this PE's state."""
    world = worlds.current()
    if world is not None:
        world._core = state  # type: ignore[attr-defined]
        world._core_status = status  # type: ignore[attr-defined]
    else:
        _PROCESS.update(state=state, status=status)


def status() -> InitStatus:
    """Return how far this PE's runtime is."""
    world = worlds.current()
    if world is not None:
        return getattr(world, "_core_status", InitStatus.STATUS_NOT_INITIALIZED)
    return _PROCESS["status"]
