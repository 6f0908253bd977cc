"""nvshmem4py's interface on GPUs: the snippets of its pages."""

import os

import pytest
import ranks
import snippets

pytestmark = pytest.mark.gpu


def start(rank, size, method="uid"):
    import torch.distributed as dist

    import warpweft.core as nvshmem

    device = ranks.device(rank)
    if method == "torchrun":
        nvshmem.init(device=device.index)
        return nvshmem
    ranks.group()
    told = [nvshmem.get_unique_id() if rank == 0 else nvshmem.get_unique_id(empty=True)]
    dist.broadcast_object_list(told, src=0)
    nvshmem.init(device=device.index, uid=told[0], rank=rank, nranks=size, initializer_method=method)
    return nvshmem


def names_of():
    import cupy
    import torch

    try:
        from cuda.core.experimental import Device
    except ImportError:
        from cuda.core import Device
    Device(torch.cuda.current_device()).set_current()
    return {"Device": Device, "cp": cupy, "cupy": cupy, "torch": torch}


def rank_notebook(rank, size):
    import cupy
    import numpy as np

    nvshmem = start(rank, size)
    names = names_of()
    exec(snippets.IMPORT, names)
    for text in (snippets.VERSION, snippets.TEAMS, snippets.BUFFER, snippets.ARRAY, snippets.REDUCE):
        exec(text, names)
    names["stream"].sync()
    np.testing.assert_array_equal(names["dest_array"].get(), np.full(10, size * (size + 1) / 2))
    exec(snippets.REDUCE_END, names)
    cupy.cuda.runtime.deviceSynchronize()
    exec(snippets.PUT.replace("stream.synchronize()", "stream.sync()"), names)
    nvshmem.barrier_all()
    cupy.cuda.runtime.deviceSynchronize()
    np.testing.assert_array_equal(names["dest_array"].get(), np.full(10, (rank - 1) % size))
    exec(snippets.PUT_END, names)
    exec(snippets.SIGNAL, names)
    if rank == 1:
        np.testing.assert_array_equal(names["buf_dst"].get(), np.full((4, 4), 1.0))
    nvshmem.barrier_all()
    cupy.cuda.runtime.deviceSynchronize()
    exec(snippets.SIGNAL_END, names)
    nvshmem.finalize()


def rank_interop(rank, size):
    import torch

    nvshmem = start(rank, size)
    names = names_of()
    exec(snippets.IMPORT + snippets.INTEROP_CREATE, names)
    exec(snippets.INTEROP_USE, dict(names))
    names["tensor"].fill_(rank + 1.0)
    names["array"][:] = rank + 1.0
    torch.cuda.synchronize()
    nvshmem.barrier_all()
    exec(snippets.INTEROP_OPERATIONS, names)
    nvshmem.barrier_all()
    torch.cuda.synchronize()
    # All PEs write and read the same memory at once, so only that all of it is somebody's is certain.
    assert torch.isin(names["tensor"], torch.arange(1.0, size + 1, device="cuda")).all()
    assert set(names["array"].get().flatten()) <= {r + 1.0 for r in range(size)}
    exec(snippets.INTEROP_FREE, names)
    # The functions of the page that its snippets do not call.
    x = nvshmem.tensor((4, 8), torch.bfloat16)
    x.fill_(rank)
    torch.cuda.synchronize()
    nvshmem.barrier_all()
    torch.cuda.synchronize()
    other = nvshmem.get_peer_tensor(x, (rank + 1) % size)
    assert other.shape == (4, 8) and (other == (rank + 1) % size).all()
    buffer, nbytes, dtype = nvshmem.tensor_get_buffer(x)
    assert (nbytes, dtype, buffer.size) == (64, "bf16", 64)
    raw = nvshmem.bytetensor((4, 8), torch.float32)
    assert raw.dtype == torch.uint8 and raw.numel() == 128
    plain = torch.full((4, 8), rank + 7, dtype=torch.bfloat16, device="cuda")
    nvshmem.put(x, plain, remote_pe=(rank + 1) % size)
    nvshmem.barrier_all()
    torch.cuda.synchronize()
    assert (x == (rank - 1) % size + 7).all()
    with pytest.raises(nvshmem.NvshmemInvalid, match="not symmetric"):
        nvshmem.put(plain, x, remote_pe=0)
    with pytest.raises(nvshmem.NvshmemInvalid, match="not symmetric"):
        nvshmem.free_tensor(x + 1)
    if buffer._tensor.multicast() is None:
        with pytest.raises(nvshmem.NvshmemError, match="multicast"):
            nvshmem.get_multicast_tensor(nvshmem.Teams.TEAM_WORLD, x)
    nvshmem.barrier_all()
    torch.cuda.synchronize()
    del other
    nvshmem.free_tensor(x)
    nvshmem.free_tensor(raw)
    nvshmem.finalize()


def rank_register(rank, size):
    import torch

    nvshmem = start(rank, size)
    names = names_of()
    exec(snippets.IMPORT, names)
    try:
        from cuda.core.experimental._memory import VirtualMemoryResource  # noqa: F401
    except ImportError:
        # Newer versions of cuda.core have no such module: memory of cudaMalloc is registered instead.
        text = snippets.REGISTER.split("resource.allocate")[1].split("\n", 2)[2]
        names["arr"] = names["cupy"].zeros(1 << 20, dtype="float32")
        exec(text, names)
    else:
        exec(snippets.REGISTER, names)
    block = torch.zeros(1 << 20, device="cuda")
    nvshmem.register_external_tensor(block)
    block.fill_(rank)
    torch.cuda.synchronize()
    nvshmem.barrier_all()
    torch.cuda.synchronize()
    assert (nvshmem.get_peer_tensor(block, (rank + 1) % size) == (rank + 1) % size).all()
    nvshmem.barrier_all()
    torch.cuda.synchronize()
    nvshmem.unregister_external_tensor(block)
    nvshmem.finalize()


def rank_torchrun(rank, size):
    import torch

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["WEFT_TEST_PORT"], LOCAL_WORLD_SIZE=str(size))
    os.environ["TORCHELASTIC_RUN_ID"] = "test"
    nvshmem = start(rank, size, "torchrun")
    assert (nvshmem.my_pe(), nvshmem.n_pes()) == (rank, size)
    x = nvshmem.tensor((16,), "float32")
    x.fill_(rank + 1)
    torch.cuda.synchronize()
    nvshmem.reduce(nvshmem.Teams.TEAM_WORLD, x, x, "sum")
    torch.cuda.synchronize()
    assert (x == size * (size + 1) / 2).all()
    nvshmem.free_tensor(x)
    nvshmem.finalize()


def rank_leaks(rank, size):
    nvshmem = start(rank, size)
    kept = nvshmem.tensor((16,), "float32")
    nvshmem.finalize()
    del kept


def rank_no_finalize(rank, size):
    nvshmem = start(rank, size)
    nvshmem.core.kept = nvshmem.tensor((16,), "float32")


@pytest.mark.parametrize("function", ["rank_notebook", "rank_interop", "rank_register"])
def test_two_pes(function):
    pytest.importorskip("cupy")
    pytest.importorskip("cuda.core")
    ranks.run(__file__, function)


def test_torchrun_starts_it():
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks.run(__file__, "rank_torchrun", env={"WEFT_TEST_PORT": str(port)})


def test_leaks_are_told():
    for function in ("rank_leaks", "rank_no_finalize"):
        texts = ranks.run(__file__, function)
        assert all("not freed before finalize: a tensor of 64 bytes" in text for text in texts)
