"""Operands for index maps (`PrefetchScalarGridSpec`), and scalars as operands."""

from __future__ import annotations

from collections.abc import Callable
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


def copy(*refs: Any) -> None:
    *_, x_ref, o_ref = refs
    o_ref[...] = x_ref[...]


def gathered(
    index_map: Callable[..., Any], blocks: int, x: Any, *indices: Any, body: Callable[..., None] = copy, **rest: Any
) -> Any:
    """Block i (4 rows) of the result is the block of `x` that `index_map(i, *references to indices)` says."""
    spec = mosaic_gpu.PrefetchScalarGridSpec(
        len(indices),
        grid=(blocks,),
        in_specs=[pl.BlockSpec((4, x.shape[1]), index_map)],
        out_specs=pl.BlockSpec((4, x.shape[1]), lambda i, *_: (i, 0)),
    )
    return call(body, (4 * blocks, x.shape[1]), x.dtype, grid_spec=spec, **rest)(*indices, x)


def rows(x: Any, blocks: Any) -> Any:
    """Blocks of 4 rows of `x`, zero where they are outside."""
    found = np.zeros((len(blocks), 4, x.shape[1]), x.dtype)
    for out, block in zip(found, blocks, strict=True):
        inside = [4 * int(block) + r for r in range(4)]
        for r, row in enumerate(inside):
            if 0 <= row < len(x):
                out[r] = x[row]
    return found.reshape(-1, x.shape[1])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32])
def test_blocks_are_gathered_by_an_operand_of_any_integer_dtype(run: Run, dtype: Any) -> None:
    x, index = random(24, 10), np.array([5, 0, 3, 3, 1], dtype)

    def kernel(index: Any, x: Any) -> Any:
        return gathered(lambda i, index: (index[i].astype(jnp.int32), 0), 5, x, index)

    np.testing.assert_array_equal(run(kernel, index, x), rows(x, index))


def test_an_operand_of_64_bits_is_not_cut_to_32() -> None:
    x, index = random(24, 10), np.array([5, 2**32, 2, -(2**32), 2**32 + 1, 2**62, -(2**63)])
    with jax.enable_x64(True):
        result = jax.jit(lambda index, x: gathered(lambda i, index: (index[i], 0), 7, x, index))(index, x)
    np.testing.assert_array_equal(result, rows(x, index))


def test_an_operand_of_bools_chooses(run: Run) -> None:
    x, flags = random(24, 10), np.array([True, False, False, True])

    def kernel(flags: Any, x: Any) -> Any:
        return gathered(lambda i, flags: (jnp.where(flags[i], i, 5), 0), 4, x, flags)

    np.testing.assert_array_equal(run(kernel, flags, x), rows(x, [0, 5, 5, 3]))


def test_operands_of_rank_0_and_2(run: Run) -> None:
    x, base, table = random(24, 10), np.int32(1), np.array([[0, 1, 2], [4, 3, 0]], np.int32)

    def kernel(base: Any, table: Any, x: Any) -> Any:
        return gathered(lambda i, base, table: (table[i // 3, i % 3] + base[...], 0), 6, x, base, table)

    np.testing.assert_array_equal(run(kernel, base, table, x), rows(x, [1, 2, 3, 5, 4, 1]))


def test_blocks_out_of_range_read_as_zero() -> None:
    x = random(23, 10)
    index = np.array([5, 6, -1, 2**30, -(2**31), 2**31 - 1, 0, -(2**30)], np.int32)

    def kernel(index: Any, x: Any) -> Any:
        return gathered(lambda i, index: (index[i], 0), 8, x, index)

    np.testing.assert_array_equal(jax.jit(kernel)(index, x), rows(x, index))


def test_blocks_out_of_range_are_not_written(run: Run) -> None:
    def kernel(index: Any, x: Any, y: Any) -> Any:
        spec = mosaic_gpu.PrefetchScalarGridSpec(
            1,
            grid=(4,),
            in_specs=[
                pl.BlockSpec((4, 10), lambda i, _: (i, 0)),
                pl.BlockSpec((4, 10), lambda i, index: (index[i], 0)),
            ],
            out_specs=pl.BlockSpec((4, 10), lambda i, index: (index[i], 0)),
        )

        def body(index_ref: Any, x_ref: Any, y_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...]

        return call(body, (24, 10), grid_spec=spec, input_output_aliases={2: 0})(index, x, y)

    x, y, index = random(16, 10), random(24, 10), np.array([3, -1, 6, 2**29], np.int32)
    expected = y.copy()
    expected[12:16] = x[:4]
    compiled = mosaic_gpu.compile(kernel, index, x, y)
    np.testing.assert_array_equal(compiled(index, x, y), expected)


def test_steps_that_may_write_one_block_run_in_order(run: Run) -> None:
    def kernel(index: Any, x: Any) -> Any:
        spec = mosaic_gpu.PrefetchScalarGridSpec(
            1,
            grid=(6,),
            in_specs=[pl.BlockSpec((4, 10), lambda i, _: (i, 0))],
            out_specs=pl.BlockSpec((4, 10), lambda i, index: (index[i], 0)),
        )
        return call(copy, (12, 10), grid_spec=spec)(index, x)

    x, index = random(24, 10), np.array([1, 2, 0, 1, 1, 2], np.int32)
    expected = np.concatenate([rows(x, [2]), rows(x, [4]), rows(x, [5])])
    np.testing.assert_array_equal(run(kernel, index, x), expected)


def test_the_body_reads_them_too(run: Run) -> None:
    def body(index_ref: Any, lengths_ref: Any, x_ref: Any, o_ref: Any) -> None:
        i = pl.program_id(0)
        row = jax.lax.broadcasted_iota(jnp.int32, o_ref.shape, 0)
        o_ref[...] = jnp.where(row < lengths_ref[i], x_ref[...], index_ref[i].astype(jnp.float32))

    x, index, lengths = random(24, 10), np.array([5, 0, 3], np.int32), np.array([2, 0, 4], np.int32)

    def kernel(index: Any, lengths: Any, x: Any) -> Any:
        return gathered(lambda i, index, _: (index[i], 0), 3, x, index, lengths, body=body)

    expected = np.where(
        np.arange(12)[:, None] % 4 < np.repeat(lengths, 4)[:, None], rows(x, index), np.repeat(index, 4)[:, None]
    )
    np.testing.assert_array_equal(run(kernel, index, lengths, x), expected)


def test_together_with_a_bound_that_is_computed(run: Run) -> None:
    def kernel(n: Any, index: Any, x: Any, y: Any) -> Any:
        spec = mosaic_gpu.PrefetchScalarGridSpec(
            1,
            grid=(n, 2),
            in_specs=[
                pl.BlockSpec((4, 8), lambda i, j, index: (index[i], j)),
                pl.BlockSpec((4, 8), lambda i, j, _: (i, j)),
            ],
            out_specs=pl.BlockSpec((4, 8), lambda i, j, _: (i, j)),
        )

        def body(index_ref: Any, x_ref: Any, y_ref: Any, o_ref: Any) -> None:
            o_ref[...] = x_ref[...]

        return call(body, y.shape, grid_spec=spec, input_output_aliases={2: 0})(index, x, y)

    x, y, index = random(24, 16), random(40, 16), np.array([5, 0, 3, 3, 1, 2, 4, 0, 1, 5], np.int32)
    for n in (0, 7):
        expected = np.concatenate([rows(x, index[:n]), y[4 * n :]])
        np.testing.assert_array_equal(run(kernel, n, index, x, y), expected)


def test_the_specification_of_tpu_kernels_works_as_well() -> None:
    x, index = random(24, 10), np.array([5, 0, 3], np.int32)
    block = (4, 10)
    spec = pltpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=1,
        grid=(3,),
        in_specs=[pl.BlockSpec(block, lambda i, index: (index[i], 0))],
        out_specs=pl.BlockSpec(block, lambda i, index: (i, 0)),
    )
    np.testing.assert_array_equal(call(copy, (12, 10), grid_spec=spec)(index, x), rows(x, index))


def test_pytrees_of_operands() -> None:
    x = random(24, 10)
    tables = {"base": np.int32(1), "table": np.array([0, 3], np.int32)}

    def index_map(i: Any, tables: Any) -> Any:
        return tables["table"][i] + tables["base"][...], 0

    np.testing.assert_array_equal(jax.jit(lambda t, x: gathered(index_map, 2, x, t))(tables, x), rows(x, [1, 4]))


def test_under_vmap_over_arrays_and_over_operands() -> None:
    x, index = random(3, 24, 10), np.array([[5, 0, 3], [1, 1, 0], [2, 4, 4]], np.int32)

    def one(index: Any, x: Any) -> Any:
        return gathered(lambda i, index: (index[i], 0), 3, x, index)

    over_arrays = jax.jit(jax.vmap(one, (None, 0)))(index[0], x)
    np.testing.assert_array_equal(over_arrays, np.stack([rows(y, index[0]) for y in x]))
    over_both = jax.jit(jax.vmap(one))(index, x)
    np.testing.assert_array_equal(over_both, np.stack([rows(y, i) for i, y in zip(index, x, strict=True)]))


def test_in_a_scan_over_operands() -> None:
    x, index = random(24, 10), np.array([[5, 0, 3, 1, 2, 4], [1, 1, 0, 2, 5, 5]], np.int32)

    def step(x: Any, index: Any) -> Any:
        return gathered(lambda i, index: (index[i], 0), 6, x, index), None

    result, _ = jax.jit(lambda x, index: jax.lax.scan(step, x, index))(x, index)
    np.testing.assert_array_equal(result, rows(rows(x, index[0]), index[1]))


@pytest.mark.parametrize(
    "scalar", [3, 2.5, True, np.int32(3), np.float32(2.5), np.float16(0.5), np.uint8(200), np.bool_(False), np.int64(7)]
)
def test_python_and_numpy_scalars_are_operands(scalar: Any) -> None:
    def body(s_ref: Any, x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * s_ref[...].astype(jnp.float32)

    x = random(6)
    expected = x * np.float32(scalar)
    np.testing.assert_array_equal(call(body, (6,))(scalar, x), expected)
    np.testing.assert_array_equal(jax.jit(call(body, (6,)))(scalar, x), expected)
    np.testing.assert_array_equal(mosaic_gpu.compile(call(body, (6,)), scalar, x)(scalar, x), expected)


@pytest.mark.parametrize("scalar", [2, np.int32(2), np.uint8(2), True])
def test_python_and_numpy_scalars_are_operands_of_index_maps(scalar: Any) -> None:
    x = random(24, 10)
    result = gathered(lambda i, s: (i + s[...].astype(jnp.int32), 0), 3, x, scalar)
    np.testing.assert_array_equal(result, rows(x, np.arange(3) + int(scalar)))
