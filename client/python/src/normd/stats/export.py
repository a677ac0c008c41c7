"""Statistics in other programs' formats. One rule each, which the function states: where epsilon and clip go, and that
a key or a number that is missing is an error and never a default.

vec_normalize.pkl of stable-baselines3 is in normd.stats.sb3, because it takes that package to read and write one.
"""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Optional, Sequence

import numpy as np

from normd.errors import InvalidArgument
from normd.stats._snapshot import Snapshot

ALL = ""  # the key of statistics that are no dict, in error texts
C_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def to_lerobot(snapshot: Snapshot, key: Optional[str] = None) -> Dict[str, Dict[str, List[Any]]]:
    """The content of LeRobot's meta/stats.json: mean, std, min, max and count of each key.

    key: that of statistics that are no dict. std is sqrt(var), without epsilon: LeRobot adds its own, 1e-8, to std
    where it normalises, and does not clip. count is whole: the part of a sample that a prior is falls away. InvalidArgument
    for statistics without samples, and where min and max are not known (`update_from_moments`).
    """
    out = {}
    for name, one in _by_key(snapshot, key).items():
        low, high = np.asarray(one["min"]), np.asarray(one["max"])
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise _refused(f"min and max of {name!r} are not known", "snapshot", name, "finite")
        counts = np.floor(np.asarray(one["count"]))
        if (counts != counts.flat[0]).any():
            raise _refused(f"the elements of {name!r} have different counts", "snapshot", name, "one count")
        values = {"mean": one["mean"], "std": np.sqrt(one["var"]), "min": low, "max": high}
        out[name] = {field: np.atleast_1d(value).tolist() for field, value in values.items()}
        out[name]["count"] = [int(counts.flat[0])]
    return out


def from_lerobot(stats: Mapping[str, Mapping[str, Any]], keys: Sequence[str]) -> Snapshot:
    """The statistics of these keys of LeRobot's stats.json, as a snapshot that is a dict.

    var is std squared, and normalize divides by std + 1e-8, as LeRobot does. InvalidArgument for a key, or a field of
    one, that is not there.
    """
    fields: Dict[str, Dict[str, Any]] = {field: {} for field in ("mean", "std", "min", "max", "count")}
    for key in keys:
        if key not in stats:
            raise _refused(f"the key {key!r} is not there; {sorted(stats)} are", "keys", key, str(sorted(stats)))
        for field, by_key in fields.items():
            if field not in stats[key]:
                raise _refused(f"{key!r} has no {field}", "stats", f"{key}.{field}", str(sorted(fields)))
            by_key[key] = np.asarray(stats[key][field], np.float64)
    counts = {key: np.full(fields["mean"][key].shape, count.flat[0]) for key, count in fields["count"].items()}
    variances = {key: std**2 for key, std in fields["std"].items()}
    return Snapshot(
        mean=fields["mean"],
        var=variances,
        count=counts,
        min=fields["min"],
        max=fields["max"],
        version=0,
        digest="",
        epsilon=1e-8,
        clip=None,
        eps_mode="add_to_root",
    )


def onnx_scaler(snapshot: Snapshot, key: Optional[str] = None) -> Dict[str, List[float]]:
    """The attributes of a Scaler node of ai.onnx.ml, which computes (x - offset) * scale in float32.

    key: which of a dict's. offset is mean, scale is 1 / divisor, epsilon included, each rounded to float32; so where a
    mean is large beside its deviation, y has fewer digits than float32 has. The node cannot clip: InvalidArgument if
    the snapshot does. For those put a Clip node behind it and pass dataclasses.replace(snapshot, clip=None).
    """
    if snapshot.clip is not None:
        raise _refused(f"clip is {snapshot.clip}, and a Scaler node has none", "clip", str(snapshot.clip), "None")
    one = _one(snapshot, key)
    values = {"offset": np.ravel(one["mean"]), "scale": 1 / np.ravel(one["divisor"])}
    return {attribute: value.astype(np.float32).tolist() for attribute, value in values.items()}


def c_header(snapshot: Snapshot, name: str, key: Optional[str] = None) -> str:
    """A header for C and C++ with NAME_normalize(x, y), which has the bits of `Snapshot.normalize` of float64.

    name: a C identifier, the prefix of all names. key: which of a dict's. Epsilon is in the divisor; y is
    limited to [-clip, clip] if the snapshot has one. Version and digest are in it, so that a program can say with which
    statistics it works. Compile it without -ffast-math.
    """
    if not C_NAME.match(name):
        raise _refused(f"name is {name!r}; it must be a C identifier", "name", name, C_NAME.pattern)
    one = _one(snapshot, key)
    mean, divisor = np.ravel(one["mean"]), np.ravel(one["divisor"])
    clip = ""
    if snapshot.clip is not None:
        limit = repr(float(snapshot.clip))
        clip = f"\n        if (y[i] > {limit}) y[i] = {limit};\n        if (y[i] < -{limit}) y[i] = -{limit};"
    return C_HEADER.format(
        name=name,
        guard=f"{name.upper()}_NORMALIZE_H_",
        version=snapshot.version,
        digest=snapshot.digest,
        size=mean.size,
        mean=_c_values(mean),
        divisor=_c_values(divisor),
        clip=clip,
    )


C_HEADER = """\
/* Statistics of {name}, version {version}, written by normd.stats.export. */
#ifndef {guard}
#define {guard}

#define {name}_SIZE {size}
#define {name}_VERSION {version}
#define {name}_DIGEST "{digest}"

static const double {name}_mean[{name}_SIZE] = {{{mean}}};
static const double {name}_divisor[{name}_SIZE] = {{{divisor}}};

/* y may be x. */
static inline void {name}_normalize(const double x[{name}_SIZE], double y[{name}_SIZE]) {{
    for (int i = 0; i < {name}_SIZE; ++i) {{
        y[i] = (x[i] - {name}_mean[i]) / {name}_divisor[i];{clip}
    }}
}}

#endif
"""


def _c_values(values: "np.ndarray[Any, np.dtype[np.float64]]") -> str:
    if not np.isfinite(values).all():
        raise _refused("mean and variance are not finite", "snapshot", str(values), "finite")
    # The shortest decimals that are read as the same double.
    return ", ".join(repr(float(value)) for value in values)


def _by_key(snapshot: Snapshot, key: Optional[str]) -> Dict[str, Dict[str, Any]]:
    """The fields of each key; of statistics that are no dict under `key`."""
    arrays = {field: getattr(snapshot, field) for field in ("mean", "var", "divisor", "count", "min", "max")}
    if not isinstance(snapshot.mean, dict):
        if key is None:
            raise _refused("the statistics are no dict, so that a key must be given", "key", "None", "a name")
        out = {key: arrays}
    elif key is not None:
        raise _refused(f"the statistics have the keys {sorted(snapshot.mean)} already", "key", key, "None")
    else:
        out = {name: {field: array[name] for field, array in arrays.items()} for name in snapshot.mean}
    for name, one in out.items():
        if not np.all(np.asarray(one["count"]) > 0):
            raise _refused(f"{name!r} has elements without samples", "snapshot", name, "samples of every element")
    return out


def _one(snapshot: Snapshot, key: Optional[str]) -> Dict[str, Any]:
    """The fields of one array: that of `key`, if the statistics are a dict."""
    if not isinstance(snapshot.mean, dict):
        return _by_key(snapshot, ALL if key is None else key)[ALL if key is None else key]
    if key is None or key not in snapshot.mean:
        keys = sorted(snapshot.mean)
        raise _refused(f"key is {key!r}; one of {keys} must be chosen", "key", str(key), str(keys))
    return _by_key(snapshot, None)[key]


def _refused(text: str, field: str, value: str, limit: str) -> InvalidArgument:
    return InvalidArgument(text, field=field, value=value, limit=limit)
