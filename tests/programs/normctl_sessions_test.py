#!/usr/bin/env python3
"""normctl session, and its files: tests/programs/normctl_sessions_test.py NORMD NORMCTL NORMLOAD FAILING_FLUSH [TEST...]"""

import json
import math
import signal
import struct
import subprocess
import unittest

from harness import (ENVIRONMENT, NORMCTL, PATIENCE, ServerTest, TEST_ARGUMENTS, read_safetensors, run, write_npy,
                     write_safetensors)


class SessionsTest(ServerTest):
    def session(self, *arguments):
        return self.succeed(NORMCTL, "session", *arguments, self.at)

    def create(self, name, method="batch-norm", channels=2, *flags):
        self.session("create", method, f"--channels={channels}", "--layout=channels-last", f"--id={name}", *flags)

    def train(self, name, batch, rows=4, channels=2):
        path = self.path(f"{name}-x.npy")
        write_npy(path, (rows, channels), [math.sin(7.3 * batch + i) * (batch + 1) for i in range(rows * channels)])
        self.succeed(NORMCTL, "normalize", path, "--session", name, "--training", "-o", self.path(f"{name}-y.npy"),
                     self.at)

    def state(self, name):
        return json.loads(self.session("get", name, "--json"))["state"]

    def test_moments_of_two_callers_are_one_step(self):
        self.create("pool")
        self.create("whole")
        values = [1.5, -2.0, 0.25, 8.0, 3.0, 1.0, -7.5, 2.0, 4.0, 0.125, 6.0, 5.0]
        files = []
        for name, rows in (("a", values[:4]), ("b", values[4:])):
            write_npy(self.path(f"pool-{name}.npy"), (len(rows) // 2, 2), rows)
            files.append(self.path(f"pool-{name}.json"))
            self.succeed(NORMCTL, "moments", "batch-norm", self.path(f"pool-{name}.npy"), "-o", files[-1], self.at)
        step = ("commit", "pool", *files, "--step-client", "trainer", "--step-sequence", "5", "--json")
        first = json.loads(self.session(*step))["state"]
        self.assertEqual((first["version"], first["applied"], first["replayed"]), (1, True, False))
        again = json.loads(self.session(*step))["state"]
        self.assertEqual((again["version"], again["replayed"]), (1, True))
        self.assertIn("moved on to version", self.refuse(NORMCTL, "session", "commit", "pool", *files, "--expected-version", "0",
                                             self.at))
        # As if one caller had seen all rows.
        write_npy(self.path("whole.npy"), (6, 2), values)
        self.succeed(NORMCTL, "normalize", self.path("whole.npy"), "--session", "whole", "--training",
                     "-o", self.path("whole-y.npy"), self.at)
        for statistic in ("mean", "var"):
            for one, other in zip(self.state("pool")[statistic]["values"], self.state("whole")[statistic]["values"]):
                self.assertAlmostEqual(one, other, delta=1e-14)
        with open(files[0], "w", encoding="utf-8") as out:
            out.write("{\"moments\": {\"count\": 1}}")
        self.assertIn("moments.count", self.refuse(NORMCTL, "session", "commit", "pool", files[0], self.at))

    def watch(self, *arguments):
        return subprocess.Popen([NORMCTL, "session", "watch", *arguments, "--interval=20ms", self.at], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT)

    def test_watch_shows_the_statistics_moving(self):
        self.create("moving")
        with self.watch("moving", "--json", "--count=4") as process:
            lines = [json.loads(process.stdout.readline())]
            for batch in range(3):
                self.train("moving", batch)
                lines.append(json.loads(process.stdout.readline()))
                self.assertEqual(lines[-1]["running_mean"]["values"], self.state("moving")["mean"]["values"])
            self.assertEqual(process.wait(timeout=PATIENCE), 0)
        self.assertEqual([line["version"] for line in lines], [0, 1, 2, 3])
        self.assertIsNone(lines[0]["running_mean"]["largest_change"])
        for before, now in zip(lines, lines[1:]):
            means = [zip(before[name]["values"], now[name]["values"]) for name in ("running_mean", "running_var")]
            self.assertEqual(now["running_mean"]["largest_change"], max(abs(b - a) for a, b in means[0]))
            self.assertEqual(now["running_var"]["largest_change"], max(abs(b - a) / abs(a) for a, b in means[1]))

    def test_quiet_prints_names_alone(self):
        name = self.succeed(NORMCTL, "session", "create", "rms-norm", "-q", self.at)
        self.assertRegex(name, r"\Asessions/[^\s]+\n\Z")
        self.assertIn(name, self.succeed(NORMCTL, "session", "list", "--quiet", self.at).splitlines(keepends=True))
        copy = self.succeed(NORMCTL, "session", "fork", name.strip(), "--id=quiet-copy", "-q", self.at)
        self.assertEqual(copy, "sessions/quiet-copy\n")
        for each in name, copy:
            self.assertEqual(self.succeed(NORMCTL, "session", "delete", each.strip(), "-q", self.at), "")

    def test_watch_ends_with_the_session_and_with_ctrl_c(self):
        self.create("brief")
        with self.watch("brief") as process:
            self.assertIn("version", process.stdout.readline())
            self.assertIn("  0  ", process.stdout.readline())
            self.session("delete", "brief")
            self.assertEqual(process.wait(timeout=PATIENCE), 1)
            self.assertIn("sessions/brief is gone", process.stderr.read())
        self.create("endless")
        with self.watch("endless") as process:
            process.stdout.readline()
            process.stdout.readline()
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(timeout=PATIENCE), -signal.SIGINT)

    def test_a_record_is_the_session_bit_for_bit(self):
        self.create("kept", "batch-norm", 2, "--label=a=b")
        self.train("kept", 1)
        self.session("export", "kept", "-o", self.path("kept.bin"))
        self.session("import", self.path("kept.bin"), "--id=kept-again")
        for view in ("spec", "state", "version", "labels"):
            self.assertEqual(json.loads(self.session("get", "kept", "--json"))[view],
                             json.loads(self.session("get", "kept-again", "--json"))[view])

    def test_a_state_dict_is_the_state_bit_for_bit(self):
        write_npy(self.path("w.npy"), (2,), [1.5, -0.1])
        for method, flags, names in (
                ("batch-norm", (f"--weight={self.path('w.npy')}", f"--bias={self.path('w.npy')}"),
                 {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}),
                ("batch-norm", ("--label=a=b", "--dtype=bf16", "--momentum=0.3"),
                 {"running_mean", "running_var", "num_batches_tracked"})):
            name = f"dict{len(names)}"
            self.create(name, method, 2, *flags)
            for batch in range(3):
                self.train(name, batch)
            self.session("export", name, "-o", self.path("one.safetensors"), "--prefix=l1.bn.")
            tensors, metadata = read_safetensors(self.path("one.safetensors"))
            self.assertEqual(set(tensors), {f"l1.bn.{tensor}" for tensor in names})
            self.assertEqual(metadata["format"], "pt")
            state = self.state(name)
            self.assertEqual(tensors["l1.bn.running_mean"],
                             ("F64", [2], struct.pack("<2d", *state["mean"]["values"])))
            self.assertEqual(tensors["l1.bn.running_var"], ("F64", [2], struct.pack("<2d", *state["var"]["values"])))
            self.assertEqual(tensors["l1.bn.num_batches_tracked"], ("I64", [], struct.pack("<q", 3)))
            if "weight" in names:
                self.assertEqual(tensors["l1.bn.weight"], ("F32", [2], struct.pack("<2f", 1.5, -0.1)))
            self.session("import", self.path("one.safetensors"), "--prefix=l1.bn.", f"--id={name}-again")
            self.session("export", f"{name}-again", "-o", self.path("two.safetensors"), "--prefix=l1.bn.")
            self.assertEqual(read_safetensors(self.path("one.safetensors")),
                             read_safetensors(self.path("two.safetensors")))

    def test_power_norm_keeps_phi(self):
        self.session("create", "power-norm", "--channels=2", "--id=power")
        write_npy(self.path("power.npy"), (2, 3, 2), [0.5 * i for i in range(12)])
        self.succeed(NORMCTL, "normalize", self.path("power.npy"), "--session=power", "--training",
                     "-o", self.path("power-y.npy"), self.at)
        self.session("export", "power", "-o", self.path("power.safetensors"))
        tensors, _ = read_safetensors(self.path("power.safetensors"))
        self.assertEqual(tensors["running_phi"],
                         ("F64", [2], struct.pack("<2d", *self.state("power")["phi"]["values"])))
        self.session("import", self.path("power.safetensors"), "--id=power-again")
        self.assertEqual(self.state("power"), self.state("power-again"))

    def test_a_state_dict_of_torch_is_read_and_written(self):
        mean, var = struct.pack("<3f", 0.1, -2, 3), struct.pack("<3f", 1, 0.5, 7)
        ones = struct.pack("<3f", 1, 1, 1)
        torch = {"bn1.weight": ("F32", [3], ones), "bn1.bias": ("F32", [3], ones),
                 "bn1.running_mean": ("F32", [3], mean), "bn1.running_var": ("F32", [3], var),
                 "bn1.num_batches_tracked": ("I64", [], struct.pack("<q", 41)),
                 "conv.weight": ("BF16", [1, 2], b"\x80\x3f\x00\x00")}
        path = self.path("torch.safetensors")
        write_safetensors(path, torch, {"format": "pt"})
        self.session("import", path, "--prefix=bn1.", "--method=batch-norm", "--layout=channels-first", "--id=torch")
        state = self.state("torch")
        self.assertEqual(state["mean"]["values"], list(struct.unpack("<3f", mean)))
        self.assertEqual(state["var"]["values"], list(struct.unpack("<3f", var)))
        self.assertEqual(state["num_batches"], 41)
        self.session("export", "torch", "--f32", "--prefix=bn1.", "-o", self.path("back.safetensors"))
        back, _ = read_safetensors(self.path("back.safetensors"))
        self.assertEqual(back, {name: tensor for name, tensor in torch.items() if name != "conv.weight"})

        write_npy(self.path("tensor.npy"), (2,), [1.0, 2.0])
        said = run(NORMCTL, "session", "import", self.path("tensor.npy"), self.at)
        self.assertEqual(said.returncode, 2)
        self.assertIn("is a .npy tensor", said.stderr)
        self.assertNotIn("DATA_LOSS", self.server.text())

        said = run(NORMCTL, "session", "import", path, "--prefix=bn1.", self.at)
        self.assertEqual(said.returncode, 2)
        self.assertIn("--method", said.stderr)
        self.assertIn("bn1.weight", self.refuse(NORMCTL, "session", "import", path, "--method=batch-norm", self.at))
        torch["bn1.running_var"] = ("F32", [2], var[:8])
        write_safetensors(path, torch)
        said = self.refuse(NORMCTL, "session", "import", path, "--prefix=bn1.", "--method=batch-norm", self.at)
        self.assertIn("running_var has 2 values, but weight has 3", said)
        self.assertIn("has 3", said)


if __name__ == "__main__":
    unittest.main(argv=TEST_ARGUMENTS, verbosity=2)
