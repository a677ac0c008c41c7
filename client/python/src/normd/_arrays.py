"""Arrays of the caller as tensors of the wire, and results back as what the caller uses.

numpy arrays, torch tensors, arrays with a `__dlpack__` or `__array__` of their own, and lists are taken. A result has
the type of x: a torch tensor for a torch tensor, else a numpy array. Contiguous arrays in the machine's byte order are
not copied here; others are copied once. bf16 is ml_dtypes.bfloat16 in numpy and travels as 16-bit words, because
numpy cannot export its buffer.
"""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict, NamedTuple, Optional, Protocol, Tuple, TypeVar

import numpy as np

from normd import _wire
from normd.errors import InvalidArgument

F32, F16, BF16, F64 = 1, 2, 3, 4
DTYPE_NAMES = {F32: "float32", F16: "float16", BF16: "bfloat16", F64: "float64"}
ITEM_BYTES = {F32: 4, F16: 2, BF16: 2, F64: 8}
# The type whose memory is exchanged; bf16 as 16-bit words.
WORDS: Dict[int, "np.dtype[Any]"] = {
    F32: np.dtype("<f4"),
    F16: np.dtype("<f2"),
    BF16: np.dtype("<u2"),
    F64: np.dtype("<f8"),
}
_CODES: Dict["np.dtype[Any]", int] = {np.dtype("f4"): F32, np.dtype("f2"): F16, np.dtype("f8"): F64}
MAX_RANK = 8


class ArrayLike(Protocol):
    """What an operator takes and returns: numpy.ndarray and torch.Tensor, among others."""

    @property
    def shape(self) -> Any: ...

    @property
    def dtype(self) -> Any: ...


A = TypeVar("A", bound=ArrayLike)
Words = "np.ndarray[Any, np.dtype[Any]]"


class Operand(NamedTuple):
    """A tensor of a request: C-contiguous memory of the caller's, or a copy of it."""

    dtype: int
    shape: Tuple[int, ...]
    words: np.ndarray[Any, np.dtype[Any]]
    # Makes what the caller gets from an array of words of this dtype, of any shape.
    restore: Callable[[np.ndarray[Any, np.dtype[Any]]], Any]
    # The same for an array of another dtype, which numpy knows: statistics of a half-precision x are float32.
    restore_plain: Callable[[np.ndarray[Any, np.dtype[Any]]], Any]

    @property
    def size(self) -> int:
        return int(self.words.nbytes)

    def inline(self) -> _wire.Piece:
        return _wire.inline_tensor(self.dtype, self.shape, self.words, self.words.nbytes)


def _same(words: np.ndarray[Any, np.dtype[Any]]) -> Any:
    return words


def operand(x: Any, field: str) -> Operand:
    """`x` as a tensor; `field` names it in errors."""
    if type(x) is np.ndarray:
        return _from_numpy(x, field)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return _from_torch(x, field, torch)
    if isinstance(x, np.ma.MaskedArray):
        raise InvalidArgument(
            f"{field} is a masked array, whose mask would be lost: fill it, or pass mask= where the method takes one",
            field=field,
            value="MaskedArray",
            limit="an array without a mask",
        )
    if isinstance(x, np.ndarray):
        return _from_numpy(np.asarray(x), field)
    if hasattr(x, "__dlpack__") and not hasattr(x, "__array__"):
        x = np.from_dlpack(x)
    return _from_numpy(np.asarray(x), field)


def _from_numpy(x: np.ndarray[Any, np.dtype[Any]], field: str) -> Operand:
    code = _CODES.get(x.dtype)
    restore: Callable[[Any], Any] = _same
    if code is None:
        code, x, restore = _from_other_dtype(x, field)
    if not x.flags.c_contiguous:
        x = np.ascontiguousarray(x)
    return Operand(code, x.shape, x, restore, _same)


def _from_other_dtype(
    x: np.ndarray[Any, np.dtype[Any]], field: str
) -> Tuple[int, np.ndarray[Any, np.dtype[Any]], Callable[[Any], Any]]:
    if x.dtype.name == "bfloat16" and x.dtype.itemsize == 2:
        bfloat16 = x.dtype  # of ml_dtypes, whichever copy of it the caller has
        return BF16, np.ascontiguousarray(x).view(WORDS[BF16]).reshape(x.shape), lambda words: words.view(bfloat16)
    native = x.dtype.newbyteorder("=")
    if native in _CODES:
        return _CODES[native], x.astype(native), _same
    hint = ""
    if x.dtype.kind in "iub":
        hint = ": convert it with .astype(np.float32), which rounds beyond 2^24, or .astype(np.float64)"
    elif x.dtype == np.dtype("V2"):
        hint = ": if these are bfloat16, which .npy files do not name, pass numpy.load(...).view(ml_dtypes.bfloat16)"
    raise InvalidArgument(
        f"{field} has dtype {x.dtype}; float32, float16, bfloat16 and float64 are possible{hint}",
        field=f"{field}.dtype",
        value=str(x.dtype),
        limit="float32, float16, bfloat16 or float64",
    )


def _from_torch(x: Any, field: str, torch: Any) -> Operand:
    if x.requires_grad:
        if torch.is_grad_enabled():
            raise InvalidArgument(
                f"{field} requires a gradient, and normd computes none: call normd.torch.functional (or a module of "
                f"normd.torch), through which gradients flow, or call this under torch.no_grad() or pass {field}.detach()",
                field=field,
                value="requires_grad=True",
                limit="requires_grad=False",
            )
        x = x.detach()
    device = x.device
    if device.type != "cpu":
        x = x.cpu()
    if x.dtype == torch.bfloat16:
        code, words = BF16, x.contiguous().view(torch.int16).numpy().view(WORDS[BF16])
    else:
        # numpy() of a contiguous CPU tensor shares its memory.
        plain = _from_numpy(x.contiguous().resolve_conj().resolve_neg().numpy(), field)
        code, words = plain.dtype, plain.words

    def restore_plain(result: np.ndarray[Any, np.dtype[Any]]) -> Any:
        tensor = torch.from_numpy(result)
        return tensor if device.type == "cpu" else tensor.to(device)

    def restore(result: np.ndarray[Any, np.dtype[Any]]) -> Any:
        return restore_plain(result.view(np.int16)).view(torch.bfloat16)

    return Operand(code, tuple(x.shape), words, restore if code == BF16 else restore_plain, restore_plain)


def check_rank(x: Operand, field: str) -> None:
    rank = len(x.shape)
    if not 1 <= rank <= MAX_RANK:
        raise InvalidArgument(
            f"{field} has rank {rank}; 1 to {MAX_RANK} are possible",
            field=f"{field}.shape",
            value=str(rank),
            limit=f"1 to {MAX_RANK}",
        )


def parameter(x: Any, field: str) -> Optional[Operand]:
    """A weight, bias or running statistic; one number counts as an array of one."""
    if x is None:
        return None
    if isinstance(x, float):
        x = np.array([x])
    found = operand(x, field)
    return found if found.shape else found._replace(shape=(1,))


def mask_operand(mask: Any) -> Operand:
    """A mask of booleans or bytes."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(mask, torch.Tensor):
        mask = mask.cpu().numpy()
    mask = np.asarray(mask)
    if mask.dtype != np.bool_ and mask.dtype != np.uint8:
        raise InvalidArgument(
            f"mask has dtype {mask.dtype}; bool and uint8 are possible",
            field="mask.dtype",
            value=str(mask.dtype),
            limit="bool or uint8",
        )
    return Operand(0, mask.shape, np.ascontiguousarray(mask).view(np.uint8), _same, _same)


def output_words(out: Any, like: Operand, name: str) -> np.ndarray[Any, np.dtype[Any]]:
    """The memory of an array that a result like `like` is to be written into."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(out, torch.Tensor):
        if out.device.type != "cpu" or not out.is_contiguous():
            raise InvalidArgument(
                f"{name} must be a contiguous tensor of the CPU", field=name, value=str(out.device), limit="cpu"
            )
        out = out.detach()
        words = out.view(torch.int16).numpy().view(WORDS[BF16]) if out.dtype == torch.bfloat16 else out.numpy()
    elif isinstance(out, np.ndarray):
        words = out.view(WORDS[BF16]) if out.dtype.name == "bfloat16" else out
    else:
        raise TypeError(f"{name} must be a numpy array or a torch tensor, not {type(out).__name__}")
    is_bf16 = str(out.dtype).endswith("bfloat16")  # "torch.bfloat16", too; words of uint16 alone are not
    found = BF16 if is_bf16 else _CODES.get(words.dtype)
    if tuple(words.shape) != like.shape or found != like.dtype:
        raise InvalidArgument(
            f"{name} is {out.dtype} of shape {tuple(out.shape)}; it must be {DTYPE_NAMES[like.dtype]} of shape "
            f"{like.shape}, as x is",
            field=name,
            value=f"{out.dtype} {tuple(out.shape)}",
            limit=f"{DTYPE_NAMES[like.dtype]} {like.shape}",
        )
    if not words.flags.writeable:
        raise InvalidArgument(f"{name} is read-only", field=name, value="read-only", limit="writable")
    return np.asarray(words)


def check_running(running: Any, channels: int, name: str) -> None:
    """Raises InvalidArgument unless `running` is a running statistic that a training step can move in place."""

    def error(said: str, value: str, limit: str) -> InvalidArgument:
        return InvalidArgument(f"{name} {said}; it must be {limit}", field=name, value=value, limit=limit)

    torch = sys.modules.get("torch")
    is_tensor = torch is not None and isinstance(running, torch.Tensor)
    if not is_tensor and not isinstance(running, np.ndarray):
        raise error(f"is a {type(running).__name__}", type(running).__name__, "a numpy array or a torch tensor")
    dtype = str(running.dtype).replace("torch.", "")
    if (dtype if is_tensor else running.dtype.name) not in DTYPE_NAMES.values():
        raise error(f"has dtype {dtype}", dtype, "float32, float16, bfloat16 or float64")
    shape = tuple(running.shape)
    if shape != (channels,):
        raise error(f"has shape {shape}", str(shape), f"({channels},), the channels of x")
    if is_tensor and running.requires_grad:
        raise error("requires a gradient", "requires_grad=True", "a tensor that requires none")
    if not is_tensor and not running.flags.writeable:
        raise error("is read-only", "read-only", "writable")


def take_output(data: bytes, offset: int, dtype: int, shape: Tuple[int, ...]) -> np.ndarray[Any, np.dtype[Any]]:
    """The words of an output at `offset` of a reply.

    One copy: elements lie at any alignment in a message, and a result must be aligned and writable, or every later
    operation on it would pay.
    """
    words = WORDS[dtype]
    count = 1
    for extent in shape:
        count *= extent
    return np.frombuffer(data, words, count, offset).reshape(shape).copy()
