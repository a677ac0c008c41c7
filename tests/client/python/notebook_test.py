"""The guide's notebook runs from top to bottom and gives the outputs that are stored in it.

Code cells are executed in order in one namespace, as Jupyter does: what is printed is the stream, and the value of a
last expression is the result. Outputs are rounded or exact, so they are the same on every machine.
NORMD_UPDATE_NOTEBOOK=1 stores the outputs instead.
"""

import ast
import contextlib
import io
import json
import os

import numpy as np
import pytest
from conftest import ROOT

NOTEBOOK = ROOT / "client" / "guide" / "normalisation.ipynb"


def code_cells(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run_cell(cell, number, names):
    """The cell's outputs, in the notebook's format."""
    body = ast.parse("".join(cell["source"]), f"cell {number}").body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    out, value = io.StringIO(), None
    with contextlib.redirect_stdout(out):
        exec(compile(ast.Module(body, []), f"cell {number}", "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
    outputs = []
    if out.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": out.getvalue().splitlines(True)})
    if value is not None:
        outputs.append({"data": {"text/plain": repr(value).splitlines(True)}, "execution_count": number,
                        "metadata": {}, "output_type": "execute_result"})
    return outputs


@pytest.fixture
def notebook(server, tmp_path, monkeypatch):
    monkeypatch.setenv("NORMD_SERVER", server.unix)
    monkeypatch.chdir(tmp_path)
    with np.printoptions():  # which the notebook sets for all of the process
        yield json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def test_every_cell_gives_the_output_that_is_stored(notebook):
    names = {"__name__": "__main__"}
    update = os.environ.get("NORMD_UPDATE_NOTEBOOK") == "1"
    for number, cell in enumerate(code_cells(notebook), 1):
        outputs = run_cell(cell, number, names)
        if update:
            cell["outputs"], cell["execution_count"] = outputs, number
        assert cell["outputs"] == outputs, f"cell {number}"
        assert cell["execution_count"] == number
    if update:
        NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def test_the_notebook_leaves_no_session_behind(notebook, client):
    before = [session.name for session in client.sessions()]
    names = {"__name__": "__main__"}
    for number, cell in enumerate(code_cells(notebook), 1):
        run_cell(cell, number, names)
    assert [session.name for session in client.sessions()] == before


def test_a_cell_gives_what_it_prints_and_its_last_value():
    cell = {"cell_type": "code", "source": ["print(1)\n", "2"]}
    assert run_cell(cell, 1, {}) == [
        {"name": "stdout", "output_type": "stream", "text": ["1\n"]},
        {"data": {"text/plain": ["2"]}, "execution_count": 1, "metadata": {}, "output_type": "execute_result"}]
