"""oneDNN's layer normalization by its C interface, of the library that the package onednn-cpu-gomp installs (oneDNN 3.2)."""

import ctypes
import functools
import pathlib
import sys

import numpy as np

_CPU, _INFERENCE, _SCALE_AND_SHIFT = 1, 96, 2 | 4
_SRC, _DST, _SCALE, _SHIFT = 1, 17, 51, 52  # the arguments' numbers
_DTYPES = {"float16": 1, "bfloat16": 2, "float32": 3}
_ROW_MAJOR = {1: 2, 2: 3}  # format tags by rank
_MAX_RANK = 12


class Argument(ctypes.Structure):
    _fields_ = [("number", ctypes.c_int), ("memory", ctypes.c_void_p)]


@functools.lru_cache(maxsize=None)
def _library():
    return ctypes.CDLL(str(pathlib.Path(sys.prefix) / "lib" / "libdnnl.so.3"))


def _made(function, *arguments):
    """What dnnl_FUNCTION makes of the arguments."""
    handle = ctypes.c_void_p()
    status = getattr(_library(), f"dnnl_{function}")(ctypes.byref(handle), *arguments)
    assert status == 0, f"dnnl_{function} returned {status}"
    return handle


def _description(array):
    shape = (ctypes.c_int64 * _MAX_RANK)(*array.shape)
    return _made("memory_desc_create_with_tag", array.ndim, shape, _DTYPES[array.dtype.name], _ROW_MAJOR[array.ndim])


def layer_norm(x, weight, bias, eps):
    """Of the rows of x. weight and bias are float32."""
    y = np.empty_like(x)
    engine = _made("engine_create", _CPU, ctypes.c_size_t(0))
    stream = _made("stream_create", engine, 1)
    rows = _description(x)
    norm = _made("layer_normalization_forward_primitive_desc_create", engine, _INFERENCE, rows, rows, None,
                 ctypes.c_float(eps), _SCALE_AND_SHIFT, None)  # fmt: skip
    primitive = _made("primitive_create", norm)
    arrays = ((_SRC, x), (_DST, y), (_SCALE, weight), (_SHIFT, bias))
    memory = [
        Argument(number, _made("memory_create", _description(one), engine, ctypes.c_void_p(one.ctypes.data)))
        for number, one in arrays
    ]
    assert _library().dnnl_primitive_execute(primitive, stream, len(memory), (Argument * len(memory))(*memory)) == 0
    assert _library().dnnl_stream_wait(stream) == 0
    return y
