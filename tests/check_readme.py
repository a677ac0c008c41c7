#!/usr/bin/env python3
"""Keeps every README true: tables are what `normd` prints, links and paths lead somewhere, no page is missing.

    tests/check_readme.py NORMD [--write]     compares, or with --write puts the tables into the pages first
    tests/check_readme.py --self-test         plants one mistake of each kind and fails unless each is reported

A table is everything between `<!-- BEGIN options -->` and `<!-- END options -->`, in whichever page has the two lines.
"""

import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TABLES = {"options": "--help=markdown", "metrics": "--help=metrics", "errors": "--help=errors"}
FOLDERS = (".ci", ".github", "client", "deploy", "kernels", "proto", "server", "tests")
REQUIRED = (".github/CONTRIBUTING.md", ".github/SECURITY.md", "README.md", "client/README.md", "deploy/README.md",
            "kernels/README.md", "kernels/cpu/README.md", "kernels/cuda/README.md", "proto/README.md",
            "server/README.md", "tests/bench/README.md")
MOST_README_LINES = 199

MARKERS = re.compile(r"<!-- BEGIN (\w+) -->\n(.*?)\n?<!-- END \1 -->", re.DOTALL)
MARKER = re.compile(r"<!-- (?:BEGIN|END) \w+ -->")
FENCED = re.compile(r"^```.*?^```[ \t]*$", re.DOTALL | re.MULTILINE)
SOURCE_NAME = re.compile(r"[\w./-]+\.(?:cc|cuh?|h|py)\b")
INLINE_CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
PATH = re.compile(r"[\w.+-]+(?:/[\w.+-]+)*/?")
SUFFIXES = (".cc", ".h", ".cu", ".cuh", ".md", ".proto", ".py", ".sh", ".txt", ".yaml", ".yml")
PLACEHOLDER = re.compile(r"(?<![A-Za-z])(?:FOLDER|NAME|WHAT)(?![A-Za-z])|\.\.\.")  # kernels/methods/NAME.cc


def tree(root):
    """Every file and folder that is ours, from the root."""
    paths = {name for name in os.listdir(root) if os.path.isfile(os.path.join(root, name))}
    for top in FOLDERS:
        for folder, _, names in os.walk(os.path.join(root, top)):
            relative = os.path.relpath(folder, root)
            paths.add(relative)
            paths.update(os.path.join(relative, name) for name in names)
    return paths


def read_pages(root):
    """Every .md file of the tree: path -> text."""
    pages = {}
    for path in sorted(tree(root)):
        if path.endswith(".md"):
            with open(os.path.join(root, path), encoding="utf-8") as source:
                pages[path] = source.read()
    return pages


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def table_problems(pages, tables):
    problems, places = [], {}
    for page, text in pages.items():
        if len(MARKER.findall(text)) != 2 * len(MARKERS.findall(text)):
            problems.append(f"{page}: a BEGIN marker without its END marker, or the other way round")
        for found in MARKERS.finditer(text):
            name, at = found.group(1), f"{page}:{line_of(text, found.start())}"
            places.setdefault(name, []).append(at)
            if name not in tables:
                problems.append(f"{at}: normd prints no table that is called {name}")
            elif found.group(2).strip() != tables[name].strip():
                problems.append(f"{at}: the table of {name} is not what normd prints: --write puts that here")
    for name in tables:
        found = ", ".join(sorted(places.get(name, [])))
        if len(places.get(name, [])) != 1:
            problems.append(f"the table of {name} must be in one page, is in: {found or 'none'}")
    return problems


def anchors(text):
    """What `#...` of a link may say: the headings of a page, as GitHub spells them."""
    headings = HEADING.findall(FENCED.sub(blank, text))
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    return {f"{anchor}-{plain[:i].count(anchor)}".removesuffix("-0") for i, anchor in enumerate(plain)}


def link_problems(pages, paths):
    problems = []
    for page, text in pages.items():
        prose = INLINE_CODE.sub(blank, FENCED.sub(blank, text))
        for link in LINK.finditer(prose):
            if re.match(r"[a-z]+:", link.group(1)):
                continue
            target, _, anchor = link.group(1).partition("#")
            path = os.path.normpath(os.path.join(os.path.dirname(page), target)) if target else page
            at = f"{page}:{line_of(text, link.start())}"
            if path not in paths:
                problems.append(f"{at}: a link to {path}, which does not exist")
            elif anchor and anchor not in anchors(pages.get(path, "")):
                problems.append(f"{at}: a link to #{anchor}, which {path} does not have")
    return problems


def looks_like_a_path(mention):
    first, slash, _ = mention.removeprefix("./").partition("/")
    if not PATH.fullmatch(mention) or PLACEHOLDER.search(mention) or first == "build":
        return False
    if not slash and first[0] in "-._":  # an ending of names: `.cuh`, `_test.cc`
        return False
    return bool(slash and first in FOLDERS) or mention.endswith(("/",) + SUFFIXES)


def mentions(text):
    """What may be a path: inline code, and names of sources in blocks of text, which are pictures. (position, mention)"""
    found = [(code.start(), code.group(1)) for code in INLINE_CODE.finditer(FENCED.sub(blank, text))]
    for block in FENCED.finditer(text):
        if block.group(0).startswith("```text"):
            found += [(block.start() + name.start(), name.group(0)) for name in SOURCE_NAME.finditer(block.group(0))]
    return found


def path_problems(pages, paths):
    """A path is from the root or from the page's folder. What does not begin with one of our folders may also leave out
    the folders before it: `rows.cc`, `transport/`."""
    endings = {path[cut + 1:] for path in paths for cut in (i for i, letter in enumerate(path) if letter == "/")}
    problems = []
    for page, text in pages.items():
        for position, mention in mentions(text):
            path = mention.removeprefix("./").rstrip("/")
            from_page = os.path.normpath(os.path.join(os.path.dirname(page), path))
            shortened = path in endings and path.split("/")[0] not in FOLDERS
            if looks_like_a_path(mention) and not (path in paths or from_page in paths or shortened):
                problems.append(f"{page}:{line_of(text, position)}: no such path: {mention}")
    return problems


def page_problems(pages):
    problems = [f"no such page: {page}" for page in REQUIRED if page not in pages]
    lines = pages.get("README.md", "").count("\n")
    if lines > MOST_README_LINES:
        problems.append(f"README.md: {lines} lines, at most {MOST_README_LINES}: details go into the folders' pages")
    return problems


def reason_problems(table, sources):
    """A reason of the printed table that no error is made with. (Undeclared ones do not compile.)"""
    used = set(re.findall(r'\b(?:Kernel|Server)Reason\("(\w+)"\)(?!\.name)', sources))
    return [f"no error has the reason {name}" for name in re.findall(r"^\| `(\w+)`", table, re.MULTILINE)
            if name not in used]


def check(pages, paths, tables, sources):
    return (page_problems(pages) + table_problems(pages, tables) + link_problems(pages, paths) +
            path_problems(pages, paths) + reason_problems(tables.get("errors", ""), sources))


TRUE_TABLES = {"options": "| a |\n", "errors": "| `A_REASON` |\n"}
TRUE_SOURCES = 'MakeError(KernelReason("A_REASON"), ...); x == ServerReason("COMPARED").name()'
TRUE_PATHS = {*REQUIRED, "kernels", "server", "server/main.cc", "server/rpc/codec", "server/rpc/codec/x.cc"}
OPTIONS = "<!-- BEGIN options -->\n| a |\n<!-- END options -->\n"
TRUE_PAGES = {page: "# A page\n" for page in REQUIRED} | {"server/README.md": f"""# One
## Two `words`
{OPTIONS}<!-- BEGIN errors -->
| `A_REASON` |
<!-- END errors -->
`server/main.cc` `./server/main.cc` `main.cc` `rpc/codec/` `codec/` `x.cc`
`kernels/NAME.cc` `build/x.cc` `text/plain` `in.npy` `-inl.h` `.cu`
[root](../README.md) [anchor](#two-words) [web](https://example.org/x.md)
```sh
cat server/none.cc '`server/none.cc`' '[none](none.md)'
```
"""}
MISTAKES = {  # what is planted: the page, what is replaced by what, what is reported
    "a stale table": ("server/README.md", "| a |", "| b |", "server/README.md:3: the table of options is not"),
    "a missing table": ("server/README.md", OPTIONS, "", "table of options must be in one page, is in: none"),
    "a table twice": ("kernels/README.md", "", OPTIONS, "is in: kernels/README.md:1, server/README.md:3"),
    "an unknown table": ("kernels/README.md", "", OPTIONS.replace("options", "limits"), "no table that is called lim"),
    "half a marker": ("kernels/README.md", "", "<!-- BEGIN options -->\n", "without its END"),
    "a dead link": ("kernels/README.md", "", "\n[x](cpu/none.md)\n", "README.md:2: a link to kernels/cpu/none.md"),
    "a dead anchor": ("kernels/README.md", "", "[x](../server/README.md#three)\n", "a link to #three"),
    "a dead path": ("kernels/README.md", "", "`server/none.cc`\n", "kernels/README.md:1: no such path: server/none.cc"),
    "a dead name in a picture": ("kernels/README.md", "", "```text\n  (none.cc)\n```\n", "README.md:2: no such path: none.cc"),
    "a dead folder": ("kernels/README.md", "", "`none/`\n", "no such path: none/"),
    "a dead path of a folder": ("server/README.md", "# One", "`rpc/none.cc`", "no such path: rpc/none.cc"),
    "one of our folders without those between": ("server/README.md", "# One", "`server/x.cc`", "path: server/x.cc"),
    "a long README": ("README.md", "", "\n" * 200, "README.md: 201 lines, at most 199"),
}


def self_test():
    failures = []

    def expect(name, report, pages=None, errors=None):
        tables = TRUE_TABLES | ({"errors": errors} if errors else {})
        problems = check(pages or TRUE_PAGES, TRUE_PATHS, tables, TRUE_SOURCES)
        if report and not any(report in problem for problem in problems) or not report and problems:
            failures.append(f"{name} was reported as {problems}")

    expect("a true tree", None)
    for name, (page, old, new, report) in MISTAKES.items():
        expect(name, report, TRUE_PAGES | {page: TRUE_PAGES[page].replace(old, new, 1)})
    missing = "proto/README.md"
    expect("a missing page", f"no such page: {missing}", {p: text for p, text in TRUE_PAGES.items() if p != missing})
    for name in ("COMPARED", "NEVER"):
        expect("an unused reason", f"no error has the reason {name}", errors=f"| `{name}` |")
    print("\n".join(failures) or f"self-test: {len(MISTAKES) + 4} checks, 0 wrong")
    return 1 if failures else 0


def printed_tables(normd):
    # Without NORMD_* variables, which would be taken for options.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NORMD_")}
    return {name: subprocess.run([normd, flag], check=True, capture_output=True, text=True, env=environment,
                                 timeout=30).stdout for name, flag in TABLES.items()}


def write(root, pages, tables):
    for page, text in pages.items():
        written = MARKERS.sub(lambda m: f"<!-- BEGIN {m.group(1)} -->\n{tables.get(m.group(1), m.group(2)).strip()}\n"
                              f"<!-- END {m.group(1)} -->", text)
        if written != text:
            with open(os.path.join(root, page), "w", encoding="utf-8") as out:
                out.write(written)


def read_sources(root):
    """What may make errors: kernels/ and server/ without the lists of reasons."""
    text = ""
    for path in sorted(tree(root)):
        if path.startswith(("kernels/", "server/")) and path.endswith((".cc", ".h")) and "error_reasons" not in path:
            with open(os.path.join(root, path), encoding="utf-8") as source:
                text += source.read()
    return text


def main():
    if "--self-test" in sys.argv[1:]:
        return self_test()
    if len(sys.argv) < 2 or not os.access(sys.argv[1], os.X_OK):
        print("usage: check_readme.py NORMD [--write] | --self-test; build NORMD first: ninja -C build/release normd")
        return 2
    tables = printed_tables(sys.argv[1])
    if "--write" in sys.argv[2:]:
        write(ROOT, read_pages(ROOT), tables)
    pages = read_pages(ROOT)
    problems = check(pages, tree(ROOT), tables, read_sources(ROOT))
    for problem in problems:
        print(problem)
    print(f"readme: {len(pages)} pages, {len(tables)} tables, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
