"""warpweft's allreduce inside SGLang.

A program calls :func:`enable` in each process before SGLang's engine starts there. SGLang then makes
:class:`CustomAllreduce` where it would make its own class of that name, or ``CustomAllReduceV2``, and asks it first.
"""

from __future__ import annotations

from typing import Any, Optional

from . import _engine

_MODULES = (
    ("sglang.srt.distributed.device_communicators.custom_all_reduce", ("CustomAllreduce",)),
    ("sglang.srt.distributed.device_communicators.custom_all_reduce_v2", ("CustomAllReduceV2",)),
)


class CustomAllreduce(_engine.EngineComm):
    """The communicator that SGLang's ``GroupCoordinator`` expects under this name."""

    def __init__(
        self,
        group: Any,
        device: Any,
        max_size: Optional[int] = None,
        max_pull_size: Optional[int] = None,
        max_push_size: Optional[int] = None,
        **rest: Any,
    ):
        sizes = [size for size in (max_size, max_pull_size, max_push_size) if size is not None]
        super().__init__(group, device, max(sizes) if sizes else None, **rest)

    def fused_allreduce_rmsnorm(self, input_: Any, residual_inp_: Any, weight_: Any, eps: float) -> Optional[tuple]:
        """Return the norm and the new residual, or None where SGLang is to use another way.

        SGLang's ``GroupCoordinator`` prefers this call to an allreduce and a norm where its communicator has it.
        """
        from ._norm import HALF

        if not self.should_custom_ar(input_) or input_.dim() < 2 or input_.dtype not in HALF:
            return None
        return self.comm.fused_allreduce_add_rmsnorm(input_, residual_inp_, weight_, eps)


def enable() -> None:
    """Let SGLang use warpweft's allreduce; call it before the engine starts.

    Raises ``ImportError`` where SGLang is not installed, and :class:`warpweft.NotSupported` for one without these classes.
    """
    done: list = []
    for module, names in _MODULES:
        try:
            done += _engine.replace(module, names, CustomAllreduce)
        except ModuleNotFoundError as e:
            # Not every version has both modules; without the first there is no SGLang.
            if not done and module == _MODULES[0][0]:
                raise ImportError(f"SGLang is not installed, or has no {module}") from e
    if not done:
        from ._errors import unsupported

        raise unsupported("this version of SGLang has no custom allreduce of a known name", "use Comm in your own code")
