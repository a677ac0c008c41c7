#!/usr/bin/env python3
"""Runs what the READMEs tell people to type: every command of every page, and every complete program.

    tests/readme_commands.py NORMD NORMCTL NORMLOAD FAILING_FLUSH PROGRAMS
    tests/readme_commands.py --write-programs FOLDER   writes the pages' C++ programs there, for CMake to compile

The commands of a page are run as printed, in their order, in a folder that looks like the repository's root, with the
build folder on the PATH, against a normd of the page's own. Input files that they name are made first. A command that
takes too long is in COVERED, with what runs it; one that cannot be run here is said to be NOT RUN, with the reason. Any
other command fails the test. PROGRAMS is the folder of the compiled C++ programs.
"""

import ast
import dataclasses
import importlib.util
import math
import os
import re
import shlex
import shutil
import string
import subprocess
import sys
import tempfile

from check_readme import ROOT, read_pages

DEFAULT_SERVER = "127.0.0.1:8001"
PATIENCE = 120  # seconds a command; on a busy machine
SHELL_BLOCKS = ("sh", "bash", "shell", "console")
BLOCK = re.compile(r"^```([\w+]*)[ \t]*\n(.*?)^```[ \t]*$", re.DOTALL | re.MULTILINE)
# What only a shell block may hold: in other blocks nobody would run it.
COMMAND_LINE = re.compile(
    r"^(?:\$ )?(?:(?:normctl|normload|grpcurl|docker|cmake|ninja|pip) |python3? -|normd --|\./).*", re.MULTILINE)

# Beginnings of commands that take too long here -> a file, and the words by which the file runs the command.
COVERED = {
    "./.ci/run": (".ci/run", "step tests "),
    "./tests/deploy/run.sh": (".ci/run", "step_when_changed deployments ./tests/deploy/run.sh"),
    "./deploy/compose/make-secrets.sh": ("tests/deploy/compose_check.py", "make-secrets.sh"),
    "./deploy/container-test.sh": (".ci/run", "step_when_changed container ./deploy/container-test.sh"),
    "./deploy/make-certificates.sh": ("tests/CMakeLists.txt", "make_certificates_test.py"),
    "./deploy/quickstart.sh": (".ci/run", "step_when_changed quickstart "),
    "./run.sh": ("tests/device/CMakeLists.txt", "run_self_test.sh"),  # of a packed tree: tests/device/run.sh
    "./turns.py": ("tests/device/CMakeLists.txt", "turns_self_test.py"),  # of a packed tree: tests/device/turns.py
    "./tests/accuracy/run.sh": ("tests/accuracy/CMakeLists.txt", "add_test(NAME accuracy_report "),
    "./tests/bench/run.sh datapath": (".ci/run", "./tests/bench/run.sh datapath "),
    "./tests/bench/run.sh kernels": (".ci/run", "./tests/bench/run.sh kernels "),
    "./tests/bench/run.sh store": (".ci/run", "./tests/bench/run.sh store "),
    "./tests/bench/run.sh transport": (".ci/run", "./tests/bench/run.sh transport "),
    "./tests/client/python/run.sh": ("tests/CMakeLists.txt", "/client/python/run.sh"),
    "./tests/kernels/python/run.sh": ("tests/CMakeLists.txt", "/kernels/python/run.sh"),
    "./tests/crash/run.sh": (".ci/run", "step crash ./tests/crash/run.sh"),
    "./tests/device/run.sh": ("tests/device/CMakeLists.txt", "run_self_test.sh"),
    "./tests/e2e/real_models.sh": (".ci/run", "step_when_changed real-models ./tests/e2e/real_models.sh"),
    "tests/e2e/hostile/hostile.py": ("tests/CMakeLists.txt", "add_test(NAME hostile COMMAND "),
    "./tests/e2e/interop.sh": (".ci/run", "step_when_changed interop ./tests/e2e/interop.sh"),
    "./tests/first_commands.sh": (".ci/run", "step first-commands ./tests/first_commands.sh"),
    "./tests/run.sh": (".ci/run", "step tests ./tests/run.sh"),
    "./tests/run.sh --configure-only": ("tests/first_commands.sh", "--configure-only"),
    "./tests/run.sh --sanitize=address": (".ci/run", "./tests/run.sh --sanitize=address"),
    "./tests/run.sh --sanitize=thread": (".ci/run", "./tests/run.sh --sanitize=thread"),
    "./tests/support/postgres.sh": ("tests/run.sh", "./tests/support/postgres.sh start"),
    "build/examples/layer_norm": ("tests/package_test.py", "{build}/layer_norm"),
    "build/release/device_test": ("tests/device/CMakeLists.txt", "normd_discover_tests(device_test "),
    "build/release/kernels_test": ("tests/CMakeLists.txt", "normd_test(kernels "),
    "build/release/server_test": ("tests/CMakeLists.txt", "normd_test(server "),
    "clang-tidy-14": (".ci/run", "clang-tidy-14 -quiet -p build/asan"),
    "cmake": ("tests/CMakeLists.txt", "package_test.py"),
    "ctest --test-dir": ("tests/run.sh", "ctest --test-dir"),
    "docker compose": ("tests/deploy/compose_check.py", '"docker-compose", "--file"'),
    "docker": (".ci/run", "step_when_changed container "),
    "g++ -std=c++20 layer_norm.cc": ("tests/package_test.py", "f\"{EXAMPLES}/layer_norm.cc\", \"-o\", program"),
    "git ls-files": (".ci/run", "git ls-files -co --exclude-standard"),
    "install": ("tests/deploy/systemd_check.py", "def lay_out("),
    "kubectl": ("tests/deploy/kubernetes_check.py", 'kubectl, "kustomize"'),
    "normctl health -s 127.0.0.1:8001 --ca": ("tests/client/security_test.cc",
                                              "RunHealth({\"-s\", server.target(), \"--ca\""),
    "ninja -C build/asan": (".ci/run", "./tests/run.sh --sanitize=address"),
    "ninja -C build/release": (".ci/run", "step tests ./tests/run.sh"),
    "normd --listen=[::]:8001": ("tests/programs/normd_test.py", "f\"--tls_client_ca={certificate}\""),
    "pip install ./client/python": ("tests/client/python/run.sh", "\"./client/python[test]\""),
    "normd --session_store=postgres://normd@db/normd": ("tests/e2e/rolling_restart.py", "--session_store={store}"),
    "normd --trace_endpoint=http://127.0.0.1:4317": ("tests/programs/normd_test.py",
                                                     "f\"--trace_endpoint=http://127.0.0.1:"),
    "pkg-config": ("tests/package_test.py", "run(\"pkg-config\", \"--cflags\", \"--libs\", \"normd\""),
    "promtool test rules": ("tests/deploy/prometheus_check.py", 'promtool("test", "rules"'),
    "python3 -m venv": ("tests/client/python/run.sh", "python3 -m venv"),
    "python3 deploy/capacity.py": ("tests/deploy/capacity_check.py", '"deploy/capacity.py"'),
    "python3 tests/check_layers.py": ("tests/CMakeLists.txt", "check_layers.py"),
    "python3 tests/check_readme.py": ("tests/CMakeLists.txt", "check_readme.py"),
    "systemctl": ("tests/deploy/systemd_check.py", '"systemd-analyze", "verify"'),
    "systemd-sysusers": ("tests/deploy/systemd_check.py", '"systemd-sysusers"'),
    "xargs clang-format-14": (".ci/run", "xargs -r clang-format-14"),
}
NOT_RUN = {
    "./tests/device/pack.sh": "packs programs that only a build with the CUDA Toolkit has",
    "apt-get install": "takes packages from the network",
    "grpcurl -cacert": "needs a server with a certificate",
    "normd --listen=127.0.0.1:8001": "takes a port that others may have",
    "normload --ca": "needs a server with a certificate",
    "pip install": "takes packages from the network",
}
# Run here with another word at their ends: what has no end, or takes longer than a test may.
SHORTENED = {
    "normctl session watch": {"--count": "--count=1"},
    "normload": {"--duration": "--duration=200ms", "--warmup": "--warmup=0s"},
    "normload --sweep": {"--loads": "--loads=50,100", "--repeats": "--repeats=1"},
}
SAME_FLAG = {"--duration": "-d"}
RUN = (".", "cat", "cut", "export", "mkdir", "normctl", "normload", "printf", "true")


@dataclasses.dataclass
class Snippet:
    """A block of a page, or a command of a block: one line and those that continue it."""
    page: str
    line: int  # the first
    text: str  # as printed
    language: str

    @property
    def at(self):
        return f"{self.page}:{self.line}"

    def parts(self):
        """The words of each simple command: what stands between |, &&, ; and parentheses."""
        lexer = shlex.shlex(self.text.replace("\\\n", " "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        found = [[]]
        for word in lexer:
            if set(word) <= set("<>"):
                next(lexer)  # the file of a redirection
            elif set(word) <= set("();<>|&"):
                found.append([])
            else:
                found[-1].append(word)
        return [words for words in found if words]


def blocks(page, text):
    return [Snippet(page, text.count("\n", 0, found.start()) + 2, found.group(2), found.group(1))
            for found in BLOCK.finditer(text)]


def commands(block):
    found, start, pending = [], block.line, ""
    for number, line in enumerate(block.text.splitlines(), block.line):
        if not pending:
            start = number
        pending += line
        if pending.endswith("\\"):
            pending += "\n"
            continue
        command = Snippet(block.page, start, pending, block.language)
        if command.parts():
            found.append(command)
        pending = ""
    return found


def begins(words, beginning):
    return words[:len(beginning.split())] == beginning.split()


def longest(table, words):
    return max((beginning for beginning in table if begins(words, beginning)), key=len, default=None)


def missing_modules(names):
    def is_missing(name):
        try:
            return importlib.util.find_spec(name) is None
        except ModuleNotFoundError:
            return True
    return [name for name in names if is_missing(name)]


def says(path, words):
    """Whether a file of the tree has these words."""
    try:
        with open(os.path.join(ROOT, path), encoding="utf-8") as source:
            return words in source.read()
    except FileNotFoundError:
        return False


def classify(words):
    """("run", ""), ("covered", by what), ("not run", why) or ("wrong", why) of a simple command."""
    beginning = longest(COVERED, words)
    if beginning:
        path, said = COVERED[beginning]
        return ("covered", path) if says(path, said) else ("wrong", f"{path} does not say `{said}`")
    beginning = longest(NOT_RUN, words)
    if beginning:
        return "not run", NOT_RUN[beginning]
    if words[0] == "grpcurl":
        return ("run", "") if shutil.which("grpcurl") else ("not run", "grpcurl is not installed")
    if words[0] in ("python", "python3") and words[1:2] == ["-m"]:
        missing = missing_modules([words[2].split(".")[0]])
        return ("not run", f"this Python has no {missing[0]}") if missing else ("run", "")
    if words[0] == "normd" and any(word.startswith(("--backup", "--help", "--make_token", "--version")) for word in words):
        return "run", ""
    if words[0] in RUN:
        return "run", ""
    return "wrong", "nothing runs this command; tests/readme_commands.py has a list of what is run elsewhere"


def shortened(command):
    """The command with what SHORTENED adds, and what that is."""
    words, added = command.parts()[0], []
    for beginning, flags in SHORTENED.items():
        if words[0] == beginning.split()[0] and set(beginning.split()) <= set(words):
            added += [word for flag, word in flags.items()
                      if not any(w.split("=")[0] in (flag, SAME_FLAG.get(flag)) for w in words)]
    return (shlex.join(words + added) if added else command.text), added


class Site:
    """A folder that looks like the root, with the files that commands name, and a server that starts when asked for."""

    def __init__(self, folder, build, start):
        self.folder = folder
        self.output = ""  # of the last command
        self._start = start
        self._server = None
        for name in os.listdir(ROOT):
            if not name.startswith(("build", ".git")):
                os.symlink(os.path.join(ROOT, name), os.path.join(folder, name))
        os.makedirs(os.path.join(folder, "build"))
        programs = os.path.join(folder, "build", "bin")
        os.makedirs(programs)
        for name in ("python", "python3"):  # not a link, by which a virtual environment would not know itself
            path = os.path.join(programs, name)
            with open(path, "w", encoding="utf-8") as out:
                out.write(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
            os.chmod(path, 0o755)
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("NORMD_")}
        self.environment.update(PATH=f"{programs}:{build}:{os.environ['PATH']}", HOME=folder)

    def server(self):
        if self._server is None:
            folder = os.path.join(self.folder, "build", "server")
            os.makedirs(folder)
            self._server = self._start(folder)
            self.environment.update(NORMD_SERVER=self._server.address, NORMD_DATA_DIR=f"{folder}/data")
        return self._server

    def at_server(self, text):
        return text.replace(DEFAULT_SERVER, self.server().address) if DEFAULT_SERVER in text else text

    def stop(self):
        if self._server:
            self._server.stop()

    def make_inputs(self, words):
        for before, word in zip(words, words[1:]):
            path = os.path.join(self.folder, word)
            if before in ("-o", "--output", "--html") or os.path.exists(path):
                continue
            if word.endswith(".npy"):
                write_tensor(path)

    def run(self, command):
        """Returns nothing, or how the command failed."""
        result = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=self.folder, env=self.environment,
                                capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.output = result.stdout
        return "" if result.returncode == 0 else f"exit code {result.returncode}\n{result.stdout}{result.stderr}"


def write_tensor(path):
    """Images of 4 channels, which every method takes."""
    from programs.harness import write_npy  # not above: it reads the arguments
    write_npy(path, (2, 4, 3, 3), [math.sin(7.3 * i) for i in range(72)])


class Report:
    def __init__(self, out):
        self.out = out
        self.counts = {"run": 0, "covered": 0, "not run": 0}
        self.failures = []

    def note(self, what, at, text, why=""):
        self.counts[what] += 1
        text = re.sub(r"\s+# .*", "", text)
        print(f"{what.upper() if what == 'not run' else what}: {at}: {text}{'  (' + why + ')' if why else ''}",
              file=self.out)

    def fail(self, at, text, why):
        self.failures.append(f"{at}: {text}: {why}")
        print(f"FAILED: {self.failures[-1]}", file=self.out)


def run_command(command, site, report):
    kinds = [classify(words) for words in command.parts()]
    for what in ("wrong", "covered", "not run"):  # one part decides what becomes of the line
        for why in (why for kind, why in kinds if kind == what):
            if what == "wrong":
                return report.fail(command.at, command.text, why)
            return report.note(what, command.at, command.text, why)
    words = command.parts()[0]
    if words[0] == "export":
        known = {**site.environment, "PWD": site.folder}
        site.environment.update(string.Template(word).safe_substitute(known).split("=", 1) for word in words[1:])
        return report.note("run", command.at, command.text)
    if words[0] in ("grpcurl", "normctl", "normd", "normload"):
        site.server()
        site.make_inputs(words)
        text, added = shortened(command)
        text = site.at_server(text)
    else:
        text, added = command.text, []
    failure = site.run(text)
    if failure:
        return report.fail(command.at, command.text, failure)
    return report.note("run", command.at, command.text, f"with {' '.join(added)}" if added else "")


def run_python(block, site, report):
    """A complete program begins with an import; what does not is a part of one, and only has to be Python."""
    body = ast.parse(block.text).body
    if not isinstance(body[0], (ast.Import, ast.ImportFrom)):
        return report.note("not run", block.at, "a part of a Python program", "compiled alone")
    names = {name.name for node in body if isinstance(node, ast.Import) for name in node.names}
    names |= {node.module for node in body if isinstance(node, ast.ImportFrom)}
    # normd.v1 are the stubs that a page generates; normd is the package (tests/client/python/readme_test.py runs these).
    missing = missing_modules(sorted({name.split(".")[0] for name in names if not name.startswith("normd.v1")}))
    if missing:
        return report.note("not run", block.at, "a Python program", f"this Python has no {', '.join(missing)}")
    path = os.path.join(site.folder, "build", "program.py")
    with open(path, "w", encoding="utf-8") as out:
        out.write(site.at_server(block.text))
    failure = site.run(f"python3 {shlex.quote(path)}")
    what = "the Python program"
    return report.fail(block.at, what, failure) if failure else report.note("run", block.at, what)


def cpp_programs(pages):
    """The complete programs by name; one that several pages have is there once."""
    programs = {block.text: block for page, text in reversed(pages.items()) for block in blocks(page, text)
                if block.language == "cpp" and re.search(r"^int main\(", block.text, re.MULTILINE)}
    return {f"readme_program_{number}": block for number, block in enumerate(programs.values(), 1)}


def cpp_source(block):
    """What is compiled: the program as printed, but asking the server that the environment names."""
    return (f'#include <cstdlib>\n#line {block.line} "{block.page}"\n' +
            block.text.replace(f'"{DEFAULT_SERVER}"', 'std::getenv("NORMD_SERVER")'))


def is_current(path, block):
    if not os.path.exists(path):
        return False
    with open(path, encoding="utf-8") as source:
        return source.read() == cpp_source(block)


def write_programs(folder):
    """Prints the programs' names. Files that are as they should be keep their times."""
    os.makedirs(folder, exist_ok=True)
    programs = cpp_programs(read_pages(ROOT))
    for name, block in programs.items():
        path = os.path.join(folder, name + ".cc")
        if not is_current(path, block):
            with open(path, "w", encoding="utf-8") as out:
                out.write(cpp_source(block))
    print(";".join(programs), end="")


def run_cpp(block, path, site, report):
    what = "the C++ program"
    if not is_current(path + ".cc", block):
        return report.fail(block.at, what, "the build folder has another one: configure and build again")
    if DEFAULT_SERVER in block.text:
        site.server()
    failure = site.run(shlex.quote(path))
    # A comment on the line that prints says what is printed.
    said = re.search(r"std::cout.*;\s*// (.+)$", block.text, re.MULTILINE)
    if not failure and said and site.output.split() != said.group(1).split():
        failure = f"it prints {site.output.strip()}, the comment says {said.group(1)}"
    return report.fail(block.at, what, failure) if failure else report.note("run", block.at, what)


def run_page(page, text, programs, site, report):
    for block in blocks(page, text):
        command = COMMAND_LINE.search(block.text)
        if block.language in SHELL_BLOCKS:
            for command in commands(block):
                run_command(command, site, report)
        elif block.language == "python":
            run_python(block, site, report)
        elif block.at in programs:
            run_cpp(block, programs[block.at], site, report)
        elif command:
            label = block.language or "no name"
            report.fail(block.at, command.group(0), f"a command in a block of {label}: call it sh")


def check(pages, folder, build, start, out):
    """Runs everything; `folder` has the C++ programs, `start` starts a server."""
    report = Report(out)
    programs = {block.at: os.path.join(folder, name) for name, block in cpp_programs(pages).items()}
    for page, text in pages.items():
        with tempfile.TemporaryDirectory(prefix="normd-readme.") as scratch:
            site = Site(scratch, build, start)
            try:
                run_page(page, text, programs, site, report)
            finally:
                site.stop()
    counts = ", ".join(f"{count} {what}" for what, count in report.counts.items())
    print(f"readme commands: {len(pages)} pages, {counts}, {len(report.failures)} failed", file=out)
    return report


def main():
    if sys.argv[1] == "--write-programs":
        return write_programs(sys.argv[2])
    from programs.harness import NORMD, Server  # it reads the same arguments
    report = check(read_pages(ROOT), os.path.abspath(sys.argv[5]), os.path.dirname(NORMD), Server, sys.stdout)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
