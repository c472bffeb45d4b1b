"""Elementwise arithmetic against XLA on the CPU: exact, on every dtype, on edge values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from mosaic_gpu.errors import UnsupportedError
from tests.support.values import (
    FLOATS,
    FP8,
    INTEGERS,
    NARROW,
    SIGNED,
    assert_same,
    dtype_of,
    edge_pairs,
    edge_values,
    flushed_where_zero,
    random_values,
)

Apply = Callable[..., Any]

INTEGER_BINARY = {
    "add": lax.add,
    "sub": lax.sub,
    "mul": lax.mul,
    "div": lax.div,
    "rem": lax.rem,
    "max": lax.max,
    "min": lax.min,
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
    "xor": lax.bitwise_xor,
    "shift_left": lax.shift_left,
    "shift_right_arithmetic": lax.shift_right_arithmetic,
    "shift_right_logical": lax.shift_right_logical,
    "floor_divide": jnp.floor_divide,
    "mod": jnp.mod,
    "eq": lax.eq,
    "ne": lax.ne,
    "lt": lax.lt,
    "le": lax.le,
    "gt": lax.gt,
    "ge": lax.ge,
}
FLOAT_BINARY = {
    "add": lax.add,
    "sub": lax.sub,
    "mul": lax.mul,
    "div": lax.div,
    "rem": lax.rem,
    "max": lax.max,
    "min": lax.min,
    "mod": jnp.mod,
    "copysign": jnp.copysign,
    "nextafter": lax.nextafter,
    "eq": lax.eq,
    "ne": lax.ne,
    "lt": lax.lt,
    "le": lax.le,
    "gt": lax.gt,
    "ge": lax.ge,
}
INTEGER_UNARY = {
    "neg": lax.neg,
    "sign": lax.sign,
    "not": lax.bitwise_not,
    "population_count": lax.population_count,
    "clz": lax.clz,
    "square": lax.square,
    "cube": lambda x: lax.integer_pow(x, 3),
}
FLOAT_UNARY = {
    "neg": lax.neg,
    "abs": lax.abs,
    "sign": lax.sign,
    "floor": lax.floor,
    "ceil": lax.ceil,
    "round away": lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
    "round even": lambda x: lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN),
    "trunc": jnp.trunc,
    "is_finite": lax.is_finite,
    "isnan": jnp.isnan,
    "isinf": jnp.isinf,
    "signbit": jnp.signbit,
    "square": lax.square,
    "sqrt": lax.sqrt,
    "reciprocal": lambda x: 1 / x,
    "clip": lambda x: jnp.clip(x, -1, 1),
    "nan_to_num": jnp.nan_to_num,
}


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def check_all(elementwise: Apply, functions: dict[str, Callable[..., Any]], *arrays: Any) -> None:
    """All functions in one kernel, each compared with what XLA on the CPU makes of it.

    XLA flushes most subnormal results to zero there; kernels keep them (see the test of subnormal numbers).
    """

    def together(*xs: Any) -> tuple[Any, ...]:
        return tuple(f(*xs) for f in functions.values())

    results = elementwise(together, *arrays)
    results = results if isinstance(results, tuple) else (results,)
    for (name, function), result in zip(functions.items(), results, strict=True):
        expected = jax.jit(function)(*arrays)
        assert_same(flushed_where_zero(result, expected), expected, f"{name} of {arrays[0].dtype}")


@pytest.mark.parametrize("dtype", [*INTEGERS, *NARROW])
def test_integer_operations_agree_on_all_pairs_of_edge_values(elementwise: Apply, dtype: str) -> None:
    check_all(elementwise, INTEGER_BINARY, *edge_pairs(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_operations_agree_on_all_pairs_of_edge_values(elementwise: Apply, dtype: str) -> None:
    check_all(elementwise, FLOAT_BINARY, *edge_pairs(dtype))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_eight_bit_floats_are_computed_in_f32_and_rounded(elementwise: Apply, dtype: str) -> None:
    names = ("add", "sub", "mul", "eq", "lt")
    check_all(elementwise, {n: FLOAT_BINARY[n] for n in names}, *edge_pairs(dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_operations_agree_on_random_pairs(elementwise: Apply, dtype: str) -> None:
    x, y = (random_values(dtype, (7, 37), seed) for seed in (1, 2))
    check_all(elementwise, FLOAT_BINARY, x, y)


@pytest.mark.parametrize("dtype", [*INTEGERS, *NARROW])
def test_integer_functions_agree_on_edge_and_random_values(elementwise: Apply, dtype: str) -> None:
    unsupported = ("clz", "population_count") if dtype in NARROW else ()  # by XLA, which is the reference here
    functions = {name: f for name, f in INTEGER_UNARY.items() if name not in unsupported}
    if dtype in SIGNED:
        functions["abs"] = lax.abs
    check_all(elementwise, functions, np.concatenate([edge_values(dtype), random_values(dtype, (99,))]))


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_functions_agree_on_edge_and_random_values(elementwise: Apply, dtype: str) -> None:
    halves = (np.arange(-9, 10) / 2).astype(dtype_of(dtype))
    check_all(elementwise, FLOAT_UNARY, np.concatenate([edge_values(dtype), random_values(dtype, (99,)), halves]))


def test_bools_compare_and_combine(elementwise: Apply) -> None:
    names = ("max", "min", "and", "or", "xor", "eq", "ne", "lt", "le", "gt", "ge")
    check_all(elementwise, {n: INTEGER_BINARY[n] for n in names}, *edge_pairs("bool"))
    check_all(elementwise, {"not": lax.bitwise_not, "not ": jnp.logical_not}, edge_values("bool"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_subnormal_numbers_are_kept(elementwise: Apply, dtype: str) -> None:
    tiny = np.finfo(dtype).smallest_subnormal
    x = np.array([1, 3, 100, -7], dtype) * tiny

    def body(v: Any) -> tuple[Any, ...]:
        return v + v, v * np.asarray(0.5, dtype), jnp.maximum(v, -v), v - v / 3, abs(v)

    half = np.asarray(0.5, dtype)
    expected = (x + x, x * half, np.maximum(x, -x), x - x / np.asarray(3, dtype), abs(x))
    for result, right in zip(elementwise(body, x), expected, strict=True):
        assert_same(result, right)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_powers_with_integer_exponents(elementwise: Apply, dtype: str) -> None:
    x = np.concatenate([edge_values(dtype), random_values(dtype, (50,))])
    functions = {str(n): (lambda v, n=n: lax.integer_pow(v, n)) for n in (-3, -1, 0, 1, 2, 5)}
    results = elementwise(lambda v: tuple(f(v) for f in functions.values()), x)
    for name, result in zip(functions, results, strict=True):
        with np.errstate(all="ignore"):
            exact = x.astype(np.float64) ** int(name)
            expected = exact.astype(x.dtype)
        wide, right = np.asarray(result).astype(np.float64), expected.astype(np.float64)
        rtol = {"float16": 1e-3, "bfloat16": 8e-3, "float32": 1e-6, "float64": 1e-14}[dtype]
        tiny = float(jnp.finfo(x.dtype).smallest_normal)
        np.testing.assert_allclose(wide, right, rtol=rtol, atol=tiny, err_msg=f"power {name}")


def test_a_scalar_stretches_over_a_tile(elementwise: Apply) -> None:
    x = np.arange(13, dtype=np.int32)
    assert_same(elementwise(lambda v, s: v * s + 3, x, np.int32(5)), x * np.int32(5) + np.int32(3))


@pytest.mark.parametrize("dtype", ["bool", "int32"])
def test_select_n_takes_the_case_that_the_predicate_names(elementwise: Apply, dtype: str) -> None:
    count = 2 if dtype == "bool" else 5
    which = (np.arange(40) % count).astype(dtype)
    cases = [random_values("float32", (40,), seed) for seed in range(count)]
    assert_same(elementwise(lax.select_n, which, *cases), np.choose(np.arange(40) % count, cases))


def test_select_n_by_a_scalar_predicate(elementwise: Apply) -> None:
    cases = [random_values("int16", (3, 5), seed) for seed in range(3)]
    for k in range(3):
        assert_same(elementwise(lax.select_n, np.int32(k), *cases), cases[k])


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
def test_clamp_is_min_of_max_and_keeps_nan(elementwise: Apply, dtype: str) -> None:
    x = edge_values(dtype)
    low, high = np.asarray(1, x.dtype), np.asarray(3, x.dtype)
    check_all(elementwise, {"clamp": lambda v: lax.clamp(low, v, high), "empty": lambda v: lax.clamp(high, v, low)}, x)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(("exponent_bits", "mantissa_bits"), [(5, 10), (8, 7), (4, 3), (5, 2), (8, 23), (11, 52)])
def test_reduce_precision_rounds_like_xla(
    elementwise: Apply, dtype: str, exponent_bits: int, mantissa_bits: int
) -> None:
    scale = np.exp2(np.linspace(-20, 20, 120))
    x = np.concatenate([edge_values(dtype), (random_values("float64", (120,)) * scale).astype(dtype_of(dtype))])
    check_all(elementwise, {"": lambda v: lax.reduce_precision(v, exponent_bits, mantissa_bits)}, x)


@pytest.mark.parametrize("dtype", [d for d in INTEGERS if d != "uint64"])
def test_the_high_half_of_a_product(elementwise: Apply, dtype: str) -> None:
    x, y = edge_pairs(dtype)
    bits = 8 * x.dtype.itemsize
    expected = np.array([(int(a) * int(b)) >> bits for a, b in zip(x, y, strict=True)], object)
    assert_same(elementwise(lax.mulhi, x, y), expected.astype(np.int64).astype(x.dtype))


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_total_order_tells_zeros_and_nans_apart(elementwise: Apply, dtype: str) -> None:
    values = np.array([-np.nan, -np.inf, -1.0, -0.0, 0.0, 1.0, np.inf, np.nan]).astype(dtype_of(dtype))
    order = np.arange(len(values))
    x, y = np.repeat(values, 8), np.tile(values, 8)
    less, at_most, equal = elementwise(
        lambda a, b: (lax.lt_to_p.bind(a, b), lax.le_to_p.bind(a, b), lax.eq_to_p.bind(a, b)), x, y
    )
    np.testing.assert_array_equal(less, np.repeat(order, 8) < np.tile(order, 8))
    np.testing.assert_array_equal(at_most, np.repeat(order, 8) <= np.tile(order, 8))
    np.testing.assert_array_equal(equal, np.repeat(order, 8) == np.tile(order, 8))


@pytest.mark.parametrize("dtype", [*SIGNED, *FLOATS])
def test_case_6_on_every_dtype(elementwise: Apply, dtype: str) -> None:
    x = edge_values(dtype)
    check_all(elementwise, {"abs": jnp.abs, "sign": jnp.sign, "cube": lambda v: lax.mul(lax.mul(v, v), v)}, x)
    assert_same(elementwise(jnp.abs, np.array([-3.2], np.float32)), np.array([3.2], np.float32))


def test_case_16_whole_tiles_of_one_small_integer(elementwise: Apply) -> None:
    for value, dtype in ((-5, np.int8), (-128, np.int8), (200, np.uint8)):
        assert_same(elementwise(lambda v: v + 0, np.full((256,), value, dtype)), np.full((256,), value, dtype))
        made = elementwise(
            lambda v, value=value, dtype=dtype: jnp.full(v.shape, value, dtype), np.zeros(256, np.float32)
        )
        assert_same(made, np.full((256,), value, dtype))


def test_complex_numbers_are_refused_by_name(elementwise: Apply) -> None:
    with pytest.raises(UnsupportedError, match="complex"):
        elementwise(lambda v: jnp.abs(lax.complex(v, v)), np.ones(4, np.float32))


@pytest.mark.parametrize("dtype", FP8)
def test_eight_bit_floats_select_and_negate(elementwise: Apply, dtype: str) -> None:
    x = edge_values(dtype)
    check_all(elementwise, {"where": lambda v: jnp.where(v > 0, v, -v)}, x)
