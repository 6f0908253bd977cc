"""Every test has a time limit, and tests that need GPUs say so."""

import signal
from pathlib import Path

import pytest

#: Seconds.
LIMIT = 300

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs a GPU, PyTorch and a process for each rank")


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu"):
        import warpweft._native as native

        if native.gpu_count() == 0:
            pytest.skip("there is no GPU")
        pytest.importorskip("torch")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item):
    def late(*_):
        raise TimeoutError(f"the test is not done after {LIMIT} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def example():
    """The text of an example of the repository."""
    return lambda name: (EXAMPLES / name).read_text()
