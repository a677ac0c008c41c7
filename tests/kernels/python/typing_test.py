"""The package is typed: mypy --strict passes over it, and over what a user writes."""

import subprocess
import sys

from conftest import ROOT

USER = """
import numpy as np
import normd_golden as golden
from normd_golden.testing import Case, norm_cases

x = np.ones((4, 8), np.float32)
report = golden.check(golden.layer_norm(x, 8), golden.LayerNorm(8), x)
reveal_type(report.max_ulp)
reveal_type(golden.exact("rms_norm", x).high.shape)
"""


def mypy(folder, cache, *arguments):
    command = [sys.executable, "-m", "mypy", f"--cache-dir={cache}", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_package_is_typed_strictly(tmp_path):
    result = mypy(ROOT / "kernels" / "python", tmp_path)
    assert result.returncode == 0, result.stdout
    (tmp_path / "user.py").write_text(USER)
    result = mypy(tmp_path, tmp_path, "--strict", "user.py")
    assert result.returncode == 0 and '"float"' in result.stdout, result.stdout
    (tmp_path / "user.py").write_text("import normd_golden as golden\ngolden.RMSNorm(epsilon=1e-6)\n")
    result = mypy(tmp_path, tmp_path, "--strict", "user.py")
    assert result.returncode == 1 and "Unexpected keyword" in result.stdout, result.stdout


def test_importing_loads_neither_the_library_nor_a_framework():
    program = """
import sys
import normd_golden
from normd_golden import _library
assert _library._library is None
assert not {"torch", "jax", "ml_dtypes", "pytest"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
