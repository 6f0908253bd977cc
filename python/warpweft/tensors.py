"""Symmetric tensors: memory that every PE of a world has."""

from __future__ import annotations

from typing import Any, Optional

from . import _arrays, _dtypes, _native, _streams
from ._errors import unsupported, usage
from .layout import Layout


def layout_text(shape: Any) -> str:
    """Return the layout of a shape, in C order as NumPy has it, or of a layout."""
    if isinstance(shape, Layout):
        return str(shape)
    if isinstance(shape, str):
        return str(Layout(shape))
    extents = (shape,) if hasattr(shape, "__index__") else tuple(shape)
    extents = tuple(int(n) for n in extents)
    if not extents or any(n < 1 for n in extents):
        raise usage(f"{shape!r} is not the shape of a tensor", "a tensor must have at least one element: 1000, (4, 256)")
    return _arrays.Array(0, "u8", extents, _arrays.compact(extents), 0).layout


class Tensor:
    """This PE's part of a symmetric tensor.

    On a simulated PE it is a NumPy array by :meth:`numpy`, and other NumPy functions take it as it is. On a GPU PyTorch,
    CuPy and JAX take it without a copy, by ``__cuda_array_interface__`` and DLPack.
    """

    def __init__(self, world: Any, native: _native.Tensor):
        self.world = world
        self._native = native

    @property
    def shape(self) -> tuple:
        """Elements of each mode."""
        return tuple(self._native.shape)

    @property
    def dtype(self) -> str:
        """The element type's name in kernels."""
        return self._native.dtype

    @property
    def layout(self) -> Layout:
        """Shape and strides, in elements."""
        return Layout(self._native.layout)

    @property
    def nbytes(self) -> int:
        """Bytes from its first to its last element."""
        return self._native.nbytes

    @property
    def address(self) -> int:
        """Where it begins in this PE's memory."""
        return self._native.address

    def __repr__(self) -> str:
        return f"Tensor({self.dtype}, {self._native.layout}) of PE {self.world.my_pe}"

    def view(self, shape: Any, dtype: Any = None, offset: int = 0) -> Tensor:
        """Return other elements of the same memory, from byte ``offset`` on."""
        code = _dtypes.code_of(self.dtype if dtype is None else dtype)
        return Tensor(self.world, self._native.view(offset, code, layout_text(shape)))

    def free(self) -> None:
        """Give the memory up on this PE. Every PE does so; then it is freed. *Collective.*"""
        self._native.free()
        self.world._native.collect()

    # What other libraries see.

    def _interface(self, address: int) -> dict:
        strides = self._native.strides
        if strides is None:
            raise unsupported(
                f"the layout {self._native.layout} has a mode of several strides, which arrays have no form for",
                "take a view with one stride for each mode",
            )
        size = _dtypes.BYTES[self.dtype]
        return {
            "shape": self.shape,
            "typestr": _dtypes.typestr(self.dtype),
            "data": (address, False),
            "version": 3,
            "strides": tuple(d * size for d in strides),
        }

    @property
    def __array_interface__(self) -> dict:
        host = self._native.host_address
        if host is None:
            raise AttributeError("a tensor on a GPU is not a NumPy array; numpy() copies it")
        if self._native.freed:
            raise unsupported("the symmetric memory was freed", "allocate it again")
        return self._interface(host)

    @property
    def __cuda_array_interface__(self) -> dict:
        if self._native.host_address is not None:
            raise AttributeError("a simulated PE's tensor is not in GPU memory")
        return self._interface(self.address)

    def __dlpack_device__(self) -> tuple:
        """Return DLPack's kind and number of the device."""
        return (1, 0) if self.world.is_simulated else (2, self.world.device)

    def __dlpack__(self, *, stream: Any = None, max_version: Optional[tuple] = None, **_: Any) -> Any:
        """Return a DLPack capsule; what the world's stream was given before is done."""
        if self.world.is_simulated:
            return self.numpy().__dlpack__()
        self.world.synchronize()
        return self._native.dlpack(max_version is not None and max_version[0] >= 1)

    def numpy(self) -> Any:
        """Return this PE's elements as a NumPy array: the memory itself on a simulated PE, a copy on a GPU."""
        import numpy

        dtype = _dtypes.numpy_dtype(self.dtype)
        if self._native.host_address is not None:
            return numpy.asarray(self).view(dtype)
        self._settle()
        flat = numpy.frombuffer(bytearray(self._native.read(self.world.my_pe, self.world._native)), dtype)
        return self._shaped(flat)

    def _shaped(self, flat: Any) -> Any:
        """Return elements in memory order as the tensor's layout has them."""
        import numpy

        return numpy.lib.stride_tricks.as_strided(flat, self.shape, self._interface(0)["strides"])

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        """Return it as a NumPy array."""
        import numpy

        return numpy.asarray(self.numpy(), dtype)

    def __getitem__(self, index: Any) -> Any:
        """Return elements as NumPy has them."""
        return self.numpy()[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        """Write elements, on a simulated PE."""
        if not self.world.is_simulated:
            raise unsupported("elements on a GPU cannot be written one by one", "use copy_from, or torch() and its methods")
        self.numpy()[index] = value

    def copy_from(self, array: Any) -> None:
        """Write this PE's elements from a NumPy array of the same shape."""
        import numpy

        dtype = _dtypes.numpy_dtype(self.dtype)
        given = numpy.asarray(array)
        if tuple(given.shape) != self.shape:
            message = f"the array has shape {tuple(given.shape)}, but the tensor {self.shape}"
            raise usage(message, "both must have the same shape")
        if self.world.is_simulated:
            self.numpy()[...] = given
            return
        memory = numpy.frombuffer(bytearray(self.nbytes), dtype)
        self._shaped(memory)[...] = given
        self._settle()
        self._native.write(memory.tobytes(), self.world._native)

    def _settle(self) -> None:
        """Wait for what the current stream has under way on it."""
        self.world.synchronize(_streams.current(self.world.device))

    def torch(self) -> Any:
        """Return this PE's elements as a PyTorch tensor: the same memory."""
        import torch

        if self.world.is_simulated:
            return torch.from_numpy(self.numpy())
        return self._as_torch(self.address)

    def _as_torch(self, address: int) -> Any:
        dtype, size = _dtypes.torch_dtype(self.dtype), _dtypes.BYTES[self.dtype]
        strides = tuple(d // size for d in self._interface(0)["strides"])
        flat = _arrays.torch_tensor(address, self.nbytes, dtype, (self.nbytes // size,), self.world.device, self)
        return flat.as_strided(self.shape, strides)

    def cupy(self) -> Any:
        """Return this PE's elements as a CuPy array: the same memory."""
        import cupy

        return cupy.asarray(self)

    def peer(self, pe: int) -> Peer:
        """Return another PE's part, which this PE's loads and stores reach."""
        return Peer(self, pe, self._native.peer_address(pe))

    def multicast(self, team: Any = None) -> Optional[Elsewhere]:
        """Return all parts of a team at their multicast address, for multimem instructions; None if there is none."""
        team = self.world.team if team is None else team
        address, _ = self._native.multicast_address(team._native)
        return None if address is None else Elsewhere(self, address, f"the parts of {list(team.members)}")

    def why_no_multicast(self, team: Any = None) -> Optional[str]:
        """Return why there is no multicast address, or None where there is one."""
        team = self.world.team if team is None else team
        return self._native.multicast_address(team._native)[1]


class Elsewhere:
    """A symmetric tensor at another address than this PE's own."""

    def __init__(self, tensor: Tensor, address: int, what: str):
        self.tensor, self.address, self._what = tensor, address, what
        self.world = tensor.world

    def __repr__(self) -> str:
        return f"{self._what}, of {self.tensor!r}"

    @property
    def __cuda_array_interface__(self) -> dict:
        if self.world.is_simulated:
            raise AttributeError("a simulated PE's tensor is not in GPU memory")
        return self.tensor._interface(self.address)

    def torch(self) -> Any:
        """Return the elements as a PyTorch tensor, which is the memory at that address."""
        return self.tensor._as_torch(self.address)

    def cupy(self) -> Any:
        """Return the elements as a CuPy array, which is the memory at that address."""
        import cupy

        return cupy.asarray(self)


class Peer(Elsewhere):
    """Another PE's part of a symmetric tensor, as memory that this PE's loads and stores reach."""

    def __init__(self, tensor: Tensor, pe: int, address: int):
        super().__init__(tensor, address, f"PE {pe}'s part")
        self.pe = pe

    def numpy(self) -> Any:
        """Return the elements as a NumPy array: the memory itself of a simulated PE, a copy on a GPU."""
        import numpy

        dtype = _dtypes.numpy_dtype(self.tensor.dtype)
        if self.world.is_simulated:
            at = self.tensor._native.host_of(self.pe, self.world._native)
            return numpy.asarray(_arrays.HostMemory(self.tensor._interface(at), self.tensor)).view(dtype)
        data = self.tensor._native.read(self.pe, self.world._native)
        return self.tensor._shaped(numpy.frombuffer(bytearray(data), dtype))
