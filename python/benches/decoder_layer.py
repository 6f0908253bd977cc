"""A decoder layer's tail under torch.compile: row-parallel linear, allreduce, residual, RMSNorm.

    torchrun --nproc-per-node 2 benches/decoder_layer.py

Contenders are our fused operator, our allreduce with PyTorch's norm, and NCCL with PyTorch's norm (two GPUs). Rounds draw
their order anew; medians in microseconds of the GPU, by graphs of 20 layers, are printed by rank 0.
"""

import os
import random
import statistics


def main():
    import torch
    import torch.distributed as dist

    import warpweft as weft

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    shared = os.environ.get("WEFT_SHARE_GPU") == "1"
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("gloo" if shared else "cpu:gloo,cuda:nccl", rank=rank, world_size=size)
    comm = weft.Comm.from_process_group(None, torch.cuda.current_device(), share_gpu=shared)
    ops = weft.register_torch_ops()
    hidden, inner, layers = 4096, 14336 // size, 2 if shared else 20
    weight = torch.randn(hidden, inner, device="cuda", dtype=torch.bfloat16) / inner**0.5
    gamma = torch.ones(hidden, device="cuda", dtype=torch.bfloat16)

    def norm(x, residual):
        total = x + residual
        return torch.nn.functional.rms_norm(total, (hidden,), gamma, 1e-5), total

    def fused(h, residual):
        return weft.fused_allreduce_add_rmsnorm(torch.nn.functional.linear(h, weight), residual, gamma, 1e-5, comm)

    def plain(h, residual):
        return norm(ops.all_reduce(torch.nn.functional.linear(h, weight), comm.name), residual)

    contenders = {"ours, fused": fused, "ours, and PyTorch's norm": plain}
    if not shared:
        import torch.distributed._functional_collectives as functional

        group = dist.new_group(backend="nccl")

        def nccl(h, residual):
            return norm(functional.all_reduce(torch.nn.functional.linear(h, weight), "sum", group), residual)

        contenders["NCCL, and PyTorch's norm"] = nccl
    for tokens in (1, 8, 32, 128):
        h = torch.randn(tokens, inner, device="cuda", dtype=torch.bfloat16)
        residual = torch.randn(tokens, hidden, device="cuda", dtype=torch.bfloat16)
        graphs = {}
        for name, body in contenders.items():
            compiled = torch.compile(body, fullgraph=True, dynamic=False)
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream), comm.capture():
                for _ in range(3):
                    compiled(h, residual)
            torch.cuda.synchronize()
            comm.barrier()
            graph = torch.cuda.CUDAGraph()
            with comm.capture(), torch.cuda.graph(graph):
                for _ in range(layers):
                    compiled(h, residual)
            graphs[name] = graph
        times = {name: [] for name in graphs}
        order = random.Random(tokens)
        for round in range(3 if shared else 60):
            names = list(graphs)
            order.shuffle(names)
            for name in names:
                comm.barrier()
                begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                begin.record()
                graphs[name].replay()
                end.record()
                torch.cuda.synchronize()
                if round >= 2:
                    times[name].append(1e3 * begin.elapsed_time(end) / layers)
        if rank == 0:
            for name, column in times.items():
                print(f"{tokens:>4} tokens  {name:<28} {statistics.median(column):10.2f} us a layer")
    comm.barrier()
    comm.close()


if __name__ == "__main__":
    main()
