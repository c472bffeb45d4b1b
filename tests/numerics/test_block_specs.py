"""Blocks of every kind that Pallas has, compared with NumPy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mosaic_gpu
from tests.support.backends import Run
from tests.support.calls import call, random


def double(x_ref: Any, o_ref: Any) -> None:
    o_ref[...] = 2 * x_ref[...]


@pytest.mark.parametrize(
    ("shape", "block"),
    [
        ((24, 16), (8, 16)),
        ((1, 384), (1, 128)),
        ((4, 512), (4, 128)),
        ((10, 100), (4, 100)),
        ((7, 13), (4, 4)),
        ((100,), (128,)),
        ((129,), (128,)),
        ((3, 5, 7), (2, 2, 2)),
        ((5, 9), (1, 3)),
    ],
)
def test_every_block_is_written_also_where_it_overhangs(run: Run, shape: Any, block: Any) -> None:
    x = random(*shape)
    grid = tuple(-(-n // b) for n, b in zip(shape, block, strict=True))
    spec = pl.BlockSpec(block, lambda *ids: ids)
    np.testing.assert_array_equal(run(call(double, shape, grid=grid, in_specs=[spec], out_specs=spec), x), 2 * x)


def test_squeezed_dimensions_are_not_seen(run: Run) -> None:
    x = random(3, 6, 2)

    def body(x_ref: Any, o_ref: Any) -> None:
        assert x_ref.shape == (6,)
        assert o_ref.shape == (6, 2)
        o_ref[...] = jnp.stack([x_ref[...], -x_ref[...]], axis=1)

    kernel = call(
        body,
        (3, 6, 2),
        grid=(3,),
        in_specs=[pl.BlockSpec((None, 6, pl.Squeezed()), lambda i: (i, 0, 1))],
        out_specs=pl.BlockSpec((pl.Squeezed(), 6, 2), lambda i: (i, 0, 0)),
    )
    np.testing.assert_array_equal(run(kernel, x), np.stack([x[:, :, 1], -x[:, :, 1]], axis=2))


def test_element_dimensions_are_indexed_by_elements(run: Run) -> None:
    x = random(20)
    kernel = call(
        double,
        (3, 5),
        grid=(3,),
        in_specs=[pl.BlockSpec((pl.Element(5),), lambda i: (3 * i + 1,))],
        out_specs=pl.BlockSpec((None, 5), lambda i: (i, 0)),
    )
    np.testing.assert_array_equal(run(kernel, x), np.stack([2 * x[3 * i + 1 :][:5] for i in range(3)]))


def test_padding_shifts_an_element_dimension_and_pads_with_something(run: Run) -> None:
    x = random(8)

    def body(x_ref: Any, o_ref: Any) -> None:
        places = 4 * pl.program_id(0) + jnp.arange(6) - 1
        o_ref[...] = jnp.where((places >= 0) & (places < 8), x_ref[...], 7.0)

    kernel = call(
        body,
        (2, 6),
        grid=(2,),
        in_specs=[pl.BlockSpec((pl.Element(6, (1, 1)),), lambda i: (4 * i,))],
        out_specs=pl.BlockSpec((None, 6), lambda i: (i, 0)),
    )
    padded = np.pad(x, 1, constant_values=7.0)
    np.testing.assert_array_equal(run(kernel, x), np.stack([padded[:6], padded[4:10]]))


def test_the_whole_array_in_any_memory_space(run: Run) -> None:
    x = random(4, 6)

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[pl.program_id(0)]

    kernel = call(
        body,
        (4, 6),
        grid=(4,),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec((None, 6), lambda i: (i, 0)),
    )
    np.testing.assert_array_equal(run(kernel, x), x)


def test_index_maps_compute(run: Run) -> None:
    x = random(6, 8)
    maps = [
        lambda i: (i // 2, i % 2),
        lambda i: (2 - i // 2, 1 - lax.rem(i, 2)),
        lambda i: (lax.select(i < 3, i, 5 - i), jnp.where(i < 3, 0, 1)),
        lambda i: (lax.cond(i > 2, lambda: 5 - i, lambda: i), lax.div(i, 3)),
    ]
    for index_map in maps:
        spec = pl.BlockSpec((2, 4), index_map)
        kernel = call(double, (6, 8), grid=(6,), in_specs=[spec], out_specs=spec)
        np.testing.assert_array_equal(run(kernel, x), 2 * x)


def test_several_operands_with_maps_of_their_own(run: Run) -> None:
    x, y = random(4, 6), random(6, 4)

    def body(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] + y_ref[...].T

    kernel = call(
        body,
        (4, 6),
        grid=(2, 3),
        in_specs=[pl.BlockSpec((2, 2), lambda i, j: (i, j)), pl.BlockSpec((2, 2), lambda i, j: (j, i))],
        out_specs=pl.BlockSpec((2, 2), lambda i, j: (i, j)),
    )
    np.testing.assert_array_equal(run(kernel, x, y), x + y.T)


def test_operands_without_dimensions(run: Run) -> None:
    def body(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * y_ref[...]

    np.testing.assert_array_equal(run(call(body, ()), np.float32(3), np.float32(4)), np.float32(12))


@pytest.mark.usefixtures("not_in_jax")
@pytest.mark.parametrize("shape", [(0,), (3, 0)])
def test_arrays_without_elements(run: Run, shape: tuple[int, ...]) -> None:
    assert run(call(double, shape), np.zeros(shape, np.float32)).shape == shape


def test_blocks_of_bools_and_bytes(run: Run) -> None:
    x = np.random.default_rng(0).integers(0, 2, (5, 7)).astype(bool)

    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = ~x_ref[...]

    spec = pl.BlockSpec((2, 4), lambda i, j: (i, j))
    kernel = call(body, (5, 7), jnp.bool_, grid=(3, 2), in_specs=[spec], out_specs=spec)
    np.testing.assert_array_equal(run(kernel, x), ~x)


def test_two_results_with_blocks_of_their_own(run: Run) -> None:
    x = random(6, 4)

    def body(x_ref: Any, a_ref: Any, b_ref: Any) -> None:
        a_ref[...] = x_ref[...] + 1
        b_ref[...] = x_ref[...].sum(axis=1)

    shapes = (jax.ShapeDtypeStruct((6, 4), jnp.float32), jax.ShapeDtypeStruct((6,), jnp.float32))
    row = pl.BlockSpec((2, 4), lambda i: (i, 0))
    kernel = pl.pallas_call(
        body,
        shapes,
        grid=(3,),
        in_specs=[row],
        out_specs=(row, pl.BlockSpec((2,), lambda i: (i,))),
        compiler_params=mosaic_gpu.CompilerParams(),
    )
    a, b = run(kernel, x)
    np.testing.assert_array_equal(a, x + 1)
    np.testing.assert_allclose(b, x.sum(axis=1), rtol=1e-6)
