"""Matrix products fused with communication, on PyTorch tensors: the implementation of a communicator's methods."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple, Optional, Sequence

import torch

from . import _arrays, _dtypes, _native
from ._errors import unsupported, usage

#: Element types of operands, and of results.
_OPERANDS = {
    getattr(torch, name): _dtypes.code_of(name)
    for name in ("bfloat16", "float16", "float8_e4m3fn", "float8_e5m2")
    if hasattr(torch, name)
}
_RESULTS = {**_OPERANDS, torch.float32: _dtypes.code_of("float32")}


class Epilogue(NamedTuple):
    """What is done to elements, by names of the part in Rust."""

    scales: str = "none"
    activation: str = "none"
    gated: bool = False
    bias: bool = False
    residual: bool = False
    divide: bool = False


class Rows(NamedTuple):
    """A tensor as a matrix of rows: those along one dimension come first."""

    matrix: torch.Tensor
    leading: tuple
    dim: int


def rows_of(x: torch.Tensor, dim: int, what: str) -> Rows:
    """Return a tensor as a contiguous matrix whose rows are ordered by dimension ``dim``."""
    if x.dim() < 2:
        raise usage(f"{what} has shape {tuple(x.shape)}", "it must have at least two dimensions, of which the last one is K")
    if x.shape[-1] == 0:
        raise usage(f"{what} has shape {tuple(x.shape)}", "its last dimension, K, must be at least 1")
    if not -x.dim() <= dim < x.dim():
        raise usage(f"dimension {dim} of {what} with shape {tuple(x.shape)}", f"it must be below {x.dim()}")
    dim %= x.dim()
    if dim == x.dim() - 1:
        raise unsupported(f"dimension {dim} of {what} is the last one", "gather or scatter along another dimension")
    moved = x.movedim(dim, 0)
    return Rows(moved.reshape(-1, x.shape[-1]).contiguous(), tuple(moved.shape[:-1]), dim)


def in_order(leading: tuple, dim: int) -> tuple:
    """Return extents of which the first one belongs to dimension ``dim`` in the order of dimensions."""
    return (*leading[1 : dim + 1], leading[0], *leading[dim + 1 :])


def shaped(matrix: torch.Tensor, rows: Rows, count: int) -> torch.Tensor:
    """Return a matrix as a tensor whose dimensions are in their first order, with ``count`` elements along that of the rows."""
    leading = (count, *rows.leading[1:])
    return matrix.view(*leading, matrix.shape[-1]).movedim(0, rows.dim)


def counts_of(rows: Optional[Sequence[int]], size: int) -> Optional[tuple]:
    """Return how many elements each rank has along the dimension that is gathered or scattered, or None for equal parts."""
    if rows is None:
        return None
    counts = tuple(int(count) for count in rows)
    if len(counts) != size or min(counts) < 0:
        raise usage(f"rows are {list(counts)}", f"they must be {size} numbers, one for each rank, and none is negative")
    return counts


def room_for(rows: tuple) -> int:
    """Return the number of rows for which each rank gets memory."""
    return max(64, 1 << (max(rows) - 1).bit_length())


def factor_of(b: torch.Tensor, k: int) -> tuple:
    """Return B (k, n) as the part in Rust takes it, and whether that is (n, k) with contiguous rows."""
    if b.dim() != 2 or b.shape[0] != k:
        raise usage(f"B has shape {tuple(b.shape)}", f"it must be a matrix with {k} rows, the number of columns of A")
    if b.t().is_contiguous():
        return b, True
    if b.is_contiguous() and b.element_size() == 2:
        return b, False
    return b.t().contiguous().t(), True


def aligned(x: torch.Tensor, dtype: Optional[torch.dtype] = None) -> torch.Tensor:
    """Return a contiguous tensor whose address is a multiple of 16."""
    x = x.to(dtype) if dtype is not None else x
    x = x.contiguous()
    return x if x.data_ptr() % 16 == 0 else x.clone()


class Matmuls:
    """The products of a communicator: one object of the part in Rust for each problem."""

    def __init__(self, comm: Any):
        self.comm = comm
        self._made: dict = {}
        self._captured: set = set()
        self._sizes: Optional[torch.Tensor] = None

    def products(self) -> list:
        """Return what the part in Rust has made."""
        return list(self._made.values())

    def size(self) -> torch.Tensor:
        """Return the number of ranks as the divisor of means."""
        if self._sizes is None:
            self._sizes = torch.full((4,), float(self.comm.size), device=self.comm.device)
        return self._sizes[:1]

    def _code(self, dtype: torch.dtype, known: dict, what: str) -> int:
        if dtype not in known:
            names = ", ".join(str(d).split(".")[-1] for d in known)
            raise usage(f"{what} has elements of {dtype}", f"supported: {names}")
        return known[dtype]

    def made(self, form: str, shape: tuple, types: tuple, b_rows: bool, epilogue: Epilogue) -> Any:
        """Return the product, which the first call of its kind makes on all ranks."""
        return self._of((form, shape, types, b_rows, epilogue), None)

    def _of(self, key: tuple, max_rows: Optional[int]) -> Any:
        form, shape, types, b_rows, epilogue = key[:5]
        if key not in self._made:
            self._before_capture(f"the first call of {form} with {shape[0]} x {shape[1]} x {shape[2]}", "it allocates on")
            codes = (self._code(types[0], _OPERANDS, "A"), self._code(types[1], _RESULTS, "the result"))
            self._made[key] = _native.Matmul(self.comm._native, form, shape, codes, b_rows, epilogue, max_rows)
        return self._made[key]

    def _before_capture(self, what: str, does: str) -> None:
        if torch.cuda.is_current_stream_capturing():
            help = f"make such a call before the capture, as a warm-up does: {does} all ranks"
            raise usage(f"{what} is in a capture", help)

    def uneven(self, stream: int, rows: tuple, form: str, nk: tuple, types: tuple, b_rows: bool, epilogue: Epilogue) -> Any:
        """Return the product of ranks that have these numbers of rows.

        One product serves all numbers up to a power of two. One that is in a graph keeps its rows.
        """
        most = room_for(rows)
        for number in itertools.count():
            key = (form, (most * len(rows), *nk), types, b_rows, epilogue, number)
            product = self._of(key, most)
            if tuple(product.rows) != rows:
                if key in self._captured:
                    continue
                self._before_capture(f"the first call of {form} with rows {list(rows)}", "it is compared by")
                product.set_rows(stream, rows)
            if torch.cuda.is_current_stream_capturing():
                self._captured.add(key)
            return product

    def run(
        self,
        form: str,
        a: torch.Tensor,
        b: torch.Tensor,
        out: torch.dtype,
        epilogue: Epilogue,
        more: dict,
        counts: Optional[tuple] = None,
    ) -> tuple:
        """Multiply matrices A and B (k, n); return the result and the object. ``more`` is what the epilogue reads.

        ``counts`` are the rows of each rank, if they do not have equal parts.
        """
        comm, gathers = self.comm, form == "all_gather_matmul"
        for x, what in ((a, "A"), (b, "B")):
            if x.device != comm.device:
                raise usage(f"{what} is on {x.device}, but the communicator is on {comm.device}", "move it there")
            if x.dtype != a.dtype:
                raise usage(f"A has elements of {a.dtype}, but B of {b.dtype}", "both must have the same type")
        b, b_rows = factor_of(b, a.shape[1])
        b = b if b.data_ptr() % 16 == 0 else b.clone(memory_format=torch.preserve_format)
        rows = a.shape[0] * (comm.size if gathers else 1)
        n = b.shape[1]
        columns = n // 2 if epilogue.gated else n
        if counts is not None and sum(counts) == 0:
            return torch.empty(0, columns, dtype=out, device=comm.device), None
        with comm._alone():
            stream = comm._stream()
            if counts is None:
                product = self.made(form, (rows, n, a.shape[1]), (a.dtype, out), b_rows, epilogue)
            else:
                rows = sum(counts)
                product = self.uneven(stream, counts, form, (n, a.shape[1]), (a.dtype, out), b_rows, epilogue)
            if gathers:
                self._place(a, product.own_rows)
                if product.own_scales is not None:
                    self._place(more.pop("scale_a").reshape(-1), product.own_scales)
            else:
                a = aligned(a)
            own = rows // comm.size if counts is None else counts[comm.rank]
            d_rows = own if form == "matmul_reduce_scatter" else rows
            d = torch.empty(d_rows, columns, dtype=out, device=comm.device)
            wide = out if out.itemsize > 1 else torch.bfloat16
            kinds = {"bias": wide, "residual": wide}
            kept = {name: aligned(x, kinds.get(name)) for name, x in more.items() if x is not None}
            others = tuple(
                kept[name].data_ptr() if name in kept else None for name in ("scale_a", "scale_b", "bias", "residual", "scale")
            )
            if gathers and product.own_scales is not None:
                others = (product.own_scales, *others[1:])
            product.run(stream, (a.data_ptr(), b.data_ptr(), d.data_ptr()), others)
            if product.sum is not None:
                d.copy_(self._view(product.sum, d.shape, out))
        return d, product

    def _view(self, address: int, shape: Any, dtype: torch.dtype) -> torch.Tensor:
        extents, count = tuple(shape), 1
        for n in extents:
            count *= n
        return _arrays.torch_tensor(address, count * dtype.itemsize, dtype, extents, self.comm._index, self)

    def _place(self, x: torch.Tensor, address: int) -> None:
        if x.numel() > 0:
            self._view(address, x.shape, x.dtype).copy_(x)

    def gathered(self, product: Any, a: torch.Tensor, counts: Optional[tuple]) -> torch.Tensor:
        """Return the rows of all ranks: as they lie in the product's memory, or a copy if there are gaps between them."""
        size = self.comm.size
        if counts is None:
            return self._view(product.all_rows, (a.shape[0] * size, a.shape[1]), a.dtype)
        every = self._view(product.all_rows, (size, room_for(counts), a.shape[1]), a.dtype)
        return torch.cat([part[:count] for part, count in zip(every, counts)])

    def all_gather(
        self,
        a: torch.Tensor,
        bs: Sequence[torch.Tensor],
        dim: int,
        outs: Sequence[torch.dtype],
        scales: Optional[tuple],
        biases: Sequence[Optional[torch.Tensor]],
        return_a: bool,
        counts: Optional[Sequence[int]] = None,
    ) -> tuple:
        """Gather A along a dimension, and multiply by each B. The first product is fused; the others follow it.

        ``counts`` are the elements of each rank along the dimension, if they differ.
        """
        for given, what in ((outs, "out_dtypes"), (biases, "biases"), (scales[1] if scales else bs, "B_scales")):
            if len(given) != len(bs):
                raise usage(f"{what} has {len(given)} elements for {len(bs)} matrices B", "pass one for each B")
        rows = rows_of(a, dim, "A")
        each = self._rows_of_ranks(counts, rows)
        if each is not None and each[self.comm.rank] != rows.matrix.shape[0]:
            message = f"dimension {dim} of A has {rows.leading[0]} elements, but the rows are {list(counts or ())}"
            raise usage(message, f"rank {self.comm.rank} passes as many as its number among the rows")
        whole_size = rows.leading[0] * self.comm.size if counts is None else sum(counts)
        results: list = []
        product: Any = None
        for i, b in enumerate(bs):
            if product is not None and scales is None and biases[i] is None:
                whole = self.gathered(product, rows.matrix, each)
                results.append(torch.mm(whole, b))
                continue
            kind, more = "none", {"bias": biases[i]}
            if scales is not None:
                kind, scale_a, scale_b = self.scales(rows, scales[0], scales[1][i], b.shape[1], True, each)
                more.update(scale_a=scale_a, scale_b=scale_b)
            epilogue = Epilogue(scales=kind, bias=biases[i] is not None)
            result, made = self.run("all_gather_matmul", rows.matrix, b, outs[i], epilogue, more, each)
            product = product or made
            results.append(result)
        gathered = None
        if return_a:
            if not bs:
                raise usage("there is no B", "pass one or more")
            whole = rows.matrix if product is None else self.gathered(product, rows.matrix, each)
            gathered = shaped(whole.clone(), rows, whole_size)
        return gathered, [shaped(result, rows, whole_size) for result in results]

    def _rows_of_ranks(self, counts: Optional[Sequence[int]], rows: Rows) -> Optional[tuple]:
        """Return the rows of each rank's matrix, where ranks have ``counts`` elements along the dimension."""
        checked, others = counts_of(counts, self.comm.size), 1
        for extent in rows.leading[1:]:
            others *= extent
        return None if checked is None else tuple(count * others for count in checked)

    def scales(
        self,
        rows: Rows,
        scale_a: torch.Tensor,
        scale_b: torch.Tensor,
        n: int,
        gathers: bool,
        counts: Optional[tuple] = None,
    ) -> tuple:
        """Return the kind of scales, and those of A and B as f32.

        Scales of blocks are one for each 1 x 128 elements of A, as (..., K / 128), and one for each 128 x 128 of B, as
        (K / 128, N / 128).
        """
        for scale, what in ((scale_a, "A"), (scale_b, "B")):
            if scale.device != self.comm.device:
                raise usage(f"the scales of {what} are on {scale.device}", f"move them to {self.comm.device}")
        m, k = rows.matrix.shape
        blocks = (-(-k // 128), -(-n // 128))
        if scale_a.numel() == m * blocks[0] and tuple(scale_b.shape) == blocks and scale_b.numel() not in (1, n):
            if scale_a.dim() > 1:
                scale_a = scale_a.movedim(rows.dim, 0)
            return "blocks", scale_a.to(torch.float32).reshape(-1), scale_b.to(torch.float32).t().reshape(-1)
        each = (m,) * self.comm.size if counts is None else counts
        # A rank with one row cannot tell a scale of A from one of its row, and all ranks must choose the same kind.
        if scale_a.numel() == scale_b.numel() == 1 and not (gathers and 1 in each):
            return "matrices", scale_a.to(torch.float32).reshape(-1), scale_b.to(torch.float32).reshape(-1)
        a = self._scales_of_rows(rows, scale_a, each if gathers else None).to(torch.float32)
        if scale_b.numel() != 1 and tuple(scale_b.shape) not in ((1, n), (n,)):
            message = f"the scales of B have shape {tuple(scale_b.shape)}, but B has {n} columns"
            raise usage(message, f"expected one scale, (1, {n}), or {blocks} for blocks of 128 x 128")
        b = scale_b.to(torch.float32).reshape(-1)
        return "rows", a.expand(m), b.expand(n)

    def _scales_of_rows(self, rows: Rows, scale: torch.Tensor, each: Optional[tuple]) -> torch.Tensor:
        """Return the scales of this rank's rows, in the order of its matrix, or the one scale of all.

        With ``each``, the rows of each rank, all ranks may pass the same scales, of the rows of all.
        """
        own = in_order(rows.leading, rows.dim)
        if tuple(scale.shape) == (*own, 1):
            return scale.movedim(rows.dim, 0).reshape(-1)
        if scale.numel() == 1:
            return scale.reshape(-1)
        m, k = rows.matrix.shape
        if rows.dim == 0 and tuple(scale.shape) == (m,):
            return scale
        shapes = [(*own, 1)]
        if each is not None:
            count = sum(each) // (math.prod(rows.leading[1:]) or 1)
            whole = in_order((count, *rows.leading[1:]), rows.dim)
            first, shapes = sum(each[: self.comm.rank]), [*shapes, (*whole, 1)]
            if tuple(scale.shape) == (*whole, 1) or (rows.dim == 0 and tuple(scale.shape) == (sum(each),)):
                return scale.movedim(rows.dim, 0).reshape(-1)[first : first + m]
        message = f"the scales of A have shape {tuple(scale.shape)}, but A has shape {(*own, k)}"
        known = " or ".join(str(shape) for shape in shapes)
        raise usage(message, f"expected one scale, {known} for rows, or {(*own, -(-k // 128))} for blocks of 1 x 128")

    def reduce_scatter(
        self,
        a: torch.Tensor,
        b: torch.Tensor,
        op: str,
        dim: int,
        out: torch.dtype,
        scales: Optional[tuple],
        bias: Optional[torch.Tensor],
        counts: Optional[Sequence[int]] = None,
    ) -> torch.Tensor:
        """Multiply, add up over the ranks, and return this rank's part along a dimension, of which it has ``counts[rank]``."""
        rows, size = rows_of(a, dim, "A"), self.comm.size
        each = self._rows_of_ranks(counts, rows)
        if each is not None and sum(each) != rows.matrix.shape[0]:
            message = f"dimension {dim} of A has {rows.leading[0]} elements, but the rows are {list(counts or ())}"
            raise usage(message, "it must be their sum")
        if counts is None and rows.leading[0] % size:
            message = f"dimension {dim} of A has {rows.leading[0]} elements"
            raise usage(message, f"it must be a multiple of {size}, the number of ranks")
        if op not in ("sum", "avg"):
            raise unsupported(f"the reduction {op!r}", "pass sum or avg")
        kind, more = "none", {"bias": bias}
        if scales is not None:
            kind, scale_a, scale_b = self.scales(rows, scales[0], scales[1], b.shape[1], False)
            more.update(scale_a=scale_a, scale_b=scale_b)
        if bias is not None:
            # Each rank adds its own bias to its own product, as PyTorch's operation does.
            more["bias"] = self.comm.all_reduce(bias.to(out if out.itemsize > 1 else torch.bfloat16).contiguous())
        if op == "avg":
            more["scale"] = self.size()
        epilogue = Epilogue(scales=kind, bias=bias is not None, divide=op == "avg")
        result, _ = self.run("matmul_reduce_scatter", rows.matrix, b, out, epilogue, more, each)
        return shaped(result, rows, rows.leading[0] // size if counts is None else counts[self.comm.rank])
