#!/usr/bin/env python3
"""Which steps of .ci/run may be left out because nothing that they depend on has changed since they passed.

    .ci/when_changed.py unchanged STEP   status 0, and says why, if the step may be left out; status 1 if it must run
    .ci/when_changed.py passed STEP      records that the step has passed on the files as they are now
    .ci/when_changed.py due              the steps that must run, one on each line

STEPS below is the only list. A record is a line of .ci/passed: the step, the SHA-256 of all files that it depends on,
and the day. It names contents and no commit, so that a rebase changes nothing; whoever ran the step commits it.
`.ci/run --full` asks nothing here and runs all steps, which also sees what changed outside of the tree: Debian's
packages, PyPI.

The server's sources are a dependency of everything, and a list that named them all would leave nothing out. A list has
what the step alone tests, and not what the release build's tests, the sanitizers and the crash test see in every run.
tests/ci_test.py holds the lists to the tree and to the scripts of the steps.
"""

import datetime
import hashlib
import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RECORD = os.path.join(".ci", "passed")
HEAD = "# Steps that passed, the SHA-256 of what each depends on (when_changed.py), and the day. Written by .ci/run.\n"

# How the programs are built: what CMake reads, and the packages.
BUILD = ("CMakeLists.txt", "client/CMakeLists.txt", "client/cmake", "client/examples/CMakeLists.txt",
         "kernels/CMakeLists.txt", "kernels/cuda/architectures.cmake", "kernels/cuda/cuda.cmake",
         "proto/CMakeLists.txt", "proto/embed.cmake", "server/CMakeLists.txt", "deploy/install-packages.sh", "deploy/packages/build.txt")

# The cases, the oracle and what else the tests of the kernels share.
KERNELS_SUPPORT = (
    "proto/catalogue",
    "tests/support/boundary_rows.*", "tests/support/case.*", "tests/support/compare.*", "tests/support/constants.h",
    "tests/support/environment.*", "tests/support/exact_totals.*", "tests/support/failing_new.*",
    "tests/support/judge_nearest.*", "tests/support/nearest*", "tests/support/oracle*", "tests/support/random.*",
    "tests/support/run_case.*", "tests/support/solved_rows.*", "tests/support/spec.h", "tests/support/wide.*")
KERNELS = KERNELS_SUPPORT + (
    "CMakeLists.txt", "kernels", "tests/kernels", ":(glob)tests/device/*.cc", ":(glob)tests/device/*.h",
    ":(glob)tests/device/*.cu", "tests/device/CMakeLists.txt", "tests/run.sh", "tests/sanitizers.cmake",
    "tests/support/cuda_on_cpu", ":(exclude)*.md", ":(exclude)kernels/python", ":(exclude)tests/kernels/python")
CLIENT = (
    "CMakeLists.txt", ":(glob)client/*.*", "client/cli", "client/cpp", "client/normctl", "client/normload", "proto",
    ":(glob)tests/client/*", "tests/e2e/end_of_grpc.cc", "tests/support/wide.*", "tests/run.sh",
    "tests/sanitizers.cmake", "deploy/make-certificates.sh")
BENCH = (":(glob)tests/bench/*.cc", ":(glob)tests/bench/*.h", "tests/bench/CMakeLists.txt", "tests/bench/run.sh",
         "tests/bench/reached.json", "server/process_setup.*", "server/base/cgroup.*", "deploy/packages/ci.txt", ":(exclude)*.md")

# Step -> pathspecs of git, each of which matches something.
STEPS = {
    # The demo in a clone with a build folder of its own. The demo and the command line pass in `tests`, too; the other
    # ways to configure are in `first-commands`.
    "quickstart": BUILD + ("deploy/quickstart.sh", ".gitignore", "client/normctl/demo*", "client/normctl/data"),
    # How the image is made, and what a process meets in it: the start, the health check, the signals.
    "container": BUILD + (
        "Dockerfile", ".dockerignore", "deploy/container-test.sh", "deploy/collect-image.sh", "deploy/write-sbom.sh",
        "deploy/make-certificates.sh", "deploy/packages/ci.txt", "deploy/packages/runtime.txt", "server/main.cc",
        "server/process_setup.*"),
    # Units, manifests, rules and the dashboard, held to the options, the metrics and the flags that there are.
    "deployments": (
        "deploy", ":(exclude,glob)deploy/*.sh", "tests/deploy", "server/README.md", "server/main.cc",
        "server/options", "server/wiring/metrics.*", "server/wiring/stats.*", "server/obs", "server/admin", "client/normload/options.*"),
    # Python's package for PyTorch and the models. What the server computes is compared with the oracle in `tests`; that
    # a trained session survives a kill is the crash test's.
    "real-models": (
        "tests/e2e/real_models.sh", "tests/e2e/real_models", "tests/client/python/torch",
        "tests/client/python/stats", "tests/client/python/conftest.py", "tests/client/python/pages.py",
        "client/guide/one-normaliser.md", "tests/support/cost.sh", "client/python",
        "proto/normd/v1", "proto/catalogue", "kernels/methods", "deploy/packages/torch.txt",
        "deploy/install-packages.sh"),
    # Callers that are not ours meet the transports, the protocol and nothing else.
    "interop": (
        "tests/e2e/interop.sh", "tests/e2e/interop", "tests/support/cost.sh", "proto/normd/v1", "proto/grpc",
        "server/net", "server/rpc/rpc_server.*", "server/rpc/edge", "server/rpc/http2", "server/rpc/grpc",
        "server/rpc/services/health*",
        "server/rpc/services/reflection*", "deploy/packages/ci.txt"),
    # Calls of the kernels without a server, and of the store without one.
    "bench-kernels": BENCH + KERNELS_SUPPORT + (
        "kernels", "tests/bench/kernels", ":(exclude)kernels/python"),
    "bench-store": BENCH + ("server/session", "server/base", "proto/normd/store", "proto/wire", "tests/bench/store",
                            "tests/support/environment.*", "tests/support/postgres.sh"),
    # Tests of the kernels, of what they are worth and of the emulated GPUs, which link nothing of the server, and CUDA
    # kernels for one GPU. Not steps by themselves, but options of `tests` and of `address-sanitizer`.
    "kernels": KERNELS + ("tests/accuracy", "tests/device", "tests/bench/kernels/workload.*", ":(glob)tests/bench/*.h",
                          ":(glob)client/cpp/*.h"),
    "kernels-address-sanitizer": KERNELS,
    # The golden norm in Python, with the CPU kernels: an option of `tests`.
    "golden": ("CMakeLists.txt", "kernels", "tests/kernels/python", "tests/run.sh", ":(exclude)kernels/cuda",
               ":(exclude)kernels/README.md", ":(exclude)kernels/cpu/README.md"),
    # Tests of the library, normctl and normload without a server, as options of `tests` and of `address-sanitizer`.
    "client": CLIENT,
    "client-address-sanitizer": CLIENT,
    # CUDA kernels for every GPU of a release: what nvcc compiles, and the bounds that its reports are held to. An option
    # of `tests`, too.
    "cuda-all": (
        "kernels/cuda", "kernels/base/host_device.h", "kernels/base/types.h", "kernels/bounded_group.h",
        "kernels/certificate.h", "kernels/group_statistics.h", "kernels/pairs.h", "kernels/power_sum.h",
        "kernels/summation_order.h", "tests/device/check_ptxas.py"),
}


def files_of(pathspecs, root=ROOT):
    """Files of the working tree, new ones too, but none that git ignores or that is deleted."""
    command = ["git", "ls-files", "-z", "-co", "--exclude-standard", "--", *pathspecs]
    listed = subprocess.run(command, cwd=root, check=True, capture_output=True).stdout.decode()
    return sorted({path for path in listed.split("\0") if path and os.path.lexists(os.path.join(root, path))})


def digest(pathspecs, root=ROOT):
    """Of names, contents and the right to execute."""
    total = hashlib.sha256()
    for path in files_of(pathspecs, root):
        whole = os.path.join(root, path)
        if os.path.islink(whole):
            kind, content = "link", os.readlink(whole).encode()
        else:
            kind = "program" if os.access(whole, os.X_OK) else "file"
            with open(whole, "rb") as file:
                content = file.read()
        total.update(f"{kind} {path} {hashlib.sha256(content).hexdigest()}\n".encode())
    return total.hexdigest()


def read_record(root=ROOT):
    """{step: (digest, day)}"""
    try:
        with open(os.path.join(root, RECORD), encoding="utf-8") as file:
            lines = [line.split() for line in file if line.strip() and not line.startswith("#")]
    except FileNotFoundError:
        return {}
    return {step: (value, day) for step, value, day in lines}


def write_record(step, root=ROOT, steps=None):
    record = read_record(root)
    value = digest((steps or STEPS)[step], root)
    if record.get(step, ("",))[0] == value:
        return  # the day at which it passed first, so that a run does not change the tree
    record[step] = (value, datetime.date.today().isoformat())
    with open(os.path.join(root, RECORD), "w", encoding="utf-8") as file:
        file.write(HEAD)
        for name in sorted(record):
            file.write(" ".join((name, *record[name])) + "\n")


def reason_to_leave_out(step, root=ROOT, steps=None):
    """Why the step need not run; None if it must."""
    value, day = read_record(root).get(step, (None, None))
    if value != digest((steps or STEPS)[step], root):
        return None
    return f"nothing it depends on has changed since it passed on {day} (.ci/when_changed.py; --full runs it)"


def main():
    match sys.argv[1:]:
        case ["unchanged", step] if step in STEPS:
            reason = reason_to_leave_out(step)
            if reason is None:
                return 1
            print(reason)
        case ["passed", step] if step in STEPS:
            write_record(step)
        case ["due"]:
            print("\n".join(step for step in STEPS if reason_to_leave_out(step) is None))
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
