"""The adapters where engines, PyTorch and GPUs are missing: they are off, and say why."""

import sys
import types

import pytest

import warpweft.sglang
import warpweft.vllm
from warpweft import _engine


class Theirs:
    """An engine's own class."""


def stand_in(monkeypatch, name, **content):
    parts = name.split(".")
    for i in range(1, len(parts) + 1):
        monkeypatch.setitem(sys.modules, ".".join(parts[:i]), types.ModuleType(".".join(parts[:i])))
    module = sys.modules[name]
    for key, value in content.items():
        setattr(module, key, value)
    return module


def test_vllm_gets_our_class(monkeypatch):
    module = stand_in(monkeypatch, warpweft.vllm._MODULE, CustomAllreduce=Theirs)
    monkeypatch.delenv("WEFT_VLLM", raising=False)
    warpweft.vllm.register()
    assert module.CustomAllreduce is Theirs
    monkeypatch.setenv("WEFT_VLLM", "1")
    warpweft.vllm.register()
    warpweft.vllm.register()
    assert module.CustomAllreduce is warpweft.vllm.CustomAllreduce
    assert warpweft.vllm.CustomAllreduce.original_CustomAllreduce is Theirs


def test_sglang_gets_our_class_under_both_names(monkeypatch):
    (first, _), (second, _) = warpweft.sglang._MODULES
    one = stand_in(monkeypatch, first, CustomAllreduce=Theirs)
    two = types.ModuleType(second)
    two.CustomAllReduceV2 = Theirs
    monkeypatch.setitem(sys.modules, second, two)
    warpweft.sglang.enable()
    assert one.CustomAllreduce is two.CustomAllReduceV2 is warpweft.sglang.CustomAllreduce


def test_unknown_engines_are_an_error(monkeypatch):
    stand_in(monkeypatch, warpweft.vllm._MODULE)
    with pytest.raises(warpweft.NotSupported, match="CustomAllreduce"):
        warpweft.vllm.enable()


def test_engines_that_are_missing_are_an_import_error():
    with pytest.raises(ImportError):
        warpweft.vllm.enable()
    with pytest.raises(ImportError):
        warpweft.sglang.enable()


def test_what_cannot_serve_is_off():
    comm = _engine.EngineComm(group=None, device="cpu")
    assert comm.disabled and comm.why_disabled
    assert not comm.should_custom_ar(object()) and comm.custom_all_reduce(object()) is None
    with comm.capture():
        pass
    comm.register_graph_buffers()
    comm.close()
    comm.close()


@pytest.mark.parametrize("adapter", [warpweft.vllm.CustomAllreduce, warpweft.sglang.CustomAllreduce])
def test_the_environment_chooses_the_sums(monkeypatch, adapter):
    asked = []

    class Comm:
        rank, size, disabled = 0, 2, False

        @classmethod
        def from_process_group(cls, group, device, **options):
            asked.append((group, device, options["sums"]))
            return cls()

    torch = stand_in(monkeypatch, "torch.distributed", get_world_size=lambda group: 2)
    sys.modules["torch"].distributed = torch
    sys.modules["torch"].device = lambda kind, index: (kind, index)
    stand_in_comm = types.ModuleType("warpweft.comm")
    stand_in_comm.Comm = Comm
    monkeypatch.setitem(sys.modules, "warpweft.comm", stand_in_comm)
    for value, want in ((None, "ordinary"), ("deterministic", "deterministic")):
        monkeypatch.delenv("WEFT_SUMS", raising=False)
        if value is not None:
            monkeypatch.setenv("WEFT_SUMS", value)
        made = adapter("group", 3)
        assert made.why_disabled is None and asked.pop() == ("group", ("cuda", 3), want)
