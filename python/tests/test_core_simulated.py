"""nvshmem4py's interface on simulated PEs, whose arrays are NumPy's."""

import gc

import numpy as np
import pytest
import snippets

import warpweft as weft
import warpweft.core as nvshmem


class Stream:
    """In the place of cuda.core's: operations on simulated PEs are done when they return."""

    def synchronize(self):
        pass

    sync = synchronize


class Device:
    device_id = 0

    def create_stream(self):
        return Stream()


def run(n_pes, body, **options):
    """Run a function as every PE, between init and finalize."""

    def whole(pe):
        nvshmem.init()
        result = body(pe)
        nvshmem.finalize()
        return result

    with weft.World.simulated(n_pes, **options) as world:
        return world.run(whole)


def execute(names, *texts):
    names.update(Device=Device, cp=np, np=np)
    exec(snippets.IMPORT, names)
    for text in texts:
        exec(text, names)
    return names


@pytest.mark.filterwarnings("ignore::warpweft.core.NvshmemWarning")
@pytest.mark.parametrize("n_pes", [2, 4])
def test_the_notebook_runs(n_pes):
    def body(pe):
        me = pe.my_pe
        names = execute({}, snippets.VERSION, snippets.TEAMS, snippets.BUFFER, snippets.ARRAY, snippets.REDUCE)
        # Of two PEs there is no second one at a distance of 2.
        assert (names["team_strided"] > 0) == (n_pes == 4 and me % 2 == 0)
        np.testing.assert_array_equal(names["dest_array"], np.full(10, n_pes * (n_pes + 1) / 2))
        exec(snippets.REDUCE_END, names)
        names = execute({}, snippets.PUT)
        nvshmem.barrier_all()
        np.testing.assert_array_equal(names["dest_array"], np.full(10, (me - 1) % n_pes))
        exec(snippets.PUT_END, names)
        names = execute({}, snippets.SIGNAL)
        if me == 1:
            np.testing.assert_array_equal(names["buf_dst"], np.full((4, 4), 1.0))
            assert names["signal"][0] == 1
        exec(snippets.SIGNAL_END, names)

        class Teams:
            WORLD = nvshmem.Teams.TEAM_WORLD

        names = execute({"Teams": Teams}, snippets.TEAMS_2D)
        if n_pes == 4:
            assert nvshmem.team_n_pes(names["x_team"]) == nvshmem.team_n_pes(names["y_team"]) == 2
            assert nvshmem.team_translate_pe(names["x_team"], 1, nvshmem.Teams.TEAM_WORLD) == me // 2 * 2 + 1

    run(n_pes, body)


def test_queries():
    def body(pe):
        assert nvshmem.init_status() == nvshmem.InitStatus.STATUS_IS_INITIALIZED and nvshmem.is_initialized()
        assert (nvshmem.my_pe(), nvshmem.n_pes()) == (pe.my_pe, 3)
        assert nvshmem.get_version().nvshmem4py_version == weft.__version__
        for team in (nvshmem.Teams.TEAM_WORLD, nvshmem.Teams.TEAM_NODE, nvshmem.Teams.TEAM_SHARED):
            assert (nvshmem.team_my_pe(team), nvshmem.team_n_pes(team)) == (pe.my_pe, 3)
        with pytest.raises(nvshmem.NvshmemInvalid, match="already"):
            nvshmem.init()

    run(3, body)
    with pytest.raises(nvshmem.NvshmemInvalid, match="init"):
        nvshmem.my_pe()


@pytest.mark.parametrize("dtype", ["float32", "int64", "float16"])
def test_collectives(dtype):
    def body(pe):
        n, me, world = 4, pe.my_pe, nvshmem.Teams.TEAM_WORLD
        whole, part = nvshmem.array((n, 6), dtype), nvshmem.array((6,), dtype)
        part[:] = me * 10 + np.arange(6)
        everyone = np.array([q * 10 + np.arange(6) for q in range(n)])
        nvshmem.fcollect(world, whole, part)
        np.testing.assert_array_equal(whole, everyone)
        nvshmem.reduce(world, part, part, "max")
        np.testing.assert_array_equal(part, everyone.max(0))
        nvshmem.reducescatter(world, part, whole, "sum")
        np.testing.assert_array_equal(part, everyone[me] * n)
        swapped = nvshmem.array((n, 6), dtype)
        nvshmem.alltoall(world, swapped, whole)
        np.testing.assert_array_equal(swapped, np.tile(everyone[me], (n, 1)))
        nvshmem.broadcast(world, swapped, whole, root=2)
        np.testing.assert_array_equal(swapped, everyone)
        nvshmem.sync_all()
        nvshmem.barrier(world)
        for array in (whole, part, swapped):
            nvshmem.free_array(array)

    run(4, body)


def test_peers_and_signals():
    def body(pe):
        me, n = pe.my_pe, pe.n_pes
        x = nvshmem.array((3, 4), "int32")
        x[:] = me
        nvshmem.barrier_all()
        assert (nvshmem.get_peer_array(x, (me + 1) % n) == (me + 1) % n).all()
        buffer, size, dtype = nvshmem.array_get_buffer(x)
        assert (size, dtype, buffer.size) == (48, "i32", 48)
        assert nvshmem.get_peer_buffer(buffer, me).size == 48
        nvshmem.barrier_all()
        y = np.zeros(0)
        nvshmem.get(x[0], x[1], remote_pe=(me + 2) % n)
        assert (x[0] == (me + 2) % n).all() and (x[1] == me).all()
        flag = nvshmem.array((1,), "uint64")
        nvshmem.signal_op(flag, 3, nvshmem.SignalOp.SIGNAL_ADD, (me + 1) % n)
        nvshmem.signal_wait(flag, 3, nvshmem.ComparisonType.CMP_GE)
        assert flag[0] == 3
        nvshmem.quiet()
        nvshmem.fence()
        del y
        nvshmem.free_array(flag)
        nvshmem.free_array(x)

    run(3, body)


def test_what_is_wrong_is_said():
    def body(pe):
        x = nvshmem.array((4,), "float32")
        other = np.zeros(4, np.float32)
        invalid = nvshmem.NvshmemInvalid
        for call, match in [
            (lambda: nvshmem.put(other, x, 0), "dst is not symmetric"),
            (lambda: nvshmem.put(x, other, 0), "src is not symmetric"),
            (lambda: nvshmem.put(x, x[:2], 0), "bytes"),
            (lambda: nvshmem.put(x, x, 9), "PE is 9"),
            (lambda: nvshmem.put(x, x), "PE is None"),
            (lambda: nvshmem.put(x, x, 5, 0), "count is 5"),
            (lambda: nvshmem.put(x[::2], x[::2], 0), "gaps"),
            (lambda: nvshmem.array((0,)), "no elements"),
            (lambda: nvshmem.buffer(-1), "size is -1"),
            (lambda: nvshmem.free(x), "free_array"),
            (lambda: nvshmem.free_array(x[1:]), "part"),
            (lambda: nvshmem.reduce(77, x, x, "sum"), "team 77"),
            (lambda: nvshmem.team_destroy(nvshmem.Teams.TEAM_WORLD), "predefined"),
            (lambda: nvshmem.signal_wait(x[:1], 1, nvshmem.ComparisonType.CMP_EQ), "signal"),
            (lambda: nvshmem.register_external_array(other), "no memory on a GPU"),
        ]:
            with pytest.raises(invalid, match=match):
                call()
        with pytest.raises(weft.ArgumentError, match="reduction"):
            nvshmem.reduce(nvshmem.Teams.TEAM_WORLD, x, x, "average")
        nvshmem.free_array(x)
        with pytest.raises(invalid, match="not symmetric"):
            nvshmem.free_array(x)

    run(2, body)


def test_memory_that_is_not_freed_is_told(capfd, monkeypatch):
    import sys

    raised = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: raised.append(what.exc_value))

    def body(pe):
        kept = nvshmem.array((4,), "float32")
        dropped = nvshmem.array((8,), "float32")
        del dropped
        gc.collect()
        return kept

    run(2, body)
    assert len(raised) >= 2 and all(isinstance(e, nvshmem.NvshmemError) for e in raised[:2])
    told = capfd.readouterr().err
    assert "not freed before finalize: a array of 16 bytes" in told and "32 bytes" in told


def test_multicast_and_buffers():
    def body(pe):
        buffer = nvshmem.buffer(256)
        assert buffer.is_host_accessible and buffer.is_device_accessible and "256 bytes" in repr(buffer)
        assert nvshmem.get_multicast_buffer(nvshmem.Teams.TEAM_WORLD, buffer).handle > 0
        assert np.from_dlpack(buffer).nbytes == 256
        nvshmem.free(buffer)
        with pytest.raises(nvshmem.NvshmemInvalid, match="freed"):
            nvshmem.free(buffer)

    run(2, body)

    def without(pe):
        buffer = nvshmem.buffer(256)
        with pytest.raises(nvshmem.NvshmemError, match="no multicast address"):
            nvshmem.get_multicast_buffer(nvshmem.Teams.TEAM_WORLD, buffer)
        nvshmem.free(buffer)

    run(2, without, multicast=False)
