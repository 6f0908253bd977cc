"""What the communicators for inference engines have in common: the calls of the engines' own custom allreduce."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Any, Iterator, Optional

_LOG = logging.getLogger("warpweft")


class EngineComm:
    """An engine's custom allreduce: ``should_custom_ar``, ``custom_all_reduce``, ``capture``, ``close``.

    ``WEFT_SUMS`` in the environment is the ``sums`` of its :class:`warpweft.Comm`, the same on all ranks:
    ``deterministic`` for sums that have the same bits in any batch. A class can also set :attr:`sums`.

    Where it cannot serve (one rank, several hosts, no GPU), ``disabled`` is true and the log says why, and the engine uses
    what it would have used otherwise.
    """

    #: Bytes above which the engine's other ways are used.
    MAX_BYTES = 64 << 20

    #: What may happen to the sums, unless ``WEFT_SUMS`` says it.
    sums = "ordinary"

    def __init__(self, group: Any, device: Any, max_size: Optional[int] = None, **_: Any):
        self.comm: Any = None
        self.why_disabled: Optional[str] = None
        try:
            self._start(group, device, self.MAX_BYTES if max_size is None else max_size)
        except Exception as e:
            self.why_disabled = str(e)
            _LOG.warning("warpweft's allreduce is off: %s", e)

    def _start(self, group: Any, device: Any, max_size: int) -> None:
        import torch
        import torch.distributed as dist

        from .comm import Comm

        device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        if dist.get_world_size(group) == 1:
            self.why_disabled = "the group has one rank"
            return
        share = os.environ.get("WEFT_SHARE_GPU") == "1"
        sums = os.environ.get("WEFT_SUMS") or self.sums
        self.comm = Comm.from_process_group(group, device, max_bytes=max_size, share_gpu=share, sums=sums)
        self.rank, self.world_size = self.comm.rank, self.comm.size

    @property
    def disabled(self) -> bool:
        """Whether the engine is to use its other ways."""
        return self.comm is None or self.comm.disabled

    def should_custom_ar(self, inp: Any) -> bool:
        """Return whether ``custom_all_reduce`` takes the tensor."""
        return self.comm is not None and self.comm.should_all_reduce(inp)

    def custom_all_reduce(self, input: Any) -> Any:
        """Return the sum over the ranks as a new tensor, or None where the engine is to use another way."""
        return self.comm.all_reduce(input) if self.should_custom_ar(input) else None

    def all_reduce(self, inp: Any, *, out: Any = None, registered: bool = False) -> Any:
        """Return the sum over the ranks."""
        return self.comm.all_reduce(inp, out=out)

    @contextlib.contextmanager
    def capture(self) -> Iterator[None]:
        """Allow calls in graphs that are captured meanwhile."""
        if self.comm is None:
            yield
            return
        with self.comm.capture():
            yield

    def register_graph_buffers(self) -> None:
        """Do nothing: captured calls copy what is not symmetric."""

    def close(self) -> None:
        """End it; a second call does nothing."""
        comm, self.comm = self.comm, None
        if comm is not None:
            comm.close()


def replace(module: str, names: tuple, new: type) -> list:
    """Put a class in the place of an engine's, under each name that its module has; return those names."""
    import importlib

    found = importlib.import_module(module)
    done = [name for name in names if hasattr(found, name)]
    for name in done:
        if getattr(found, name) is not new:
            setattr(new, f"original_{name}", getattr(found, name))
            setattr(found, name, new)
    return done
