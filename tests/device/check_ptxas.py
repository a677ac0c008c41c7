#!/usr/bin/env python3
"""Reads what nvcc said of every kernel and fails when one has grown a stack frame, spills or registers, or is missing.

check_ptxas.py SOURCES REPORTS [ARCHITECTURE...]   SOURCES: the folder of the .cu files; REPORTS: the folder of their
objects, beside which kernels/cuda/keep_report.sh keeps the compiler's reports; ARCHITECTURE: as CMake names it (80-real,
90), by default all that releases have. Every __global__ function of the sources must be there for every architecture, in
as many instances, and the PTX that newer GPUs need must have been asked for.
`--self-test` plants reports and fails unless each fault is found.
"""

import os
import re
import sys
import tempfile

# Bytes of stack frame that a thread may have, of any kernel on any architecture: registers kept over the slow path of a
# division in f64, and over what rows of FAST rarely need. A frame well over that is an array that is not in registers:
# the elements that a thread of register_rows.cu holds are 256 bytes.
MAX_STACK_BYTES = 96
# Registers that a thread of any instance of a kernel may have: so many that as many threads as its occupancy was
# chosen for fit on a multiprocessor, which has 65,536. A kernel that is not here may have DEFAULT_REGISTERS.
DEFAULT_REGISTERS = 64
MAX_REGISTERS = {
    "RegisterRowsKernel": 128,  # half of them are elements
    "NormaliseRowsKernel": 112,  # shared memory bounds the occupancy of longer rows
    "SumNarrowRowsKernel": 80,
    "SumVectorRowsKernel": 96,  # eight vectors under way
    "SumShortSegmentsKernel": 128,  # nine vectors under way
    "SumColumnRunsKernel": 128,  # eight vectors under way
    "SumMaskedColumnsKernel": 80,
    "SumWideColumnsKernel": 96,
    "SumWideRowsKernel": 80,
    "ApplyColumnsKernel": 96,
    "ApplyWindowsKernel": 80,  # three blocks of 256 threads, half of whose registers are elements and numbers
    "FinishGroupsKernel": 80,
    "FinishLargeGroupsKernel": 128,
    "FinishWideGroupsKernel": 80,
    "BoundGroupsKernel": 80,  # a thread for each group, of which there are few
    "NearestRowsKernel": 96,  # two blocks of 256 threads
}
# Bytes that may be spilled, stores and loads together, by kernels whose instances call the slow path of a division, or
# whose rare ways need more registers than the usual one. All others spill nothing.
MAX_SPILLED_BYTES = {
    "NormaliseRowsKernel": 360,
    "RegisterRowsKernel": 432,  # f32 rows about a mean that warps share: w and b are loaded before the row is summed
    "NormaliseStagedRowsKernel": 248,  # those of rows in an unusual state, all but 44
    "FinishGroupsKernel": 312,
    "SumVectorRowsKernel": 8,
    "ApplyColumnsKernel": 48,
    "SumWideColumnsKernel": 24,
    "ApplyRowsKernel": 16,
    "NormaliseTilesKernel": 288,
    "NormaliseGroupsKernel": 104,
}
RELEASED = ("80-real", "89-real", "90")

GLOBAL = re.compile(r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\s*\(")
ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
# Code that newer drivers compile: code=compute_90, or one of a list.
CODE = re.compile(r",code=(\[[^]]*\]|\"?\S+)")


def code_of(architectures):
    """("sm_80", ...) and ("compute_90", ...): the machine code and the PTX that CMake's names of architectures mean."""
    numbers = [architecture.partition("-") for architecture in architectures]
    return (tuple(f"sm_{number}" for number, _, kind in numbers if kind != "virtual"),
            tuple(f"compute_{number}" for number, _, kind in numbers if kind != "real"))


def texts(folder, ending):
    """{path: text} of the files below `folder`."""
    found = {}
    for base, _, names in os.walk(folder):
        for name in names:
            if name.endswith(ending):
                with open(os.path.join(base, name), encoding="utf-8", errors="replace") as file:
                    found[os.path.join(base, name)] = file.read()
    return found


def read_report(text):
    """[(mangled name, architecture, stack bytes, spill bytes, registers)] of one report. Functions that a kernel calls
    follow it, and their spills count as its own."""
    entries, at = [], None
    for line in text.splitlines():
        if match := ENTRY.search(line):
            at = [match.group(1), match.group(2), None, 0, 0]
            entries.append(at)
        elif at is not None and (match := STACK.search(line)):
            at[2] = int(match.group(1)) if at[2] is None else at[2]
            at[3] += int(match.group(2)) + int(match.group(3))
        elif at is not None and (match := REGISTERS.search(line)):
            at[4] = int(match.group(1))
    return entries


def kernel_of(mangled, kernels):
    """Which of `kernels` a mangled name is an instance of, or None."""
    return next((kernel for kernel in kernels if f"{len(kernel)}{kernel}" in mangled), None)


def gather(sources, reports, architectures, faults):
    """{(kernel, machine code): its entries}, empty ones included."""
    machines, virtual = code_of(architectures)
    kernels = sorted({name for text in texts(sources, ".cu").values() for name in GLOBAL.findall(text)},
                     key=len, reverse=True)
    if not kernels:
        faults.append(f"no __global__ function in {sources}")
    found = {(kernel, machine): [] for kernel in kernels for machine in machines}
    for path, text in texts(reports, ".report").items():
        name = os.path.basename(path)
        if not os.path.exists(os.path.join(sources, name.removesuffix(".o.report"))):
            continue  # of a source that is gone, in an old build folder
        asked = {code.strip('[]"') for codes in CODE.findall(text.split("\n", 1)[0]) for code in codes.split(",")}
        faults.extend(f"{name}: no PTX of {ptx} was asked for" for ptx in virtual if ptx not in asked)
        faults.extend(f"{name}: {line.strip()}" for line in text.splitlines() if "ptxas warning" in line)
        for entry in read_report(text):
            kernel = kernel_of(entry[0], kernels)
            if kernel is None:
                faults.append(f"{name}: {entry[0]} is a kernel that no source names")
            elif entry[1] in machines:
                found[kernel, entry[1]].append(entry)
    return found


def check(sources, reports, architectures=RELEASED, out=None):
    """What is wrong, as lines; the worst of each kernel goes to `out`."""
    faults = []
    found = gather(sources, reports, architectures, faults)
    for (kernel, architecture), entries in sorted(found.items()):
        if not entries:
            faults.append(f"{kernel}: not compiled for {architecture}")
            continue
        unread = [entry[0] for entry in entries if entry[2] is None]
        faults.extend(f"{name}: the report says nothing of its stack" for name in unread)
        if out:
            stack, spilled, registers = (max(entry[number] or 0 for entry in entries) for number in (2, 3, 4))
            print(f"{kernel:28} {architecture}  {len(entries):4} instances, at most: stack {stack:4}  "
                  f"spilled {spilled:4}  registers {registers:4}", file=out)
        for number, what, most in ((2, "bytes of stack", MAX_STACK_BYTES),
                                   (3, "bytes spilled", MAX_SPILLED_BYTES.get(kernel, 0)),
                                   (4, "registers", MAX_REGISTERS.get(kernel, DEFAULT_REGISTERS))):
            faults.extend(f"{kernel} for {architecture}: {entry[number]} {what}, over {most} ({entry[0]})"
                          for entry in entries if (entry[number] or 0) > most)
    for kernel in sorted({kernel for kernel, _ in found}):
        counts = {machine: len(found[kernel, machine]) for machine in code_of(architectures)[0]}
        if len(set(counts.values())) > 1 and all(counts.values()):
            faults.append(f"{kernel}: not as many instances everywhere: {counts}")
    return faults


def self_test():
    """Plants a sound tree and every fault; fails unless exactly the faults are found."""
    source = "__global__ void __launch_bounds__(kN* kW) FirstKernel(Work w) {}\n__global__ void Second(int n) {}\n"

    def entry(kernel, architecture, stack=0):
        return (f"ptxas info    : Compiling entry function '_Z{len(kernel)}{kernel}v' for '{architecture}'\n"
                f"    {stack} bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
                f"ptxas info    : Used {DEFAULT_REGISTERS} registers, used 0 barriers\n")

    command = "command: nvcc --generate-code=arch=compute_90,code=[compute_90,sm_90] -o a.o\n"
    machines = code_of(RELEASED)[0]
    called = ("ptxas info    : Function properties for _Z6Calledv\n"
              "    0 bytes stack frame, 4 bytes spill stores, 0 bytes spill loads\n")
    sound = "".join(entry(kernel, a, MAX_STACK_BYTES) for kernel in ("FirstKernel", "Second") for a in machines)
    cases = {
        "sound": (command + sound, None),
        "a large frame": (command + sound.replace(f"{MAX_STACK_BYTES} bytes", f"{MAX_STACK_BYTES + 1} bytes", 1),
                          f"FirstKernel for sm_80: {MAX_STACK_BYTES + 1} bytes of stack"),
        "a spill": (command + sound.replace("0 bytes spill loads", "4 bytes spill loads", 1),
                    "FirstKernel for sm_80: 4 bytes spilled, over 0"),
        "a spill of a function that it calls": (
            command + sound.replace(entry("Second", "sm_80", MAX_STACK_BYTES),
                                    entry("Second", "sm_80", MAX_STACK_BYTES) + called),
            "Second for sm_80: 4 bytes spilled, over 0"),
        "a register more": (command + sound.replace(f"Used {DEFAULT_REGISTERS} ", f"Used {DEFAULT_REGISTERS + 1} ", 1),
                            f"FirstKernel for sm_80: {DEFAULT_REGISTERS + 1} registers, over {DEFAULT_REGISTERS}"),
        "a missing architecture": (command + sound.replace(entry("Second", "sm_89", MAX_STACK_BYTES), ""),
                                   "Second: not compiled for sm_89"),
        "a missing kernel": (command + "".join(entry("Second", a) for a in machines),
                             "FirstKernel: not compiled for sm_80"),
        "a missing instance": (command + sound + entry("Second", "sm_90"), "Second: not as many instances"),
        "no PTX": (command.replace("[compute_90,sm_90]", "[sm_90]") + sound, "no PTX of compute_90"),
        "no stack": (command + sound.replace(f"    {MAX_STACK_BYTES} bytes stack frame", "", 1),
                     "says nothing of its stack"),
        "a warning": (command + sound + "ptxas warning : Too many registers\n", "Too many registers"),
        "a stranger": (command + sound + entry("Third", "sm_80"), "no source names"),
        "no report": (None, "not compiled for sm_80"),
    }
    one = "".join(entry(kernel, "sm_100") for kernel in ("FirstKernel", "Second"))
    others = {
        "one architecture": (command.replace("90", "100") + one, None, ("100",)),
        "one architecture, but another one's code": (command + sound, "not compiled for sm_100", ("100-real",)),
        "one architecture without its PTX": (command + one, "no PTX of compute_100", ("100",)),
    }
    others.update({name: (*case, RELEASED) for name, case in cases.items()})
    wrong = []
    for name, (report, want, architectures) in others.items():
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "a.cu"), "w", encoding="utf-8") as file:
                file.write(source)
            if report is not None:
                with open(os.path.join(folder, "a.cu.o.report"), "w", encoding="utf-8") as file:
                    file.write(report)
            faults = check(folder, folder, architectures)
        if (want is None and faults) or (want is not None and not any(want in fault for fault in faults)):
            wrong.append(f"{name}: {faults}")
    print("\n".join(wrong) if wrong else f"self-test: {len(others)} planted reports judged rightly")
    return 1 if wrong else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    faults = check(sys.argv[1], sys.argv[2], tuple(sys.argv[3:]) or RELEASED, sys.stdout)
    print("\n".join(faults) if faults else "every kernel is there, within its bounds of stack, spills and registers")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
