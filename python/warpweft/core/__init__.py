"""nvshmem4py's host interface: ``import warpweft.core as nvshmem``.

Names and arguments are those of ``nvshmem.core``. Memory is shared without NVSHMEM unless ``WEFT_MEMORY=nvshmem``. Within
a function that ``World.simulated(n).run`` calls, the same calls work on simulated PEs, with NumPy's arrays. docs/python.md
has a table with one row for each function. Source: NVSHMEM4Py's documentation, "NVSHMEM4Py API".
"""

from __future__ import annotations

import sys

from . import interop
from ._state import InitStatus, NvshmemError, NvshmemInvalid, NvshmemWarning
from .collective import (
    alltoall,
    barrier,
    barrier_all,
    broadcast,
    fcollect,
    reduce,
    reducescatter,
    sync,
    sync_all,
)
from .init_fini import (
    UniqueID,
    Version,
    finalize,
    get_unique_id,
    get_version,
    init,
    init_status,
    is_initialized,
    my_pe,
    n_pes,
)
from .interop.cupy import (
    array,
    array_get_buffer,
    bytearray,
    free_array,
    get_multicast_array,
    get_peer_array,
    register_external_array,
    unregister_external_array,
)
from .interop.torch import (
    bytetensor,
    free_tensor,
    get_multicast_tensor,
    get_peer_tensor,
    register_external_tensor,
    tensor,
    tensor_get_buffer,
    unregister_external_tensor,
)
from .memory import (
    Buffer,
    buffer,
    free,
    get_mc_buffer,
    get_multicast_buffer,
    get_peer_buffer,
    register_external_buffer,
    unregister_external_buffer,
)
from .rma import ComparisonType, SignalOp, fence, get, put, put_signal, quiet, signal_op, signal_wait
from .teams import (
    TeamConfig,
    Teams,
    team_destroy,
    team_init,
    team_my_pe,
    team_n_pes,
    team_split_2d,
    team_split_strided,
    team_translate_pe,
)

#: Programs that begin with ``import nvshmem.core as nvshmem`` also write ``nvshmem.core.put``.
core = sys.modules[__name__]

__all__ = [
    "Buffer",
    "ComparisonType",
    "InitStatus",
    "NvshmemError",
    "NvshmemInvalid",
    "NvshmemWarning",
    "SignalOp",
    "TeamConfig",
    "Teams",
    "UniqueID",
    "Version",
    "alltoall",
    "array",
    "array_get_buffer",
    "barrier",
    "barrier_all",
    "broadcast",
    "buffer",
    "bytearray",
    "bytetensor",
    "fcollect",
    "fence",
    "finalize",
    "free",
    "free_array",
    "free_tensor",
    "get",
    "get_mc_buffer",
    "get_multicast_array",
    "get_multicast_buffer",
    "get_multicast_tensor",
    "get_peer_array",
    "get_peer_buffer",
    "get_peer_tensor",
    "get_unique_id",
    "get_version",
    "init",
    "init_status",
    "interop",
    "is_initialized",
    "my_pe",
    "n_pes",
    "put",
    "put_signal",
    "quiet",
    "reduce",
    "reducescatter",
    "register_external_array",
    "register_external_buffer",
    "register_external_tensor",
    "signal_op",
    "signal_wait",
    "sync",
    "sync_all",
    "team_destroy",
    "team_init",
    "team_my_pe",
    "team_n_pes",
    "team_split_2d",
    "team_split_strided",
    "team_translate_pe",
    "tensor",
    "tensor_get_buffer",
    "unregister_external_array",
    "unregister_external_buffer",
    "unregister_external_tensor",
]
