"""The Python programs of client/python/README.md and of the top README run as printed.

They print what their comments say, and nothing more.
"""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT

PAGES = [ROOT / "README.md", ROOT / "client" / "python" / "README.md"]
BLOCKS = [
    block
    for page in PAGES
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
]


def test_the_pages_have_programs():
    assert len(BLOCKS) >= 7


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_a_program_runs_and_prints_what_it_says(server, tmp_path, number):
    np.save(tmp_path / "in.npy", np.random.default_rng(0).standard_normal((64, 768)).astype(np.float32))
    environment = {**os.environ, "NORMD_SERVER": server.unix}
    result = subprocess.run([sys.executable, "-c", BLOCKS[number]], cwd=tmp_path, env=environment, capture_output=True,
                            text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    said = re.findall(r"^ *print\(.*\)  # (.+)$", BLOCKS[number], re.MULTILINE)
    printed = result.stdout.splitlines()
    assert printed == said
