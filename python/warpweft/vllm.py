"""warpweft's allreduce inside vLLM.

``WEFT_VLLM=1`` in the environment switches it on: vLLM calls :func:`register` in each of its processes, as it does with
all plugins. A program that makes its own engine calls :func:`enable` before that. vLLM then makes :class:`CustomAllreduce`
where it would make its own class of that name, and asks it first.
"""

from __future__ import annotations

import os

from . import _engine

_MODULE = "vllm.distributed.device_communicators.custom_all_reduce"


class CustomAllreduce(_engine.EngineComm):
    """The communicator that vLLM's ``CudaCommunicator`` expects under this name."""


def enable() -> None:
    """Let vLLM use warpweft's allreduce; call it before the engine starts.

    Raises ``ImportError`` where vLLM is not installed, and :class:`warpweft.NotSupported` for a vLLM without that class.
    """
    if not _engine.replace(_MODULE, ("CustomAllreduce",), CustomAllreduce):
        from ._errors import unsupported

        raise unsupported(f"{_MODULE} has no CustomAllreduce", "this vLLM version is not supported; use Comm in your code")


def register() -> None:
    """Switch it on where ``WEFT_VLLM=1``: vLLM's entry point for plugins."""
    if os.environ.get("WEFT_VLLM") == "1":
        enable()
