#!/usr/bin/env python3
"""Holds the lists by which .ci/run leaves steps out to the tree, and tries the leaving out in a scratch repository."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, ".ci"))
sys.dont_write_bytecode = True
import when_changed  # noqa: E402

NOT_RUN = 3
# What may stand in a script for a file of the tree.
WORD = re.compile(r"Dockerfile|[\w.+-]+(?:/[\w.+-]+)+")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
# Files that a step's scripts name and that it does not depend on -> the reason.
BUILT = "builds normd where there is none; in CI there is"
OTHER_SUITE = "of another suite, or in a comment"
# What tests/run.sh does beside building and running these tests.
AROUND = dict.fromkeys(("deploy/install-packages.sh", "tests/support/cost.sh", "tests/support/postgres.sh"),
                       "finds packages, measures, starts a database")
NAMED_ONLY = {
    "real-models": {"deploy/quickstart.sh": BUILT},
    "interop": {"deploy/quickstart.sh": BUILT},
    "bench-kernels": dict.fromkeys(
        ("tests/client/python/run.sh", "tests/support/postgres.sh", "tests/bench/operations/operations.py",
         "tests/bench/record.py", "tests/run.sh"), OTHER_SUITE),
    "bench-store": dict.fromkeys(
        ("tests/client/python/run.sh", "tests/bench/operations/operations.py", "tests/bench/record.py",
         "tests/run.sh"), OTHER_SUITE),
    "kernels": AROUND | {"kernels/README.md": "the text that it makes, not what it checks"},
    "kernels-address-sanitizer": AROUND,
    "golden": AROUND,
    "client": AROUND,
    "client-address-sanitizer": AROUND,
}
# Folders of which a step needs types, or that they compile: what it tests, or waits for, is elsewhere.
LINKED = {"bench-store": ("kernels/",), "kernels": ("tests/bench/", "client/cpp/")}


def read(path, root=ROOT):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        return file.read()


def git(*arguments, root):
    subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True)


class ListsTest(unittest.TestCase):
    def test_every_pattern_matches_a_file(self):
        for step, patterns in when_changed.STEPS.items():
            for pattern in patterns:
                found = when_changed.files_of([re.sub(r"^:\(exclude[^)]*\)", "", pattern)])
                self.assertTrue(found, f"{step}: nothing is {pattern}")

    def test_every_list_is_of_a_step_and_every_such_step_has_a_list(self):
        named = set(re.findall(r"^ *(?:if )?(?:step_when_changed|leave_out) ([\w-]+)", read(".ci/run"), re.MULTILINE))
        self.assertEqual(named, set(when_changed.STEPS))

    def test_a_list_has_what_its_scripts_name(self):
        tracked = set(when_changed.files_of(["."]))
        for step, patterns in when_changed.STEPS.items():
            own = set(when_changed.files_of(patterns))
            command = re.search(rf"^ *step_when_changed {step} (.+)$", read(".ci/run"), re.MULTILINE)
            scripts = [path for path in own if re.match(r"Dockerfile$|(?:deploy|tests)/.*\.(?:sh|py)$", path)]
            texts = {path: read(path) for path in scripts} | ({".ci/run": command.group(1)} if command else {})
            for script, text in texts.items():
                for word in set(WORD.findall(text)):
                    path = os.path.normpath(word)
                    if path in tracked - own - set(NAMED_ONLY.get(step, ())):
                        self.fail(f"{step}: {script} names {path}, which is not in the list of .ci/when_changed.py")

    def test_a_list_has_whatever_its_sources_include(self):
        tracked = set(when_changed.files_of(["."]))
        for step in ("bench-kernels", "bench-store", "client", "cuda-all", "kernels", "kernels-address-sanitizer"):
            own = set(when_changed.files_of(when_changed.STEPS[step]))
            # Host code of the kernels is compiled in every build; what nvcc compiles is not.
            with_sources = step != "cuda-all"
            waiting = [path for path in own if path.endswith((".cu", ".cc") if with_sources else ".cu")]
            seen = set(waiting)
            self.assertTrue(waiting)
            while waiting:
                path = waiting.pop()
                if path not in own and path.startswith(LINKED.get(step, ())):
                    continue
                self.assertTrue(path in own, f"{step}: {path} is included, and is not in the list")
                found = set(INCLUDE.findall(read(path))) & tracked
                if with_sources:
                    found |= {name[:-2] + ".cc" for name in found} & tracked
                waiting.extend(found - seen)
                seen |= found

    def test_what_sanitizers_leave_out_is_there(self):
        text = read("tests/sanitizers.cmake")
        for program, patterns in re.findall(r"^normd_leave_out\(\w+ (\w+) ([^)]+)\)$", text, re.MULTILINE):
            suites = set()
            for path in when_changed.files_of([f"tests/{program}"]):
                suites |= set(re.findall(r"^TEST(?:_F|_P)?\((\w+),", read(path), re.MULTILINE))
            for pattern in patterns.split():
                self.assertTrue(suites & set(re.findall(r"\w+", pattern)), f"{program}: no test is a {pattern}")
        text = read("tests/server/sanitizers.cmake").replace('"\n    "', "")
        for folders, names in re.findall(r"[(|]([a-z/]*)\(([a-z_|]+)\)", text):
            for name in names.split("|"):
                path = f"tests/server/{folders}{name}_test.cc"
                self.assertTrue(os.path.exists(os.path.join(ROOT, path)), path)

    def test_the_record_is_of_steps_that_there_are(self):
        for step, (value, day) in when_changed.read_record().items():
            self.assertIn(step, when_changed.STEPS)
            self.assertRegex(value, r"^[0-9a-f]{64}$")
            self.assertRegex(day, r"^\d{4}-\d\d-\d\d$")


class RunTest(unittest.TestCase):
    """The scripts of .ci/ in a repository with a Dockerfile and next to nothing else."""

    def setUp(self):
        self.root = tempfile.mkdtemp(prefix="normd-ci.")
        self.addCleanup(shutil.rmtree, self.root)
        for path in (".ci/when_changed.py", ".ci/steps.sh", "tests/support/cost.sh"):
            os.makedirs(os.path.dirname(os.path.join(self.root, path)), exist_ok=True)
            shutil.copy(os.path.join(ROOT, path), os.path.join(self.root, path))
        self.write("Dockerfile", "FROM scratch\n")
        self.write("client/README.md", "text\n")
        git("init", "--quiet", root=self.root)
        self.commit()

    def write(self, path, text):
        os.makedirs(os.path.dirname(os.path.join(self.root, path)), exist_ok=True)
        with open(os.path.join(self.root, path), "w", encoding="utf-8") as file:
            file.write(text)

    def commit(self):
        git("add", "--all", root=self.root)
        git("-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "--quiet", "--message=x",
            root=self.root)

    def ci(self, command="echo it ran", full=""):
        """(status, output) of a run whose only step is the container's."""
        script = (f"set -euo pipefail; full={full}; source .ci/steps.sh; step_when_changed container {command}; "
                  "print_steps")
        result = subprocess.run(["bash", "-c", script], cwd=self.root, capture_output=True, text=True, check=False)
        return result.returncode, result.stdout + result.stderr

    def assert_runs(self, full=""):
        status, output = self.ci(full=full)
        self.assertEqual(status, 0, output)
        self.assertIn("\nit ran\n", output)
        self.assertRegex(output, r"\d+ s +\d+ s of CPU  container")
        self.assertNotIn("NOT RUN", output)

    def assert_left_out(self):
        status, output = self.ci()
        self.assertEqual(status, 0, output)
        self.assertNotIn("\nit ran\n", output)
        self.assertEqual(output.count("container: NOT RUN: nothing it depends on"), 2, output)

    def test_a_step_runs_once_and_again_when_something_it_depends_on_has_changed(self):
        self.assert_runs()
        self.assert_left_out()
        self.commit()
        self.assert_left_out()
        self.write("client/README.md", "other text\n")
        self.assert_left_out()
        self.write("Dockerfile", "FROM nothing\n")
        self.assert_runs()
        self.assert_left_out()

    def test_a_new_file_a_removed_one_and_a_right_are_changes(self):
        self.assert_runs()
        self.write("deploy/container-test.sh", "true\n")
        self.assert_runs()
        os.chmod(os.path.join(self.root, "deploy/container-test.sh"), 0o755)
        self.assert_runs()
        os.unlink(os.path.join(self.root, "deploy/container-test.sh"))
        self.assert_runs()
        self.assert_left_out()

    def test_full_runs_what_has_not_changed(self):
        self.assert_runs()
        self.assert_runs(full="1")

    def test_a_step_that_fails_ends_the_run_and_is_not_recorded(self):
        status, output = self.ci(command="false")
        self.assertEqual(status, 1)
        self.assertIn("=== container FAILED", output)
        self.assertNotIn("in all", output)
        self.assert_runs()

    def test_the_run_says_that_the_record_wants_to_be_committed(self):
        self.assert_runs()
        self.commit()
        self.write("Dockerfile", "FROM nothing\n")
        self.assertIn(".ci/passed has changed: commit it", self.ci()[1])


if __name__ == "__main__":
    if not os.path.exists(os.path.join(ROOT, ".git")):
        print("NOT RUN: .ci/when_changed.py asks git, and this tree is not a repository")
        sys.exit(NOT_RUN)
    unittest.main()
