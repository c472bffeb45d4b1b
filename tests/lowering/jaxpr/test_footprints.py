"""Kernels that write places of a whole output: parallel only where no two steps can touch one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plt

import mosaic_gpu
from mosaic_gpu.lowering.jaxpr.grid import plan_grid
from tests.support.backends import run_on_simulator
from tests.support.calls import call, random
from tests.support.dialect_ir import kernel_call_of


def sequential(
    body: Callable[..., None], grid: tuple[int, ...], shape: tuple[int, ...], *arrays: Any, **rest: Any
) -> Any:
    """The dimensions that are not parallel, where the output is one whole array of `shape`."""
    (traced,) = mosaic_gpu.trace_calls(call(body, shape, grid=grid, **rest), *arrays)
    return plan_grid(traced).sequential


def slices(scale: int, size: int, offset: int = 0) -> Callable[..., None]:
    def body(o_ref: Any) -> None:
        o_ref[pl.ds(pl.program_id(0) * scale + offset, size)] = jnp.ones(size)

    return body


@pytest.mark.parametrize(
    ("body", "steps", "size", "expected"),
    [
        (slices(128, 128), 8, 1024, ()),
        (slices(128, 64, 64), 8, 1024, ()),
        (slices(128, 129), 7, 1024, (0,)),
        (slices(127, 128), 8, 1024, (0,)),
        # The last start is moved so that the slice fits: to a place of the step before.
        (slices(128, 128), 8, 1000, (0,)),
        (slices(128, 128, -128), 8, 1024, (0,)),
        (slices(-128, 128, 896), 8, 1024, ()),
        (slices(0, 128), 8, 1024, (0,)),
        (slices(2**30, 1), 4, 1024, (0,)),
    ],
)
def test_slices_at_a_multiple_of_the_program_id(body: Any, steps: int, size: int, expected: Any) -> None:
    assert sequential(body, (steps,), (size,)) == expected


def test_index_arrays_with_and_without_a_mask() -> None:
    def plain(o_ref: Any) -> None:
        o_ref[pl.program_id(0) * 128 + jnp.arange(128)] = jnp.ones(128)

    def masked(o_ref: Any) -> None:
        index = pl.program_id(0) * 128 + jnp.arange(128)
        plt.store(o_ref.at[index], jnp.ones(128), mask=index < 1000)

    def shuffled(o_ref: Any) -> None:
        o_ref[(pl.program_id(0) * 128 + jnp.arange(128)) * 5 % 1024] = jnp.ones(128)

    assert sequential(plain, (8,), (1024,)) == ()
    assert sequential(plain, (8,), (1000,)) == (0,)
    assert sequential(masked, (8,), (1000,)) == ()
    assert sequential(shuffled, (8,), (1024,)) == (0,)


def test_one_row_a_step_and_parts_of_it() -> None:
    def row(o_ref: Any) -> None:
        o_ref[pl.program_id(0), :] = jnp.ones(64)
        o_ref.at[pl.program_id(0)][3] = 2.0

    def wrapped(o_ref: Any) -> None:
        o_ref[pl.program_id(0) - 1, :] = jnp.ones(64)

    assert sequential(row, (8,), (8, 64)) == ()
    assert sequential(row, (9,), (8, 64)) == (0,)
    assert sequential(wrapped, (8,), (8, 64)) == (0,)


def test_two_dimensions_of_the_grid() -> None:
    def tile(o_ref: Any) -> None:
        i, j = pl.program_id(0), pl.program_id(1)
        o_ref[pl.ds(8 * i, 8), pl.ds(16 * j, 16)] = jnp.ones((8, 16))

    def flat(o_ref: Any) -> None:
        o_ref[pl.ds(pl.program_id(0) * 64 + pl.program_id(1) * 16, 16)] = jnp.ones(16)

    def narrow(o_ref: Any) -> None:
        o_ref[pl.ds(pl.program_id(0) * 64 + pl.program_id(1) * 8, 16)] = jnp.ones(16)

    assert sequential(tile, (4, 2), (32, 32)) == ()
    assert sequential(flat, (4, 4), (256,)) == ()
    assert sequential(narrow, (4, 4), (256,)) == (1,)
    assert sequential(flat, (4, 5), (512,)) == (0, 1)


def test_loops_branches_and_calls_inside() -> None:
    def looped(o_ref: Any) -> None:
        start = pl.program_id(0) * 128

        def step(k: Any, _: None) -> None:
            o_ref[pl.ds(start + 32 * k, 32)] = jnp.ones(32)

        jax.lax.fori_loop(0, 4, step, None)

        @pl.when(pl.program_id(0) % 2 == 0)
        def _() -> None:
            jax.jit(lambda: o_ref.__setitem__(start + 5, 3.0))()

    def too_far(o_ref: Any) -> None:
        def step(k: Any, _: None) -> None:
            o_ref[pl.ds(pl.program_id(0) * 128 + 32 * k, 32)] = jnp.ones(32)

        jax.lax.fori_loop(0, 5, step, None)

    def in_a_while(x_ref: Any, o_ref: Any) -> None:
        def step(k: Any) -> Any:
            o_ref[pl.ds(pl.program_id(0) * 128 + k, 32)] = jnp.ones(32)
            return k + 1

        jax.lax.while_loop(lambda k: x_ref[k] > 0, step, 0)

    assert sequential(looped, (8,), (1024,)) == ()
    assert sequential(too_far, (8,), (2048,)) == (0,)
    assert sequential(in_a_while, (8,), (2048,), random(64)) == (0,)


def test_reads_of_the_output_count_as_well() -> None:
    def own(o_ref: Any) -> None:
        here = pl.ds(pl.program_id(0) * 128, 128)
        o_ref[here] = o_ref[here] + 1

    def neighbour(o_ref: Any) -> None:
        o_ref[pl.ds(pl.program_id(0) * 128, 128)] = o_ref[pl.ds(pl.program_id(0) * 64, 128)]

    def all_of_it(o_ref: Any) -> None:
        o_ref[pl.ds(pl.program_id(0) * 128, 128)] = jnp.full(128, o_ref[...].sum())

    assert sequential(own, (8,), (1024,)) == ()
    assert sequential(neighbour, (8,), (1024,)) == (0,)
    assert sequential(all_of_it, (8,), (1024,)) == (0,)


def test_an_aliased_input_is_the_output() -> None:
    def own(x_ref: Any, o_ref: Any) -> None:
        here = pl.ds(pl.program_id(0) * 128, 128)
        o_ref[here] = x_ref[here] + 1

    def all_of_it(x_ref: Any, o_ref: Any) -> None:
        o_ref[pl.ds(pl.program_id(0) * 128, 128)] = x_ref[...][:128]

    x = random(1024)
    assert sequential(own, (8,), (1024,), x, input_output_aliases={0: 0}) == ()
    assert sequential(all_of_it, (8,), (1024,), x, input_output_aliases={0: 0}) == (0,)
    assert sequential(all_of_it, (8,), (1024,), x) == ()


def test_inside_of_blocks_the_offset_of_the_block_counts() -> None:
    def body(o_ref: Any) -> None:
        o_ref[pl.program_id(1), :] = jnp.ones(16)

    spec = pl.BlockSpec((4, 16), lambda i, j: (i, 0))
    assert sequential(body, (3, 4), (12, 16), out_specs=spec) == ()
    assert sequential(body, (3, 5), (12, 16), out_specs=spec) == (0, 1)[1:]
    squeezed = pl.BlockSpec((None, 16), lambda i, j: (0, i))
    assert sequential(lambda o_ref: o_ref.__setitem__(pl.program_id(1), 1.0), (3, 4), (1, 48), out_specs=squeezed) == ()


def test_what_is_not_understood_is_sequential() -> None:
    def atomic(x_ref: Any, o_ref: Any) -> None:
        plt.atomic_add(o_ref, pl.program_id(0), 1.0)

    def transposed(o_ref: Any) -> None:
        o_ref.reshape(8, 128)[pl.program_id(0), :] = jnp.ones(128)

    assert sequential(atomic, (8,), (8,), random(8)) == (0,)
    assert sequential(transposed, (8,), (1024,)) == (0,)


def test_a_vmapped_kernel_keeps_what_its_body_tells() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[pl.ds(pl.program_id(0) * 8, 8)] = x_ref[pl.ds(pl.program_id(0) * 8, 8)] + 1

    kernel = jax.vmap(call(body, (32,), grid=(4,)))
    x = random(3, 32)
    assert plan_grid(kernel_call_of(kernel, x)).sequential == ()
    np.testing.assert_array_equal(run_on_simulator(kernel, x), x + 1)


numbers = st.integers(-40, 40)


@settings(max_examples=150, deadline=None)
@given(
    scales=st.tuples(numbers, numbers),
    offset=numbers,
    width=st.integers(1, 12),
    grid=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    size=st.integers(12, 80),
)
def test_steps_that_share_a_place_are_never_parallel(
    scales: tuple[int, int], offset: int, width: int, grid: tuple[int, int], size: int
) -> None:
    def body(o_ref: Any) -> None:
        start = pl.program_id(0) * scales[0] + pl.program_id(1) * scales[1] + offset
        o_ref[pl.ds(start, width)] = jnp.ones(width)

    left = sequential(body, grid, (size,))
    places: dict[int, set[tuple[int, int]]] = {}
    for i, j in np.ndindex(grid):
        start = i * scales[0] + j * scales[1] + offset
        start = min(max(start + size if start < 0 else start, 0), size - width)
        for place in range(start, start + width):
            places.setdefault(place, set()).add((i, j))
    for steps in places.values():
        for d in range(2):
            if d not in left:
                assert len({step[d] for step in steps}) == 1
