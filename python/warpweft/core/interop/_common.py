"""What the arrays of all libraries have in common."""

from __future__ import annotations

from typing import Any, Callable

from ... import _dtypes
from .. import _state, memory
from .._state import invalid


def extents(shape: Any) -> tuple:
    """Return a shape as a tuple."""
    return (int(shape),) if hasattr(shape, "__index__") else tuple(int(n) for n in shape)


def size_of(shape: tuple, dtype: str) -> int:
    """Return the bytes of a shape."""
    count = 1
    for n in shape:
        count *= n
    if count < 1:
        raise invalid(f"the shape {shape} has no elements", "allocate at least one")
    return count * _dtypes.BYTES[dtype]


def free(array: Any, kind: str) -> None:
    """Free the memory of an array. *Collective.*"""
    buffer, offset, _, _ = memory.buffer_of(array, f"the {kind}")
    if offset or buffer._external:
        raise invalid(f"this {kind} is a part of its memory, or was registered", f"pass the {kind} that was allocated")
    buffer._free()


def get_buffer(array: Any, kind: str) -> tuple:
    """Return the buffer that an array lies in, the array's bytes, and its element type."""
    buffer, _, nbytes, dtype = memory.buffer_of(array, f"the {kind}")
    return buffer, nbytes, dtype


def elsewhere(array: Any, kind: str, at: Callable, wrap: Callable) -> Any:
    """Return an array of the same shape at another address of its memory, which ``at`` finds."""
    buffer, offset, nbytes, dtype = memory.buffer_of(array, f"the {kind}")
    found = at(buffer)
    return wrap(found, offset, nbytes, dtype, tuple(array.shape))


def register(array: Any, kind: str) -> Any:
    """Make an array's memory symmetric, and return the array. *Collective.*"""
    memory.register(array, f"registered {kind}")
    return array


def unregister(array: Any, kind: str) -> Any:
    """End what ``register`` began, and return the array. *Collective.*"""
    buffer, _, _, _ = memory.buffer_of(array, f"the {kind}")
    if not buffer._external:
        raise invalid(f"this {kind} was allocated here, and not registered", f"free it by free_{kind}")
    buffer._free()
    return array


def is_simulated() -> bool:
    """Return whether this PE is simulated."""
    return _state.get().world.is_simulated
