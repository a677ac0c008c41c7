"""What the README shows runs as it stands."""

import re

from conftest import ROOT

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "kernels/python/README.md").read_text(encoding="utf-8"), re.DOTALL)


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
