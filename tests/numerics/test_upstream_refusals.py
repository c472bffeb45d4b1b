"""What JAX's own back ends for GPUs refuse, each in the form of the report, works here."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import mosaic_gpu
from tests.support.backends import Run
from tests.support.calls import call, random


def test_dynamic_grid_bounds_not_supported_in_the_mosaic_gpu_backend(run: Run) -> None:
    def add_one(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + 1.0

    def kernel(n: Any, x: Any) -> Any:
        spec = pl.BlockSpec((64,), lambda i: (i,))
        return call(add_one, x.shape, grid=(n,), in_specs=[spec], out_specs=spec)(x)

    x = random(256)
    np.testing.assert_array_equal(run(kernel, 4, x), x + 1)
    np.testing.assert_array_equal(jax.jit(kernel)(4, x), x + 1)
    assert mosaic_gpu.compile(kernel, 4, x).cubin[:4] == b"\x7fELF"


def test_scalar_arguments_not_yet_supported_on_gpu(run: Run) -> None:
    def copy(index_ref: Any, x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...]

    def kernel(index: Any, x: Any) -> Any:
        spec = pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(4,),
            in_specs=[pl.BlockSpec((64,), lambda i, index: (index[i],))],
            out_specs=pl.BlockSpec((64,), lambda i, index: (i,)),
        )
        return call(copy, x.shape, grid_spec=spec)(index, x)

    x, index = random(256), np.array([3, 1, 0, 2], np.int32)
    expected = x.reshape(4, 64)[index].reshape(-1)
    np.testing.assert_array_equal(run(kernel, index, x), expected)
    np.testing.assert_array_equal(jax.jit(kernel)(index, x), expected)
    assert mosaic_gpu.compile(kernel, index, x).cubin[:4] == b"\x7fELF"


def test_both_at_once(run: Run) -> None:
    def scaled(factor_ref: Any, x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * factor_ref[pl.program_id(0)]

    def kernel(n: Any, factors: Any, x: Any) -> Any:
        spec = pl.BlockSpec((64,), lambda i, _: (i,))
        grid_spec = mosaic_gpu.PrefetchScalarGridSpec(1, grid=(n,), in_specs=[spec], out_specs=spec)
        return call(scaled, x.shape, grid_spec=grid_spec)(factors, x)

    x, factors = random(256), np.array([2, -1, 0, 5], np.float32)
    expected = x * np.repeat(factors, 64)
    np.testing.assert_array_equal(run(kernel, 4, factors, x), expected)
    np.testing.assert_array_equal(jax.jit(kernel)(4, factors, x), expected)
