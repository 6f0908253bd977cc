import pickle

import pytest

import warpweft as weft
from warpweft._errors import make


def test_codes_choose_classes():
    assert isinstance(make("R0203", "PE 1 ended", "", None), weft.PeerDied)
    assert isinstance(make("R0302", "no room", "", None), MemoryError)
    assert isinstance(make("R0402", "not done", "", None), TimeoutError)
    assert isinstance(make("L0003", "no", "", None), ValueError)
    assert isinstance(make("E0100", "no", "", "text"), weft.CompileError)
    assert type(make("X9999", "new", "", None)) is weft.Error


def test_errors_say_what_to_do_and_travel():
    e = make("R0305", "the memory was freed", "allocate it again", None)
    assert str(e) == "[R0305] the memory was freed\n  help: allocate it again"
    again = pickle.loads(pickle.dumps(e))
    assert (type(again), again.code, again.help) == (weft.Closed, "R0305", "allocate it again")
    assert "R0305" in e.explain() and weft.Error("x").explain() is None


def test_without_a_gpu_worlds_say_so():
    if weft._native.gpu_count():
        pytest.skip("there is a GPU")
    with pytest.raises(weft.NoGpu) as caught:
        weft.World.local(0, 1)
    assert caught.value.code in ("R0101", "R0102")
    with pytest.raises(weft.ArgumentError, match="a rank needs size and id"):
        weft.World.local(1)
