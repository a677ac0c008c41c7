"""The pytest plugin, by tests that pytest runs: the file of a kernel's author, right and wrong."""

import json
import xml.etree.ElementTree as tree

import numpy as np
import pytest
from conftest import normal

from normd_golden import cases, testing

KERNELS = """
import numpy as np
from normd_golden.testing import norm_cases


def right(x, weight):
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        n = wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + 1e-6)
        return (n * weight.astype(np.float64)).astype(x.dtype)


def wrong(x, weight):
    with np.errstate(all="ignore"):
        return (x / np.sqrt((x * x).mean(-1, keepdims=True) + x.dtype.type(1e-6)) * weight).astype(x.dtype)
"""
RIGHT = (
    KERNELS
    + """
import normd_golden

@norm_cases(normd_golden.RMSNorm(eps=1e-6), dtypes=("float32", "float16", "bfloat16"), shapes=((4, 64), (3, 7)))
def test_right(case, golden):
    golden.assert_norm(right(case.x, case.weight), *case.args, max_ulp=0.6)

def test_batches(golden):
    golden.batch_invariant(lambda x: right(x, np.ones(8)), np.ones((4, 8), np.float32))
"""
)
WRONG = (
    KERNELS
    + """
import normd_golden

@norm_cases(normd_golden.RMSNorm(eps=1e-6), dtypes=("float16",), shapes=((4, 64),))
def test_wrong(case, golden):
    golden.assert_norm(wrong(case.x, case.weight), *case.args, max_ulp=4)
"""
)


@pytest.fixture
def run(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run_file(text, *arguments):
        pytester.makepyfile(test_kernel=text)
        return pytester.runpytest_inprocess("-p", "normd_golden.pytest_plugin", *arguments)

    return run_file


def test_a_right_kernel_passes(run):
    # float32 has 11 kinds of data, float16 12, for each of two shapes; bfloat16 has 11.
    run(RIGHT).assert_outcomes(passed=2 * (11 + 12 + 11) + 1)


def test_a_wrong_kernel_is_told_what_it_is(run):
    result = run(WRONG)
    outcomes = result.parseoutcomes()
    assert outcomes["failed"] >= 3 and outcomes["passed"] >= 3, outcomes
    result.stdout.fnmatch_lines(
        ["*elements are off by more than 4 ulp*", "*squares in float16, which overflow from 256 on*"]
    )


def test_reports_are_in_junit_and_on_a_page(run, pytester):
    run(WRONG, "--junitxml=junit.xml", "--golden-html=out/golden.html")
    properties = tree.parse(pytester.path / "junit.xml").findall(".//property[@name='normd_golden']")
    facts = [json.loads(one.get("value")) for one in properties]
    assert len(facts) == 12 and all(0 <= one["nearest"] <= 1 and one["limit_ulp"] == 4 for one in facts)
    page = (pytester.path / "out" / "golden.html").read_text(encoding="utf-8")
    assert page.count("<tr class=") == 12 and '<tr class="failed">' in page and '<tr class="passed">' in page
    assert "test_kernel.py::test_wrong[rms_norm-float16-4x64-from_256]" in page


def test_cases_are_what_their_names_say():
    made = {case.kind: case for case in cases.make_cases("layer_norm", ("float32",), ((4, 64),))}
    assert (made["offset"].x.mean() / made["offset"].x.std()) > 2**17
    with np.errstate(over="ignore"):
        assert np.isinf(made["large"].x ** 2).any()
    assert not made["small"].x.astype(np.float32).__pow__(2).any()
    assert (np.abs(made["subnormal"].x) < np.finfo(np.float32).tiny).all() and made["subnormal"].x.any()
    assert made["constant"].x.std() == 0 and made["constant"].x.any() and not made["zeros"].x.any()
    assert (made["one_value"].x != 0).sum() == 4
    assert np.isnan(made["nan"].x).sum() == 1 and np.isfinite(made["nan"].x[1:3]).all()
    assert made["misaligned"].x.ctypes.data % 64 == 4 or made["misaligned"].x.ctypes.data % 8 == 4
    assert not made["strided"].x.flags.c_contiguous
    half = {case.kind: case for case in cases.make_cases("layer_norm", ("float16",), ((4, 64),))}
    assert (np.abs(half["from_256"].x) >= 256).all()
    assert [case.kind for case in cases.make_cases("layer_norm", hard=False)] == ["normal"]


def test_cases_are_the_same_in_every_run():
    first, again = (cases.make_cases("rms_norm", shapes=((2, 9),))[0] for _ in range(2))
    np.testing.assert_array_equal(first.x, again.x)
    np.testing.assert_array_equal(first.weight, again.weight)
    assert first.weight.shape == (9,) and first.bias is None


def test_a_kernel_whose_bits_depend_on_the_batch_is_found():
    def depends(x):
        return x * np.float32(1 + len(x) * 2**-23)

    x = normal((6, 32))
    testing.batch_invariant(lambda rows: rows * np.float32(0.5), x)
    with pytest.raises(AssertionError, match=r"elements have other bits cut at rows \[1, 2, 3, 4, 5\]"):
        testing.batch_invariant(depends, x)
    with pytest.raises(AssertionError, match=r"other bits cut at rows \[2\]"):
        testing.batch_invariant(depends, x, splits=[[2]])
    with pytest.raises(AssertionError, match="in reverse order"):
        testing.batch_invariant(lambda rows: rows - rows[:1], x, splits=[])


class OfJax:
    """Rows that are no numpy array, and like jax's take no list as an index."""

    def __init__(self, array):
        self._array = array

    def __len__(self):
        return len(self._array)

    def __array__(self, dtype=None, copy=None):
        return self._array

    def __getitem__(self, index):
        if isinstance(index, list):
            raise TypeError("Using a non-tuple sequence for multidimensional indexing is not allowed")
        return OfJax(self._array[index])


def test_rows_of_any_library_are_reversed():
    seen = []
    testing.batch_invariant(lambda rows: seen.append(rows) or np.asarray(rows), OfJax(normal((3, 4))))
    np.testing.assert_array_equal(seen[-1], normal((3, 4))[::-1])
    testing.batch_invariant(lambda rows: seen.append(rows) or rows, normal((3, 4)))
    assert seen[-1].flags.c_contiguous


def test_assert_norm_needs_no_pytest():
    x = normal((2, 8))
    with pytest.raises(AssertionError, match="16 of 16 elements are off by more than 1 ulp"):
        testing.assert_norm(x * 5, "rms_norm", x)
    with pytest.raises(AssertionError, match="of the elements are the nearest value; at least 1 must be"):
        testing.assert_norm(x * 5, "rms_norm", x, max_ulp=1e9, min_nearest=1)
