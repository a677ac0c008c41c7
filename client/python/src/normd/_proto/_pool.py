"""Message classes from descriptors, in a pool of this package's own.

protobuf's default pool belongs to the whole process, and has room for one version of a file: generated modules here and
a user's own stubs of another version could not be imported together. Nor do generated modules run with a protobuf that
is older than their compiler; descriptors do with any.
"""

from __future__ import annotations

import sys
from typing import Any, Dict, List, Tuple

from google.protobuf import descriptor_pool, message_factory

from normd._proto import _descriptors


class Enum:
    """The names and numbers of an enum, as in generated modules."""

    def __init__(self, descriptor: Any) -> None:
        self.DESCRIPTOR = descriptor

    def Name(self, number: int) -> str:
        found = self.DESCRIPTOR.values_by_number.get(number)
        if found is None:
            raise ValueError(f"{self.DESCRIPTOR.name} has no value {number!r}")
        name: str = found.name
        return name

    def Value(self, name: str) -> int:
        found = self.DESCRIPTOR.values_by_name.get(name)
        if found is None:
            raise ValueError(f"{self.DESCRIPTOR.name} has no value {name!r}")
        number: int = found.number
        return number

    def keys(self) -> List[str]:
        return [one.name for one in self.DESCRIPTOR.values]

    def values(self) -> List[int]:
        return [one.number for one in self.DESCRIPTOR.values]

    def items(self) -> List[Tuple[str, int]]:
        return [(one.name, one.number) for one in self.DESCRIPTOR.values]


def _make_pool() -> descriptor_pool.DescriptorPool:
    made = descriptor_pool.DescriptorPool()
    for file in _descriptors.FILES:
        made.AddSerializedFile(file)
    return made


_POOL = _make_pool()


def _message_class(descriptor: Any, module: str, prefix: str = "") -> Any:
    make = getattr(message_factory, "GetMessageClass", None)
    if make is None:  # before protobuf 4.22
        make = message_factory.MessageFactory(_POOL).GetPrototype
    made = make(descriptor)
    made.__module__, made.__qualname__ = module, prefix + descriptor.name  # as pickle looks it up
    for nested in descriptor.nested_types:
        _message_class(nested, module, f"{made.__qualname__}.")
    return made


def fill(module: str, file: str) -> None:
    """Puts the messages and enums of `file` into `module`, as if that were generated."""
    descriptor = _POOL.FindFileByName(file)
    names: Dict[str, Any] = vars(sys.modules[module])
    names["DESCRIPTOR"] = descriptor
    for name, message in descriptor.message_types_by_name.items():
        names[name] = _message_class(message, module)
    for name, enum in descriptor.enum_types_by_name.items():
        names[name] = Enum(enum)
        names.update((value.name, value.number) for value in enum.values)
