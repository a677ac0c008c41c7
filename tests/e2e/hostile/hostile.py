#!/usr/bin/env python3
"""What a peer may do to normd, and what must be true afterwards: tests/e2e/hostile/hostile.py NORMD TLS_FLOOD [...]

    --quick         each attack once, small, against a server of its own (the default)
    --full          with the sizes that would stop or fill a server that does not defend itself; some minutes
    --seconds=N     small attacks in random order until N seconds are over; those with equal options share a server
    --seed=N        repeats the random choices of a run, which prints its seed
    NAME...         only these attacks
    --self-test     checks the reading of replies, and needs no NORMD

Each attack is bounded in bytes and in time and comes from 127.0.0.0/8 or the Unix socket. Afterwards the server lives,
serves a polite caller the right bytes, has given its memory back, has nothing in flight and no INTERNAL or report of a
sanitizer in its log, and ends at SIGTERM with 0. With the address sanitizer, amounts (memory, CPU time, calls served)
are printed and not judged.
"""

import argparse
import contextlib
import os
import random
import resource
import ssl
import subprocess
import sys
import tempfile
import time

import costly  # noqa: F401, the attacks are in trial.ATTACKS
import floods  # noqa: F401
import mix  # noqa: F401
import self_test
from callers import Ended, Judge
from normd_server import NormdServer, has_address_sanitizer
from trial import ATTACKS, Trial

MAKE_CERTIFICATES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../deploy/make-certificates.sh")


class Suite:
    def __init__(self, arguments, folder):
        self.normd, self.tls_flood = (os.path.abspath(path) for path in (arguments.normd, arguments.tls_flood))
        self.full, self.folder, self.seed = arguments.full, folder, arguments.seed
        self.judges_amounts = not has_address_sanitizer(self.normd)
        self.judge = Judge()
        self.servers = {}  # options -> server, of those that are shared
        self.started = self.trials = 0
        self.certificates = os.path.join(folder, "certificates")
        subprocess.run([MAKE_CERTIFICATES, self.certificates], check=True, capture_output=True)
        self.tls = ssl.create_default_context(cafile=os.path.join(self.certificates, "ca.crt"))
        self.tls.set_alpn_protocols(["h2"])

    def options(self, attack):
        own = attack.full_options if self.full else attack.options
        if not attack.tls:
            return own
        return (*own, f"--tls_certificate={self.certificates}/server.crt", f"--tls_key={self.certificates}/server.key")

    def start(self, options):
        self.started += 1
        return NormdServer(self.normd, os.path.join(self.folder, f"server{self.started}"), options)

    def run(self, attack, is_server_shared):
        """Whether the server met what is expected."""
        begin, options = time.monotonic(), self.options(attack)
        self.trials += 1
        choices = random.Random(f"{self.seed} {attack.name} {self.trials if is_server_shared else ''}")
        server = self.servers.pop(options, None) or self.start(options)
        try:
            trial = Trial(server, self.judge, choices, full=self.full, judges_amounts=self.judges_amounts,
                          tls=self.tls if attack.tls else None, tls_flood=self.tls_flood)
            trial.expect_served(2, "a polite caller before it", tls=trial.tls, timeout=60)
            trial.resident_before = server.resident_mib()
            try:
                attack.run(trial)
            except (OSError, Ended, AssertionError, KeyError) as error:
                trial.expect(False, f"the attack itself: {error!r}")
            trial.expect_health(attack.kept_mib)
            if is_server_shared and server.is_alive():
                self.servers[options] = server
            else:
                self.stop(server, trial.shortfalls)
        finally:
            if server not in self.servers.values():
                server.kill()
        self.tell(attack.name, trial, time.monotonic() - begin)
        return not trial.shortfalls

    def stop(self, server, shortfalls):
        status = server.stop()
        if status != 0:
            shortfalls.append(f"exit status {status} after SIGTERM, log: {server.log()[-2000:]}")
        if alarms := [line for line in server.alarms() if not any(line in text for text in shortfalls)]:
            shortfalls.append(f"the log has at the end {alarms[:3]}")

    def tell(self, name, trial, seconds):
        print(f"{'SHORT' if trial.shortfalls else 'ok   '} {name} ({seconds:.1f} s)", flush=True)
        for line in trial.notes:
            if line not in trial.shortfalls:
                print(f"        {line}")
        for line in trial.shortfalls:
            print(f"   SHORT {line}", flush=True)

    def stop_shared(self):
        shortfalls = []
        for server in self.servers.values():
            self.stop(server, shortfalls)
        self.servers = {}
        for line in shortfalls:
            print(f"   SHORT {line}", flush=True)
        return not shortfalls


def run_for(suite, attacks, seconds):
    """(how many were run, how many fell short)"""
    deadline, order, results = time.monotonic() + seconds, random.Random(suite.seed), []
    while time.monotonic() < deadline:
        for attack in order.sample(attacks, len(attacks)):
            if time.monotonic() >= deadline:
                break
            results.append(suite.run(attack, True))
    results.append(suite.stop_shared())
    return len(results) - 1, results.count(False)


def allow_many_descriptors():
    """For this process and the servers, up to what the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65536) if hard != resource.RLIM_INFINITY else 65536, hard))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("normd")
    parser.add_argument("tls_flood")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    parser.add_argument("attacks", nargs="*", metavar="NAME")
    arguments = parser.parse_intermixed_args()
    known = {attack.name: attack for attack in ATTACKS}
    if unknown := [name for name in arguments.attacks if name not in known]:
        parser.error(f"no attack is called {unknown[0]}; there are {', '.join(known)}")
    attacks = [known[name] for name in arguments.attacks] or ATTACKS

    allow_many_descriptors()
    begin = time.monotonic()
    print(f"seed {arguments.seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        suite = Suite(arguments, folder)
        stack.callback(lambda: [server.kill() for server in suite.servers.values()])
        if not suite.judges_amounts:
            print("with the address sanitizer: memory, CPU time and calls served are not judged")
        if arguments.seconds is not None:
            count, short = run_for(suite, attacks, arguments.seconds)
        else:
            count, short = len(attacks), [suite.run(attack, False) for attack in attacks].count(False)
    print(f"{count} attacks in {time.monotonic() - begin:.0f} s, {short} short, seed {arguments.seed}")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(self_test.main() if "--self-test" in sys.argv else main())
