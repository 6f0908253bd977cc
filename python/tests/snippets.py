"""The snippets of nvshmem4py's notebook and of its page on interoperability, with nothing changed but the import line.

Two snippets of the notebook use names that it never defines (``Teams`` in its 2-D split; ``b``, ``arr_src`` and ``arr_dst``
beside its Numba kernel): the first runs with that name defined, the second is left out.
"""

IMPORT = "import warpweft.core as nvshmem\n"

VERSION = """
print(nvshmem.get_version())
print(nvshmem.my_pe())
print(nvshmem.n_pes())
"""

TEAMS = """
team_strided = nvshmem.team_split_strided(
    nvshmem.Teams.TEAM_WORLD, start=0, stride=2, size=min(2, nvshmem.n_pes()), config=nvshmem.TeamConfig(),
    config_mask=0, new_team_name="STRIDED_TEAM"
)
print(f"Created team with handle {team_strided} using team_split_strided")

config_init = nvshmem.TeamConfig(version=2, num_contexts=1, uniqueid=1004)
my_pe = nvshmem.my_pe()
n_pes = nvshmem.n_pes()
"""

TEAMS_2D = """
if nvshmem.n_pes() >= 4:
    x_team, y_team = nvshmem.team_split_2d(
        Teams.WORLD, xrange=2,
        xaxis_config=nvshmem.TeamConfig(), xaxis_mask=0,
        yaxis_config=nvshmem.TeamConfig(), yaxis_mask=0,
        new_team_name="TWO_D_TEAM"
    )
    print(f"Created team_split_2d teams. X-team: {x_team}, Y-team: {y_team}")
"""

BUFFER = """
buf = nvshmem.buffer(4096)
print(buf.handle, buf.size)
nvshmem.free(buf)
"""

ARRAY = """
shape = (1,2,3,4,5)
dtype = "float32"
arr = nvshmem.array(shape, dtype=dtype)
print(arr)
arr[:] = nvshmem.my_pe() + 1
print(arr)
nvshmem.free_array(arr)
"""

REGISTER = """
from cuda.core.experimental._memory import VirtualMemoryResource
dev = Device()
resource = VirtualMemoryResource(dev)
buffer = resource.allocate(536870912)
arr = cupy.from_dlpack(buffer, copy=False).view("float32")
arr_reg = nvshmem.register_external_array(arr)
arr_reg = nvshmem.unregister_external_array(arr)
"""

REDUCE = """
device = Device()
stream = device.create_stream()
size = 10
src_array = nvshmem.array((size,), dtype="float32")
dest_array = nvshmem.array((size,), dtype="float32")
my_pe = nvshmem.my_pe()
n_pes = nvshmem.n_pes()
src_array[:] = my_pe + 1
print("Array before reduction:", src_array, dest_array)
nvshmem.reduce(nvshmem.Teams.TEAM_WORLD, dest_array, src_array, "sum", stream=stream)
print("Array after reduction:", src_array, dest_array)
"""

REDUCE_END = """
nvshmem.free_array(src_array)
nvshmem.free_array(dest_array)
"""

PUT = """
device = Device()
stream = device.create_stream()
size = 10
src_array = nvshmem.array((size,), dtype=cp.float32)
dest_array = nvshmem.array((size,), dtype=cp.float32)
my_pe = nvshmem.my_pe()
n_pes = nvshmem.n_pes()
src_array[:] = cp.ones(size, dtype=cp.float32) * my_pe
target_pe = (my_pe + 1) % n_pes
nvshmem.put(dest_array, src_array, size, target_pe, stream=stream)
stream.synchronize()
"""

PUT_END = """
nvshmem.free_array(src_array)
nvshmem.free_array(dest_array)
"""

SIGNAL = """
dev = Device()
local_rank_per_node = dev.device_id
stream = dev.create_stream()

buf_src = nvshmem.core.array((4,4), dtype="float32")
buf_src [:] = nvshmem.core.my_pe() + 1
buf_dst = nvshmem.core.array((4,4), dtype="float32")
buf_dst [:] = 0

signal = nvshmem.core.array((1,), dtype="uint64")
signal [:] = 0
buf_sig, sz, type = nvshmem.core.array_get_buffer(signal)

if nvshmem.core.my_pe() == 0:
    nvshmem.core.put_signal(buf_dst, buf_src, buf_sig, 1, nvshmem.core.SignalOp.SIGNAL_SET, remote_pe=1, stream=stream)
    print(f"From PE {nvshmem.core.my_pe()} sent buf to remote PE 1 and set signal")

if nvshmem.core.my_pe() == 1:
    nvshmem.core.signal_wait(buf_sig, 1, nvshmem.core.ComparisonType.CMP_EQ, stream=stream)
    print(f"From PE {nvshmem.core.my_pe()} waited for signal")

stream.sync()
print(f"From PE {nvshmem.core.my_pe()} src={buf_src}, dst={buf_dst} signal={signal}")
"""

SIGNAL_END = """
nvshmem.core.free_array(buf_src)
nvshmem.core.free_array(buf_dst)
nvshmem.core.free_array(signal)
"""

INTEROP_CREATE = """
import torch
import cupy as cp
tensor = nvshmem.interop.torch.empty((1000, 1000), dtype=torch.float32)
array = nvshmem.interop.cupy.empty((1000, 1000), dtype=cp.float32)
"""

#: Its results are new memory, so it has names of its own.
INTEROP_USE = """
tensor = tensor + 1.0
tensor = torch.nn.functional.relu(tensor)
array = array * 2.0
array = cp.sqrt(array)
"""

INTEROP_OPERATIONS = """
my_pe = nvshmem.my_pe()
n_pes = nvshmem.n_pes()
next_pe = (my_pe + 1) % n_pes
nvshmem.put(tensor, tensor, count=tensor.numel(), pe=next_pe)
prev_pe = (my_pe - 1) % n_pes
nvshmem.get(array, array, count=array.size, pe=prev_pe)
"""

INTEROP_FREE = """
nvshmem.free_tensor(tensor)
nvshmem.free_array(array)
"""
