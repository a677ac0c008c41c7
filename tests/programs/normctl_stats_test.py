#!/usr/bin/env python3
"""normctl stats, end to end: tests/programs/normctl_stats_test.py NORMD NORMCTL NORMLOAD FAILING_FLUSH [TEST...]"""

import array
import ctypes
import json
import math
import random
import shutil
import signal
import struct
import subprocess
import time
import unittest

from harness import ENVIRONMENT, NORMCTL, PATIENCE, ServerTest, TEST_ARGUMENTS, run, write_text


def write_f64_npy(path, rows, channels, values):
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({rows}, {channels}), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as out:
        out.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode("latin1"))
        out.write(array.array("d", values).tobytes())


def truth(columns):
    """Count, mean and biased variance of each column, to the last bits."""
    means = [math.fsum(column) / len(column) for column in columns]
    return [(len(column), mean, math.fsum((x - mean) ** 2 for x in column) / len(column))
            for column, mean in zip(columns, means)]


class StatsCommands(ServerTest):
    def stats(self, *arguments):
        return self.succeed(NORMCTL, "stats", *arguments, self.at)

    def shown(self, name):
        return json.loads(self.stats("show", name, "--json"))

    def fit(self, name, *arguments):
        return json.loads(self.stats("fit", *arguments, f"--name={name}", "--json"))["files"]

    def refuse_stats(self, *arguments):
        result = run(NORMCTL, "stats", *arguments, self.at)
        self.assertNotEqual(result.returncode, 0, f"{arguments}\n{result.stdout}")
        return result.stderr

    def csv(self, name, columns):
        """A file of named columns."""
        path = self.path(name)
        lines = [",".join(columns), *(",".join(map(repr, row)) for row in zip(*columns.values()))]
        write_text(path, "\n".join(lines) + "\n")
        return path


class StatsTest(StatsCommands):
    def assert_holds(self, name, columns):
        shown = self.shown(name)
        for channel, (count, mean, var) in enumerate(truth(columns)):
            self.assertEqual(shown["count"][channel], count)
            self.assertTrue(math.isclose(shown["mean"][channel], mean, rel_tol=1e-12))
            self.assertTrue(math.isclose(shown["var"][channel], var, rel_tol=1e-12))
            self.assertEqual(shown["min"][channel], min(columns[channel]))
            self.assertEqual(shown["max"][channel], max(columns[channel]))
        return shown

    def test_rows_of_all_files_are_one_state_and_names_are_those_of_the_header(self):
        dice = random.Random(1)
        a, b = ([dice.gauss(1e3, 2) for _ in range(500)] for _ in range(2))
        first = self.csv("first.csv", {"speed": a[:300], "angle": b[:300]})
        second = self.csv("second.csv", {"angle": b[300:], "speed": a[300:]})  # another order
        files = self.fit("fit-names", first, second)
        self.assertEqual([file["counted"] for file in files], [300, 200])
        shown = self.assert_holds("fit-names", [a, b])
        self.assertEqual(shown["channel_names"], ["speed", "angle"])
        text = self.stats("show", "fit-names")
        self.assertRegex(text, rf"version 2, 2 channels\ndigest {shown['digest']}\n")
        other = self.csv("other.csv", {"speed": [1.0], "angel": [2.0]})
        self.assertIn("angle", self.refuse_stats("fit", other, "--name=fit-names"))
        self.assertEqual(self.shown("fit-names")["version"], 2)

    def test_arrays_are_read_as_they_are_and_again_counts_nothing(self):
        dice = random.Random(2)
        values = [dice.gauss(0, 1) for _ in range(3 * 1000)]
        path = self.path("rows.npy")
        write_f64_npy(path, 1000, 3, values)
        self.assertEqual(self.fit("fit-array", path)[0]["counted"], 1000)
        shutil.copy(path, self.path("elsewhere.npy"))
        again = self.fit("fit-array", self.path("elsewhere.npy"))[0]
        self.assertEqual((again["counted"], again["counted_before"]), (0, 1000))
        self.assert_holds("fit-array", [values[c::3] for c in range(3)])
        self.assertIn("have the same content", self.refuse_stats("fit", path, self.path("elsewhere.npy"), "--name=x"))

    def test_values_that_are_not_finite_are_left_out_alone(self):
        path = self.path("holes.csv")
        write_text(path, "1,2\nnan,4\n3,inf\n")
        file = self.fit("fit-holes", path)[0]
        self.assertEqual((file["counted"], file["not_finite"]), (3, 2))
        self.assertEqual(self.shown("fit-holes")["count"], [2, 2])
        self.assertEqual(self.shown("fit-holes")["mean"], [2, 3])

    def version(self, name):
        result = run(NORMCTL, "session", "get", name, "--basic", "--json", self.at)
        return json.loads(result.stdout)["version"] if result.returncode == 0 else 0

    def is_killed_in_the_middle(self, name, paths):
        """Starts a fit and kills it after a step of its own. False if it came to its end before."""
        before = self.version(name)
        with subprocess.Popen([NORMCTL, "stats", "fit", *paths, f"--name={name}", "--jobs=2", self.at],
                              stdout=subprocess.DEVNULL, env=ENVIRONMENT) as process:
            while process.poll() is None:
                time.sleep(0.003)
                process.send_signal(signal.SIGSTOP)
                if self.version(name) > before:
                    process.send_signal(signal.SIGKILL)
                    process.wait(timeout=PATIENCE)
                    return True
                process.send_signal(signal.SIGCONT)
            self.assertEqual(process.returncode, 0)
            return False

    def test_a_fit_that_is_killed_and_started_again_counts_each_row_once(self):
        dice = random.Random(3)
        paths, columns = [], [[], []]
        for file in range(3):  # each of several steps, the last of them not whole
            values = [dice.random() + file for _ in range(2 * 300_000)]
            paths.append(self.path(f"killed-{file}.npy"))
            write_f64_npy(paths[-1], 300_000, 2, values)
            for channel in range(2):
                columns[channel] += values[channel::2]
        kills = 0
        while self.is_killed_in_the_middle("fit-killed", paths):
            kills += 1
        self.assertGreater(kills, 1)
        files = self.fit("fit-killed", *paths)
        self.assertEqual([file["rows"] for file in files], [300_000] * 3)
        self.assertEqual([file["counted"] + file["counted_before"] for file in files], [300_000] * 3)
        self.assert_holds("fit-killed", columns)
        self.assertEqual(self.shown("fit-killed")["version"], 3 * 5)  # 300,000 rows in steps of 65,536

    def test_steps_beyond_the_servers_window_are_known_to_be_counted(self):
        """A file of more steps than the server has outcomes of: an earlier run counted them."""
        rows = 20 * 65_536 + 1
        path = self.path("long.npy")
        write_f64_npy(path, rows, 1, (i % 7 for i in range(rows)))
        self.assertEqual(self.fit("fit-long", path)[0]["counted"], rows)
        self.assertEqual(self.fit("fit-long", path)[0]["counted_before"], rows)
        self.assertEqual(self.shown("fit-long")["count"], [rows])
        self.assertEqual(self.shown("fit-long")["version"], 21)

    def test_what_cannot_be_fitted_is_refused_by_its_name(self):
        bad = self.path("bad.csv")
        write_text(bad, "1,2\n3\n")
        self.assertIn("bad.csv: line 2: 1 fields where 2 are expected", self.refuse_stats("fit", bad, "--name=x"))
        self.assertIn("nowhere.csv: cannot open", self.refuse_stats("fit", self.path("nowhere.csv"), "--name=x"))
        self.assertIn("--name", self.refuse_stats("fit", bad))
        self.succeed(NORMCTL, "session", "create", "batch-norm", "--channels=2", "--layout=channels-last", "--id=steps",
                     self.at)
        good = self.path("good.csv")
        write_text(good, "1,2\n3,4\n")
        self.assertIn("does not count samples", self.refuse_stats("fit", good, "--name=steps"))
        cut = self.path("cut.npy")
        write_f64_npy(cut, 10, 2, range(19))
        self.assertIn("cut.npy: ends before the data of its shape", self.refuse_stats("fit", cut, "--name=x"))

    def test_watch_shows_each_version_as_it_comes(self):
        path = self.path("watched.csv")
        write_text(path, "1,2\n3,4\n")
        self.fit("fit-watched", path)
        with subprocess.Popen([NORMCTL, "stats", "watch", "fit-watched", "--json", "--count=2", self.at], text=True,
                              stdout=subprocess.PIPE, env=ENVIRONMENT) as process:
            self.assertEqual(json.loads(process.stdout.readline())["mean"], [2, 3])
            write_text(path, "5,6\n")
            self.fit("fit-watched", path)
            line = json.loads(process.stdout.readline())
            self.assertEqual((line["version"], line["count"], line["mean"]), (2, [3, 3], [3, 4]))
            self.assertEqual(process.wait(timeout=PATIENCE), 0)

    def test_diff_compares_channels_by_name(self):
        one = self.csv("one.csv", {"a": [1.0, 3.0], "b": [10.0, 30.0]})
        other = self.csv("another.csv", {"b": [10.0, 30.0], "a": [2.0, 4.0]})
        self.fit("diff-one", one)
        self.fit("diff-other", other)
        self.assertEqual(run(NORMCTL, "stats", "diff", "diff-one", "diff-one", self.at).returncode, 0)
        result = run(NORMCTL, "stats", "diff", "diff-one", "diff-other", "--json", self.at)
        self.assertEqual(result.returncode, 1)
        self.assertEqual(json.loads(result.stdout)["channels"],
                         [{"channel": "a", "shift": 1, "std_ratio": 1, "differs": True},
                          {"channel": "b", "shift": 0, "std_ratio": 1, "differs": False}])
        self.assertEqual(run(NORMCTL, "stats", "diff", "diff-one", "diff-other", "-t1", self.at).returncode, 0)
        unnamed = self.path("unnamed.csv")
        write_text(unnamed, "1,2\n")
        self.fit("diff-unnamed", unnamed)
        self.assertIn("have no names", self.refuse_stats("diff", "diff-one", "diff-unnamed"))


class ExportTest(StatsCommands):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        dice = random.Random(4)
        cls.columns = {name: [dice.gauss(5, 2) for _ in range(64)] for name in ("state/0", "state/1", "speed")}

    def setUp(self):
        self.fit("robot.arm", self.csv("robot.csv", self.columns))

    def export(self, form, *flags):
        return self.stats("export", "robot.arm", f"--format={form}", *flags)

    def test_json_has_everything(self):
        self.assertEqual(json.loads(self.export("json")), self.shown("robot.arm"))
        chosen = json.loads(self.export("json", "--channels=speed,state/0"))
        self.assertEqual(chosen["channel_names"], ["speed", "state/0"])
        self.assertIn("unknown channel sped: did you mean speed?",
                      self.refuse_stats("export", "robot.arm", "--format=json", "--channels=sped"))

    def test_lerobot_groups_channels_to_features(self):
        stats = json.loads(self.export("lerobot"))
        shown = self.shown("robot.arm")
        self.assertEqual(list(stats), ["state", "speed"])
        for field in ("mean", "std", "min", "max"):
            self.assertEqual(stats["state"][field] + stats["speed"][field], shown[field])
        self.assertEqual(stats["state"]["count"], [64])
        self.assertEqual(list(json.loads(self.export("lerobot", "--feature=observation.state"))), ["observation.state"])
        self.assertIn("channel state/0 is missing",
                      self.refuse_stats("export", "robot.arm", "--format=lerobot", "--channels=state/1,speed"))

    def test_onnx_scaler_computes_the_normalised_value(self):
        attributes = json.loads(self.export("onnx-scaler"))["attributes"]
        shown = self.shown("robot.arm")
        for c in range(3):
            y = (7.0 - attributes["offset"][c]) * attributes["scale"][c]
            self.assertAlmostEqual(y, (7.0 - shown["mean"][c]) / math.sqrt(shown["var"][c] + shown["eps"]), delta=1e-6)

    def test_a_c_header_computes_the_same_bits_for_a_million_rows(self):
        self.succeed(NORMCTL, "session", "fork", "robot.arm", "--id=robot.arm-1", "--frozen", self.at)
        header = self.path("robot_arm.h")
        self.stats("export", "robot.arm-1", "--format=c-header", "--prefix=robot_arm", "-o", header)
        write_text(self.path("user.c"), '#include "robot_arm.h"\n'
                   "void normalize(const double *x, double *y, size_t rows) { robot_arm_normalize(x, y, rows); }\n"
                   "void normalize_f32(const float *x, float *y, size_t rows) { robot_arm_normalize_f32(x, y, rows); }\n"
                   "const char *name(int c) { return robot_arm_channel_names[c]; }\n"
                   "const char *digest(void) { return robot_arm_digest; }\n")
        library = self.path("user.so")
        subprocess.run(["gcc", "-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O2", "-shared", "-fPIC",
                        self.path("user.c"), "-o", library], check=True, timeout=PATIENCE)
        user = ctypes.CDLL(library)
        user.name.restype = user.digest.restype = ctypes.c_char_p
        shown = self.shown("robot.arm-1")
        self.assertTrue(shown["frozen"])
        self.assertEqual([user.name(c).decode() for c in range(3)], shown["channel_names"])
        self.assertEqual(user.digest().decode(), shown["digest"])
        dice = random.Random(5)
        rows = 1_000_000
        x = array.array("d", (2e3 * dice.random() - 1e3 for _ in range(3 * rows)))
        y = array.array("d", bytes(8 * len(x)))
        address = ctypes.POINTER(ctypes.c_double)
        user.normalize(ctypes.cast(x.buffer_info()[0], address), ctypes.cast(y.buffer_info()[0], address),
                       ctypes.c_size_t(rows))
        # Python's floats are IEEE doubles, and so are numpy's: the same operations give the same bits.
        std = [math.sqrt(var + shown["eps"]) for var in shown["var"]]
        expected = [(value - shown["mean"][i % 3]) / std[i % 3] for i, value in enumerate(x)]
        # Not assertEqual, which would spend minutes on a message about a million rows.
        self.assertTrue(y == array.array("d", expected))
        self.compare_with_numpy(x, y, shown)
        single = array.array("f", x)
        narrow = array.array("f", bytes(4 * len(x)))
        of_float = ctypes.POINTER(ctypes.c_float)
        user.normalize_f32(ctypes.cast(single.buffer_info()[0], of_float),
                           ctypes.cast(narrow.buffer_info()[0], of_float), ctypes.c_size_t(rows))
        wide = [(value - shown["mean"][i % 3]) / std[i % 3] for i, value in enumerate(single)]
        self.assertTrue(narrow == array.array("f", wide))

    def compare_with_numpy(self, x, y, shown):
        try:
            import numpy  # pylint: disable=import-outside-toplevel
        except ImportError:
            print("NOT RUN: the comparison with numpy, which this Python does not have; Python's own floats were compared")
            return
        rows = numpy.frombuffer(x).reshape(-1, 3)
        expected = (rows - numpy.array(shown["mean"])) / numpy.sqrt(numpy.array(shown["var"]) + shown["eps"])
        self.assertTrue(numpy.array_equal(numpy.frombuffer(y).reshape(-1, 3), expected))

    def test_what_is_not_known_is_an_error(self):
        empty = self.path("none.csv")
        write_text(empty, "a,b\nnan,1\n")
        self.fit("half", empty)
        self.assertIn("the min of channel a", self.refuse_stats("export", "half", "--format=lerobot"))
        self.assertIn("--format", self.refuse_stats("export", "half"))
        self.assertIn("--format is yaml", self.refuse_stats("export", "half", "--format=yaml"))
        self.assertIn("--feature is for", self.refuse_stats("export", "half", "--format=json", "--feature=a"))
        self.assertIn("identifier of C", self.refuse_stats("export", "half", "--format=c-header", "--prefix=1a"))


if __name__ == "__main__":
    unittest.main(argv=TEST_ARGUMENTS, verbosity=2)
