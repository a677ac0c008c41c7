#!/usr/bin/env python3
"""A test of tests/device/turns.py with planted programs, since few machines have a GPU: figures are right, and a
program that dies, hangs, refuses or talks nonsense is named and left out while the others go on."""

import csv
import json
import os
import subprocess
import sys
import tempfile
import time
import unittest

TURNS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "turns.py")
# Speaks the protocol of bench/sections.h. SPEED: of all its forms; DIE, HANG, REFUSE, NONSENSE: a command; LOG: where
# the commands go.
PLANTED = r'''#!@PYTHON@
import json, os, sys, time
get = os.environ.get
if "--list" in sys.argv:
    names = ["a wide", "b narrow"] + (["c more"] if "--more" in sys.argv else [])
    print(json.dumps([{"name": name, "bytes": 8} for name in names]))
    sys.exit(int(get("LIST", "0")))
if "--probe" in sys.argv:
    print("planted device" if get("PROBE", "0") == "0" else "NOT RUN: no device")
    sys.exit(int(get("PROBE", "0")))
assert "--turns" in sys.argv
micros = {"fast": 10, "exact": 20, "runtime_copy": 8, "own_copy": 5, "eager": 30, "compile": 12, "compile_max": 11}
shape = None
for line in sys.stdin:
    line = line.rstrip("\n")
    command, _, what = line.partition(" ")
    if get("LOG"):
        with open(get("LOG"), "a") as log:
            log.write(get("NAME", "") + " " + line + "\n")
    at = shape if command != "shape" else what
    if get("DIE") in (line, f"{at}: {line}"):
        sys.exit("planted death")
    if get("HANG") == line:
        time.sleep(60)
    if get("SLEEP"):
        time.sleep(float(get("SLEEP")))
    if get("REFUSE") == line:
        answer = "error planted refusal"
    elif get("NONSENSE") == line:
        answer = "nonsense"
    elif command == "shape":
        shape, answer = what, "ok"
    elif command == "done":
        shape, answer = None, "ok"
    elif command == "warm" and shape == "a wide":
        answer = "none"
    else:
        answer = str(micros[what] * 1e-6 / float(get("SPEED", "1")) / (2 if command == "warm" else 1))
    print(answer, flush=True)
'''


class TurnsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.program = self.path("planted")
        with open(self.program, "w", encoding="utf-8") as file:
            file.write(PLANTED.replace("@PYTHON@", sys.executable))
        os.chmod(self.program, 0o755)
        # In place of the Python of the peers, and of the GPU's tool.
        os.mkdir(self.path("tools"))
        for name, text in (("peers", f'shift; NAME=peers exec "{self.program}" "$@"'),
                           ("nvidia-smi", 'echo "1980, 2619, 40, 300.5"')):
            with open(self.path("tools", name), "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\n{text}\n")
            os.chmod(self.path("tools", name), 0o755)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def planted(self, name, **settings):
        return f"{name}=" + " ".join(f"{key}='{value}'" for key, value in settings.items()) + f" {self.program}"

    def run_turns(self, *arguments, **environment):
        tools = self.path("tools")
        done = subprocess.run(
            [sys.executable, TURNS, *arguments], capture_output=True, text=True, timeout=60, check=False,
            env={**os.environ, "PATH": tools + ":" + os.environ["PATH"], "NORMD_PEERS_PYTHON": tools + "/peers",
                 "NORMD_TURNS_PATIENCE": "5", **environment})
        self.said = done.stdout + done.stderr
        return done.returncode

    def saved(self):
        with open(self.path("out.json"), encoding="utf-8") as file:
            return json.load(file)

    def turns(self, *arguments, status=0, **environment):
        """The shapes of the results, by name and cache."""
        self.assertEqual(self.run_turns("--rounds=4", f"--json={self.path('out.json')}", *arguments, **environment),
                         status, self.said)
        return {(shape["name"], shape["cache"]): shape for shape in self.saved()["shapes"]}

    def test_figures_of_every_column(self):
        shapes = self.turns("--exact", "--warm", "--peers", "--max-autotune", f"--csv={self.path('out.csv')}",
                            self.planted("old"), self.planted("new", SPEED=2))
        self.assertEqual(list(shapes), [("a wide", "cold"), ("b narrow", "cold"), ("b narrow", "warm")])
        one = shapes["a wide", "cold"]
        self.assertEqual(one["rounds"], 4)
        self.assertEqual(one["clocks_after"]["sm"], 1980)
        self.assertEqual(list(one["columns"]),
                         ["old fast", "old exact", "new fast", "new exact", "torch eager", "torch compile",
                          "torch compile_max", "runtime_copy", "own_copy", "old fast again"])
        new = one["columns"]["new fast"]
        self.assertEqual(len(new["seconds"]), 4)
        for key, value in (("median", 5e-6), ("min", 5e-6), ("iqr", 0), ("of_copy", 1), ("x_compile", 2.4),
                           ("x_first", 2)):
            self.assertAlmostEqual(new[key], value, msg=key)
        self.assertAlmostEqual(one["columns"]["old fast again"]["x_first"], 1)
        self.assertAlmostEqual(one["columns"]["new exact"]["x_first"], 2)
        self.assertIsNone(one["columns"]["torch eager"]["x_first"])
        self.assertAlmostEqual(shapes["b narrow", "warm"]["columns"]["new fast"]["median"], 2.5e-6)
        with open(self.path("out.csv"), encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 30)
        self.assertEqual(rows[2]["median_us"], "5.000")
        self.assertRegex(self.said, "cold new fast +2 shapes  of copy 1.000  x compile 2.400  x old 2.000  "
                                    "over 2 % faster 2")

    def test_order_turns_and_the_first_runs_last(self):
        self.turns("--only=narrow", "--more", self.planted("old", NAME="old", LOG=self.path("log")),
                   self.planted("new", NAME="new", LOG=self.path("log")))
        with open(self.path("log"), encoding="utf-8") as file:
            lines = [line.strip() for line in file]
        there = ["old run fast", "new run fast", "old run runtime_copy", "old run own_copy", "old run fast"]
        runs = [line for line in lines if " run " in line]
        self.assertEqual(runs, there[::-1] + there + there[::-1] + there + there[::-1])  # one warms up
        self.assertEqual(lines[:2] + lines[-2:], ["old shape b narrow", "new shape b narrow", "old done", "new done"])

    def test_more_shapes_are_for_more(self):
        self.assertEqual(len(self.turns("--more", "--only=wide,more", self.planted("old"))), 2)

    def test_a_program_that_dies_is_left_out_and_comes_back(self):
        shapes = self.turns(self.planted("old"), self.planted("new", DIE="a wide: run fast"), status=1)
        self.assertEqual(list(shapes["a wide", "cold"]["columns"]),
                         ["old fast", "runtime_copy", "own_copy", "old fast again"])
        self.assertIn("new fast", shapes["b narrow", "cold"]["columns"])
        self.assertIn("a wide: new is left out: ended at 'run fast', exit status 1: planted death", self.said)

    def test_the_first_program_dies(self):
        shapes = self.turns("--peers", self.planted("old", DIE="run own_copy"), self.planted("new"), status=1)
        self.assertEqual(list(shapes["a wide", "cold"]["columns"]), ["new fast", "torch eager", "torch compile"])
        self.assertIsNone(shapes["a wide", "cold"]["columns"]["new fast"]["x_first"])
        shapes = self.turns(self.planted("old", DIE="shape a wide"), self.planted("new"), status=1)
        self.assertIn("runtime_copy", shapes["a wide", "cold"]["columns"])
        self.assertIn("old fast", shapes["b narrow", "cold"]["columns"])

    def test_all_die(self):
        self.assertEqual(self.turns(self.planted("old", DIE="run fast"), status=1), {})
        self.assertEqual(len(self.saved()["failures"]), 2)

    def test_a_program_that_hangs_is_killed(self):
        shapes = self.turns("--only=wide", self.planted("old"), self.planted("new", HANG="run fast"), status=1,
                            NORMD_TURNS_PATIENCE="1.5")
        self.assertIn("new is left out: no answer to 'run fast' in 2 s, killed", self.said)
        self.assertIn("old fast", shapes["a wide", "cold"]["columns"])

    def test_refusals_and_nonsense(self):
        shapes = self.turns("--exact", self.planted("old"), self.planted("new", REFUSE="run exact"),
                            self.planted("other", NONSENSE="run fast"), self.planted("full", REFUSE="shape a wide"),
                            status=1)
        columns = shapes["a wide", "cold"]["columns"]
        self.assertIn("new fast", columns)
        for label in ("new exact", "other fast", "other exact", "full fast"):
            self.assertNotIn(label, columns)
        self.assertIn("full fast", shapes["b narrow", "cold"]["columns"])
        self.assertIn("new exact is left out: planted refusal", self.said)
        self.assertIn("other is left out: answered 'nonsense' to 'run fast'", self.said)

    def test_no_peers(self):
        shapes = self.turns("--peers", self.planted("old"), status=1, NORMD_PEERS_PYTHON="/nowhere/python")
        self.assertIn("old fast", shapes["a wide", "cold"]["columns"])
        self.assertIn("torch is left out", self.said)

    def test_time_is_over(self):
        shapes = self.turns("--seconds=2.4", self.planted("old", SLEEP="0.05"))  # 22 answers a shape
        self.assertEqual(list(shapes), [("a wide", "cold")])
        self.assertEqual(self.saved()["not_run"], ["b narrow"])
        self.assertIn("NOT RUN: b narrow", self.said)

    def test_a_signal_ends_it_with_what_is_there(self):
        process = subprocess.Popen([sys.executable, TURNS, f"--json={self.path('out.json')}",
                                    self.planted("old", SLEEP="0.05")], stdout=subprocess.PIPE, text=True)
        while not os.path.exists(self.path("out.json")) and process.poll() is None:
            time.sleep(0.05)
        process.terminate()
        said, _ = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1)
        self.assertIn("stopped by a signal\n\n=== medians", said)
        self.assertEqual(self.saved()["not_run"], ["b narrow"])

    def test_no_device(self):
        self.assertEqual(self.run_turns(self.planted("old", PROBE=3)), 3)
        self.assertIn("NOT RUN: no device", self.said)

    def test_wrong_arguments(self):
        good = self.planted("old")
        for arguments, why in (((), "no NAME=PROGRAM"), ((self.program,), "is not NAME=PROGRAM"),
                               (("x=/nowhere",), "no program that can be run"), (("x=A=1",), "names no program"),
                               ((good, good), "two programs are called old"), ((self.planted("torch"),), "of --peers"),
                               (("--rounds=0", good), "at least 1"), (("--rounds=x", good), "invalid int"),
                               (("--seconds=0", good), "more than 0"), (("--only=(", good), "no regular expression"),
                               (("--only=absent", good), "no shape has 'absent'"), (("--colour", good), "--colour"),
                               (("--max-autotune", good), "is for --peers"),
                               ((self.planted("old", LIST=1),), "gives no list of shapes")):
            with self.subTest(arguments=arguments):
                self.assertEqual(self.run_turns(*arguments), 2, self.said)
                self.assertIn(why, self.said)
                self.assertNotIn("Traceback", self.said)


if __name__ == "__main__":
    unittest.main()
