"""Running sums, products, extremes and log-sum-exps along any axis, from either end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.support.values import FLOATS, INTEGERS, assert_same, random_values

Apply = Callable[..., Any]
SHAPES = [((1,), 0), ((13,), 0), ((129,), 0), ((1000,), 0), ((5, 37), 1), ((37, 5), 0), ((3, 40, 2), 1), ((64, 64), 0)]


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def running(ufunc: Any, x: Any, axis: int, reverse: bool) -> Any:
    flipped = np.flip(x, axis) if reverse else x
    result = ufunc.accumulate(flipped, axis=axis, dtype=x.dtype)
    return np.flip(result, axis) if reverse else result


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
@pytest.mark.parametrize("reverse", [False, True])
def test_integer_scans_on_odd_sizes(elementwise: Apply, shape: tuple[int, ...], axis: int, reverse: bool) -> None:
    x = random_values("int32", shape)
    functions = {lax.cumsum: np.add, lax.cumprod: np.multiply, lax.cummax: np.maximum, lax.cummin: np.minimum}
    results = elementwise(lambda v: tuple(f(v, axis, reverse=reverse) for f in functions), x)
    for result, ufunc in zip(results, functions.values(), strict=True):
        assert_same(result, running(ufunc, x, axis, reverse))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_every_integer_wraps(elementwise: Apply, dtype: str) -> None:
    x = random_values(dtype, (70,))
    total, high = elementwise(lambda v: (lax.cumsum(v), lax.cummax(v)), x)
    assert_same(total, running(np.add, x, 0, False))
    assert_same(high, running(np.maximum, x, 0, False))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reverse", [False, True])
def test_float_scans_are_near_the_exact_ones(elementwise: Apply, dtype: str, reverse: bool) -> None:
    x = random_values(dtype, (4, 333), scale=0.7)
    total, product, log = elementwise(
        lambda v: (lax.cumsum(v, 1, reverse), lax.cumprod(v + 1, 1, reverse), lax.cumlogsumexp(v, 1, reverse)), x
    )
    wide, more = x.astype(np.float64), (x + x.dtype.type(1)).astype(np.float64)
    rtol = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 2e-5, "float64": 1e-12}[dtype]
    for result, right in (
        (total, running(np.add, wide, 1, reverse)),
        (product, running(np.multiply, more, 1, reverse)),
        (log, running(np.logaddexp, wide, 1, reverse)),
    ):
        assert np.asarray(result).dtype == x.dtype
        np.testing.assert_allclose(np.asarray(result).astype(np.float64), right, rtol=rtol, atol=rtol)


def test_nan_and_infinities_run_on(elementwise: Apply) -> None:
    x = np.array([1.0, -np.inf, 3.0, np.nan, 2.0, np.inf], np.float32)
    high, low, log = elementwise(lambda v: (lax.cummax(v), lax.cummin(v), lax.cumlogsumexp(v[:3])), x)
    np.testing.assert_array_equal(high, np.maximum.accumulate(x))
    np.testing.assert_array_equal(low, np.minimum.accumulate(x))
    np.testing.assert_allclose(log, np.logaddexp.accumulate(x[:3]), rtol=1e-6)


def test_a_log_sum_exp_of_nothing_but_zeros_is_minus_infinity(elementwise: Apply) -> None:
    x = np.array([-np.inf, -np.inf, 0.0], np.float32)
    assert_same(elementwise(lax.cumlogsumexp, x), np.array([-np.inf, -np.inf, 0.0], np.float32))


def test_cumsum_of_bools_counts(elementwise: Apply) -> None:
    x = random_values("bool", (90,))
    np.testing.assert_array_equal(elementwise(jnp.cumsum, x), np.cumsum(x))


def test_associative_scan_and_a_scan_of_nothing(elementwise: Apply) -> None:
    x = random_values("int32", (21, 3))
    total, nothing = elementwise(lambda v: (lax.associative_scan(jnp.add, v), lax.cumsum(v[:0], 0)), x)
    assert_same(total, running(np.add, x, 0, False))
    assert nothing.shape == (0, 3)
