"""Kernels: from text to PTX and to launches."""

from __future__ import annotations

import html
import json
import os
import threading
from typing import Any, Optional

from . import _arrays, _dtypes, _native, _streams, tensors, worlds
from ._errors import unsupported, usage


def request(
    source: Any,
    arch: str = "sm_90a",
    kernel: Optional[str] = None,
    lowering: str = "auto",
    transport: str = "auto",
    opt: int = 2,
    root: Any = None,
    debug_waits: Optional[int] = None,
    asserts: bool = True,
    watch: bool = False,
) -> dict:
    """Return what the part in Rust is to compile: a text with a kernel, or the path of a file."""
    is_path = isinstance(source, os.PathLike) or (isinstance(source, str) and "{" not in source)
    if not is_path and not isinstance(source, str):
        raise TypeError(f"a kernel must be text or the path of a file, not {type(source).__name__}")
    name, text = "kernel.weft", source
    if is_path:
        name = os.fspath(source)
        if kernel is None and not os.path.exists(name) and ":" in name:
            name, kernel = name.rsplit(":", 1)
        try:
            with open(name, encoding="utf-8") as file:
                text = file.read()
        except OSError as e:
            raise usage(f"cannot read the kernel file {name}: {e.strerror}", "pass a path, or the text itself") from e
    return {
        "name": name,
        "text": text,
        "root": None if root is None else os.fspath(root),
        "arch": arch,
        "kernel": kernel,
        "lowering": lowering,
        "transport": transport,
        "opt": opt,
        "debug_waits": debug_waits,
        "asserts": asserts,
        "watch": watch,
    }


def defines_of(given: dict) -> dict:
    """Return compile-time parameters with element types of other libraries under our names."""
    plain = (bool, int, float, str)
    return {name: v if isinstance(v, plain) else _define(name, v) for name, v in given.items()}


def _define(name: str, value: Any) -> Any:
    if hasattr(value, "__index__"):  # NumPy's integers
        return value.__index__()
    if hasattr(value, "__float__") and not hasattr(value, "itemsize"):
        return float(value)
    try:
        return _dtypes.name_of(value)
    except ValueError:
        raise TypeError(
            f"the compile-time parameter {name} is {value!r}; it must be a number, an element type, or the name of a reduction"
        ) from None


def compile(
    source: Any,
    *,
    arch: str = "sm_90a",
    kernel: Optional[str] = None,
    lowering: str = "auto",
    transport: str = "auto",
    opt: int = 2,
    root: Any = None,
    debug_waits: Optional[int] = None,
    asserts: bool = True,
    watch: bool = False,
    **defines: Any,
) -> Kernel:
    """Compile a kernel: ``compile("k.weft", N=4096, T="bf16")``.

    ``source`` is a kernel's text or the path of a file, ``FILE:KERNEL`` for one of several. Further keyword arguments are
    its compile-time parameters. ``arch`` is the architecture of ``ptx``; a launch compiles for the GPU that it is on.
    ``lowering`` is ``auto``, ``multimem`` or ``unicast``, ``transport`` is ``auto``, ``p2p`` or ``nvshmem``. ``root`` is
    the folder of used files. ``debug_waits`` limits every wait of the kernel to this number of polls. With
    ``watch``, a wait that takes too long identifies itself in the error that ends the job, as with ``WEFT_WATCH=1``.

    Raises :class:`CompileError`, which shows the places in the text.
    """
    asked = request(source, arch, kernel, lowering, transport, opt, root, debug_waits, asserts, watch)
    return Kernel(_native.compile(asked, defines_of(defines)))


class Kernel:
    """A compiled kernel: ``kernel[grid](x, barrier, team)`` launches it.

    ``grid`` is the number of CTAs, a tuple of up to three, or None for what the kernel says itself, and as many as fit
    where it leaves that open.
    """

    def __init__(self, native: _native.Compiled, name: Optional[str] = None):
        self._native = native
        self.meta: dict = json.loads(native.meta)
        names = [k["name"] for k in self.meta["kernels"]]
        if name is None and len(names) == 1:
            name = names[0]
        #: The kernel's name; None while one of several is still to be chosen by ``kernel.of(name)``.
        self.name = name
        self.names = tuple(names)
        self._floats: Optional[list] = None
        self._launcher = None if name is None else _native.Launcher(native, name)

    def of(self, name: str) -> Kernel:
        """Return one of several kernels of a file."""
        if name not in self.names:
            raise usage(f"there is no kernel {name}", "the file has " + ", ".join(self.names))
        return Kernel(self._native, name)

    @property
    def ptx(self) -> str:
        """The PTX."""
        return self._native.ptx

    @property
    def ir(self) -> str:
        """The intermediate representation before the passes."""
        return self._native.ir

    @property
    def source(self) -> str:
        """The text."""
        return self._native.source

    @property
    def arch(self) -> str:
        """The architecture of the PTX."""
        return self._native.arch

    @property
    def warnings(self) -> str:
        """What is allowed but may be wrong; empty without such."""
        return self._native.warnings

    @property
    def defines(self) -> dict:
        """The values of the compile-time parameters, as text."""
        return dict(self._native.defines[self.names.index(self.name) if self.name else 0])

    @property
    def params(self) -> list:
        """The names of the arguments of a launch, in order."""
        (info,) = [k for k in self.meta["kernels"] if k["name"] == (self.name or self.names[0])]
        kinds = ("tensor", "scalar", "barrier", "team")
        return [p["name"] for p in info["params"] if p.get("kind") in kinds]

    def _is_float(self, position: int) -> bool:
        """Return whether an argument is a floating-point number."""
        if self._floats is None:
            (info,) = [k for k in self.meta["kernels"] if k["name"] == self.name]
            given = [p for p in info["params"] if p["name"] in self.params]
            scalars = [p.get("dtype", "") if p["kind"] == "scalar" else "" for p in given]
            self._floats = [dtype[:1] == "f" or dtype in ("bf16", "e4m3", "e5m2") for dtype in scalars]
        return position < len(self._floats) and self._floats[position]

    @property
    def timings(self) -> dict:
        """The seconds that each stage of the compilation took, in order."""
        return dict(self._native.timings)

    def explain(self) -> str:
        """Return what each tensor is used for, and every access with its instructions and why they are not wider."""
        return self._native.explain()

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value}" for name, value in self.defines.items())
        return f"Kernel({', '.join([self.name or '|'.join(self.names)] + [given] * bool(given))} for {self.arch})"

    def _repr_html_(self) -> str:
        from ._display import side_by_side

        return side_by_side([("kernel", self.source), ("PTX", self.ptx)], html.escape(repr(self)))

    def __getitem__(self, grid: Any) -> Launch:
        """Return the launch with this number of CTAs."""
        return Launch(self, grid)

    def __call__(self, *args: Any, stream: Any = None, **options: Any) -> None:
        """Launch it with as many CTAs as it says, or as fit."""
        Launch(self, None)(*args, stream=stream, **options)

    def prepare(self, world: Any) -> Kernel:
        """Compile and load it for a world now, so that no launch waits for that."""
        launcher = self._chosen()
        if isinstance(world, worlds.SimulatedWorld):
            world._each(lambda pe: launcher.prepare(pe._native))
        else:
            launcher.prepare(world._native)
        return self

    def max_ctas(self, world: worlds.World) -> int:
        """Return how many CTAs of it the GPU holds at once."""
        return self._chosen().max_ctas(world._native)

    def _chosen(self) -> _native.Launcher:
        if self._launcher is None:
            raise usage("the file has several kernels: " + ", ".join(self.names), "choose one: kernel.of(name)")
        return self._launcher


def _grid(grid: Any) -> Optional[tuple]:
    if grid is None:
        return None
    extents = tuple(grid) if isinstance(grid, (tuple, list)) else (grid,)
    if not 1 <= len(extents) <= 3 or any(not hasattr(n, "__index__") or not 1 <= n < 1 << 31 for n in extents):
        raise usage(f"the grid is {grid!r}", "it must be a number of CTAs of at least 1, or up to three such numbers")
    return (*(int(n) for n in extents), 1, 1)[:3]


_GPUS: dict = {}
_GPUS_LOCK = threading.Lock()


def _gpu(ordinal: int) -> _native.Gpu:
    with _GPUS_LOCK:
        if ordinal not in _GPUS:
            _GPUS[ordinal] = _native.Gpu.open(ordinal)
        return _GPUS[ordinal]


_OURS = (tensors.Tensor, worlds.Barrier, worlds.Team)
_NUMBERS = (bool, int, float)


class Launch:
    """A kernel with a grid, still to be called with its arguments."""

    def __init__(self, kernel: Kernel, grid: Any):
        self.kernel = kernel
        self._shape = _grid(grid)

    def __call__(self, *args: Any, stream: Any = None, cooperative: Optional[bool] = None, cluster: Any = None) -> None:
        """Launch the kernel.

        On simulated PEs it has ended when the call returns. On a GPU the call returns at once, and the kernel runs in the
        order of ``stream``: by default the current one of PyTorch or CuPy.
        """
        launcher = self.kernel._chosen()
        shape = (self._shape, cooperative, _grid(cluster))
        whole = {id(a.world): a.world for a in args if isinstance(a, (worlds.SimulatedTensor, worlds._All))}
        if whole:
            if len(whole) > 1:
                raise usage("the arguments belong to different worlds", "allocate all of them in one world")
            (world,) = whole.values()
            parts = (worlds.SimulatedTensor, worlds._All)

            def launch(pe: worlds.World) -> None:
                own = [a.parts[pe.my_pe] if isinstance(a, parts) else a for a in args]
                self._on(launcher, shape, pe, own, None)
                pe.synchronize()

            world._each(launch)
            return
        found = {id(a.world._native): a.world for a in args if isinstance(a, _OURS)}
        found.update({id(a.world._native): a.world for a in args if isinstance(a, tensors.Peer)})
        if len(found) > 1:
            raise usage("the arguments belong to different worlds", "allocate all of them in one world")
        if found:
            (world,) = found.values()
            self._on(launcher, shape, world, args, stream)
        else:
            self._without_world(launcher, shape, args, stream)

    def _on(self, launcher: Any, shape: tuple, world: worlds.World, args: Any, stream: Any) -> None:
        native = world._native

        def convert(position: int, a: Any) -> Any:
            if isinstance(a, _OURS):
                return a._native
            if isinstance(a, _NUMBERS):
                return self._number(position, a)
            if isinstance(a, tensors.Peer):
                t = a.tensor._native
                return _native.Borrowed.of_world(native, a.address, _dtypes.CODES[t.dtype], t.layout)
            return self._array(position, a, world.device, lambda *w: _native.Borrowed.of_world(native, *w))

        launcher.launch(native, shape, [convert(i, a) for i, a in enumerate(args)], world._stream(stream))

    def _without_world(self, launcher: Any, shape: tuple, args: Any, stream: Any) -> None:
        arrays = {i: _arrays.of(a, f"argument {i}") for i, a in enumerate(args) if not isinstance(a, _NUMBERS)}
        devices = {a.device for a in arrays.values() if a is not None and a.device >= 0}
        if not arrays:
            raise usage("no argument determines where the kernel runs", "pass a tensor, a team, or an array on a GPU")
        if len(devices) > 1:
            raise usage(f"the arguments are on GPUs {sorted(devices)}", "a kernel without a world runs on one GPU")
        ordinal = devices.pop() if devices else 0
        gpu = _gpu(ordinal)
        make = _native.Borrowed.of_gpu
        given = [
            self._number(i, a) if isinstance(a, _NUMBERS) else self._array(i, a, ordinal, lambda *w: make(gpu, *w))
            for i, a in enumerate(args)
        ]
        launcher.launch_on(gpu, shape, given, _streams.of(stream, ordinal) or 0)

    def _number(self, position: int, number: Any) -> Any:
        """Return a number as the kernel takes it: an integer stands for a floating-point number too."""
        return float(number) if type(number) is int and self.kernel._is_float(position) else number

    def _array(self, position: int, array: Any, device: int, make: Any) -> Any:
        found = _arrays.of(array, f"argument {position}")
        if found is None:
            if hasattr(array, "__index__"):
                return self._number(position, array.__index__())
            if hasattr(array, "__float__"):
                return float(array)
            names = self.kernel.params
            name = f" ({names[position]})" if position < len(names) else ""
            raise TypeError(
                f"argument {position}{name} of {self.kernel.name} is a {type(array).__name__}; pass a tensor, a barrier, a "
                "team, an array on the GPU, or a number"
            )
        if found.device not in (-1, device):
            raise usage(f"argument {position} is on GPU {found.device}, but the kernel runs on GPU {device}", "copy it there")
        if any(d < 0 for d in found.strides):
            raise unsupported(f"argument {position} has negative strides", "pass a copy")
        return make(found.address, _dtypes.CODES[found.dtype], found.layout)
