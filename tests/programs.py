#!/usr/bin/env python3
"""The three programs as a user runs them: tests/programs.py NORMD NORMCTL NORMLOAD FAILING_FLUSH [TEST...]

Starts the real server on free ports and a Unix socket, asks it with the real clients, reads the admin port, and ends it
with SIGTERM. Everything lives in a temporary directory.
"""

import hashlib
import json
import math
import os
import re
import resource
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

NORMD, NORMCTL, NORMLOAD, FAILING_FLUSH = (os.path.abspath(path) for path in sys.argv[1:5])
PATIENCE = 60  # seconds; sanitizer builds on a busy machine are slow
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("NORMD_")}
ENVIRONMENT["LSAN_OPTIONS"] = f"suppressions={os.path.dirname(os.path.abspath(__file__))}/support/lsan.txt:print_suppressions=0"


def write_npy(path, shape, values):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({', '.join(map(str, shape))},), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as out:
        out.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode("latin1"))
        out.write(struct.pack(f"<{len(values)}f", *values))


def read_npy(path):
    with open(path, "rb") as source:
        data = source.read()
    assert data[:6] == b"\x93NUMPY", data[:16]
    size = struct.unpack("<H", data[8:10])[0]
    header = data[10:10 + size].decode("latin1")
    assert "'<f4'" in header, header
    body = data[10 + size:]
    return header, struct.unpack(f"<{len(body) // 4}f", body)


SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8}


def write_safetensors(path, tensors, metadata=None):
    """tensors: name -> (dtype, shape, bytes). As safetensors.torch.save_file lays them out: by dtype, then by name."""
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name in sorted(tensors, key=lambda n: (-SIZES[tensors[n][0]], n)):
        dtype, shape, values = tensors[name]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    """(name -> (dtype, shape, bytes), metadata)"""
    with open(path, "rb") as source:
        data = source.read()
    size = struct.unpack("<Q", data[:8])[0]
    assert size % 8 == 0 and data[8:9] == b"{", data[:16]
    header = json.loads(data[8:8 + size])
    metadata = header.pop("__metadata__", {})
    body = data[8 + size:]
    assert max((t["data_offsets"][1] for t in header.values()), default=0) == len(body), header
    return {name: (t["dtype"], t["shape"], body[slice(*t["data_offsets"])]) for name, t in header.items()}, metadata


def read_text(path):
    with open(path, encoding="utf-8") as source:
        return source.read()


def write_text(path, text):
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)


class Server:
    """One normd of our own."""

    def __init__(self, folder, *options, environment=None):
        self.folder = folder
        port_file = os.path.join(folder, "ports")
        if os.path.exists(port_file):
            os.remove(port_file)
        self.socket = os.path.join(folder, "s.sock")
        self.log = open(os.path.join(folder, "normd.log"), "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [NORMD, f"--listen=127.0.0.1:0,unix:{self.socket}", "--admin_listen=127.0.0.1:0",
             f"--port_file={port_file}", f"--data_dir={folder}/data", *options],
            stdout=self.log, stderr=subprocess.STDOUT, env={**ENVIRONMENT, **(environment or {})})
        deadline = time.monotonic() + PATIENCE
        while not os.path.exists(port_file):  # renamed into place once everything serves
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("normd did not come up:\n" + self.text())
            time.sleep(0.05)
        listeners = [line.split("=", 1) for line in read_text(port_file).splitlines()]
        self.address = next(at for kind, at in listeners if kind == "grpc")
        self.admin = next(at for kind, at in listeners if kind == "admin")

    def text(self):
        self.log.flush()
        return read_text(self.log.name)

    def get(self, path):
        with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=PATIENCE) as reply:
            return reply.status, reply.read().decode()

    def hang_up_until(self, words):
        """Sends SIGHUP, and waits until the log has the words."""
        self.process.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE
        while words not in self.text():
            assert time.monotonic() < deadline, f"no `{words}` in\n{self.text()}"
            time.sleep(0.02)

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(timeout=PATIENCE)
        self.log.close()
        return status


def run(program, *arguments, environment=None):
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=PATIENCE * 5, check=False,
                          env={**ENVIRONMENT, **(environment or {})})


class ServerTest(unittest.TestCase):
    """What tests against one server share."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.server = Server(cls.scratch.name)
        cls.at = f"--server={cls.server.address}"

    @classmethod
    def tearDownClass(cls):
        status = cls.server.stop()
        cls.scratch.cleanup()
        assert status == 0, f"normd ended with {status} after SIGTERM"

    def path(self, name):
        return os.path.join(self.scratch.name, name)

    def succeed(self, program, *arguments):
        result = run(program, *arguments)
        self.assertEqual(result.returncode, 0, f"{arguments}\n{result.stdout}\n{result.stderr}\n{self.server.text()}")
        return result.stdout

    def refuse(self, program, *arguments):
        result = run(program, *arguments)
        self.assertEqual(result.returncode, 1, f"{arguments}\n{result.stdout}\n{result.stderr}")
        return result.stderr


class ProgramsTest(ServerTest):
    def test_health_over_both_listeners(self):
        self.succeed(NORMCTL, "health", self.at)
        self.succeed(NORMCTL, "health", f"--server=unix:{self.server.socket}")
        self.succeed(NORMCTL, "-s", self.server.address, "health")

    def test_the_admin_port_is_told_from_the_grpc_port(self):
        self.assertEqual(self.refuse(NORMCTL, "health", f"--server={self.server.admin}"),
                         f"normctl health: {self.server.admin} answers HTTP/1: that is the admin port, or another "
                         "program's; calls go to the gRPC port (8001 by default)\n")

    def test_tls_to_a_server_of_plain_text_is_told(self):
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

    def test_a_signal_ends_a_load_with_its_report(self):
        sample = re.compile(r'^normd_requests_total\{[^}]*Normalize"[^}]*\} (\d+)', re.MULTILINE)

        def calls():
            return sum(int(number) for number in sample.findall(self.server.get("/metrics")[1]))

        for number, code in (signal.SIGINT, 130), (signal.SIGTERM, 143):
            before = calls()
            with subprocess.Popen([NORMLOAD, self.at, "--duration=1h", "--warmup=0"], env=ENVIRONMENT, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE) as load:
                deadline = time.monotonic() + PATIENCE
                while calls() < before + 20 and time.monotonic() < deadline:
                    time.sleep(0.02)
                load.send_signal(number)
                out, err = load.communicate(timeout=PATIENCE)
            self.assertEqual(load.returncode, code, err)
            self.assertIn(f"warning: ended early by {number.name}", out)
            self.assertIn("the report is of what was measured until then", err)

    def test_an_answer_that_does_not_come_in_time_is_told_with_the_time(self):
        self.server.process.send_signal(signal.SIGSTOP)
        try:
            self.assertEqual(self.refuse(NORMCTL, "health", self.at, "--deadline=300ms"),
                             f"normctl health: {self.server.address} did not answer within 300ms, and takes "
                             "connections without a word; is it normd that listens there, and does it run?\n")
        finally:
            self.server.process.send_signal(signal.SIGCONT)

    def test_the_demo_holds(self):
        out = self.succeed(NORMCTL, "demo", self.at)
        for part in ("5.8433", "3.0573", "3.7580", "1.1993"):
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

    def test_what_the_client_says_of_a_method_is_what_the_server_says(self):
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
        self.assertEqual(sum(bucket["elements"] for bucket in said["histogram"]), 256)

        # An error of 5 ulp of f32, in the direction of the rest that rounding left.
        _, result = read_npy(y)
        step = 2.0 ** (math.frexp(result[70])[1] - 24)
        write_npy(y, (4, 64), [v + 5 * step * (i == 70) for i, v in enumerate(result)])
        code, said = self.verify(*flags, f"--with={y}")
        worst = said["worst"][0]
        self.assertEqual((code, said["passed"], said["correctly_rounded"], worst["index"]), (1, False, 255, [1, 6]))
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

    def test_a_bad_request_names_the_field_and_the_next_one_is_served(self):
        write_npy(self.path("bad.npy"), (2, 3), [1.0] * 6)
        result = run(NORMCTL, "layer-norm", self.path("bad.npy"), "-o", self.path("bad-out.npy"), "--eps", "-1", self.at)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("eps", result.stderr + result.stdout)
        self.succeed(NORMCTL, "health", self.at)

    def test_an_error_is_told_with_the_name_that_the_servers_logs_have_for_the_call(self):
        self.assertRegex(self.refuse(NORMCTL, "session", "get", "nobody", "-v", self.at), "  request id: [0-9a-f]{16}\n")
        result = run(NORMCTL, "session", "get", "nobody", "--json", self.at)
        self.assertRegex(json.loads(result.stdout)["error"]["request_id"], "^[0-9a-f]{16}$")

    def test_metrics_count_and_the_admin_port_answers(self):
        self.succeed(NORMCTL, "describe", self.at)
        for path in ("/healthz", "/readyz", "/"):
            self.assertEqual(self.server.get(path)[0], 200)
        _, metrics = self.server.get("/metrics")
        counts = [float(line.rsplit(" ", 1)[1]) for line in metrics.splitlines()
                  if line.startswith("normd_requests_total{") and "Describe" in line]
        self.assertGreaterEqual(sum(counts), 1, metrics)

    def regions(self):
        _, metrics = self.server.get("/metrics")
        return [float(line.split()[1]) for line in metrics.splitlines() if line.startswith("normd_shared_memory_")]

    def test_a_descriptor_is_registered_beside_the_unix_socket_until_its_owner_goes(self):
        region = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(region, 8192)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as owner:
            owner.settimeout(PATIENCE)
            owner.connect(self.server.socket + ".shm")
            socket.send_fds(owner, [struct.pack("=IHHQ48x", 0x4D53444E, 1, 1, 8192)], [region])
            magic, _, _, code, _, name, text = struct.unpack("=IHHiI48s256s", owner.recv(320))
            self.assertEqual((magic, code), (0x4D53444E, 0), text)
            self.assertRegex(name.rstrip(b"\0"), b"^r-[0-9a-f]{32}$")
            self.assertEqual(self.regions(), [1, 8192])
        os.close(region)
        deadline = time.monotonic() + PATIENCE
        while self.regions() != [0, 0] and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual(self.regions(), [0, 0])
        self.assertIn("shared memory", self.server.text())

    def test_load_is_generated_and_counted(self):
        out = self.succeed(NORMLOAD, self.at, "--duration=1s", "--json")
        report = json.loads(out)
        self.assertGreater(report["calls"], 0)
        self.assertEqual(report["failed"], 0)
        self.assertGreaterEqual(report["latency_ns"]["p99.9"], report["latency_ns"]["p50"])
        for fact in ("date", "machine", "server_version", "client_version", "commit"):
            self.assertTrue(report["about"][fact], fact)
        self.assertEqual(report["about"]["server_pid"], self.server.process.pid)

    def test_an_open_loop_accounts_for_every_call_that_was_due(self):
        out = self.succeed(NORMLOAD, f"--server=unix:{self.server.socket}", "--rate=50", "--arrivals=constant",
                           "--duration=1s", "--warmup=0", "--shape=4x64", "--repeats=2", "--json")
        report = json.loads(out)
        self.assertEqual(len(report["runs"]), 2)
        for run_ in report["runs"]:
            self.assertEqual(run_["offered"], 50)
            self.assertEqual(run_["calls"] + run_["failed"] + run_["unsent"], 50)
            self.assertGreater(run_["lateness_ns"]["max"], 0)
        text = self.succeed(NORMLOAD, self.at, "--rate=50", "--duration=200ms", "--warmup=0", "--shape=4x64",
                            "--seed=5")
        for part in ("open loop", "arrivals: poisson", "seed: 5", "p99.9", "background CPU"):
            self.assertIn(part, text)

    def test_a_mix_is_loaded_and_told_apart(self):
        self.succeed(NORMCTL, "session", "create", "batch-norm", "--channels=8", "--layout=channels-last", "--id=mixed",
                     self.at)
        path = self.path("mix.json")
        with open(path, "w", encoding="utf-8") as out:
            json.dump({"entries": [{"weight": 2, "method": "layer-norm", "shape": [4, 64], "dtype": "bf16"},
                                   {"shape": "4x64", "transport": "batch", "batch-items": 3}]}, out)
        report = json.loads(self.succeed(
            NORMLOAD, self.at, f"--mix={path}", "--mix=weight=2,method=rms-norm,shape=4x64,dtype=f16,transport=stream",
            "--mix=session=mixed,shape=6x8,training,steps", "--requests=200", "--duration=60s", "--warmup=0", "-c", "4",
            "--json"))
        entries = report["entries"]
        self.assertEqual(len(entries), 4)
        self.assertEqual(sum(entry["calls"] for entry in entries), 200)
        self.assertTrue(all(entry["calls"] > 0 for entry in entries), entries)
        session = json.loads(self.succeed(NORMCTL, "session", "get", "mixed", "--json", self.at))
        self.assertEqual(int(session["version"]), entries[3]["calls"] + 1)  # and the one before time is taken
        said = run(NORMLOAD, self.at, "--mix=method=rms-norm,transport=shared")
        self.assertEqual(said.returncode, 2)
        self.assertIn("it must be unix:/path", said.stderr)

    def test_a_sweep_writes_one_page_that_needs_no_other(self):
        page = self.path("report.html")
        result = run(NORMLOAD, self.at, "--sweep", "--loads=20,60", "--repeats=2", "--duration=200ms", "--warmup=50ms",
                     "--shape=4x64", "--slo=1m", "-c", "8", f"--html={page}", "--json")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("takes about 1.5s, at most", result.stderr)
        sweep = json.loads(result.stdout)["sweep"]
        self.assertEqual([point["percent"] for point in sweep["points"]], [20, 60])
        self.assertEqual([len(point["runs"]) for point in sweep["points"]], [2, 2])
        self.assertGreater(sweep["capacity_per_second"], 0)
        self.assertIn(sweep["knee"], (None, 0, 1))
        html = read_text(page)
        self.assertEqual(html.count("<svg "), 2)
        for part in ("Latency over load", "Goodput over load", "SLO: 1m", "background CPU"):
            self.assertIn(part, html)
        for part in ("<script", "<link", "<img", "src=", "href="):
            self.assertNotIn(part, html)

    def test_load_that_makes_no_sense_is_refused_before_anything_is_sent(self):
        for flag, limit in (("--rate=0", "0.01"), ("--shape=99999x99999x99", "at most"), ("--concurrency=5000", "4096"),
                            ("--mix=weight=0", "above 0"), ("--server=192.0.2.1:1", "--allow-remote")):
            result = run(NORMLOAD, "--server=unix:/nonexistent/normd.sock", flag)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn("192.0.2.1:1" if "server" in flag else flag.split("=")[0], result.stderr)
            self.assertIn(limit, result.stderr)


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


class DurabilityTest(unittest.TestCase):
    """What outlives a server, and what a server does that cannot keep its word."""

    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = self.temporary.name
        self.servers = []

    def tearDown(self):
        for server in self.servers:
            server.stop(signal.SIGKILL)
        self.temporary.cleanup()

    def start(self, *options, **more):
        self.servers.append(Server(self.folder, *options, **more))
        return self.servers[-1]

    def normctl(self, server, *arguments):
        result = run(NORMCTL, *arguments, f"--server={server.address}")
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def train(self, server, sequence, name="bn"):
        path = os.path.join(self.folder, "x.npy")
        write_npy(path, (4, 2), [math.sin(sequence + i) for i in range(8)])
        return run(NORMCTL, "normalize", path, "--session", name, "--training", "-o", os.path.join(self.folder, "y.npy"),
                   "--step-client", "trainer", "--step-sequence", str(sequence), f"--server={server.address}")

    def create(self, server, name="bn"):
        self.normctl(server, "session", "create", "batch-norm", "--channels=2", "--layout=channels-last", f"--id={name}")

    def get(self, server, name="bn"):
        session = json.loads(self.normctl(server, "session", "get", name, "--json"))
        return {key: session[key] for key in ("uid", "version", "state")}

    def test_a_session_survives_kill_9_and_its_steps_are_known(self):
        server = self.start()
        self.create(server)
        for sequence in (1, 2, 3):
            self.assertEqual(self.train(server, sequence).returncode, 0)
        before = self.get(server)
        server.stop(signal.SIGKILL)
        server = self.start()
        self.assertEqual(self.get(server), before)
        self.assertEqual(self.train(server, 3).returncode, 0, "a replay")
        self.assertEqual(self.get(server), before, "applied twice")
        self.assertEqual(self.train(server, 4).returncode, 0)
        self.assertEqual(int(self.get(server)["version"]), 4)

    def test_level_memory_survives_nothing(self):
        server = self.start("--durability=memory")
        self.create(server)
        uid = self.get(server)["uid"]
        server.stop()
        server = self.start("--durability=memory")
        self.assertEqual(run(NORMCTL, "session", "get", "bn", f"--server={server.address}").returncode, 1)
        self.create(server)
        self.assertNotEqual(self.get(server)["uid"], uid)

    def test_a_second_server_on_the_same_folder_is_refused(self):
        self.start()
        result = run(NORMD, f"--data-dir={self.folder}/data", "--listen=127.0.0.1:0", "--admin_listen=")
        self.assertEqual(result.returncode, 1)
        self.assertIn("another server uses this session store", result.stdout + result.stderr)

    def test_a_backup_is_made_while_the_server_runs_and_serves_as_a_store(self):
        server = self.start()
        for name in ("bn", "other"):
            self.create(server, name)
        self.assertEqual(self.train(server, 1).returncode, 0)
        before = self.get(server)
        restored = os.path.join(self.folder, "data2")
        os.mkdir(restored)
        command = (NORMD, f"--backup={restored}/normd.db", f"--data_dir={self.folder}/data")
        result = run(*command)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("2 sessions", result.stdout)
        self.assertEqual(run(*command).returncode, 1, "an existing file is not overwritten")
        self.assertEqual(self.train(server, 2).returncode, 0)
        server.stop()
        server = self.start(f"--data_dir={restored}")
        self.assertEqual(self.get(server), before)
        restore = (NORMD, f"--restore={restored}/normd.db", f"--data_dir={self.folder}/data")
        server.stop()
        result = run(*restore)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("2 sessions", result.stdout)
        self.assertRegex(result.stdout, "the store before is .*/data/normd.db.before-")
        server = self.start()
        self.assertEqual(self.get(server), before)

    def test_a_failed_flush_is_never_acknowledged_and_ends_the_server(self):
        trigger = os.path.join(self.folder, "broken")
        server = self.start("--drain_settle=6s", environment={
            "LD_PRELOAD": FAILING_FLUSH, "NORMD_FAIL_FLUSH": trigger, "ASAN_OPTIONS": "verify_asan_link_order=0"})
        self.create(server)
        self.assertEqual(self.train(server, 1).returncode, 0)
        before = self.get(server)
        open(trigger, "w", encoding="utf-8").close()
        refused = self.train(server, 2)
        self.assertNotEqual(refused.returncode, 0, server.text())
        os.remove(trigger)  # a flush that succeeds now proves nothing
        refused = self.train(server, 3)
        self.assertNotEqual(refused.returncode, 0, server.text())
        self.assertIn("flush", refused.stderr)
        self.assertEqual(self.get(server), before, "reads are served while it drains")
        self.assertNotEqual(run(NORMCTL, "health", f"--server={server.address}").returncode, 0)
        self.assertEqual(server.process.wait(timeout=PATIENCE), 1)
        text = server.text()
        self.assertIn("a flush of the session store failed", text)
        server = self.start()
        self.assertIn(int(self.get(server)["version"]), (1, 2), "the step in doubt was applied once or not at all")
        self.assertEqual(self.train(server, 2).returncode, 0)
        self.assertEqual(int(self.get(server)["version"]), 2)


class LifecycleTest(unittest.TestCase):
    def test_sigterm_under_load_drains_and_exits_with_0(self):
        with tempfile.TemporaryDirectory() as folder:
            server = Server(folder)
            load = subprocess.Popen([NORMLOAD, f"--server={server.address}", "--duration=3s"],
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT)
            time.sleep(1)
            self.assertEqual(server.stop(), 0)
            load.wait(timeout=PATIENCE)
            self.assertFalse(os.path.exists(server.socket), "the Unix socket's file is left behind")

    def test_sighup_ends_nothing_before_and_during_a_drain(self):
        with tempfile.TemporaryDirectory() as folder:
            server = Server(folder, "--drain_settle=1s")
            server.hang_up_until("SIGHUP")
            deadline = time.monotonic() + PATIENCE
            self.assertEqual(server.get("/healthz")[0], 200)
            server.process.send_signal(signal.SIGTERM)
            while "draining" not in server.text() and time.monotonic() < deadline:
                time.sleep(0.02)
            server.process.send_signal(signal.SIGHUP)
            self.assertEqual(server.process.wait(timeout=PATIENCE), 0)  # stop() would be a second SIGTERM
            server.stop()

    def test_sighup_takes_a_new_policy_and_keeps_the_old_one_when_it_is_bad(self):
        with tempfile.TemporaryDirectory() as folder:
            policy, audit = os.path.join(folder, "policy"), os.path.join(folder, "audit")
            allow = '[[allow]]\nidentities = ["*"]\nmethods = ["/grpc.health.v1.Health/*"]\n'
            write_text(policy, allow)
            server = Server(folder, f"--policy_file={policy}", f"--audit_log={audit}")
            health, describe = (NORMCTL, "health"), (NORMCTL, "describe")
            code = lambda command: run(*command, f"--server={server.address}").returncode
            self.assertEqual(code(health), 0)
            self.assertNotEqual(code(describe), 0)
            self.assertIn("method=/normd.v1.Normalizer/Describe identity=anonymous", read_text(audit))
            write_text(policy, "[[alow]]\n")
            server.hang_up_until("the last good one stays in force")
            self.assertIn(f"{policy}, line 1: alow is no key of a policy; did you mean allow?", server.text())
            self.assertEqual(code(health), 0)
            self.assertIn('normd_rules_stale{file="policy"} 1', server.get("/metrics")[1])
            os.rename(audit, audit + ".1")
            write_text(policy, allow.replace("grpc.health.v1.Health", "normd.v1.Normalizer"))
            server.hang_up_until("rules taken")
            self.assertNotEqual(code(health), 0)
            self.assertEqual(code(describe), 0)
            self.assertIn("method=/grpc.health.v1.Health/", read_text(audit))
            self.assertEqual(server.stop(), 0)

    def test_a_token_is_printed_once_and_kept_as_a_hash(self):
        with tempfile.TemporaryDirectory() as folder:
            tokens = os.path.join(folder, "tokens")
            made = run(NORMD, "--make_token=ci", f"--tokens_file={tokens}")
            self.assertEqual(made.returncode, 0, made.stderr)
            token = made.stdout.strip()
            self.assertEqual(read_text(tokens), f"ci sha256:{hashlib.sha256(token.encode()).hexdigest()}\n")
            self.assertEqual(os.stat(tokens).st_mode & 0o777, 0o600)
            refused = run(NORMD, "--make_token=ci")
            self.assertEqual((refused.returncode, refused.stdout), (1, ""))
            self.assertIn("--tokens_file is missing", refused.stderr)

    def test_files_of_rules_that_cannot_be_used_are_named_at_the_start(self):
        with tempfile.TemporaryDirectory() as folder:
            tokens, policy = os.path.join(folder, "tokens"), os.path.join(folder, "policy")
            write_text(tokens, "ci sha256:00\n")
            write_text(policy, "[[allow]]\nidentities = [\"trainer\"]\nmethods = [\"*\"]\n")
            os.chmod(tokens, 0o600)
            for option, said in ((f"--tokens_file={tokens}", f"{tokens}, line 1: has no sha256:"),
                                 (f"--policy_file={policy}", f"{policy}, line 2: allow[0].identities: ")):
                ended = run(NORMD, option, "--listen=127.0.0.1:0", "--admin_listen=", "--session_store=memory")
                self.assertEqual(ended.returncode, 1)
                self.assertIn(said, ended.stderr)

    def test_clients_show_certificates_and_sighup_exchanges_those_of_the_server(self):
        with tempfile.TemporaryDirectory() as folder:
            certificate, key = os.path.join(folder, "server.pem"), os.path.join(folder, "server.key")

            def make_certificate():
                subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                                "-nodes", "-days", "90", "-subj", "/CN=localhost", "-keyout", key, "-out", certificate],
                               check=True, capture_output=True)
                os.chmod(key, 0o600)

            def connect():
                """The server's certificate, as a client sees it that shows the same one."""
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                context.set_alpn_protocols(["h2"])
                context.load_cert_chain(certificate, key)
                host, port = server.address.rsplit(":", 1)
                with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain) as tls:
                    return tls.getpeercert(binary_form=True)

            make_certificate()
            server = Server(folder, f"--tls_certificate={certificate}", f"--tls_key={key}",
                            f"--tls_client_ca={certificate}")
            first = connect()
            make_certificate()
            server.process.send_signal(signal.SIGHUP)
            deadline = time.monotonic() + PATIENCE
            while connect() == first and time.monotonic() < deadline:
                time.sleep(0.02)
            self.assertNotEqual(connect(), first)
            self.assertEqual(server.get("/readyz")[0], 200)
            self.assertEqual(server.stop(), 0)

    def test_every_line_is_json_when_that_is_asked_for_those_of_grpc_too(self):
        with tempfile.TemporaryDirectory() as folder:
            server = Server(folder, "--log_format=json", "--log_level=debug", "--transport=grpc",
                            environment={"GRPC_VERBOSITY": "DEBUG"})
            self.assertEqual(run(NORMCTL, "health", f"--server={server.address}").returncode, 0)
            self.assertEqual(server.stop(), 0)
            lines = [json.loads(line) for line in read_text(server.log.name).splitlines()]
            self.assertIn("gRPC", [line["message"] for line in lines])
            self.assertEqual(lines[-1]["message"], "stopped")

    def test_traces_for_a_collector_that_is_not_there_are_counted_and_hold_up_nothing(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))  # and does not listen
            server = Server(folder, f"--trace_endpoint=http://127.0.0.1:{nobody.getsockname()[1]}", "--trace_sample=1",
                            "--slow_request=1ns")
            self.assertEqual(run(NORMCTL, "describe", f"--server={server.address}").returncode, 0)
            self.assertRegex(server.text(), "slow request.* rpc=Normalizer/Describe request_id=[0-9a-f]{16} trace_id=")
            deadline = time.monotonic() + PATIENCE
            while "normd_spans_dropped_total 0\n" in server.get("/metrics")[1]:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.1)
            self.assertIn("the collector did not take spans", server.text())
            self.assertEqual(server.stop(), 0)

    def test_a_misspelled_variable_is_told_with_the_one_that_was_meant(self):
        with tempfile.TemporaryDirectory() as folder:
            server = Server(folder, environment={"NORMD_MAX_SESSION": "5", "NORMD_SERVICE_HOST": "10.0.0.1"})
            text = server.text()
            self.assertIn("WARN unknown environment variable name=NORMD_MAX_SESSION did_you_mean=NORMD_MAX_SESSIONS",
                          text)
            self.assertNotIn("NORMD_SERVICE_HOST", text)
            self.assertEqual(server.stop(), 0)

    def test_check_config_warns_of_a_misspelled_variable_too(self):
        result = run(NORMD, "--check_config", environment={"NORMD_LOG_LVEL": "debug"})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("NORMD_LOG_LVEL is no option's variable, and nothing reads it; did you mean NORMD_LOG_LEVEL?",
                      result.stderr)

    def test_a_limit_of_file_sizes_refuses_updates_and_ends_nothing(self):
        with tempfile.TemporaryDirectory() as folder:
            server = Server(folder)
            try:
                resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (400 * 1024, 400 * 1024))
                server.process.send_signal(signal.SIGUSR1)
                weight = os.path.join(folder, "w.npy")
                write_npy(weight, (8192,), [1.0] * 8192)
                results = [run(NORMCTL, "session", "create", "layer-norm", "--normalized-shape=8192",
                               f"--weight={weight}", f"--id=w{i}", f"--server={server.address}") for i in range(20)]
                self.assertEqual(results[0].returncode, 0, results[0].stderr)
                self.assertEqual(results[-1].returncode, 1)
                self.assertIn("session store", results[-1].stderr)
                self.assertEqual(run(NORMCTL, "health", f"--server={server.address}").returncode, 0, server.text())
                limited = run("/bin/bash", "-c", f"ulimit -f 1; exec {NORMCTL} lp-norm {weight} -o {folder}/y.npy "
                              f"--server={server.address}")
                self.assertEqual(limited.returncode, 1, "normctl's own file is too large")
                self.assertIn("y.npy", limited.stderr)
            finally:
                server.stop()

    def test_the_limit_of_descriptors_is_raised_to_the_hard_one(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with tempfile.TemporaryDirectory() as folder:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
            try:
                server = Server(folder)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            limits = [line for line in server.get("/metrics")[1].splitlines() if line.startswith("process_max_fds ")]
            self.assertEqual(float(limits[0].split()[1]), hard)
            self.assertIn(f"descriptors limit={hard} before=256", server.text())
            self.assertEqual(server.stop(), 0)

    def test_memory_goes_back_after_large_calls(self):
        if "ASAN_OPTIONS" in os.environ:
            self.skipTest("the address sanitizer keeps what is freed")
        with tempfile.TemporaryDirectory() as folder:
            server = Server(folder)

            def resident():
                text = server.get("/metrics")[1]
                line = next(at for at in text.splitlines() if at.startswith("process_resident_memory_bytes "))
                return float(line.split()[1])

            before = resident()
            load = run(NORMLOAD, f"--server={server.address}", "--shape=2048x2048", "--duration=60s", "--warmup=0",
                       "--requests=40", "-c", "8")
            self.assertEqual(load.returncode, 0, load.stdout + load.stderr)
            after = resident()
            self.assertGreater(after, before + 60e6)
            deadline = time.monotonic() + PATIENCE
            while resident() > before + (after - before) / 2 and time.monotonic() < deadline:
                time.sleep(0.2)
            self.assertLess(resident(), before + (after - before) / 2)
            self.assertEqual(server.stop(), 0)

    def test_load_on_a_server_that_goes_away_or_stops_ends_in_time(self):
        for number in (signal.SIGKILL, signal.SIGSTOP):
            for transport in ("unary", "stream"):
                with self.subTest(signal=number, transport=transport), tempfile.TemporaryDirectory() as folder:
                    server = Server(folder)
                    started = time.monotonic()
                    load = subprocess.Popen(
                        [NORMLOAD, f"--server={server.address}", "--duration=2s", "--warmup=0", "--deadline=2s", "-c",
                         "32", f"--transport={transport}"],
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
                    try:
                        time.sleep(1.5)
                        server.process.send_signal(number)
                        out, _ = load.communicate(timeout=PATIENCE)
                    finally:
                        load.kill()
                        server.stop(signal.SIGKILL)
                    self.assertLess(time.monotonic() - started, PATIENCE / 2)
                    self.assertEqual(load.returncode, 1)
                    self.assertRegex(out, "UNAVAILABLE|DEADLINE_EXCEEDED|CANCELLED")

    def test_a_reachable_listener_needs_plaintext(self):
        result = run(NORMD, "--listen=0.0.0.0:0", "--admin_listen=127.0.0.1:0")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("plaintext", result.stdout + result.stderr)

    def test_a_wrong_option_is_named(self):
        result = run(NORMD, "--max_sessions=many")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("max_sessions", result.stdout + result.stderr)

    def test_a_server_that_is_not_there_is_said_to_be_unavailable(self):
        result = run(NORMCTL, "health", "--server=unix:/nonexistent/normd.sock")
        self.assertEqual(result.returncode, 1)
        self.assertEqual(result.stderr, "normctl health: cannot reach normd at unix:/nonexistent/normd.sock (no such "
                         "file or directory); is it running there? start it, or name the server with -s HOST:PORT or "
                         "NORMD_SERVER\n")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[5:]], verbosity=2)
