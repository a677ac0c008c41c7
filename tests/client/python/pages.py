"""The Python of a page as one program: it runs as printed, from top to bottom, and prints what its comments say."""

import contextlib
import io
import re

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


def assert_page_runs(path):
    """Whether each block of the page prints what it says; the program's working directory is the caller's."""
    found = blocks(path.read_text(encoding="utf-8"))
    assert found
    names = {"__name__": "__main__"}
    for line, source in found:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile("\n" * (line - 1) + source, str(path), "exec"), names)
        lines, said = out.getvalue().splitlines(), printed(source)
        assert lines == said, f"{path}:{line} prints {lines}, and says {said}"
