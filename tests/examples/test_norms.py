"""examples/softmax.py, layer_norm.py and rms_norm.py beside float64; their gradients too."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
import pytest

from tests.support.examples import doubles, example, normal, run_compiled

Array = np.ndarray[Any, Any]

SHAPES = [(10, 300), (4, 1024), (1, 1), (7, 1)]
TOLERANCE = {"float32": 2e-5, "bfloat16": 2e-2, "float16": 3e-3}


def normalised(x: Array, name: str) -> tuple[Array, Array]:
    """What the rows of x are before the scale, and what they were multiplied by for it."""
    x = x - x.mean(axis=1, keepdims=True) if name == "layer_norm" else x
    inverse = 1 / np.sqrt(np.square(x).mean(axis=1, keepdims=True) + (1e-5 if name == "layer_norm" else 1e-6))
    return x * inverse, inverse


def gradients(name: str, x: Array, scale: Array, g: Array) -> tuple[Array, ...]:
    """Of x, scale and (layer norm) shift, from the rule for normalised vectors."""
    y, inverse = normalised(x, name)
    h = g * scale
    dx = h - y * (h * y).mean(axis=1, keepdims=True)
    if name == "layer_norm":
        dx = dx - h.mean(axis=1, keepdims=True)
        return inverse * dx, (g * y).sum(axis=0), g.sum(axis=0)
    return inverse * dx, (g * y).sum(axis=0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_softmax(shape: tuple[int, int], dtype: str) -> None:
    x = 10 * normal(0, *shape, dtype=dtype)
    (x64,) = doubles(x)
    e = np.exp(x64 - x64.max(axis=1, keepdims=True))
    found = run_compiled(example("softmax").softmax, x)
    np.testing.assert_allclose(
        found.astype(np.float64), e / e.sum(axis=1, keepdims=True), rtol=TOLERANCE[dtype], atol=1e-7
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_norms(name: str, shape: tuple[int, int], dtype: str) -> None:
    x, scale, shift = normal(0, *shape, dtype=dtype), normal(1, shape[1]), normal(2, shape[1])
    x64, scale64, shift64 = doubles(x, scale, shift)
    operands = (x, scale, shift) if name == "layer_norm" else (x, scale)
    expected = normalised(x64, name)[0] * scale64 + (shift64 if name == "layer_norm" else 0)
    found = run_compiled(getattr(example(name), name), *operands)
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("shape", [(10, 300), (1, 1), (5, 128)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_the_backward_kernels(name: str, shape: tuple[int, int], dtype: str) -> None:
    x, g, scale = normal(0, *shape, dtype=dtype), normal(1, *shape, dtype=dtype), normal(2, shape[1])
    dx, *sums = run_compiled(getattr(example(name), f"{name}_backward"), x, scale, g)
    expected = gradients(name, *doubles(x, scale, g))
    tolerance = TOLERANCE[dtype] * 5
    np.testing.assert_allclose(dx.astype(np.float64), expected[0], rtol=tolerance, atol=tolerance)
    for found, wanted in zip(sums, expected[1:], strict=True):
        np.testing.assert_allclose(found.sum(axis=0), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_gradients_inside_jax(name: str) -> None:
    """Of a loss through two norms with blocks that overhang, in jit."""
    norm = functools.partial(getattr(example(name), name), block_rows=3)
    x, scale, g = normal(0, 10, 70), normal(1, 70), normal(2, 10, 70)
    shifts = (np.zeros(70, np.float32),) if name == "layer_norm" else ()
    found = jax.jit(jax.grad(lambda x, scale: (norm(x, scale, *shifts) * g).sum(), argnums=(0, 1)))(x, scale)
    for a, b in zip(found, gradients(name, *doubles(x, scale, g)), strict=False):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
