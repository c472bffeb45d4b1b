"""Inputs worth trying for each dtype, and comparisons that see signs of zeros and places of NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from numpy.typing import NDArray

FLOATS = ("float16", "bfloat16", "float32", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
FP8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz")
NARROW = ("int4", "uint4")

_FLOAT_EDGES = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, 2.5, -2.5, 3.0, 7.0, -100.0, np.inf, -np.inf, np.nan]


def dtype_of(name: str) -> np.dtype[Any]:
    """The NumPy dtype of this name, of ml_dtypes' too."""
    return np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)


def edge_values(name: str) -> NDArray[Any]:
    """Zeros of both signs, infinities, NaN, extremes; for integers 0, small ones and both ends of the range."""
    dtype = dtype_of(name)
    if name == "bool":
        return np.array([False, True])
    if jnp.issubdtype(dtype, jnp.floating):
        info = ml_dtypes.finfo(dtype)
        extremes = [float(info.max), -float(info.max), float(info.smallest_normal)]
        return np.array([*_FLOAT_EDGES, *extremes], np.float64).astype(dtype)
    limits = ml_dtypes.iinfo(dtype) if dtype.itemsize == 1 and "4" in name else np.iinfo(dtype)
    low, high = int(limits.min), int(limits.max)
    small = [n for n in (0, 1, 2, 3, 5, 7, 31, 32, 64, -1, -2, -3, -7) if low <= n <= high]
    return np.array([*small, low, low + 1, high, high - 1], object).astype(np.int64 if low else np.uint64).astype(dtype)


def edge_pairs(name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """All pairs of `edge_values`, as two flat arrays."""
    values = edge_values(name)
    return np.repeat(values, len(values)), np.tile(values, len(values))


def random_values(name: str, shape: tuple[int, ...], seed: int = 0, scale: float = 1.5) -> NDArray[Any]:
    """Normally distributed floats, or integers over the whole range."""
    rng, dtype = np.random.default_rng(seed), dtype_of(name)
    if name == "bool":
        return rng.random(shape) < 0.5
    if jnp.issubdtype(dtype, jnp.floating):
        return (rng.standard_normal(shape) * scale).astype(dtype)
    bits = 4 if "4" in name and dtype.itemsize == 1 else 8 * dtype.itemsize
    words = rng.integers(0, 2**64 - 1, shape, np.uint64, endpoint=True) >> np.uint64(64 - bits)
    return (
        words.astype(np.int64).astype(dtype)
        if bits == 64
        else (words.astype(np.int64) - _offset(name, bits)).astype(dtype)
    )


def _offset(name: str, bits: int) -> int:
    return 0 if name.startswith("u") else 1 << (bits - 1)


def assert_same(actual: Any, expected: Any, what: str = "") -> None:
    """Equal dtypes, shapes and elements; NaN equals NaN, and zeros have the same sign."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.dtype == expected.dtype, (what, actual.dtype, expected.dtype)
    assert actual.shape == expected.shape, (what, actual.shape, expected.shape)
    if jnp.issubdtype(actual.dtype, jnp.floating):
        wide = actual.astype(np.float64), expected.astype(np.float64)
        np.testing.assert_array_equal(*wide, err_msg=what)
        zeros = wide[1] == 0
        np.testing.assert_array_equal(*(np.signbit(w[zeros]) for w in wide), err_msg=f"sign of zero, {what}")
    else:
        np.testing.assert_array_equal(actual, expected, err_msg=what)


def assert_same_as_xla(elementwise: Callable[..., Any], function: Callable[..., Any], *arrays: Any) -> None:
    """What a one-block kernel of `function` computes (the fixture `elementwise`) equals XLA's results on the CPU."""
    expected = jax.jit(function)(*arrays)
    results = elementwise(function, *arrays)
    if not isinstance(expected, (tuple, list)):
        expected, results = (expected,), (results,)
    for number, (result, right) in enumerate(zip(results, expected, strict=True)):
        assert_same(result, right, f"result {number}")


def flushed_where_zero(values: Any, expected: Any) -> NDArray[Any]:
    """`values` with zeros of the same sign for subnormal numbers where `expected` has a zero."""
    values = np.asarray(values)
    if not jnp.issubdtype(values.dtype, jnp.floating):
        return values
    wide = values.astype(np.float64)
    tiny = np.abs(wide) < float(ml_dtypes.finfo(values.dtype).smallest_normal)
    flush = tiny & (np.asarray(expected).astype(np.float64) == 0)
    return np.where(flush, np.copysign(0.0, wide), wide).astype(values.dtype)


def ulps(actual: Any, exact: Any) -> float:
    """The largest distance of `actual` from `exact` (wider floats) in units of the last place of `exact`.

    Where either is no finite number both must be alike, else the distance is infinite.
    """
    actual = np.asarray(actual)
    info, wide = ml_dtypes.finfo(actual.dtype), actual.astype(np.float64)
    exact = np.asarray(exact, np.float64)
    rounded = exact.astype(actual.dtype).astype(np.float64)
    finite = np.isfinite(wide) & np.isfinite(rounded)
    alike = (wide == rounded) | (np.isnan(wide) & np.isnan(exact))
    if not np.all(alike | finite):
        return float("inf")
    _, exponent = np.frexp(np.where(finite, exact, 1.0))
    smallest = np.frexp(float(info.smallest_normal))[1]
    place = np.ldexp(1.0, np.maximum(exponent, smallest) - 1 - info.nmant)
    distance = np.abs(np.where(finite, wide - np.where(finite, exact, 0.0), 0.0)) / place
    return float(np.max(np.where(alike, 0.0, distance), initial=0.0))
