"""The Python of the guide is one program: it runs as printed, from top to bottom, and prints what its comments say."""

import pytest
from conftest import ROOT
from pages import assert_page_runs, printed

# client/guide/one-normaliser.md needs PyTorch: tests/client/python/torch/one_normaliser_test.py runs it.
PAGES = ["client/guide/README.md"]


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_prints_what_its_comments_say(page, server, client, tmp_path, monkeypatch):
    sessions = [session.name for session in client.sessions()]
    monkeypatch.setenv("NORMD_SERVER", server.unix)
    monkeypatch.chdir(tmp_path)
    assert_page_runs(ROOT / page)
    assert [session.name for session in client.sessions()] == sessions, "the page leaves sessions behind"


@pytest.mark.parametrize("source, lines", [
    ("print(1)  # 1", ["1"]), ("print(f(1))  # True: it is", ["True"]), ("x = 1  # one\n", []), ("print(1)", []),
    ("for i in 1, 2:\n    print(i)\n    # 1\n    # 2\nx = 3\n# three\n", ["1", "2"])])
def test_comments_of_prints_are_read_and_others_are_not(source, lines):
    assert printed(source) == lines
