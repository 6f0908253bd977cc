"""A JIT compiler for GPU kernels that compute and communicate in one launch.

    >>> import warpweft as weft
    >>> kernel = weft.compile(text, N=1000)                     # text to PTX, without a GPU
    >>> world = weft.World.simulated(8)                         # eight PEs in this process
    >>> x = world.tensor(1000)
    >>> kernel[4](x, world.barrier(4), world.team)              # runs on all of them
    >>> weft.check(text)                                        # looks for races and deadlocks

On GPUs, :class:`World` joins processes, and :class:`Comm` offers collectives on PyTorch tensors. ``warpweft.core`` is
nvshmem4py's interface. docs/python.md is the guide.
"""

from __future__ import annotations

from typing import Any

from . import _native
from ._errors import (
    ArgumentError,
    Closed,
    CompileError,
    Disagreement,
    Error,
    LayoutError,
    NoGpu,
    NotSupported,
    OutOfMemory,
    PeerDied,
    SimulationError,
    Timeout,
    TooLarge,
)
from .checks import Finding, Report, check
from .kernels import Kernel, compile
from .layout import Layout
from .tensors import Tensor
from .worlds import Barrier, SimulatedTensor, SimulatedWorld, Team, World, random_id

__version__ = _native.version()

#: Modules that are imported when they are first used.
_LAZY = {
    "Comm": "comm",
    "register_torch_ops": "ops",
    "fused_allreduce_add_layernorm": "ops",
    "fused_allreduce_add_rmsnorm": "ops",
}
_MODULES = ("comm", "core", "layout", "ops", "sglang", "vllm")

__all__ = [
    "ArgumentError",
    "Barrier",
    "Closed",
    "Comm",
    "CompileError",
    "Disagreement",
    "Error",
    "Finding",
    "Kernel",
    "Layout",
    "LayoutError",
    "NoGpu",
    "NotSupported",
    "OutOfMemory",
    "PeerDied",
    "Report",
    "SimulatedTensor",
    "SimulatedWorld",
    "SimulationError",
    "Team",
    "Tensor",
    "Timeout",
    "TooLarge",
    "World",
    "check",
    "compile",
    "fused_allreduce_add_layernorm",
    "fused_allreduce_add_rmsnorm",
    "random_id",
    "register_torch_ops",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name in _LAZY:
        return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)
    if name in _MODULES:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
