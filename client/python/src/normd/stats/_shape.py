"""How observations become channels: an array of any shape, or a dict of arrays, as one row of float64."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple, Union

import numpy as np

from normd.errors import InvalidArgument

ShapeOf = Union[int, Sequence[int], Mapping[str, Union[int, Sequence[int]]]]
Array = np.ndarray[Any, np.dtype[np.float64]]


class Layout:
    """The channels of observations of a shape, or of a dict of shapes, whose keys are ranges of channels."""

    def __init__(self, shape: ShapeOf) -> None:
        self.is_dict = isinstance(shape, Mapping)
        shapes = shape if isinstance(shape, Mapping) else {"": shape}
        self.shapes: Dict[str, Tuple[int, ...]] = {key: _extents(one) for key, one in shapes.items()}
        self.sizes = {key: int(np.prod(one, dtype=np.int64)) for key, one in self.shapes.items()}
        self.channels = sum(self.sizes.values())
        if self.channels < 1:
            raise InvalidArgument(
                f"shape is {shape!r}, which has no element", field="shape", value=str(shape), limit="at least 1 element"
            )

    @property
    def channel_names(self) -> List[str]:
        """A name for each channel of a dict: "position", or "position/0" and so on; none of an array."""
        if not self.is_dict:
            return []
        return [
            key if size == 1 else f"{key}/{index}" for key, size in self.sizes.items() for index in range(size)
        ]

    def of_key(self, key: str) -> Tuple["Layout", slice]:
        """The layout of one key's arrays, and where its channels are."""
        if key not in self.shapes or not self.is_dict:
            raise InvalidArgument(
                f"key is {key!r}; {sorted(self.shapes)} are there",
                field="key",
                value=key,
                limit=str(sorted(self.shapes)),
            )
        begin = 0
        for other, size in self.sizes.items():
            if other == key:
                break
            begin += size
        return Layout(self.shapes[key]), slice(begin, begin + self.sizes[key])

    def rows(self, batch: Any) -> Array:
        """A batch as [N, C], in memory of its own."""
        if not self.is_dict:
            return self._rows_of(batch, "")
        if not isinstance(batch, Mapping) or batch.keys() != self.shapes.keys():
            there = sorted(batch) if isinstance(batch, Mapping) else type(batch).__name__
            raise InvalidArgument(
                f"the batch has {there}; {sorted(self.shapes)} are needed, all of them",
                field="batch",
                value=str(there),
                limit=str(sorted(self.shapes)),
            )
        parts = [self._rows_of(batch[key], key) for key in self.shapes]
        if len({len(part) for part in parts}) != 1:
            lengths = {key: len(part) for key, part in zip(self.shapes, parts)}
            raise InvalidArgument(
                f"the batch has {lengths} samples; the keys must have equally many",
                field="batch",
                value=str(lengths),
                limit="one number",
            )
        return np.concatenate(parts, axis=1)

    def _rows_of(self, batch: Any, key: str) -> Array:
        array = np.array(batch, np.float64)
        shape = self.shapes[key]
        if array.ndim < len(shape) or array.shape[array.ndim - len(shape) :] != shape:
            name = f"batch[{key!r}]" if self.is_dict else "batch"
            raise InvalidArgument(
                f"{name} has shape {list(array.shape)}; it must end in {list(shape)}",
                field=name,
                value=str(list(array.shape)),
                limit=str(list(shape)),
            )
        return array.reshape(-1, self.sizes[key])

    def split(self, values: Array) -> Any:
        """Values of the channels as an array of the shape, or as a dict of them."""
        if not self.is_dict:
            return values.reshape(self.shapes[""])
        out, begin = {}, 0
        for key, size in self.sizes.items():
            out[key] = values[begin : begin + size].reshape(self.shapes[key])
            begin += size
        return out


def _extents(shape: Any) -> Tuple[int, ...]:
    try:
        extents = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(int(one) for one in shape)
    except (TypeError, ValueError):
        extents = (-1,)
    if any(one < 0 for one in extents):
        raise InvalidArgument(
            f"shape is {shape!r}; it must be integers of at least 0",
            field="shape",
            value=str(shape),
            limit="integers >= 0",
        )
    return extents
