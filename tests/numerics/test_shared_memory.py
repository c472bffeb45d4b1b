"""Scratch memory beside the tiles that matrix units and copies use: in any order, all stays intact."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import mosaic_gpu
from tests.support.backends import Run


def values(seed: int, *shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(jnp.dtype(dtype))


def product(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(a.astype(np.float64) @ b.astype(np.float64))


@pytest.mark.parametrize("small_bytes", [4, 128, 1000])
@pytest.mark.parametrize("order", ["small first", "tile first"])
def test_a_small_scratch_beside_a_swizzled_tile(run: Run, small_bytes: int, order: str) -> None:
    """A swizzle needs 1024-byte alignment, whatever lies before the tile; and the small one is not written over."""
    a, b, x = values(0, 64, 64, dtype="bfloat16"), values(1, 64, 128, dtype="bfloat16"), values(2, small_bytes // 4)
    small, tile = plgpu.SMEM(x.shape, jnp.float32), plgpu.SMEM((64, 64), jnp.bfloat16)

    def kernel(a_ref: Any, b_ref: Any, x_ref: Any, o_ref: Any, kept_ref: Any, first: Any, second: Any) -> None:
        small_ref, tile_ref = (first, second) if order == "small first" else (second, first)
        small_ref[...] = x_ref[...] + 1
        tile_ref[...] = a_ref[...]
        o_ref[...] = jnp.dot(tile_ref[...], b_ref[...], preferred_element_type=jnp.float32)
        kept_ref[...] = small_ref[...]

    found, kept = run(
        pl.pallas_call(
            kernel,
            out_shape=(jax.ShapeDtypeStruct((64, 128), jnp.float32), jax.ShapeDtypeStruct(x.shape, jnp.float32)),
            scratch_shapes=[small, tile] if order == "small first" else [tile, small],
            compiler_params=mosaic_gpu.CompilerParams(),
        ),
        a, b, x,
    )  # fmt: skip
    np.testing.assert_allclose(found, product(a, b), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(kept, x + 1)


def test_a_small_scratch_of_a_scope_inside_a_pipelined_loop(run: Run) -> None:
    a, b, x = values(0, 64, 256, dtype="float16"), values(1, 256, 64, dtype="float16"), values(2, 32)

    def kernel(a_ref: Any, b_ref: Any, x_ref: Any, o_ref: Any, kept_ref: Any) -> None:
        def scope(small_ref: Any) -> None:
            small_ref[...] = x_ref[...]

            def step(i: Any, acc: Any) -> Any:
                here = pl.ds(64 * i, 64)
                small_ref[...] += 1
                return acc + jnp.dot(a_ref[:, here], b_ref[here, :], preferred_element_type=jnp.float32)

            o_ref[...] = jax.lax.fori_loop(0, 4, step, jnp.zeros((64, 64), jnp.float32))
            kept_ref[...] = small_ref[...]

        pl.run_scoped(scope, plgpu.SMEM((32,), jnp.float32))

    found, kept = run(
        pl.pallas_call(
            kernel,
            out_shape=(jax.ShapeDtypeStruct((64, 64), jnp.float32), jax.ShapeDtypeStruct((32,), jnp.float32)),
            compiler_params=mosaic_gpu.CompilerParams(),
        ),
        a, b, x,
    )  # fmt: skip
    np.testing.assert_allclose(found, product(a, b), rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(kept, x + 4, rtol=1e-6)


def layer(m: int, n: int, k: int, *, in_grid: bool, **choices: Any) -> Any:
    """relu(a @ b + bias), the bias copied to shared memory before the steps over k: those of the grid, or a loop."""
    bm, bn, bk = 64, 64, 32

    def bias_first(bias_ref: Any, bias_smem: Any) -> None:
        bias_smem[...] = bias_ref[...]

    def finish(acc: Any, bias_smem: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.maximum(acc + bias_smem[...], 0).astype(o_ref.dtype)

    def loop_kernel(a_ref: Any, b_ref: Any, bias_ref: Any, o_ref: Any, bias_smem: Any) -> None:
        bias_first(bias_ref, bias_smem)

        def step(i: Any, acc: Any) -> Any:
            here = pl.ds(bk * i, bk)
            return acc + jnp.dot(a_ref[:, here], b_ref[here, :], preferred_element_type=jnp.float32)

        finish(jax.lax.fori_loop(0, pl.cdiv(k, bk), step, jnp.zeros((bm, bn), jnp.float32)), bias_smem, o_ref)

    def grid_kernel(a_ref: Any, b_ref: Any, bias_ref: Any, o_ref: Any, bias_smem: Any, acc_ref: Any) -> None:
        @pl.when(pl.program_id(2) == 0)
        def _() -> None:
            bias_first(bias_ref, bias_smem)
            acc_ref[...] = jnp.zeros_like(acc_ref)

        acc_ref[...] += jnp.dot(a_ref[...], b_ref[...], preferred_element_type=jnp.float32)

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _() -> None:
            finish(acc_ref[...], bias_smem, o_ref)

    depth, steps = (bk, (pl.cdiv(k, bk),)) if in_grid else (pl.cdiv(k, bk) * bk, ())
    scratch = [plgpu.SMEM((bn,), jnp.float32), plgpu.SMEM((bm, bn), jnp.float32)]
    return pl.pallas_call(
        grid_kernel if in_grid else loop_kernel,
        out_shape=jax.ShapeDtypeStruct((m, n), jnp.bfloat16),
        grid=(pl.cdiv(m, bm), pl.cdiv(n, bn), *steps),
        in_specs=[
            pl.BlockSpec((bm, depth), lambda i, j, *s: (i, *(s or (0,)))),
            pl.BlockSpec((depth, bn), lambda i, j, *s: (*(s or (0,)), j)),
            pl.BlockSpec((bn,), lambda i, j, *s: (j,)),
        ],
        out_specs=pl.BlockSpec((bm, bn), lambda i, j, *s: (i, j)),
        scratch_shapes=scratch if in_grid else scratch[:1],
        compiler_params=mosaic_gpu.CompilerParams(**choices),
    )


@pytest.mark.parametrize("warp_specialize", [None, False])
@pytest.mark.parametrize("in_grid", [True, False])
@pytest.mark.parametrize("shape", [(64, 64, 128), (100, 72, 200), (70, 33, 50)])
def test_a_bias_copied_to_shared_memory_before_the_pipelined_loop(
    run: Run, shape: tuple[int, int, int], in_grid: bool, warp_specialize: bool | None
) -> None:
    m, n, k = shape
    a, b, bias = values(0, m, k, dtype="bfloat16"), values(1, k, n, dtype="bfloat16"), values(2, n)
    found = run(layer(m, n, k, in_grid=in_grid, warp_specialize=warp_specialize), a, b, bias)
    expected = np.maximum(product(a, b) + bias, 0)
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("in_grid", [True, False])
def test_a_layer_with_its_bias_in_shared_memory_is_pipelined(simulator_only: None, in_grid: bool) -> None:
    sizes = (jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((256, 512), (512, 256)))
    call = layer(256, 256, 512, in_grid=in_grid)
    ptx = mosaic_gpu.compile(call, *sizes, jax.ShapeDtypeStruct((256,), jnp.float32)).ptx
    assert "wgmma.mma_async" in ptx
    assert "cp.async.bulk.tensor" in ptx
