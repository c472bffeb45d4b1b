"""The examples about rows of tokens and numbers, beside NumPy in float64."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.examples import doubles, example, normal, run_compiled


def turned(x: Any, cos: Any, sin: Any) -> np.ndarray[Any, Any]:
    """Each pair (i, i + d / 2) of the last axis as a complex number, multiplied by cos + i sin; float64."""
    x, cos, sin = doubles(x, cos, sin)
    a, b = np.split(x, 2, axis=-1)
    z = (a + 1j * b) * (cos + 1j * sin)[:, None, :]
    return np.concatenate([z.real, z.imag], axis=-1)


@pytest.mark.parametrize("shape", [(2, 50, 3, 64), (1, 7, 8, 128), (1, 1, 1, 2), (1, 3, 5, 6)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_rotary(shape: tuple[int, ...], dtype: str) -> None:
    module = example("rotary")
    x = normal(0, *shape, dtype=dtype)
    cos, sin = (np.asarray(a) for a in module.angles(shape[1], shape[3]))
    tolerance = 1e-6 if dtype == "float32" else 1e-2
    found = run_compiled(module.rotary, x, cos, sin)
    np.testing.assert_allclose(found.astype(np.float64), turned(x, cos, sin), rtol=tolerance, atol=tolerance)


def test_the_gradient_of_rotary_turns_back() -> None:
    module = example("rotary")
    x, g = normal(0, 1, 9, 2, 32), normal(1, 1, 9, 2, 32)
    cos, sin = module.angles(9, 32)
    found = jax.grad(lambda x: (module.rotary(x, cos, sin) * g).sum())(x)
    np.testing.assert_allclose(found, turned(g, cos, -sin), rtol=1e-5, atol=1e-5)


def log_sum_of(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    top = x.max(axis=1)
    return np.asarray(top + np.log(np.exp(x - top[:, None]).sum(axis=1)))


@pytest.mark.parametrize("shape", [(6, 5000), (5, 1024), (1, 1), (9, 37)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_cross_entropy(shape: tuple[int, int], dtype: str) -> None:
    module = example("cross_entropy")
    x, labels = 20 * normal(0, *shape, dtype=dtype), np.random.default_rng(1).integers(0, shape[1], shape[0], np.int32)
    (x64,) = doubles(x)
    losses, log_sum = run_compiled(module.cross_entropy_forward, x, labels)
    np.testing.assert_allclose(log_sum, log_sum_of(x64), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(losses, log_sum_of(x64) - x64[np.arange(len(x)), labels], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("shape", [(6, 1500), (1, 1)])
def test_the_gradient_of_cross_entropy(shape: tuple[int, int]) -> None:
    module = example("cross_entropy")
    x, g = 3 * normal(0, *shape), normal(1, shape[0])
    labels = np.random.default_rng(1).integers(0, shape[1], shape[0], np.int32)
    x64, g64 = doubles(x, g)
    expected = (np.exp(x64 - log_sum_of(x64)[:, None]) - np.eye(shape[1])[labels]) * g64[:, None]
    found = run_compiled(module.cross_entropy_backward, x, labels, log_sum_of(x64).astype(np.float32), g)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    through = jax.grad(lambda x: (module.cross_entropy(x, labels) * g).sum())(x)
    np.testing.assert_allclose(through, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize(("rows", "n", "tokens"), [(1000, 300, 50), (3, 1, 1), (16, 1030, 9)])
def test_embedding(rows: int, n: int, tokens: int, dtype: str) -> None:
    table = (10 * normal(0, rows, n)).astype(jnp.dtype(dtype))
    ids = np.random.default_rng(1).integers(0, rows, tokens, np.int32)
    np.testing.assert_array_equal(run_compiled(example("embedding").embedding, table, ids), table[ids])


def test_embedding_of_numbers_from_the_end_and_outside() -> None:
    table = normal(0, 10, 70)
    ids = np.array([-1, 9, -10, 12, 0], np.int32)
    found = run_compiled(example("embedding").embedding, table, ids)
    np.testing.assert_array_equal(found, table[[9, 9, 0, 9, 0]])


@pytest.mark.parametrize("shape", [(6, 3000), (1, 1), (5, 1024), (3, 77)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "int8"])
def test_cumulative_sum(shape: tuple[int, int], dtype: str) -> None:
    x = (3 * normal(0, *shape)).astype(jnp.dtype(dtype))
    found = run_compiled(example("cumulative_sum").cumulative_sum, x)
    if dtype.startswith("int"):
        np.testing.assert_array_equal(found, np.cumsum(x, axis=1, dtype=np.dtype(dtype)))
        return
    tolerance = 1e-5 if dtype == "float32" else 1e-2
    expected = np.cumsum(doubles(x)[0], axis=1)
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=tolerance, atol=tolerance * 30)


@pytest.mark.parametrize(("m", "n", "k"), [(6, 500, 5), (1, 1, 1), (5, 8, 8), (9, 100, 17)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_top_k(m: int, n: int, k: int, dtype: str) -> None:
    x = np.random.default_rng(0).integers(-n, n, (m, n)).astype(jnp.dtype(dtype))  # with equal elements among them
    values, places = run_compiled(functools.partial(example("top_k").top_k, k=k), x)
    expected = np.argsort(-x.astype(np.float64), axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, axis=1))


def test_top_k_finds_infinities() -> None:
    x = np.full((2, 40), -np.inf, np.float32)
    x[0, 7], x[1, 3] = np.inf, 2.0
    values, places = run_compiled(functools.partial(example("top_k").top_k, k=3), x)
    np.testing.assert_array_equal(places, [[7, 0, 1], [3, 0, 1]])
    np.testing.assert_array_equal(values[:, 0], [np.inf, 2.0])
