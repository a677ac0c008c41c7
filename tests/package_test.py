#!/usr/bin/env python3
"""normd's C++ client as other projects get it: tests/package_test.py BUILD NORMD [TEST...]

Installs the client library out of the build folder BUILD, builds client/examples against what was installed, by CMake and
by pkg-config, and compares what each example prints, asking a NORMD that is started here. Configures the client alone, and
as a part of another project. CXX and CMAKE_CXX_COMPILER_LAUNCHER of the environment are CMake's own.
PythonExampleTest is not among the tests that run without a name: without the packages that it needs it exits with 3.
"""

import contextlib
import glob
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

BUILD, NORMD = (os.path.abspath(path) for path in sys.argv[1:3])
SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EXAMPLES = os.path.join(SOURCE, "client/examples")
# The same folder in every run, so that a compiler cache knows what is compiled there.
WORK = os.path.join(BUILD, "package_test")
PREFIX = os.path.join(WORK, "prefix")
PATIENCE = 600  # seconds
NOT_RUN = 3

LAYER_NORM = "-1.34164 -0.447212 0.447212 1.34164\n1.34164 0.447214 -0.447214 -1.34164\n"
# What each example prints, as patterns: the wording of errors is the server's.
EXPECTED = {
    "layer_norm": LAYER_NORM,
    "train_step": "step 1: version 1\nstep 2: version 2\nstep 3: version 3\nstep 3: version 3, replayed\n"
                  "running mean 3 30\nrunning var 2 200\ny 1.41421 0\n",
    "stream": "1000 rows, 0 refused\nrow 1000: 0.848528 1.13137\n",
    "shared_memory": "y -1 1, 0 bytes of it sent back\n",
    "moments": "version 1: mean 4.5, var 6\n",
    "running_moments": "count 3, mean 3 30, max 5 50\ny 0 1.22474\n",
    "errors": ".+\n  code: INVALID_ARGUMENT\n  field: spec.rms_norm.eps\n  value: -1\n  limit: .+\n"
              "  reason: EPS_OUT_OF_RANGE\n"
              ".+\n  code: NOT_FOUND\n(  field: session\n  value: .+\n  limit: .+\n)?  resource: sessions/nobody\n"
              "  reason: SESSION_NOT_FOUND\n",
}
# What only the server, the programs and the tests need.
SERVER_PACKAGES = re.compile(r"^(?:(?:hwy|prometheus-cpp|GTest|CLI11)_DIR|CMAKE_CUDA_COMPILER"
                             r"|_Python3_EXECUTABLE|(?:json|sqlite|libpq)_\w+)\b.*", re.MULTILINE)


def run(*command, **more):
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, **more)
    if result.returncode != 0:
        raise AssertionError(f"{shlex.join(command)} ended with {result.returncode}:\n{result.stdout}\n{result.stderr}")
    return result.stdout


def read(path):
    with open(path, encoding="utf-8") as source:
        return source.read()


def fresh(name):
    folder = os.path.join(WORK, name)
    shutil.rmtree(folder, ignore_errors=True)
    return folder


@contextlib.contextmanager
def server():
    """The addresses of a normd: by TCP and by its Unix socket."""
    with tempfile.TemporaryDirectory() as folder:
        ports, log, unix = (os.path.join(folder, name) for name in ("ports", "log", "s.sock"))
        with open(log, "w", encoding="utf-8") as out:
            process = subprocess.Popen([NORMD, f"--listen=127.0.0.1:0,unix:{unix}", "--admin_listen=",
                                        f"--port_file={ports}", f"--data_dir={folder}/data"],
                                       stdout=out, stderr=subprocess.STDOUT)
            try:
                deadline = time.monotonic() + PATIENCE
                while not os.path.exists(ports):
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise AssertionError("normd did not come up:\n" + read(log))
                    time.sleep(0.05)
                yield re.search(r"^grpc=(.*:.*)$", read(ports), re.MULTILINE).group(1), f"unix:{unix}"
            finally:
                process.terminate()
                process.wait(timeout=PATIENCE)


class InstalledTest(unittest.TestCase):
    """What `cmake --install --component client` makes, and those who build against it."""

    @classmethod
    def setUpClass(cls):
        run("cmake", "--install", BUILD, "--component", "client", "--prefix", fresh("prefix"))

    def headers(self):
        return [os.path.relpath(os.path.join(folder, name), os.path.join(PREFIX, "include"))
                for folder, _, names in os.walk(os.path.join(PREFIX, "include")) for name in names]

    def test_headers_are_the_public_ones_and_include_each_other(self):
        headers = self.headers()
        self.assertIn("normd/client.h", headers)
        for name in headers:
            self.assertTrue(name.startswith("normd/"), name)
            self.assertNotIn("health", name)
            for included in re.findall(r'#include "((?:normd|client|proto)/.*)"', read(f"{PREFIX}/include/{name}")):
                self.assertIn(included, headers, f"included by {name}")

    def test_every_example_is_built_by_find_package_and_prints_what_it_should(self):
        build = fresh("examples")
        run("cmake", "-G", "Ninja", "-S", EXAMPLES, "-B", build, f"-DCMAKE_PREFIX_PATH={PREFIX}",
            "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
        run("cmake", "--build", build)
        sources = {os.path.splitext(os.path.basename(path))[0] for path in glob.glob(f"{EXAMPLES}/*.cc")}
        self.assertEqual(set(EXPECTED), sources)
        with server() as (tcp, unix):
            for name, expected in EXPECTED.items():
                self.assertRegex(run(f"{build}/{name}", unix), rf"\A{expected}\Z", name)
            shared = run(f"{build}/shared_memory", tcp)
            self.assertRegex(shared, r"\Ano shared memory: .+\ny -1 1, 1048576 bytes of it sent back\n\Z")
            self.assertEqual(run(f"{build}/layer_norm", tcp), LAYER_NORM)

    def test_pkg_config_knows_what_to_compile_and_to_link(self):
        modules = glob.glob(f"{PREFIX}/**/normd.pc", recursive=True)
        self.assertEqual(len(modules), 1)
        flags = run("pkg-config", "--cflags", "--libs", "normd",
                    env={**os.environ, "PKG_CONFIG_PATH": os.path.dirname(modules[0])})
        program = os.path.join(WORK, "by_pkg_config")
        run(os.environ.get("CXX", "c++"), "-std=c++20", f"{EXAMPLES}/layer_norm.cc", "-o", program, *shlex.split(flags))
        with server() as (tcp, _):
            self.assertEqual(run(program, tcp), LAYER_NORM)


class ConfiguredTest(unittest.TestCase):
    def test_the_client_alone_needs_nothing_of_the_server(self):
        build = fresh("client_only")
        run("cmake", "-G", "Ninja", "-S", SOURCE, "-B", build, "-DNORMD_CLIENT_ONLY=ON")
        self.assertEqual(SERVER_PACKAGES.findall(read(f"{build}/CMakeCache.txt")), [])
        self.assertFalse(os.path.exists(f"{build}/server") or os.path.exists(f"{build}/kernels"))
        run("cmake", "--build", build, "--target", "normd_wire")

    def test_a_project_that_adds_it_keeps_its_own_flags(self):
        folder = fresh("embedded")
        os.makedirs(folder)
        with open(f"{folder}/CMakeLists.txt", "w", encoding="utf-8") as out:
            out.write(f"""cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
add_subdirectory({SOURCE} normd)
add_executable(app app.cc)
target_link_libraries(app PRIVATE normd::client)
""")
        shutil.copy(f"{EXAMPLES}/layer_norm.cc", f"{folder}/app.cc")
        build = f"{folder}/build"
        run("cmake", "-G", "Ninja", "-S", folder, "-B", build)
        cache = read(f"{build}/CMakeCache.txt")
        self.assertEqual(SERVER_PACKAGES.findall(cache), [])
        self.assertRegex(cache, r"(?m)^CMAKE_BUILD_TYPE:STRING=$")
        self.assertFalse(os.path.exists(f"{build}/normd/tests") or os.path.exists(f"{build}/normd/client/examples"))
        commands = {entry["file"]: entry["command"] for entry in json.loads(read(f"{build}/compile_commands.json"))}
        self.assertNotIn("-Werror", " ".join(commands.values()))
        flags = [word for word in shlex.split(commands[f"{folder}/app.cc"]) if word.startswith("-")]
        self.assertEqual([flag for flag in flags if not re.match(r"-(?:std=|isystem$|I|o$|c$)", flag)], [])
        self.assertNotIn(f"-I{SOURCE}", flags)
        # It finds the headers that are made in the build. The library is built by other tests.
        run("ninja", "-C", build, "CMakeFiles/app.dir/app.cc.o")


class PythonExampleTest(unittest.TestCase):
    def test_stubs_of_the_proto_files_are_enough(self):
        stubs = fresh("stubs")
        os.makedirs(stubs)
        protos = sorted(glob.glob(f"{SOURCE}/proto/normd/v1/*.proto"))
        run(sys.executable, "-m", "grpc_tools.protoc", "-I", f"{SOURCE}/proto", f"--python_out={stubs}",
            f"--grpc_python_out={stubs}", *protos)
        with server() as (tcp, _):
            printed = run(sys.executable, f"{EXAMPLES}/layer_norm.py", tcp, env={**os.environ, "PYTHONPATH": stubs})
        self.assertEqual(printed, LAYER_NORM)


def missing_packages():
    needed = {"grpc": "grpcio", "grpc_tools": "grpcio-tools", "google.rpc": "googleapis-common-protos"}
    found = {}
    for module in needed:
        try:
            found[module] = importlib.util.find_spec(module)
        except ModuleNotFoundError:
            found[module] = None
    return [package for module, package in needed.items() if found[module] is None]


if __name__ == "__main__":
    chosen = sys.argv[3:] or ["InstalledTest", "ConfiguredTest"]
    if "PythonExampleTest" in chosen and missing_packages():
        print("NOT RUN: this Python has no", ", ".join(missing_packages()))
        sys.exit(NOT_RUN)
    os.makedirs(WORK, exist_ok=True)
    unittest.main(argv=[sys.argv[0], *chosen], verbosity=2)
