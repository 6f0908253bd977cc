"""What notebooks show."""

from __future__ import annotations

import html
from typing import Sequence

_BOX = "display:flex;gap:1em;align-items:flex-start"
_PANE = "flex:1;min-width:0;max-height:32em;overflow:auto;border:1px solid #8884;padding:.5em;text-align:left"


def side_by_side(panes: Sequence[tuple], title: str) -> str:
    """Return texts beside each other, each with a heading."""
    inner = "".join(
        f'<div style="{_PANE}"><b>{html.escape(name)}</b><pre style="margin:0">{html.escape(text)}</pre></div>'
        for name, text in panes
    )
    return f'<div><code>{title}</code><div style="{_BOX}">{inner}</div></div>'


def findings(texts: Sequence[str], summary: str) -> str:
    """Return findings, each with its places in the kernel's text."""
    bad = "".join(
        f'<pre style="border-left:4px solid #c33;padding-left:.6em;text-align:left">{html.escape(text)}</pre>' for text in texts
    )
    good = "" if texts else '<b style="color:#282">nothing found</b>'
    return f"<div>{bad}{good}<pre>{html.escape(summary)}</pre></div>"
