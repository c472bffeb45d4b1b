"""Grids of every kind: which programs run, in which order, and what they see of their place."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from tests.support.backends import POISON, Run
from tests.support.calls import call, random


def add(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
    o_ref[...] = x_ref[...] + y_ref[...]


@pytest.mark.parametrize("n", [1, 8, 32, 100, 128, 129])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_a_call_without_a_grid_is_one_program_over_whole_arrays(run: Run, n: int, dtype: Any) -> None:
    x, y = (100 * random(n)).astype(dtype), (100 * random(n)[::-1]).astype(dtype)
    np.testing.assert_array_equal(run(call(add, (n,), dtype), x, y), x + y)


@pytest.mark.parametrize("shape", [(17,), (200,), (7, 19), (15, 15), (5, 5, 5), (2, 3, 4, 5)])
def test_odd_shapes_are_added_and_nothing_else_is_written(run: Run, shape: tuple[int, ...]) -> None:
    x, y = random(*shape), random(*shape) + 1
    np.testing.assert_array_equal(run(call(add, shape), x, y), x + y)


def test_a_grid_of_rank_zero_is_one_program(run: Run) -> None:
    x = random(5)
    np.testing.assert_array_equal(run(call(add, (5,), grid=()), x, x), x + x)


@pytest.mark.usefixtures("not_in_jax")
@pytest.mark.parametrize("grid", [(0,), (4, 0), (0, 3, 2)])
def test_a_grid_with_an_empty_dimension_runs_nothing(run: Run, grid: Any) -> None:
    def body(o_ref: Any) -> None:
        o_ref[...] = jnp.zeros_like(o_ref)

    spec = pl.BlockSpec((6,), lambda *ids: (0,))
    result = run(call(body, (6,), jnp.uint8, grid=grid, out_specs=spec))
    np.testing.assert_array_equal(result, np.full(6, POISON, np.uint8))


def test_program_ids_are_the_digits_of_the_grid_as_written(run: Run) -> None:
    def body(o_ref: Any) -> None:
        ids = [pl.program_id(d) for d in range(3)]
        o_ref[...] = jnp.full_like(o_ref, 100 * ids[0] + 10 * ids[1] + ids[2])

    spec = pl.BlockSpec((1, 1, 1), lambda i, j, k: (i, j, k))
    i, j, k = np.indices((3, 2, 5))
    result = run(call(body, (3, 2, 5), jnp.int32, grid=(3, 2, 5), out_specs=spec))
    np.testing.assert_array_equal(result, 100 * i + 10 * j + k)


def test_num_programs_is_the_extent(run: Run) -> None:
    def body(o_ref: Any) -> None:
        o_ref[...] = jnp.full_like(o_ref, 10 * pl.num_programs(0) + pl.num_programs(1))

    spec = pl.BlockSpec((1, 1), lambda i, j: (i, j))
    result = run(call(body, (3, 4), jnp.int32, grid=(3, 4), out_specs=spec))
    np.testing.assert_array_equal(result, np.full((3, 4), 34))


def test_steps_that_revisit_an_output_block_add_up_in_order(run: Run) -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] = 2 * o_ref[...] + x_ref[...]

    x = random(3, 5, 7)
    specs = [pl.BlockSpec((1, 1, 7), lambda i, j: (i, j, 0))]
    out = pl.BlockSpec((1, 1, 7), lambda i, j: (i, 0, 0))
    expected = np.zeros((3, 1, 7), np.float32)
    for j in range(5):
        expected = 2 * expected + x[:, j : j + 1]
    result = run(call(body, (3, 1, 7), grid=(3, 5), in_specs=specs, out_specs=out), x)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("semantics", [None, ("sequential",)])
def test_scratch_memory_lives_through_all_steps(run: Run, semantics: Any) -> None:
    def body(x_ref: Any, o_ref: Any, total_ref: Any) -> None:
        @pl.when(pl.program_id(0) == 0)
        def _() -> None:
            total_ref[...] = jnp.zeros_like(total_ref)

        total_ref[...] += x_ref[...]
        o_ref[...] = total_ref[...]

    x = random(6, 9)
    spec = pl.BlockSpec((1, 9), lambda i: (i, 0))
    scratch = [plgpu.SMEM((1, 9), jnp.float32)]
    kernel = call(body, (6, 9), grid=(6,), in_specs=[spec], out_specs=spec, scratch_shapes=scratch, semantics=semantics)
    np.testing.assert_allclose(run(kernel, x), np.cumsum(x, axis=0), rtol=1e-5)


@pytest.mark.parametrize(
    "semantics", [("parallel", "sequential"), ("sequential", "parallel"), ("parallel", "parallel")]
)
def test_the_users_semantics_change_no_result_of_independent_steps(run: Run, semantics: tuple[str, ...]) -> None:
    x, y = random(6, 10), random(6, 10) + 1
    spec = pl.BlockSpec((2, 5), lambda i, j: (i, j))
    kernel = call(add, (6, 10), grid=(3, 2), in_specs=[spec, spec], out_specs=spec, semantics=semantics)
    np.testing.assert_array_equal(run(kernel, x, y), x + y)


def test_vmap_adds_a_dimension_that_the_program_does_not_see(run: Run) -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + pl.program_id(0)

    spec = pl.BlockSpec((4,), lambda i: (i,))
    kernel = call(body, (8,), grid=(2,), in_specs=[spec], out_specs=spec)
    x = random(3, 2, 8)
    expected = x + np.repeat([0, 1], 4).astype(np.float32)
    np.testing.assert_array_equal(run(jax.vmap(jax.vmap(kernel)), x), expected)


def test_a_grid_beyond_cudas_limit_along_y_and_z(run: Run) -> None:
    x = np.arange(2 * 65537, dtype=np.int32).reshape(2, 65537)
    spec = pl.BlockSpec((1, 1), lambda i, j: (i, j))

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[0, 0] = x_ref[0, 0] + pl.program_id(1)

    kernel = call(body, x.shape, jnp.int32, grid=x.shape, in_specs=[spec], out_specs=spec)
    np.testing.assert_array_equal(run(kernel, x), x + np.arange(65537))
