"""The package is typed: mypy --strict passes over it, and over what a user writes."""

import re
import subprocess
import sys

import pytest
from conftest import ROOT

USER = '''
import numpy as np
import numpy.typing as npt

import normd

x: npt.NDArray[np.float32] = np.ones((4, 8), np.float32)
with normd.connect("127.0.0.1:8001", deadline=5.0) as client:
    reveal_type(client.layer_norm(x, (8,), eps=1e-6, precision="fast"))
    reveal_type(normd.rms_norm(x, 8, out=x))
    session = client.session("bn", normd.BatchNorm(8)).train()
    reveal_type(session)
    reveal_type(session(x))
    reveal_type(client.normalize(normd.LayerNorm(8), x, outputs=("y", "mean")).applied.eps)


async def use() -> None:
    async with normd.aio.connect() as there:
        reveal_type(await there.layer_norm(x, 8))
'''


@pytest.fixture(scope="module")
def mypy(tmp_path_factory):
    """Runs mypy in a folder, with one cache for all runs, which is not in the source tree."""
    command = [sys.executable, "-m", "mypy", f"--cache-dir={tmp_path_factory.mktemp('mypy')}"]
    return lambda folder, *arguments: subprocess.run(
        [*command, *arguments], cwd=folder, capture_output=True, text=True, check=False)


def test_the_package_is_typed_strictly(mypy):
    result = mypy(ROOT / "client" / "python")
    assert result.returncode == 0, result.stdout


def test_what_a_user_writes_has_types(mypy, tmp_path):
    (tmp_path / "user.py").write_text(USER)
    result = mypy(tmp_path, "--strict", "user.py")
    assert result.returncode == 0, result.stdout
    revealed = result.stdout
    assert len(re.findall(r"numpy\.ndarray\[.*_32Bit]", revealed)) == 4, revealed
    assert '"normd.session.Session"' in revealed and '"float"' in revealed, revealed


@pytest.mark.parametrize("wrong, error", [
    ("normd.layer_norm(x, 8, presicion='fast')", "Unexpected keyword"), ("normd.layer_norm('x', 8)", "type-var"),
    ("normd.BatchNorm(8, moment=0.1)", "Unexpected keyword"), ("normd.connect(8001)", "arg-type")])
def test_mistakes_are_found_before_they_run(mypy, tmp_path, wrong, error):
    (tmp_path / "user.py").write_text(f"import numpy as np, normd\nx = np.ones(8)\n{wrong}\n")
    result = mypy(tmp_path, "--strict", "user.py")
    assert result.returncode == 1 and error in result.stdout, result.stdout
