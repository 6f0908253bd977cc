"""Element types under the names that kernels, NumPy and PyTorch have for them."""

from __future__ import annotations

from typing import Any

from . import _native
from ._errors import usage

_ALL = _native.dtypes()

#: The code of each element type, by its name in kernels.
CODES = {name: code for code, (name, _) in enumerate(_ALL)}

#: The bytes of each element type.
BYTES = dict(_ALL)

#: Names of other libraries.
_OTHERS = {
    "bool": "bool",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "half": "f16",
    "float": "f32",
    "double": "f64",
    "int": "i32",
    "long": "i64",
}

#: Kinds and sizes of NumPy's type strings.
_TYPESTR = {
    "bool": "|b1",
    "i8": "|i1",
    "i16": "<i2",
    "i32": "<i4",
    "i64": "<i8",
    "u8": "|u1",
    "u16": "<u2",
    "u32": "<u4",
    "u64": "<u8",
    "f16": "<f2",
    "f32": "<f4",
    "f64": "<f8",
}

_CACHE: dict = {}


def name_of(dtype: Any) -> str:
    """Return the name in kernels of an element type of NumPy, PyTorch, CuPy, JAX or its name as text."""
    try:
        found = _CACHE.get(dtype)
    except TypeError:
        found = None
    if found is not None:
        return found
    text = dtype if isinstance(dtype, str) else getattr(dtype, "name", None)
    if text is None:
        # torch.float32 shows itself so; NumPy's scalar types have a name of their own.
        text = getattr(dtype, "__name__", None) or str(dtype)
    text = text.rsplit(".", 1)[-1]
    found = text if text in CODES else _OTHERS.get(text)
    if found is None:
        found = next((name for name, typestr in _TYPESTR.items() if typestr == text or typestr[1:] == text), None)
    if found is None:
        raise usage(f"{dtype!r} is not an element type of kernels", "the element types are " + ", ".join(CODES))
    try:
        _CACHE[dtype] = found
    except TypeError:
        pass
    return found


def code_of(dtype: Any) -> int:
    """Return the code by which the part in Rust knows an element type."""
    return CODES[name_of(dtype)]


def typestr(name: str) -> str:
    """Return NumPy's type string; types that NumPy lacks are unsigned integers of their size."""
    return _TYPESTR.get(name) or {1: "|u1", 2: "<u2"}[BYTES[name]]


def numpy_dtype(name: str):
    """Return the NumPy element type, of ``ml_dtypes`` where NumPy has none and that package is installed."""
    import numpy

    if name in _TYPESTR:
        return numpy.dtype(_TYPESTR[name])
    try:
        import ml_dtypes
    except ImportError:
        return numpy.dtype(typestr(name))
    return numpy.dtype({"bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}[name])


def torch_dtype(name: str):
    """Return the PyTorch element type."""
    import torch

    other = next(other for other, ours in _OTHERS.items() if ours == name)
    return getattr(torch, other)
