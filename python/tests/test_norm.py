"""Forms of the fused norm: on GPUs with a process for each rank, and as operators without a GPU."""

import pytest
import ranks

TOKENS = (1, 3, 64, 600, 3)
EPS = 1e-5
LEAST = 1 / (448 * 512)


def data(rank, n, seed):
    """Integers that bfloat16 adds exactly; they depend on rank, index and iteration."""
    import torch

    index = torch.arange(n, device="cuda")
    return ((index * 7 + index // 61 + rank * 13 + seed * 5) % 23 - 11).float()


def given(rank, size, tokens, hidden, seed, layer):
    """Return the operands of a call, the residual that it gives, and the norm in float64 of bfloat16's rounding."""
    import torch

    x, old = (data(r, tokens * hidden, seed).view(tokens, hidden).bfloat16() for r in (rank, 9))
    residual = sum(data(r, tokens * hidden, seed) for r in range(size)).view(tokens, hidden) + old.float()
    weight = 1 + (data(20, hidden, seed) / 16).bfloat16()
    bias = (data(21, hidden, seed) / 8).bfloat16()
    y = residual.double()
    if layer:
        y = y - y.mean(-1, keepdim=True)
    norm = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + EPS) * weight.double()
    if layer:
        norm = norm + bias.double()
    return (x, old, weight, *([bias] if layer else [])), residual, norm


def close(got, want, bits, least):
    """Whether numbers are within a little more than half a unit of the last of their bits."""
    return ((got.double() - want).abs() <= want.abs() * 2.0**-bits * 1.1 + least).all()


def check(comm, rank, size, hidden, layer, kind, both):
    """Compare calls of a form with its reference."""
    import torch

    call = comm.fused_allreduce_add_layernorm if layer else comm.fused_allreduce_add_rmsnorm
    groups = {"tensor": 0, "token": hidden, "group": 128, "columns": 128, "padded": 128}
    factor = torch.full((1,), 0.03125, device="cuda")
    for seed, tokens in enumerate(TOKENS):
        operands, residual, norm = given(rank, size, tokens, hidden, seed, layer)
        if kind == "plain":
            out, new = call(*operands, EPS)
            assert torch.equal(new.float(), residual) and close(out, norm, 8, 1e-5), (tokens, layer)
            continue
        quant = torch.empty(tokens, hidden, dtype=torch.float8_e4m3fn, device="cuda")
        beside = torch.zeros_like(operands[0]) if both else None
        group = groups[kind]
        scales = torch.zeros(tokens, hidden // group, device="cuda") if group else None
        padded = {"columns": tokens, "padded": -(-tokens // 4) * 4}.get(kind)
        if padded:
            memory = torch.full((hidden // group, padded), -1.0, device="cuda")
            scales = memory.t()[:tokens]
        what = (tokens, layer, kind)
        if group:
            more = {"scale_out": scales}
        else:
            more = {"scale_factor": factor if seed % 2 else 0.03125}
        out, new = call(*operands, EPS, quant_out=quant, norm_out=beside, **more)
        assert out is quant and torch.equal(new.float(), residual), what
        if both:
            assert close(beside, norm, 8, 1e-5), what
        if group:
            peaks = norm.view(tokens, -1, group).abs().amax(-1)
            assert close(scales, (peaks / 448).clamp(min=LEAST), 8, 0), what
            by = scales.double().repeat_interleave(group, 1)
            if padded:
                assert (memory[:, tokens:] == -1).all(), what
        else:
            by = factor.double()
        # Half a unit of e4m3 behind half a unit of bfloat16; below its least normal number its units are 2^-9.
        want = (norm / by).clamp(-448, 448)
        assert close(quant.double(), want, 4, 2.0**-9), what


def rank_layer(rank, size):
    import torch

    comm = ranks.comm(rank, max_bytes=8 << 20)
    check(comm, rank, size, 1024, True, "plain", False)
    check(comm, rank, size, 1000, True, "tensor", True)
    check(comm, rank, size, 1024, True, "token", False)
    torch.cuda.synchronize()
    comm.close()


def rank_quantised(rank, size):
    import torch

    comm = ranks.comm(rank, max_bytes=8 << 20)
    check(comm, rank, size, 1024, False, "tensor", False)
    check(comm, rank, size, 1000, False, "token", True)
    torch.cuda.synchronize()
    comm.close()


def rank_groups(rank, size):
    import torch

    comm = ranks.comm(rank, max_bytes=16 << 20)
    check(comm, rank, size, 1024, False, "group", False)
    check(comm, rank, size, 7168, True, "group", True)
    check(comm, rank, size, 1024, False, "columns", False)
    check(comm, rank, size, 7168, True, "padded", True)
    torch.cuda.synchronize()
    comm.close()


def rank_batches(rank, size):
    """Deterministic sums have the same bits in any batch, for forms with one kernel too."""
    import torch

    comm = ranks.comm(rank, sums="deterministic")
    hidden, most = 4096, 300
    operands, _, _ = given(rank, size, most, hidden, 2, False)
    operands = tuple(x / 7 for x in operands)

    def call(tokens):
        x, old, weight = operands
        quant = torch.empty(tokens, hidden, dtype=torch.float8_e4m3fn, device="cuda")
        scales = torch.empty(tokens, hidden // 128, device="cuda")
        _, new = comm.fused_allreduce_add_rmsnorm(
            x[:tokens], old[:tokens], weight, EPS, quant_out=quant, scale_out=scales, block_quant_group_size=128
        )
        return quant.view(torch.uint8), scales, new

    whole = call(most)
    for tokens in (1, 3, 64, 257):
        for part, all in zip(call(tokens), whole):
            assert torch.equal(part, all[:tokens]), tokens
    torch.cuda.synchronize()
    comm.close()


def rank_operators(rank, size):
    import torch

    import warpweft as weft

    comm = ranks.comm(rank)
    ops = weft.register_torch_ops()
    hidden, tokens = 1024, 4
    operands, residual, norm = given(rank, size, tokens, hidden, 1, True)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def layer(x, old, weight, bias):
        y, new = weft.fused_allreduce_add_layernorm(x, old, weight, bias, EPS, comm)
        quant, scales, _ = ops.fused_allreduce_add_layernorm_quant(
            x, old, weight, bias, EPS, comm.name, block_quant_group_size=128
        )
        return y, new, quant, scales

    y, new, quant, scales = layer(*operands)
    assert torch.equal(new.float(), residual) and close(y, norm, 8, 1e-5)
    by = scales.double().repeat_interleave(128, 1)
    assert scales.shape == (tokens, 8) and close(quant.double(), norm / by, 4, 2.0**-9)
    operands, residual, norm = given(rank, size, tokens, hidden, 2, False)
    factor = torch.full((1,), 0.03125, device="cuda")
    quant, scales, new = ops.fused_allreduce_add_rmsnorm_quant(*operands, EPS, comm.name, scale_factor=factor)
    assert scales.numel() == 0 and torch.equal(new.float(), residual)
    assert close(quant.double(), norm / factor.double(), 4, 2.0**-9)
    # In a graph, whose replays read new data.
    x, old, weight = operands
    graph = torch.cuda.CUDAGraph()
    args = (x, old, weight, EPS, comm.name)
    with comm.capture():
        ops.fused_allreduce_add_rmsnorm_quant(*args)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            quant, scales, new = ops.fused_allreduce_add_rmsnorm_quant(*args)
    for seed in range(3, 6):
        fresh, residual, norm = given(rank, size, tokens, hidden, seed, False)
        for to, now in zip(operands, fresh):
            to.copy_(now)
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(new.float(), residual), seed
        assert close(quant.double(), (norm / scales.double()).clamp(-448, 448), 4, 2.0**-9), seed
    torch.cuda.synchronize()
    comm.close()


def refused(comm, x, old, weight):
    """Every wrong argument is named, on the device of the communicator."""
    import torch

    import warpweft as weft

    def empty(*shape, dtype=torch.float32, device=x.device):
        return torch.empty(shape, dtype=dtype, device=device)

    (tokens, hidden), fp8 = x.shape, torch.float8_e4m3fn
    quant, scales = empty(tokens, hidden, dtype=fp8), empty(tokens, hidden // 128)
    cases = [
        ({"scale_out": scales}, "without quant_out"),
        ({"scale_factor": 1.0}, "without quant_out"),
        ({"block_quant_group_size": 128}, "without quant_out"),
        ({"quant_out": quant}, "neither of scale_factor"),
        ({"quant_out": quant, "scale_out": scales, "scale_factor": 1.0}, "both of scale_factor"),
        ({"quant_out": x, "scale_out": scales}, "quant_out is"),
        ({"quant_out": quant[1:], "scale_out": scales}, "quant_out is"),
        ({"quant_out": quant, "scale_out": scales[1:]}, "scale_out has shape"),
        ({"quant_out": quant, "scale_out": empty(tokens, 3)}, "scale_out has shape"),
        ({"quant_out": quant, "scale_out": empty(tokens, 0)}, "scale_out has shape"),
        ({"quant_out": quant, "scale_out": scales.half()}, "float16"),
        ({"quant_out": quant, "scale_out": empty(tokens, 2 * hidden // 128)[:, ::2]}, "scale_out has strides"),
        ({"quant_out": quant, "scale_out": empty(hidden // 128, tokens + 1).t()[:tokens]}, "scale_out has strides"),
        ({"quant_out": quant, "scale_out": empty(hidden // 128, tokens, dtype=torch.float16).t()}, "float16"),
        ({"quant_out": quant, "scale_out": scales, "block_quant_group_size": 64}, "128 elements share"),
        ({"quant_out": quant, "scale_factor": 1.0, "block_quant_group_size": 64}, "all elements share"),
        ({"quant_out": quant, "scale_factor": scales}, "scale_factor has shape"),
        ({"quant_out": quant, "scale_factor": empty(1, device="meta")}, "is on meta"),
        ({"quant_out": quant, "scale_out": scales, "norm_out": x.half()}, "norm_out is"),
        ({"residual_out": old[1:]}, "residual_out is"),
    ]
    for more, match in cases:
        with pytest.raises(weft.ArgumentError, match=match):
            comm.fused_allreduce_add_rmsnorm(x, old, weight, **more)
    for bias, match in ((weight[1:], "bias is"), (1.0, "bias is float"), (weight.float(), "bias is")):
        with pytest.raises(weft.ArgumentError, match=match):
            comm.fused_allreduce_add_layernorm(x, old, weight, bias)


def rank_errors(rank, size):
    import torch

    import warpweft as weft

    comm = ranks.comm(rank)
    (x, old, weight), residual, _ = given(rank, size, 4, 512, 0, False)
    refused(comm, x, old, weight)
    quant = torch.empty(4, 512, dtype=torch.float8_e4m3fn, device="cuda")
    with pytest.raises(weft.ArgumentError, match="groups of 1"):
        comm.fused_allreduce_add_rmsnorm(x, old, weight, quant_out=quant, scale_out=torch.empty(4, 512, device="cuda"))
    # After all that, calls work.
    scales = torch.empty(4, 4, device="cuda")
    _, new = comm.fused_allreduce_add_rmsnorm(x, old, weight, quant_out=quant, scale_out=scales)
    assert torch.equal(new.float(), residual)
    torch.cuda.synchronize()
    comm.close()


@pytest.mark.gpu
@pytest.mark.parametrize(
    "function", ["rank_layer", "rank_quantised", "rank_groups", "rank_batches", "rank_operators", "rank_errors"]
)
def test_two_ranks(function):
    ranks.run(__file__, function)


def test_groups_follow_from_the_shape_of_scales():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    import warpweft as weft
    from warpweft._norm import group_of

    assert group_of(1024, (3,), torch.empty(3, 8)) == 128
    assert group_of(1024, (3,), torch.empty(3, 1)) == group_of(1024, (3,), torch.empty(3)) == 1024
    assert group_of(1024, (2, 3), torch.empty(2, 3, 8)) == 128 and group_of(1024, (0,), torch.empty(0, 8)) == 128
    for shape in ((3, 7), (3, 0), (2, 8), (8, 3), (3, 8, 1)):
        with pytest.raises(weft.ArgumentError, match="scale_out has shape"):
            group_of(1024, (3,), torch.empty(shape))


def test_columns_follow_from_the_strides_of_scales():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from warpweft._norm import columns_of

    def columns(rows, stride, groups=8):
        return torch.empty_strided((rows, groups), (1, stride))

    assert columns_of(torch.empty(3, 8)) == columns_of(torch.empty(3, 1)) == columns_of(torch.empty(2, 3, 8)) == (0,)
    assert columns_of(columns(3, 3)) == (1,) and columns_of(columns(3, 4)) == (4,)
    # Both paddings of 8 rows are the same, and rows of one token are columns of one element.
    assert columns_of(columns(8, 8)) == (4, 1) and columns_of(columns(1, 1)) == (0, 1)
    assert columns_of(columns(1, 4)) == (4,)
    for other in (columns(3, 5), columns(5, 4), torch.empty(3, 16)[:, ::2], torch.empty(3, 2, 8).transpose(0, 1)):
        assert columns_of(other) == ()


def test_operators_without_a_gpu():
    """What a trace assumes: shapes and types, of tensors that have no memory."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not hasattr(torch._C, "_cuda_getCurrentRawStream"):
        pytest.skip("this PyTorch was built without CUDA")
    from torch._subclasses.fake_tensor import FakeTensorMode

    import warpweft as weft

    ops = weft.register_torch_ops()
    with FakeTensorMode():
        x, weight = torch.empty(6, 512, dtype=torch.bfloat16, device="cuda"), torch.empty(512, device="cuda")
        norm, residual = ops.fused_allreduce_add_layernorm(x, x, weight, weight, EPS, "any")
        assert norm.shape == residual.shape == x.shape and norm.dtype == x.dtype
        kinds = [({}, 1), ({"block_quant_group_size": 128}, 4), ({"scale_factor": torch.empty(1, device="cuda")}, 0)]
        for more, columns in kinds:
            for results in (
                ops.fused_allreduce_add_rmsnorm_quant(x, x, weight, EPS, "any", **more),
                ops.fused_allreduce_add_layernorm_quant(x, x, weight, weight, EPS, "any", **more),
            ):
                quant, scales, residual = results
                assert quant.shape == residual.shape == x.shape and quant.dtype == torch.float8_e4m3fn
                assert scales.shape == (6, columns) and scales.dtype == torch.float32


def test_forms_follow_from_the_arguments(monkeypatch):
    """What the part in Rust is asked for, by a communicator whose tensors are on the host."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not hasattr(torch._C, "_cuda_getCurrentRawStream"):
        pytest.skip("this PyTorch was built without CUDA")
    from warpweft import _dtypes, _norm
    from warpweft.comm import Comm

    made, calls = [], []

    class AddRmsNorm:
        def __init__(self, comm, hidden, form, tokens):
            made.append((hidden, form, tokens))

        def run(self, *arguments):
            calls.append(arguments)

    monkeypatch.setattr(_norm._native, "AddRmsNorm", AddRmsNorm)
    monkeypatch.setattr(_norm, "_is_capturing", lambda: False)
    monkeypatch.setattr(Comm, "_stream", lambda self: 7)
    comm = object.__new__(Comm)
    comm.device, comm.max_bytes, comm._busy = torch.device("cpu"), 1 << 20, False
    comm._native = type("Native", (), {"takes": None})()
    comm._norms = _norm.Norms(comm)

    tokens, hidden = 4, 512
    x, old = torch.empty(2, tokens, hidden, dtype=torch.bfloat16)
    weight, bias = torch.ones(2, hidden, dtype=torch.bfloat16)
    refused(comm, x, old, weight)
    assert not made
    bf16, e4m3 = _dtypes.code_of("bf16"), _dtypes.code_of("e4m3")
    quant = torch.empty(tokens, hidden, dtype=torch.float8_e4m3fn)
    groups, each = torch.empty(tokens, 4), torch.empty(tokens)
    factor = torch.ones(1)
    cases = [
        ({}, (bf16, 0, False), None),
        ({"quant_out": quant, "scale_factor": factor}, (e4m3, 0, False), factor),
        ({"quant_out": quant, "scale_out": each}, (e4m3, hidden, False), each),
        ({"quant_out": quant, "scale_out": groups, "block_quant_group_size": 128}, (e4m3, 128, False), groups),
        ({"quant_out": quant, "scale_out": groups, "norm_out": x}, (e4m3, 128, True), groups),
    ]
    for layer in (False, True):
        for more, form, scales in cases:
            if layer:
                out, new = comm.fused_allreduce_add_layernorm(x, old, weight, bias, 0.5, residual_out=old, **more)
            else:
                out, new = comm.fused_allreduce_add_rmsnorm(x, old, weight, 0.5, residual_out=old, **more)
            assert new is old and (out is quant if "quant_out" in more else out.shape == x.shape)
            assert made[-1] == (hidden, (bf16, *form, layer, 0), 1024)
            others = tuple(None if y is None else y.data_ptr() for y in (bias if layer else None, scales))
            beside = more.get("norm_out")
            norm = None if beside is None else beside.data_ptr()
            operands = tuple(y.data_ptr() for y in (x, old, weight, out))
            assert calls[-1] == (7, tokens, operands, (*others, norm), 0.5)
    assert len(made) == len(set(made)) == 10
    # A number becomes a tensor once, and an empty batch has the form of any other.
    for _ in range(2):
        comm.fused_allreduce_add_rmsnorm(x, old, weight, quant_out=quant, scale_factor=0.25)
    assert calls[-1][3] == calls[-2][3] and len(made) == 10
    comm.fused_allreduce_add_rmsnorm(x[:0], old[:0], weight, quant_out=quant[:0], scale_out=groups[:0])
    assert calls[-1][1] == 0 and len(made) == 10
    # Columns of scales are a form of their own. Strides that fit two of them use the one that exists.
    for rows, stride in ((3, 4), (4, 4), (3, 3), (4, 4), (1, 1), (1, 4)):
        columns = torch.empty_strided((rows, 4), (1, stride))
        comm.fused_allreduce_add_rmsnorm(x[:rows], old[:rows], weight, quant_out=quant[:rows], scale_out=columns)
        assert calls[-1][1] == rows and calls[-1][3][1] == columns.data_ptr()
    assert all(form[:5] == (bf16, e4m3, 128, False, False) for _, form, _ in made[10:])
    assert [form[-1] for _, form, _ in made[10:]] == [4, 1]
