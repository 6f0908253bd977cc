"""Allreduce, residual add and norm in one call on PyTorch tensors: the implementation of a communicator's methods."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional, Union

import torch

from . import _dtypes, _native
from ._errors import usage

#: Element types of hidden states, of quantised results and of scales, with their codes.
HALF = {dtype: _dtypes.code_of(dtype) for dtype in (torch.float16, torch.bfloat16)}
_E4M3 = getattr(torch, "float8_e4m3fn", None)
_QUANTISED = {_E4M3: _dtypes.code_of("float8_e4m3fn")}
_RESULTS: dict = {**HALF, **_QUANTISED}
_F32 = {torch.float32: _dtypes.code_of("float32")}

_is_capturing = torch._C._cuda_isCurrentStreamCapturing


class Results(NamedTuple):
    """Where a call writes its results, and how they are quantised. Names are those of the methods' arguments."""

    residual_out: Optional[torch.Tensor] = None
    norm_out: Optional[torch.Tensor] = None
    quant_out: Optional[torch.Tensor] = None
    scale_out: Optional[torch.Tensor] = None
    scale_factor: Union[torch.Tensor, float, None] = None
    block_quant_group_size: Optional[int] = None


class Form(NamedTuple):
    """What the part in Rust computes: element types, the elements that share a scale, and which norm."""

    dtype: torch.dtype
    out: torch.dtype
    each: int
    both: bool
    layer: bool
    #: The multiple of rows that columns of scales are padded to, or 0 if the scales of a row are contiguous.
    columns: int = 0

    def codes(self) -> tuple:
        """Return it as the part in Rust takes it."""
        return (HALF[self.dtype], _RESULTS[self.out], self.each, self.both, self.layer, self.columns)


#: The multiples of rows that columns of scales can be padded to. TMA needs columns of a multiple of 16 bytes.
_PADDED = (4, 1)


def group_of(hidden: int, leading: tuple, scales: torch.Tensor) -> int:
    """Return the number of elements of a row that share one of these scales."""
    columns = 1 if tuple(scales.shape) == leading else scales.shape[-1] if tuple(scales.shape[:-1]) == leading else 0
    if columns == 0 or hidden % columns:
        raise usage(
            f"scale_out has shape {tuple(scales.shape)} for input {(*leading, hidden)}",
            f"pass {(*leading, 1)} for a scale for each token, or {(*leading, f'{hidden} / group')} for scales of groups",
        )
    return hidden // columns


def columns_of(scales: torch.Tensor) -> tuple:
    """Return what ``columns`` of a form can be for the strides of these scales. Strides of few rows fit several forms."""
    found = (0,) if scales.is_contiguous() else ()
    if scales.dim() != 2 or scales.shape[1] < 2:
        return found
    (rows, _), (row, column) = scales.shape, scales.stride()
    return found + tuple(n for n in _PADDED if (rows == 1 or row == 1) and column == -(-rows // n) * n)


class Norms:
    """The fused norms of a communicator: one object of the part in Rust for each form and width."""

    def __init__(self, comm: Any):
        self.comm = comm
        self._made: dict = {}
        self._gammas: dict = {}
        self._factors: dict = {}

    def made(self) -> list:
        """Return what the part in Rust has made."""
        return list(self._made.values())

    def run(
        self,
        input: torch.Tensor,
        residual_in: torch.Tensor,
        weights: dict,
        eps: float,
        to: Results,
        weight_bias: float = 0.0,
    ) -> tuple:
        """Return the results and the residual. ``weights`` are those of RMSNorm, or weights and bias of LayerNorm."""
        comm = self.comm
        _ = comm._native.takes  # raises after the end
        comm._refuse(input, "input", HALF)
        if input.dim() < 2:
            raise usage(f"input has shape {tuple(input.shape)}", "its last dimension must be the hidden one: (tokens, hidden)")
        hidden = input.shape[-1]
        if hidden == 0:
            raise usage(f"input has shape {tuple(input.shape)}", "rows must have at least one element: (tokens, hidden)")
        for what, tensor in weights.items():
            self._check(tensor, what, (hidden,), HALF, input.dtype)
        self._check(residual_in, "residual_in", input.shape, HALF, input.dtype)
        each, layouts, scales = self._scales(input, to)
        quantised = to.quant_out is not None
        out: Any = to.quant_out if quantised else torch.empty_like(input) if to.norm_out is None else to.norm_out
        residual = torch.empty_like(residual_in) if to.residual_out is None else to.residual_out
        self._check(residual, "residual_out", input.shape, HALF, input.dtype)
        if to.norm_out is not None:
            self._check(to.norm_out, "norm_out", input.shape, HALF, input.dtype)
        weight, *bias = weights.values()
        if weight_bias:
            weight = self._biased(weight, weight_bias)
        norm = to.norm_out if quantised else None
        forms = [Form(input.dtype, out.dtype, each, norm is not None, bool(bias), columns) for columns in layouts]
        # If several forms fit, one that exists is used.
        form = next((form for form in forms if (hidden, form) in self._made), forms[0])
        with comm._alone():
            stream = comm._stream()
            native = self._of(hidden, form)
            if residual.data_ptr() != residual_in.data_ptr():
                residual.copy_(residual_in)
            operands = (input.data_ptr(), residual.data_ptr(), weight.data_ptr(), out.data_ptr())
            others = tuple(None if x is None else x.data_ptr() for x in (bias[0] if bias else None, scales, norm))
            native.run(stream, input.numel() // hidden, operands, others, eps)
        return out, residual

    def _check(self, tensor: Any, what: str, shape: Any, codes: dict, dtype: Optional[torch.dtype]) -> None:
        self.comm._like(tensor, torch.Size(shape), dtype, what)
        self.comm._refuse(tensor, what, codes)

    def _scales(self, input: torch.Tensor, to: Results) -> tuple:
        """Return how many elements share a scale, 0 if all do, what ``columns`` can be, and the scales.

        Results that are not quantised have none.
        """
        scaled = ("scale_out", "scale_factor", "block_quant_group_size")
        if to.quant_out is None:
            other = next((name for name in scaled if getattr(to, name) is not None), None)
            if other is not None:
                help = "pass quant_out=torch.empty_like(input, dtype=torch.float8_e4m3fn) for quantised results"
                raise usage(f"{other} is given without quant_out", help)
            return 0, (0,), None
        self._check(to.quant_out, "quant_out", input.shape, _QUANTISED, _E4M3)
        if (to.scale_out is None) == (to.scale_factor is None):
            raise usage(
                f"quant_out is given with {'neither' if to.scale_out is None else 'both'} of scale_factor and scale_out",
                "pass scale_factor, one scale for all results, or scale_out for the scales of tokens or of groups",
            )
        if to.scale_out is None:
            each, layouts, scales = 0, (0,), self._factor(to.scale_factor)
        else:
            layouts, scales = self._layouts(to.scale_out), to.scale_out
            each = group_of(input.shape[-1], tuple(input.shape[:-1]), scales)
        if to.block_quant_group_size not in (None, each):
            raise usage(
                f"block_quant_group_size is {to.block_quant_group_size}, but {each or 'all'} elements share a scale",
                "pass scale_out with hidden / block_quant_group_size columns",
            )
        return each, layouts, scales

    def _layouts(self, scales: Any) -> tuple:
        """Return what ``columns`` of a form can be for these scales."""
        layouts = columns_of(scales) if isinstance(scales, torch.Tensor) else (0,)
        if not layouts:
            raise usage(
                f"scale_out has strides {tuple(scales.stride())} for shape {tuple(scales.shape)}",
                "pass contiguous rows, or columns whose stride is the number of rows or the next multiple of 4",
            )
        if 0 in layouts:
            memory = scales
        else:
            (rows, groups), column = scales.shape, scales.stride(1)
            memory = scales.as_strided(((groups - 1) * column + rows,), (1,))
        self.comm._refuse(memory, "scale_out", _F32)
        return layouts

    def _factor(self, given: Any) -> torch.Tensor:
        """Return the scale of all results as a tensor."""
        if isinstance(given, torch.Tensor):
            self.comm._refuse(given, "scale_factor", _F32)
            if given.numel() != 1:
                raise usage(f"scale_factor has shape {tuple(given.shape)}", "it must have one element, the scale of all")
            return given
        if given not in self._factors:
            self._before_capture(f"scale_factor is the number {given} for the first time")
            self._factors[given] = torch.tensor([given], dtype=torch.float32, device=self.comm.device)
        return self._factors[given]

    def _before_capture(self, what: str) -> None:
        if _is_capturing():
            raise usage(f"{what} in a capture", "make such a call before the capture, as a warm-up does: it allocates")

    def _of(self, hidden: int, form: Form) -> Any:
        """Return the state of calls of a form, which the first of them makes on all ranks."""
        key = (hidden, form)
        if key not in self._made:
            self._before_capture(f"the first fused call with {hidden} columns of {form.dtype} and results of {form.out} is")
            tokens = max(1, min(self.comm.max_bytes // (hidden * form.dtype.itemsize), 16384))
            self._made[key] = _native.AddRmsNorm(self.comm._native, hidden, form.codes(), tokens)
        return self._made[key]

    def _biased(self, gamma: torch.Tensor, bias: float) -> torch.Tensor:
        key = (gamma.data_ptr(), gamma._version, bias)
        if key not in self._gammas:
            if len(self._gammas) > 4096:
                self._gammas.clear()
            # The weights are kept too, so that no others come to lie at their address.
            self._gammas[key] = (gamma + bias, gamma)
            if not _is_capturing():
                # The next call reads weights while the kernel before it can still be running.
                torch.cuda.current_stream(self.comm.device).synchronize()
        return self._gammas[key][0]
