"""The adapters inside a stand-in that makes the engines' calls in their order."""

import pytest
import ranks

pytestmark = pytest.mark.gpu


class Engine:
    """An engine's allreduce layer: its own communicator first, and a fallback behind it, as vLLM's and SGLang's are."""

    def __init__(self, comm, group):
        self.comm, self.group, self.fallbacks = comm, group, 0

    def all_reduce(self, x):
        if not self.comm.disabled and self.comm.should_custom_ar(x):
            out = self.comm.custom_all_reduce(x)
            assert out is not None
            return out
        import torch.distributed as dist

        self.fallbacks += 1
        y = x.cpu()
        dist.all_reduce(y, group=self.group)
        return y.to(x.device)


def drive(engine, rank, size):
    """Warm up, capture, replay, odd sizes, shutdown."""
    import torch

    def data(n, seed=0):
        return ((torch.arange(n, device="cuda") * 3 + rank * 7 + seed) % 17).to(torch.bfloat16)

    def want(n, seed=0):
        return sum(((torch.arange(n, device="cuda") * 3 + r * 7 + seed) % 17) for r in range(size)).to(torch.bfloat16)

    hidden, batches = 1024, (8, 4, 2, 1)
    static = {b: torch.zeros(b * hidden, dtype=torch.bfloat16, device="cuda") for b in batches}
    graphs = {}
    stream = torch.cuda.Stream()
    # vLLM and SGLang: capture() around all sizes, each with a warm-up before its graph.
    with torch.cuda.stream(stream), engine.comm.capture():
        for b in batches:
            engine.all_reduce(static[b])
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                out = engine.all_reduce(static[b])
                out = engine.all_reduce(out)
            graphs[b] = (graph, out)
    torch.cuda.synchronize()
    for seed in range(4):
        for b in batches:
            static[b].copy_(data(b * hidden, seed))
            graphs[b][0].replay()
            torch.cuda.synchronize()
            assert torch.equal(graphs[b][1], want(b * hidden, seed) * size)
    before = engine.fallbacks
    for n in (1, 3, 1000, 1023, 123457):  # prefill: no graph, any size
        assert torch.equal(engine.all_reduce(data(n)), want(n)), n
    assert engine.fallbacks == before
    big = data(engine.comm.comm.max_bytes // 2 + 8)
    assert torch.equal(engine.all_reduce(big), want(big.numel())) and engine.fallbacks == before + 1
    view = data(4096).view(64, 64).t()
    assert torch.equal(engine.all_reduce(view), want(4096).view(64, 64).t()) and engine.fallbacks == before + 2
    torch.cuda.synchronize()
    engine.comm.close()
    engine.comm.close()
    assert engine.comm.disabled


def rank_vllm(rank, size):
    import warpweft.vllm

    group, device = ranks.group(), ranks.device(rank)
    comm = warpweft.vllm.CustomAllreduce(group=group, device=device, max_size=1 << 20, symm_mem_enabled=False)
    assert not comm.disabled, comm.why_disabled
    drive(Engine(comm, group), rank, size)


def rank_sglang(rank, size):
    import warpweft.sglang

    group, device = ranks.group(), ranks.device(rank)
    comm = warpweft.sglang.CustomAllreduce(group, device, max_pull_size=1 << 20, max_push_size=1 << 18)
    assert not comm.disabled, comm.why_disabled
    fused(comm, rank, size)
    drive(Engine(comm, group), rank, size)


def fused(comm, rank, size):
    """SGLang's call for what follows a row-parallel layer; None sends it to its other ways."""
    import torch

    def data(r, seed):
        return ((torch.arange(4096, device="cuda") * 3 + r * 7 + seed) % 17 - 8).to(torch.bfloat16).view(4, 1024)

    weight = torch.ones(1024, dtype=torch.bfloat16, device="cuda")
    for seed in range(2):
        residual = data(9, seed)
        norm, new = comm.fused_allreduce_rmsnorm(data(rank, seed), residual, weight, 1e-5)
        want = sum(data(r, seed).float() for r in range(size)) + residual.float()
        assert torch.equal(new.float(), want)
        want = want * torch.rsqrt(want.pow(2).mean(-1, keepdim=True) + 1e-5)
        torch.testing.assert_close(norm.float(), want, rtol=1e-2, atol=1e-3)
    for other in (data(rank, 0).float(), data(rank, 0)[0], data(rank, 0).t()):
        assert comm.fused_allreduce_rmsnorm(other, other, weight, 1e-5) is None


@pytest.mark.parametrize("function", ["rank_vllm", "rank_sglang"])
def test_an_engine_works(function):
    ranks.run(__file__, function)
