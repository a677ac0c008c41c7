#!/usr/bin/env python3
"""normctl in pipes and on a terminal: tests/programs/normctl_pipes_test.py NORMD NORMCTL NORMLOAD FAILING_FLUSH [TEST...]

What a process needs and a test within one cannot have: standard input and output, FIFOs, readers that leave early, and
a pseudo-terminal.
"""

import json
import os
import pty
import signal
import socket
import struct
import subprocess
import tempfile
import unittest

from harness import ENVIRONMENT, NORMCTL, PATIENCE, ServerTest, TEST_ARGUMENTS, read_text, run, write_npy


def filtered(arguments, source, **options):
    return subprocess.run([NORMCTL, *arguments], input=source, capture_output=True, env=ENVIRONMENT, timeout=PATIENCE,
                          check=False, **options)


def on_a_terminal(*arguments):
    """The exit code, and what a person at a terminal of 80 columns sees."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(NORMCTL, [NORMCTL, *arguments], {**ENVIRONMENT, "COLUMNS": "80"})
    seen = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # EIO: the other side has closed
            break
        if not piece:
            break
        seen += piece
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), seen.decode().replace("\r\n", "\n")


class PipesTest(ServerTest):
    def setUp(self):
        write_npy(self.path("in.npy"), (2, 4), [1, 2, 3, 4, 5, 9, 2, 6])
        with open(self.path("in.csv"), "w", encoding="utf-8") as out:
            out.write("a,b,c,d\n1,2,3,4\n5,9,2,6\n")
        self.succeed(NORMCTL, "layer-norm", self.path("in.npy"), "-o", self.path("y.npy"), self.at)
        with open(self.path("in.npy"), "rb") as npy, open(self.path("y.npy"), "rb") as y:
            self.npy, self.y = npy.read(), y.read()
        self.csv = read_text(self.path("in.csv")).encode()

    def check(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def test_a_filter_answers_in_the_format_it_was_asked_in(self):
        self.assertEqual(self.check(filtered(["layer-norm", "-", "-o", "-", self.at], self.npy)), self.y)
        text = self.check(filtered(["layer-norm", "-", "-o", "-", self.at], self.csv)).decode()
        self.assertEqual(text.splitlines()[0], "a,b,c,d")
        values = [float(v) for line in text.splitlines()[1:] for v in line.split(",")]
        self.assertEqual(struct.pack(f"<{len(values)}f", *values), self.y[128:])
        self.assertEqual(self.check(filtered(["layer-norm", "-", "-o", "-", "--format", "npy", self.at], self.csv)),
                         self.y)

    def test_the_summary_never_mixes_with_the_data(self):
        result = filtered(["layer-norm", "-", "-o", "-", self.at], self.csv)
        self.assertIn("header   a,b,c,d", result.stderr.decode())
        self.assertIn("tensors sent", result.stderr.decode())
        self.assertEqual(filtered(["layer-norm", "-", "-o", "-", "-q", self.at], self.csv).stderr, b"")
        result = filtered(["layer-norm", "-", "-o", self.path("q.npy"), self.at], self.npy)
        self.assertEqual(result.stdout, b"")

    def test_devices_and_fifos_are_files(self):
        out = self.check(filtered(["layer-norm", "/dev/stdin", "-o", "/dev/stdout", "-q", self.at], self.npy))
        self.assertEqual(out, self.y)
        fifo = self.path("fifo")
        os.mkfifo(fifo)
        with subprocess.Popen([NORMCTL, "layer-norm", fifo, "-o", "-", "-q", self.at], stdout=subprocess.PIPE,
                              env=ENVIRONMENT) as process:
            with open(fifo, "wb") as writer:
                writer.write(self.npy)
            self.assertEqual(process.communicate(timeout=PATIENCE)[0], self.y)
        os.remove(fifo)

    def test_without_a_file_all_of_y_is_written_as_lines(self):
        write_npy(self.path("large.npy"), (3000, 2), [float(i % 7) for i in range(6000)])
        self.assertEqual(len(run(NORMCTL, "layer-norm", self.path("large.npy"), self.at).stdout.splitlines()), 3000)

    def test_a_person_sees_the_corners_of_a_large_y(self):
        write_npy(self.path("large.npy"), (3000, 2), [float(i % 7) for i in range(6000)])
        code, seen = on_a_terminal("layer-norm", self.path("large.npy"), self.at)
        self.assertEqual(code, 0, seen)
        self.assertLess(len(seen.splitlines()), 20)
        self.assertIn("...", seen)
        self.assertIn("[3000, 2]", seen)
        code, seen = on_a_terminal("layer-norm", self.path("in.csv"), "-q", self.at)
        self.assertEqual([len(line) for line in seen.splitlines()], [len(seen.splitlines()[0])] * 3, seen)

    def test_the_bytes_of_a_file_are_not_written_on_a_terminal(self):
        code, seen = on_a_terminal("layer-norm", self.path("in.npy"), "-o", "-", self.at)
        self.assertEqual(code, 2)
        self.assertIn("redirect standard output", seen)

    def test_a_reader_that_leaves_ends_it_quietly(self):
        write_npy(self.path("large.npy"), (300000, 2), [float(i % 7) for i in range(600000)])
        for ignored in (False, True):  # as in most shells; and as under some supervisors
            with subprocess.Popen(
                    [NORMCTL, "layer-norm", self.path("large.npy"), "-q", self.at], stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, env=ENVIRONMENT, restore_signals=not ignored) as process:
                process.stdout.readline()
                process.stdout.close()
                self.assertEqual(process.stderr.read(), b"")
                self.assertEqual(process.wait(timeout=PATIENCE), 1 if ignored else -signal.SIGPIPE)
        with subprocess.Popen([NORMCTL, "methods", self.at], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=ENVIRONMENT, restore_signals=False) as process:
            process.stdout.close()
            self.assertEqual((process.stderr.read(), process.wait(timeout=PATIENCE)), (b"", 1))

    def test_a_full_disk_is_an_error(self):
        with open("/dev/full", "wb") as full:
            result = subprocess.run([NORMCTL, "layer-norm", self.path("in.csv"), self.at], stdout=full,
                                    stderr=subprocess.PIPE, env=ENVIRONMENT, timeout=PATIENCE, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn("No space left on device", result.stderr.decode())
        with open("/dev/full", "wb") as full:
            result = subprocess.run([NORMCTL, "methods", self.at], stdout=full, stderr=subprocess.PIPE, env=ENVIRONMENT,
                                    timeout=PATIENCE, check=False)
        self.assertEqual((result.returncode, result.stderr), (1, b"normctl methods: standard output: cannot write\n"))

    def test_no_server_is_looked_for_where_none_is_needed(self):
        with tempfile.TemporaryDirectory() as runtime, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(os.path.join(runtime, "normd.sock"))
            listener.listen()
            listener.setblocking(False)
            for arguments in (["completion", "bash"], ["man"], ["methods", self.at]):
                subprocess.run([NORMCTL, *arguments], stdout=subprocess.DEVNULL, timeout=PATIENCE, check=True,
                               env={**ENVIRONMENT, "XDG_RUNTIME_DIR": runtime})
                self.assertRaises(BlockingIOError, listener.accept)

    def test_bash_asks_the_program_and_finds_files_itself(self):
        folder = self.path("with a blank")
        os.mkdir(folder)
        write_npy(os.path.join(folder, "x.npy"), (1,), [1])
        script = ('source <(normctl completion bash); compopt() { :; }; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
                  '_normctl; printf "%s\\n" "${COMPREPLY[@]}"')
        for words, offered in ((["session", "cr"], "create"), (["layer-norm", "--eps-mode", "=", "cl"], "clamp-root"),
                               (["layer-norm", folder + "/"], folder + "/x.npy")):
            result = subprocess.run(["bash", "-c", script, "bash", "normctl", *words], capture_output=True, text=True,
                                    env={**ENVIRONMENT, "PATH": f"{os.path.dirname(NORMCTL)}:/usr/bin:/bin"},
                                    timeout=PATIENCE, check=True)
            self.assertEqual(result.stdout, offered + "\n", result.stderr)

    def test_large_tensors_go_through_shared_memory_by_themselves(self):
        count = 1 << 22  # 16 MiB: from here on normctl looks for the socket of the server at a TCP address
        header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({count // 64}, 64), }}"
        header += " " * (-(len(header) + 11) % 64) + "\n"
        with open(self.path("large.npy"), "wb") as out:
            out.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
            out.write(struct.pack("<f", 1.5) * count)
        socket = f"unix:{self.server.socket}"
        for target in (socket, self.server.address):
            result = run(NORMCTL, "layer-norm", self.path("large.npy"), "-o", self.path("out.npy"), "-s", target)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(f"{socket}, tensors through shared memory", result.stderr)

    def test_a_tensor_of_rank_three_is_piped_as_a_file(self):
        write_npy(self.path("cube.npy"), (2, 1, 2), [1, 2, 3, 4])
        text = self.check(filtered(["layer-norm", self.path("cube.npy"), "-q", self.at], b""))
        result = filtered(["layer-norm", "-", "-q", self.at], text)
        self.assertEqual(result.returncode, 1)
        self.assertIn("standard input: line 1: this is a tensor of rank 3 or more as text; pipe it with -o -",
                      result.stderr.decode())
        npy = self.check(filtered(["layer-norm", self.path("cube.npy"), "-o", "-", "-q", self.at], b""))
        self.check(filtered(["layer-norm", "-", "-q", self.at], npy))

    def test_standard_input_is_read_once(self):
        for arguments in (["moments", "layer-norm", "-", "--mask", "-"], ["verify", "layer-norm", "-", "--with", "-"],
                          ["session", "create", "rms-norm", "--weight", "-", "--bias", "-"]):
            result = filtered([*arguments, self.at], self.npy)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("standard input (-) can be read once", result.stderr.decode(), arguments)

    def test_a_training_step_whose_y_cannot_be_written_is_not_applied(self):
        create = ["session", "create", "batch-norm", "--id", "kept", "--channels", "4", "--layout", "channels-last",
                  "--json", self.at]
        before = json.loads(self.check(filtered(create, b"")))
        for flag in ("-o", "--mean"):
            result = filtered(["normalize", self.path("in.npy"), "--session", "kept", "--training", flag,
                               "/nonexistent/y.npy", self.at], b"")
            self.assertEqual(result.returncode, 1)
            self.assertIn("/nonexistent/y.npy: cannot create: No such file or directory", result.stderr.decode())
        after = json.loads(self.check(filtered(["session", "get", "kept", "--json", self.at], b"")))
        self.assertEqual(after["version"], before["version"])

    def test_the_json_report_has_the_fields_of_the_contract(self):
        report = json.loads(self.check(filtered(["layer-norm", self.path("in.npy"), "-o", self.path("y.npy"), "--json",
                                                 self.at], b"")))
        applied = report["applied"]
        self.assertEqual((applied["method"], applied["eps_mode"], applied["device"], applied["rounding"]),
                         ("layer_norm", "inside_sqrt", "cpu", "nearest"))
        self.assertEqual((applied["session_version"], applied["device_fallback"]), (0, False))

    def test_a_session_is_exported_to_standard_output_as_bytes_alone(self):
        self.check(filtered(["session", "create", "rms-norm", "--id", "piped", self.at], b""))
        self.check(filtered(["session", "export", "piped", "-o", self.path("s.bin"), self.at], b""))
        with open(self.path("s.bin"), "rb") as source:
            record = source.read()
        self.assertEqual(self.check(filtered(["session", "export", "piped", "-o", "-", self.at], b"")), record)
        self.check(filtered(["session", "import", "-", "--id", "piped-2", self.at], record))
        result = filtered(["session", "export", "piped", "-o", "-", "--json", self.at], b"")
        self.assertEqual(result.returncode, 2)
        code, seen = on_a_terminal("session", "export", "piped", "-o", "-", self.at)
        self.assertEqual(code, 2)
        self.assertIn("redirect standard output", seen)

    def test_the_socket_of_the_users_own_server_is_the_default(self):
        runtime = os.path.dirname(self.server.socket)
        environment = {**ENVIRONMENT, "XDG_RUNTIME_DIR": runtime}
        os.rename(self.server.socket, os.path.join(runtime, "normd.sock"))
        try:
            found = subprocess.run([NORMCTL, "layer-norm", self.path("in.npy")], env=environment, capture_output=True,
                                   timeout=PATIENCE, check=False)
        finally:
            os.rename(os.path.join(runtime, "normd.sock"), self.server.socket)
        self.assertEqual(found.returncode, 0, found.stderr)
        self.assertIn(f"server   unix:{runtime}/normd.sock, tensors sent", found.stderr.decode())


if __name__ == "__main__":
    unittest.main(argv=TEST_ARGUMENTS)
