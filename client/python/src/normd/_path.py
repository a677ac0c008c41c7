"""Where `import normd.NAME` looks: in this package first, then in folders `normd` of the user's.

protoc writes a user's own stubs of the service to normd/v1/*_pb2.py. This package would hide such a folder beside it on
sys.path, because a package with an __init__.py ends the search.
"""

from __future__ import annotations

import pkgutil
from typing import Iterator, List


class OpenPath(List[str]):
    """A package's __path__ that follows sys.path, as that of a namespace package does."""

    def __init__(self, own: List[str], package: str) -> None:
        super().__init__(own)
        self._package = package

    def __iter__(self) -> Iterator[str]:
        own = list(super().__iter__())
        return iter(pkgutil.extend_path(own, self._package))
