"""Products with communication inside: on GPUs with a process for each rank, and as operators without a GPU."""

import pytest
import ranks


class StandIn:
    """What a trace asks of a communicator."""

    size, name, rank = 4, "stand-in", 1


def matrix(rank, rows, columns, seed):
    """Whole numbers of which sums of products are exact in f32; they depend on rank and place."""
    import torch

    index = torch.arange(rows * columns, device="cuda")
    return ((index * 7 + index // 11 + rank * 5 + seed * 3) % 9 - 4).view(rows, columns).float()


def close(got, want, bits=8):
    return ((got.float() - want).abs() <= want.abs() * 2.0 ** (1 - bits) + 1e-2).all()


def near(got, parts):
    """Whether sums of parts over their second mode have the errors of three roundings to bfloat16."""
    return ((got.float() - parts.sum(1)).abs() <= parts.abs().sum(1) * 3 * 2.0**-8 + 1e-6).all()


def rank_all_gather(rank, size):
    import torch

    comm = ranks.comm(rank, max_bytes=8 << 20)
    rows, n, k = 96, 128, 64
    a = matrix(rank, rows, k, 0)
    whole = torch.cat([matrix(r, rows, k, 0) for r in range(size)])
    bs = [matrix(rank, n, k, 1).t(), matrix(rank, k, n, 2)]
    for _ in range(2):
        gathered, results = comm.fused_all_gather_matmul(a.bfloat16(), [b.bfloat16() for b in bs], 0)
        assert torch.equal(gathered.float(), whole)
        for b, result in zip(bs, results):
            assert close(result, whole @ b)
    # Another dimension: (sequence, batch, K) gathered along the batch.
    x = a.view(12, 8, k).bfloat16()
    _, (result,) = comm.fused_all_gather_matmul(x, [bs[0].bfloat16()], 1, return_A=False)
    want = torch.cat([matrix(r, rows, k, 0).view(12, 8, k) for r in range(size)], 1) @ bs[0]
    assert result.shape == want.shape and close(result, want)
    # fp8, with a scale for each row of A and each column of B.
    scales = 2.0 ** (torch.arange(rows, device="cuda") % 4 - 2 + rank)
    of_b = 2.0 ** (torch.arange(n, device="cuda") % 3 - 1)
    fp8, b = torch.float8_e4m3fn, bs[0].to(torch.float8_e4m3fn)
    _, (result,) = comm.fused_all_gather_scaled_matmul(
        a.to(fp8), [b], scales[:, None], [of_b[None, :]], 0, [None], [None], [torch.bfloat16], [False]
    )
    all_scales = torch.cat([2.0 ** (torch.arange(rows, device="cuda") % 4 - 2 + r) for r in range(size)])
    assert close(result, (whole * all_scales[:, None]) @ (bs[0] * of_b))
    torch.cuda.synchronize()
    comm.close()


def rank_sums(rank, size):
    import torch

    import warpweft as weft

    comm = ranks.comm(rank, max_bytes=8 << 20)
    m, n, k = 64 * size, 128, 64
    a, b = matrix(rank, m, k, 0), matrix(rank, n, k, 1).t()
    want = sum(matrix(r, m, k, 0) @ matrix(r, n, k, 1).t() for r in range(size))
    part = slice(rank * m // size, (rank + 1) * m // size)
    for op, factor in (("sum", 1.0), ("avg", 1 / size)):
        got = comm.fused_matmul_reduce_scatter(a.bfloat16(), b.bfloat16(), op, 0)
        assert close(got, want[part] * factor, bits=7), op
    fp8 = torch.float8_e4m3fn
    one, two = torch.tensor(0.5, device="cuda"), torch.tensor(2.0 + rank, device="cuda")
    got = comm.fused_scaled_matmul_reduce_scatter(a.to(fp8), b.to(fp8), one, two, "sum", 0, 0, None, out_dtype=torch.bfloat16)
    scaled = sum((1.0 + r / 2) * (matrix(r, m, k, 0) @ matrix(r, n, k, 1).t()) for r in range(size))
    assert close(got, scaled[part], bits=7)
    for rows in (3, m):  # packets, or tiles
        got = comm.gemm_all_reduce(a[:rows].bfloat16(), b.bfloat16())
        assert close(got, want[:rows], bits=7)
    bias, residual = matrix(9, 1, n, 2)[0].bfloat16(), matrix(9, m, n, 3).bfloat16()
    got = comm.gemm_all_reduce(a.bfloat16(), b.bfloat16(), bias=bias, residual=residual, activation="relu")
    assert close(got, (want + bias.float()).relu() + residual.float(), bits=7)
    # In a graph, as operators.
    ops = weft.register_torch_ops()
    x, w = a.bfloat16(), b.bfloat16()
    graph = torch.cuda.CUDAGraph()
    with comm.capture(), torch.cuda.graph(graph):
        y = ops.fused_matmul_reduce_scatter(x, w, "sum", 0, comm.name)
    graph.replay()
    torch.cuda.synchronize()
    assert close(y, want[part], bits=7)
    with pytest.raises(weft.ArgumentError, match="multiple"):
        comm.fused_matmul_reduce_scatter(a[:1].bfloat16(), w, "sum", 0)
    with pytest.raises(weft.ArgumentError, match="at least 1"):
        comm.fused_matmul_reduce_scatter(x[:, :0], w[:0], "sum", 0)
    with pytest.raises(weft.NotSupported, match="last one"):
        comm.fused_matmul_reduce_scatter(x, w, "sum", 1)
    torch.cuda.synchronize()
    comm.close()


def scales_of(rank, rows):
    """Scales of a rank's rows, of which products are exact."""
    import torch

    index = torch.arange(rows, device="cuda")
    return 2.0 ** ((index * 3 + index // 5 + rank) % 4 - 2)[:, None]


def rank_scales(rank, size):
    """fp8 with scales of rows and columns, or of matrices, of many gathered rows and of one, in calls and in a graph."""
    import torch

    import warpweft as weft

    comm, ops = ranks.comm(rank, max_bytes=8 << 20), weft.register_torch_ops()
    n, k, fp8, out = 128, 64, torch.float8_e4m3fn, torch.bfloat16
    b, of_b = matrix(rank, n, k, 1).t(), 2.0 ** (torch.arange(n, device="cuda") % 3 - 1)[None, :]
    w, half = b.to(fp8), torch.tensor(0.5, device="cuda")

    def gather(a, scale, of_columns, dim=0, rows=None):
        operands = (a.to(fp8), [w], scale, [of_columns], dim, comm.name, [None], [None], [out], [False])
        return ops.fused_all_gather_scaled_matmul(*operands, rows=rows)[1][0]

    # All-gather: scales of this rank's rows, of all ranks' rows, and of matrices; the ranks have equal parts, or one has 1.
    for rows in ([96] * size, [1] * size, [1, *[24] * (size - 1)]):
        a, counts = matrix(rank, rows[rank], k, 0), None if rows[0] == rows[-1] else rows
        whole = torch.cat([matrix(r, rows[r], k, 0) for r in range(size)])
        every = torch.cat([scales_of(r, rows[r]) for r in range(size)])
        for scale in (scales_of(rank, rows[rank]), every):
            for of_columns in (of_b, half):
                got = gather(a, scale, of_columns, rows=counts)
                assert close(got, (whole * every) @ b * of_columns), (rows, scale.shape)
        for of_columns in (of_b, half):
            assert close(gather(a, half, of_columns, rows=counts), (whole * 0.5) @ b * of_columns), rows
    # Another dimension, along which the scales are gathered too.
    a, scale = matrix(rank, 96, k, 0).view(12, 8, k), scales_of(rank, 96).view(12, 8, 1)
    wholes = torch.cat([matrix(r, 96, k, 0).view(12, 8, k) for r in range(size)], 1)
    every = torch.cat([scales_of(r, 96).view(12, 8, 1) for r in range(size)], 1)
    for scales in (scale, every):
        assert close(gather(a, scales, of_b, dim=1), (wholes * every) @ b * of_b)
    # A graph reads the scales that are there when it is replayed.
    kept, a, graph = scales_of(rank, 96), matrix(rank, 96, k, 0), torch.cuda.CUDAGraph()
    gather(a, kept, of_b)
    with comm.capture(), torch.cuda.graph(graph):
        y = gather(a, kept, of_b)
    kept.mul_(2)
    graph.replay()
    torch.cuda.synchronize()
    whole = torch.cat([matrix(r, 96, k, 0) * scales_of(r, 96) * 2 for r in range(size)])
    assert close(y, whole @ b * of_b)
    comm.close()


def rank_scaled_sums(rank, size):
    """fp8 with scales of rows and columns, of which products are added up, in calls and in a graph."""
    import torch

    import warpweft as weft

    comm, ops = ranks.comm(rank, max_bytes=8 << 20), weft.register_torch_ops()
    m, n, k, fp8, out = 64 * size, 128, 64, torch.float8_e4m3fn, torch.bfloat16
    of_b, w = 2.0 ** (torch.arange(n, device="cuda") % 3 - 1)[None, :], matrix(rank, n, k, 1).t().to(fp8)
    # Partial sums may be rounded, so errors are compared with their magnitudes.
    parts = [(matrix(r, m, k, 0) * scales_of(r, m)) @ matrix(r, n, k, 1).t() * of_b for r in range(size)]
    want, bound = sum(parts), sum(part.abs() for part in parts) * 2.0**-6 + 1e-2
    part, x, scale = slice(rank * m // size, (rank + 1) * m // size), matrix(rank, m, k, 0).to(fp8), scales_of(rank, m)
    got = ops.fused_scaled_matmul_reduce_scatter(x, w, scale, of_b, "sum", 0, 0, comm.name, None, None, None, out)
    assert ((got.float() - want[part]).abs() <= bound[part]).all()
    # A matrix of (4, m / 4, K) is scattered along its second dimension.
    more = ("sum", 1, 0, comm.name, [4, m // 4, n], None, None, out)
    got = ops.fused_scaled_matmul_reduce_scatter(x, w, scale, of_b, *more)
    own = slice(rank * m // 4 // size, (rank + 1) * m // 4 // size)
    assert ((got.float() - want.view(4, -1, n)[:, own]).abs() <= bound.view(4, -1, n)[:, own]).all()
    for rows in (3, m):  # packets, or tiles
        got = ops.gemm_all_reduce(x[:rows], w, comm.name, A_scale=scale[:rows], B_scale=of_b, out_dtype=out)
        assert got.dtype == out and ((got.float() - want[:rows]).abs() <= bound[:rows]).all(), rows
    graph = torch.cuda.CUDAGraph()
    with comm.capture(), torch.cuda.graph(graph):
        y = ops.gemm_all_reduce(x, w, comm.name, A_scale=scale, B_scale=of_b, out_dtype=out)
    scale.mul_(4)
    graph.replay()
    torch.cuda.synchronize()
    assert ((y.float() - want * 4).abs() <= bound * 4).all()
    with pytest.raises(weft.ArgumentError, match="the scales of A"):
        comm.gemm_all_reduce(x, w, A_scale=scale[:5], B_scale=of_b, out_dtype=out)
    with pytest.raises(weft.ArgumentError, match="both A_scale and B_scale"):
        comm.gemm_all_reduce(x, w, A_scale=scale, out_dtype=out)
    torch.cuda.synchronize()
    comm.close()


def rank_uneven(rank, size):
    """Ranks with different numbers of rows, of which one has none, in calls and in graphs."""
    import torch

    import warpweft as weft

    comm = ranks.comm(rank, max_bytes=8 << 20)
    n, k = 128, 64
    b, fp8 = matrix(rank, n, k, 1).t(), torch.float8_e4m3fn
    graph, x = torch.cuda.CUDAGraph(), matrix(rank, 60, k, 0).bfloat16()
    for first in (40, 60, 0):
        rows = [first, *(60 - first for _ in range(size - 1))]
        own, m = rows[rank], sum(rows)
        a = matrix(rank, own, k, 0)
        whole = torch.cat([matrix(r, rows[r], k, 0) for r in range(size)])
        gathered, results = comm.fused_all_gather_matmul(a.bfloat16(), [b.bfloat16()] * 2, 0, rows=rows)
        assert torch.equal(gathered.float(), whole)
        assert all(close(result, whole @ b) for result in results)
        of_a = 2.0 ** (torch.arange(own, device="cuda") % 4 - 2 + rank)
        all_scales = torch.cat([2.0 ** (torch.arange(rows[r], device="cuda") % 4 - 2 + r) for r in range(size)])
        scales = [torch.ones(1, n, device="cuda")]
        scaled = (a.to(fp8), [b.to(fp8)], of_a[:, None], scales, 0, [None], [None], [torch.bfloat16])
        _, (result,) = comm.fused_all_gather_scaled_matmul(*scaled, rows=rows)
        assert close(result, (whole * all_scales[:, None]) @ b)
        part = slice(sum(rows[:rank]), sum(rows[: rank + 1]))
        want = sum(matrix(r, m, k, 0) @ matrix(r, n, k, 1).t() for r in range(size))[part]
        every = matrix(rank, m, k, 0).bfloat16()
        got = comm.fused_matmul_reduce_scatter(every, b.bfloat16(), "sum", 0, rows=rows)
        assert got.shape == want.shape and close(got, want, bits=7)
        if first == 40 and size == 2:
            w = b.bfloat16()
            with comm.capture(), torch.cuda.graph(graph):
                y = weft.register_torch_ops().fused_matmul_reduce_scatter(x, w, "sum", 0, comm.name, rows=rows)
            kept = want
    if size == 2:  # other rows do not change those of a graph
        graph.replay()
        torch.cuda.synchronize()
        assert close(y, kept, bits=7)
    with pytest.raises(weft.ArgumentError, match="their sum"):
        comm.fused_matmul_reduce_scatter(x, b.bfloat16(), "sum", 0, rows=[1] * size)
    with pytest.raises(weft.ArgumentError, match="one for each rank"):
        comm.fused_matmul_reduce_scatter(x, b.bfloat16(), "sum", 0, rows=[60])
    torch.cuda.synchronize()
    comm.close()


def rank_experts(rank, size):
    import torch

    import warpweft as weft

    comm = ranks.comm(rank)
    tokens, hidden, columns, experts, choices = 40, 64, 128, 4 * size, 3
    local = experts // size
    live = tokens - 3 * rank

    def routes(r):
        index = torch.arange(tokens * choices, device="cuda").view(tokens, choices)
        return ((index * 5 + r * 3 + index // 7) % experts).int()[: tokens - 3 * r]

    w = torch.stack([matrix(e, columns, hidden, 5) for e in range(experts)])
    x, ids = matrix(rank, tokens, hidden, 4)[:live], routes(rank)
    gates = (matrix(rank, live, choices, 6) + 5) / 8
    parts = torch.einsum("th,tkch->tkc", x, w[ids.long()]) * gates[..., None]
    layer = comm.moe(tokens, hidden, experts, choices, columns=columns)
    assert layer is comm.moe(tokens, hidden, experts, choices, columns=columns)
    own = w[rank * local : (rank + 1) * local].bfloat16().contiguous()
    for _ in range(2):
        layer.experts(x.bfloat16(), ids, own)
        got = layer.combine(ids, gates)
        layer.check()
        assert got.shape == (live, columns) and near(got, parts)
        got = layer(x.bfloat16(), ids, gates, own)
        layer.check()
        assert got.shape == (live, columns) and near(got, parts)
    got = weft.register_torch_ops().moe_experts(x.bfloat16(), ids, gates, own, tokens, comm.name)
    assert near(got, parts)
    received, offsets = layer.dispatch(x.bfloat16(), ids)
    layer.check()
    first, expert = int(offsets[0]), rank * local
    came = torch.cat([matrix(r, tokens, hidden, 4)[: tokens - 3 * r][(routes(r) == expert).any(1)] for r in range(size)])
    unique = received[first : first + came.shape[0]].float()
    if all((routes(r) == expert).sum(1).max() <= 1 for r in range(size)):
        assert torch.equal(unique, came)
    wrong = ids.clone()
    wrong[0, 0] = experts
    layer.dispatch(x.bfloat16(), wrong if rank == 0 else ids)
    with pytest.raises(weft.Error, match="expert"):
        layer.check()
    torch.cuda.synchronize()
    comm.close()


def rank_fp8_experts(rank, size):
    """Few tokens and many, in fp8 with scales, also in a graph."""
    import torch

    import warpweft as weft

    comm = ranks.comm(rank)
    fp8, hidden, columns, experts, choices = torch.float8_e4m3fn, 128, 136, 4 * size, 2
    local = experts // size
    w = torch.stack([matrix(e, columns, hidden, 5) for e in range(experts)])
    of_w = 2.0 ** (torch.arange(experts * columns, device="cuda").view(experts, columns) % 3 - 1)
    own = slice(rank * local, (rank + 1) * local)
    for tokens in (8, 700):
        x = matrix(rank, tokens, hidden, 4)
        scales = 2.0 ** (torch.arange(tokens, device="cuda") % 4 - 2)
        ids = torch.stack([(torch.arange(tokens, device="cuda") * 3 + c * 5 + rank) % experts for c in range(choices)], 1).int()
        gates = (matrix(rank, tokens, choices, 6) + 5) / 8
        products = torch.einsum("th,tkch->tkc", x, w[ids.long()]) * of_w[ids.long()] * scales[:, None, None]
        parts = products * gates[..., None]
        layer = comm.moe(tokens, hidden, experts, choices, columns=columns, dtype=fp8)
        operands = (x.to(fp8), ids, gates, w[own].to(fp8).contiguous(), scales, of_w[own])
        got = layer(*operands)
        layer.check()
        assert got.dtype == torch.bfloat16 and near(got, parts)
        layer.experts(operands[0], ids, operands[3], scales, of_w[own])
        assert near(layer.combine(ids, gates), parts)
        graph = torch.cuda.CUDAGraph()
        with comm.capture(), torch.cuda.graph(graph):
            y = layer(*operands)
        for _ in range(3):
            graph.replay()
        layer.check()
        assert near(y, parts)
        received, offsets = layer.dispatch(operands[0], ids, scales)
        assert received.dtype == fp8 and (layer.received_scales[int(offsets[0])] > 0)
        with pytest.raises(weft.ArgumentError, match="scales"):
            layer(*operands[:4])
    torch.cuda.synchronize()
    comm.close()


RANKS = [
    "rank_all_gather",
    "rank_sums",
    "rank_scales",
    "rank_scaled_sums",
    "rank_uneven",
    "rank_experts",
    "rank_fp8_experts",
]


@pytest.mark.gpu
@pytest.mark.parametrize("function", RANKS)
def test_two_ranks(function):
    import warpweft._native as native

    if native.gpu_count() < 2:
        pytest.skip("the kernels of two ranks wait for each other, and need a GPU each")
    ranks.run(__file__, function)


def test_scales_without_a_gpu():
    """Which scales a product reads, by their shapes, and what is refused."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    import warpweft as weft
    from warpweft._matmul import Matmuls, rows_of

    comm = StandIn()
    comm.device = torch.device("cpu")
    products, n = Matmuls(comm), 24

    def scales(shape, dim, scale, of_b, gathers=True, counts=None):
        return products.scales(rows_of(torch.zeros(*shape, 256), dim, "A"), scale, of_b, n, gathers, counts)

    def numbered(*shape):
        return torch.arange(float(torch.Size(shape).numel())).view(shape)

    one, of_b = torch.ones(1, 1), numbered(1, n)
    # Those of this rank's rows, in the order of the matrix; StandIn is rank 1 of 4.
    kind, a, b = scales((3, 5), 1, numbered(3, 5, 1), of_b)
    assert kind == "rows" and a.tolist() == numbered(3, 5).t().reshape(-1).tolist() and b.tolist() == of_b[0].tolist()
    # Those of all ranks' rows.
    assert scales((3, 5), 1, numbered(3, 20, 1), of_b)[1].tolist() == numbered(3, 20)[:, 5:10].t().reshape(-1).tolist()
    assert scales((7,), 0, numbered(28), one)[1].tolist() == numbered(28)[7:14].tolist()
    uneven = scales((3, 5), 1, numbered(3, 11, 1), of_b, counts=(6, 15, 0, 12))
    assert uneven[1].tolist() == numbered(3, 11)[:, 2:7].t().reshape(-1).tolist()
    assert scales((3, 0), 1, numbered(3, 6, 1), of_b, counts=(6, 0, 0, 12))[1].numel() == 0
    # One scale; of ranks with one row all multiply by rows, since no rank can tell what its scale is of.
    assert scales((7,), 0, one, one)[0] == scales((1,), 0, one, one, gathers=False)[0] == "matrices"
    assert scales((1,), 0, one, one)[0] == scales((7,), 0, one, one, counts=(1, 7, 4, 4))[0] == "rows"
    assert scales((7,), 0, one * 3, of_b)[1].tolist() == [3.0] * 7
    assert scales((7,), 0, numbered(7, 2), torch.ones(2, 1))[0] == "blocks"
    for wrong, expected in (((5, 3, 1), r"\(3, 5, 1\)"), ((15,), r"\(3, 20, 1\)"), ((3, 10, 1), r"\(3, 5, 2\)")):
        with pytest.raises(weft.ArgumentError, match=expected):
            scales((3, 5), 1, numbered(*wrong), of_b)
    with pytest.raises(weft.ArgumentError, match="of A have shape"):
        scales((7,), 0, numbered(28, 1), of_b, gathers=False)
    with pytest.raises(weft.ArgumentError, match=r"\(1, 24\)"):
        scales((7,), 0, one, numbered(n, 1))
    with pytest.raises(weft.ArgumentError, match="move them to cpu"):
        scales((7,), 0, one.to("meta"), one)


def test_scaled_sums_without_a_gpu(monkeypatch):
    """Scales reach the rows that they belong to, with arithmetic in f32 in the place of the kernels."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    import warpweft as weft
    from warpweft._matmul import Matmuls

    comm = StandIn()
    comm.device = torch.device("cpu")
    comm._matmuls = Matmuls(comm)

    def run(form, a, b, out, epilogue, more, counts=None):
        assert epilogue.scales == "rows" and out == torch.float32
        product = (a.float() * more["scale_a"][:, None]) @ (b.float() * more["scale_b"])
        own = product.shape[0] // comm.size
        return (product[comm.rank * own :][:own] if form == "matmul_reduce_scatter" else product), None

    monkeypatch.setattr(comm._matmuls, "run", run)
    fp8, out = torch.float8_e4m3fn, torch.float32
    a = ((torch.arange(3 * 8 * 64) * 7 % 9) - 4.0).view(3, 8, 64)
    b = ((torch.arange(64 * 32) * 5 % 7) - 3.0).view(64, 32)
    of_a, of_b = 2.0 ** (torch.arange(24.0) % 5 - 2).view(3, 8, 1), 2.0 ** (torch.arange(32.0) % 3)[None, :]
    want = (a * of_a) @ (b * of_b)
    x, w = a.to(fp8), b.to(fp8)
    assert torch.equal(weft.Comm.gemm_all_reduce(comm, x, w, A_scale=of_a, B_scale=of_b, out_dtype=out), want)
    scatter = weft.Comm.fused_scaled_matmul_reduce_scatter
    assert torch.equal(scatter(comm, x, w, of_a, of_b, "sum", 1, 1, None, out_dtype=out), want[:, 2:4])
    flat, scales, shape = x.view(24, 64), of_a.view(24, 1), (3, 8, 32)
    for given in (scales, scales[:, 0]):
        assert torch.equal(scatter(comm, flat, w, given, of_b, "sum", 1, 0, shape, out_dtype=out), want[:, 2:4])
    with pytest.raises(weft.ArgumentError, match=r"\(3, 8, 1\)"):
        scatter(comm, flat, w, scales[:23], of_b, "sum", 1, 0, shape, out_dtype=out)
    with pytest.raises(weft.ArgumentError, match="both A_scale and B_scale"):
        weft.Comm.gemm_all_reduce(comm, x, w, B_scale=of_b)
    with pytest.raises(weft.ArgumentError, match="B_scales has 2 elements"):
        comm._matmuls.all_gather(x, [w], 0, [out], (of_a, [of_b, of_b]), [None], True)


def test_operators_without_a_gpu():
    """What a trace assumes: shapes and types, of tensors that have no memory."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not hasattr(torch._C, "_cuda_getCurrentRawStream"):
        pytest.skip("this PyTorch was built without CUDA")
    from torch._subclasses.fake_tensor import FakeTensorMode

    import warpweft as weft
    from warpweft import ops as module

    ops = weft.register_torch_ops()
    comm = StandIn()
    module._COMMS[comm.name] = comm
    with FakeTensorMode():
        a, b = torch.empty(6, 8, 64, dtype=torch.bfloat16, device="cuda"), torch.empty(64, 32, device="cuda")
        whole, results = ops.fused_all_gather_matmul(a, [b, b], 1, comm.name)
        assert whole.shape == (6, 32, 64) and [r.shape for r in results] == [(6, 32, 32)] * 2
        whole, _ = ops.fused_all_gather_matmul(a, [b], 0, comm.name, return_A=False)
        assert whole is None
        whole, _ = ops.fused_all_gather_matmul(a, [b], 1, comm.name, rows=[8, 8, 0, 3])
        assert whole.shape == (6, 19, 64)
        part = ops.fused_matmul_reduce_scatter(a, b, "sum", 1, comm.name, rows=[2, 5, 0, 1])
        assert part.shape == (6, 5, 32)
        part = ops.fused_matmul_reduce_scatter(a, b, "sum", 1, comm.name)
        assert part.shape == (6, 2, 32) and part.dtype == torch.bfloat16
        fp8 = a.to(torch.float8_e4m3fn)
        scale = torch.empty(1, device="cuda")
        out = [torch.bfloat16]
        scaled = (fp8, [b.to(fp8.dtype)], scale, [scale], 0, comm.name, [None], [None], out, [False])
        _, results = ops.fused_all_gather_scaled_matmul(*scaled)
        assert results[0].shape == (24, 8, 32) and results[0].dtype == torch.bfloat16
        flat = fp8.reshape(48, 64)
        more = ("sum", 1, 0, comm.name, [6, 8, 32], None, None, torch.bfloat16)
        part = ops.fused_scaled_matmul_reduce_scatter(flat, b.to(fp8.dtype), scale, scale, *more)
        assert part.shape == (6, 2, 32) and part.dtype == torch.bfloat16
        assert ops.gemm_all_reduce(a, b, comm.name, activation="relu").shape == (6, 8, 32)
        of_rows, of_columns = torch.empty(6, 8, 1, device="cuda"), torch.empty(1, 32, device="cuda")
        operands = (fp8, b.to(fp8.dtype), comm.name)
        y = ops.gemm_all_reduce(*operands, A_scale=of_rows, B_scale=of_columns, out_dtype=torch.bfloat16)
        assert y.shape == (6, 8, 32) and y.dtype == torch.bfloat16
        assert ops.gemm_all_reduce(*operands, A_scale=of_rows, B_scale=of_columns).dtype == fp8.dtype
        x, ids = torch.empty(10, 64, dtype=torch.bfloat16, device="cuda"), torch.empty(10, 2, dtype=torch.int32, device="cuda")
        received, offsets = ops.moe_dispatch(x, ids, 8, 16, comm.name)
        assert received.shape == (4 * 16 * 2 + 2 * 127, 64) and offsets.shape == (3,)
        gates = torch.empty(10, 2, device="cuda")
        assert ops.moe_combine(received, x, ids, gates, 8, 16, comm.name).shape == (10, 64)
        w = torch.empty(2, 48, 64, dtype=torch.bfloat16, device="cuda")
        assert ops.moe_experts(x, ids, gates, w, 16, comm.name).shape == (10, 48)
        scales = torch.empty(10, device="cuda")
        received, of_rows, _ = ops.moe_dispatch_scaled(x.to(fp8.dtype), scales, ids, 8, 16, comm.name)
        assert received.dtype == fp8.dtype and of_rows.shape == (received.shape[0],)
        scaled = (x.to(fp8.dtype), ids, gates, w.to(fp8.dtype), 16, comm.name)
        y = ops.moe_experts(*scaled, scales=scales, scale_b=torch.empty(2, 48, device="cuda"))
        assert y.shape == (10, 48) and y.dtype == torch.bfloat16
