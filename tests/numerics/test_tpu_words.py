"""Kernels written for TPUs: their memory spaces and scalar prefetch mean the same here."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import mosaic_gpu
from tests.support.backends import Run
from tests.support.calls import call, random
from tests.support.kernels import accumulate_product


def test_a_matmul_with_its_sum_in_vmem(run: Run) -> None:
    x, y = random(48, 64), random(64, 96)
    matmul = call(
        accumulate_product,
        (48, 96),
        grid=(3, 3, 2),
        in_specs=[
            pl.BlockSpec((16, 32), lambda i, j, k: (i, k), memory_space=pltpu.VMEM),
            pl.BlockSpec((32, 32), lambda i, j, k: (k, j), memory_space=pltpu.VMEM),
        ],
        out_specs=pl.BlockSpec((16, 32), lambda i, j, k: (i, j), memory_space=pltpu.VMEM),
        scratch_shapes=[pltpu.VMEM((16, 32), jnp.float32)],
    )
    np.testing.assert_allclose(run(matmul, x, y), x.astype(np.float64) @ y, rtol=1e-5, atol=1e-4)


def test_scalars_in_smem_and_scoped_memory(run: Run) -> None:
    def kernel(factor_ref: Any, x_ref: Any, o_ref: Any) -> None:
        def scoped(buffer_ref: Any) -> None:
            buffer_ref[...] = x_ref[...] * factor_ref[1]
            o_ref[...] = buffer_ref[...][::-1]

        pl.run_scoped(scoped, pltpu.VMEM((5,), jnp.float32))

    factors, x = random(3), random(5)
    specs = [pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pltpu.VMEM)]
    np.testing.assert_array_equal(run(call(kernel, (5,), in_specs=specs), factors, x), (x * factors[1])[::-1])


@pytest.mark.usefixtures("not_in_jax")
def test_blocks_chosen_by_prefetched_scalars(run: Run) -> None:
    def kernel(rows_ref: Any, x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + rows_ref[pl.program_id(0)]

    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(4,),
        in_specs=[pl.BlockSpec((1, 8), lambda i, rows: (rows[i], 0))],
        out_specs=pl.BlockSpec((1, 8), lambda i, rows: (i, 0)),
    )
    gather = pl.pallas_call(
        kernel,
        jax.ShapeDtypeStruct((4, 8), jnp.float32),
        grid_spec=spec,
        compiler_params=mosaic_gpu.CompilerParams(),
    )
    rows, x = np.array([3, 0, 5, 3], np.int32), random(6, 8)
    np.testing.assert_array_equal(run(gather, rows, x), x[rows] + rows[:, None].astype(np.float32))
