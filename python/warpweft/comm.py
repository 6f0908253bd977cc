"""Collectives on PyTorch tensors between the GPUs of one host.

    comm = weft.Comm.from_process_group(group, device)
    if comm.should_all_reduce(x):
        y = comm.all_reduce(x)

Nothing needs NVSHMEM or a CUDA toolkit. Calls run in the order of PyTorch's current stream.
"""

from __future__ import annotations

import atexit
import contextlib
import itertools
import socket
from typing import Any, Iterator, Optional, Sequence, Union

import torch

from . import _arrays, _dtypes, _fork, _native
from ._errors import Error, TooLarge, unsupported, usage
from ._matmul import Epilogue, Matmuls, rows_of, shaped
from ._norm import Norms, Results
from .moe import MoE

#: Open communicators in the order in which they were made, which is the same on all ranks. They are kept until they are
#: closed: closing is collective, and ranks collect garbage at different times.
_OPEN: dict = {}
_NUMBERS = itertools.count()

_is_capturing = torch._C._cuda_isCurrentStreamCapturing
_current_stream = torch._C._cuda_getCurrentRawStream

#: Operations by their number in the part in Rust.
_OPS = {name: number for number, name in enumerate(("sum", "prod", "min", "max", "and", "or", "xor"))}

#: Element types that reductions take, with their codes.
_REDUCED = {
    getattr(torch, name): _dtypes.code_of(name) for name in ("float32", "float16", "bfloat16", "int32", "int64", "float64")
}


def _forked() -> None:
    for comm in list(_OPEN):
        for thing in (comm._native, *comm._norms.made(), *comm._matmuls.products(), *comm._layers()):
            _fork.leak(thing)
        comm._end(_fork.unusable("communicator"))


_fork.in_child(_forked)


@atexit.register
def _close_all() -> None:
    for comm in list(_OPEN):
        try:
            comm.close()
        except Exception as e:  # The interpreter exits, so no caller can catch it.
            print(f"warpweft: a communicator did not end in order: {e}")


def _sixteen(tensor: torch.Tensor) -> bool:
    """Return whether kernels can move it 16 bytes at a time."""
    return tensor.data_ptr() % 16 == 0


class Comm:
    """Ranks of one host, each with a GPU, and the collectives between them.

    All ranks make the same calls in the same order. One thread at a time uses a communicator; threads that need one at
    the same time make one each.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        id: bytes,
        device: Any,
        *,
        max_bytes: int = 64 << 20,
        timeout: float = 60.0,
        max_ctas: Optional[int] = None,
        share_gpu: bool = False,
        sums: str = "ordinary",
    ):
        """Connect ranks that pass the same ``id``, which one of them has from ``random_id()``. *Collective.*

        ``max_bytes`` is the most that a call moves: above it, ``should_all_reduce`` answers no and a call raises
        :class:`TooLarge`. ``timeout`` (seconds) bounds waits on the host. ``share_gpu`` lets ranks have one GPU, for tests.

        ``sums`` says what may happen to the sums of reductions. ``"deterministic"`` sums have the same bits in every
        launch and for any split of a batch over calls. The results of :meth:`fused_allreduce_add_rmsnorm` then have the
        same bits for any split too. ``"quantised"`` sums may be made of elements that are sent in 8 bits, which is faster
        for large sizes and not exact. All ranks pass the same.
        """
        self.device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        if self.device.type != "cuda":
            raise usage(f"the device is {self.device}", "pass the GPU of this rank: cuda:0")
        if self.device.index is None:
            self.device = torch.device("cuda", torch.cuda.current_device())
        self.rank, self.size, self.max_bytes = rank, size, max_bytes
        self.name = f"warpweft_{next(_NUMBERS)}"
        self._index = self.device.index
        self._busy = False
        self._capture = False
        self._norms = Norms(self)
        self._pool: Any = None
        self._matmuls = Matmuls(self)
        self._moes: dict = {}
        with torch.cuda.device(self.device):
            torch.cuda.init()
            self._native: Any = _native.Comm(rank, size, id, self._index, max_bytes, timeout, share_gpu, max_ctas, sums)
        _OPEN[self] = None

    @staticmethod
    def from_process_group(
        group: Any = None,
        device: Any = None,
        *,
        max_bytes: int = 64 << 20,
        timeout: float = 60.0,
        max_ctas: Optional[int] = None,
        share_gpu: bool = False,
        sums: str = "ordinary",
    ) -> Comm:
        """Connect the ranks of a process group of ``torch.distributed``. *Collective.*

        ``group`` is any group whose ranks are on one host; gloo is best, since only a few bytes are exchanged. ``device``
        is this rank's GPU: PyTorch's current one by default. The other parameters are those of :class:`Comm`.
        """
        import torch.distributed as dist

        if not dist.is_initialized():
            raise usage("torch.distributed is not initialised", "call torch.distributed.init_process_group first")
        group = dist.group.WORLD if group is None else group
        rank, size = dist.get_rank(group), dist.get_world_size(group)
        if rank < 0:
            raise usage("this process is not in the group", "pass a group that this process is a rank of")
        told: list = [None] * size
        mine = (socket.gethostname(), bytes(_native.random_id()) if rank == 0 else b"", (max_bytes, sums))
        dist.all_gather_object(told, mine, group=group)
        hosts = sorted({host for host, _, _ in told})
        if len(hosts) > 1:
            raise unsupported(
                f"the ranks of the group are on {len(hosts)} hosts: {', '.join(hosts[:4])}",
                "make a group of the ranks of each host (torch.distributed.new_subgroups), or use NCCL between hosts",
            )
        if len({options for _, _, options in told}) > 1:
            raise usage("the ranks pass different max_bytes or sums", "pass the same on every rank")
        chosen = torch.cuda.current_device() if device is None else device
        return Comm(
            rank,
            size,
            told[0][1],
            chosen,
            max_bytes=max_bytes,
            timeout=timeout,
            max_ctas=max_ctas,
            share_gpu=share_gpu,
            sums=sums,
        )

    def __repr__(self) -> str:
        return f"Comm(rank {self.rank} of {self.size} on {self.device})"

    @property
    def disabled(self) -> bool:
        """Whether calls are not worth making or possible: one rank, closed, or a rank has died."""
        return self.size == 1 or isinstance(self._native, _fork.Unusable) or self._native.died() is not None

    def should_all_reduce(self, inp: torch.Tensor) -> bool:
        """Return whether ``all_reduce`` takes this tensor: its device, type, memory and size. It never raises."""
        return (
            isinstance(inp, torch.Tensor)
            and inp.device == self.device
            and inp.dtype in _REDUCED
            and 0 < inp.numel() * inp.element_size() <= self.max_bytes
            and inp.is_contiguous()
            and _sixteen(inp)
            and not self.disabled
        )

    def _refuse(self, inp: Any, what: str, codes: dict) -> None:
        """Raise what is wrong with a tensor; return where nothing is."""
        if not isinstance(inp, torch.Tensor):
            raise TypeError(f"{what} is a {type(inp).__name__}; pass a PyTorch tensor")
        if inp.device != self.device:
            help = "move it there: x.to(comm.device)"
            raise usage(f"{what} is on {inp.device}, but the communicator is on {self.device}", help)
        if inp.dtype not in codes:
            known = ", ".join(str(dtype).split(".")[-1] for dtype in codes)
            raise usage(f"{what} has elements of {inp.dtype}", f"convert it; supported: {known}")
        if not inp.is_contiguous():
            raise usage(f"{what} has strides {tuple(inp.stride())} for shape {tuple(inp.shape)}", "pass x.contiguous()")
        if inp.numel() * inp.element_size() > self.max_bytes:
            raise TooLarge(
                f"{what} has {inp.numel() * inp.element_size()} bytes, but the communicator takes at most {self.max_bytes}",
                code="W0002",
                help="use NCCL for such sizes, or raise max_bytes; should_all_reduce() tells before",
            )
        if inp.numel() and not _sixteen(inp):
            raise usage(f"{what} begins at an address that is not a multiple of 16", "pass a copy: x.clone()")

    def _stream(self) -> int:
        """Return the current stream, where a capture is allowed."""
        stream = _current_stream(self._index)
        if not self._capture and _is_capturing():
            raise usage(
                "the stream is being captured without capture()",
                "wrap the capture: with comm.capture(), torch.cuda.graph(graph): ...",
            )
        return stream

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        if self._busy:
            raise usage("two threads use the communicator at the same time", "make a communicator for each thread")
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def all_reduce(self, inp: torch.Tensor, *, out: Optional[torch.Tensor] = None, op: str = "sum") -> torch.Tensor:
        """Return the reduction of ``inp`` over all ranks: a new tensor, or ``out``, which may be ``inp`` itself."""
        run = self._native.all_reduce  # raises after the end, before PyTorch is asked for anything
        code = _REDUCED.get(inp.dtype) if isinstance(inp, torch.Tensor) else None
        if code is None or inp.get_device() != self._index or not inp.is_contiguous():
            self._refuse(inp, "the input", _REDUCED)
        if out is None:
            out = torch.empty_like(inp)
        elif out is not inp:
            self._like(out, inp.shape, inp.dtype, "out")
        src, dst, count = inp.data_ptr(), out.data_ptr(), inp.numel()
        if src & 15 or dst & 15 or count * inp.element_size() > self.max_bytes:
            self._refuse(inp, "the input", _REDUCED)
            self._refuse(out, "out", _REDUCED)
        if self._busy:
            raise usage("two threads use the communicator at the same time", "make a communicator for each thread")
        self._busy = True
        try:
            run(self._stream(), src, dst, count, code, _OPS[op])
        except KeyError:
            raise usage(f"there is no reduction {op!r}", "one of " + ", ".join(_OPS)) from None
        finally:
            self._busy = False
        return out

    def _like(self, out: torch.Tensor, shape: Any, dtype: torch.dtype, what: str) -> None:
        if not isinstance(out, torch.Tensor) or out.shape != shape or out.dtype != dtype:
            given = f"{tuple(out.shape)} of {out.dtype}" if isinstance(out, torch.Tensor) else type(out).__name__
            raise usage(f"{what} is {given}", f"it must be {tuple(shape)} of {dtype}")
        if out.device != self.device or not out.is_contiguous():
            raise usage(f"{what} is not contiguous, or on {out.device}", f"it must be contiguous memory of {self.device}")

    def _moved(self, name: str, inp: torch.Tensor, shape: Any, out: Optional[torch.Tensor]) -> torch.Tensor:
        run = getattr(self._native, name)
        self._refuse(inp, "the input", _ANY if name == "all_gather" else _REDUCED)
        if out is None:
            out = torch.empty(shape, dtype=inp.dtype, device=self.device)
        self._like(out, torch.Size(shape), inp.dtype, "out")
        self._refuse(out, "out", _ANY)
        count = min(inp.numel(), out.numel())
        code = _ANY[inp.dtype]
        with self._alone():
            run(self._stream(), inp.data_ptr(), out.data_ptr(), count, code)
        return out

    def all_gather(self, inp: torch.Tensor, *, out: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Return the inputs of all ranks one after the other along the first dimension, in the order of ranks."""
        shape = tuple(inp.shape) if inp.dim() else (1,)
        return self._moved("all_gather", inp, (shape[0] * self.size, *shape[1:]), out)

    def reduce_scatter(self, inp: torch.Tensor, *, out: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Return this rank's part, along the first dimension, of the sum of all ranks' inputs."""
        if not inp.dim() or inp.shape[0] % self.size:
            raise usage(
                f"the input has shape {tuple(inp.shape)}",
                f"its first dimension must be a multiple of {self.size}, the number of ranks",
            )
        return self._moved("reduce_scatter", inp, (inp.shape[0] // self.size, *inp.shape[1:]), out)

    def fused_allreduce_add_rmsnorm(
        self,
        input: torch.Tensor,
        residual_in: torch.Tensor,
        rms_gamma: torch.Tensor,
        rms_eps: float = 1e-6,
        *,
        residual_out: Optional[torch.Tensor] = None,
        norm_out: Optional[torch.Tensor] = None,
        quant_out: Optional[torch.Tensor] = None,
        scale_out: Optional[torch.Tensor] = None,
        scale_factor: Union[torch.Tensor, float, None] = None,
        block_quant_group_size: Optional[int] = None,
        weight_bias: float = 0.0,
        fp32_acc: bool = True,
        launch_with_pdl: bool = False,
    ) -> tuple:
        """Return ``(norm_out, residual_out)``: what follows a row-parallel layer, in one call.

        ``residual_out = residual_in + sum of input over the ranks``, and ``norm_out`` is its RMS norm times
        ``rms_gamma + weight_bias``, row by row. The argument names are those of FlashInfer's ``allreduce_fusion``. Pass
        ``residual_out=residual_in`` to update the residual in place. Sums are made in f32 (``fp32_acc``).

        With ``quant_out``, of ``torch.float8_e4m3fn``, the norm divided by a scale is written there, and the call returns
        ``(quant_out, residual_out)``. It writes the norm too if ``norm_out`` is given. There are three kinds of scales:

        - ``scale_factor`` is the scale of all results: a number, or a tensor of one float32 element.
        - ``scale_out`` of shape (tokens, 1) gets the scale of each token, its greatest magnitude / 448.
        - ``scale_out`` of shape (tokens, hidden / group) gets the scale of each group of a row, such as 1 x 128 elements.
          With strides (1, tokens) it is column-major, and columns can be padded to a multiple of 4 rows, as TMA needs it.

        The operation before the call on the stream must not write ``rms_gamma`` or ``scale_factor``.
        """
        to = Results(residual_out, norm_out, quant_out, scale_out, scale_factor, block_quant_group_size)
        return self._norms.run(input, residual_in, {"rms_gamma": rms_gamma}, rms_eps, to, weight_bias)

    def fused_allreduce_add_layernorm(
        self,
        input: torch.Tensor,
        residual_in: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        eps: float = 1e-5,
        *,
        residual_out: Optional[torch.Tensor] = None,
        norm_out: Optional[torch.Tensor] = None,
        quant_out: Optional[torch.Tensor] = None,
        scale_out: Optional[torch.Tensor] = None,
        scale_factor: Union[torch.Tensor, float, None] = None,
        block_quant_group_size: Optional[int] = None,
    ) -> tuple:
        """As :meth:`fused_allreduce_add_rmsnorm`, with LayerNorm: weights and bias are those of ``layer_norm`` in PyTorch."""
        to = Results(residual_out, norm_out, quant_out, scale_out, scale_factor, block_quant_group_size)
        return self._norms.run(input, residual_in, {"weight": weight, "bias": bias}, eps, to)

    # Products with communication inside. The arguments are those of PyTorch's operations of the same names in
    # `torch.ops.symm_mem`, without the name of the group.

    def fused_all_gather_matmul(
        self,
        A: torch.Tensor,
        Bs: Sequence[torch.Tensor],
        gather_dim: int,
        *,
        return_A: bool = True,
        rows: Optional[Sequence[int]] = None,
    ) -> tuple:
        """Gather the ranks' A along a dimension, and multiply by each B (K, N): return ``(A of all ranks, results)``.

        ``rows`` has the number of elements of each rank's A along the dimension, if they differ. It can be 0.
        """
        outs, biases = [A.dtype] * len(Bs), [None] * len(Bs)
        return self._matmuls.all_gather(A, Bs, gather_dim, outs, None, biases, return_A, rows)

    def fused_all_gather_scaled_matmul(
        self,
        A: torch.Tensor,
        Bs: Sequence[torch.Tensor],
        A_scale: torch.Tensor,
        B_scales: Sequence[torch.Tensor],
        gather_dim: int,
        biases: Sequence[Optional[torch.Tensor]],
        result_scales: Sequence[Optional[torch.Tensor]],
        out_dtypes: Sequence[Optional[torch.dtype]],
        use_fast_accum: Sequence[bool] = (),
        *,
        rows: Optional[Sequence[int]] = None,
    ) -> tuple:
        """As :meth:`fused_all_gather_matmul`, of fp8 with scales: of matrices, of rows of A and columns of B, or of blocks.

        Scales of blocks have shapes (..., K / 128), for each row of A, and (K / 128, N / 128).

        ``A_scale`` has one scale, or one for each of this rank's rows with shape (..., 1), and the others' arrive with their
        rows. It may also have the scales of the rows of all ranks. Scales of columns have shape (1, N). Sums are always
        made in f32.
        """
        if any(scale is not None for scale in result_scales):
            raise unsupported("scales of results are not supported", "pass None, or scale the result after the call")
        outs = [out or A.dtype for out in out_dtypes]
        return self._matmuls.all_gather(A, Bs, gather_dim, outs, (A_scale, B_scales), biases, True, rows)

    def fused_matmul_reduce_scatter(
        self,
        A: torch.Tensor,
        B: torch.Tensor,
        reduce_op: str,
        scatter_dim: int,
        *,
        rows: Optional[Sequence[int]] = None,
    ) -> torch.Tensor:
        """Return this rank's part, along a dimension of A, of the sum or mean of all ranks' products A times B (K, N).

        ``rows`` has the number of elements of each rank's part, if they differ. It can be 0.
        """
        return self._matmuls.reduce_scatter(A, B, reduce_op, scatter_dim, A.dtype, None, None, rows)

    def fused_scaled_matmul_reduce_scatter(
        self,
        A: torch.Tensor,
        B: torch.Tensor,
        A_scale: torch.Tensor,
        B_scale: torch.Tensor,
        reduce_op: str,
        orig_scatter_dim: int,
        scatter_dim_after_maybe_reshape: int,
        output_shape: Optional[Sequence[int]],
        bias: Optional[torch.Tensor] = None,
        result_scale: Optional[torch.Tensor] = None,
        out_dtype: Optional[torch.dtype] = None,
        use_fast_accum: bool = False,
        *,
        rows: Optional[Sequence[int]] = None,
    ) -> torch.Tensor:
        """As :meth:`fused_matmul_reduce_scatter`, of fp8 with scales: of matrices, of rows of A and columns of B, or of blocks.

        Scales of blocks have shapes (..., K / 128), for each row of A, and (K / 128, N / 128).

        ``output_shape`` is the shape of the whole product, of which dimension ``orig_scatter_dim`` is scattered, where A is
        a matrix that was reshaped. Sums are always made in f32.
        """
        if result_scale is not None:
            raise unsupported("scales of results are not supported", "pass None, or scale the result after the call")
        if output_shape is not None:
            leading = tuple(output_shape[:-1])
            of_rows = A_scale.shape[:-1] == A.shape[:-1] or A_scale.shape == A.shape[:-1]
            A_scale = A_scale.reshape(*leading, -1) if A_scale.numel() > 1 and of_rows else A_scale
            A = A.reshape(*leading, A.shape[-1])
        dim = orig_scatter_dim if output_shape is not None else scatter_dim_after_maybe_reshape
        return self._matmuls.reduce_scatter(A, B, reduce_op, dim, out_dtype or B.dtype, (A_scale, B_scale), bias, rows)

    def gemm_all_reduce(
        self,
        A: torch.Tensor,
        B: torch.Tensor,
        *,
        bias: Optional[torch.Tensor] = None,
        residual: Optional[torch.Tensor] = None,
        activation: str = "none",
        A_scale: Optional[torch.Tensor] = None,
        B_scale: Optional[torch.Tensor] = None,
        out_dtype: Optional[torch.dtype] = None,
    ) -> torch.Tensor:
        """Return the sum of all ranks' products A times B (K, N), on each rank.

        The bias is added to the sum, the activation is applied to that (``none``, ``relu``, ``gelu``, ``gelu_tanh`` or
        ``silu``), and the residual is added last. All ranks pass the same bias and residual.

        ``A_scale`` and ``B_scale`` are those of :meth:`fused_scaled_matmul_reduce_scatter`, by which each rank multiplies
        its own product before the sum. The result has the type of A, or ``out_dtype``.
        """
        rows, kind, out = rows_of(A, 0, "A"), "none", out_dtype or A.dtype
        flat = None if residual is None else residual.reshape(-1, residual.shape[-1])
        more = {"bias": bias, "residual": flat}
        if (A_scale is None) != (B_scale is None):
            raise usage("only one of A and B has scales", "pass both A_scale and B_scale, or neither")
        if A_scale is not None:
            kind, scale_a, scale_b = self._matmuls.scales(rows, A_scale, B_scale, B.shape[1], False)
            more.update(scale_a=scale_a, scale_b=scale_b)
        epilogue = Epilogue(scales=kind, activation=activation, bias=bias is not None, residual=residual is not None)
        return shaped(self._matmuls.run("matmul_all_reduce", rows.matrix, B, out, epilogue, more)[0], rows, rows.leading[0])

    # Mixtures of experts.

    def moe(
        self,
        tokens: int,
        hidden: int,
        experts: int,
        choices: int,
        *,
        columns: Optional[int] = None,
        dtype: torch.dtype = torch.bfloat16,
        rows: Optional[int] = None,
    ) -> MoE:
        """Return a layer of experts, which the first call with these arguments makes on all ranks. *Collective.*

        ``tokens`` is the most that a rank has, and ``choices`` the experts of a token. ``columns`` are those of results, as
        many as of tokens by default. A rank has room for ``rows`` rows of tokens, by default for any route.
        """
        key = (tokens, hidden, experts, choices, columns, dtype, rows)
        if key not in self._moes:
            if _is_capturing():
                raise usage("a layer of experts cannot be made in a capture", "make it before: it allocates on all ranks")
            self._moes[key] = MoE(self, tokens, hidden, experts, choices, columns, dtype, rows)
        return self._moes[key]

    def _layers(self) -> list:
        return [layer._native for layer in self._moes.values()]

    # Memory that calls use without a copy.

    def empty(self, shape: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Return a tensor of zeros in memory of all ranks, which calls use without a copy. *Collective.*"""
        extents = (shape,) if isinstance(shape, int) else tuple(shape)
        count = 1
        for n in extents:
            count *= n
        if count < 1:
            raise usage(f"the shape {extents} has no elements", "allocate at least one")
        buffer = self._native.alloc((count * dtype.itemsize + 15) // 16 * 16)
        return _arrays.torch_tensor(buffer.address, count * dtype.itemsize, dtype, extents, self._index, buffer)

    def register(self, tensor: torch.Tensor) -> Any:
        """Make a tensor's memory symmetric, so that calls use it without a copy. *Collective.*

        Keep what is returned, and the tensor, as long as calls use it.
        """
        self._refuse(tensor, "the tensor", _ANY)
        return self._native.register(tensor.data_ptr(), tensor.numel() * tensor.element_size())

    def mempool(self) -> Any:
        """Return a ``torch.cuda.MemPool`` whose memory calls use without a copy.

        All ranks allocate the same from it, in the same order: ``with torch.cuda.use_mem_pool(comm.mempool()): ...``.
        """
        if self._pool is None:
            _native.set_pool(self._index, self._native)
            path = _native.__file__
            allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "weft_pool_alloc", "weft_pool_free")
            self._pool = (torch.cuda.MemPool(allocator.allocator()), allocator)
        return self._pool[0]

    @contextlib.contextmanager
    def capture(self) -> Iterator[None]:
        """Allow calls in graphs that are captured meanwhile.

        Make each call once before, with the same sizes, as a warm-up does: a capture compiles nothing.
        """
        before, self._capture = self._capture, True
        try:
            yield
        finally:
            self._capture = before

    def barrier(self) -> None:
        """Wait on the host until all ranks have come. *Collective.*"""
        self._native.barrier()

    def _end(self, stands_for_it: _fork.Unusable) -> None:
        self._native = stands_for_it
        for layer in self._moes.values():
            layer._native = stands_for_it
        self._norms, self._moes, self._matmuls = Norms(self), {}, Matmuls(self)
        _OPEN.pop(self, None)

    def close(self) -> None:
        """End the communicator. *Collective*; a second call does nothing."""
        native = self._native
        if isinstance(native, _fork.Unusable):
            return
        pool, self._pool = self._pool, None
        with contextlib.suppress(Error):
            torch.cuda.synchronize(self.device)
        self._end(_fork.Unusable("the communicator was closed", "make another one"))
        if pool is not None:
            del pool
            _native.set_pool(self._index, None)
        native.close()

    def __enter__(self) -> Comm:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


#: Every element type that is only moved.
_ANY = {
    **_REDUCED,
    torch.uint8: _dtypes.code_of("uint8"),
    torch.int8: _dtypes.code_of("int8"),
    torch.int16: _dtypes.code_of("int16"),
    torch.bool: _dtypes.code_of("uint8"),
}
