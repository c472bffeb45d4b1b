"""The processor's floating-point mode while the simulator runs."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

_DEFAULT_ENVIRONMENT = ctypes.c_void_p(-1)  # FE_DFL_ENV of the C libraries of Linux
_ENVIRONMENT_BYTES = 64  # a fenv_t takes 32 on x86-64 and 8 on aarch64


@contextmanager
def ieee_arithmetic() -> Iterator[None]:
    """Inside, this thread rounds as IEEE 754 says and keeps subnormal numbers, as a GPU does.

    XLA runs call-backs on threads whose processor mode takes subnormal numbers for zero, NumPy's arithmetic included.
    """
    before = ctypes.create_string_buffer(_ENVIRONMENT_BYTES)
    _libc().fegetenv(before)
    _libc().fesetenv(_DEFAULT_ENVIRONMENT)
    try:
        yield
    finally:
        _libc().fesetenv(before)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL("libm.so.6")
