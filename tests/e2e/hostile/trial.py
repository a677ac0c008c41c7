"""An attack, its server, and what is expected of it."""

import dataclasses
import time
import typing

from callers import PoliteCaller, count_served
from normd_server import PATIENCE


@dataclasses.dataclass(frozen=True)
class Attack:
    run: typing.Callable
    name: str
    options: tuple  # of the server in the quick form, where they make limits small enough to reach
    full_options: tuple  # those of the full form
    tls: bool
    kept_mib: float  # how much more memory the server may have when the attack is over


ATTACKS = []


def attack(options=(), full_options=(), tls=False, kept_mib=48.0):
    """Adds a function of a Trial to the list."""
    def add(function):
        ATTACKS.append(
            Attack(function, function.__name__, tuple(options), tuple(full_options), tls, kept_mib))
        return function
    return add


class Trial:
    """One run of one attack on a server. `judges_amounts`: whether memory, CPU time and calls served are judged; the
    address sanitizer multiplies them."""

    def __init__(self, server, judge, random, *, full, judges_amounts, tls, tls_flood):
        self.server, self.judge, self.random = server, judge, random
        self.full, self.judges_amounts = full, judges_amounts
        self.tls, self.tls_flood = tls, tls_flood  # the client's context if the server speaks TLS; the program
        self.resident_before = server.resident_mib()
        self.shortfalls, self.notes = [], []

    def size(self, quick, full):
        return full if self.full else quick

    def expect(self, is_met, text):
        if not is_met:
            self.shortfalls.append(text)
        return is_met

    def note(self, text):
        self.notes.append(text)

    def expect_amount(self, is_met, text):
        """What is judged in an ordinary build alone."""
        self.note(text)
        if self.judges_amounts:
            self.expect(is_met, text)

    def growth_mib(self):
        return self.server.resident_mib() - self.resident_before

    def expect_growth(self, most_mib, growth_mib=None):
        growth = self.growth_mib() if growth_mib is None else growth_mib
        self.expect_amount(growth <= most_mib, f"memory {growth:+.0f} MiB during it (at most {most_mib:.0f})")

    def polite(self):
        return PoliteCaller(self.server, self.judge, tls=self.tls)

    def expect_polite(self, caller, least, text="beside it"):
        self.expect(not caller.wrong, f"wrong answers {text}: {caller.wrong[:1]}")
        self.expect_amount(len(caller.seconds) >= least, f"{text}: {caller.text()} (at least {least} calls)")

    def expect_served(self, count, who, **connection):
        served, failure = count_served(self.server, self.judge, count, **connection)
        self.expect(served == count, f"{who} was served {served} of {count} times: {failure}")

    def expect_health(self, kept_mib):
        """What must be true when the attack is over."""
        if not self.expect(self.server.is_alive(), f"the server ended: {self.server.process.returncode}"):
            return
        try:
            # The server hears of the end of so many connections one after the other.
            self._wait_for(lambda: count_served(self.server, self.judge, 1, tls=self.tls, timeout=PATIENCE)[0] == 1)
            self.expect_served(5, "a polite caller afterwards", tls=self.tls, timeout=PATIENCE)
            self.expect_served(1, "the Unix socket afterwards", unix=True, timeout=PATIENCE)
            self._wait_for(lambda: self.server.metrics()["normd_in_flight_bytes"] == 0)
            in_flight = self.server.metrics()["normd_in_flight_bytes"]
            self.expect(in_flight == 0, f"normd_in_flight_bytes is {in_flight:.0f} afterwards")
        except (AssertionError, KeyError, OSError) as error:
            self.expect(False, f"afterwards: {error!r}")
        if self.judges_amounts:
            self._wait_for(lambda: self.growth_mib() <= kept_mib)
            growth = self.growth_mib()
            self.expect(growth <= kept_mib, f"memory {growth:+.0f} MiB afterwards (at most {kept_mib:.0f})")
        alarms = self.server.alarms()
        self.expect(not alarms, f"the log has {alarms[:3]}")

    @staticmethod
    def _wait_for(condition, seconds=15):
        deadline = time.monotonic() + seconds
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.05)
