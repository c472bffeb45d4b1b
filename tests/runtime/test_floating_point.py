"""The simulator computes with subnormal numbers wherever it is called from."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

from mosaic_gpu import CompilerParams
from mosaic_gpu.runtime.floating_point import ieee_arithmetic

TINY = np.array([1e-40, -1.4e-45, 2.5e-39, 0.0, 1.0], np.float32)


def halve(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] * 0.5


def test_a_kernel_inside_jit_keeps_subnormal_numbers() -> None:
    call = pl.pallas_call(halve, jax.ShapeDtypeStruct(TINY.shape, jnp.float32), compiler_params=CompilerParams())
    np.testing.assert_array_equal(np.asarray(jax.jit(call)(TINY)).view(np.int32), (TINY * 0.5).view(np.int32))


def test_xla_gets_its_own_mode_back() -> None:
    seen: list[np.ndarray[Any, Any]] = []

    def compare(x: Any) -> Any:
        x = np.asarray(x)
        before = (x * np.float32(0.5)).view(np.int32)
        with ieee_arithmetic():
            inside = (x * np.float32(0.5)).view(np.int32)
        seen.extend((before, inside, (x * np.float32(0.5)).view(np.int32)))
        return x

    run = jax.jit(lambda x: jax.pure_callback(compare, jax.ShapeDtypeStruct(TINY.shape, jnp.float32), x))
    jax.block_until_ready(run(TINY))
    before, inside, after = seen
    np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(inside, (TINY * 0.5).view(np.int32))
