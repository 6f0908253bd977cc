"""The collectives as operators of PyTorch, which ``torch.compile`` traces: ``torch.ops.warpweft``.

    weft.register_torch_ops()
    y = torch.ops.warpweft.all_reduce(x, comm.name)

Importing this module registers them. ``all_reduce``, ``all_gather`` and ``reduce_scatter`` have gradients.
"""

from __future__ import annotations

import weakref
from typing import Any, Optional

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
    "fused_allreduce_add_layernorm(Tensor input, Tensor residual_in, Tensor weight, Tensor bias, float eps, str comm)"
    " -> (Tensor, Tensor)",
    # Quantised results, their scales and the residual. With scale_factor there are no scales of tokens or groups.
    "fused_allreduce_add_rmsnorm_quant(Tensor input, Tensor residual_in, Tensor rms_gamma, float rms_eps, str comm, *,"
    " Tensor? scale_factor=None, int? block_quant_group_size=None) -> (Tensor, Tensor, Tensor)",
    "fused_allreduce_add_layernorm_quant(Tensor input, Tensor residual_in, Tensor weight, Tensor bias, float eps, str comm,"
    " *, Tensor? scale_factor=None, int? block_quant_group_size=None) -> (Tensor, Tensor, Tensor)",
    # Those of torch.ops.symm_mem, where the name of the group is that of the communicator.
    "fused_all_gather_matmul(Tensor A, Tensor[] Bs, int gather_dim, str group_name, *, bool return_A=True, SymInt[]? rows=None)"
    " -> (Tensor?, Tensor[])",
    "fused_all_gather_scaled_matmul(Tensor A, Tensor[] Bs, Tensor A_scale, Tensor[] B_scales, int gather_dim,"
    " str group_name, Tensor?[] biases, Tensor?[] result_scales, ScalarType?[] out_dtypes, bool[] use_fast_accum, *,"
    " SymInt[]? rows=None) -> (Tensor, Tensor[])",
    "fused_matmul_reduce_scatter(Tensor A, Tensor B, str reduce_op, int scatter_dim, str group_name, *,"
    " SymInt[]? rows=None) -> Tensor",
    "fused_scaled_matmul_reduce_scatter(Tensor A, Tensor B, Tensor A_scale, Tensor B_scale, str reduce_op,"
    " int orig_scatter_dim, int scatter_dim_after_maybe_reshape, str group_name, SymInt[]? output_shape,"
    " Tensor? bias=None, Tensor? result_scale=None, ScalarType? out_dtype=None, bool use_fast_accum=False, *,"
    " SymInt[]? rows=None) -> Tensor",
    "gemm_all_reduce(Tensor A, Tensor B, str group_name, *, Tensor? bias=None, Tensor? residual=None,"
    ' str activation="none", Tensor? A_scale=None, Tensor? B_scale=None, ScalarType? out_dtype=None) -> Tensor',
    "moe_dispatch(Tensor x, Tensor ids, int experts, int max_tokens, str group_name) -> (Tensor, Tensor)",
    "moe_combine(Tensor results, Tensor x, Tensor ids, Tensor gates, int experts, int max_tokens, str group_name) -> Tensor",
    "moe_experts(Tensor x, Tensor ids, Tensor gates, Tensor b, int max_tokens, str group_name, *,"
    " Tensor? scales=None, Tensor? scale_b=None) -> Tensor",
    "moe_dispatch_scaled(Tensor x, Tensor scales, Tensor ids, int experts, int max_tokens, str group_name)"
    " -> (Tensor, Tensor, Tensor)",
)


def _all_reduce(inp: torch.Tensor, comm: str) -> torch.Tensor:
    return _comm(comm).all_reduce(inp)


def _all_gather(inp: torch.Tensor, comm: str) -> torch.Tensor:
    return _comm(comm).all_gather(inp)


def _reduce_scatter(inp: torch.Tensor, comm: str) -> torch.Tensor:
    return _comm(comm).reduce_scatter(inp)


def _fused(input: torch.Tensor, residual_in: torch.Tensor, rms_gamma: torch.Tensor, rms_eps: float, comm: str):
    return _comm(comm).fused_allreduce_add_rmsnorm(input, residual_in, rms_gamma, rms_eps)


def _layer_norm(input, residual_in, weight, bias, eps, comm):
    return _comm(comm).fused_allreduce_add_layernorm(input, residual_in, weight, bias, eps)


def _quantised(input: torch.Tensor, scale_factor: Optional[torch.Tensor], block_quant_group_size: Optional[int]) -> tuple:
    """Return empty results and scales: one for each token, or for each group of its elements."""
    hidden = input.shape[-1]
    columns = 0 if scale_factor is not None else hidden // (block_quant_group_size or hidden)
    scales = input.new_empty((*input.shape[:-1], columns), dtype=torch.float32)
    return torch.empty_like(input, dtype=torch.float8_e4m3fn), scales


def _quant(name: str):
    """Return the operator with quantised results of a communicator's method."""

    def run(input, *more, scale_factor=None, block_quant_group_size=None):
        *more, comm = more
        quant, scales = _quantised(input, scale_factor, block_quant_group_size)
        kinds = {"scale_factor": scale_factor, "scale_out": scales if scale_factor is None else None}
        _, residual = getattr(_comm(comm), name)(
            input, *more, quant_out=quant, block_quant_group_size=block_quant_group_size, **kinds
        )
        return quant, scales, residual

    return run


def _fake_quant(input, residual_in, *_, scale_factor=None, block_quant_group_size=None):
    return (*_quantised(input, scale_factor, block_quant_group_size), torch.empty_like(residual_in))


def _fake_gather(inp: torch.Tensor, comm: str) -> torch.Tensor:
    return inp.new_empty((inp.shape[0] * _comm(comm).size, *inp.shape[1:]))


def _fake_scatter(inp: torch.Tensor, comm: str) -> torch.Tensor:
    return inp.new_empty((inp.shape[0] // _comm(comm).size, *inp.shape[1:]))


def _fake_fused(input: torch.Tensor, residual_in: torch.Tensor, *_: Any):
    return torch.empty_like(input), torch.empty_like(residual_in)


def _all_gather_matmul(A, Bs, gather_dim, group_name, *, return_A=True, rows=None):
    return _comm(group_name).fused_all_gather_matmul(A, Bs, gather_dim, return_A=return_A, rows=rows)


def _all_gather_scaled_matmul(
    A, Bs, A_scale, B_scales, gather_dim, group_name, biases, result_scales, out_dtypes, use_fast_accum, *, rows=None
):
    outs = [_dtype(out) for out in out_dtypes]
    comm = _comm(group_name)
    return comm.fused_all_gather_scaled_matmul(A, Bs, A_scale, B_scales, gather_dim, biases, result_scales, outs, rows=rows)


def _matmul_reduce_scatter(A, B, reduce_op, scatter_dim, group_name, *, rows=None):
    return _comm(group_name).fused_matmul_reduce_scatter(A, B, reduce_op, scatter_dim, rows=rows)


def _scaled_matmul_reduce_scatter(
    A,
    B,
    A_scale,
    B_scale,
    reduce_op,
    orig_scatter_dim,
    scatter_dim_after_maybe_reshape,
    group_name,
    output_shape,
    bias=None,
    result_scale=None,
    out_dtype=None,
    use_fast_accum=False,
    *,
    rows=None,
):
    dims = (orig_scatter_dim, scatter_dim_after_maybe_reshape)
    return _comm(group_name).fused_scaled_matmul_reduce_scatter(
        A, B, A_scale, B_scale, reduce_op, *dims, output_shape, bias, result_scale, _dtype(out_dtype), rows=rows
    )


def _gemm_all_reduce(A, B, group_name, *, out_dtype=None, **epilogue):
    return _comm(group_name).gemm_all_reduce(A, B, out_dtype=_dtype(out_dtype), **epilogue)


def _layer(comm: Comm, x: torch.Tensor, ids: torch.Tensor, experts: int, max_tokens: int, columns: int) -> Any:
    return comm.moe(max_tokens, x.shape[1], experts, ids.shape[1], columns=columns, dtype=x.dtype)


def _moe_dispatch(x, ids, experts, max_tokens, group_name):
    layer = _layer(_comm(group_name), x, ids, experts, max_tokens, x.shape[1])
    received, offsets = layer.dispatch(x, ids)
    return received.clone(), offsets.clone()


def _moe_dispatch_scaled(x, scales, ids, experts, max_tokens, group_name):
    layer = _layer(_comm(group_name), x, ids, experts, max_tokens, x.shape[1])
    received, offsets = layer.dispatch(x, ids, scales)
    return received.clone(), layer.received_scales.clone(), offsets.clone()


def _moe_combine(results, x, ids, gates, experts, max_tokens, group_name):
    layer = _layer(_comm(group_name), x, ids, experts, max_tokens, x.shape[1])
    layer.results.copy_(results)
    return layer.combine(ids, gates)


def _moe_experts(x, ids, gates, b, max_tokens, group_name, *, scales=None, scale_b=None):
    comm = _comm(group_name)
    layer = _layer(comm, x, ids, b.shape[0] * comm.size, max_tokens, b.shape[1])
    return layer(x, ids, gates, b, scales, scale_b)


def _fake_moe_dispatch(x, ids, experts, max_tokens, group_name):
    size = _comm(group_name).size
    rows = size * max_tokens * ids.shape[1] + experts // size * 127
    return x.new_empty(rows, x.shape[1]), ids.new_empty(experts // size + 1, dtype=torch.int32)


def _fake_moe_dispatch_scaled(x, scales, ids, experts, max_tokens, group_name):
    received, offsets = _fake_moe_dispatch(x, ids, experts, max_tokens, group_name)
    return received, scales.new_empty(received.shape[0], dtype=torch.float32), offsets


def _fake_moe_combine(results, x, ids, gates, experts, max_tokens, group_name):
    return results.new_empty(ids.shape[0], results.shape[1])


def _fake_moe_experts(x, ids, gates, b, max_tokens, group_name, *, scales=None, scale_b=None):
    return x.new_empty(ids.shape[0], b.shape[1], dtype=torch.bfloat16 if x.dtype.itemsize == 1 else x.dtype)


#: Element types by their numbers in c10's ScalarType, as which a list of them arrives.
_SCALAR_TYPES = {
    5: torch.float16,
    6: torch.float32,
    15: torch.bfloat16,
    23: torch.float8_e5m2,
    24: torch.float8_e4m3fn,
}


def _dtype(given: Any) -> Any:
    """Return an element type that may have arrived as a number."""
    return _SCALAR_TYPES.get(given, given) if isinstance(given, int) else given


def _gathered(A: torch.Tensor, dim: int, group_name: str, rows: Any) -> list:
    """Return the shape of all ranks' A, which have ``rows`` elements along a dimension if they do not have as many as A."""
    whole = A.shape[dim] * _comm(group_name).size if rows is None else sum(rows)
    return [whole if i == dim % A.dim() else n for i, n in enumerate(A.shape)]


def _fake_all_gather_matmul(A, Bs, gather_dim, group_name, *, return_A=True, rows=None):
    shape = _gathered(A, gather_dim, group_name, rows)
    whole = A.new_empty(shape) if return_A else None
    return whole, [A.new_empty([*shape[:-1], B.shape[1]]) for B in Bs]


def _fake_all_gather_scaled_matmul(
    A, Bs, A_scale, B_scales, gather_dim, group_name, biases, result_scales, out_dtypes, use_fast_accum, *, rows=None
):
    shape = _gathered(A, gather_dim, group_name, rows)
    outs = [A.new_empty([*shape[:-1], B.shape[1]], dtype=_dtype(out) or B.dtype) for B, out in zip(Bs, out_dtypes)]
    return A.new_empty(shape), outs


def _fake_matmul_reduce_scatter(A, B, reduce_op, scatter_dim, group_name, *, rows=None):
    return _scattered([*A.shape[:-1], B.shape[1]], scatter_dim, A, A.dtype, group_name, rows)


def _fake_scaled_matmul_reduce_scatter(
    A,
    B,
    A_scale,
    B_scale,
    reduce_op,
    orig_scatter_dim,
    scatter_dim_after_maybe_reshape,
    group_name,
    output_shape,
    bias=None,
    result_scale=None,
    out_dtype=None,
    use_fast_accum=False,
    *,
    rows=None,
):
    shape = [*A.shape[:-1], B.shape[1]] if output_shape is None else output_shape
    dim = scatter_dim_after_maybe_reshape if output_shape is None else orig_scatter_dim
    return _scattered(shape, dim, A, _dtype(out_dtype) or B.dtype, group_name, rows)


def _scattered(shape, dim: int, like: torch.Tensor, dtype: torch.dtype, group_name: str, rows: Any) -> torch.Tensor:
    """Return an empty part, along a dimension, of a tensor of that shape: an equal one, or this rank's number of rows."""
    shape, comm = list(shape), _comm(group_name)
    shape[dim] = shape[dim] // comm.size if rows is None else rows[comm.rank]
    return like.new_empty(shape, dtype=dtype)


def _fake_gemm_all_reduce(A, B, group_name, *, out_dtype=None, **epilogue):
    return A.new_empty([*A.shape[:-1], B.shape[1]], dtype=_dtype(out_dtype) or A.dtype)


def _save(ctx: Any, inputs: tuple, output: Any) -> None:
    ctx.comm = inputs[1]


def _backward(name: str):
    def back(ctx: Any, grad: torch.Tensor):
        return getattr(torch.ops.warpweft, name)(grad.contiguous(), ctx.comm), None

    return back


#: Each operator: what runs, what a trace assumes, and the operator of its gradient.
_OPERATORS: dict = {
    "all_reduce": (_all_reduce, lambda inp, comm: torch.empty_like(inp), "all_reduce"),
    "all_gather": (_all_gather, _fake_gather, "reduce_scatter"),
    "reduce_scatter": (_reduce_scatter, _fake_scatter, "all_gather"),
    "fused_allreduce_add_rmsnorm": (_fused, _fake_fused, None),
    "fused_allreduce_add_layernorm": (_layer_norm, _fake_fused, None),
    "fused_allreduce_add_rmsnorm_quant": (_quant("fused_allreduce_add_rmsnorm"), _fake_quant, None),
    "fused_allreduce_add_layernorm_quant": (_quant("fused_allreduce_add_layernorm"), _fake_quant, None),
    "fused_all_gather_matmul": (_all_gather_matmul, _fake_all_gather_matmul, None),
    "fused_all_gather_scaled_matmul": (_all_gather_scaled_matmul, _fake_all_gather_scaled_matmul, None),
    "fused_matmul_reduce_scatter": (_matmul_reduce_scatter, _fake_matmul_reduce_scatter, None),
    "fused_scaled_matmul_reduce_scatter": (_scaled_matmul_reduce_scatter, _fake_scaled_matmul_reduce_scatter, None),
    "gemm_all_reduce": (_gemm_all_reduce, _fake_gemm_all_reduce, None),
    "moe_dispatch": (_moe_dispatch, _fake_moe_dispatch, None),
    "moe_dispatch_scaled": (_moe_dispatch_scaled, _fake_moe_dispatch_scaled, None),
    "moe_combine": (_moe_combine, _fake_moe_combine, None),
    "moe_experts": (_moe_experts, _fake_moe_experts, None),
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


def fused_allreduce_add_layernorm(
    input: torch.Tensor, residual_in: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float, comm: Comm
) -> tuple:
    """Return ``(norm_out, residual_out)`` of :meth:`Comm.fused_allreduce_add_layernorm`, in code that is compiled too."""
    return torch.ops.warpweft.fused_allreduce_add_layernorm(input, residual_in, weight, bias, eps, comm.name)
