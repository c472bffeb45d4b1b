"""Memory that loops read and write whole: whether it becomes a value or stays memory, the results are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.experimental.pallas import triton as plt

import mosaic_gpu
from tests.support.backends import run_on_simulator

ROWS, COLUMNS, STEPS = 16, 32, 5
X = np.round(np.random.default_rng(0).standard_normal((2 * ROWS, STEPS * COLUMNS)) * 8).astype(np.float32)
PARTS = X.reshape(2 * ROWS, STEPS, COLUMNS)


def accumulating(kernel: Callable[..., None], scratch: tuple[Any, ...] = (), **more: Any) -> Callable[..., Any]:
    """A call over the grid (2, STEPS): each output block is visited STEPS times in a row."""
    call = pl.pallas_call(
        kernel,
        grid=(2, STEPS),
        in_specs=more.pop("in_specs", [pl.BlockSpec((ROWS, COLUMNS), lambda i, k: (i, k))]),
        out_specs=pl.BlockSpec((ROWS, COLUMNS), lambda i, k: (i, 0)),
        out_shape=jax.ShapeDtypeStruct((2 * ROWS, COLUMNS), jnp.float32),
        scratch_shapes=list(scratch),
        compiler_params=mosaic_gpu.CompilerParams(),
        **more,
    )
    return call  # type: ignore[no-any-return]


def check(call: Callable[..., Any], expected: Any, *arrays: Any, in_registers: bool) -> None:
    """The result, and whether the loop over steps carries it."""
    arrays = arrays or (X,)
    text = str(mosaic_gpu.compile(call, *arrays).ir("pipelined"))
    assert ("iter_args" in text) == in_registers
    np.testing.assert_array_equal(run_on_simulator(call, *arrays), expected)


def test_an_output_block_that_is_added_to_is_carried() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            o_ref[...] = jnp.zeros_like(o_ref)

        o_ref[...] += x_ref[...]

    check(accumulating(kernel), PARTS.sum(1), in_registers=True)


def test_scratch_memory_is_carried_and_read_in_the_last_step() -> None:
    def kernel(x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
        @pl.when(pl.program_id(1) == 0)
        def _() -> None:
            acc_ref[...] = jnp.full_like(acc_ref, 3.0)

        acc_ref[...] = acc_ref[...] * 0.5 + x_ref[...]

        @pl.when(pl.program_id(1) == STEPS - 1)
        def _() -> None:
            o_ref[...] = acc_ref[...] + x_ref[...]

    expected = np.full((2 * ROWS, COLUMNS), 3.0, np.float32)
    for step in range(STEPS):
        expected = expected * np.float32(0.5) + PARTS[:, step]
    call = accumulating(kernel, (plgpu.SMEM((ROWS, COLUMNS), jnp.float32),))
    check(call, expected + PARTS[:, -1], in_registers=True)


def test_what_only_some_steps_write_is_not_written_by_others() -> None:
    """Steps with an odd number write; nothing may be written back in the others."""

    def kernel(x_ref: Any, o_ref: Any) -> None:
        @pl.when(pl.program_id(1) % 2 == 1)
        def _() -> None:
            o_ref[...] = x_ref[...]

    check(accumulating(kernel), PARTS[:, 3], in_registers=False)


def test_masked_writes_to_an_output_leave_the_rest() -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        step = pl.program_id(1)
        columns = jax.lax.broadcasted_iota(jnp.int32, (ROWS, COLUMNS), 1)
        plt.store(o_ref, x_ref[...], mask=columns % STEPS == step)

    expected = np.stack([PARTS[:, c % STEPS, c] for c in range(COLUMNS)], axis=1)
    check(accumulating(kernel), expected, in_registers=False)


def test_an_aliased_input_is_seen_to_change() -> None:
    """The accumulator starts as what the input holds."""

    def kernel(x_ref: Any, start_ref: Any, o_ref: Any) -> None:
        del start_ref
        o_ref[...] += x_ref[...]

    start = np.round(np.random.default_rng(1).standard_normal((2 * ROWS, COLUMNS)) * 8).astype(np.float32)
    specs = [pl.BlockSpec((ROWS, COLUMNS), lambda i, k: (i, k)), pl.BlockSpec((ROWS, COLUMNS), lambda i, k: (i, 0))]
    call = accumulating(kernel, in_specs=specs, input_output_aliases={1: 0})
    check(call, start + PARTS.sum(1), X, start, in_registers=True)


def test_an_input_that_is_read_under_its_other_name_stays_memory() -> None:
    def kernel(x_ref: Any, start_ref: Any, o_ref: Any) -> None:
        o_ref[...] = start_ref[...] + x_ref[...]

    start = np.round(np.random.default_rng(1).standard_normal((2 * ROWS, COLUMNS)) * 8).astype(np.float32)
    specs = [pl.BlockSpec((ROWS, COLUMNS), lambda i, k: (i, k)), pl.BlockSpec((ROWS, COLUMNS), lambda i, k: (i, 0))]
    call = accumulating(kernel, in_specs=specs, input_output_aliases={1: 0})
    np.testing.assert_array_equal(run_on_simulator(call, X, start), start + PARTS.sum(1))


@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_loop_that_may_not_run_writes_only_if_it_does(count: int) -> None:
    def kernel(count_ref: Any, x_ref: Any, start_ref: Any, o_ref: Any) -> None:
        del start_ref

        def step(i: Any, carry: Any) -> Any:
            o_ref[...] = x_ref[...] * i.astype(jnp.float32)
            return carry

        jax.lax.fori_loop(0, count_ref[0], step, 0)

    x = X[:ROWS, :COLUMNS]
    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(x.shape, jnp.float32),
        input_output_aliases={2: 0},
        compiler_params=mosaic_gpu.CompilerParams(),
    )
    expected = x * np.float32(count - 1) if count else x + 1
    np.testing.assert_array_equal(run_on_simulator(call, np.array([count], np.int32), x, x + 1), expected)


def test_a_while_loop_carries_scratch_memory() -> None:
    def kernel(x_ref: Any, o_ref: Any, acc_ref: Any) -> None:
        acc_ref[...] = x_ref[...]

        def body(total: Any) -> Any:
            acc_ref[...] = acc_ref[...] * 2.0
            return total * 2

        jax.lax.while_loop(lambda total: total < 100, body, 1)
        o_ref[...] = acc_ref[...]

    x = X[:ROWS, :COLUMNS]
    call = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(x.shape, jnp.float32),
        scratch_shapes=[plgpu.SMEM(x.shape, jnp.float32)],
        compiler_params=mosaic_gpu.CompilerParams(),
    )
    np.testing.assert_array_equal(run_on_simulator(call, x), x * 128)
