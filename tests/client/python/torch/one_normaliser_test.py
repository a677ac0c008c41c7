"""The Python of client/guide/one-normaliser.md is one program, and prints what its comments say."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "tests" / "client" / "python"))
from pages import assert_page_runs  # noqa: E402


def test_the_page_prints_what_its_comments_say(server, client, tmp_path, monkeypatch):
    sessions = {session.name for session in client.sessions()}
    monkeypatch.setenv("NORMD_SERVER", server.address)
    monkeypatch.chdir(tmp_path)
    assert_page_runs(ROOT / "client" / "guide" / "one-normaliser.md")
    assert {session.name for session in client.sessions()} == sessions, "the page leaves sessions behind"
