"""What a child of ``fork`` does with worlds and communicators: nothing. They belong to the parent, GPU and sockets included."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Callable

from ._errors import Closed


class Unusable:
    """Stands for the part in Rust of something that is over: every use of it raises."""

    def __init__(self, message: str, help: str):
        self._why = (message, help)

    def __getattr__(self, name: str) -> Any:
        raise Closed(self._why[0], code="W0004", help=self._why[1])


def unusable(what: str) -> Unusable:
    """Return what stands for a thing of the parent in a child."""
    return Unusable(f"the process was forked after the {what} was made", f"make the {what} after the fork, or use spawn")


def leak(thing: Any) -> None:
    """Keep a thing for ever: its end would reach the parent's GPU and sockets."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def in_child(do: Callable[[], None]) -> None:
    """Call a function in each child that the process forks."""
    os.register_at_fork(after_in_child=do)
