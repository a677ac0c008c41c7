#!/usr/bin/env python3
"""normctl as a user runs it: tests/programs/normctl_test.py NORMD NORMCTL NORMLOAD FAILING_FLUSH [TEST...]"""

import json
import math
import signal
import struct
import subprocess
import tempfile
import unittest

from harness import (ENVIRONMENT, NORMCTL, NORMLOAD, PATIENCE, Server, ServerTest, TEST_ARGUMENTS, read_npy, run,
                     write_npy)


class NormctlTest(ServerTest):
    def test_health_over_both_listeners(self):
        self.succeed(NORMCTL, "health", self.at)
        self.succeed(NORMCTL, "health", f"--server=unix:{self.server.socket}")
        self.succeed(NORMCTL, "-s", self.server.address, "health")

    def test_a_call_to_the_admin_port_is_explained(self):
        self.assertEqual(self.refuse(NORMCTL, "health", f"--server={self.server.admin}"),
                         f"normctl health: {self.server.admin} answers HTTP/1: that is the admin port, or another "
                         "program's; calls go to the gRPC port (8001 by default)\n")

    def test_tls_to_a_plain_text_server_is_explained(self):
        for program in (NORMCTL, "health"), (NORMLOAD,):
            self.assertIn(f"{self.server.address} speaks no TLS and was called by it; leave --tls, --ca and the like out",
                          self.refuse(*program, f"--server={self.server.address}", "--tls"))

    def test_no_proxy_stands_before_a_server_of_this_machine(self):
        proxied = {**ENVIRONMENT, "http_proxy": "http://127.0.0.1:1", "https_proxy": "http://127.0.0.1:1"}
        port = self.server.address.rsplit(":", 1)[1]
        for server in self.server.address, f"localhost:{port}", f"unix:{self.server.socket}":
            for command in (NORMCTL, "health"), (NORMLOAD, "--requests=1", "--duration=100ms", "--warmup=0"):
                ran = subprocess.run([*command, f"--server={server}"], env=proxied, capture_output=True, text=True,
                                     timeout=PATIENCE)
                self.assertEqual(ran.returncode, 0, ran.stderr)

    def test_a_timeout_is_reported_with_its_length(self):
        self.server.process.send_signal(signal.SIGSTOP)
        try:
            self.assertEqual(self.refuse(NORMCTL, "health", self.at, "--deadline=300ms"),
                             f"normctl health: {self.server.address} did not answer within 300ms, and takes "
                             "connections without a word; is it normd that listens there, and does it run?\n")
        finally:
            self.server.process.send_signal(signal.SIGCONT)

    def test_the_demo_holds(self):
        out = self.succeed(NORMCTL, "demo", self.at)
        for part in ("5.8433", "3.0573", "3.758", "1.1993"):
            self.assertIn(part, out)

    def test_a_file_is_normalised_to_a_file(self):
        values = [float((7 * i * i + 3) % 23) for i in range(24)]
        write_npy(self.path("in.npy"), (4, 6), values)
        self.succeed(NORMCTL, "layer-norm", self.path("in.npy"), "-o", self.path("out.npy"), "--eps", "1e-6", self.at)
        header, y = read_npy(self.path("out.npy"))
        self.assertIn("(4, 6)", header)
        for row in range(4):
            x = values[6 * row:6 * row + 6]
            mean = math.fsum(x) / 6
            divisor = math.sqrt(math.fsum((v - mean) ** 2 for v in x) / 6 + 1e-6)
            for i, v in enumerate(x):
                self.assertAlmostEqual(y[6 * row + i], (v - mean) / divisor, delta=2e-7)

    def test_a_file_larger_than_a_message_is_normalised(self):
        small = Server(tempfile.mkdtemp(dir=self.scratch.name), "--max_message_bytes=1MiB")
        write_npy(self.path("large.npy"), (512, 1024), [float((7 * i * i + 3) % 1009) for i in range(512 * 1024)])
        for method in (["batch-norm", "--layout", "channels-last", "--training"], ["layer-norm"]):
            outputs = []
            for name, server in (("one.npy", self.server), ("chunks.npy", small)):
                self.succeed(NORMCTL, *method, self.path("large.npy"), "-o", self.path(name),
                             f"--server={server.address}")
                outputs.append(read_npy(self.path(name)))
            self.assertEqual(outputs[0], outputs[1])
        self.assertEqual(small.stop(), 0)

    def test_json_for_programs(self):
        described = json.loads(self.succeed(NORMCTL, "describe", "--json", self.at))
        self.assertIsInstance(described["limits"]["max_tensor_bytes"], int)
        self.assertEqual(described["durability"], described["durability"].lower())
        self.assertEqual(json.loads(self.succeed(NORMCTL, "health", "--json", self.at)), {"status": "serving"})

    def test_the_client_and_the_server_describe_methods_alike(self):
        for method in json.loads(self.succeed(NORMCTL, "methods", "--json", self.at))["methods"]:
            name = method["name"].replace("_", "-")
            text = " ".join(run(NORMCTL, name, "--help").stdout.split())
            self.assertIn("y = ", method["formula"])
            self.assertIn(" ".join(method["formula"].replace("; ", " ").split()), text)
            self.assertIn(f"(default {method['default_eps_mode'].replace('_', '-')})", text)
            eps = text.split("0 means none (default ")[1].split(")")[0]
            self.assertEqual(float(eps), method["default_eps"], name)
            self.assertEqual("--mask" in text, name in ("batch-norm", "power-norm"))
            page = self.succeed(NORMCTL, "methods", name, self.at)
            self.assertIn(f"normctl {name} x.npy", page)
            self.assertEqual(page, self.succeed(NORMCTL, "describe", method["name"], self.at))
            self.assertEqual(method, json.loads(self.succeed(NORMCTL, "methods", name, "--json", self.at)))
        said = run(NORMCTL, "methods", "layernorm", self.at)
        self.assertEqual(said.returncode, 2)
        self.assertIn("did you mean layer-norm?", said.stderr)

    def test_a_bad_request_names_the_field_and_the_next_one_is_served(self):
        write_npy(self.path("bad.npy"), (2, 3), [1.0] * 6)
        result = run(NORMCTL, "layer-norm", self.path("bad.npy"), "-o", self.path("bad-out.npy"), "--eps", "-1", self.at)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("eps", result.stderr + result.stdout)
        self.succeed(NORMCTL, "health", self.at)

    def test_an_error_shows_the_request_id_of_the_servers_logs(self):
        self.assertRegex(self.refuse(NORMCTL, "session", "get", "nobody", "-v", self.at), "  request id: [0-9a-f]{16}\n")
        result = run(NORMCTL, "session", "get", "nobody", "--json", self.at)
        self.assertRegex(json.loads(result.stdout)["error"]["request_id"], "^[0-9a-f]{16}$")

    def test_a_server_that_is_not_there_is_said_to_be_unavailable(self):
        result = run(NORMCTL, "health", "--server=unix:/nonexistent/normd.sock")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "normctl health: cannot reach normd at unix:/nonexistent/normd.sock (no such "
                         "file or directory); is it running there? start it, or name the server with -s HOST:PORT or "
                         "NORMD_SERVER\n")


class VerifyTest(ServerTest):
    def verify(self, *arguments):
        result = run(NORMCTL, "verify", *arguments, "--json", self.at)
        return result.returncode, json.loads(result.stdout)

    def test_verify_counts_the_ulps_that_a_result_is_off(self):
        values = [math.sin(3.7 * i) * 2 ** (i % 20 - 10) for i in range(4 * 64)]
        write_npy(self.path("v.npy"), (4, 64), values)
        x, y, w = (self.path(name) for name in ("v.npy", "vy.npy", "vw.npy"))
        write_npy(w, (64,), [1.5 + i / 64 for i in range(64)])
        flags = ("layer-norm", x, f"--weight={w}", "--eps=1e-7")
        self.succeed(NORMCTL, *flags, "-o", y, self.at)
        code, said = self.verify(*flags, f"--with={y}", "--max-ulp=0.5")
        self.assertEqual((code, said["passed"], said["correctly_rounded"], said["mismatches"]), (0, True, 256, 0))
        self.assertEqual(said["nearest"], {"elements": 256, "undecided": 0})
        self.assertEqual(sum(bucket["elements"] for bucket in said["histogram"]), 256)

        # An error of 5 ulp of f32, in the direction of the rest that rounding left.
        _, result = read_npy(y)
        step = 2.0 ** (math.frexp(result[70])[1] - 24)
        write_npy(y, (4, 64), [v + 5 * step * (i == 70) for i, v in enumerate(result)])
        code, said = self.verify(*flags, f"--with={y}")
        worst = said["worst"][0]
        self.assertEqual((code, said["passed"], said["correctly_rounded"], worst["index"]), (1, False, 255, [1, 6]))
        self.assertEqual(said["nearest"], {"elements": 255, "undecided": 0})
        self.assertAlmostEqual(worst["ulps"], 5, delta=0.5)
        self.assertEqual(worst["x"], struct.unpack("<f", struct.pack("<f", values[70]))[0])
        self.assertEqual(self.verify(*flags, f"--with={y}", "--max-ulp=6")[0], 0)

    def test_verify_knows_the_exact_answer(self):
        # The mean is 1e6 standard deviations away; y was computed by hand: -1.5, -0.5, 0.5, 1.5 over sqrt(1.25).
        write_npy(self.path("far.npy"), (1, 4), [1e8, 1e8 + 8, 1e8 + 16, 1e8 + 24])
        write_npy(self.path("far-y.npy"), (1, 4), [-1.3416407, -0.4472136, 0.4472136, 1.3416407])
        code, said = self.verify("layer-norm", self.path("far.npy"), "--eps=0", f"--with={self.path('far-y.npy')}")
        self.assertEqual(code, 0, said)
        exact = sorted(error["exact"] for error in said["worst"])
        self.assertEqual(len(exact), 4, said)  # 1.3416407 and 0.4472136 are rounded values
        for value, answer in zip((-1.5, -0.5, 0.5, 1.5), exact):
            self.assertAlmostEqual(answer, value / math.sqrt(1.25), delta=1e-14)
        text = self.succeed(NORMCTL, "verify", "layer-norm", self.path("far.npy"), "--eps=0", self.at,
                            f"--with={self.path('far-y.npy')}")
        self.assertIn("ok: every error is within 1 ulp", text)

    def test_verify_takes_training_residuals_and_sessions(self):
        write_npy(self.path("b.npy"), (6, 2), [1.5, -2.0, 0.25, 8.0, 3.0, 1.0, -7.5, 2.0, 4.0, 0.125, 6.0, 5.0])
        write_npy(self.path("r.npy"), (6, 2), [0.1 * i for i in range(12)])
        x, r, y = (self.path(name) for name in ("b.npy", "r.npy", "b-y.npy"))
        self.succeed(NORMCTL, "session", "create", "batch-norm", "--channels=2", "--layout=channels-last",
                     "--id=verified", self.at)
        self.succeed(NORMCTL, "normalize", x, "--session=verified", "--training", "-o", y, self.at)
        session = self.succeed(NORMCTL, "session", "get", "verified", "--json", self.at)
        for flags in (("batch-norm", x, "--training"), ("rms-norm", x, f"--residual={r}", "--residual-scale=0.3"),
                      ("rms-norm", x, f"--residual={r}", "--residual-rounding=keep-wide"),
                      ("batch-norm", x, "--session=verified")):
            self.succeed(NORMCTL, *flags, "-o", y, self.at)
            code, said = self.verify(*flags, f"--with={y}", "--max-ulp=0.5")
            self.assertEqual((code, said["correctly_rounded"]), (0, 12), (flags, said))
        self.assertEqual(session, self.succeed(NORMCTL, "session", "get", "verified", "--json", self.at))

    def found(self, *flags):
        """The differences of the definition that fits best."""
        _, said = self.verify(*flags, "--find-variant")
        return said["variants"][0]["differences"], said["variants"][0]["fits"]

    def test_verify_finds_the_definition_of_a_candidate(self):
        # Rows that are small, so that eps counts.
        values = [0.01 * math.sin(3.7 * i) + 0.004 for i in range(8 * 32)]
        write_npy(self.path("f.npy"), (8, 32), values)
        write_npy(self.path("fw.npy"), (32,), [0.5 + math.cos(i) / 4 for i in range(32)])
        x, y, w = (self.path(name) for name in ("f.npy", "fy.npy", "fw.npy"))
        for theirs, differences in ((("--eps=1e-6", "--eps-mode=add-to-root"), "eps 1e-06, add_to_root"),
                                    (("--eps=1e-5", "--weight-offset=1", f"--weight={w}"), "weight_offset 1"),
                                    (("--eps=1e-5",), "as given")):
            self.succeed(NORMCTL, "rms-norm", x, *theirs, "-o", y, self.at)
            ours = [flag for flag in theirs if flag.startswith("--weight=")]
            self.assertEqual(self.found("rms-norm", x, "--eps=1e-5", *ours, f"--with={y}"), (differences, True))
        # In bf16, rounded before the weight; and with torch's unbiased deviation, to which eps is added.
        flags = ("--eps=1e-5", f"--weight={w}", "--dtype=bf16")
        self.succeed(NORMCTL, "rms-norm", x, *flags, "--cast-order=cast-then-affine", "-o", y, self.at)
        self.assertEqual(self.found("rms-norm", x, *flags, f"--with={y}"), ("cast_then_affine", True))
        # 1 + w rounded to bf16, 8 bits, before the product; and statistics of all axes beside a weight of the last.
        small = [math.cos(i) / 4 for i in range(32)]
        write_npy(self.path("fs.npy"), (32,), small)
        write_npy(self.path("fr.npy"), (32,), [round((1 + v) * 2 ** (7 + (v < 0))) / 2 ** (7 + (v < 0)) for v in small])
        self.succeed(NORMCTL, "rms-norm", x, "--eps=1e-5", f"--weight={self.path('fr.npy')}", "--dtype=bf16", "-o", y,
                     self.at)
        flags = ("--eps=1e-5", "--weight-offset=1", f"--weight={self.path('fs.npy')}", "--dtype=bf16")
        self.assertEqual(self.found("rms-norm", x, *flags, f"--with={y}"), ("1 + w rounded", True))
        write_npy(self.path("fa.npy"), (8, 32), 8 * [0.5 + math.cos(i) / 4 for i in range(32)])
        self.succeed(NORMCTL, "rms-norm", x, "--eps=1e-5", "--axes=0,1", f"--weight={self.path('fa.npy')}", "-o", y,
                     self.at)
        self.assertEqual(self.found("rms-norm", x, "--eps=1e-5", f"--weight={w}", f"--with={y}"), ("axes 0,1", True))
        rows = [values[at:at + 32] for at in range(0, 256, 32)]
        result = []
        for row in rows:
            mean = sum(row) / 32
            deviation = math.sqrt(sum((v - mean) ** 2 for v in row) / 31)
            result += [(v - mean) / (deviation + 1e-6) for v in row]
        write_npy(y, (8, 32), result)
        differences, _ = self.found("layer-norm", x, "--eps=1e-5", f"--with={y}")
        self.assertEqual(differences, "eps 1e-06, add_to_root, variance over n - 1")
        # The same with a bias alone, which is added after the factor of n - 1.
        write_npy(self.path("fb.npy"), (32,), [0.25] * 32)
        write_npy(self.path("fyb.npy"), (8, 32), [v + 0.25 for v in result])
        differences, _ = self.found("layer-norm", x, "--eps=1e-5", f"--with={self.path('fyb.npy')}",
                                    f"--bias={self.path('fb.npy')}", "--floor=1")
        self.assertIn("add_to_root, variance over n - 1", differences)
        text = run(NORMCTL, "verify", "layer-norm", x, "--eps=1e-5", f"--with={y}", "--find-variant", self.at).stdout
        self.assertIn("variant: ", text)
        self.assertIn("variance over n - 1", text)

    def test_verify_looks_for_no_definition_beside_a_session(self):
        write_npy(self.path("s.npy"), (2, 2), [1.0, 2.0, 3.0, 5.0])
        x = self.path("s.npy")
        said = run(NORMCTL, "verify", "batch-norm", x, f"--with={x}", "--session=any", "--find-variant", self.at)
        self.assertEqual(said.returncode, 2)
        self.assertIn("--find-variant does not go with --session", said.stderr)


if __name__ == "__main__":
    unittest.main(argv=TEST_ARGUMENTS, verbosity=2)
