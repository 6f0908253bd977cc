"""The ``weft`` command."""

from __future__ import annotations

import signal
import sys

from . import _native


def main() -> None:
    """Run the command with the process's words, and end with its status."""
    # The command waits in compiled code; Ctrl-C and a closed pipe end it as they end other programs.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    words = sys.argv[1:]
    sys.exit(_native.command(["weft", *words], [sys.executable, "-m", "warpweft", *words]))


if __name__ == "__main__":
    main()
