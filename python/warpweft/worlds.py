"""Worlds: PEs that share symmetric memory, each on its own GPU, or simulated in this process.

>>> import warpweft as weft
>>> world = weft.World.simulated(4)
>>> x = world.tensor(8, "f32")
>>> x[2][:] = 1.5      # a NumPy view of PE 2's memory
>>> world.close()
"""

from __future__ import annotations

import atexit
import threading
import weakref
from typing import Any, Callable, Optional, Sequence

from . import _arrays, _dtypes, _fork, _native, _streams
from ._errors import Disagreement, PeerDied, usage
from .tensors import Tensor, layout_text

#: Open worlds of processes, in the order in which they were made, which is the same on all PEs. They are kept until they
#: are closed: closing is collective, and PEs collect garbage at different times.
_OPEN: dict = {}
_SIMULATED: Any = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for world in [*_OPEN, *_SIMULATED]:
        try:
            world.close()
        except Exception as e:  # The interpreter exits, so no caller can catch it.
            print(f"warpweft: a world did not end in order: {e}")


def _forked() -> None:
    for world in list(_OPEN):
        _fork.leak(world._native)
        world._native = _fork.unusable("world")
    _OPEN.clear()


_fork.in_child(_forked)


class Team:
    """A set of PEs with numbers of their own."""

    def __init__(self, world: Any, native: _native.Team):
        self.world = world
        self._native = native

    @property
    def my_pe(self) -> int:
        """This PE's rank in the team."""
        return self._native.my_pe

    @property
    def n_pes(self) -> int:
        """The number of PEs in the team."""
        return self._native.n_pes

    @property
    def members(self) -> tuple:
        """The PEs of the world, by rank in the team."""
        return tuple(self._native.members)

    def __repr__(self) -> str:
        return f"Team(PE {self.my_pe} of {list(self.members)})"

    def split_strided(self, start: int, stride: int, size: int) -> Optional[Team]:
        """Return the team of every ``stride``-th PE; None in PEs that are not in it. *Collective.*"""
        made = self.world._native.split_strided(self._native, start, stride, size)
        return made and Team(self.world, made)

    def split_2d(self, x_range: int) -> tuple:
        """Return the team of this PE's row, ``x_range`` PEs wide, and that of its column. *Collective.*"""
        return tuple(Team(self.world, part) for part in self.world._native.split_2d(self._native, x_range))

    def of(self, pes: Sequence[int]) -> Optional[Team]:
        """Return the team of these ranks, in this order; None in other PEs. *Collective* over them."""
        made = self.world._native.team_of(self._native, list(pes))
        return made and Team(self.world, made)

    def barrier(self, stream: Any = None) -> None:
        """Let the stream wait for all PEs of the team and what they sent."""
        _native.team_barrier(self.world._native, self._native, False, self.world._stream(stream))

    def sync(self, stream: Any = None) -> None:
        """Let the stream wait for all PEs of the team; what they sent may be under way."""
        _native.team_barrier(self.world._native, self._native, True, self.world._stream(stream))

    def _collective(self, name: str, dest: Any, source: Any, stream: Any, op: str = "sum", root: int = 0) -> None:
        world = self.world
        _native.collective(world._native, self._native, name, op, dest._native, source._native, root, world._stream(stream))

    def reduce(self, dest: Tensor, source: Tensor, op: str = "sum", stream: Any = None) -> None:
        """Reduce ``source`` over the PEs into every ``dest``: ``sum``, ``prod``, ``min``, ``max``, ``and``, ``or``, ``xor``."""
        self._collective("reduce", dest, source, stream, op)

    def reduce_scatter(self, dest: Tensor, source: Tensor, op: str = "sum", stream: Any = None) -> None:
        """Reduce ``source`` over the PEs, each of which gets its part in ``dest``."""
        self._collective("reduce_scatter", dest, source, stream, op)

    def all_gather(self, dest: Tensor, source: Tensor, stream: Any = None) -> None:
        """Gather all ``source`` in the order of ranks."""
        self._collective("fcollect", dest, source, stream)

    def all_to_all(self, dest: Tensor, source: Tensor, stream: Any = None) -> None:
        """Send part j of ``source`` to PE j."""
        self._collective("alltoall", dest, source, stream)

    def broadcast(self, dest: Tensor, source: Tensor, root: int = 0, stream: Any = None) -> None:
        """Copy the ``source`` of a rank to every ``dest``."""
        self._collective("broadcast", dest, source, stream, root=root)


class Barrier:
    """The memory of a kernel's ``barrier`` parameter."""

    def __init__(self, world: Any, native: _native.Barrier):
        self.world = world
        self._native = native

    @property
    def ctas(self) -> int:
        """The CTAs that it has counters for."""
        return self._native.ctas

    def __repr__(self) -> str:
        return f"Barrier(for {self.ctas} CTAs)"


class World:
    """A PE of a world: its memory, its teams, and what it does with the others.

    ``World.simulated(n)`` returns a world of simulated PEs, all of which this process drives. ``World.local()`` and
    ``World.init()`` join the PEs of other processes, one for each GPU. A call marked *collective* is made by all PEs in
    the same order.
    """

    def __init__(self, native: _native.World, whole: Optional[SimulatedWorld] = None):
        self._native = native
        self._whole = whole
        self._team: Optional[Team] = None
        if whole is None:
            _OPEN[self] = None

    @staticmethod
    def simulated(
        n_pes: int,
        *,
        seed: int = 0,
        check: bool = False,
        explore: Optional[bool] = None,
        node: Optional[int] = None,
        multicast: bool = True,
        sms: Optional[int] = None,
        heap: int = 256 << 20,
        max_steps: Optional[int] = None,
        time_limit: Optional[float] = None,
    ) -> SimulatedWorld:
        """Return a world of simulated PEs in this process.

        ``check`` looks for data races and reads of uninitialised memory: see ``findings``. ``explore`` lets the
        seed choose the schedule; it is on with ``check``. ``node`` is the number of PEs that reach each other by loads and
        stores. ``heap`` is the number of bytes of each PE's symmetric memory. ``max_steps`` and ``time_limit`` (seconds)
        bound a launch.
        """
        what = {
            "n_pes": n_pes,
            "seed": seed,
            "check": check,
            "explore": check if explore is None else explore,
            "node": node,
            "multicast": multicast,
            "sms": sms,
            "heap": heap,
            "max_steps": max_steps,
            "time_limit": time_limit,
        }
        return SimulatedWorld(_native.Simulated(what))

    @staticmethod
    def local(
        rank: Optional[int] = None,
        size: Optional[int] = None,
        id: Optional[bytes] = None,
        *,
        device: Optional[int] = None,
        timeout: Optional[float] = None,
        share_gpu: bool = False,
    ) -> World:
        """Join the PEs of this host without NVSHMEM. *Collective.*

        Without a rank, a launcher's variables (torchrun, mpirun, srun, ``WEFT_RANK``) say which PE this is. With one, all
        PEs pass the same ``id``, which one of them has from :func:`random_id`. ``timeout`` (seconds) bounds waits for
        other PEs. ``share_gpu`` lets PEs have one GPU, for tests.
        """
        return World._join("local", rank, size, id, device, timeout, share_gpu)

    @staticmethod
    def init(
        rank: Optional[int] = None,
        size: Optional[int] = None,
        id: Optional[bytes] = None,
        *,
        device: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> World:
        """Join PEs with NVSHMEM's memory, or what ``WEFT_MEMORY`` says; otherwise as :meth:`local`. *Collective.*"""
        return World._join(None, rank, size, id, device, timeout, False)

    @staticmethod
    def _join(memory, rank, size, id, device, timeout, share_gpu) -> World:
        place = None
        if rank is not None:
            if size is None or (id is None and size > 1):
                raise usage("a rank needs size and id", "pass all three; random_id() makes the id, on one PE")
            place = (rank, size, id or _native.random_id())
        return World(_native.World.join(memory, place, device, timeout, share_gpu))

    @property
    def my_pe(self) -> int:
        """The number of this PE."""
        return self._native.my_pe

    @property
    def n_pes(self) -> int:
        """The number of PEs."""
        return self._native.n_pes

    @property
    def device(self) -> int:
        """The number of this PE's GPU."""
        return self._native.device

    @property
    def is_simulated(self) -> bool:
        """Whether the PE is simulated."""
        return self._native.simulated

    @property
    def team(self) -> Team:
        """All PEs as a team."""
        if self._team is None:
            self._team = self.team_named("world")
        return self._team

    def team_named(self, name: str) -> Team:
        """Return a predefined team: ``world``, ``node``, ``shared`` or ``same_mype_node``."""
        return Team(self, self._native.team(name))

    def __repr__(self) -> str:
        return f"World(PE {self.my_pe} of {self.n_pes})"

    def _stream(self, stream: Any) -> Optional[int]:
        return None if self._native.simulated else _streams.of(stream, self.device)

    def tensor(self, shape: Any, dtype: Any = "f32") -> Tensor:
        """Return a symmetric tensor of zeros, of a shape or a layout. *Collective.*"""
        return Tensor(self, self._native.tensor(_dtypes.code_of(dtype), layout_text(shape)))

    zeros = tensor

    def register(self, array: Any) -> Tensor:
        """Register an array of PyTorch or CuPy as symmetric; it must be a whole allocation. *Collective.*

        The caller keeps the array until the tensor was freed on all PEs.
        """
        found = _arrays.of(array)
        if found is None:
            raise usage(f"{type(array).__name__} is not an array on a GPU", "pass a PyTorch tensor or a CuPy array")
        code = _dtypes.CODES[found.dtype]
        made = Tensor(self, self._native.register(found.address, found.nbytes, code, found.layout))
        made._owner = array  # type: ignore[attr-defined]
        return made

    def adopt(self, shape: Any, dtype: Any, addresses: Sequence[int], multicast: Optional[int] = None) -> Tensor:
        """Take memory that another library has mapped into all PEs, by the address of each PE's part. *Collective.*

        For PyTorch's symmetric memory these are ``handle.buffer_ptrs`` after ``rendezvous``, and ``handle.multicast_ptr``.
        """
        text = layout_text(shape)
        nbytes = int(_native.evaluate(f"cosize({text})")[0][1]) * _dtypes.BYTES[_dtypes.name_of(dtype)]
        code = _dtypes.code_of(dtype)
        return Tensor(self, self._native.adopt(nbytes, list(addresses), multicast or None, code, text))

    def barrier(self, ctas: Optional[int] = None) -> Barrier:
        """Return the memory of a kernel's ``barrier`` parameter, for grids of this number of CTAs. *Collective.*

        Without a number it is for as many CTAs as the GPU has multiprocessors.
        """
        return Barrier(self, self._native.kernel_barrier(self._native.sms if ctas is None else ctas))

    def wait_for_all(self) -> None:
        """Wait on the host until all PEs have come and what they sent has arrived. *Collective.*"""
        self._native.barrier()

    def all_gather_host(self, data: bytes) -> list:
        """Return the bytes of all PEs. *Collective.*"""
        return self._native.all_gather_host(list(data))

    def synchronize(self, stream: Any = None) -> None:
        """Wait until a stream is done: the world's own if none is given."""
        self._native.synchronize(_streams.handle(stream))

    def _local(self, array: Any) -> Any:
        if isinstance(array, Tensor):
            return array._native
        found = _arrays.of(array, "the local side")
        if found is None:
            raise usage(f"{type(array).__name__} is not a tensor", "the local side must be a tensor, or an array on the GPU")
        return _native.Borrowed.of_world(self._native, found.address, _dtypes.CODES[found.dtype], found.layout)

    def put(self, dest: Tensor, source: Any, pe: int, stream: Any = None, signal: Any = None) -> None:
        """Copy ``source`` to ``dest`` of a PE; then update a signal there: ``signal=(tensor, "set" or "add", value)``."""
        update = signal and (signal[0]._native, signal[1], signal[2])
        _native.put(self._native, dest._native, self._local(source), pe, self._stream(stream), update)

    def get(self, dest: Any, source: Tensor, pe: int, stream: Any = None) -> None:
        """Copy ``source`` of a PE to ``dest``."""
        _native.get(self._native, self._local(dest), source._native, pe, self._stream(stream))

    def signal(self, signal: Tensor, value: int, pe: int, op: str = "set", stream: Any = None) -> None:
        """Update a signal, a ``u64`` tensor of one element, of a PE: ``set`` or ``add``."""
        _native.signal_op(self._native, signal._native, op, value, pe, self._stream(stream))

    def wait(self, signal: Tensor, value: int, compare: str = "eq", stream: Any = None) -> None:
        """Let the stream wait until this PE's signal is ``eq``, ``ne``, ``gt``, ``ge``, ``lt`` or ``le`` to a value."""
        _native.signal_wait(self._native, signal._native, compare, value, self._stream(stream))

    def quiet(self, stream: Any = None) -> None:
        """Let the stream wait until what this PE has sent is complete."""
        _native.quiet(self._native, self._stream(stream))

    def close(self) -> None:
        """End the world, after which its memory is gone. *Collective.*"""
        _OPEN.pop(self, None)
        try:
            self._native.finalize()
        except (PeerDied, Disagreement):
            # The job has ended already, by another PE's death.
            if self._native.died() is None:
                raise

    def __enter__(self) -> World:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            self.close()
        else:
            _OPEN.pop(self, None)
            self._native.fail(f"{kind.__name__}: {error}".splitlines()[0])


_THREAD = threading.local()


def current() -> Optional[World]:
    """Return the simulated PE whose function this thread runs; None elsewhere."""
    return getattr(_THREAD, "world", None)


class SimulatedTensor:
    """A symmetric tensor of a simulated world: ``x[pe]`` is a NumPy view of that PE's memory."""

    def __init__(self, world: SimulatedWorld, parts: list):
        self.world = world
        self.parts = parts

    @property
    def shape(self) -> tuple:
        """Elements of each mode, on each PE."""
        return self.parts[0].shape

    @property
    def dtype(self) -> str:
        """The element type's name in kernels."""
        return self.parts[0].dtype

    @property
    def layout(self) -> Any:
        """Shape and strides, in elements."""
        return self.parts[0].layout

    @property
    def nbytes(self) -> int:
        """Bytes on each PE."""
        return self.parts[0].nbytes

    def __len__(self) -> int:
        return len(self.parts)

    def __iter__(self):
        return (part.numpy() for part in self.parts)

    def __getitem__(self, pe: Any) -> Any:
        """Return PE ``pe``'s elements, or a list of those of several PEs."""
        chosen = self.parts[pe]
        return [part.numpy() for part in chosen] if isinstance(chosen, list) else chosen.numpy()

    def __setitem__(self, pe: Any, value: Any) -> None:
        """Write PE ``pe``'s elements; of several PEs, one array for each, or one value for all."""
        if isinstance(pe, slice):
            import numpy

            parts = self.parts[pe]
            values = value if numpy.ndim(value) > len(self.shape) else [value] * len(parts)
            for part, one in zip(parts, values):
                part.numpy()[...] = one
        else:
            self.parts[pe].numpy()[...] = value

    def numpy(self) -> Any:
        """Return a copy of all PEs' elements, with the PE as the first dimension."""
        import numpy

        return numpy.stack([part.numpy() for part in self.parts])

    def view(self, shape: Any, dtype: Any = None, offset: int = 0) -> SimulatedTensor:
        """Return other elements of the same memory, from byte ``offset`` on."""
        return SimulatedTensor(self.world, [part.view(shape, dtype, offset) for part in self.parts])

    def free(self) -> None:
        """Free the memory on all PEs."""
        parts = self.parts
        self.world._each(lambda pe: parts[pe.my_pe].free())

    def __repr__(self) -> str:
        return f"SimulatedTensor({self.dtype}, {self.layout}) on {len(self.parts)} PEs"


class _All:
    """Something that every simulated PE has its own of."""

    def __init__(self, world: SimulatedWorld, parts: list):
        self.world = world
        self.parts = parts

    def __getitem__(self, pe: int) -> Any:
        return self.parts[pe]

    def __repr__(self) -> str:
        return f"{self.parts[0]!r} on each of {len(self.parts)} PEs"


class SimulatedWorld:
    """Simulated PEs, all of which this process drives: ``World.simulated(n)``.

    A call makes all PEs do the same: ``tensor`` allocates on all of them, and a kernel that is launched with such tensors
    is launched on all PEs and has ended when the call returns. :meth:`run` calls a function as every PE instead, as
    processes on GPUs would run it.
    """

    def __init__(self, native: _native.Simulated):
        self._native = native
        self.pes = [World(pe, whole=self) for pe in native.pes]
        self._team: Optional[_All] = None
        self._inside = threading.Lock()
        _SIMULATED.add(self)

    @property
    def n_pes(self) -> int:
        """The number of PEs."""
        return len(self.pes)

    def __repr__(self) -> str:
        return f"SimulatedWorld({self.n_pes} PEs)"

    def _each(self, body: Callable[[World], Any]) -> list:
        if current() is not None:
            raise usage(
                "a call for all PEs within a function that run() calls as one PE",
                "use the world that the function was given",
            )

        def call(number: int) -> Any:
            _THREAD.world = self.pes[number]
            try:
                return body(self.pes[number])
            finally:
                _THREAD.world = None

        with self._inside:
            outcomes = self._native.each(call)
        failed = [value for done, value in outcomes if not done]
        if failed:
            # The others only say that they have waited for the one that failed.
            causes = [e for e in failed if not isinstance(e, (Disagreement, PeerDied))]
            raise (causes or failed)[0]
        return [value for _, value in outcomes]

    def run(self, body: Callable[[World], Any]) -> list:
        """Call a function with the world of every PE, each in its own thread. Return the results by PE."""
        return self._each(body)

    def tensor(self, shape: Any, dtype: Any = "f32") -> SimulatedTensor:
        """Return a symmetric tensor of zeros, of a shape or a layout; or with a NumPy array's elements on every PE."""
        if hasattr(shape, "__array_interface__"):
            made = self.tensor(shape.shape, shape.dtype)
            made[:] = [shape] * self.n_pes
            return made
        return SimulatedTensor(self, self._each(lambda pe: pe.tensor(shape, dtype)))

    zeros = tensor

    def barrier(self, ctas: Optional[int] = None) -> _All:
        """Return the memory of a kernel's ``barrier`` parameter, for grids of this number of CTAs."""
        return _All(self, self._each(lambda pe: pe.barrier(ctas)))

    @property
    def team(self) -> _All:
        """All PEs as a team."""
        if self._team is None:
            self._team = _All(self, [pe.team for pe in self.pes])
        return self._team

    @property
    def findings(self) -> list:
        """What the check has found so far, where the world was made with ``check=True``."""
        from .checks import Finding

        return [
            Finding(code=code, message=message, help=help, text=text) for code, message, help, text in self._native.findings()
        ]

    @property
    def steps(self) -> int:
        """Warp instructions that all PEs have executed so far."""
        return self._native.steps()

    def set_seed(self, seed: int) -> None:
        """Choose another schedule for the kernels to come."""
        self._native.set_seed(seed)

    def close(self) -> None:
        """End all PEs, after which their memory is gone."""
        _SIMULATED.discard(self)
        self._native.close()

    def __enter__(self) -> SimulatedWorld:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def random_id() -> bytes:
    """Return 128 random bytes by which the PEs of a world, or the ranks of a communicator, find each other."""
    return _native.random_id()
