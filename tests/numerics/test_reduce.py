"""Reductions over any axes, on every dtype and odd sizes, against NumPy."""

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

import mosaic_gpu
from tests.support.calls import call
from tests.support.values import FLOATS, INTEGERS, assert_same, dtype_of, edge_values, random_values

Apply = Callable[..., Any]

SHAPES_AND_AXES = [
    ((1,), (0,)),
    ((7,), (0,)),
    ((100,), (0,)),
    ((1000,), (0,)),
    ((5, 37), (0,)),
    ((5, 37), (1,)),
    ((5, 37), (0, 1)),
    ((64, 33), (0,)),
    ((3, 4, 50), (1,)),
    ((3, 4, 50), (0, 2)),
    ((2, 3, 4, 5), (1, 3)),
]


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize(("shape", "axes"), SHAPES_AND_AXES)
def test_named_reductions_over_any_axes(elementwise: Apply, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = random_values("int32", shape)
    functions = (jnp.sum, jnp.prod, jnp.max, jnp.min)
    numpys = (np.sum, np.prod, np.max, np.min)
    results = elementwise(lambda v: tuple(f(v, axis=axes, dtype=np.int32) for f in functions[:2]), x)
    results += elementwise(lambda v: tuple(f(v, axis=axes) for f in functions[2:]), x)
    for result, numpy in zip(results, numpys, strict=True):
        wrapped = numpy(x, axis=axes, **({"dtype": np.int32} if numpy in (np.sum, np.prod) else {}))
        assert_same(result, np.asarray(wrapped))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_around(elementwise: Apply, dtype: str) -> None:
    x = random_values(dtype, (131,))
    expected = (x.sum(dtype=x.dtype), x.prod(dtype=x.dtype), x.max(), x.min())
    bits = (np.bitwise_and.reduce(x), np.bitwise_or.reduce(x), np.bitwise_xor.reduce(x))

    def body(v: Any) -> tuple[Any, ...]:
        sums = jnp.sum(v, dtype=v.dtype), jnp.prod(v, dtype=v.dtype), v.max(), v.min()
        return (*sums, *(f.reduce(v) for f in (jnp.bitwise_and, jnp.bitwise_or, jnp.bitwise_xor)))

    for result, right in zip(elementwise(body, x), (*expected, *bits), strict=True):
        assert_same(result, np.asarray(right, x.dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_of_narrow_floats_are_rounded_once(elementwise: Apply, dtype: str) -> None:
    x = random_values(dtype, (9, 1001), scale=0.5)
    total, mean = elementwise(lambda v: (v.sum(axis=1), v.mean(axis=1)), x)
    exact = x.astype(np.float64).sum(axis=1)
    rtol = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 3e-6, "float64": 1e-13}[dtype]
    atol = 1e-4 if dtype in ("float16", "float32", "bfloat16") else 1e-13
    np.testing.assert_allclose(np.asarray(total).astype(np.float64), exact, rtol=rtol, atol=atol)
    np.testing.assert_allclose(np.asarray(mean).astype(np.float64), exact / 1001, rtol=rtol, atol=atol)


def test_a_sum_beyond_f16s_precision_is_accumulated_in_f32(elementwise: Apply) -> None:
    x = np.ones((4096,), np.float16)
    assert_same(elementwise(lambda v: v.sum(), x), np.float16(4096))


@pytest.mark.parametrize("dtype", FLOATS)
def test_extremes_see_nan_infinities_and_signed_zeros(elementwise: Apply, dtype: str) -> None:
    values = edge_values(dtype)
    finite = values[~np.isnan(values.astype(np.float64))]
    zeros = np.array([-0.0, 0.0, -0.0]).astype(dtype_of(dtype))
    for x in (values, finite, zeros):
        high, low = elementwise(lambda v: (lax.reduce_max(v, (0,)), lax.reduce_min(v, (0,))), x)
        assert_same(high, np.asarray(jnp.maximum.reduce(x)))
        assert_same(low, np.asarray(jnp.minimum.reduce(x)))


def test_bools_are_reduced_by_logic(elementwise: Apply) -> None:
    x = random_values("bool", (5, 70)) | (np.arange(5) == 2)[:, None]
    every, some, count = elementwise(lambda v: (v.all(axis=1), v.any(axis=0), v.sum()), x)
    assert_same(every, x.all(axis=1))
    assert_same(some, x.any(axis=0))
    assert int(count) == int(x.sum())


@pytest.mark.parametrize("dtype", [*FLOATS, "int8", "int32", "int64", "uint8", "uint64", "bool"])
def test_argmax_and_argmin_give_the_first_of_equals(elementwise: Apply, dtype: str) -> None:
    x = (np.random.default_rng(5).integers(0, 4, (6, 45))).astype(dtype_of(dtype))
    high, low = elementwise(lambda v: (lax.argmax(v, 1, np.int32), lax.argmin(v, 1, np.int32)), x)
    wide = x.astype(np.float64)
    assert_same(high, wide.argmax(axis=1).astype(np.int32))
    assert_same(low, wide.argmin(axis=1).astype(np.int32))


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_first_nan_is_the_extreme(elementwise: Apply, dtype: str) -> None:
    x = random_values(dtype, (3, 20))
    x[1, 7] = x[1, 9] = np.nan
    x[2] = -np.inf
    high, low = elementwise(lambda v: (jnp.argmax(v, axis=1), jnp.argmin(v, axis=1)), x)
    expected = jax.jit(lambda v: (jnp.argmax(v, axis=1), jnp.argmin(v, axis=1)))(x)
    assert_same(high, expected[0])
    assert_same(low, expected[1])
    assert int(high[1]) == 7


def test_argmax_of_the_flattened_array(elementwise: Apply) -> None:
    x = random_values("float32", (13, 21))
    assert int(elementwise(jnp.argmax, x)) == int(x.argmax())


def test_reduce_with_any_function_and_any_start(elementwise: Apply) -> None:
    x = random_values("float32", (11, 30), scale=0.3)

    def add_with_start(v: Any) -> Any:
        return lax.reduce(v, np.float32(5), lambda a, b: a + b * np.float32(1), (1,))

    np.testing.assert_allclose(elementwise(add_with_start, x), x.sum(axis=1, dtype=np.float64) + 5, rtol=1e-5)


def test_several_operands_of_different_dtypes_are_reduced_together(elementwise: Apply) -> None:
    values, labels = random_values("float32", (4, 33)), np.tile(np.arange(33, dtype=np.int8), (4, 1))

    def best(v: Any, n: Any) -> Any:
        def pick(a: Any, b: Any) -> Any:
            wins = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
            return jnp.where(wins, a[0], b[0]), jnp.where(wins, a[1], b[1])

        return lax.reduce((v, n), (np.float32(-np.inf), np.int8(127)), pick, (1,))

    high, label = elementwise(best, values, labels)
    assert_same(high, values.max(axis=1))
    assert_same(label, values.argmax(axis=1).astype(np.int8))


@pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0)])
def test_reducing_nothing_gives_the_identity(elementwise: Apply, shape: tuple[int, ...]) -> None:
    x = np.ones((5,), np.float32)

    def body(v: Any) -> tuple[Any, ...]:
        nothing = jnp.broadcast_to(v[0], shape)
        return nothing.sum(), nothing.prod(), nothing.sum(axis=0), nothing.max(axis=-1, initial=-2.0)

    expected = jax.jit(body)(x)
    for result, right in zip(elementwise(body, x), expected, strict=True):
        assert_same(result, right)


def test_case_3_softmax_mean_and_variance(elementwise: Apply) -> None:
    for shape in ((32, 64), (2048, 64)):
        x = random_values("float32", shape)

        def body(v: Any) -> tuple[Any, ...]:
            return jax.nn.softmax(v, axis=-1), v.mean(axis=-1, keepdims=True), v.var(axis=0), v.mean(axis=0)

        wide = x.astype(np.float64)
        powers = np.exp(wide - wide.max(axis=-1, keepdims=True))
        soft = powers / powers.sum(axis=-1, keepdims=True)
        right = (soft, wide.mean(axis=-1, keepdims=True), wide.var(axis=0), wide.mean(axis=0))
        for result, exact in zip(elementwise(body, x), right, strict=True):
            np.testing.assert_allclose(result, exact, rtol=1e-5, atol=1e-6)


def test_case_3_bf16_in_with_f32_accumulation(elementwise: Apply) -> None:
    x = random_values("bfloat16", (32, 64))
    result = elementwise(lambda v: v.astype(jnp.float32).sum(axis=-1), x)
    np.testing.assert_allclose(result, x.astype(np.float64).sum(axis=-1), rtol=1e-5, atol=1e-5)


def test_case_14_one_large_value_among_32(elementwise: Apply) -> None:
    x = np.zeros((32,), np.int64)
    x[0] = 1 << 40
    total, high, low, either = elementwise(lambda v: (v.sum(), v.max(), (-v).min(), jnp.bitwise_or.reduce(v)), x)
    assert [int(total), int(high), -int(low), int(either)] == [1 << 40] * 4


@pytest.mark.parametrize("size", [48, 96, 192, 384])
def test_case_15_sums_of_sizes_that_are_no_power_of_two(elementwise: Apply, size: int) -> None:
    for dtype in (np.int32, np.float32):
        x = np.arange(1, size + 1).astype(dtype)
        assert int(elementwise(lambda v: v.sum(dtype=v.dtype), x)) == size * (size + 1) // 2


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
def test_any_shape_over_any_axes(elementwise: Apply, data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3)))
    axes = tuple(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1)))
    x = random_values("int32", shape, seed=7)
    total, high = elementwise(lambda v: (v.sum(axis=axes, dtype=np.int32), v.max(axis=axes)), x)
    assert_same(total, np.asarray(x.sum(axis=axes, dtype=np.int32)))
    assert_same(high, np.asarray(x.max(axis=axes)))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_pooling_windows(elementwise: Apply, dtype: str, padding: str) -> None:
    x = (random_values("int8", (13, 10)) % 8).astype(dtype_of(dtype))
    low = x.dtype.type(-np.inf) if dtype != "int32" else np.int32(np.iinfo(np.int32).min)

    def body(v: Any) -> tuple[Any, ...]:
        largest = lax.reduce_window(v, low, lax.max, (3, 2), (2, 2), padding)
        total = lax.reduce_window(v, x.dtype.type(0), lax.add, (2, 3), (1, 2), padding, window_dilation=(2, 1))
        return largest, total

    for result, right in zip(elementwise(body, x), jax.jit(body)(x), strict=True):
        assert_same(result, right)


@pytest.mark.parametrize(
    "combine",
    [
        lambda a, b: lax.fori_loop(0, 3, lambda i, c: c + b, a),
        lambda a, b: lax.cond(a > b, lambda: jnp.sin(a), lambda: jnp.cos(b)),
    ],
)
def test_a_loop_or_branch_in_the_function_of_a_reduction_is_refused_by_name(combine: Callable[..., Any]) -> None:
    def kernel(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = lax.reduce(x_ref[...], np.float32(0), combine, (1,))

    with pytest.raises(mosaic_gpu.UnsupportedError, match="a loop or a branch"):
        mosaic_gpu.compile(call(kernel, (8,)), jax.ShapeDtypeStruct((8, 16), jnp.float32))
