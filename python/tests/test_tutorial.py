"""The tutorial and the README's first example run as they are."""

import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1]


def test_the_tutorial_runs():
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(HERE / "tutorial.ipynb", as_version=4)
    nbclient.NotebookClient(notebook, timeout=200, kernel_name="python3").execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    kinds = {kind for output in shown for kind in output.get("data", {})}
    assert {"image/svg+xml", "text/html"} <= kinds


def test_the_readme_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", (HERE / "README.md").read_text(), re.S)
    exec(blocks[0], {})
    assert "multimem.ld_reduce" in capsys.readouterr().out
