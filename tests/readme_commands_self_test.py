#!/usr/bin/env python3
"""A test of tests/readme_commands.py: plants one mistake of each kind in a page and fails unless each is reported."""

import os
import sys
import tempfile

from readme_commands import blocks, check, cpp_source, says


def plant_program(folder, block, printed):
    """A program that prints something, compiled from the block as far as anybody can see."""
    path = os.path.join(folder, "readme_program_1")
    for name, text in ((path + ".cc", cpp_source(block)), (path, f"#!/bin/sh\necho {printed}\n")):
        with open(name, "w", encoding="utf-8") as out:
            out.write(text)
    os.chmod(path, 0o755)


PAGE = """# Page

```sh
mkdir -p a/b  # a comment
mkdir \\
  a/c && mkdir a/d
export A=1
./tests/run.sh --full
```
```python
import os
assert os.path.isdir("a/c")
```
```text
a ./picture
```
"""
PROGRAM = """```cpp
int main() {
  std::cout << 1 << 2;  // 1 2
}
```
"""
MISTAKES = {  # what is planted: the page, what is reported
    "a command that fails": ("```sh\nmkdir z\n```\n```sh\nmkdir \\\n  none/a\n```\n",
                             "page.md:5: mkdir \\\n  none/a: exit code 1"),
    "a command that nothing runs": ("```bash\nsl -a\n```\n", "page.md:2: sl -a: nothing runs this command"),
    "one after a pipe": ("```sh\nmkdir e | sl\n```\n", "page.md:2: mkdir e | sl: nothing runs this command"),
    "a server that would stay": ("```sh\nnormd --listen=x\n```\n", "nothing runs this command"),
    "a command in another block": ("```text\n$ normctl methods\n```\n", "page.md:2: $ normctl methods: a command in a"),
    "a program that fails": ("```python\nimport os\nos.stat('none')\n```\n", "page.md:2: the Python program: exit"),
    "a program that is not compiled": ("```cpp\nint main() {}\n```\n", "page.md:2: the C++ program: the build folder"),
}


def main():
    failures = []

    def expect(name, page, report, counts=None):
        with open(os.devnull, "w", encoding="utf-8") as nothing:
            found = check({"page.md": page}, folder, "", None, nothing)
        if report and (len(found.failures) != 1 or report not in found.failures[0]) or not report and found.failures:
            failures.append(f"{name} was reported as {found.failures}")
        if counts and tuple(found.counts.values()) != counts:
            failures.append(f"{name} came to {found.counts}")

    with tempfile.TemporaryDirectory() as folder:
        expect("a true page", PAGE, None, (4, 1, 0))
        for name, (page, report) in MISTAKES.items():
            expect(name, page, report)
        plant_program(folder, blocks("page.md", PROGRAM)[0], "1 2")
        expect("a true program", PROGRAM, None, (1, 0, 0))
        plant_program(folder, blocks("page.md", PROGRAM)[0], "1 3")
        expect("a program that prints something else", PROGRAM, "it prints 1 3, the comment says 1 2")
    if says(".ci/run", "step steam-locomotive") or not says(".ci/run", "step format "):
        failures.append("a step that does not exist was believed")
    print("\n".join(failures) or f"self-test: {len(MISTAKES) + 4} checks, 0 wrong")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
