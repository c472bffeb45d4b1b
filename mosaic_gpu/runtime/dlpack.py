"""DLPack: how arrays pass from one library to another (dmlc.github.io/dlpack, C API and Python specification).

A producer gives a capsule named "dltensor" that points to a `DLManagedTensor`; who takes it renames the capsule to
"used_dltensor" and calls the tensor's deleter when it is done.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaic_gpu.errors import KernelError
from mosaic_gpu.runtime.dtypes import named

CUDA, CUDA_MANAGED = 2, 13
"""Device types of memory that a kernel can reach."""

_NAME, _USED = b"dltensor", b"used_dltensor"

# DLDataTypeCode and bits.
_DTYPES: dict[tuple[int, int], np.dtype[Any]] = {
    **{(0, 8 * n): np.dtype(f"i{n}") for n in (1, 2, 4, 8)},
    **{(1, 8 * n): np.dtype(f"u{n}") for n in (1, 2, 4, 8)},
    **{(2, 8 * n): np.dtype(f"f{n}") for n in (2, 4, 8)},
    (4, 16): named("bfloat16"),
    (6, 8): np.dtype(np.bool_),
    (10, 8): named("float8_e4m3fn"),
    (12, 8): named("float8_e5m2"),
}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    pass


_DELETER = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _DELETER)]

# Not ctypes.pythonapi, whose signatures every library in the process may set.
_api = ctypes.PyDLL(None)
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_New.restype = ctypes.py_object
_api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_CAPSULE_DESTRUCTOR = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)


@dataclass(frozen=True)
class Tensor:
    """What a capsule tells: address, shape, strides in bytes (None: row-major), dtype, device number.

    `owner` keeps the memory alive.
    """

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: np.dtype[Any]
    device: int
    owner: Any


class _Owner:
    """Calls the producer's deleter when the last user of a taken tensor is gone."""

    def __init__(self, managed: Any) -> None:
        self._managed = managed

    def __del__(self) -> None:
        if self._managed.contents.deleter:
            self._managed.contents.deleter(self._managed)


def take(capsule: Any) -> Tensor:
    """The tensor of a producer's capsule, which is used up.  Raises KernelError for a dtype that is not supported."""
    managed = ctypes.cast(_api.PyCapsule_GetPointer(capsule, _NAME), ctypes.POINTER(_Managed))
    _api.PyCapsule_SetName(capsule, _USED)
    owner = _Owner(managed)
    tensor = managed.contents.tensor
    dtype = _DTYPES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
    if dtype is None:
        raise KernelError(f"an array's dtype is not supported (DLPack code {tensor.code}, {tensor.bits} bits)")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = tuple(tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim)) if tensor.strides else None
    return Tensor((tensor.data or 0) + tensor.byte_offset, shape, strides, dtype, tensor.device_id, owner)


# Tensors that were given away, by address: each lives until its deleter is called.
_given: dict[int, tuple[Any, Any, Any]] = {}


def give(pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any], device: int, owner: Any) -> Any:
    """A capsule of a row-major array in the memory of GPU `device`; `owner` lives until the taker is done.

    Raises KernelError where DLPack has no code for `dtype`.
    """
    if dtype not in _CODES:
        raise KernelError(f"arrays of dtype {dtype} cannot be passed to another library", hint="view it as uint8")
    code, bits = _CODES[dtype]
    row_major = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    extents = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    strides = (ctypes.c_int64 * max(len(shape), 1))(*row_major)
    tensor = _Tensor(pointer, CUDA, device, len(shape), code, bits, 1, extents, strides, 0)
    managed = _Managed(tensor, None, _delete)
    address = ctypes.addressof(managed)
    _given[address] = (managed, (extents, strides), owner)
    return _api.PyCapsule_New(address, _NAME, ctypes.cast(_destroy, ctypes.c_void_p))


def _forget(managed: Any) -> None:
    _given.pop(ctypes.addressof(managed.contents), None)


def _destroy_capsule(capsule: int) -> None:
    """Of a capsule that nobody took: its tensor goes."""
    is_valid: Callable[..., int] = _valid
    if is_valid(capsule, _NAME):
        _given.pop(int(_pointer(capsule, _NAME)), None)


# The same functions on a capsule that is being destroyed, whose reference count must not be touched.
_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_delete = _DELETER(_forget)
_destroy = _CAPSULE_DESTRUCTOR(_destroy_capsule)
