"""Arrays in .npy files, by memory map: `Client.normalize_file`."""

from __future__ import annotations

import contextlib
import os
import sys
import uuid
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
    core: Core,
    source: Path,
    target: Path,
    spec: Spec,
    weight: Any,
    bias: Any,
    progress: Progress,
    dtype: Optional[str],
    options: Any,
) -> Result:
    stored = _open(source)
    x = _named(stored, dtype, os.fspath(source))
    if os.path.exists(target) and os.path.samefile(source, target):
        raise InvalidArgument(
            f"{os.fspath(target)} is the input, too; name another file", field="target", value=os.fspath(target)
        )
    # The result appears under its name when it is whole.
    folder = os.path.dirname(os.path.abspath(target))
    scratch = os.path.join(folder, f".normd-{uuid.uuid4().hex}.npy")
    try:
        out = np.lib.format.open_memmap(scratch, mode="w+", dtype=stored.dtype.newbyteorder("="), shape=x.shape)
        if hasattr(os, "posix_fallocate"):  # a full disk is an error here; under a memory map it would end the process
            with open(scratch, "r+b") as file:
                os.posix_fallocate(file.fileno(), 0, os.fstat(file.fileno()).st_size)
        with _shown(progress, os.fspath(target)) as report:
            reported = []

            def note(done: int, total: int) -> None:
                reported.append(done)
                if report is not None:
                    report(done, total)

            call = _calls.normalize(
                spec,
                x,
                weight,
                bias,
                out=out.view(x.dtype.newbyteorder("=")),
                progress=note if report else None,
                **options,
            )
            result = await core.normalize(call)
            if report is not None and not reported:
                report(len(x), len(x))  # what is small enough goes in one piece
        out.flush()
        os.replace(scratch, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(scratch)
        raise
    return result


def _open(source: Path) -> Any:
    try:
        x = np.load(source, mmap_mode="r", allow_pickle=False)
    except (EOFError, TypeError, ValueError) as error:
        hint = ": import ml_dtypes, which knows bfloat16" if "bfloat16" in str(error) else ""
        raise InvalidArgument(
            f"{os.fspath(source)} is no .npy file that numpy can read ({error}){hint}",
            field="source",
            value=os.fspath(source),
            limit=".npy",
        ) from None
    if not isinstance(x, np.ndarray):
        raise InvalidArgument(
            f"{os.fspath(source)} is an archive of {', '.join(x.files)}: save one array with numpy.save",
            field="source",
            value=os.fspath(source),
            limit=".npy",
        )
    return x


def _named(x: Any, dtype: Optional[str], source: str) -> Any:
    """The array with its true type: ml_dtypes' bfloat16 is saved as two bytes without a name."""
    if dtype is not None and str(dtype) != "bfloat16":
        raise InvalidArgument(
            f"dtype is {dtype!r}; bfloat16 is possible: other types have their names in .npy files",
            field="dtype",
            value=str(dtype),
            limit="bfloat16",
        )
    if dtype is None and x.dtype != np.dtype("V2"):
        return x
    if dtype is None or x.dtype.itemsize != 2:
        said = "if they are bfloat16, give dtype='bfloat16'" if dtype is None else "bfloat16 has two bytes"
        raise InvalidArgument(
            f"{source} has elements of type {x.dtype}; {said}", field="dtype", value=str(x.dtype), limit="bfloat16"
        )
    try:
        import ml_dtypes
    except ImportError:
        raise InvalidArgument(
            "dtype is 'bfloat16', for which ml_dtypes is needed: pip install ml_dtypes", field="dtype", value="bfloat16"
        ) from None
    return x.view(ml_dtypes.bfloat16)


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
            text = f"\r{name}: {100 * done // max(total, 1)} %"
            print(text, end="\n" if done == total else "", file=sys.stderr, flush=True)

        yield show
        return
    with tqdm(unit="rows", desc=name) as bar:

        def advance(done: int, total: int) -> None:
            bar.total = total
            bar.update(done - bar.n)

        yield advance
