"""Every notebook runs from its first cell to its last one, and is kept without outputs."""

from pathlib import Path

import nbclient
import nbformat
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells), "strip the outputs"
    assert f"notebooks/{path.name}" in notebook.cells[0].source  # the Colab badge

    nbclient.NotebookClient(
        notebook, kernel_name="python3", timeout=120, resources={"metadata": {"path": str(ROOT)}}
    ).execute()

    outputs = [output for cell in cells for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    warned = [o.text for o in outputs if o.output_type == "stream" and o.name == "stderr"]
    assert not [text for text in warned if not text.startswith("\r")]  # bars of progress
