"""The communicator on GPUs, with a process for each rank."""

import os
import threading
import time

import pytest
import ranks

pytestmark = pytest.mark.gpu


def data(rank, n, dtype, seed=0):
    """Integers that every type adds exactly; they depend on rank, index and iteration."""
    import torch

    index = torch.arange(n, device="cuda")
    return ((index * 7 + rank * 13 + seed * 5) % 23 - 11).to(dtype)


def rank_all_reduce(rank, size):
    import torch

    import warpweft as weft

    comm = ranks.comm(rank, max_bytes=8 << 20)
    assert not comm.disabled and (comm.rank, comm.size) == (rank, size)
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int32):
        for n in (1, 7, 1000, 4096, 65537, 1 << 20):
            for seed in range(2):
                x = data(rank, n, dtype, seed)
                want = sum(data(r, n, dtype, seed) for r in range(size))
                assert comm.should_all_reduce(x)
                y = comm.all_reduce(x)
                assert torch.equal(y, want), (dtype, n, seed)
                assert torch.equal(x, data(rank, n, dtype, seed))
                assert comm.all_reduce(x, out=x) is x and torch.equal(x, want)
    x = data(rank, 1000, torch.float32)
    assert torch.equal(comm.all_reduce(x, op="max"), torch.stack([data(r, 1000, torch.float32) for r in range(size)]).amax(0))
    shaped = data(rank, 24, torch.float32).view(2, 3, 4)
    assert comm.all_reduce(shaped).shape == (2, 3, 4)
    gathered = comm.all_gather(shaped)
    assert torch.equal(gathered, torch.cat([data(r, 24, torch.float32).view(2, 3, 4) for r in range(size)]))
    whole = data(rank, 48 * size, torch.float32).view(2 * size, 24)
    total = sum(data(r, 48 * size, torch.float32) for r in range(size)).view(2 * size, 24)
    assert torch.equal(comm.reduce_scatter(whole), total[2 * rank : 2 * rank + 2])
    # Another stream, ordered by an event.
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = comm.all_reduce(shaped)
    torch.cuda.current_stream().wait_stream(stream)
    assert torch.equal(y.flatten(), sum(data(r, 24, torch.float32) for r in range(size)))
    torch.cuda.synchronize()
    comm.close()
    comm.close()
    assert comm.disabled
    with pytest.raises(weft.Closed):
        comm.all_reduce(x)


def rank_memory(rank, size):
    import torch

    comm = ranks.comm(rank)
    x = comm.empty((64, 32), torch.bfloat16)
    assert x.shape == (64, 32) and not x.any()
    x.copy_(data(rank, 2048, torch.bfloat16).view(64, 32))
    y = comm.empty((64, 32), torch.bfloat16)
    want = sum(data(r, 2048, torch.bfloat16) for r in range(size)).view(64, 32)
    for _ in range(3):
        assert torch.equal(comm.all_reduce(x, out=y), want)
    part = x[8:16]
    assert torch.equal(comm.all_reduce(part), want[8:16])
    assert torch.equal(comm.all_reduce(x, out=x), want)
    with torch.cuda.use_mem_pool(comm.mempool()):
        pooled = torch.full((1 << 20,), float(rank + 1), device="cuda")
    assert (comm.all_reduce(pooled) == size * (size + 1) / 2).all()
    registered = torch.full((4 << 20,), float(rank), device="cuda")
    kept = comm.register(registered)
    assert kept.nbytes == 16 << 20
    assert (comm.all_reduce(registered) == size * (size - 1) / 2).all()
    torch.cuda.synchronize()
    comm.close()


def rank_graphs(rank, size):
    import torch

    import warpweft as weft

    comm = ranks.comm(rank)
    x = data(rank, 4096, torch.bfloat16)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream), comm.capture():
        comm.all_reduce(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with comm.capture(), torch.cuda.graph(graph):
        y = comm.all_reduce(x)
        z = comm.all_reduce(y)
    for seed in range(3):
        x.copy_(data(rank, 4096, torch.bfloat16, seed))
        graph.replay()
        torch.cuda.synchronize()
        want = sum(data(r, 4096, torch.bfloat16, seed) for r in range(size))
        assert torch.equal(y, want) and torch.equal(z, want * size)
    other = torch.cuda.CUDAGraph()
    with pytest.raises(weft.ArgumentError, match="capture"):
        with torch.cuda.graph(other):
            comm.all_reduce(x)
    torch.cuda.synchronize()
    comm.barrier()
    comm.close()


def norm(x, weight, eps):
    import torch

    x = x.float()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight.float()


def rank_fused(rank, size):
    import torch

    import warpweft as weft

    comm = ranks.comm(rank)
    hidden = 512
    weight = (data(0, hidden, torch.float32) / 8).to(torch.bfloat16)
    for tokens in (1, 2, 16, 128, 1000):
        x = data(rank, tokens * hidden, torch.bfloat16, tokens).view(tokens, hidden)
        residual = data(9, tokens * hidden, torch.bfloat16, tokens).view(tokens, hidden)
        total = sum(data(r, tokens * hidden, torch.float32, tokens) for r in range(size)).view(tokens, hidden)
        want = total + residual.float()
        before = residual.clone()
        out, new = comm.fused_allreduce_add_rmsnorm(x, residual, weight, 1e-5)
        assert torch.equal(new.float(), want) and torch.equal(residual, before)
        torch.testing.assert_close(out.float(), norm(want, weight, 1e-5), rtol=2e-2, atol=2e-2)
        out, same = comm.fused_allreduce_add_rmsnorm(x, residual, weight, 1e-5, residual_out=residual, weight_bias=1.0)
        assert same is residual and torch.equal(residual.float(), want)
        torch.testing.assert_close(out.float(), norm(want, weight.float() + 1, 1e-5), rtol=2e-2, atol=3e-2)
    with pytest.raises(weft.ArgumentError, match="quant_out is"):
        comm.fused_allreduce_add_rmsnorm(x, residual, weight, quant_out=x)
    with pytest.raises(weft.ArgumentError, match="rms_gamma"):
        comm.fused_allreduce_add_rmsnorm(x, residual, weight[1:])
    with pytest.raises(weft.ArgumentError, match="float32"):
        comm.fused_allreduce_add_rmsnorm(x.float(), residual, weight)
    with pytest.raises(weft.ArgumentError, match="at least one element"):
        comm.fused_allreduce_add_rmsnorm(x[:4, :0].contiguous(), residual[:4, :0].contiguous(), weight[:0])
    torch.cuda.synchronize()
    comm.close()


def rank_fused_in_batches(rank, size):
    import torch

    comm = ranks.comm(rank, sums="deterministic")
    hidden, most = 4096, 300
    weight = (data(0, hidden, torch.float32) / 8).to(torch.bfloat16)
    x = (data(rank, most * hidden, torch.float32, 3) / 7).to(torch.bfloat16).view(most, hidden)
    residual = (data(9, most * hidden, torch.float32, 4) / 3).to(torch.bfloat16).view(most, hidden)
    whole, new = comm.fused_allreduce_add_rmsnorm(x, residual, weight, 1e-5)
    for tokens in (1, 3, 8, 64, 257):
        out, part = comm.fused_allreduce_add_rmsnorm(x[:tokens], residual[:tokens], weight, 1e-5)
        assert torch.equal(out, whole[:tokens]) and torch.equal(part, new[:tokens]), tokens
    torch.cuda.synchronize()
    comm.close()


def rank_operators(rank, size):
    import torch

    import warpweft as weft

    comm = ranks.comm(rank)
    ops = weft.register_torch_ops()
    x = data(rank, 1024, torch.float32)
    want = sum(data(r, 1024, torch.float32) for r in range(size))
    assert torch.equal(ops.all_reduce(x, comm.name), want)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def layer(x, residual, weight):
        y, new = weft.fused_allreduce_add_rmsnorm(x * 2, residual, weight, 1e-5, comm)
        return ops.all_reduce(y, comm.name), new

    weight = torch.ones(512, dtype=torch.bfloat16, device="cuda")
    h = data(rank, 2048, torch.bfloat16).view(4, 512)
    residual = data(5, 2048, torch.bfloat16).view(4, 512)
    y, new = layer(h, residual, weight)
    total = sum(data(r, 2048, torch.float32) * 2 for r in range(size)).view(4, 512) + residual.float()
    assert torch.equal(new.float(), total)
    torch.testing.assert_close(y.float(), norm(total, weight, 1e-5) * size, rtol=2e-2, atol=2e-2 * size)
    # Gradients: of the sum over ranks, of a part, and of all parts.
    for name, factor in (("all_reduce", None), ("all_gather", None), ("reduce_scatter", None)):
        leaf = data(rank, 64, torch.float32).requires_grad_()
        out = getattr(ops, name)(leaf * 3, comm.name)
        weights = torch.arange(out.numel(), device="cuda", dtype=torch.float32) + rank
        (out * weights).sum().backward()
        mine = torch.arange(64, device="cuda", dtype=torch.float32)
        if name == "all_reduce":
            grad = 3 * sum(mine + r for r in range(size))
        elif name == "all_gather":
            grad = 3 * sum(mine + 64 * rank + r for r in range(size))
        else:
            part = torch.arange(64 // size, device="cuda", dtype=torch.float32)
            grad = 3 * torch.cat([part + r for r in range(size)])
        assert torch.equal(leaf.grad, grad), name
        assert factor is None
    torch.library.opcheck(ops.all_reduce, (x, comm.name), test_utils=("test_schema", "test_faketensor"))
    torch.cuda.synchronize()
    comm.close()


def rank_bad_input(rank, size):
    import torch

    import warpweft as weft

    comm = ranks.comm(rank, max_bytes=1 << 20)
    x = data(rank, 1024, torch.float32)
    strided = data(rank, 2048, torch.float32).view(32, 64)[:, ::2]
    cases = [
        (x.cpu(), "is on cpu"),
        (x.to(torch.complex64), "complex64"),
        (strided, "contiguous"),
        (data(rank, 1 << 19, torch.float32), "at most"),
        (data(rank, 1025, torch.float32)[1:], "multiple of 16"),
    ]
    for wrong, match in cases:
        assert not comm.should_all_reduce(wrong)
        with pytest.raises(weft.ArgumentError, match=match):
            comm.all_reduce(wrong)
    with pytest.raises(weft.TooLarge):
        comm.all_reduce(cases[3][0])
    with pytest.raises(TypeError, match="list"):
        comm.all_reduce([1.0])
    for out, match in ((x[:5], "out is"), (x.half(), "out is"), (x.cpu(), "cpu")):
        with pytest.raises(weft.ArgumentError, match=match):
            comm.all_reduce(x, out=out)
    with pytest.raises(weft.ArgumentError, match="average"):
        comm.all_reduce(x, op="average")
    with pytest.raises(weft.ArgumentError, match="multiple of 2"):
        comm.reduce_scatter(data(rank, 1023, torch.float32))
    # Two threads at the same time; one of them is told.
    comm._busy = True
    with pytest.raises(weft.ArgumentError, match="two threads"):
        comm.all_reduce(x)
    comm._busy = False
    # After all that, the communicator works.
    assert torch.equal(comm.all_reduce(x), sum(data(r, 1024, torch.float32) for r in range(size)))
    torch.cuda.synchronize()
    # A child of fork is told, and the parent goes on.
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            comm.all_reduce(x)
            os.write(write, b"no error")
        except BaseException as e:
            os.write(write, f"{type(e).__name__}: {e}".encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    told = os.read(read, 1000)
    assert told.startswith(b"Closed") and b"fork" in told, told
    assert torch.equal(comm.all_reduce(x), sum(data(r, 1024, torch.float32) for r in range(size)))
    torch.cuda.synchronize()
    other = weft.Comm(rank, size, both(rank), comm.device, share_gpu=os.environ.get("WEFT_SHARE_GPU") == "1")
    assert torch.equal(other.all_reduce(x), comm.all_reduce(x))
    torch.cuda.synchronize()
    other.close()
    comm.close()


def both(rank):
    """An id that all ranks have."""
    import torch.distributed as dist

    import warpweft as weft

    told = [weft.random_id() if rank == 0 else None]
    dist.broadcast_object_list(told, src=0)
    return told[0]


def rank_death(rank, size):
    import torch

    import warpweft as weft

    comm = ranks.comm(rank, timeout=20.0)
    comm.all_reduce(data(rank, 64, torch.float32))
    torch.cuda.synchronize()
    if rank == 1:
        os._exit(9)
    began = time.monotonic()
    with pytest.raises(weft.Error) as caught:
        while True:
            comm.barrier()
            time.sleep(0.01)
    assert isinstance(caught.value, (weft.PeerDied, weft.Disagreement)) and time.monotonic() - began < 25
    assert comm.disabled
    os._exit(0)


def rank_hosts(rank, size):
    import socket

    import warpweft as weft

    group, device = ranks.group(), ranks.device(rank)
    if rank:
        socket.gethostname = lambda: "elsewhere"
    with pytest.raises(weft.NotSupported, match="2 hosts"):
        weft.Comm.from_process_group(group, device)


def rank_interrupt(rank, size):
    import signal

    comm = ranks.comm(rank)
    if rank == 0:
        threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            comm.barrier()  # rank 1 comes later
        assert time.monotonic() - began < 10
    else:
        time.sleep(4)
    os._exit(0)


@pytest.mark.parametrize(
    "function",
    [
        "rank_all_reduce",
        "rank_memory",
        "rank_graphs",
        "rank_fused",
        "rank_fused_in_batches",
        "rank_operators",
        "rank_bad_input",
        "rank_hosts",
        "rank_interrupt",
    ],
)
def test_two_ranks(function):
    ranks.run(__file__, function)


def test_a_death_is_an_exception():
    ranks.run(__file__, "rank_death", expect=[0, 9])


def test_three_ranks():
    ranks.run(__file__, "rank_all_reduce", size=3)


def test_a_process_group_is_needed():
    import warpweft as weft

    with pytest.raises(weft.ArgumentError, match="init_process_group"):
        weft.Comm.from_process_group(None, 0)
