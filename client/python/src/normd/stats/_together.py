"""The statistics that a drop-in has put into an environment."""

from __future__ import annotations

from typing import Dict, Optional

from normd.stats._running import RunningMeanStd


class Together:
    """Several RunningMeanStd by what they are of: "observations", "returns"."""

    def __init__(self, parts: Dict[str, RunningMeanStd]) -> None:
        self._parts = parts

    @property
    def observations(self) -> RunningMeanStd:
        """Of the observations; KeyError where they are not normalised."""
        return self._parts["observations"]

    @property
    def returns(self) -> RunningMeanStd:
        """Of the discounted returns; KeyError where rewards are not normalised."""
        return self._parts["returns"]

    def flush(self, timeout: Optional[float] = None) -> None:
        """Waits until the server has all samples so far."""
        for part in self._parts.values():
            part.flush(timeout)

    def refresh(self) -> None:
        """Reads what others have added."""
        for part in self._parts.values():
            part.refresh()

    def close(self, timeout: Optional[float] = None) -> None:
        """Flushes, and ends the threads; the environment keeps the values."""
        for part in self._parts.values():
            part.close(timeout)

    def __enter__(self) -> "Together":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
