"""Runs a function of a test file in a process for each rank: on a GPU of its own, or all on one GPU."""

import faulthandler
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


def run(file, function, size=2, limit=120, expect=0, env=None):
    """Run ``function(rank, size)`` in ``size`` processes. Return their outputs.

    ``expect`` is the exit status, or one for each rank. A rank that is not done after ``limit`` seconds is killed.
    """
    import warpweft._native as native

    paths = os.pathsep.join([str(HERE.parent), str(HERE)])
    environment = {**os.environ, "PYTHONPATH": paths, "WEFT_TIMEOUT": "60", **(env or {})}
    if native.gpu_count() < size:
        environment["WEFT_SHARE_GPU"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, str(HERE / "ranks.py"), str(file), function]
        children = []
        for rank in range(size):
            own = {
                "RANK": str(rank),
                "WORLD_SIZE": str(size),
                "LOCAL_RANK": str(rank),
                "STORE": f"{folder}/store",
                "LIMIT": str(limit),
            }
            output = open(f"{folder}/{rank}", "w+")
            child = subprocess.Popen(words, env={**environment, **own}, stdout=output, stderr=subprocess.STDOUT)
            children.append((child, output))
        deadline = time.monotonic() + limit
        try:
            for child, _ in children:
                child.wait(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        finally:
            for child, _ in children:
                if child.poll() is None:
                    child.kill()
                    child.wait()
        texts = []
        for _, output in children:
            output.seek(0)
            texts.append(output.read())
            output.close()
    wanted = [expect] * size if isinstance(expect, int) else list(expect)
    got = [child.returncode for child, _ in children]
    assert got == wanted, "\n".join(f"rank {r}, status {s}:\n{t[-4000:]}" for r, (s, t) in enumerate(zip(got, texts)))
    return texts


def device(rank):
    """Return the GPU of a rank."""
    import torch

    index = rank % torch.cuda.device_count()
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def group():
    """Start torch.distributed over a file."""
    import torch.distributed as dist

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=size)
    return dist.group.WORLD


def comm(rank, **options):
    """Make a communicator of all ranks."""
    import warpweft as weft

    share = os.environ.get("WEFT_SHARE_GPU") == "1"
    return weft.Comm.from_process_group(group(), device(rank), share_gpu=share, **options)


def main():
    # A rank that is late says where it is.
    faulthandler.dump_traceback_later(float(os.environ["LIMIT"]) - 10, exit=True)
    file, function = sys.argv[1:3]
    spec = importlib.util.spec_from_file_location("ranked", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    getattr(module, function)(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))


if __name__ == "__main__":
    main()
