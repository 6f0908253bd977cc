"""Arrays of other libraries on GPUs, as addresses: PyTorch, CuPy, JAX and whatever else says where its memory is."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple, Optional

from ._dtypes import BYTES, name_of
from ._errors import usage


class Array(NamedTuple):
    """Where an array lies. Strides are in elements."""

    address: int
    dtype: str
    shape: tuple
    strides: tuple
    device: int

    @property
    def layout(self) -> str:
        """Its shape and strides as a layout."""
        if not self.shape:
            return "1:0"
        if len(self.shape) == 1:
            return f"{self.shape[0]}:{self.strides[0]}"
        return f"({','.join(map(str, self.shape))}):({','.join(map(str, self.strides))})"

    @property
    def nbytes(self) -> int:
        """Bytes from its first to its last element."""
        last = sum((n - 1) * d for n, d in zip(self.shape, self.strides))
        return (last + 1) * BYTES[self.dtype]


def compact(shape: tuple) -> tuple:
    """Return the strides of an array in C order without gaps."""
    strides, n = [], 1
    for extent in reversed(shape):
        strides.append(n)
        n *= extent
    return tuple(reversed(strides))


def _of_torch(tensor: Any, what: str) -> Array:
    if not tensor.is_cuda:
        raise usage(f"{what} is a PyTorch tensor on {tensor.device}, not on a GPU", "move it there: x.cuda()")
    return Array(tensor.data_ptr(), name_of(tensor.dtype), tuple(tensor.shape), tuple(tensor.stride()), tensor.device.index)


def _of_interface(array: Any, interface: dict) -> Array:
    dtype = name_of(interface["typestr"])
    shape = tuple(interface["shape"])
    strides = interface.get("strides")
    size = BYTES[dtype]
    strides = compact(shape) if strides is None else tuple(d // size for d in strides)
    device = getattr(getattr(array, "device", None), "id", None)
    return Array(interface["data"][0], dtype, shape, strides, -1 if device is None else device)


def _of_jax(array: Any) -> Array:
    array.block_until_ready()
    (device,) = array.devices()
    shape = tuple(array.shape)
    return Array(array.unsafe_buffer_pointer(), name_of(array.dtype), shape, compact(shape), device.id)


def _of_dlpack(array: Any, what: str) -> Array:
    """Read an array that has nothing but DLPack, by whichever library is there to read it."""
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None:
        return _of_torch(torch.from_dlpack(array), what)
    if cupy is not None:
        read = cupy.from_dlpack(array)
        return _of_interface(read, read.__cuda_array_interface__)
    raise usage(f"{what} only has DLPack", "import torch or cupy first, which can read it")


def of(array: Any, what: str = "the array") -> Optional[Array]:
    """Return where an array lies; None for what is no array.

    The device is -1 where the library does not tell it.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return _of_torch(array, what)
    if hasattr(array, "unsafe_buffer_pointer") and hasattr(array, "devices"):
        return _of_jax(array)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return _of_interface(array, interface)
    if getattr(array, "__dlpack_device__", lambda: (0, 0))()[0] == 2:
        return _of_dlpack(array, what)
    if hasattr(array, "__array_interface__"):
        raise usage(
            f"{what} is a NumPy array, which is in the host's memory",
            "copy it into a tensor of the world: x = world.tensor(shape, dtype); x[pe][...] = array on simulated PEs, "
            "x.copy_from(array) on a GPU",
        )
    if hasattr(array, "__dlpack_device__") and array.__dlpack_device__()[0] == 1:
        raise usage(f"{what} is in the host's memory", "copy it to the GPU first")
    return None


class Memory:
    """Memory on a GPU as bytes, for libraries that take ``__cuda_array_interface__``. It keeps its owner."""

    def __init__(self, address: int, nbytes: int, owner: Any):
        self.owner = owner
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
            "strides": None,
        }


class HostMemory:
    """Memory of this process for NumPy. It keeps its owner."""

    def __init__(self, interface: dict, owner: Any):
        self.owner = owner
        self.__array_interface__ = interface


def torch_tensor(address: int, nbytes: int, dtype: Any, shape: tuple, device: int, owner: Any):
    """Return a PyTorch tensor of memory on a GPU, which keeps the owner."""
    import torch

    flat = torch.as_tensor(Memory(address, nbytes, owner), device=f"cuda:{device}")
    return flat.view(dtype).view(shape)
