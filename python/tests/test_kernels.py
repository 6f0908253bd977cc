import numpy as np
import pytest

import warpweft as weft

SCALE = """
kernel scale<N: int, T: dtype = f32>(x: global<T, (N):(1)>, factor: f32) block(128) {
    let mine = partition(x, threads());
    for i in 0..size<1>(mine) { mine[_, i] = (mine[_, i].to<f32>() * factor).to<T>(); }
}
"""


def test_a_text_becomes_ptx(example):
    kernel = weft.compile(example("allreduce_two_shot.weft"), N=1003, T="bf16")
    assert "multimem.ld_reduce" in kernel.ptx and ".target sm_90a" in kernel.ptx
    assert kernel.name == "allreduce_two_shot" and kernel.params == ["x", "sync", "team"]
    assert kernel.defines == {"N": "1003", "T": "bf16"}
    assert "multimem.ld_reduce" in kernel.explain() and "allreduce_two_shot" in kernel.ir
    assert kernel.arch == "sm_90a" and kernel.meta["kernels"][0]["block"][0] > 0
    assert set(kernel.timings) >= {"parse", "elaborate"}
    page = kernel._repr_html_()
    assert "kernel allreduce_two_shot" in page and "multimem" in page


def test_options_reach_the_compiler(example):
    text = example("allreduce_two_shot.weft")
    assert "multimem" not in weft.compile(text, N=64, lowering="unicast").ptx
    waits = [weft.compile(text, N=64, watch=watch) for watch in (False, True)]
    assert ["%clock64" in kernel.ptx for kernel in waits] == [False, True]
    assert [len(kernel.meta["kernels"][0].get("waits", [])) for kernel in waits] == [0, 2]
    assert ".target sm_100" in weft.compile(text, N=64, arch="sm_100a").ptx
    assert weft.compile(text, N=np.int32(64), T=np.float16).defines == {"N": "64", "T": "f16"}
    with pytest.raises(weft.ArgumentError, match="lowering"):
        weft.compile(text, N=64, lowering="switch")
    with pytest.raises(TypeError, match="compile-time parameter N"):
        weft.compile(text, N=[64])
    with pytest.raises(weft.Error, match="sm_7"):
        weft.compile(text, N=64, arch="sm_7")


def test_files_are_read(tmp_path, example):
    path = tmp_path / "k.weft"
    path.write_text(SCALE)
    assert weft.compile(path, N=8).source == SCALE
    assert weft.compile(str(path), N=8).name == "scale"
    assert weft.compile(f"{path}:scale", N=8).name == "scale"
    with pytest.raises(weft.ArgumentError, match="cannot read"):
        weft.compile(tmp_path / "none.weft")
    (tmp_path / "part.weft").write_text("fn twice(x: f32) -> f32 { return x * 2.0; }\n")


def test_a_wrong_text_is_shown():
    with pytest.raises(weft.CompileError) as caught:
        weft.compile("kernel k(x: global<f32, (4):(1)>) block(32) { y = 1; }")
    e = caught.value
    assert e.code == "E0100" and "`y` is not defined" in e.message
    assert "kernel.weft:1:" in str(e) and "^" in e.rendered
    assert "E0100" in e.explain()


def test_several_kernels_of_a_file():
    text = SCALE + SCALE.replace("scale", "other")
    both = weft.compile(text, N=8)
    assert both.names == ("scale", "other") and both.name is None
    assert both.of("other").name == "other"
    with pytest.raises(weft.ArgumentError, match="several kernels"):
        both[1]()
    with pytest.raises(weft.ArgumentError, match="no kernel third"):
        both.of("third")


def test_a_kernel_runs_on_every_simulated_pe():
    kernel = weft.compile(SCALE, N=1003)
    with weft.World.simulated(3) as world:
        x = world.tensor(1003)
        for pe in range(3):
            x[pe] = np.arange(1003) + pe
        kernel[2](x, 2.5)
        for pe in range(3):
            np.testing.assert_array_equal(x[pe], (np.arange(1003, dtype=np.float32) + pe) * np.float32(2.5))


def test_arguments_are_checked():
    kernel = weft.compile(SCALE, N=16)
    with weft.World.simulated(2) as world, weft.World.simulated(2) as other:
        x = world.tensor(16)
        for wrong, match in [
            ((world.tensor(17), 1.0), "17"),
            ((world.tensor(16, "f16"), 1.0), "f16"),
            ((x,), "argument"),
            ((x, 1.0, 2), "argument"),
            ((x, x), "factor"),
        ]:
            with pytest.raises(weft.ArgumentError, match=match):
                kernel[1](*wrong)
        with pytest.raises(weft.ArgumentError, match="NumPy array"):
            kernel[1](np.zeros(16, np.float32), 1.0)
        with pytest.raises(TypeError, match="str"):
            kernel[1](x, "1.0")
        with pytest.raises(weft.ArgumentError, match="different worlds"):
            kernel[1](x, other.tensor(16))
        for grid in (0, -1, (1, 2, 3, 4), "x", 1.5):
            with pytest.raises(weft.ArgumentError, match="grid"):
                kernel[grid]
        kernel[1](x, 3)  # an integer for a float
        # The world is as it was.
        x[:] = 1.0
        kernel[1](x, 0.5)
        assert (x.numpy() == 0.5).all()


def test_without_arguments_nothing_says_where():
    with pytest.raises(weft.ArgumentError, match="where the kernel runs"):
        weft.compile(SCALE, N=16)[1](1.0)
