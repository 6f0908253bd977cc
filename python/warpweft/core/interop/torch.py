"""Symmetric memory as PyTorch tensors."""

from __future__ import annotations

from typing import Any

from ... import _arrays, _dtypes
from .. import _state, memory
from . import _common, numpy


def _wrap(buffer: Any, offset: int, nbytes: int, dtype: str, shape: tuple, owner: Any = None) -> Any:
    import torch

    kind = _dtypes.torch_dtype(dtype)
    if _common.is_simulated():
        flat = torch.from_numpy(numpy.wrap(buffer, offset, nbytes, "u8", (nbytes,), owner))
        return flat.view(kind).reshape(shape)
    device = _state.get().world.device
    return _arrays.torch_tensor(buffer.handle + offset, nbytes, kind, shape, device, owner or buffer)


def tensor(shape: Any, dtype: Any = "float32") -> Any:
    """Allocate a tensor on the symmetric heap. *Collective.*

    It is freed by ``free_tensor`` on every PE.
    """
    shape, name = _common.extents(shape), _dtypes.name_of("float32" if dtype is None else dtype)
    buffer = memory.allocate(_common.size_of(shape, name), "tensor")
    return _wrap(buffer, 0, buffer.size, name, shape, memory.Guard(buffer))


empty = tensor


def bytetensor(shape: Any, dtype: Any = "float32") -> Any:
    """Allocate the bytes of a tensor of that shape, as ``uint8``. *Collective.*"""
    name = _dtypes.name_of("float32" if dtype is None else dtype)
    return tensor(_common.size_of(_common.extents(shape), name), "uint8")


def free_tensor(tensor: Any) -> None:
    """Free a tensor. *Collective.*"""
    _common.free(tensor, "tensor")


def tensor_get_buffer(tensor: Any) -> tuple:
    """Return the buffer that a tensor lies in, the tensor's bytes, and its element type."""
    return _common.get_buffer(tensor, "tensor")


def get_peer_tensor(tensor: Any, peer_pe: int) -> Any:
    """Return another PE's copy of a tensor, which this PE's loads and stores reach."""
    return _common.elsewhere(tensor, "tensor", lambda buffer: memory.peer_of(buffer, peer_pe), _wrap)


def get_multicast_tensor(team: Any, tensor: Any) -> Any:
    """Return the tensor at its multicast address, for multimem instructions alone."""
    return _common.elsewhere(tensor, "tensor", lambda buffer: memory.multicast_of(team, buffer), _wrap)


def register_external_tensor(tensor: Any) -> Any:
    """Make a tensor's memory symmetric, which the CUDA VMM functions have made. *Collective.*"""
    return _common.register(tensor, "tensor")


def unregister_external_tensor(tensor: Any) -> Any:
    """End what ``register_external_tensor`` began. *Collective.*"""
    return _common.unregister(tensor, "tensor")
