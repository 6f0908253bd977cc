"""The exceptions of this package.

Every exception has a code (``weft explain CODE`` says what it means), a message, and help, which says what to do. An
exception about a kernel's text also has the text with the places marked, in ``rendered``.
"""

from __future__ import annotations

from typing import Optional


class Error(RuntimeError):
    """Any error that warpweft reports."""

    def __init__(self, message: str, *, code: str = "", help: str = "", rendered: Optional[str] = None):
        self.code = code
        self.message = message
        self.help = help
        self.rendered = rendered
        super().__init__(message)

    def __str__(self) -> str:
        """Return the message with its code and its help, or the rendered text of a kernel."""
        if self.rendered:
            return self.rendered
        text = f"[{self.code}] {self.message}" if self.code else self.message
        return f"{text}\n  help: {self.help}" if self.help else text

    def explain(self) -> Optional[str]:
        """Return what the code means in general, or None for an error without a code."""
        from . import _native

        return _native.explain_code(self.code) if self.code else None

    def __reduce__(self):
        """Let exceptions travel between processes."""
        return (_again, (type(self), self.message, self.code, self.help, self.rendered))


def _again(kind, message, code, help, rendered):
    return kind(message, code=code, help=help, rendered=rendered)


class CompileError(Error):
    """A kernel's text is wrong; ``rendered`` shows where."""


class LayoutError(Error, ValueError):
    """A layout, or an operation on layouts, is not defined."""


class ArgumentError(Error, ValueError):
    """An argument does not fit the call or the kernel."""


class TooLarge(ArgumentError):
    """A call moves more bytes than its communicator takes."""


class NotSupported(Error, NotImplementedError):
    """This machine or this kind of world cannot do what is asked."""


class NoGpu(NotSupported):
    """There is no CUDA driver, or no such GPU."""


class OutOfMemory(Error, MemoryError):
    """A PE has no room for the memory."""


class PeerDied(Error):
    """Another PE has ended."""


class Timeout(Error, TimeoutError):
    """The other PEs, or the GPU, did not come to an end in time."""


class Disagreement(Error):
    """The PEs made different collective calls, or one of them made none."""


class Closed(Error):
    """A world, a communicator or memory was used after its end."""


class SimulationError(Error):
    """The simulator has stopped a kernel: the message says which thread did what."""


#: Which class reports a code.
_CLASSES = {
    "R0101": NoGpu,
    "R0102": NoGpu,
    "R0104": NotSupported,
    "R0201": ArgumentError,
    "R0202": Timeout,
    "R0203": PeerDied,
    "R0301": Disagreement,
    "R0302": OutOfMemory,
    "R0303": ArgumentError,
    "R0304": NotSupported,
    "R0305": Closed,
    "R0306": ArgumentError,
    "R0307": ArgumentError,
    "R0308": ArgumentError,
    "R0401": NotSupported,
    "R0402": Timeout,
    "R0403": SimulationError,
    "R0502": ArgumentError,
    "R0503": ArgumentError,
    "R0504": ArgumentError,
    "R0507": ArgumentError,
    "W0001": ArgumentError,
    "W0002": TooLarge,
    "W0003": ArgumentError,
    "W0004": Closed,
    "W0005": NotSupported,
}


def make(code: str, message: str, help: str, rendered: Optional[str]) -> Error:
    """Return the exception for a code. The part in Rust calls it."""
    if rendered is not None:
        kind: type = CompileError
    elif code in _CLASSES:
        kind = _CLASSES[code]
    else:
        kind = {"L": LayoutError, "S": SimulationError, "E": CompileError}.get(code[:1], Error)
    return kind(message, code=code, help=help, rendered=rendered)


def usage(message: str, help: str = "") -> ArgumentError:
    """Return the exception for a call with wrong arguments."""
    return ArgumentError(message, code="W0001", help=help)


def unsupported(message: str, help: str = "") -> NotSupported:
    """Return the exception for what cannot be done here."""
    return NotSupported(message, code="W0005", help=help)
