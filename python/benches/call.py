"""Host time of one allreduce from Python, and time to the first launch.

    torchrun --nproc-per-node 2 benches/call.py          two GPUs, beside NCCL and PyTorch's symmetric memory
    WEFT_SHARE_GPU=1 torchrun --nproc-per-node 2 ...      both ranks on one GPU: ours alone

Each round times a burst of calls of every contender, in an order drawn anew. Medians over the rounds, in microseconds of
the host, are printed by rank 0.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time

#: A kernel of a line, and the two-shot allreduce, each as no cache has it.
SCALE = """
kernel first<N: int>(x: global<f32, (N):(1)>) block(128) {
    let mine = partition(x, threads());
    for i in 0..size<1>(mine) { mine[_, i] = mine[_, i] * SALT.0; }
}
"""
ALLREDUCE = """
use weft::collectives;
kernel first<T: dtype = bf16, N: int>(x: symm<T, (N):(1)>, sync: barrier, team: team) block(512) {
    let mine = shard(multicast(x, team), team, my_pe(team));
    let work = partition(mine, threads());
    barrier(sync, team, acq_rel, sys);
    for i in 0..size<1>(work) unroll(4) { work[_, i] = ld_reduce<add, acc = f32>(work[_, i]); }
    barrier(sync, team, acq_rel, sys);
}
"""

#: A process that compiles a kernel that no cache has, and launches it: alone on its GPU, or in a world of one PE.
COLD = """
import sys, time
import torch
torch.cuda.init()
x = torch.zeros(int(sys.argv[2]), device="cuda")
torch.cuda.synchronize()
began = time.perf_counter()
import warpweft as weft
imported = time.perf_counter()
arguments = (x,)
if "team" in sys.argv[1]:
    world = weft.World.local(0, 1)
    arguments = (world.tensor(int(sys.argv[2]), "bf16"), world.barrier(), world.team)
    torch.cuda.synchronize()
ready = time.perf_counter()
kernel = weft.compile(sys.argv[1], N=int(sys.argv[2]))
compiled = time.perf_counter()
kernel[1](*arguments)
launched = time.perf_counter()
torch.cuda.synchronize()
print(imported - began, compiled - ready, launched - compiled, launched - ready)
"""


def cold(kind, kernel, rounds):
    times = []
    for _ in range(rounds):
        text, n = kernel.replace("SALT", str(random.randrange(2, 1 << 20))), 2 * random.randrange(1000, 1 << 16)
        with tempfile.TemporaryDirectory() as cache:
            os.chmod(cache, 0o700)
            done = subprocess.run(
                [sys.executable, "-c", COLD, text, str(n)],
                env={**os.environ, "WEFT_CACHE": cache, "CUDA_CACHE_DISABLE": "1"},
                capture_output=True,
                text=True,
                check=True,
            )
        times.append([1e3 * float(t) for t in done.stdout.split()])
    names = ("import", "weft.compile", "launch", "text to launched")
    for name, column in zip(names, zip(*times)):
        print(f"cold, {kind + ',':<10} {name:<18} {statistics.median(column):8.1f} ms   (least {min(column):.1f})")


def contenders(comm, x, shared):
    import torch
    import torch.distributed as dist

    out = torch.empty_like(x)
    native, code = comm._native, 0
    from warpweft.comm import _REDUCED

    code = _REDUCED[x.dtype]
    src, dst, n = x.data_ptr(), out.data_ptr(), x.numel()
    stream = torch.cuda.current_stream().cuda_stream
    y = torch.empty_like(x)
    calls = {
        "all_reduce": lambda: comm.all_reduce(x),
        "all_reduce, out=": lambda: comm.all_reduce(x, out=out),
        "part in Rust": lambda: native.all_reduce(stream, src, dst, n, code, 0),
        "torch.add": lambda: torch.add(x, x),
        "torch.add, out=": lambda: torch.add(x, x, out=y),
    }
    if not shared:
        nccl = dist.new_group(backend="nccl")
        calls["NCCL"] = lambda: dist.all_reduce(out, group=nccl)
        try:
            import torch.distributed._symmetric_memory as symm

            name = dist.group.WORLD.group_name
            memory = symm.empty(x.shape, dtype=x.dtype, device=x.device)
            symm.rendezvous(memory, name)
            calls["symm_mem one-shot"] = lambda: torch.ops.symm_mem.one_shot_all_reduce(memory, "sum", name)
        except (ImportError, RuntimeError) as e:
            print(f"symm_mem: {e}")
    return calls


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--bytes", type=int, default=8192)
    arguments.add_argument("--calls", type=int, default=50)
    arguments.add_argument("--rounds", type=int, default=100)
    arguments.add_argument("--cold", type=int, default=5)
    a = arguments.parse_args()
    import torch
    import torch.distributed as dist

    import warpweft as weft

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    shared = os.environ.get("WEFT_SHARE_GPU") == "1"
    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("cpu:gloo,cuda:nccl" if not shared else "gloo", rank=rank, world_size=size)
    comm = weft.Comm.from_process_group(None, torch.cuda.current_device(), share_gpu=shared)
    x = torch.ones(a.bytes // 2, dtype=torch.bfloat16, device="cuda")
    calls = contenders(comm, x, shared)
    times = {name: [] for name in calls}
    order = random.Random(1)
    for round in range(a.rounds + 3):
        names = list(calls)
        order.shuffle(names)
        for name in names:
            call = calls[name]
            comm.barrier()
            began = time.perf_counter()
            for _ in range(a.calls):
                call()
            took = time.perf_counter() - began
            torch.cuda.synchronize()
            if round >= 3:
                times[name].append(1e6 * took / a.calls)
    if rank == 0:
        for name, column in times.items():
            quarter = statistics.quantiles(column, n=4)
            print(f"{name:<20} {quarter[1]:8.2f} us   ({quarter[0]:.2f} to {quarter[2]:.2f})")
        cold("scale", SCALE, a.cold)
        cold("allreduce", ALLREDUCE, a.cold)
    comm.barrier()
    comm.close()


if __name__ == "__main__":
    main()
