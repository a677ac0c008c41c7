"""tests/bench/python/break_even.py runs, and finds where two lines cross."""

import importlib.util
import subprocess
import sys

import pytest
from conftest import PROGRAM, ROOT

BENCH = ROOT / "tests" / "bench" / "python" / "break_even.py"


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.syspath_prepend(BENCH.parent)
    spec = importlib.util.spec_from_file_location("break_even", BENCH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def times(**medians):
    """Medians of sizes 1, 4, 16, ... for each way."""
    return {(name, 4**power): seconds for name, row in medians.items() for power, seconds in enumerate(row)}


@pytest.mark.parametrize("remote, size", [
    ((8, 8, 8, 8), 8), ((1, 2, 4, 8), 0), ((100, 100, 100, 100), None), ((8, 1, 32, 8), 16 * 2**0.5), ((1, 2, 4, 65), None)])
def test_the_break_even_size_is_where_the_lines_cross_for_the_last_time(bench, remote, size):
    found = bench.break_even(times(local=(1, 4, 16, 64), remote=remote), "remote", "local")
    assert found == (pytest.approx(size) if size else size)


def test_the_bench_prints_a_table_of_each_operation(tmp_path):
    command = [sys.executable, str(BENCH), f"--normd={PROGRAM}", "--rounds=1", "--seconds=0", "--most-bytes=4096", "--markdown"]
    out = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, cwd=tmp_path).stdout
    for operation in ("LayerNorm, median", "BatchNorm inference, one in ten below"):
        assert f"| {operation} | 1 KiB | 4 KiB |" in out
        assert f"| {operation}, break-even with | numpy |" in out
    assert out.count("| normd, shared, no copy |") == 8
