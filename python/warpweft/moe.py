"""Mixtures of experts on PyTorch tensors, between the ranks of a communicator.

    layer = comm.moe(tokens=4096, hidden=4096, experts=64, choices=8)
    y = layer(x, ids, gates, w)          # tokens to their experts, times their matrices, times gates, added up in f32

The same in two steps:

    layer.experts(x, ids, w)
    y = layer.combine(ids, gates)

Each rank has an equal part of the experts: the first rank has the first ones. Tokens and matrices in fp8 have scales.
"""

from __future__ import annotations

from typing import Any, Optional

import torch

from . import _arrays, _dtypes, _native
from ._errors import usage

#: Element types of tokens and matrices. Those of 8 bits have scales, and results are bfloat16.
_TYPES = {
    getattr(torch, name): _dtypes.code_of(name)
    for name in ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
    if hasattr(torch, name)
}


class MoE:
    """Dispatch, products and combine for one shape; :meth:`Comm.moe` makes one.

    Calls follow each other on one stream. All ranks make the same calls in the same order, and a rank may have fewer
    tokens than another one.
    """

    def __init__(
        self,
        comm: Any,
        tokens: int,
        hidden: int,
        experts: int,
        choices: int,
        columns: Optional[int] = None,
        dtype: torch.dtype = torch.bfloat16,
        rows: Optional[int] = None,
    ):
        """Compile and allocate on all ranks; see :meth:`Comm.moe`. *Collective.*"""
        if dtype not in _TYPES:
            raise usage(f"elements of {dtype}", "bfloat16, float16, float8_e4m3fn and float8_e5m2 are supported")
        self.comm, self.tokens, self.hidden, self.choices, self.dtype = comm, tokens, hidden, choices, dtype
        self.columns = hidden if columns is None else columns
        self.local, self.scaled = experts // comm.size, dtype.itemsize == 1
        self.out = torch.bfloat16 if self.scaled else dtype
        shape = (tokens, hidden, self.columns)
        self._native: Any = _native.Experts(comm._native, shape, experts, choices, _TYPES[dtype], rows)
        self._live = torch.zeros(4, dtype=torch.int32, device=comm.device)
        size = self._native.rows
        self.received = self._view(self._native.received, (size, hidden), dtype)
        self.received_scales = self._view(self._native.received_scales, (size,), torch.float32) if self.scaled else None
        self.results = self._view(self._native.results, (size, self.columns), self.out)
        self.offsets = self._view(self._native.offsets, (self.local + 1,), torch.int32)

    def _view(self, address: int, shape: tuple, dtype: torch.dtype) -> torch.Tensor:
        count = 1
        for n in shape:
            count *= n
        return _arrays.torch_tensor(address, count * dtype.itemsize, dtype, shape, self.comm._index, self._native)

    def _all(self, x: torch.Tensor, shape: tuple, dtype: torch.dtype, what: str) -> torch.Tensor:
        """Return a tensor with a row for each token of the capacity; the rows after the given ones are 0."""
        if x.dim() != 2 or x.shape[1] != shape[1] or x.shape[0] > shape[0]:
            raise usage(f"{what} has shape {tuple(x.shape)}", f"it can have up to {shape[0]} rows of {shape[1]} elements")
        if x.device != self.comm.device:
            raise usage(f"{what} is on {x.device}, but the communicator is on {self.comm.device}", "move it there")
        x = x.to(dtype)
        if x.shape[0] == shape[0] and x.is_contiguous() and x.data_ptr() % 16 == 0:
            return x
        whole = x.new_zeros(shape)
        whole[: x.shape[0]] = x
        return whole

    def _routes(self, ids: torch.Tensor) -> tuple:
        if ids.dtype.is_floating_point:
            raise usage(f"ids have elements of {ids.dtype}", "they must be numbers of experts: int32")
        self._live.fill_(ids.shape[0])  # an assignment of an element cannot be captured
        ids = self._all(ids, (self.tokens, self.choices), torch.int32, "ids")
        return ids, (ids.data_ptr(), self._live.data_ptr())

    def _scales(self, scales: Optional[torch.Tensor], shape: tuple, what: str) -> Optional[torch.Tensor]:
        """Return scales as they are sent: one for each token, or for each column of each expert's results."""
        if (scales is not None) != self.scaled:
            given = "no" if scales is None else "given"
            raise usage(f"{what}: {given}, but the layer takes {self.dtype}", "fp8 has scales, and no other type has")
        if scales is None:
            return None
        if scales.numel() != shape[0] * shape[1] or scales.device != self.comm.device:
            raise usage(f"{what} has shape {tuple(scales.shape)} on {scales.device}", f"pass {shape} on {self.comm.device}")
        return scales.reshape(shape).float().contiguous()

    def _tokens(self, x: torch.Tensor, ids: torch.Tensor, scales: Optional[torch.Tensor]) -> tuple:
        """Return what a call keeps, and the addresses of tokens, their scales, and routes."""
        if x.shape[:1] != ids.shape[:1]:
            raise usage(f"there are {x.shape[0]} tokens, but ids for {ids.shape[0]}", "pass a row of ids for each token")
        if x.dtype != self.dtype and self.scaled:
            raise usage(f"x has elements of {x.dtype}", f"the layer takes {self.dtype}")
        each = self._scales(scales, (x.shape[0], 1), "scales")
        if each is not None:
            each = self._all(each, (self.tokens, 1), torch.float32, "scales")
        x = self._all(x, (self.tokens, self.hidden), self.dtype, "x")
        ids, routes = self._routes(ids)
        return (x, each, ids), (x.data_ptr(), 0 if each is None else each.data_ptr()), routes

    def _matrices(self, b: torch.Tensor, scale_b: Optional[torch.Tensor]) -> tuple:
        shape = (self.local, self.columns, self.hidden)
        if tuple(b.shape) != shape or b.dtype != self.dtype or not b.is_contiguous() or b.device != self.comm.device:
            raise usage(f"b has shape {tuple(b.shape)} of {b.dtype}", f"it must be contiguous, {shape} of {self.dtype}")
        each = self._scales(scale_b, shape[:2], "scale_b")
        return each, (b.data_ptr(), 0 if each is None else each.data_ptr())

    def dispatch(self, x: torch.Tensor, ids: torch.Tensor, scales: Optional[torch.Tensor] = None) -> tuple:
        """Send tokens (token, hidden) to their experts ``ids`` (token, choice): return ``(received, offsets)``.

        The rows of this rank's expert l are ``received[offsets[l]:offsets[l + 1]]``; the last rows of an expert may be
        unused. Both are valid until the next dispatch. Write the experts' results to the same rows of ``results``.
        Tokens in fp8 have ``scales`` (token), which arrive in ``received_scales``.
        """
        with self.comm._alone():
            stream = self.comm._stream()
            kept, tokens, routes = self._tokens(x, ids, scales)
            self._native.dispatch(stream, tokens, routes, None)
            del kept
        return self.received, self.offsets

    def experts(
        self,
        x: torch.Tensor,
        ids: torch.Tensor,
        b: torch.Tensor,
        scales: Optional[torch.Tensor] = None,
        scale_b: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        """Send tokens, and multiply each by its expert's matrix: return ``results``.

        ``b`` has the matrices of this rank's experts, (expert, column of the result, column of a token). In fp8, tokens
        have ``scales`` (token), and matrices have ``scale_b`` (expert, column of the result).
        """
        with self.comm._alone():
            stream = self.comm._stream()
            each, matrices = self._matrices(b, scale_b)
            kept, tokens, routes = self._tokens(x, ids, scales)
            self._native.dispatch(stream, tokens, routes, matrices)
            del kept, each
        return self.results

    def __call__(
        self,
        x: torch.Tensor,
        ids: torch.Tensor,
        gates: torch.Tensor,
        b: torch.Tensor,
        scales: Optional[torch.Tensor] = None,
        scale_b: Optional[torch.Tensor] = None,
    ) -> torch.Tensor:
        """Return for each token the results of its experts times ``gates``: :meth:`experts` and :meth:`combine` in one.

        Results go back to their tokens while others are multiplied.
        """
        self._gates(gates, ids)
        with self.comm._alone():
            stream = self.comm._stream()
            each, matrices = self._matrices(b, scale_b)
            kept, tokens, routes = self._tokens(x, ids, scales)
            gates = self._all(gates, (self.tokens, self.choices), torch.float32, "gates")
            out = self._out()
            self._native.layer(stream, tokens, routes, matrices, (gates.data_ptr(), out.data_ptr()))
            del kept, each
        return out[: ids.shape[0]]

    def _out(self) -> torch.Tensor:
        return torch.empty(self.tokens, self.columns, dtype=self.out, device=self.comm.device)

    @staticmethod
    def _gates(gates: torch.Tensor, ids: torch.Tensor) -> None:
        if gates.shape != ids.shape:
            raise usage(f"gates have shape {tuple(gates.shape)}, but ids {tuple(ids.shape)}", "pass a gate for each expert")

    def combine(self, ids: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
        """Return for each token the results of its experts times ``gates`` (token, choice), added up in f32."""
        self._gates(gates, ids)
        with self.comm._alone():
            stream = self.comm._stream()
            gates = self._all(gates, (self.tokens, self.choices), torch.float32, "gates")
            kept, routes = self._routes(ids)
            out = self._out()
            self._native.combine(stream, routes, gates.data_ptr(), out.data_ptr())
            del kept
        return out[: ids.shape[0]]

    def check(self) -> None:
        """Wait for the stream, and raise what was wrong with the routes of the newest dispatch, on all ranks."""
        self._native.check(self.comm._stream())
