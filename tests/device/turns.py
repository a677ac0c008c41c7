#!/usr/bin/env python3
"""Times several builds of bench_cuda, and PyTorch, in the same rounds on the GPU of this machine.

turns.py [OPTION...] NAME=PROGRAM...
PROGRAM: bench_cuda of a build, or a program or the folder that tests/device/pack.sh packed. Settings may stand before
         it: fast="PLAN=2 build/gpu/bench_cuda". The first program is the one that the others are compared with; it runs
         a second time in each round ("again"), which shows how far two columns of the same program differ.
--only=REGEX     shapes by name; a comma means or
--more           shapes that the standard table has not, too
--rounds=N       of every shape, 15 by default, after one that warms up; the order turns from round to round
--seconds=N      ends after so long, and says which shapes were not run
--exact          EXACT of every program, too
--warm           then rounds on tensors that stay in the L2 cache, where they fit in it, too
--peers          PyTorch eager and torch.compile, too, by the Python that NORMD_PEERS_PYTHON names (this one by default)
--max-autotune   with --peers: torch.compile with max-autotune-no-cudagraphs, too
--json=FILE, --csv=FILE   the results, each shape's as soon as it is there
Every ratio is the median over the rounds of one column's time divided by the other's in that round. "of copy": beside
the better of the first program's two copies. A program that dies or does not answer is left out of that shape's results,
and started again for the next; after three deaths no more. Exit status: 0 everything was measured or there was no time
for it, 1 something failed, 2 the arguments are wrong, 3 there is no usable device.
"""

import argparse
import csv
import glob
import json
import os
import queue
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
NAME = re.compile(r"[A-Za-z0-9_.+-]+")
SETTING = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
PEERS = "torch"
COPIES = ("runtime_copy", "own_copy")
MOST_DEATHS = 3
SLOW_CLOCKS = 0.3  # seconds of a call of nvidia-smi
LEAST_ROUNDS = 3  # fewer, where time is over, are no result
# Seconds for an answer. Compiling takes long.
RUN_PATIENCE = float(os.environ.get("NORMD_TURNS_PATIENCE", "30"))
SHAPE_PATIENCE = 2 * RUN_PATIENCE
PEERS_PATIENCE = 8 * RUN_PATIENCE


class Died(Exception):
    """A program has ended, or was ended because it did not answer."""


class Refused(Exception):
    """A program answered "error WHY"."""


class Stopped(Exception):
    """A signal asks for the end."""


class Usage(Exception):
    """The arguments are wrong."""


class Program:
    """A process that answers a line for a line (bench/sections.h)."""

    def __init__(self, name, command, settings):
        self.name, self.command, self.settings = name, command, settings
        self.deaths = 0
        self.process = self.answers = self.log = None

    def environment(self):
        return {**os.environ, **self.settings}

    def start(self):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(self.command, env=self.environment(), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.answers = queue.Queue()

        def read(stream, answers):
            for line in stream:
                answers.put(line.rstrip("\n"))
            answers.put(None)

        threading.Thread(target=read, args=(self.process.stdout, self.answers), daemon=True).start()

    @property
    def runs(self):
        return self.process is not None

    def ask(self, line, patience):
        """The answer; Died or Refused where there is none."""
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:
            self.die(f"ended before '{line}'")
        end = time.monotonic() + patience
        while True:
            try:
                answer = self.answers.get(timeout=1)
            except queue.Empty:
                if self.process.poll() is None and time.monotonic() < end:
                    continue
                waited = f" in {patience:.0f} s" if self.process.poll() is None else ""
                self.die(f"no answer to '{line}'{waited}")
            if answer is None:
                self.die(f"ended at '{line}'")
            if answer.startswith("error"):
                raise Refused(answer[len("error "):])
            return answer

    def seconds(self, line):
        """What a run took; None where there is nothing to run."""
        answer = self.ask(line, RUN_PATIENCE)
        if answer == "none":
            return None
        try:
            return float(answer)
        except ValueError:
            self.die(f"answered '{answer}' to '{line}'")

    def prepare(self, shape, patience):
        answer = self.ask(f"shape {shape}", patience)
        if answer != "ok":
            self.die(f"answered '{answer}' to 'shape {shape}'")

    def die(self, why):
        self.deaths += 1
        said = list(self.answers.queue)
        status = self.end(0.2)
        self.log.seek(0, os.SEEK_END)
        self.log.seek(max(0, self.log.tell() - 2000))
        lines = [line for line in self.log.read().decode(errors="replace").splitlines() if line.strip()]
        last = "; ".join([text for text in said if text] + lines[-2:])
        raise Died(f"{why}, {status}" + (f": {last}" if last else ""))

    def end(self, patience):
        """Ends the process; how it ended, in words."""
        process, self.process = self.process, None
        try:
            process.stdin.close()
        except OSError:
            pass
        try:
            return f"exit status {process.wait(patience)}"
        except subprocess.TimeoutExpired:
            process.kill()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            return "cannot be killed"
        return "killed"


class Column:
    """The times of one form of one program."""

    def __init__(self, label, program, form, again=False):
        self.label, self.program, self.form, self.again = label, program, form, again
        self.times = []

    def is_ours(self):
        return self.program.name != PEERS and self.form not in COPIES


def ratio(over, under):
    """Median over the rounds; None where one is missing."""
    if over is None or under is None or over is under:
        return None
    return statistics.median(a / b for a, b in zip(over.times, under.times))


def results_of(columns, first):
    """Statistics of every column by its label."""
    def find(test):
        return next((column for column in columns if test(column)), None)

    copies = [column for column in columns if column.form in COPIES]
    copy = min(copies, key=lambda column: statistics.median(column.times), default=None)
    compiled = find(lambda column: column.form == "compile")
    results = {}
    for column in columns:
        quarters = statistics.quantiles(column.times, n=4) if len(column.times) > 1 else [column.times[0]] * 3
        base = find(lambda other: other.program.name == first and other.form == column.form and not other.again)
        results[column.label] = {
            "median": statistics.median(column.times),
            "min": min(column.times),
            "iqr": quarters[2] - quarters[0],
            "of_copy": ratio(copy, column),
            "x_compile": ratio(compiled, column),
            "x_first": ratio(base, column) if column.is_ours() else None,
            "seconds": column.times,
        }
    return results


def clocks():
    """{"sm": MHz, "memory": MHz, "celsius", "watts"} of the first GPU; nothing where nvidia-smi says nothing."""
    try:
        said = subprocess.run(["nvidia-smi", "--query-gpu=clocks.sm,clocks.mem,temperature.gpu,power.draw",
                               "--format=csv,noheader,nounits"],
                              capture_output=True, text=True, timeout=10, check=True).stdout
        return {key: float(value)
                for key, value in zip(("sm", "memory", "celsius", "watts"), said.splitlines()[0].split(","))}
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return {}


class Turns:
    def __init__(self, options, programs, peers, device):
        self.options = options
        self.programs, self.peers = programs, peers
        self.first = programs[0].name
        self.end = None if options.seconds is None else START + options.seconds
        self.failed = False
        self.result = {"device": device, "options": {key: value for key, value in vars(options).items()},
                       "shapes": [], "not_run": [], "failures": []}
        self.took = []  # seconds of each shape
        self.clocks_took, self.clocks_left_out = 0, 0
        self.csv = None
        if options.csv:
            self.csv = open(options.csv, "w", encoding="utf-8", newline="")  # open as long as the program runs
            self.write_csv("shape", "cache", "column", "rounds", "median_us", "min_us", "iqr_us", "of_copy",
                           "x_compile", "x_first", "sm_mhz_before", "memory_mhz_before", "sm_mhz_after", "memory_mhz_after")

    def clocks(self):
        """What clocks() says; where it takes long, seldom."""
        if self.clocks_took > SLOW_CLOCKS and self.clocks_left_out < 15:
            self.clocks_left_out += 1
            return {}
        began = time.monotonic()
        read = clocks()
        self.clocks_took, self.clocks_left_out = time.monotonic() - began, 0
        return read

    def all(self):
        return self.programs + ([self.peers] if self.peers else [])

    def left(self):
        return float("inf") if self.end is None else self.end - time.monotonic()

    def has_time_for_another(self):
        return self.left() > 1.2 * max(self.took[-3:], default=0)

    def fail(self, shape, who, why):
        self.failed = True
        self.result["failures"].append({"shape": shape, "who": who, "why": why})
        print(f"{shape}: {who} is left out: {why}", flush=True)

    def start_all(self):
        for program in self.all():
            if program.runs or program.deaths >= MOST_DEATHS:
                continue
            try:
                program.start()
            except OSError as error:
                program.deaths = MOST_DEATHS
                self.fail("start", program.name, str(error))

    def prepare(self, shape):
        """The programs that are ready for the shape; PyTorch last, since memory may not suffice for all."""
        self.start_all()
        ready = []
        for program in self.all():
            if not program.runs:
                continue
            patience = PEERS_PATIENCE if program is self.peers else SHAPE_PATIENCE
            try:
                program.prepare(shape, min(patience, max(self.left(), 0) + 10))
                ready.append(program)
            except (Died, Refused) as error:
                self.fail(shape, program.name, str(error))
        return ready

    def columns_of(self, ready):
        columns = []
        for program in ready:
            if program is self.peers:
                forms = ["eager", "compile"] + (["compile_max"] if self.options.max_autotune else [])
                columns += [Column(f"{PEERS} {form}", program, form) for form in forms]
                continue
            columns.append(Column(f"{program.name} fast", program, "fast"))
            if self.options.exact:
                columns.append(Column(f"{program.name} exact", program, "exact"))
        own = [program for program in ready if program is not self.peers]
        if own:
            # The first program's; another's where it is out.
            columns += [Column(form, own[0], form) for form in COPIES]
        if own and own[0].name == self.first:
            columns.append(Column(f"{self.first} fast again", own[0], "fast", again=True))
        return columns

    def measure(self, shape, command, columns):
        """The columns that have a time of each round, and the number of rounds."""
        done = 0
        for turn in range(-1, self.options.rounds):
            for column in list(columns if turn % 2 == 0 else reversed(columns)):
                if column not in columns:  # any more
                    continue
                try:
                    seconds = column.program.seconds(f"{command} {column.form}")
                except Refused as error:
                    self.fail(shape, column.label, str(error))
                    columns = [other for other in columns if other is not column]
                    continue
                except Died as error:
                    self.fail(shape, column.program.name, str(error))
                    columns = [other for other in columns if other.program is not column.program]
                    continue
                if seconds is None:
                    columns = [other for other in columns if other is not column]
                elif turn >= 0:
                    column.times.append(seconds)
            done = turn + 1
            if self.left() < 0:
                break
        if done < min(LEAST_ROUNDS, self.options.rounds):
            return [], done
        return columns, done

    def run_shape(self, shape):
        """False where time was over before there was a result."""
        ready = self.prepare(shape)
        before = self.clocks()
        columns, rounds = self.measure(shape, "run", self.columns_of(ready))
        warm, warm_rounds = [], 0
        if self.options.warm and columns:
            again = self.columns_of([program for program in ready if program.runs])
            warm, warm_rounds = self.measure(shape, "warm", again)
        after = self.clocks()
        for program in ready:
            try:
                if program.runs:
                    program.ask("done", RUN_PATIENCE)
            except (Died, Refused) as error:
                self.fail(shape, program.name, str(error))
        for cache, measured, count in (("cold", columns, rounds), ("warm", warm, warm_rounds)):
            if measured:
                self.report(shape, cache, count, results_of(measured, self.first), before, after)
        return bool(columns) or self.left() > 0

    def report(self, shape, cache, rounds, results, before, after):
        speeds = " -> ".join(f"{at['sm']:.0f}/{at['memory']:.0f}" if at else "?" for at in (before, after))
        print(f"{shape} {cache}, {rounds} rounds, SM/memory MHz {speeds}")
        for label, one in results.items():
            print(f"  {label:24} {micros(one['median'])} us  min {micros(one['min'])}  IQR {micros(one['iqr'])}"
                  f"  of copy {shown(one['of_copy'])}  x compile {shown(one['x_compile'])}"
                  f"  x {self.first} {shown(one['x_first'], 3)}", flush=True)
            if self.csv:
                self.write_csv(shape, cache, label, rounds,
                               *(f"{1e6 * one[key]:.3f}" for key in ("median", "min", "iqr")),
                               *("" if one[key] is None else f"{one[key]:.4f}"
                                 for key in ("of_copy", "x_compile", "x_first")),
                               *(at.get(key, "") for at in (before, after) for key in ("sm", "memory")))
        self.result["shapes"].append({"name": shape, "cache": cache, "rounds": rounds, "clocks_before": before,
                                      "clocks_after": after, "columns": results})
        self.write_json()

    def write_csv(self, *cells):
        csv.writer(self.csv).writerow(cells)
        self.csv.flush()

    def write_json(self):
        if not self.options.json:
            return
        with open(self.options.json + ".new", "w", encoding="utf-8") as file:
            json.dump(self.result, file)
        os.replace(self.options.json + ".new", self.options.json)

    def run(self, shapes):
        try:
            for i, shape in enumerate(shapes):
                began = time.monotonic()
                if not any(program.runs or program.deaths < MOST_DEATHS for program in self.programs):
                    self.result["not_run"] = shapes[i:]
                    print("every program has died")
                    break
                if not self.has_time_for_another() or not self.run_shape(shape):
                    self.result["not_run"] = shapes[i:]
                    break
                self.took.append(time.monotonic() - began)
        except Stopped:
            self.failed = True
            self.result["not_run"] = shapes[len(self.took):]
            print("stopped by a signal")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        self.summarize()
        self.write_json()
        for program in self.all():
            if program.runs:
                program.end(2)
        return 1 if self.failed else 0

    def summarize(self):
        columns = {}
        for shape in self.result["shapes"]:
            for label, one in shape["columns"].items():
                columns.setdefault((shape["cache"], label), []).append(one)
        print(f"\n=== medians over shapes, {self.result['device']}")
        for (cache, label), ones in columns.items():
            medians = {key: [one[key] for one in ones if one[key] is not None]
                       for key in ("of_copy", "x_compile", "x_first")}
            text = "  ".join(f"{name} {shown(statistics.median(medians[key]) if medians[key] else None, 3)}"
                             for key, name in (("of_copy", "of copy"), ("x_compile", "x compile"),
                                               ("x_first", f"x {self.first}")))
            faster = sum(value > 1.02 for value in medians["x_first"])
            slower = sum(value < 1 / 1.02 for value in medians["x_first"])
            over = f"  over 2 % faster {faster}, slower {slower}" if medians["x_first"] else ""
            ahead = sum(value > 1 for value in medians["x_compile"])
            over += f"  ahead of compile {ahead} of {len(medians['x_compile'])}" if medians["x_compile"] else ""
            print(f"{cache} {label:24} {len(ones):3} shapes  {text}{over}")
        for failure in self.result["failures"]:
            print(f"left out: {failure['shape']}: {failure['who']}: {failure['why']}")
        if self.result["not_run"]:
            print(f"NOT RUN: {', '.join(self.result['not_run'])}")
        sys.stdout.flush()


def micros(seconds):
    return f"{1e6 * seconds:9.2f}"


def shown(value, digits=2):
    return f"{'-':>{digits + 2}}" if value is None else f"{value:.{digits}f}"


def in_pack(settings, program, arguments):
    """(command, settings) with the libraries beside a packed program, as tests/device/run.sh finds them."""
    pack = os.path.dirname(os.path.dirname(os.path.abspath(program)))
    command = [program] + arguments
    libraries = os.path.join(pack, "lib")
    if os.path.basename(os.path.dirname(os.path.abspath(program))) != "bin" or not os.path.isdir(libraries):
        return command, settings
    settings = {"LD_LIBRARY_PATH": libraries, **settings}
    works, _ = output_of(Program("", command, settings), ["--list"])
    loader = glob.glob(os.path.join(pack, "glibc", "ld-linux*"))
    if works != 0 and loader:
        command = [loader[0], "--library-path", f"{pack}/glibc:{libraries}"] + command
    return command, settings


def program_of(text):
    name, separator, rest = text.partition("=")
    if not separator or not NAME.fullmatch(name):
        raise Usage(f"'{text}' is not NAME=PROGRAM")
    if name == PEERS:
        raise Usage(f"'{PEERS}' is the name of --peers")
    words = shlex.split(rest)
    settings = {}
    while words and SETTING.match(words[0]):
        key, _, value = words.pop(0).partition("=")
        settings[key] = value
    if not words:
        raise Usage(f"'{text}' names no program")
    program = words[0]
    if os.path.isdir(program):
        program = os.path.join(program, "bin", "bench_cuda")
    if not os.path.isfile(program) or not os.access(program, os.X_OK):
        raise Usage(f"'{program}' of {name} is no program that can be run")
    command, settings = in_pack(settings, os.path.abspath(program), words[1:])
    return Program(name, command, settings)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Usage(message)


def parse(arguments):
    parser = Parser(add_help=False, allow_abbrev=False)
    for flag in ("--more", "--exact", "--warm", "--peers", "--max-autotune", "--help"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--json")
    parser.add_argument("--csv")
    parser.add_argument("programs", nargs="*")
    options = parser.parse_args(arguments)
    if options.help:
        return options, []
    if options.rounds < 1:
        raise Usage("--rounds is at least 1")
    if options.seconds is not None and options.seconds <= 0:
        raise Usage("--seconds is more than 0")
    if options.max_autotune and not options.peers:
        raise Usage("--max-autotune is for --peers")
    try:
        re.compile(options.only)
    except re.error as error:
        raise Usage(f"--only is no regular expression: {error}") from error
    if not options.programs:
        raise Usage("no NAME=PROGRAM")
    programs = [program_of(text) for text in options.programs]
    names = [program.name for program in programs]
    for name in names:
        if names.count(name) > 1:
            raise Usage(f"two programs are called {name}")
    return options, programs


def output_of(program, arguments):
    """(exit status, what it printed) of a program that is not asked for turns."""
    try:
        done = subprocess.run(program.command + arguments, env=program.environment(), stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, text=True, timeout=120, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        return 126, str(error)
    return done.returncode, done.stdout.strip()


def shapes_of(program, options, path):
    """The chosen names; the whole list goes to the file, for peers.py."""
    status, text = output_of(program, ["--list"] + (["--more"] if options.more else []))
    try:
        shapes = json.loads(text)
    except ValueError:
        shapes = None
    if status != 0 or not shapes:
        raise Usage(f"{program.name} gives no list of shapes")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(shapes, file)
    only = re.compile(options.only.replace(",", "|"))
    chosen = [shape["name"] for shape in shapes if only.search(shape["name"])]
    if not chosen:
        raise Usage(f"no shape has '{options.only}' in its name")
    return chosen


def stop(number, frame):
    raise Stopped


def main():
    with tempfile.TemporaryDirectory() as folder:
        listed = os.path.join(folder, "shapes.json")
        try:
            options, programs = parse(sys.argv[1:])
            if options.help:
                print(__doc__)
                return 0
            chosen = shapes_of(programs[0], options, listed)
        except Usage as error:
            print(f"turns.py: {error} (--help says more)", file=sys.stderr)
            return 2
        status, device = output_of(programs[0], ["--probe"])
        if status != 0:
            print(device if status == 3 else f"turns.py: {programs[0].name} --probe ended with status {status}")
            return 3 if status == 3 else 1
        print(f"device: {device}", flush=True)
        for program in programs:
            program.command = program.command + ["--turns"]
        peers = None
        if options.peers:
            python = os.environ.get("NORMD_PEERS_PYTHON", sys.executable)
            peers = Program(PEERS, [python, os.path.join(HERE, "peers.py"), "--turns"] +
                            (["--max-autotune"] if options.max_autotune else []) + [listed], {})
        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        return Turns(options, programs, peers, device).run(chosen)


START = time.monotonic()
if __name__ == "__main__":
    sys.exit(main())
