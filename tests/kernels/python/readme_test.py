"""What the README shows runs as it stands."""

import re

import numpy as np
from conftest import ROOT, normal, rms_norm_kernel

PAGE = (ROOT / "kernels/python/README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_file_of_a_kernels_author(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(BLOCKS[0])
    result = pytester.runpytest_inprocess("-p", "normd_golden.pytest_plugin", "-W", "ignore::RuntimeWarning")
    result.assert_outcomes(passed=2 * (11 + 12))


def test_answers_and_judgement(capsys):
    scope = {}
    exec("\n".join(BLOCKS[1:]), scope)
    assert scope["low"] < scope["high"]
    assert scope["report"].nearest == 1.0 and "100 % nearest" in capsys.readouterr().out


def test_three_lines_give_the_verdict(capsys):
    lines = re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL)[0]
    assert lines.count("\n") == 3
    x, weight = normal((64, 512), np.float16), normal(512, np.float16, seed=2)
    exec(lines, {"x": x, "weight": weight, "y": rms_norm_kernel(x, weight, 1e-6, cast_first=True)})
    assert "variant: CAST_THEN_AFFINE fits: " in capsys.readouterr().out
