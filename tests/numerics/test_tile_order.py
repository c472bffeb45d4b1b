"""Matrix products with so many tiles that they are done in groups of rows: each tile once, on any grid."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import mosaic_gpu
from tests.support.backends import Run
from tests.support.calls import call, random

TILE = 32


def product(x: Any, y: Any, rows: Any = None, columns: Any = None) -> Any:
    """x (.., m, 32) @ y (.., 32, n), bfloat16, in float32, by tiles of 32 by 32; the grid may be traced."""
    *batch, m, _ = x.shape
    n = y.shape[-1]
    ones = (1,) * len(batch)

    def kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
        tile = jnp.dot(
            x_ref[...].reshape(TILE, TILE), y_ref[...].reshape(TILE, TILE), preferred_element_type=jnp.float32
        )
        place = 1000 * pl.program_id(len(batch)) + pl.program_id(len(batch) + 1)
        o_ref[...] = (tile + place.astype(tile.dtype)).reshape(o_ref.shape)

    grid = (
        *batch,
        pl.cdiv(m, TILE) if rows is None else rows,
        pl.cdiv(n, TILE) if columns is None else columns,
    )
    return call(
        kernel,
        (*batch, m, n),
        grid=grid,
        in_specs=[
            pl.BlockSpec((*ones, TILE, TILE), lambda *ids: (*ids[:-1], 0)),
            pl.BlockSpec((*ones, TILE, TILE), lambda *ids: (*ids[:-2], 0, ids[-1])),
        ],
        out_specs=pl.BlockSpec((*ones, TILE, TILE), lambda *ids: ids),
    )(x, y)


def halves(*shape: int) -> Any:
    """Random numbers, bfloat16."""
    return random(*shape).astype(jnp.bfloat16)


def expected(x: Any, y: Any) -> Any:
    """The same in NumPy."""
    found = np.matmul(x.astype(np.float64), y.astype(np.float64))
    i, j = np.indices(found.shape[-2:]) // TILE
    return found + 1000 * i + j


def is_grouped(function: Any, *arrays: Any) -> bool:
    """Whether a kernel for Hopper takes its tiles in groups: then its grid, or its walk, is of one dimension."""
    kernel = mosaic_gpu.compile(function, *arrays, target="sm_90a")
    before, after = kernel.ir("dialect"), kernel.ir("layouts")
    return after.count("arith.divui") >= before.count("arith.divui") + 2


@pytest.mark.parametrize(("m", "n"), [(10, 9), (16, 20), (17, 33), (1, 200), (33, 9), (3, 50)])
def test_each_tile_is_done_once(run: Run, m: int, n: int) -> None:
    x, y = halves(TILE * m - 3, TILE), halves(TILE, TILE * n - 5)
    found = is_grouped(product, x, y)
    assert found == (m > 1)
    np.testing.assert_allclose(run(product, x, y), expected(x, y), rtol=1e-5, atol=1e-4)


def test_the_matrices_of_a_batch_come_one_after_another(run: Run) -> None:
    x, y = halves(3, TILE * 5, TILE), halves(3, TILE, TILE * 18)
    found = is_grouped(product, x, y)
    assert found
    np.testing.assert_allclose(run(product, x, y), expected(x, y), rtol=1e-5, atol=1e-4)


@pytest.mark.usefixtures("not_in_jax")
@pytest.mark.parametrize("traced", ["rows", "columns", "both"])
@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize(("m", "n"), [(18, 11), (1, 1), (17, 20)])
def test_a_walk_does_each_tile_once(run: Run, traced: str, batch: tuple[int, ...], m: int, n: int) -> None:
    x, y = halves(*batch, TILE * m, TILE), halves(*batch, TILE, TILE * n)

    known = {"rows": m, "columns": n}
    names = list(known) if traced == "both" else [traced]

    def function(*operands: Any) -> Any:
        *bounds, x, y = operands
        return product(x, y, **known | dict(zip(names, bounds, strict=True)))

    operands = (*(known[name] for name in names), x, y)
    found = is_grouped(function, *operands)
    assert found or min(m, n) == 1
    np.testing.assert_allclose(run(function, *operands), expected(x, y), rtol=1e-5, atol=1e-4)


def test_attention_keeps_its_order() -> None:
    def kernel(q_ref: Any, k_ref: Any, o_ref: Any) -> None:
        o_ref[...] = jnp.dot(q_ref[0], k_ref[0])[None].astype(o_ref.dtype)

    q, k = (jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in ((20, 1280, 32), (20, 32, 32)))
    specs = [pl.BlockSpec((1, 32, 32), lambda h, i: (h, i, 0)), pl.BlockSpec((1, 32, 32), lambda h, i: (h, 0, 0))]
    function = call(kernel, q.shape, q.dtype, grid=(20, 40), in_specs=specs, out_specs=specs[0])
    found = is_grouped(function, q, k)
    assert not found
