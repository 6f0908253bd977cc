"""Symmetric memory as CuPy arrays. On simulated PEs the arrays are NumPy's."""

from __future__ import annotations

from typing import Any, Optional

from ... import _arrays, _dtypes
from .. import memory
from . import _common, numpy


def _wrap(buffer: Any, offset: int, nbytes: int, dtype: str, shape: tuple, owner: Any = None) -> Any:
    import cupy

    flat = cupy.asarray(_arrays.Memory(buffer.handle + offset, nbytes, owner or buffer))
    if dtype == "bf16" and not hasattr(cupy, "bfloat16"):
        return flat.view("uint16").reshape(shape)
    return flat.view(_dtypes.numpy_dtype(dtype)).reshape(shape)


def array(shape: Any, dtype: Any = "float32") -> Any:
    """Allocate an array on the symmetric heap. *Collective.*

    It is freed by ``free_array`` on every PE; a later ``.view()`` passes ``copy=False``, to stay on the heap.
    """
    if _common.is_simulated():
        return numpy.array(shape, dtype)
    shape, name = _common.extents(shape), _dtypes.name_of(dtype)
    buffer = memory.allocate(_common.size_of(shape, name), "array")
    return _wrap(buffer, 0, buffer.size, name, shape, memory.Guard(buffer))


empty = array


def bytearray(shape: Any, dtype: Any = "float32", device_id: Optional[int] = None) -> Any:
    """Allocate the bytes of an array of that shape, as ``uint8``. *Collective.*"""
    return array(_common.size_of(_common.extents(shape), _dtypes.name_of(dtype)), "uint8")


def free_array(array: Any) -> None:
    """Free an array. *Collective.*"""
    _common.free(array, "array")


def array_get_buffer(array: Any) -> tuple:
    """Return the buffer that an array lies in, the array's bytes, and its element type."""
    return _common.get_buffer(array, "array")


def get_peer_array(array: Any, peer_pe: int) -> Any:
    """Return another PE's copy of an array, which this PE's loads and stores reach."""
    if _common.is_simulated():
        return numpy.get_peer_array(array, peer_pe)
    return _common.elsewhere(array, "array", lambda buffer: memory.peer_of(buffer, peer_pe), _wrap)


def get_multicast_array(team: Any, array: Any) -> Any:
    """Return the array at its multicast address, for multimem instructions alone."""
    return _common.elsewhere(array, "array", lambda buffer: memory.multicast_of(team, buffer), _wrap)


def register_external_array(array: Any) -> Any:
    """Make an array's memory symmetric, which the CUDA VMM functions have made. *Collective.*"""
    return _common.register(array, "array")


def unregister_external_array(array: Any) -> Any:
    """End what ``register_external_array`` began. *Collective.*"""
    return _common.unregister(array, "array")
