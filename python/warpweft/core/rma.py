"""One-sided copies and signals, in the order of a stream."""

from __future__ import annotations

import enum
from typing import Any, Optional

from .. import _native
from . import _state, memory
from ._state import invalid


class SignalOp(enum.IntEnum):
    """How a signal is updated."""

    SIGNAL_SET = 9
    SIGNAL_ADD = 10


class ComparisonType(enum.IntEnum):
    """How a signal is compared with a value."""

    CMP_EQ = 0
    CMP_NE = 1
    CMP_GT = 2
    CMP_LE = 3
    CMP_LT = 4
    CMP_GE = 5


_OPS = {SignalOp.SIGNAL_SET: "set", SignalOp.SIGNAL_ADD: "add"}
_COMPARES = dict(zip(ComparisonType, ("eq", "ne", "gt", "le", "lt", "ge")))


def _sides(remote: Any, local: Any, count: Optional[int], names: tuple) -> tuple:
    """Return both sides of a copy as the part in Rust has them, of one size."""
    state = _state.get()
    buffer, offset, nbytes, dtype = memory.buffer_of(remote, names[0])
    mine, mine_bytes = memory.local_of(local, names[1], state.world)
    if count is not None:
        size = memory._dtypes.BYTES[dtype]
        limit = min(nbytes, mine_bytes) // size
        if not 0 < count <= limit:
            raise invalid(f"count is {count}", f"it is a number of elements from 1 to {limit}")
        nbytes = count * size
        mine, mine_bytes = memory.local_of(_first(local, count), names[1], state.world)
    if nbytes != mine_bytes:
        raise invalid(f"{names[0]} has {nbytes} bytes, and {names[1]} has {mine_bytes}", "both sides have one size")
    return state, memory.part(buffer, offset, nbytes), mine


def _first(array: Any, count: int) -> Any:
    """Return the first elements of an array."""
    return array if isinstance(array, memory.Buffer) else array.reshape(-1)[:count]


def _target(words: tuple, remote_pe: Optional[int], pe: Optional[int], count: Optional[int]) -> tuple:
    """Return the PE and the count of a call: ``put(dst, src, pe)``, or ``put(dst, src, count, pe)``."""
    if len(words) > 2 or (words and (remote_pe is not None or pe is not None)) and len(words) > 1:
        raise invalid("the call has too many arguments", "put(dst, src, remote_pe, stream=stream)")
    named = remote_pe if remote_pe is not None else pe
    if len(words) == 2:
        count, named = words
    elif words and named is None:
        named = words[0]
    elif words:
        count = words[0]
    world = _state.get().world
    if named is None or not hasattr(named, "__index__") or not 0 <= named < world.n_pes:
        raise invalid(f"the PE is {named!r}", f"it is a number from 0 to {world.n_pes - 1}")
    return int(named), count


def put(
    dst: Any,
    src: Any,
    *words: int,
    remote_pe: Optional[int] = None,
    pe: Optional[int] = None,
    count: Optional[int] = None,
    stream: Any = None,
) -> None:
    """Copy ``src`` of this PE to ``dst`` of a PE: ``put(dst, src, remote_pe)`` or ``put(dst, src, count, pe)``."""
    target, count = _target(words, remote_pe, pe, count)
    state, remote, local = _sides(dst, src, count, ("dst", "src"))
    _native.put(state.world._native, remote, local, target, state.stream(stream), None)
    state.done()


def get(
    dst: Any,
    src: Any,
    *words: int,
    remote_pe: Optional[int] = None,
    pe: Optional[int] = None,
    count: Optional[int] = None,
    stream: Any = None,
) -> None:
    """Copy ``src`` of a PE to ``dst`` of this PE."""
    target, count = _target(words, remote_pe, pe, count)
    state, remote, local = _sides(src, dst, count, ("src", "dst"))
    _native.get(state.world._native, local, remote, target, state.stream(stream))
    state.done()


def _signal(signal_var: Any) -> Any:
    buffer, offset, nbytes, _ = memory.buffer_of(signal_var, "the signal")
    if nbytes < 8:
        raise invalid(f"the signal has {nbytes} bytes", "a signal is one element of uint64")
    return memory.part(buffer, offset, 8, "u64")


def put_signal(
    dst: Any,
    src: Any,
    signal_var: Any,
    signal_val: int,
    signal_operation: SignalOp,
    remote_pe: int,
    stream: Any = None,
) -> None:
    """Copy ``src`` to ``dst`` of a PE, and then update a signal there. A thread that sees the signal also sees the data."""
    target, _ = _target((), remote_pe, None, None)
    state, remote, local = _sides(dst, src, None, ("dst", "src"))
    update = (_signal(signal_var), _OPS[SignalOp(signal_operation)], signal_val)
    _native.put(state.world._native, remote, local, target, state.stream(stream), update)
    state.done()


def signal_op(signal_var: Any, signal_val: int, signal_operation: SignalOp, remote_pe: int, stream: Any = None) -> None:
    """Update a signal of a PE."""
    target, _ = _target((), remote_pe, None, None)
    state, op = _state.get(), _OPS[SignalOp(signal_operation)]
    _native.signal_op(state.world._native, _signal(signal_var), op, signal_val, target, state.stream(stream))
    state.done()


def signal_wait(signal_var: Any, signal_val: int, signal_op: ComparisonType, stream: Any = None) -> None:
    """Let the stream wait until this PE's signal compares so with a value."""
    state, compare = _state.get(), _COMPARES[ComparisonType(signal_op)]
    _native.signal_wait(state.world._native, _signal(signal_var), compare, signal_val, state.stream(stream))
    state.done()


def quiet(stream: Any = None) -> None:
    """Let the stream wait until what this PE has sent is complete."""
    state = _state.get()
    _native.quiet(state.world._native, state.stream(stream))
    state.done()


def fence(stream: Any = None) -> None:
    """Order this PE's later operations to each PE after its earlier ones."""
    quiet(stream)
