#!/usr/bin/env python3
"""Keeps the direction of includes: who may include whom, no cycles, root-relative names; and the product off tests/.

The table below is the architecture. There is no list of exceptions: code that does not fit moves, or the table changes
in the commit that says why. `--self-test` plants violations in a scratch tree and fails unless each is reported.
"""

import os
import re
import subprocess
import sys
import tempfile

# Libraries of others: a name for each, and the includes that belong to it.
LIBRARIES = {
    "absl": ("absl/",),
    "hwy": ("hwy/",),
    "cuda": ("cuda_runtime", "cuda_fp16.h", "cuda_bf16.h", "cooperative_groups.h", "cuda.h", "cub/"),
    "grpc": ("grpc/", "grpcpp/", "grpc++/"),
    "protobuf": ("google/protobuf/",),
    "prometheus": ("prometheus/",),
    "httplib": ("httplib.h",),
    "json": ("nlohmann/",),
    "cli11": ("CLI/",),
    "toml++": ("toml++/",),
    "sqlite": ("sqlite3.h",),
    "nghttp2": ("nghttp2/",),
    "libpq": ("libpq-fe.h", "postgresql/"),
    "openssl": ("openssl/",),
    "gtest": ("gtest/", "gmock/", "hwy/tests/"),
    "benchmark": ("benchmark/",),
    "gmp": ("gmp.h", "gmpxx.h"),
    "dnnl": ("oneapi/dnnl/",),
    "client library": ("normd/",),  # as its users include it; the generated messages are told apart before
}
# Headers of the language and of the operating system.
SYSTEM = re.compile(r"(?:[a-z_0-9]+|[a-z_0-9]+\.h|(?:sys|netinet|arpa|linux|sanitizer)/[a-z_0-9]+\.h)$")
# Generated from proto/: messages and, for those that speak gRPC, services.
MESSAGES = re.compile(
    r"(?:normd/(?:store/)?v1|google/rpc|grpc/(?:health/v1|reflection/v1(?:alpha)?)|opentelemetry|inference)/\w+\.pb\.h$")
SERVICES = re.compile(r"(?:normd/v1|grpc/health/v1|inference)/\w+\.grpc\.pb\.h$")
# Generated from a test's own .proto: belongs to the test's folder.
TEST_MESSAGES = re.compile(r"tests/.+/\w+(?:\.grpc)?\.pb\.h$")

# Folder -> what it may include besides itself and the standard library. A folder stands for the files directly in it;
# folders of its own that are not named here are refused. Longest name first is not needed: the match is exact.
LAYERS = {
    "proto/wire": ("absl",),
    "proto/text": ("absl",),
    "proto/catalogue": (),  # facts of the contract, for everything above
    "kernels/base": ("absl",),
    "kernels": ("absl", "proto/catalogue", "kernels/base"),
    "kernels/slow_road": ("absl", "kernels", "kernels/base"),
    "kernels/exact_sums": ("absl", "kernels", "kernels/base", "kernels/slow_road"),
    "kernels/methods": ("absl", "proto/catalogue", "kernels", "kernels/base"),
    "kernels/cpu": ("absl", "hwy", "kernels", "kernels/base", "kernels/exact_sums", "kernels/slow_road"),
    "kernels/python": ("absl", "kernels", "kernels/base", "kernels/cpu", "kernels/slow_road"),
    "kernels/cuda": ("absl", "cuda", "kernels", "kernels/base"),
    "server/base": ("absl", "openssl", "kernels/base"),  # the status payloads of kernels/base/errors.h serve the server's errors, too
    "server/obs": ("absl", "prometheus", "json", "server/base"),
    "server/traces": ("absl", "grpc", "messages", "proto/wire", "kernels/base", "server/base"),
    "server/security": ("absl", "openssl", "toml++", "proto/text", "kernels/base", "server/base"),
    # Sockets and the loops that serve them; what their bytes mean is for others.
    "server/net": ("absl", "openssl", "kernels/base", "server/base", "server/security"),
    "server/session": ("absl", "kernels", "kernels/base", "kernels/exact_sums", "server/base"),
    "server/session/record": ("absl", "protobuf", "messages", "proto/wire", "kernels", "kernels/base", "server/session", "server/base"),
    "server/session/memory": ("absl", "kernels/base", "server/session", "server/session/record", "server/base"),
    "server/session/durable": ("absl", "kernels/base", "server/session", "server/session/record", "server/base"),
    "server/session/sqlite": ("absl", "sqlite", "kernels/base", "server/session", "server/base"),
    "server/session/postgres": ("absl", "libpq", "kernels/base", "server/session", "server/base"),
    "server/schedule": ("absl", "kernels", "kernels/base", "server/base"),
    "server/engine": ("absl", "proto/catalogue", "kernels", "kernels/base", "kernels/exact_sums", "server/schedule",
                      "server/session", "server/base"),
    "server/shm": ("absl", "proto/wire", "kernels", "kernels/base", "server/net", "server/base"),
    # Bytes, limits and time; no message of ours. Above it what messages mean, above that the services, and on top what
    # makes a server of them.
    "server/rpc/edge": ("absl", "protobuf", "error messages", "proto/wire", "kernels/base", "server/base", "server/net",
                        "server/obs", "server/security"),
    "server/rpc/grpc": ("absl", "grpc", "protobuf", "proto/wire", "kernels/base", "server/base", "server/net",
                        "server/obs", "server/security", "server/rpc/edge"),
    "server/rpc/http2": ("absl", "nghttp2", "openssl", "kernels/base", "server/base", "server/net", "server/security",
                         "server/rpc/edge"),
    "server/rpc/codec": ("absl", "protobuf", "messages", "proto/catalogue", "proto/wire", "kernels", "kernels/base", "server/rpc/edge",
                         "server/session", "server/session/record", "server/engine", "server/shm", "server/base"),
    "server/rpc/services": ("absl", "protobuf", "messages", "proto/wire", "kernels", "kernels/base", "kernels/exact_sums",
                            "server/rpc/edge", "server/rpc/codec", "server/session", "server/engine", "server/shm", "server/base"),
    "server/rpc": ("absl", "kernels/base", "server/rpc/edge", "server/rpc/grpc", "server/rpc/http2", "server/rpc/codec",
                   "server/rpc/services", "server/engine", "server/base", "server/net"),
    "server/admin": ("absl", "prometheus", "kernels/base", "server/net", "server/base"),
    # What an operator may set, and where each value comes from.
    "server/options": ("absl", "cli11", "toml++", "proto/text", "kernels/base", "server/base", "server/net", "server/security",
                       "server/shm", "server/traces", "server/admin"),
    # Which backends, stores, metrics and hooks there are.
    "server/wiring": ("absl", "kernels", "kernels/base", "kernels/cpu", "kernels/cuda", "server/options", "server/session",
                      "server/session/record", "server/session/memory", "server/session/durable", "server/session/sqlite",
                      "server/session/postgres", "server/engine", "server/schedule", "server/shm", "server/rpc",
                      "server/rpc/edge", "server/rpc/services", "server/security", "server/traces", "server/base",
                      "server/obs"),
    "server": ("absl", "kernels", "kernels/base", "kernels/cpu", "server/options", "server/wiring", "server/session",
               "server/engine", "server/rpc", "server/rpc/grpc", "server/admin", "server/security", "server/base",
               "server/obs"),
    "client/cpp": ("absl", "grpc", "openssl", "protobuf", "messages", "services", "proto/catalogue", "proto/wire"),
    "client/cli": ("absl", "cli11", "json", "openssl", "protobuf", "messages", "proto/catalogue", "proto/text", "client/cpp"),
    "client/normctl": ("absl", "protobuf", "messages", "json", "proto/catalogue", "client/cpp", "client/cli"),
    "client/normload": ("absl", "messages", "json", "client/cpp", "client/cli"),
    "client/examples": ("client library",),  # users' programs
    "tests/support": ("absl", "gmp", "gtest", "nghttp2", "openssl", "kernels", "kernels/base", "kernels/cpu"),
    "tests/support/cuda_on_cpu": (),  # stands in for the toolkit, so it knows no more than the toolkit does
}
# Test folders below tests/: prefixes they may include. Production code includes nothing of tests/.
TESTS = {
    "tests/kernels": ("kernels", "tests/kernels", "tests/support"),
    "tests/device": ("kernels", "client", "messages", "tests/bench", "tests/device", "tests/kernels", "tests/support"),
    "tests/accuracy": ("kernels", "tests/accuracy", "tests/kernels", "tests/support"),
    "tests/server": ("kernels", "server", "messages", "services", "proto/wire", "tests/server", "tests/support"),
    "tests/client": ("client", "messages", "services", "proto/wire", "tests/client", "tests/support"),
    "tests/proto": ("messages", "services", "proto/text", "proto/wire", "tests/proto", "tests/support"),
    "tests/e2e": ("kernels", "server", "client", "messages", "services", "proto/wire", "tests/e2e", "tests/support"),
    "tests/fuzz": ("kernels", "server", "messages", "services", "proto/wire", "tests/fuzz",
                   "tests/amplification", "tests/proto", "tests/support"),
    "tests/amplification": ("kernels", "server", "messages", "services", "proto/wire", "tests/amplification",
                            "tests/fuzz", "tests/support"),
    "tests/crash": ("kernels", "server", "client", "messages", "services", "proto/wire", "tests/crash",
                    "tests/server/session", "tests/support"),
    "tests/bench": ("kernels", "server", "client", "messages", "services", "proto/wire", "tests/bench",
                    "tests/kernels", "tests/server/session", "tests/support"),
}
# Read by device compilers and by every pass of Highway's recompilation. They see the standard library and device
# headers: headers of kernels/ and of their own folder that reach nothing else, through whatever they include. Highway itself counts on the CPU,
# the CUDA runtime on the GPU.
DEVICE_FILE = re.compile(r"(?:-inl\.h|\.cuh|\.cu)$")
# The judge shares no code with the judged.
ORACLE = re.compile(r"tests/support/(?:oracle|nearest|exact_totals)")

SOURCE = re.compile(r"\.(?:h|cc|cu|cuh)$")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<([^>]+)>|(\S+))', re.MULTILINE)
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)

# What the product is made of reads nothing of tests/, neither when it is built nor when it runs: it is built without
# them. Comments may speak of them, and the CMakeLists.txt of the root may add their folder.
PRODUCT = re.compile(r"(?:proto|kernels|server|client|deploy)/|[^/]+$")
SCRIPT = re.compile(r"\.(?:sh|py)$")
BUILD = re.compile(r"(?:^|/)(?:CMakeLists\.txt|[^/]+\.cmake|Dockerfile[^/]*|[^/]*\.dockerignore)$")
CONTRACT = re.compile(r"\.proto$")
# A string or a character, which is kept, or a comment.
STRING_OR_COMMENT = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])')|//[^\n]*|/\*.*?\*/""", re.DOTALL)
HASH_COMMENT = re.compile(r"(?:(?<=\s)|^)#.*", re.MULTILINE)
# A path that leads there; in files where every word may be one, the word.
TESTS_PATH = re.compile(r"(?<![\w-])tests/|/tests\b")
TESTS_WORD = re.compile(r"(?<![\w-])tests(?![\w-])")


def listed_files(root):
    """Paths of our files, relative to root: what git tracks or would track."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-co", "--exclude-standard"], capture_output=True,
                            text=True, check=False)
    if listed.returncode == 0:
        names = listed.stdout.splitlines()
    else:
        names = [os.path.relpath(os.path.join(folder, name), root)
                 for folder, _, files in os.walk(root) for name in files]
    return sorted(n for n in set(names) if os.path.isfile(os.path.join(root, n)))


def blank(match):
    return "\n" * match.group().count("\n")


def reads_tests(root, name):
    """Lines of a product file that name tests/, as problems; none where it is another kind of file."""
    code = SOURCE.search(name) or CONTRACT.search(name)
    if not PRODUCT.match(name) or not (code or SCRIPT.search(name) or BUILD.search(name)):
        return []
    with open(os.path.join(root, name), encoding="utf-8") as source:
        text = source.read()
    if code:
        text = STRING_OR_COMMENT.sub(lambda m: m.group(1) or blank(m), text)
    else:
        text = HASH_COMMENT.sub("", text)
    pattern = TESTS_WORD if BUILD.search(name) and name != "CMakeLists.txt" else TESTS_PATH
    return [f"{name}:{number}: the product reads nothing of tests/: {line.strip()}"
            for number, line in enumerate(text.splitlines(), 1) if pattern.search(line)]


def read_includes(root, name):
    """[(line, target, quoted)] of one file; a macro as target is reported as `quoted` None."""
    with open(os.path.join(root, name), encoding="utf-8") as source:
        text = COMMENT.sub(blank, source.read())
    found = []
    for match in INCLUDE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        quoted = True if match.group(1) else False if match.group(2) else None
        found.append((line, match.group(1) or match.group(2) or match.group(3), quoted))
    return found


def group_of(target, quoted, files):
    """What an include belongs to: a folder of ours, a library, "messages", "error messages", "services", "std", or None."""
    if target in files:
        return os.path.dirname(target)
    if MESSAGES.match(target) and not SERVICES.match(target):
        return "error messages" if target.startswith("google/rpc/") else "messages"
    if SERVICES.match(target):
        return "services"
    if TEST_MESSAGES.match(target):
        return os.path.dirname(target)
    # The longest prefix wins: hwy/tests/ is a test library, hwy/ is not.
    matches = [(len(p), name) for name, prefixes in LIBRARIES.items() for p in prefixes if target.startswith(p)]
    if matches:
        return max(matches)[1]
    return "std" if SYSTEM.match(target) and not quoted else None


def below(folder, prefix):
    return folder == prefix or folder.startswith(prefix + "/")


def allowed(name, group):
    """Whether file `name` may include something of `group`; None when its folder is unknown."""
    folder = os.path.dirname(name)
    if ORACLE.match(name):
        return group in ("tests/support", "absl", "gmp")
    if group == "error messages" and not (folder in LAYERS and group in LAYERS[folder]):
        group = "messages"  # who may read those may read these
    if folder in LAYERS:
        return group == folder or group in LAYERS[folder]
    for prefix, may in TESTS.items():
        if below(folder, prefix):
            return group in LIBRARIES or any(below(group, m) for m in may)
    return None


def leaves_device(root, name, files, library, seen):
    """How device file `name` reaches something else than it may: the chain of names, or None."""
    seen.add(name)
    for _, target, quoted in read_includes(root, name):
        group = group_of(target, quoted, files)
        if group in ("std", library) or target in seen:
            continue
        if target not in files or not (below(group, "kernels") or group == os.path.dirname(name)):
            return [name, target]
        chain = leaves_device(root, target, files, library, seen)
        if chain:
            return [name, *chain]
    return None


def check_file(root, name, files):
    """Problems of one file, as text."""
    problems = []
    if DEVICE_FILE.search(name):
        chain = leaves_device(root, name, files, "hwy" if name.endswith("-inl.h") else "cuda", set())
        if chain:
            problems.append(f"{name}: device code sees standard and device headers only: {' -> '.join(chain)}")
    for line, target, quoted in read_includes(root, name):
        where = f"{name}:{line}: "
        if quoted is None:
            problems.append(f"{where}#include {target}: an include that cannot be read here")
            continue
        group = group_of(target, quoted, files)
        if group is None:
            kind = "not a root-relative file of ours" if quoted else "not a library of the table"
            problems.append(f"{where}{target}: {kind}")
            continue
        if group == "std":
            continue
        if target in files and not quoted:
            problems.append(f"{where}<{target}>: our own headers are included with quotes")
        permitted = allowed(name, group)
        if permitted is None:
            problems.append(f"{name}: its folder is in no layer; name it in LAYERS")
            break
        if not permitted:
            problems.append(f"{where}{target}: {os.path.dirname(name)} may not include {group}")
    return problems


def find_cycle(graph):
    """One cycle of the graph as a list of names, or None. Depth first, without recursion."""
    state = {}
    for start in sorted(graph):
        if start in state:
            continue
        path, stack = [start], [iter(graph[start])]
        state[start] = "open"
        while stack:
            step = next(stack[-1], None)
            if step is None:
                state[path.pop()] = "done"
                stack.pop()
            elif state.get(step) == "open":
                return path[path.index(step):] + [step]
            elif step not in state:
                state[step] = "open"
                path.append(step)
                stack.append(iter(graph[step]))
    return None


def check(root):
    names = listed_files(root)
    files = [name for name in names if SOURCE.search(name)]
    known = set(files)
    problems = [p for name in files for p in check_file(root, name, known)]
    problems += [p for name in names for p in reads_tests(root, name)]
    graph = {name: [t for _, t, _ in read_includes(root, name) if t in known and t != name] for name in files}
    cycle = find_cycle(graph)
    if cycle:
        problems.append("include cycle: " + " -> ".join(cycle))
    layer_cycle = find_cycle({f: [a for a in may if a in LAYERS] for f, may in LAYERS.items()})
    if layer_cycle:
        problems.append("cycle in the table itself: " + " -> ".join(layer_cycle))
    return files, problems


# What must be reported, and what must not: name -> (file, text, part of the report or None).
PLANTED = [
    ("kernels/good.h", '#include <vector>\n#include "absl/status/status.h"\n', None),
    ("kernels/up.h", '#include "server/engine/engine.h"\n', "kernels may not include server/engine"),
    ("kernels/simd.cc", '#include "hwy/highway.h"\n', "kernels may not include hwy"),
    ("kernels/cpu/rows.cc", '#include "hwy/highway.h"\n#include "kernels/good.h"\n', None),
    ("kernels/cpu/rows-inl.h", '#include "absl/status/status.h"\n', "device code sees"),
    ("kernels/cpu/sums-inl.h", '#include <hwy/highway.h>\n#include "kernels/summation_order.h"\n', None),
    ("kernels/summation_order.h", "#include <cstdint>\n", None),
    ("kernels/cuda/rows.cu", '#include <cuda_runtime.h>\n#include "kernels/reaches.h"\n',
     "kernels/reaches.h -> kernels/good.h -> absl/status/status.h"),
    ("kernels/cuda/column_sums.cu", '#include <cuda_runtime.h>\n#include "kernels/summation_order.h"\n', None),
    ("tests/device/planted.cu", '#include <cuda_runtime.h>\n#include "tests/device/planted.h"\n', None),
    ("tests/device/planted.h", "#include <cstdint>\n", None),
    ("tests/device/far.cu", '#include <cuda_runtime.h>\n#include "tests/support/oracle.h"\n', "device code sees"),
    ("tests/support/cuda_on_cpu/launch.cc", '#include "tests/support/cuda_on_cpu/launch.h"\n', None),
    ("tests/support/cuda_on_cpu/launch.h", "#include <cstdint>\n", None),
    ("tests/support/cuda_on_cpu/up.cc", '#include "kernels/good.h"\n', "cuda_on_cpu may not include kernels"),
    ("kernels/reaches.h", '#include "kernels/good.h"\n', None),
    ("server/engine/engine.h", '#include "grpcpp/grpcpp.h"\n', "server/engine may not include grpc"),
    ("server/engine/uses.h", '#include "server/rpc/codec.h"\n', "server/engine may not include server/rpc"),
    ("server/rpc/codec.h", '#include "server/engine/engine.h"\n', None),
    ("server/rpc/grpc/call.h", '#include "grpcpp/grpcpp.h"\n', None),
    ("server/rpc/edge/stream.h", '#include "grpcpp/grpcpp.h"\n', "server/rpc/edge may not include grpc"),
    ("server/rpc/http2/call.h", '#include "grpcpp/grpcpp.h"\n',
     "server/rpc/http2 may not include grpc"),
    ("server/rpc/edge/up.h", '#include "server/rpc/codec/message.h"\n',
     "server/rpc/edge may not include server/rpc/codec"),
    ("server/rpc/edge/ours.h", '#include "google/rpc/status.pb.h"\n#include "normd/v1/normalizer.pb.h"\n',
     "server/rpc/edge may not include messages"),
    ("server/rpc/codec/message.h", '#include "server/rpc/edge/stream.h"\n', None),
    ("server/rpc/codec/up.h", '#include "server/rpc/services/list.h"\n',
     "server/rpc/codec may not include server/rpc/services"),
    ("server/rpc/services/list.h", '#include "server/rpc/codec/message.h"\n', None),
    ("server/session/up.h", '#include "server/session/record/record.h"\n',
     "server/session may not include server/session/record"),
    ("server/session/record/record.h", "#include <string>\n", None),
    ("server/base/leaf.h", '#include "server/engine/uses.h"\n', "server/base may not include server/engine"),
    ("server/server.cc", '#include "grpcpp/grpcpp.h"\n', "server may not include grpc"),
    ("client/cpp/client.cc", '#include "kernels/good.h"\n', "client/cpp may not include kernels"),
    ("client/cpp/stub.cc", '#include "normd/v1/normalizer.grpc.pb.h"\n', None),
    ("client/normctl/local.cc", '#include "client.h"\n', "not a root-relative file of ours"),
    ("client/normctl/angle.cc", "#include <client/cpp/there.h>\n", "included with quotes"),
    ("client/cpp/there.h", "", None),
    ("server/admin/http.cc", "#include <boost/asio.hpp>\n", "not a library of the table"),
    ("server/schedule/macro.cc", "#include CONFIG_HEADER\n", "cannot be read here"),
    ("server/new/folder.cc", '#include "absl/status/status.h"\n', "in no layer"),
    ("kernels/tested.cc", '#include "tests/support/oracle.h"\n', "kernels may not include tests/support"),
    ("tests/support/oracle.h", '#include "kernels/good.h"\n', "tests/support may not include kernels"),
    ("tests/kernels/a_test.cc", '#include "gtest/gtest.h"\n#include "server/rpc/codec.h"\n', "may not include server"),
    ("server/rpc/peer.cc", '#include "tests/bench/datapath/echo.pb.h"\n', "may not include tests/bench/datapath"),
    ("tests/bench/datapath/peer.cc", '#include "tests/bench/datapath/echo.grpc.pb.h"\n', None),
    ("client/CMakeLists.txt", "set(data ${PROJECT_SOURCE_DIR}/tests/data/${file})\n",
     "client/CMakeLists.txt:1: the product reads nothing of tests/"),
    ("kernels/CMakeLists.txt", "# see tests/check_layers.py\nadd_library(kernels rows.cc)  # for tests\n", None),
    ("kernels/cpu/all.cmake", "file(GLOB found tests)\n", "the product reads nothing of tests/"),
    ("CMakeLists.txt", 'option(TESTS "Build tests" ON)\nadd_subdirectory(tests)\n', None),
    ("Dockerfile", "COPY client /src/client\nCOPY tests /src/data\n", "Dockerfile:2: the product reads nothing"),
    (".dockerignore", "*\n!client\n!tests/data\n", ".dockerignore:3: the product reads nothing of tests/"),
    ("deploy/pack.sh", "# as tests/run.sh does\ncp -r ../tests/data .\n", "deploy/pack.sh:2: the product reads"),
    ("deploy/other.sh", 'echo "the tests ran" "${1#*=}"\n', None),
    ("server/base/reads.cc", '/*\n*/ const char* url = "http://a"; auto f = Open(ROOT "/tests/data/iris.csv");\n',
     "server/base/reads.cc:2: the product reads nothing of tests/"),
    ("server/base/speaks.cc", '// as tests/server does\nauto text = "tests, or not";  /* tests/run.sh */\n', None),
    ("server/base/quotes.cc", "q = c == '\"'; auto path = \"file://x/tests/data\";\n", "the product reads nothing"),
    ("proto/speaks.proto", "// tests/proto compares them.\n", None),
    ("tests/kernels/reads_test.cc", 'const char* path = "/tests/kernels/golden.txt";\n', None),
    ("kernels/commented.h", '// #include "server/server.h"\n/*\n#include "server/server.h"\n*/\n', None),
]


def plant(root, name, text):
    path = os.path.join(root, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)


def self_test():
    failures = []
    with tempfile.TemporaryDirectory() as root:
        for name, text, _ in PLANTED:
            plant(root, name, text)
        _, problems = check(root)
        for name, _, expected in PLANTED:
            mine = [p for p in problems if p.startswith(name + ":")]
            if expected is None and mine or expected is not None and not any(expected in p for p in mine):
                failures.append(f"{name}: expected {expected!r}, got {mine}")
        if any("cycle" in p for p in problems):
            failures.append(f"a cycle was reported where there is none: {problems}")
    with tempfile.TemporaryDirectory() as root:
        plant(root, "kernels/a.h", '#include "kernels/b.h"\n')
        plant(root, "kernels/b.h", '#include "kernels/c.h"\n')
        plant(root, "kernels/c.h", '#include "kernels/a.h"\n')
        _, problems = check(root)
        if problems != ["include cycle: kernels/a.h -> kernels/b.h -> kernels/c.h -> kernels/a.h"]:
            failures.append(f"planted cycle: {problems}")
    for failure in failures:
        print(failure)
    print(f"self-test: {len(PLANTED) + 1} plantings, {len(failures)} wrong")
    return 1 if failures else 0


def main():
    if "--self-test" in sys.argv[1:]:
        return self_test()
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    files, problems = check(root)
    for problem in problems:
        print(problem)
    print(f"layers: {len(files)} files, {len(problems)} problems")
    return 1 if problems or not files else 0


if __name__ == "__main__":
    sys.exit(main())
