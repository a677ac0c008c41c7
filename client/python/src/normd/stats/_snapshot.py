"""Statistics at one moment, and how they normalise."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, Optional

import numpy as np

# What is divided by, from a variance and epsilon: EpsMode of proto/normd/v1/norm.proto.
DIVISORS: Dict[str, Callable[[Any, float], Any]] = {
    "inside_sqrt": lambda var, epsilon: np.sqrt(var + epsilon),
    "add_to_root": lambda var, epsilon: np.sqrt(var) + epsilon,
    "clamp_root": lambda var, epsilon: np.maximum(np.sqrt(var), epsilon),
}


@dataclasses.dataclass(frozen=True, eq=False)
class Snapshot:
    """Statistics at one moment, which never change: what a rollout keeps. Arrays, or dicts of them, of the shape."""

    mean: Any
    var: Any
    count: Any
    min: Any
    max: Any
    version: int  # the server's version that is part of it
    digest: str  # the session's of this version; "" where own samples are part of it
    epsilon: float
    clip: Optional[float]
    eps_mode: str = "inside_sqrt"

    @property
    def std(self) -> Any:
        """sqrt(var)."""
        return each(np.sqrt, self.var)

    @property
    def divisor(self) -> Any:
        """What `normalize` divides by: var and epsilon put together as eps_mode says."""
        return each(lambda var: DIVISORS[self.eps_mode](var, self.epsilon), self.var)

    def normalize(self, x: Any) -> Any:
        """(x - mean) / divisor, within [-clip, clip]; of the dtype of x if that is a float's."""

        def one(x: Any, mean: Any, divisor: Any) -> Any:
            x = np.asarray(x)
            y = (x - mean) / divisor
            if self.clip is not None:
                y = np.clip(y, -self.clip, self.clip)
            return y.astype(x.dtype) if x.dtype.kind == "f" else y

        return each(one, x, self.mean, self.divisor)

    def denormalize(self, y: Any) -> Any:
        """The x whose `normalize` is y, unless that was clipped."""

        def one(y: Any, mean: Any, divisor: Any) -> Any:
            y = np.asarray(y)
            x = y * divisor + mean
            return x.astype(y.dtype) if y.dtype.kind == "f" else x

        return each(one, y, self.mean, self.divisor)


def each(function: Any, first: Any, *others: Any) -> Any:
    """function(...), or its results by key where the arguments are dicts."""
    if not isinstance(first, dict):
        return function(first, *others)
    return {key: function(value, *(other[key] for other in others)) for key, value in first.items()}
