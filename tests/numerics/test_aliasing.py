"""Inputs and outputs that are one array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

import mosaic_gpu
from tests.support.backends import Run
from tests.support.calls import random

PARAMS = mosaic_gpu.CompilerParams()


def in_place(body: Callable[..., None], shape: tuple[int, ...], **rest: Any) -> Callable[..., Any]:
    """A `pallas_call` whose one result is its first operand."""
    out = jax.ShapeDtypeStruct(shape, jnp.float32)
    return pl.pallas_call(body, out, input_output_aliases={0: 0}, compiler_params=PARAMS, **rest)


def test_what_is_not_written_keeps_the_inputs_value(run: Run) -> None:
    x = random(8)

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[2:4] = jnp.zeros(2)

    kernel = in_place(body, (8,))
    expected = x.copy()
    expected[2:4] = 0
    np.testing.assert_array_equal(run(kernel, x), expected)


def test_an_input_that_only_a_loop_reads_keeps_what_is_written(run: Run) -> None:
    x = random(6, 5)

    def body(x_ref: Any, o_ref: Any) -> None:
        def step(i: Any, _: None) -> None:
            o_ref[i] = 2 * x_ref[i] + i

        lax.fori_loop(1, 4, step, None)

    kernel = in_place(body, (6, 5))
    expected = x.copy()
    expected[1:4] = 2 * x[1:4] + np.arange(1, 4, dtype=np.float32)[:, None]
    np.testing.assert_array_equal(run(kernel, x), expected)


def test_blocks_are_updated_in_place(run: Run) -> None:
    x, y = random(7, 6), random(7, 6) + 1

    def body(x_ref: Any, y_ref: Any, a_ref: Any, b_ref: Any) -> None:
        total, double = x_ref[...] + y_ref[...], y_ref[...] * 2
        a_ref[...] = total
        b_ref[...] = double

    spec = pl.BlockSpec((2, 6), lambda i: (i, 0))
    shape = jax.ShapeDtypeStruct((7, 6), jnp.float32)
    kernel = pl.pallas_call(
        body,
        (shape, shape),
        grid=(4,),
        in_specs=[spec, spec],
        out_specs=(spec, spec),
        input_output_aliases={1: 0},
        compiler_params=PARAMS,
    )
    a, b = run(kernel, x, y)
    np.testing.assert_array_equal(a, x + y)
    np.testing.assert_array_equal(b, 2 * y)


def test_steps_see_what_earlier_steps_wrote_where_blocks_differ(run: Run) -> None:
    x = random(5, 4)

    def body(x_ref: Any, o_ref: Any) -> None:
        i = pl.program_id(0)
        o_ref[...] = x_ref[pl.ds(i, 1)] + x_ref[pl.ds(jnp.maximum(i - 1, 0), 1)]

    whole, row = pl.BlockSpec((5, 4), lambda i: (0, 0)), pl.BlockSpec((1, 4), lambda i: (i, 0))
    kernel = in_place(body, (5, 4), grid=(5,), in_specs=[whole], out_specs=row)
    expected = x.copy()
    for i in range(5):
        expected[i] = expected[i] + expected[max(i - 1, 0)]
    np.testing.assert_allclose(run(kernel, x), expected, rtol=1e-6)
