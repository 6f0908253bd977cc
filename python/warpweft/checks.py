"""The check for races, deadlocks and wrong results, over many sizes and schedules of simulated PEs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Optional, Sequence

from . import _display, _native
from .kernels import defines_of, request


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a kernel."""

    #: What kind: ``S030`` for a data race, ``C001`` for a wrong result. ``weft explain`` says what each means.
    code: str
    #: One line.
    message: str
    #: What to do; may be empty.
    help: str = ""
    #: The finding with its places in the kernel's text.
    text: str = field(default="", repr=False)
    #: Who did what: of a race the later access and then the earlier one.
    accesses: Sequence[dict] = field(default=(), repr=False)
    #: Further lines, such as what each thread waits for in a deadlock.
    notes: Sequence[str] = field(default=(), repr=False)
    #: How many runs met it.
    count: int = 1
    #: The run that met it first: sizes, PEs, seed.
    replay: Any = field(default=None, repr=False)
    #: The command that meets it again.
    command: str = field(default="", repr=False)

    def __str__(self) -> str:
        return self.text or f"[{self.code}] {self.message}"

    def _repr_html_(self) -> str:
        return _display.findings([str(self)], "")


class Report:
    """What a check ran, and what it found. It is true where nothing was found."""

    def __init__(self, told: dict, text: str, texts: Sequence[str]):
        self.runs: int = told["runs"]
        self.cases: list = told["cases"]
        self.text = text
        self.findings = [
            Finding(
                code=f["code"],
                message=f["message"],
                help=f["help"],
                text=shown,
                accesses=f["accesses"],
                notes=f["notes"],
                count=f["count"],
                replay=f["replay"],
                command=f["command"],
            )
            for f, shown in zip(told["findings"], texts)
        ]

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def __bool__(self) -> bool:
        return self.clean

    def __iter__(self):
        return iter(self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Report({self.runs} runs, {len(self.findings)} findings)"

    def _repr_html_(self) -> str:
        return _display.findings([f.text for f in self.findings], f"{self.runs} runs of {len(self.cases)} cases")


def check(
    source: Any,
    *,
    pes: Sequence[int] = (2, 8),
    nodes: Sequence[int] = (),
    seeds: int = 20,
    seed: int = 0,
    sizes: Sequence[int] = (),
    args: Optional[dict] = None,
    grid: Any = None,
    launches: int = 2,
    overlap: bool = False,
    max_steps: Optional[int] = None,
    time_limit: Optional[float] = 40.0,
    fail_fast: bool = False,
    kernel: Optional[str] = None,
    lowering: str = "auto",
    transport: str = "auto",
    arch: str = "sm_90a",
    root: Any = None,
    asserts: bool = True,
    **defines: Any,
) -> Report:
    """Look for what is wrong with the kernels of a file, as ``weft check`` does.

    They run on simulated PEs over several numbers of PEs, sizes and schedules (``seeds`` of them from ``seed`` on). Data
    races, deadlocks, reads of uninitialised memory, accesses out of bounds and results other than
    ``computes(...)`` says are findings. ``args`` are run-time numbers by name. ``time_limit`` (seconds) bounds a launch.
    """
    from .kernels import _grid

    asked = request(source, arch, kernel, lowering, transport, root=root, asserts=asserts)
    what = {
        "pes": list(pes),
        "nodes": list(nodes),
        "seed": seed,
        "seeds": seeds,
        "sizes": list(sizes),
        "args": [(name, str(value).lower() if isinstance(value, bool) else str(value)) for name, value in (args or {}).items()],
        "grid": _grid(grid),
        "launches": launches,
        "overlap": overlap,
        "max_steps": max_steps,
        "time_limit": time_limit,
        "fail_fast": fail_fast,
    }
    told, text, texts = _native.check(asked, defines_of(defines), what)
    return Report(json.loads(told), text, texts)
