"""Start, end and queries of the runtime."""

from __future__ import annotations

import atexit
import os
import sys
from typing import Any, NamedTuple, Optional

from .. import _native, worlds
from . import _state
from ._state import InitStatus, State, invalid


class UniqueID:
    """128 bytes that all PEs of a job pass to ``init``. They are a secret, and can be pickled."""

    def __init__(self, data: bytes = b""):
        self._data = data

    def __repr__(self) -> str:
        return "UniqueID(empty)" if not self._data else "UniqueID(not shown)"

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, UniqueID) and self._data == other._data

    def __hash__(self) -> int:
        return hash(self._data)


class Version(NamedTuple):
    """Versions: of the OpenSHMEM specification, of NVSHMEM (empty without it), of this package."""

    openshmem_spec_version: str
    nvshmem_version: str
    nvshmem4py_version: str


def get_unique_id(empty: bool = False) -> UniqueID:
    """Return a new id, which one PE makes and passes to all; or an empty one, to be overwritten."""
    return UniqueID() if empty else UniqueID(_native.random_id())


def _device(device: Any) -> Optional[int]:
    for name in ("device_id", "index"):  # cuda.core's, PyTorch's
        if isinstance(getattr(device, name, None), int):
            return getattr(device, name)
    if device is None or isinstance(device, int):
        return device
    raise invalid(f"{device!r} is no device", "pass a Device of cuda.core, or the number of a GPU")


def init(
    device: Any = None,
    uid: Any = None,
    rank: Optional[int] = None,
    nranks: Optional[int] = None,
    mpi_comm: Any = None,
    initializer_method: str = "",
    timeout: Optional[float] = None,
) -> None:
    """Start the runtime: every PE calls it. *Collective.*

    ``initializer_method`` is ``"uid"`` with ``uid``, ``rank`` and ``nranks``; ``"mpi"`` with ``mpi_comm`` of mpi4py; or
    empty for what a launcher (torchrun, mpirun, srun) has put into the environment. ``device`` is this PE's GPU.

    Memory is shared by the PEs themselves (``WEFT_MEMORY=local``, one host) unless ``WEFT_MEMORY=nvshmem``. On a simulated
    PE, in a function that ``World.simulated(n).run`` calls, all arguments are ignored.
    """
    if _state.status() == InitStatus.STATUS_IS_INITIALIZED:
        raise invalid("the runtime is initialised already", "call finalize() before init()")
    simulated = worlds.current()
    if simulated is not None:
        _state.put(State(simulated), InitStatus.STATUS_IS_INITIALIZED)
        return
    place = _place(uid, rank, nranks, mpi_comm, initializer_method)
    memory = os.environ.get("WEFT_MEMORY") or "local"
    share = os.environ.get("WEFT_SHARE_GPU") == "1"
    native = _native.World.join(memory, place, _device(device), timeout, share)
    _state.put(State(worlds.World(native)), InitStatus.STATUS_IS_INITIALIZED)


def _place(uid: Any, rank: Optional[int], nranks: Optional[int], mpi_comm: Any, method: str) -> Optional[tuple]:
    if method == "mpi" or (not method and mpi_comm is not None):
        if mpi_comm is None:
            raise invalid("the method is mpi, and there is no mpi_comm", "pass MPI.COMM_WORLD of mpi4py")
        first = mpi_comm.Get_rank() == 0
        return mpi_comm.Get_rank(), mpi_comm.Get_size(), mpi_comm.bcast(_native.random_id() if first else None, root=0)
    if method == "uid" or (not method and uid is not None):
        data = getattr(uid, "_data", uid)
        if rank is None or nranks is None or not data:
            raise invalid("the method is uid, and uid, rank or nranks is missing", "pass all three")
        return rank, nranks, bytes(data)
    if method:
        raise invalid(f"there is no method {method!r}", 'it is "uid", "mpi", or empty for a launcher\'s variables')
    return None


def finalize() -> None:
    """Free what is not freed yet, say so, and end the runtime. *Collective.*"""
    state = _state.get()
    state.world.synchronize()
    for _, buffer in reversed(list(state.buffers)):
        buffer._leaked()
    _state.put(None, InitStatus.STATUS_FINALIZED)
    if state.world.is_simulated:
        state.world.wait_for_all()
        state.world._native.collect()
    else:
        state.world.close()


@atexit.register
def _end() -> None:
    """At the interpreter's exit: free what is not freed, say so, and end the runtime."""
    if is_initialized():
        try:
            finalize()
        except Exception as e:  # No caller can catch it.
            print(f"warpweft: the runtime did not end in order: {e}", file=sys.stderr)


def init_status() -> InitStatus:
    """Return how far the runtime is."""
    return _state.status()


def is_initialized() -> bool:
    """Return whether ``init`` was called, and ``finalize`` not yet."""
    return _state.status() == InitStatus.STATUS_IS_INITIALIZED


def my_pe() -> int:
    """Return the number of this PE."""
    return _state.get().world.my_pe


def n_pes() -> int:
    """Return the number of PEs."""
    return _state.get().world.n_pes


def get_version() -> Version:
    """Return the versions of the specification, of NVSHMEM and of this package."""
    nvshmem = ""
    if is_initialized():
        nvshmem = _state.get().world._native.nvshmem_version or ""
    return Version("1.3", nvshmem, _native.version())
