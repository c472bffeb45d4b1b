"""Primitives that JAX 0.12 defines by others; on JAX 0.11 the same functions are other primitives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

from mosaic_gpu import CompilerParams

X = np.random.default_rng(0).integers(-2, 3, (5, 7)).astype(np.float32)


def run(function: Callable[..., Any], *arrays: Any) -> list[np.ndarray[Any, Any]]:
    """The results of `function`, computed inside a kernel."""

    def body(*refs: Any) -> None:
        results = jax.tree.leaves(function(*(ref[...] for ref in refs[: len(arrays)])))
        for ref, result in zip(refs[len(arrays) :], results, strict=True):
            ref[...] = result

    out = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in jax.tree.leaves(jax.eval_shape(function, *arrays))]
    return [np.asarray(r) for r in pl.pallas_call(body, out, compiler_params=CompilerParams())(*arrays)]


def test_the_places_that_are_not_zero_are_found_in_order() -> None:
    rows, columns = run(lambda v: jnp.nonzero(v, size=40, fill_value=-1), X)
    expected = np.nonzero(X)
    np.testing.assert_array_equal(rows, np.pad(expected[0], (0, 40 - len(expected[0])), constant_values=-1))
    np.testing.assert_array_equal(columns, np.pad(expected[1], (0, 40 - len(expected[1])), constant_values=-1))


def test_the_elements_under_a_mask_are_taken() -> None:
    (taken,) = run(lambda v: v.ravel()[jnp.nonzero(v.ravel() > 0, size=4)[0]], X)
    np.testing.assert_array_equal(taken, X[X > 0][:4])


@pytest.mark.skipif(not hasattr(jax.lax, "polynomial"), reason="JAX before 0.12 has no lax.polynomial")
@pytest.mark.parametrize("degree", [1, 2, 12])
def test_a_polynomial_has_the_value_that_numpy_gives(degree: int) -> None:
    coefficients = np.linspace(-1, 1, degree + 1).astype(np.float32)
    (value,) = run(lambda v: jax.lax.polynomial(v / 2, list(coefficients)), X)
    exact = np.polynomial.Polynomial(coefficients.astype(np.float64))(X.astype(np.float64) / 2)
    np.testing.assert_allclose(value, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(not hasattr(jax.lax, "polynomial"), reason="JAX before 0.12 has no lax.polynomial")
def test_the_coefficients_of_a_polynomial_may_be_arrays() -> None:
    (value,) = run(lambda v: jax.lax.polynomial(v, [v * 2, 1.0, v[:1] * 0 + 3]), X)
    np.testing.assert_allclose(value, 3 * X + 3 * X**2, rtol=1e-6)
