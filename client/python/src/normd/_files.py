"""Arrays in .npy files, by memory map: `Client.normalize_file`."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from typing import Any, Callable, Iterator, Optional, Union

import numpy as np

from normd import _calls
from normd._core import Core
from normd._results import Result
from normd.errors import InvalidArgument
from normd.specs import Spec

Progress = Union[bool, Callable[[int, int], None]]
Path = Union[str, "os.PathLike[str]"]


async def normalize_file(
    core: Core, source: Path, target: Path, spec: Spec, weight: Any, bias: Any, progress: Progress, options: Any
) -> Result:
    x = _open(source)
    if os.path.exists(target) and os.path.samefile(source, target):
        raise InvalidArgument(
            f"{os.fspath(target)} is the input, too; name another file", field="target", value=os.fspath(target)
        )
    # The result appears under its name when it is whole.
    folder = os.path.dirname(os.path.abspath(target))
    handle, scratch = tempfile.mkstemp(suffix=".npy", prefix=".normd-", dir=folder)
    os.close(handle)
    try:
        out = np.lib.format.open_memmap(scratch, mode="w+", dtype=x.dtype, shape=x.shape)
        with _shown(progress, os.fspath(target)) as report:
            call = _calls.normalize(spec, x, weight, bias, out=out, progress=report, **options)
            result = await core.normalize(call)
        out.flush()
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(scratch, 0o666 & ~mask)  # what open() would have given it
        os.replace(scratch, target)
    except BaseException:
        os.unlink(scratch)
        raise
    return result


def _open(source: Path) -> Any:
    x = np.load(source, mmap_mode="r", allow_pickle=False)
    if not isinstance(x, np.ndarray):
        raise InvalidArgument(
            f"{os.fspath(source)} is an archive of {', '.join(x.files)}: save one array with numpy.save",
            field="source",
            value=os.fspath(source),
            limit=".npy",
        )
    return x


@contextlib.contextmanager
def _shown(progress: Progress, name: str) -> Iterator[Optional[Callable[[int, int], None]]]:
    """What is called with the rows that are done: a bar of tqdm's where it is installed, else plain percentages."""
    if progress is False:
        yield None
        return
    if callable(progress):
        yield progress
        return
    try:
        from tqdm.auto import tqdm
    except ImportError:

        def show(done: int, total: int) -> None:
            print(f"\r{name}: {100 * done // total} %", end="\n" if done == total else "", file=sys.stderr, flush=True)

        yield show
        return
    with tqdm(unit="rows", desc=name) as bar:

        def advance(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield advance
