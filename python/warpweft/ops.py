"""The collectives as operators of PyTorch, which ``torch.compile`` traces: ``torch.ops.warpweft``.

    weft.register_torch_ops()
    y = torch.ops.warpweft.all_reduce(x, comm.name)

Importing this module registers them. ``all_reduce``, ``all_gather`` and ``reduce_scatter`` have gradients.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch

from ._errors import Closed
from .comm import _OPEN, Comm

_COMMS: Any = weakref.WeakValueDictionary()


def _comm(name: str) -> Comm:
    found = _COMMS.get(name)
    if found is None:
        for comm in list(_OPEN):
            _COMMS[comm.name] = comm
        found = _COMMS.get(name)
    if found is None:
        raise Closed(f"there is no communicator {name}", code="W0004", help="pass comm.name of an open communicator")
    return found


_LIBRARY = torch.library.Library("warpweft", "DEF")

_SCHEMAS = (
    "all_reduce(Tensor inp, str comm) -> Tensor",
    "all_gather(Tensor inp, str comm) -> Tensor",
    "reduce_scatter(Tensor inp, str comm) -> Tensor",
    "fused_allreduce_add_rmsnorm(Tensor input, Tensor residual_in, Tensor rms_gamma, float rms_eps, str comm)"
    " -> (Tensor, Tensor)",
)


def _all_reduce(inp: torch.Tensor, comm: str) -> torch.Tensor:
    return _comm(comm).all_reduce(inp)


def _all_gather(inp: torch.Tensor, comm: str) -> torch.Tensor:
    return _comm(comm).all_gather(inp)


def _reduce_scatter(inp: torch.Tensor, comm: str) -> torch.Tensor:
    return _comm(comm).reduce_scatter(inp)


def _fused(input: torch.Tensor, residual_in: torch.Tensor, rms_gamma: torch.Tensor, rms_eps: float, comm: str):
    return _comm(comm).fused_allreduce_add_rmsnorm(input, residual_in, rms_gamma, rms_eps)


def _fake_gather(inp: torch.Tensor, comm: str) -> torch.Tensor:
    return inp.new_empty((inp.shape[0] * _comm(comm).size, *inp.shape[1:]))


def _fake_scatter(inp: torch.Tensor, comm: str) -> torch.Tensor:
    return inp.new_empty((inp.shape[0] // _comm(comm).size, *inp.shape[1:]))


def _fake_fused(input: torch.Tensor, residual_in: torch.Tensor, rms_gamma: torch.Tensor, rms_eps: float, comm: str):
    return torch.empty_like(input), torch.empty_like(residual_in)


def _save(ctx: Any, inputs: tuple, output: Any) -> None:
    ctx.comm = inputs[1]


def _backward(name: str):
    def back(ctx: Any, grad: torch.Tensor):
        return getattr(torch.ops.warpweft, name)(grad.contiguous(), ctx.comm), None

    return back


#: Each operator: what runs, what a trace assumes, and the operator of its gradient.
_OPERATORS = {
    "all_reduce": (_all_reduce, lambda inp, comm: torch.empty_like(inp), "all_reduce"),
    "all_gather": (_all_gather, _fake_gather, "reduce_scatter"),
    "reduce_scatter": (_reduce_scatter, _fake_scatter, "all_gather"),
    "fused_allreduce_add_rmsnorm": (_fused, _fake_fused, None),
}

for _schema in _SCHEMAS:
    _LIBRARY.define(_schema)
for _name, (_run, _fake, _gradient) in _OPERATORS.items():
    _LIBRARY.impl(_name, _run, "CUDA")
    torch.library.register_fake(f"warpweft::{_name}", _fake, lib=_LIBRARY)
    if _gradient is not None:
        torch.library.register_autograd(f"warpweft::{_name}", _backward(_gradient), setup_context=_save, lib=_LIBRARY)


def register_torch_ops() -> Any:
    """Register the operators, and return ``torch.ops.warpweft``."""
    return torch.ops.warpweft


def fused_allreduce_add_rmsnorm(
    input: torch.Tensor, residual_in: torch.Tensor, rms_gamma: torch.Tensor, rms_eps: float, comm: Comm
) -> tuple:
    """Return ``(norm_out, residual_out)`` of :meth:`Comm.fused_allreduce_add_rmsnorm`, in code that is compiled too."""
    return torch.ops.warpweft.fused_allreduce_add_rmsnorm(input, residual_in, rms_gamma, rms_eps, comm.name)
