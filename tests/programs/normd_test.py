#!/usr/bin/env python3
"""normd as an operator runs it: tests/programs/normd_test.py NORMD NORMCTL NORMLOAD FAILING_FLUSH [TEST...]

What it listens on, its start and its end, signals, logs, certificates, rules, and limits of the system.
"""

import hashlib
import json
import os
import resource
import signal
import socket
import ssl
import struct
import subprocess
import tempfile
import time
import unittest

from harness import (ENVIRONMENT, NORMCTL, NORMD, NORMLOAD, PATIENCE, Server, ServerTest, TEST_ARGUMENTS, read_text,
                     run, write_npy, write_text)


class ListenersTest(ServerTest):
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

    def test_a_misspelled_variable_is_logged_with_a_suggestion(self):
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

    def test_a_reachable_listener_needs_plaintext(self):
        result = run(NORMD, "--listen=0.0.0.0:0", "--admin_listen=127.0.0.1:0")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("plaintext", result.stdout + result.stderr)

    def test_a_wrong_option_is_named(self):
        result = run(NORMD, "--max_sessions=many")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("max_sessions", result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main(argv=TEST_ARGUMENTS, verbosity=2)
