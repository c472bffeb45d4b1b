"""Indexing by arrays of indices, read and written, in every mode, against jax.numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.support.values import FLOATS, INTEGERS, assert_same, assert_same_as_xla, random_values

Apply = Callable[..., Any]
MODES = ("fill", "clip", "promise_in_bounds")
OUTSIDE = np.array([0, 2, -1, 7, -8, 8, -9, 100, 3, 3], np.int32)
INSIDE = np.array([0, 2, 5, 7, 1, 1], np.int32)


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("index_dtype", ["int32", "int64", "int8"])
def test_reads_in_every_mode(elementwise: Apply, mode: str, index_dtype: str) -> None:
    x, k = random_values("float32", (8, 13)), (INSIDE if mode.startswith("p") else OUTSIDE).astype(index_dtype)
    assert_same_as_xla(elementwise, lambda v, i: (v.at[i].get(mode=mode), v.at[:, i].get(mode=mode)), x, k)


@pytest.mark.parametrize("mode", ["fill", "clip", "wrap"])
def test_take_wraps_fills_or_clips(elementwise: Apply, mode: str) -> None:
    x = random_values("float32", (8, 13))
    assert_same_as_xla(
        elementwise, lambda v, i: (jnp.take(v, i, axis=0, mode=mode), jnp.take(v, i, mode=mode)), x, OUTSIDE
    )


@pytest.mark.parametrize("dtype", ["bool", *FLOATS, *INTEGERS])
def test_the_fill_value_of_every_dtype(elementwise: Apply, dtype: str) -> None:
    x = random_values(dtype, (8, 3))
    assert_same_as_xla(
        elementwise, lambda v, i: (v.at[i].get(mode="fill"), v.at[i].get(mode="fill", fill_value=1)), x, OUTSIDE
    )


INDEXINGS: dict[str, Callable[..., Any]] = {
    "rows": lambda x, i, j: x[i],
    "columns": lambda x, i, j: x[:, i],
    "points": lambda x, i, j: x[i, j],
    "grid": lambda x, i, j: x[i[:, None], j[None, :]],
    "matrix of rows": lambda x, i, j: x[jnp.stack([i, j])],
    "scalar row": lambda x, i, j: x[i[0]],
    "scalar element": lambda x, i, j: x[i[0], j[1]],
    "row of slices": lambda x, i, j: x[i, 2:9:3],
    "with new axis": lambda x, i, j: x[None, ..., i],
    "along axis": lambda x, i, j: jnp.take_along_axis(x, jnp.broadcast_to(i, (8, 6)), axis=1),
    "along the other axis": lambda x, i, j: jnp.take_along_axis(x, jnp.broadcast_to(i[:, None], (6, 13)), axis=0),
    "mapped rows": lambda x, i, j: jax.vmap(lambda row: row[i])(x),
    "mapped indices": lambda x, i, j: jax.vmap(lambda row, k: row[k])(x[:6], jnp.stack([i, j], 1)),
    "choose": lambda x, i, j: jnp.choose(i % 2, [x[0, :6], x[1, :6]], mode="wrap"),
    "boolean": lambda x, i, j: jnp.where(x > 0, size=11, fill_value=-1),
    "compress": lambda x, i, j: jnp.compress(x[:, 0] > 0, x, axis=0, size=4, fill_value=0),
}


@pytest.mark.parametrize("name", INDEXINGS)
def test_indexing_by_arrays(elementwise: Apply, name: str) -> None:
    assert_same_as_xla(elementwise, INDEXINGS[name], random_values("float32", (8, 13)), INSIDE, INSIDE[::-1].copy())


def test_slices_of_several_dimensions_at_gathered_places(elementwise: Apply) -> None:
    x = random_values("float32", (7, 9, 5))
    k = np.array([[0, 0], [3, 4], [6, 8], [-5, 2]], np.int32)
    numbers = lax.GatherDimensionNumbers(offset_dims=(0, 2), collapsed_slice_dims=(2,), start_index_map=(1, 0))

    def body(v: Any, i: Any) -> tuple[Any, ...]:
        return tuple(lax.gather(v, i, numbers, (3, 4, 1), mode=mode) for mode in ("clip", "fill"))

    assert_same_as_xla(elementwise, body, x, k)


UPDATES = ("set", "add", "subtract", "multiply", "divide", "min", "max", "power")


@pytest.mark.parametrize("name", UPDATES)
@pytest.mark.parametrize("mode", ["drop", "clip", None])
def test_updates_with_duplicates_and_indices_outside(elementwise: Apply, name: str, mode: str | None) -> None:
    x = np.abs(random_values("float32", (8, 5))) + np.float32(0.5)
    y = np.abs(random_values("float32", (10, 5), 1)) + np.float32(0.5)
    if name == "power":
        x, y = np.float32(2) * np.ones_like(x), np.float32(2) * np.ones_like(y)

    def body(v: Any, i: Any, u: Any) -> Any:
        return getattr(v.at[i], name)(u, mode=mode)

    expected = jax.jit(body)(x, OUTSIDE, y)
    np.testing.assert_allclose(elementwise(body, x, OUTSIDE, y), expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [*INTEGERS, "float16", "bfloat16", "float64"])
def test_duplicates_accumulate_in_every_dtype(elementwise: Apply, dtype: str) -> None:
    x = np.zeros((5,), random_values(dtype, (1,)).dtype)
    k = np.array([1, 3, 1, 1, 4, 3, 0], np.int32)
    u = np.arange(1, 8).astype(x.dtype)
    expected = np.zeros(5)
    np.add.at(expected, k, np.arange(1, 8))
    assert_same(elementwise(lambda v, i, w: v.at[i].add(w), x, k, u), expected.astype(x.dtype))


def test_the_last_of_several_writes_stays(elementwise: Apply) -> None:
    k = np.array([2, 0, 2, 2, 0], np.int32)
    result = elementwise(
        lambda v, i, w: v.at[i].set(w), np.zeros(4, np.float32), k, np.arange(1.0, 6.0, dtype=np.float32)
    )
    assert_same(result, np.array([5, 0, 4, 0], np.float32))


SCATTERS: dict[str, Callable[..., Any]] = {
    "points": lambda x, i, u: x.at[i, i].add(u[:, 0]),
    "columns": lambda x, i, u: x.at[:, i].set(u[:, :6].T[:, :6].sum()),
    "grid": lambda x, i, u: x.at[i[:, None], i[None, :]].add(u[:6, :6]),
    "slice": lambda x, i, u: x.at[1:3, ::2].set(u[0, 0]),
    "slice add": lambda x, i, u: x.at[1:3].add(2.0),
    "unique": lambda x, i, u: x.at[jnp.arange(6)].add(u, unique_indices=True),
    "unique set": lambda x, i, u: x.at[jnp.arange(6)[::-1]].set(u, unique_indices=True),
    "one row": lambda x, i, u: x.at[i[1]].add(u[0]),
    "one element": lambda x, i, u: x.at[i[1], i[2]].set(7.0),
    "mapped": lambda x, i, u: jax.vmap(lambda row: row.at[i].add(1.0))(x),
    "mapped indices": lambda x, i, u: jax.vmap(lambda row, k: row.at[k].set(5.0))(x[:6], jnp.stack([i, i + 1], 1)),
    "apply": lambda x, i, u: x.at[jnp.array(i[:2])].apply(lambda v: v * 2 + 1),
    "segment sum": lambda x, i, u: jax.ops.segment_sum(u, i, num_segments=8),
    "segment max": lambda x, i, u: jax.ops.segment_max(u, i, num_segments=8),
    "count": lambda x, i, u: jnp.bincount(i, length=9),
}


@pytest.mark.parametrize("name", SCATTERS)
def test_scatters_of_many_kinds(elementwise: Apply, name: str) -> None:
    x, u = random_values("float32", (8, 13)), random_values("float32", (6, 13), 1)
    expected = jax.jit(SCATTERS[name])(x, INSIDE, u)
    np.testing.assert_allclose(elementwise(SCATTERS[name], x, INSIDE, u), expected, rtol=1e-6, atol=1e-6)


def test_gradients_of_gathers_scatter(elementwise: Apply) -> None:
    x = random_values("float32", (8, 5))
    assert_same_as_xla(elementwise, lambda v, i: jax.grad(lambda w: (w[i] * 3).sum())(v), x, INSIDE)


def test_indices_of_nothing(elementwise: Apply) -> None:
    x = random_values("float32", (4, 5))
    assert_same_as_xla(elementwise, lambda v: (v[jnp.arange(0)], v.at[jnp.arange(0)].add(1.0)), x)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_case_4_gathers_of_elements_and_rows(elementwise: Apply, dtype: str) -> None:
    x, rows = random_values("float32", (16,)), random_values("float32", (16, 8), 1)
    k = np.array([0, 2, 5, 7, 11, 13, 14, 15]).astype(dtype)
    assert_same(elementwise(lambda v, i: v[i], x, k), x[k])
    assert_same(elementwise(lambda v, i: v[i], rows, k[:4]), rows[k[:4]])


def test_searches_and_histograms(elementwise: Apply) -> None:
    edges, x = np.sort(random_values("float32", (9,))), random_values("float32", (40,), 1)
    for method in ("scan", "scan_unrolled", "sort", "compare_all"):
        assert_same_as_xla(elementwise, lambda e, v, m=method: jnp.searchsorted(e, v, method=m), edges, x)
    assert_same_as_xla(
        elementwise, lambda e, v: (jnp.digitize(v, e), jnp.interp(v, e, e) >= e[0], jnp.isin(v, v[:3])), edges, x
    )
