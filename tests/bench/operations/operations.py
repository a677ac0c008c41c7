#!/usr/bin/env python3
"""What security, traces and many connections cost a server; tests/bench/run.sh operations runs it.

Every variant is a server of its own. In each round each variant is loaded once, in turn, so that all of them meet the
same machine; the table shows medians of the rounds, and differences and ratios are medians of the rounds' own. CPU is
the server's, user and system. Needs the package normd of client/python.
"""

import argparse
import concurrent.futures
import contextlib
import dataclasses
import datetime
import json
import os
import platform
import re
import resource
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import grpc

import normd

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
SIZES = {"4 KiB": "1x1024", "1 MiB": "256x1024"}


class Server:
    """A running normd, with its figures from /proc."""

    def __init__(self, program, folder, *options):
        self.folder = tempfile.mkdtemp(dir=folder)
        self.unix = os.path.join(self.folder, "normd.sock")
        ports = os.path.join(self.folder, "ports")
        command = [program, f"--listen=127.0.0.1:0,unix:{self.unix}", "--admin_listen=127.0.0.1:0",
                   "--session_store=memory", f"--port_file={ports}", f"--audit_log={self.folder}/audit",
                   "--log_level=error", *options]
        self.process = subprocess.Popen(command)
        while not os.path.exists(ports):
            if self.process.poll() is not None:
                raise SystemExit(f"{' '.join(command)} ended with {self.process.returncode}")
            time.sleep(0.01)
        bound = dict(line.strip().split("=", 1) for line in open(ports, encoding="utf-8") if "unix:" not in line)
        self.tcp, self.admin = bound["grpc"], bound["admin"]

    def cpu_seconds(self):
        # The CPU clock of another process, as clock_getcpuclockid makes it: nanoseconds, where /proc has ticks.
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as status:
            return int(re.search(r"VmRSS:\s+(\d+) kB", status.read()).group(1)) * 1024

    def stop(self):
        self.process.terminate()
        self.process.wait()


@dataclasses.dataclass
class Variant:
    name: str
    server: Server
    target: str
    load: list  # further arguments of normload
    rounds: list = dataclasses.field(default_factory=list)

    def median(self, key):
        return statistics.median(figures[key] for figures in self.rounds)


class Bench:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder
        self.results, self.missed = {}, []
        self.servers = contextlib.ExitStack()
        self.certificates = os.path.join(folder, "certificates")
        subprocess.run([arguments.make_certificates, self.certificates], check=True, capture_output=True)

    def path(self, name):
        return os.path.join(self.certificates, name)

    def start(self, *options):
        server = Server(self.arguments.normd, self.folder, *options)
        self.servers.callback(server.stop)
        return server

    def stop_servers(self):
        self.servers.close()

    def wants(self, name):
        return self.arguments.only is None or re.search(self.arguments.only, name)

    def load(self, variant, seconds, *more):
        """Loads the variant's server once and notes what came of it."""
        before = variant.server.cpu_seconds()
        command = [self.arguments.normload, f"--server={variant.target}", f"--duration={seconds}s", "--warmup=200ms",
                   "--json", *variant.load, *more]
        report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        run = report["runs"][0] if "runs" in report else report
        if run["failed"] or run["rejected"]:
            raise SystemExit(f"{variant.name}: {run['failed']} failed, {run['rejected']} refused: {run['first_error']}")
        used = variant.server.cpu_seconds() - before
        # The warm-up's calls cost CPU, too, and are not in `calls`.
        calls = run["calls"] * (seconds + 0.2) / seconds
        variant.rounds.append({"calls_per_second": run["calls_per_second"], "cpu_us": used / calls * 1e6,
                               "p50_us": run["latency_ns"]["p50"] / 1e3, "p99_us": run["latency_ns"]["p99"] / 1e3})

    def interleave(self, variants, seconds, *more):
        for _ in range(self.arguments.rounds):
            for variant in variants:
                self.load(variant, seconds, *more)

    def report(self, title, variants):
        """Prints a table of the variants, each beside the first."""
        base = variants[0]
        print(f"\n{title}\n{'':34}{'calls/s':>10}{'ratio':>8}{'CPU us':>9}{'more':>8}{'p50 us':>9}{'p99 us':>9}")
        for variant in variants:
            ratio = statistics.median(a["calls_per_second"] / b["calls_per_second"]
                                      for a, b in zip(variant.rounds, base.rounds))
            more = statistics.median(a["cpu_us"] - b["cpu_us"] for a, b in zip(variant.rounds, base.rounds))
            print(f"{variant.name:34}{variant.median('calls_per_second'):10.0f}{ratio:8.3f}"
                  f"{variant.median('cpu_us'):9.2f}{more:8.2f}{variant.median('p50_us'):9.1f}"
                  f"{variant.median('p99_us'):9.1f}")
            self.results[f"{title}: {variant.name}"] = {"ratio": ratio, "more_cpu_us": more, "rounds": variant.rounds}

    def judge(self, name, value, most, unit):
        """`value` may be at most `most`."""
        met = value <= most
        print(f"  {name}: {value:.3g} {unit} (at most {most:g}){'' if met else '  SHORT'}")
        self.results[name] = {"value": value, "most": most}
        if value > most / self.arguments.check:
            self.missed.append(name)

    # The sections.

    def handshakes(self):
        certificate = [f"--tls_certificate={self.path('server.crt')}", f"--tls_key={self.path('server.key')}"]
        ca = f"--tls_client_ca={self.path('ca.crt')}"
        plain, tls, mutual = self.start(), self.start(*certificate), self.start(*certificate, ca)
        kinds = {"plain text": (plain, None), "TLS 1.3": (tls, self.context()),
                 "TLS 1.3, client certificate": (mutual, self.context(certificate=True))}
        rates, costs = {name: [] for name in kinds}, {name: [] for name in kinds}
        for _ in range(self.arguments.rounds):
            for name, (server, context) in kinds.items():
                rate, cost = connect_for(server, context, self.arguments.seconds)
                rates[name].append(rate)
                costs[name].append(cost)
        print(f"\nConnections, one after another, until the server's SETTINGS\n{'':34}{'per s':>10}{'CPU us':>9}")
        for name in kinds:
            rate, cost = statistics.median(rates[name]), statistics.median(costs[name])
            print(f"{name:34}{rate:10.0f}{cost:9.0f}")
            self.results[f"handshakes: {name}"] = {"per_second": rate, "server_cpu_us": cost}
        self.stop_servers()

    def context(self, certificate=False):
        context = ssl.create_default_context(cafile=self.path("ca.crt"))
        context.set_alpn_protocols(["h2"])
        if certificate:
            context.load_cert_chain(self.path("client.crt"), self.path("client.key"))
        return context

    def tls(self):
        tls = [f"--tls_certificate={self.path('server.crt')}", f"--tls_key={self.path('server.key')}"]
        plain, encrypted = self.start(), self.start(*tls)
        for size, shape in SIZES.items():
            variants = [Variant("plain text", plain, plain.tcp, []),
                        Variant("TLS", encrypted, encrypted.tcp, ["--tls", f"--ca={self.path('ca.crt')}"])]
            self.interleave(variants, self.arguments.seconds, "-c", "4", "--method=rms-norm", f"--shape={shape}")
            self.report(f"TLS, {size}, 4 in flight over TCP", variants)
        self.stop_servers()

    def access(self):
        policy = os.path.join(self.folder, "policy.toml")
        with open(policy, "w", encoding="utf-8") as file:
            file.write('[[tenant]]\nname = "trial"\nidentities = ["token:*"]\n'
                       '[[deny]]\nidentities = ["token:old-*"]\nmethods = ["*"]\n'
                       '[[allow]]\nidentities = ["token:*"]\nmethods = ["/normd.v1.*"]\n')
        free = self.start()
        bound = self.start(f"--tokens_file={self.path('tokens')}", f"--policy_file={policy}")
        token = f"--token-file={self.path('token')}"
        variants = [Variant("no credentials, no policy", free, f"unix:{free.unix}", []),
                    # What the header itself costs gRPC, on a server that has no list of tokens.
                    Variant("token, not looked at", free, f"unix:{free.unix}", [token]),
                    Variant("token and policy", bound, f"unix:{bound.unix}", [token])]
        self.interleave(variants, self.arguments.seconds, "-c", "4", "--method=rms-norm", "--shape=1x1024")
        self.report("Tokens and policy, 4 KiB, 4 in flight over the Unix socket", variants)
        self.judge("access: token and policy, CPU a request",
                   self.results["Tokens and policy, 4 KiB, 4 in flight over the Unix socket: token and policy"]
                   ["more_cpu_us"], 2, "us")
        self.stop_servers()

    def traces(self):
        collector, port = start_collector()
        self.servers.callback(lambda: collector.stop(0).wait())
        endpoint = f"--trace_endpoint=http://127.0.0.1:{port}"
        servers = {"off": self.start(), "1 % of calls": self.start(endpoint, "--trace_sample=0.01"),
                   "every call": self.start(endpoint, "--trace_sample=1")}
        if self.arguments.before:
            before = Server(self.arguments.before, self.folder)
            self.servers.callback(before.stop)
            servers = {"before there were traces": before, **servers}
        variants = [Variant(name, server, f"unix:{server.unix}", []) for name, server in servers.items()]
        self.interleave(variants, self.arguments.seconds, "-c", "4", "--method=rms-norm", "--shape=1x1024")
        self.report("Traces, 4 KiB, 4 in flight over the Unix socket", variants)
        named = dict(zip(servers, variants))
        if self.arguments.before:
            self.judge("traces: CPU a call while they are off", more_percent(named["off"], variants[0]), 0.5, "%")
        self.judge("traces: CPU a call at 1 %", more_percent(named["1 % of calls"], named["off"]), 2, "%")
        self.stop_servers()

    def connections(self):
        idle, busy = self.arguments.idle, 200
        tls = [f"--tls_certificate={self.path('server.crt')}", f"--tls_key={self.path('server.key')}"]
        limits = [f"--max_connections={idle + 100}", f"--max_connections_per_peer={idle + 100}"]
        print(f"\n{idle} idle connections{'':14}{'KiB each':>10}")
        for name, options, context in (("plain text", [], None), ("TLS", tls, self.context())):
            server = self.start(*options, *limits)
            warm = [connect(server, context) for _ in range(50)]
            before = server.resident_bytes()
            connections = [connect(server, context) for _ in range(idle)]
            each = (server.resident_bytes() - before) / idle / 1024
            print(f"{name:34}{each:10.1f}")
            self.results[f"connections: idle, {name}"] = {"kib_each": each}
            for connection in warm + connections:
                connection.close()
            self.stop_servers()
        server = self.start()
        before = server.resident_bytes()
        few = Variant("4 connections", server, server.tcp, ["-c", "4", "--connections", "4"])
        many = Variant(f"{busy} connections", server, server.tcp, ["-c", str(busy), "--connections", str(busy)])
        self.interleave([few, many], self.arguments.seconds, "--method=rms-norm", "--shape=1x1024")
        self.report("Busy connections, one call in flight on each, 4 KiB", [few, many])
        print(f"  memory after {busy} busy connections: {(server.resident_bytes() - before) / 2**20:.1f} MiB more")
        self.stop_servers()

    def scrape(self):
        server = self.start()
        with normd.connect(f"unix:{server.unix}") as client:
            for number in range(self.arguments.sessions):
                client.session(f"s{number}", normd.BatchNorm(4, momentum=0.1))
        times = []
        for _ in range(max(21, self.arguments.rounds)):
            start = time.perf_counter()
            with urllib.request.urlopen(f"http://{server.admin}/metrics", timeout=60) as reply:
                size = len(reply.read())
            times.append((time.perf_counter() - start) * 1e3)
        print(f"\nA scrape with {self.arguments.sessions} sessions: {statistics.median(times):.2f} ms, {size} bytes")
        self.results["scrape"] = {"ms": statistics.median(times), "bytes": size}
        self.stop_servers()


def more_percent(variant, base):
    """How much more CPU a call of `variant` takes than one of `base`."""
    return statistics.median((a["cpu_us"] / b["cpu_us"] - 1) * 100 for a, b in zip(variant.rounds, base.rounds))


def start_collector():
    """An OpenTelemetry collector that takes everything and looks at nothing, and its port."""
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    take = grpc.unary_unary_rpc_method_handler(lambda request, context: b"")
    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": take}),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


def connect(server, context):
    """A connection that has finished HTTP/2's set-up."""
    host, port = server.tcp.rsplit(":", 1)
    connection = socket.create_connection((host, int(port)), timeout=30)
    if context is not None:
        connection = context.wrap_socket(connection, server_hostname=host)
    connection.sendall(PREFACE)
    if not connection.recv(9):
        raise SystemExit("the server closed a connection")
    return connection


def connect_for(server, context, seconds):
    """Connections a second, and the server's CPU for each in microseconds."""
    start, cpu, count = time.perf_counter(), server.cpu_seconds(), 0
    while time.perf_counter() - start < seconds:
        connect(server, context).close()
        count += 1
    elapsed = time.perf_counter() - start
    return count / elapsed, (server.cpu_seconds() - cpu) / count * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--normd", default="build/release/normd")
    parser.add_argument("--normload", default="build/release/normload")
    parser.add_argument("--make_certificates", default="deploy/make-certificates.sh")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--quick", action="store_true", help="shorter and fewer rounds, fewer connections and sessions")
    parser.add_argument("--only", help="the sections whose names have this regular expression: handshakes, tls, access, "
                        "traces, connections, scrape")
    parser.add_argument("--rounds", type=int, help="instead of 11, or of 5 with --quick")
    parser.add_argument("--before", help="a normd of before there were traces, to compare with")
    parser.add_argument("--json", help="a file for everything that was measured")
    parser.add_argument("--check", type=float, help="status 1 when a figure is above its floor divided by this")
    arguments = parser.parse_args()
    rounds, arguments.seconds = (5, 0.5) if arguments.quick else (11, 2)
    arguments.rounds = arguments.rounds or rounds
    arguments.idle, arguments.sessions = (500, 1000) if arguments.quick else (2000, 10000)
    checks, arguments.check = arguments.check is not None, arguments.check or 1.0
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print(f"{datetime.date.today()}, {os.cpu_count()} cores, {platform.processor() or platform.machine()}, commit "
          f"{arguments.commit}, {arguments.rounds} interleaved rounds of {arguments.seconds} s")
    with tempfile.TemporaryDirectory(prefix="normd-operations.") as folder:
        bench = Bench(arguments, folder)
        try:
            for section in (bench.handshakes, bench.tls, bench.access, bench.traces, bench.connections, bench.scrape):
                if bench.wants(section.__name__):
                    section()
        finally:
            bench.stop_servers()
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(bench.results, file, indent=1)
    print("\nall floors hold" if not bench.missed else f"\nshort of their floors: {', '.join(bench.missed)}")
    return 1 if checks and bench.missed else 0


if __name__ == "__main__":
    sys.exit(main())
