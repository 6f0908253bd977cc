import gc
import os
import signal
import threading
import time

import numpy as np
import pytest

import warpweft as weft


def data(pe, n=1003, step=7):
    return (np.arange(n) * step + pe * 1000003) % 4096


@pytest.mark.parametrize("n_pes", [1, 2, 5, 8])
@pytest.mark.parametrize("dtype", ["f32", "f16", "i32"])
def test_an_allreduce_is_the_sum(n_pes, dtype, example):
    kernel = weft.compile(example("allreduce_two_shot.weft"), N=1003, T=dtype)
    with weft.World.simulated(n_pes) as world:
        x, barrier = world.tensor(1003, dtype), world.barrier(4)
        for iteration in range(3):
            inputs = [(data(pe, step=7 + iteration) % 16) for pe in range(n_pes)]
            x[:] = inputs
            kernel[4](x, barrier, world.team)
            for pe in range(n_pes):
                np.testing.assert_array_equal(x[pe], sum(inputs))


def test_tensors_are_views_of_memory():
    with weft.World.simulated(2) as world:
        x = world.tensor((3, 5), "i64")
        assert (x.shape, x.dtype, x.nbytes, len(x)) == ((3, 5), "i64", 120, 2)
        assert x.layout == weft.Layout("(3,5):(5,1)")
        assert not x.numpy().any()
        view = x[1]
        view[2, 4] = 7
        assert x[1][2, 4] == 7 and x[0][2, 4] == 0
        assert view.base is not None and not view.flags.owndata
        flat = x.view(15)
        assert flat[1][14] == 7
        column = world.tensor(weft.Layout("(3,5):(1,3)"), "f32")
        column[0] = np.arange(15).reshape(3, 5)
        assert column[0].strides == (4, 12) and column[0][2, 4] == 14
        like = world.tensor(np.arange(4, dtype=np.uint8))
        assert like.dtype == "u8" and (like.numpy() == np.arange(4)).all()
        with pytest.raises(weft.ArgumentError):
            x.view(16)
        assert x.parts[0].multicast().address > 0 and x.parts[0].why_no_multicast() is None
        swapped = world.run(lambda pe: column.parts[pe.my_pe].peer(1 - pe.my_pe).numpy().copy())
        assert swapped[1][2, 4] == 14 and swapped[0][2, 4] == 0


def test_types_that_numpy_lacks():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with weft.World.simulated(1) as world:
        x = world.tensor(8, "bf16")
        x[0] = np.arange(8)
        assert x[0].dtype == ml_dtypes.bfloat16 and float(x[0][3]) == 3.0


def test_pes_run_functions():
    with weft.World.simulated(4) as world:

        def ring(pe):
            mine, got = pe.tensor(16, "i32"), pe.tensor(16, "i32")
            flag = pe.tensor(1, "u64")
            mine.numpy()[:] = data(pe.my_pe, 16)
            pe.put(got, mine, (pe.my_pe + 1) % 4, signal=(flag, "set", 5))
            pe.wait(flag, 5, "ge")
            pe.synchronize()
            previous = got.numpy().copy()
            pe.wait_for_all()
            assert (got.peer((pe.my_pe + 1) % 4).numpy() == data(pe.my_pe, 16)).all()
            pe.get(mine, got, pe.my_pe)
            total = pe.tensor(16, "i32")
            pe.team.reduce(total, got, "sum")
            pe.synchronize()
            half = pe.team.split_strided(0, 2, 2)
            pe.wait_for_all()
            return previous, total.numpy().copy(), half and half.members

        results = world.run(ring)
        for pe, (previous, total, half) in enumerate(results):
            np.testing.assert_array_equal(previous, data((pe + 3) % 4, 16))
            np.testing.assert_array_equal(total, sum(data(q, 16) for q in range(4)))
            assert half == ((0, 2) if pe % 2 == 0 else None)


def test_an_error_of_a_pe_is_raised_and_the_world_goes_on():
    with weft.World.simulated(3) as world:

        def fails(pe):
            if pe.my_pe == 1:
                raise KeyError("PE 1")
            pe.wait_for_all()

        with pytest.raises(KeyError, match="PE 1"):
            world.run(fails)
        assert world.run(lambda pe: pe.all_gather_host(bytes([pe.my_pe]))) == [[b"\0", b"\1", b"\2"]] * 3
        with pytest.raises(weft.Disagreement):
            world.run(lambda pe: pe.wait_for_all() if pe.my_pe else pe.tensor(4))
        with pytest.raises(weft.Disagreement, match="4"):
            world.run(lambda pe: pe.tensor(4 + pe.my_pe))
        with pytest.raises(weft.ArgumentError, match="run"):
            world.run(lambda pe: world.tensor(4))


def test_memory_is_freed_together():
    with weft.World.simulated(2, heap=1 << 20) as world:
        for _ in range(20):
            x = world.tensor(200_000, "u8")
            x[0][:] = 1
            x.free()
            with pytest.raises(weft.Closed):
                x.view(4)
        for _ in range(20):
            y = world.tensor(200_000, "u8")  # dropped, not freed
            del y
            gc.collect()
        with pytest.raises(weft.OutOfMemory) as caught:
            world.tensor(2 << 20, "u8")
        assert isinstance(caught.value, MemoryError) and caught.value.code == "R0302"


def test_a_deadlock_is_told():
    # PE 1 never comes to the barrier.
    kernel = weft.compile("kernel waits(sync: barrier, team: team) block(32) { barrier(sync, team, acq_rel, sys); }")
    with weft.World.simulated(2) as world:
        barrier = world.barrier(1)

        def one_comes(pe):
            if pe.my_pe == 0:
                kernel[1](barrier[0], pe.team)
                pe.synchronize()

        with pytest.raises(weft.SimulationError, match="deadlock"):
            world.run(one_comes)


RACE = """
kernel race(x: symm<u32, (2):(1)>, team: team) block(32) {
    if thread_idx() == 0 { peer(x, 0)[0] = my_pe(team).to<u32>(); }
}
"""


def test_findings_name_races():
    kernel = weft.compile(RACE)
    with weft.World.simulated(2, check=True) as world:
        x = world.tensor(2, "u32")
        kernel[1](x, world.team)
        found = world.findings
    assert found and found[0].code in ("S030", "S032") and "race" in found[0].message
    assert found[0]._repr_html_().startswith("<div>")


def test_one_seed_is_one_run(example):
    kernel = weft.compile(example("allreduce_two_shot.weft"), N=256)

    def steps(seed):
        with weft.World.simulated(4, seed=seed, explore=True) as world:
            x = world.tensor(256)
            x[:] = 1.0
            kernel[2](x, world.barrier(2), world.team)
            assert (x.numpy() == 4.0).all()
            return world.steps

    assert steps(3) == steps(3) > 0


def test_ctrl_c_ends_a_launch():
    # A launch of many CTAs takes minutes; it is stopped after a moment.
    text = """
    kernel long<N: int>(x: global<f32, (N):(1)>) block(256) {
        let mine = partition(x, threads());
        for round in 0..1000000 { for i in 0..size<1>(mine) { mine[_, i] = mine[_, i] + 1.0; } }
    }"""
    kernel = weft.compile(text, N=4096)
    world = weft.World.simulated(2)
    x = world.tensor(4096)
    threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        kernel[1](x)
    assert time.monotonic() - began < 60
    with pytest.raises(weft.Error):
        kernel[1](x)
    world.close()


def test_other_threads_run_meanwhile():
    kernel = weft.compile(
        """
        kernel busy<N: int>(x: global<f32, (N):(1)>) block(256) {
            let mine = partition(x, threads());
            for round in 0..300 { for i in 0..size<1>(mine) { mine[_, i] = mine[_, i] + 1.0; } }
        }""",
        N=2048,
    )
    with weft.World.simulated(2) as world:
        x = world.tensor(2048)
        turns, done = [0], threading.Event()

        def count():
            while not done.is_set():
                turns[0] += 1
                time.sleep(0.0005)

        thread = threading.Thread(target=count)
        thread.start()
        kernel[1](x)
        during = turns[0]
        done.set()
        thread.join()
        assert (x.numpy() == 300.0).all() and during > 3


def test_a_closed_world_is_an_error():
    world = weft.World.simulated(2)
    x = world.tensor(4)
    world.close()
    world.close()
    with pytest.raises(weft.Closed):
        world.tensor(4)
    with pytest.raises(weft.Closed):
        world.run(lambda pe: pe.wait_for_all())
    del x


@pytest.mark.parametrize("options", [{"n_pes": 0}, {"n_pes": 5000}, {"n_pes": 2, "node": 0}, {"n_pes": 2, "time_limit": -1.0}])
def test_what_cannot_be_simulated(options):
    with pytest.raises(weft.Error):
        weft.World.simulated(**options)
    with pytest.raises(weft.ArgumentError):
        weft.World.simulated(2).tensor((4, 0))
