"""Worlds, tensors and kernels on GPUs, with a process for each PE; and kernels on one GPU without a world."""

import os

import pytest
import ranks

pytestmark = pytest.mark.gpu

SHIFT = """
kernel shift<N: int>(x: symm<f32, (N):(1)>, out: global<f32, (N):(1)>, sync: barrier, team: team) block(256) {
    barrier(sync, team, acq_rel, sys);
    let from = partition(peer(x, (my_pe(team) + 1) % n_pes(team)), threads());
    let to = partition(out, threads());
    for i in 0..size<1>(to) { to[_, i] = from[_, i] * 2.0; }
    barrier(sync, team, acq_rel, sys);
}
"""

SCALE = """
kernel scale<N: int, M: int = 1>(x: global<f32, (N):(M)>, factor: f32) block(128) {
    let mine = partition(x, threads());
    for i in 0..size<1>(mine) { mine[_, i] = mine[_, i] * factor; }
}
"""


def world_of(rank, size, **options):
    import torch
    import torch.distributed as dist

    import warpweft as weft

    ranks.group()
    device = ranks.device(rank)
    told = [weft.random_id() if rank == 0 else None]
    dist.broadcast_object_list(told, src=0)
    share = os.environ.get("WEFT_SHARE_GPU") == "1"
    torch.cuda.init()
    return weft.World.local(rank, size, told[0], device=device.index, share_gpu=share, **options)


def rank_tensors(rank, size):
    import cupy
    import numpy as np
    import torch

    import warpweft as weft

    with world_of(rank, size) as world:
        x = world.tensor((4, 256), "f32")
        t = x.torch()
        assert t.data_ptr() == x.address and t.shape == (4, 256) and not t.any()
        t.copy_(torch.arange(1024, device="cuda").view(4, 256) + 1000 * rank)
        assert (x.numpy() == np.arange(1024).reshape(4, 256) + 1000 * rank).all()
        c = x.cupy()
        assert c.data.ptr == x.address and float(c[1, 2]) == 258 + 1000 * rank
        d = torch.from_dlpack(x)
        assert d.data_ptr() == x.address and torch.equal(d, t)
        assert cupy.from_dlpack(x).data.ptr == x.address
        torch.cuda.synchronize()
        world.wait_for_all()
        peer = x.peer((rank + 1) % size)
        assert torch.equal(peer.torch(), t - 1000 * rank + 1000 * ((rank + 1) % size))
        assert (peer.numpy() == peer.cupy().get()).all()
        world.wait_for_all()
        x.copy_from(np.full((4, 256), 7.0))
        assert (t == 7).all()
        h = world.tensor(64, "bf16")
        assert h.torch().dtype == torch.bfloat16
        everyone = x.multicast()
        assert (everyone is None) == bool(x.why_no_multicast()) and (everyone is None or everyone.address > 0)
        column = world.tensor(weft.Layout("(3,5):(1,4)"), "f32")
        column.copy_from(np.arange(15).reshape(3, 5) + rank)
        assert column.torch().stride() == (1, 4) and float(column.torch()[2, 4]) == 14 + rank
        assert (column.numpy() == np.arange(15).reshape(3, 5) + rank).all() and float(column.cupy()[2, 4]) == 14 + rank
        flag = world.tensor(1, "u64")
        world.put(h, h, (rank + 1) % size, signal=(flag, "add", 3))
        world.wait(flag, 3, "ge")
        torch.cuda.synchronize()
        assert int(flag.torch()) == 3
        source = torch.full((64,), rank + 5.0, dtype=torch.bfloat16, device="cuda")
        world.put(h, source, (rank + 1) % size)
        world.team.barrier()
        torch.cuda.synchronize()
        assert (h.torch() == (rank - 1) % size + 5).all()
        big, part = world.tensor(64 * size, "f32"), world.tensor(64, "f32")
        part.torch().fill_(rank + 1)
        world.team.all_gather(big, part)
        world.team.reduce(part, part)
        torch.cuda.synchronize()
        assert (part.torch() == size * (size + 1) / 2).all()
        assert [float(big.torch()[64 * r]) for r in range(size)] == [r + 1 for r in range(size)]
        del t, c, d, peer


def rank_kernels(rank, size):
    import cupy
    import numpy as np
    import torch

    import warpweft as weft

    with world_of(rank, size) as world:
        kernel = weft.compile(SHIFT, N=10007)
        x, barrier = world.tensor(10007), world.barrier(8)
        for seed in range(3):
            index = torch.arange(10007, device="cuda", dtype=torch.float32)
            x.torch().copy_(index + 100 * rank + seed)
            for out in (torch.zeros(10007, device="cuda"), cupy.zeros(10007, dtype="float32")):
                kernel[8](x, out, barrier, world.team)
                got = out.cpu().numpy() if isinstance(out, torch.Tensor) else out.get()
                want = 2 * (np.arange(10007, dtype=np.float32) + 100 * ((rank + 1) % size) + seed)
                np.testing.assert_array_equal(got, want)
        text = open(os.path.join(ranks.HERE, "..", "..", "examples", "allreduce_two_shot.weft")).read()
        reduce = weft.compile(text, N=4096, T="bf16").prepare(world)
        y, wide = world.tensor(4096, "bf16"), world.barrier()
        y.torch().fill_(rank + 1)
        reduce[4](y, wide, world.team)
        torch.cuda.synchronize()
        assert (y.torch() == size * (size + 1) / 2).all()
        with pytest.raises(weft.ArgumentError, match="NumPy"):
            kernel[8](x, np.zeros(10007, np.float32), barrier, world.team)
        with pytest.raises(weft.ArgumentError, match="cpu"):
            kernel[8](x, torch.zeros(10007), barrier, world.team)


def rank_closed(rank, size):
    import warpweft as weft

    world = world_of(rank, size)
    # A child of fork is told.
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            world.tensor(16)
        except BaseException as e:
            os.write(write, f"{type(e).__name__}: {e}".encode())
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    told = os.read(read, 1000)
    assert told.startswith(b"Closed") and b"fork" in told, told
    x = world.tensor(16)
    x.free()
    with pytest.raises(weft.Closed):
        x.view(4)
    world.close()
    with pytest.raises(weft.Closed):
        world.tensor(4)


def rank_left_open(rank, size):
    """The interpreter's exit ends the world."""
    world = world_of(rank, size)
    world.kept = world.tensor(16)


@pytest.mark.parametrize("function", ["rank_tensors", "rank_kernels", "rank_closed", "rank_left_open"])
def test_two_pes(function):
    ranks.run(__file__, function)


def test_kernels_without_a_world():
    import numpy as np
    import torch

    import warpweft as weft

    kernel = weft.compile(SCALE, N=1003)
    x = torch.arange(1003, device="cuda", dtype=torch.float32)
    kernel[2](x, 3)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    kernel[2](x, 2.0, stream=stream)
    stream.synchronize()
    assert (x.cpu().numpy() == np.arange(1003) * 6).all()
    cupy = pytest.importorskip("cupy")
    y = cupy.arange(1003, dtype="float32")
    kernel[2](y, 0.5)
    assert (y.get() == np.arange(1003, dtype=np.float32) * 0.5).all()
    jax = pytest.importorskip("jax")
    z = jax.device_put(np.arange(1003, dtype=np.float32))
    if z.devices().pop().platform == "gpu":
        kernel[2](z, 4.0)
        torch.cuda.synchronize()
        assert (np.asarray(z.copy()) == np.arange(1003) * 4).all()
    every_second = torch.arange(2006, device="cuda", dtype=torch.float32)[::2]
    weft.compile(SCALE, N=1003, M=2)[2](every_second, 2.0)
    assert (every_second.cpu().numpy() == np.arange(0, 2006, 2) * 2).all()
    with pytest.raises(weft.ArgumentError, match="1003"):
        kernel[2](x[1:], 1.0)
    with pytest.raises(weft.ArgumentError, match="cpu"):
        kernel[2](x.cpu(), 1.0)
