"""Streams of other libraries, and the one that they use now."""

from __future__ import annotations

import sys
from typing import Any, Optional

from ._errors import usage


def handle(stream: Any) -> Optional[int]:
    """Return the handle (``CUstream``) of a stream of any library; None for None."""
    if stream is None or isinstance(stream, int):
        return stream
    for name in ("cuda_stream", "ptr"):  # PyTorch's; CuPy's
        found = getattr(stream, name, None)
        if isinstance(found, int):
            return found
    protocol = getattr(stream, "__cuda_stream__", None)  # cuda.core's
    if protocol is not None:
        return int((protocol() if callable(protocol) else protocol)[1])
    raise usage(
        f"{type(stream).__name__} is no stream",
        "pass a stream of PyTorch, CuPy or cuda.core, its handle as an integer, or None for the current one",
    )


def current(device: int) -> Optional[int]:
    """Return the stream that PyTorch, or else CuPy, uses now on a device; None where neither is in use."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return torch.cuda.current_stream(device).cuda_stream
    cupy = sys.modules.get("cupy")
    if cupy is not None:
        return cupy.cuda.get_current_stream().ptr
    return None


def of(stream: Any, device: int) -> Optional[int]:
    """Return the handle of a stream that is given, or else of the current one."""
    return current(device) if stream is None else handle(stream)
