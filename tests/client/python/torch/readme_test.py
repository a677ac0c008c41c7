"""The programs of normd.torch's README.md run as printed, and print what their comments say."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

PAGE = pathlib.Path(__file__).parents[4] / "client" / "python" / "src" / "normd" / "torch" / "README.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_page_has_programs():
    assert len(PROGRAMS) == 5


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_runs_and_prints_what_it_says(server, program):
    environment = {**os.environ, "NORMD_SERVER": server.address, "GLOO_SOCKET_IFNAME": "lo"}
    result = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    said = re.findall(r"^ *print\(.*\)  # (.+)$", program, re.MULTILINE)
    assert result.stdout.splitlines() == said
