"""Mixtures of experts on PyTorch tensors, between the ranks of a communicator.

    layer = comm.moe(tokens=4096, hidden=4096, experts=64, choices=8)
    layer.experts(x, ids, w)             # tokens to their experts, and each times its expert's matrix
    y = layer.combine(ids, gates)        # results times gates, added up in f32

Each rank has an equal part of the experts: the first rank has the first ones.
"""

from __future__ import annotations

from typing import Any, Optional

import torch

from . import _arrays, _dtypes, _native
from ._errors import usage

#: Element types of tokens, matrices and results.
_TYPES = {getattr(torch, name): _dtypes.code_of(name) for name in ("bfloat16", "float16")}


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
            raise usage(f"elements of {dtype}", "bfloat16 and float16 are supported")
        self.comm, self.tokens, self.hidden, self.choices, self.dtype = comm, tokens, hidden, choices, dtype
        self.columns = hidden if columns is None else columns
        self.local = experts // comm.size
        shape = (tokens, hidden, self.columns)
        self._native: Any = _native.Experts(comm._native, shape, experts, choices, _TYPES[dtype], rows)
        self._live = torch.zeros(4, dtype=torch.int32, device=comm.device)
        size = self._native.rows
        self.received = self._view(self._native.received, (size, hidden), dtype)
        self.results = self._view(self._native.results, (size, self.columns), dtype)
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
        self._live[0] = ids.shape[0]
        ids = self._all(ids, (self.tokens, self.choices), torch.int32, "ids")
        return ids, (ids.data_ptr(), self._live.data_ptr())

    def _send(self, x: torch.Tensor, ids: torch.Tensor, b: Optional[torch.Tensor]) -> None:
        if x.shape[:1] != ids.shape[:1]:
            raise usage(f"there are {x.shape[0]} tokens, but ids for {ids.shape[0]}", "pass a row of ids for each token")
        with self.comm._alone():
            stream = self.comm._stream()
            x = self._all(x, (self.tokens, self.hidden), self.dtype, "x")
            ids, routes = self._routes(ids)
            self._native.dispatch(stream, x.data_ptr(), routes, None if b is None else b.data_ptr())

    def dispatch(self, x: torch.Tensor, ids: torch.Tensor) -> tuple:
        """Send tokens (token, hidden) to their experts ``ids`` (token, choice): return ``(received, offsets)``.

        The rows of this rank's expert l are ``received[offsets[l]:offsets[l + 1]]``; the last rows of an expert may be
        unused. Both are valid until the next dispatch. Write the experts' results to the same rows of ``results``.
        """
        self._send(x, ids, None)
        return self.received, self.offsets

    def experts(self, x: torch.Tensor, ids: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Send tokens, and multiply each by its expert's matrix, in one launch: return ``results``.

        ``b`` has the matrices of this rank's experts, (expert, column of the result, column of a token).
        """
        shape = (self.local, self.columns, self.hidden)
        if tuple(b.shape) != shape or b.dtype != self.dtype or not b.is_contiguous() or b.device != self.comm.device:
            raise usage(f"b has shape {tuple(b.shape)} of {b.dtype}", f"it must be contiguous, {shape} of {self.dtype}")
        self._send(x, ids, b)
        return self.results

    def combine(self, ids: torch.Tensor, gates: torch.Tensor) -> torch.Tensor:
        """Return for each token the results of its experts times ``gates`` (token, choice), added up in f32."""
        if gates.shape != ids.shape:
            raise usage(f"gates have shape {tuple(gates.shape)}, but ids {tuple(ids.shape)}", "pass a gate for each expert")
        with self.comm._alone():
            stream = self.comm._stream()
            gates = self._all(gates, (self.tokens, self.choices), torch.float32, "gates")
            kept, routes = self._routes(ids)
            out = torch.empty(self.tokens, self.columns, dtype=self.dtype, device=self.comm.device)
            self._native.combine(stream, routes, gates.data_ptr(), out.data_ptr())
            del kept
        return out[: ids.shape[0]]

    def check(self) -> None:
        """Wait for the stream, and raise what was wrong with the routes of the newest dispatch, on all ranks."""
        self._native.check(self.comm._stream())
