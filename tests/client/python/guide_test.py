"""The Python of the guide is one program: it runs as printed, from top to bottom, and prints what its comments say."""

import contextlib
import io
import re

import pytest
from conftest import ROOT

PAGES = ["client/guide/README.md"]
BLOCK = re.compile(r"^```python[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)


def blocks(text):
    """(number of the first line, source) of each Python block."""
    return [(text.count("\n", 0, found.start()) + 2, found.group(1)) for found in BLOCK.finditer(text)]


def printed(source):
    """What the comments say is printed: the comment behind a print(...), and the lines of comment below it."""
    lines, behind_print = [], False
    for line in source.splitlines():
        said = re.match(r".*\bprint\(.*\)(?: +# (.+))?$", line)
        comment = re.match(r" *# (.+)$", line)
        if said and said.group(1):
            lines.append(said.group(1).split(": ")[0])  # "True: why it is so"
        elif comment and behind_print:
            lines.append(comment.group(1))
        behind_print = bool(said) or (behind_print and bool(comment))
    return lines


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_prints_what_its_comments_say(page, server, client, tmp_path, monkeypatch):
    sessions = [session.name for session in client.sessions()]
    monkeypatch.setenv("NORMD_SERVER", server.unix)
    monkeypatch.chdir(tmp_path)
    found = blocks((ROOT / page).read_text(encoding="utf-8"))
    assert found
    names = {"__name__": "__main__"}
    for line, source in found:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile("\n" * (line - 1) + source, page, "exec"), names)
        assert out.getvalue().splitlines() == printed(source), f"{page}:{line}"
    assert [session.name for session in client.sessions()] == sessions, "the page leaves sessions behind"


@pytest.mark.parametrize("source, lines", [
    ("print(1)  # 1", ["1"]), ("print(f(1))  # True: it is", ["True"]), ("x = 1  # one\n", []), ("print(1)", []),
    ("for i in 1, 2:\n    print(i)\n    # 1\n    # 2\nx = 3\n# three\n", ["1", "2"])])
def test_comments_of_prints_are_read_and_others_are_not(source, lines):
    assert printed(source) == lines
