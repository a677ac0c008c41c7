"""One mean and variance for all your workers: statistics that many processes move and read, kept by a normd server.

    from normd.stats import RunningMeanStd

    stats = RunningMeanStd("halfcheetah/obs", shape=(17,))
    stats.update(observations)        # [n, 17]; merged here, sent by a thread
    x = stats.normalize(observations)

Every sample counts exactly once, however many workers contribute, and whichever of them, or the server, is killed: what
is sent are the samples since the last time, each time under an id of its own. `snapshot()` is what a rollout keeps, so
that who acts and who learns use the same numbers. numpy is all that it needs.
"""

from normd.stats._running import RunningMeanStd
from normd.stats._snapshot import Snapshot

__all__ = ["RunningMeanStd", "Snapshot"]
