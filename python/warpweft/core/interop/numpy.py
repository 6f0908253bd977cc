"""Symmetric memory of simulated PEs as NumPy arrays: what ``cupy`` is on GPUs."""

from __future__ import annotations

from typing import Any

from ... import _arrays, _dtypes
from .. import memory
from . import _common


def wrap(buffer: Any, offset: int, nbytes: int, dtype: str, shape: tuple, owner: Any = None) -> Any:
    """Return memory as an array."""
    import numpy

    interface = dict(buffer.__array_interface__)
    start = interface["data"][0] + offset
    interface.update(shape=(nbytes,), typestr="|u1", data=(start, False), strides=None)
    flat = numpy.asarray(_arrays.HostMemory(interface, owner or buffer))
    return flat.view(_dtypes.numpy_dtype(dtype)).reshape(shape)


def array(shape: Any, dtype: Any = "float32") -> Any:
    """Allocate an array. *Collective.*"""
    shape, name = _common.extents(shape), _dtypes.name_of(dtype)
    buffer = memory.allocate(_common.size_of(shape, name), "array")
    return wrap(buffer, 0, buffer.size, name, shape, memory.Guard(buffer))


def bytearray(shape: Any, dtype: Any = "float32", device_id: Any = None) -> Any:
    """Allocate the bytes of an array. *Collective.*"""
    return array(_common.size_of(_common.extents(shape), _dtypes.name_of(dtype)), "uint8")


def get_peer_array(array: Any, peer_pe: int) -> Any:
    """Return another PE's copy of an array: its memory itself."""
    return _common.elsewhere(array, "array", lambda buffer: memory.peer_of(buffer, peer_pe), wrap)
