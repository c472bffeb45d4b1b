"""The fixture itself: what the numerics tests rely on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import mosaic_gpu
from tests.support.backends import POISON, Run, run_in_jax


def test_a_function_of_two_arrays_runs_as_one_block(elementwise: Callable[..., Any]) -> None:
    x, y = np.arange(100, dtype=np.float32), np.full(100, 0.5, np.float32)
    np.testing.assert_array_equal(elementwise(lambda a, b: a * b + 1, x, y), x * y + 1)


def test_several_results_come_as_a_tuple(elementwise: Callable[..., Any]) -> None:
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    total, double = elementwise(lambda a: (a.sum(axis=0), 2 * a), x)
    np.testing.assert_array_equal(total, x.sum(axis=0))
    np.testing.assert_array_equal(double, 2 * x)


@pytest.mark.usefixtures("not_in_jax")
def test_what_a_kernel_does_not_write_stays_poisoned(run: Run) -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[2:5] = x_ref[2:5]

    call = pl.pallas_call(body, jax.ShapeDtypeStruct((8,), jnp.uint8), compiler_params=mosaic_gpu.CompilerParams())
    x = np.arange(8, dtype=np.uint8)
    np.testing.assert_array_equal(run(call, x), [POISON, POISON, 2, 3, 4, POISON, POISON, POISON])


def test_jax_runs_the_same_calls() -> None:
    from tests.support.kernels import one_block

    x = np.linspace(-1, 1, 7, dtype=np.float32)
    np.testing.assert_allclose(run_in_jax(one_block(jnp.exp, x), x), np.exp(x), rtol=1e-6)
