"""Symmetric memory without types: buffers."""

from __future__ import annotations

import sys
from typing import Any, Optional

from .. import _arrays, _dtypes, _native, tensors
from . import _state, teams
from ._state import NvshmemError, invalid


class Buffer:
    """Symmetric memory, in the shape of cuda.core's ``Buffer``: ``handle`` is its address and ``size`` its bytes."""

    def __init__(self, state: Any, tensor: Any, size: int, kind: str = "buffer", external: bool = False):
        self._state, self._tensor, self.size = state, tensor, size
        self._kind, self._external = kind, external
        self._freed = False
        self.handle: int = tensor.address
        state.add(self)

    @property
    def device_id(self) -> int:
        """The number of the GPU."""
        return self._state.world.device

    @property
    def is_device_accessible(self) -> bool:
        """Whether kernels reach it: always."""
        return True

    @property
    def is_host_accessible(self) -> bool:
        """Whether the host reaches it: on a simulated PE."""
        return self._state.world.is_simulated

    def _check(self) -> Any:
        if self._freed:
            raise invalid(f"the {self._kind} was freed", "allocate another one")
        return self._tensor

    @property
    def __cuda_array_interface__(self) -> dict:
        return self._check().__cuda_array_interface__

    @property
    def __array_interface__(self) -> dict:
        return self._check().__array_interface__

    def __dlpack__(self, **options: Any) -> Any:
        """Return a DLPack capsule of bytes."""
        return self._check().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple:
        """Return DLPack's kind and number of the device."""
        return self._tensor.__dlpack_device__()

    def __repr__(self) -> str:
        return f"Buffer({self.size} bytes at {self.handle:#x}{', freed' if self._freed else ''})"

    def _free(self) -> None:
        self._check()
        self._freed = True
        self._state.remove(self)
        self._tensor.free()

    def _leaked(self) -> None:
        """Free the memory at the end, and warn that the program has not."""
        world = self._state.world
        print(f"PE {world.my_pe}: not freed before finalize: a {self._kind} of {self.size} bytes", file=sys.stderr)
        self._freed = True
        self._state.remove(self)
        self._tensor._native.free()


class Guard:
    """What an array or tensor of another library keeps of its memory.

    Memory is freed by all PEs together, and garbage is not collected together. So when the library drops memory that was
    not freed, that is an error, and the memory stays until ``finalize``.
    """

    def __init__(self, buffer: Buffer):
        self.buffer = buffer

    def __del__(self) -> None:
        """Say that symmetric memory was dropped without being freed."""
        if not self.buffer._freed and not sys.is_finalizing() and not self.buffer._external:
            raise NvshmemError(
                f"a symmetric {self.buffer._kind} of {self.buffer.size} bytes was dropped and not freed",
                code="W0006",
                help="call free, free_array or free_tensor on every PE before the last reference goes",
            )


def allocate(size: int, kind: str) -> Buffer:
    """Return new memory. *Collective.*"""
    if not hasattr(size, "__index__") or size < 1:
        raise invalid(f"the size is {size!r}", "it is a number of bytes, at least 1")
    state = _state.get()
    return Buffer(state, state.world.tensor(int(size), "u8"), int(size), kind)


def buffer(size: int, release: bool = False, except_on_del: bool = True) -> Buffer:
    """Allocate zeroed symmetric memory of this number of bytes. *Collective.*"""
    return allocate(size, "buffer")


def free(buffer: Buffer) -> None:
    """Free a buffer. *Collective.*"""
    if not isinstance(buffer, Buffer):
        raise invalid(f"{type(buffer).__name__} is no buffer", "use free_array for arrays, and free_tensor for tensors")
    buffer._free()


class PeerBuffer:
    """Memory at an address that this PE's loads and stores, or its multimem instructions, reach. Nothing frees it."""

    def __init__(self, address: int, size: int, device: int, owner: Any, host: Optional[int] = None):
        self.handle, self.size, self.device_id, self._owner = address, size, device, owner
        interface = {"shape": (size,), "typestr": "|u1", "data": (address, False), "version": 3, "strides": None}
        if host is None:
            self.__cuda_array_interface__ = interface
        else:
            self.__array_interface__ = {**interface, "data": (host, False)}

    def __repr__(self) -> str:
        return f"PeerBuffer({self.size} bytes at {self.handle:#x})"


def peer_of(buffer: Buffer, pe: int) -> PeerBuffer:
    """Return a PE's copy of a buffer."""
    state, tensor = buffer._state, buffer._check()
    if not hasattr(pe, "__index__") or not 0 <= pe < state.world.n_pes:
        raise invalid(f"there is no PE {pe}", f"there are {state.world.n_pes} PEs")
    address = tensor._native.peer_address(pe)
    host = tensor._native.host_of(pe, state.world._native) if state.world.is_simulated else None
    return PeerBuffer(address, buffer.size, state.world.device, buffer, host)


def get_peer_buffer(buffer: Buffer, pe: int) -> PeerBuffer:
    """Return another PE's copy, which this PE's loads and stores reach."""
    return peer_of(buffer, pe)


def multicast_of(team: Any, buffer: Buffer) -> PeerBuffer:
    """Return the multicast address of a team's copies of a buffer."""
    state, tensor = buffer._state, buffer._check()
    found = teams.team_of(team)
    all_parts = tensor.multicast(found)
    if all_parts is None:
        raise NvshmemError(
            f"there is no multicast address: {tensor.why_no_multicast(found)}",
            code="R0304",
            help="reach each PE's copy by get_peer_buffer",
        )
    return PeerBuffer(all_parts.address, buffer.size, state.world.device, buffer)


def get_multicast_buffer(team: Any, buffer: Buffer) -> PeerBuffer:
    """Return the memory of all of a team's PEs, for multimem instructions alone."""
    return multicast_of(team, buffer)


get_mc_buffer = get_multicast_buffer


def register(array: Any, kind: str) -> Buffer:
    """Make an array's memory symmetric. *Collective.*"""
    state = _state.get()
    found = None
    if not state.world.is_simulated:
        size, handle = getattr(array, "size", None), getattr(array, "handle", None)
        if handle is not None and isinstance(size, int):  # a Buffer of cuda.core's
            found = _arrays.Array(int(handle), "u8", (size,), (1,), state.world.device)
        else:
            found = _arrays.of(array, "the memory")
    if found is None:
        raise invalid(f"{type(array).__name__} is no memory on a GPU", "pass memory of the CUDA VMM functions, whole")
    made = state.world._native.register(found.address, found.nbytes, _dtypes.CODES["u8"], f"{found.nbytes}:1")
    buffer = Buffer(state, tensors.Tensor(state.world, made), found.nbytes, kind, external=True)
    buffer._array = array  # type: ignore[attr-defined]
    return buffer


def register_external_buffer(buffer: Any) -> Buffer:
    """Make memory symmetric that was allocated elsewhere, by the CUDA VMM functions. *Collective.*"""
    return register(buffer, "registered buffer")


def unregister_external_buffer(buffer: Buffer) -> None:
    """End what ``register_external_buffer`` began. *Collective.*"""
    free(buffer)


def buffer_of(array: Any, what: str) -> tuple:
    """Return the buffer that an array lies in, its first byte there, its bytes and its element type."""
    state = _state.get()
    if isinstance(array, Buffer):
        array._check()
        return array, 0, array.size, "u8"
    if state.world.is_simulated:
        interface = getattr(array, "__array_interface__", None)
        if interface is None and hasattr(array, "numpy"):
            interface = array.numpy().__array_interface__
        if interface is None:
            raise invalid(f"{what} is a {type(array).__name__}", "pass an array of array(), or a buffer")
        host, nbytes = interface["data"][0], _contiguous(array, what)
        for _, buffer in state.buffers:
            start = buffer._tensor._native.host_address
            if start <= host and host + nbytes <= start + buffer.size:
                return buffer, host - start, nbytes, _dtypes.name_of(str(getattr(array, "dtype", "u8")))
        raise _not_symmetric(what)
    found = _arrays.of(array, what)
    if found is None:
        raise invalid(f"{what} is a {type(array).__name__}", "pass an array, a tensor or a buffer")
    if tuple(found.strides) != _arrays.compact(found.shape) and any(n > 1 for n in found.shape):
        raise invalid(f"{what} has gaps: strides {found.strides} of shape {found.shape}", "pass contiguous memory")
    around = state.around(found.address, found.nbytes)
    if around is None:
        raise _not_symmetric(what)
    return around, found.address - around.handle, found.nbytes, found.dtype


def _contiguous(array: Any, what: str) -> int:
    flags = getattr(array, "flags", None)
    contiguous = flags.c_contiguous if flags is not None else array.is_contiguous()
    if not contiguous:
        raise invalid(f"{what} has gaps", "pass contiguous memory")
    return int(array.nbytes)


def _not_symmetric(what: str) -> Exception:
    return invalid(
        f"{what} is not symmetric memory",
        "allocate it by buffer(), array() or tensor(); an operation such as x + 1 makes new memory, x += 1 does not",
    )


def local_of(array: Any, what: str, world: Any) -> tuple:
    """Return what a copy reads or writes on this PE, and its bytes: symmetric memory or any other of the GPU."""
    try:
        buffer, offset, nbytes, _ = buffer_of(array, what)
        return part(buffer, offset, nbytes), nbytes
    except _state.NvshmemInvalid:
        found = None if world.is_simulated else _arrays.of(array, what)
        if found is None or tuple(found.strides) != _arrays.compact(found.shape):
            raise
        layout = f"{found.nbytes}:1"
        borrowed = _native.Borrowed.of_world(world._native, found.address, _dtypes.CODES["u8"], layout)
        return borrowed, found.nbytes


def part(buffer: Buffer, offset: int, nbytes: int, dtype: str = "u8") -> Any:
    """Return bytes of a buffer as the part in Rust has them."""
    count = nbytes // _dtypes.BYTES[dtype]
    return buffer._check()._native.view(offset, _dtypes.CODES[dtype], f"{count}:1")
