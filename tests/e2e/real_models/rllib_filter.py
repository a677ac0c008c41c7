"""RLlib's MeanStdFilter, normd and the truth, of the same samples: python rllib_filter.py NORMD

Two runners observe; after each round their statistics are merged and everybody gets the result: by RLlib's own
unmodified EnvRunnerGroup and MeanStdFilter, and by normd. Prints both beside the mean and the standard deviation of all
samples at once.

normd must have all samples and what they say, within 1e-12 deviations. RLlib's first round, before anything is merged
into something, must, too: it shows that its connectors are driven in the right way. The rows that are printed must be
those of client/guide/one-normaliser.md.
"""

import pathlib
import sys
import tempfile
import types

import gymnasium
import numpy as np
import ray
from normd_server import Server
from ray.rllib.connectors.env_to_module import EnvToModulePipeline
from ray.rllib.connectors.env_to_module.mean_std_filter import MeanStdFilter
from ray.rllib.core import COMPONENT_ENV_TO_MODULE_CONNECTOR as COMPONENT
from ray.rllib.core import COMPONENT_MODULE_TO_ENV_CONNECTOR as OTHER_COMPONENT
from ray.rllib.env.env_runner_group import EnvRunnerGroup

import normd
from normd.stats import RunningMeanStd

GUIDE = pathlib.Path(__file__).parents[3] / "client" / "guide" / "one-normaliser.md"
MEAN, DEVIATION = np.array([5.0, -2.0, 100.0]), np.array([2.0, 1.0, 10.0])
RUNNERS, SAMPLES, ROUNDS = 2, 200, 20
SHOWN_ROUNDS = (1, 2, ROUNDS)
TOLERANCE = 1e-12
# RLlib's formula, as the guide has it.
OPTIONS = {"prior_count": 0, "variance": "unbiased", "epsilon": 1e-6, "eps_mode": "add_to_root", "clip": 10}


class Rllib:
    """Pipelines of one MeanStdFilter: of the runners, and of the driver, which merges."""

    def __init__(self):
        self._runners = [self._pipeline() for _ in range(RUNNERS)]
        self._driver = self._pipeline()

    @staticmethod
    def _pipeline():
        space = gymnasium.spaces.Box(-np.inf, np.inf, MEAN.shape, np.float32)
        spaces = {"input_observation_space": space, "input_action_space": gymnasium.spaces.Discrete(2)}
        pipeline = EnvToModulePipeline(connectors=[MeanStdFilter()], **spaces)
        pipeline.get_state()  # makes the filters, as a runner's first call does
        return pipeline

    @staticmethod
    def _filter(pipeline):
        return pipeline.connectors[0]._filters[None]

    def observe(self, runner, x):
        self._filter(self._runners[runner])(x, update=True)

    def synchronise(self):
        """What sync_env_runner_states does: the states of the runners are merged, and broadcast."""
        states = [{COMPONENT: one.get_state(), OTHER_COMPONENT: {}} for one in self._runners]
        group = types.SimpleNamespace(local_env_runner=None)
        merged = EnvRunnerGroup._merge_env_runner_connector_states(
            group, config=None, connector_states=states, from_worker=None, env_to_module=self._driver,
            module_to_env=types.SimpleNamespace(merge_states=lambda states: {}), merge=True)
        for one in [self._driver, *self._runners]:
            one.set_state(merged[COMPONENT])

    def statistics(self):
        """(count, mean, deviation) as the driver has them."""
        stats = self._filter(self._driver).running_stats
        return stats.n, np.asarray(stats.mean, float), np.asarray(stats.std, float)


def row(what, mean, deviation, decimals):
    """A row of the guide's table."""
    cells = (", ".join(f"{value:.{digits}f}" for value, digits in zip(values, decimals)) for values in (mean, deviation))
    return f"| {what} | " + " | ".join(cells) + " |"


def off(one, truth):
    """How far a (count, mean, deviation) is from another: in deviations, and relatively."""
    return float(max((abs(one[1] - truth[1]) / truth[2]).max(), (abs(one[2] - truth[2]) / truth[2]).max()))


def run(address):
    """The table's rows, and which claims hold."""
    random, theirs, seen = np.random.default_rng(0), Rllib(), []
    rows, holds = [], {}
    with normd.connect(address) as client:
        ours = [RunningMeanStd("rllib", MEAN.shape, client=client, **OPTIONS) for _ in range(RUNNERS)]
        for number in range(1, ROUNDS + 1):
            for runner in range(RUNNERS):
                for _ in range(SAMPLES):
                    x = (MEAN + DEVIATION * random.standard_normal(MEAN.shape)).astype(np.float32)
                    seen.append(x.astype(np.float64))
                    theirs.observe(runner, x)
                    ours[runner].update(x)
            theirs.synchronise()
            for one in ours:
                one.flush()
            if number in SHOWN_ROUNDS:
                after = f"after {number} round{'s' if number > 1 else ''}"
                rows.append(row(f"`MeanStdFilter` {after}", *theirs.statistics()[1:], (2, 2, 1)))
            if number == 1:
                off_first = off(theirs.statistics(), truth_of(seen))
                # Its deviation is float32.
                holds["MeanStdFilter is right after a round in which nothing is merged twice"] = off_first < 1e-6
        for one in ours:
            one.refresh()
        stats, truth = ours[0], truth_of(seen)
        rows.append(row(f"normd {after}", stats.mean, stats.std, (3, 3, 3)))
        rows.append(row(f"all {len(seen):,} samples at once", *truth[1:], (3, 3, 3)))
        holds["normd has all samples"] = stats.count == len(seen) == RUNNERS * SAMPLES * ROUNDS
        off_ours = off((stats.count, stats.mean, stats.std), truth)
        holds[f"normd is what they say (off by {off_ours:.1e})"] = off_ours < TOLERANCE
        print(f"  normd is off by {off_ours:.1e} (at most {TOLERANCE:.0e}), "
              f"MeanStdFilter by {off(theirs.statistics(), truth):.1e}, after the first round by {off_first:.1e}")
        for one in ours:
            one.close()
    return rows, holds


def truth_of(samples):
    samples = np.asarray(samples, np.longdouble)
    return len(samples), samples.mean(0).astype(float), samples.std(0, ddof=1).astype(float)


def main():
    print(f"RLlib {ray.__version__}: {RUNNERS} runners, {SAMPLES} samples a runner and round, {ROUNDS} rounds")
    with tempfile.TemporaryDirectory() as name, Server(sys.argv[1], name) as server:
        rows, holds = run(server.address)
    guide = GUIDE.read_text(encoding="utf-8").splitlines()
    for one in rows:
        print(f"  {one}")
        holds[f"the guide has the row: {one}"] = one in guide
    for claim, true in holds.items():
        if not true:
            print(f"  MISS: not true that {claim}")
    return 0 if all(holds.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
