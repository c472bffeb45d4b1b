"""Sorting: stable, by several keys, any dtype and size, NaN last, against XLA on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jax import lax

from mosaic_gpu.errors import UnsupportedError
from tests.support.values import FLOATS, FP8, INTEGERS, assert_same, assert_same_as_xla, edge_values, random_values

Apply = Callable[..., Any]


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("dtype", ["bool", *INTEGERS, *FLOATS, *FP8])
def test_every_dtype_with_edge_values(elementwise: Apply, dtype: str) -> None:
    edges = edge_values(dtype)
    if dtype.endswith("fnuz"):
        edges = edges[~np.isnan(edges.astype(np.float32))]  # XLA on the CPU puts these NaNs first, here they are last
    x = np.concatenate([edges, random_values(dtype, (30,)), edges[::-1]])
    assert_same_as_xla(elementwise, lambda v: (jnp.sort(v), jnp.argsort(v)), x)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 17, 31, 32, 33, 100, 128, 129, 500])
def test_every_size_not_only_powers_of_two(elementwise: Apply, size: int) -> None:
    x = random_values("float32", (size,))
    assert_same(elementwise(jnp.sort, x), np.sort(x))


@pytest.mark.parametrize(("shape", "axis"), [((5, 20), 1), ((20, 5), 0), ((3, 11, 4), 1), ((64, 33), 0)])
def test_along_any_axis(elementwise: Apply, shape: tuple[int, ...], axis: int) -> None:
    x = random_values("int16", shape) % 50
    order = np.argsort(x, axis=axis, kind="stable")
    result, places = elementwise(lambda v: (jnp.sort(v, axis=axis), jnp.argsort(v, axis=axis)), x)
    assert_same(result, np.sort(x, axis=axis))
    np.testing.assert_array_equal(places, order)


@pytest.mark.parametrize("keys", [1, 2, 3])
def test_several_operands_of_which_some_are_keys(elementwise: Apply, keys: int) -> None:
    first, second = random_values("int8", (90,)) % 3, (random_values("float32", (90,), 1) * 2).round()
    third, fourth = random_values("uint16", (90,), 2), random_values("bool", (90,), 3)
    assert_same_as_xla(elementwise, lambda *v: lax.sort(v, num_keys=keys), first, second, third, fourth)


def test_a_tile_that_fills_shared_memory(elementwise: Apply) -> None:
    x = random_values("float32", (32, 1000)).round(1)
    result, order = elementwise(lambda v: (jnp.sort(v), jnp.argsort(v)), x)
    expected = np.argsort(x, kind="stable")
    np.testing.assert_array_equal(order, expected)
    assert_same(result, np.take_along_axis(x, expected, axis=1))


def test_equal_keys_keep_their_order(elementwise: Apply) -> None:
    x = np.tile(np.array([2, 1, 2, 0], np.int32), 20)
    np.testing.assert_array_equal(elementwise(jnp.argsort, x), np.argsort(x, kind="stable"))


def test_descending_and_lexicographic_orders(elementwise: Apply) -> None:
    x, y = random_values("int32", (40,)) % 5, random_values("int32", (40,), 1) % 5
    assert_same_as_xla(elementwise, lambda a, b: (jnp.sort(a, descending=True), jnp.lexsort((a, b))), x, y)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int32", "uint8", "int64"])
def test_top_k_with_edge_values_and_equals(elementwise: Apply, dtype: str) -> None:
    x = np.stack(
        [np.concatenate([edge_values(dtype), edge_values(dtype)]), random_values(dtype, (2 * len(edge_values(dtype)),))]
    )
    assert_same_as_xla(elementwise, lambda v: (*lax.top_k(v, 1), *lax.top_k(v, 7), *lax.top_k(v, v.shape[1])), x)


def test_top_k_along_another_axis_and_of_a_single_element(elementwise: Apply) -> None:
    assert_same_as_xla(
        elementwise, lambda v: (*lax.top_k(v, 2, axis=0), *lax.top_k(v[:, :1], 1)), random_values("float32", (9, 4))
    )


def test_approximate_top_k_is_exact(elementwise: Apply) -> None:
    x = random_values("float32", (4, 70))
    largest, where = elementwise(lambda v: lax.approx_max_k(v, 5), x)
    assert_same(largest, -np.sort(-x, axis=1)[:, :5])
    np.testing.assert_array_equal(np.take_along_axis(x, np.asarray(where), 1), largest)
    assert_same(elementwise(lambda v: lax.approx_min_k(v, 5)[0], x), np.sort(x, axis=1)[:, :5])


def test_partial_aggregates_of_approximate_top_k_are_refused(elementwise: Apply) -> None:
    with pytest.raises(UnsupportedError, match="aggregate_to_topk"):
        elementwise(lambda v: lax.approx_max_k(v, 5, aggregate_to_topk=False)[0], random_values("float32", (4, 70)))


def test_what_is_built_on_sorting(elementwise: Apply) -> None:
    x = random_values("float32", (6, 21))

    def body(v: Any) -> tuple[Any, ...]:
        parted = jnp.sort(jnp.partition(v, 4, axis=1)[:, :4], axis=1)
        return jnp.median(v, axis=1), parted, jnp.unique(jnp.round(v).ravel(), size=9, fill_value=99)

    assert_same_as_xla(elementwise, body, x)
    np.testing.assert_allclose(
        elementwise(lambda v: jnp.quantile(v, 0.3, axis=1), x), np.quantile(x, 0.3, axis=1), rtol=1e-5
    )


def test_sorting_nothing(elementwise: Apply) -> None:
    assert_same_as_xla(
        elementwise, lambda v: (jnp.sort(v[:, :0]), jnp.sort(v[:0]), lax.top_k(v, 0)[0]), random_values("int32", (3, 4))
    )


def test_gradients_go_to_where_elements_came_from(elementwise: Apply) -> None:
    x, w = random_values("float32", (19,)), random_values("float32", (19,), 1)
    assert_same_as_xla(elementwise, lambda v, u: jax.grad(lambda a: (jnp.sort(a) * u).sum())(v), x, w)


@given(size=st.integers(1, 150), rows=st.integers(1, 5), seed=st.integers(0, 99))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=12)
def test_any_number_of_rows_of_any_length(elementwise: Apply, size: int, rows: int, seed: int) -> None:
    x = random_values("uint8", (rows, size), seed) % 16
    result, order = elementwise(lambda v: (jnp.sort(v), jnp.argsort(v)), x)
    assert_same(result, np.sort(x))
    np.testing.assert_array_equal(order, np.argsort(x, axis=-1, kind="stable"))
