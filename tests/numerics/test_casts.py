"""Conversions between all dtypes against XLA on the CPU, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest
from jax import lax

from tests.support.values import (
    FLOATS,
    FP8,
    INTEGERS,
    NARROW,
    assert_same,
    dtype_of,
    edge_values,
    random_values,
)

Apply = Callable[..., Any]
ALL = ("bool", *INTEGERS, *NARROW, *FLOATS, *FP8)


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def interesting(name: str) -> Any:
    """Edge and random values of a dtype; of floats also those around the ends of every integer's range."""
    values = [edge_values(name), random_values(name, (67,))]
    if name in FLOATS:
        powers = 2.0 ** np.arange(0, 66)
        ends = np.concatenate([powers, powers - 1, powers + 1, powers * 0.999, powers * 1.5])
        with np.errstate(over="ignore"):
            values += [ends.astype(dtype_of(name)), (-ends).astype(dtype_of(name)), random_values(name, (60,), 3, 1e-3)]
    return np.concatenate(values)


@pytest.mark.parametrize("source", ALL)
def test_every_dtype_converts_to_every_other_as_in_xla(elementwise: Apply, source: str) -> None:
    targets = [t for t in ALL if t != source]
    x = interesting(source)
    results = elementwise(lambda v: tuple(lax.convert_element_type(v, dtype_of(t)) for t in targets), x)
    for target, result in zip(targets, results, strict=True):
        expected = jax.jit(lambda v, t=target: lax.convert_element_type(v, dtype_of(t)))(x)
        assert_same(result, expected, f"{source} to {target}")


@pytest.mark.parametrize("target", ["float8_e4m3fn", "float8_e5m2"])
def test_f64_is_rounded_to_fp8_once(elementwise: Apply, target: str) -> None:
    x = 1 + np.array([1, 1, 3, 3]) / 2 ** (5 if target.endswith("fn") else 4) * 2 + np.array([1, -1, 1, -1]) * 2.0**-45
    x = np.concatenate([x, -x, random_values("float64", (200,))])
    result = elementwise(lambda v: v.astype(dtype_of(target)), x)
    assert_same(result, jax.jit(lambda v: v.astype(dtype_of(target)))(x))
    assert_same(result[:2], np.array([1.125, 1.0] if target.endswith("fn") else [1.25, 1.0]).astype(result.dtype))


def test_f64_is_rounded_to_f16_once(elementwise: Apply) -> None:
    x = np.array([16384 + 8 + 2.0**-20, 1 + 2.0**-11 + 2.0**-40, 1 + 2.0**-11])
    assert_same(elementwise(lambda v: v.astype(np.float16), x), x.astype(np.float16))


SAME_WIDTH = [("float32", "int32"), ("int32", "float32"), ("uint16", "bfloat16"), ("float64", "int64")]
SAME_WIDTH += [("int8", "float8_e4m3fn"), ("float8_e5m2", "uint8"), ("uint32", "int32"), ("int4", "uint4")]


@pytest.mark.parametrize(("source", "target"), SAME_WIDTH)
def test_bits_under_another_dtype_of_the_same_width(elementwise: Apply, source: str, target: str) -> None:
    x = np.concatenate([edge_values(source), random_values(source, (50,))])
    result = elementwise(lambda v: lax.bitcast_convert_type(v, dtype_of(target)), x)
    expected = x.view(dtype_of(target))
    assert np.asarray(result).dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(result).view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize(
    ("source", "target"),
    [("float32", "int8"), ("int64", "uint16"), ("float64", "float32"), ("uint16", "uint8"), ("int32", "bfloat16")],
)
def test_bits_of_a_wide_dtype_as_several_of_a_narrow_one_and_back(elementwise: Apply, source: str, target: str) -> None:
    x = random_values(source, (3, 5))
    narrow, back = elementwise(
        lambda v: (
            lax.bitcast_convert_type(v, dtype_of(target)),
            lax.bitcast_convert_type(lax.bitcast_convert_type(v, dtype_of(target)), dtype_of(source)),
        ),
        x,
    )
    expected = x.view(dtype_of(target)).reshape(3, 5, -1)
    np.testing.assert_array_equal(np.asarray(narrow).view(np.uint8), expected.view(np.uint8))
    assert_same(back, x)


def test_bits_as_four_bit_integers_and_back(elementwise: Apply) -> None:
    x = random_values("uint8", (3, 4))
    small, wide = elementwise(
        lambda v: (
            lax.bitcast_convert_type(v, dtype_of("uint4")),
            lax.bitcast_convert_type(lax.bitcast_convert_type(v, dtype_of("int4")), np.uint8),
        ),
        x,
    )
    expected = np.stack([x & 15, x >> 4], axis=-1)
    np.testing.assert_array_equal(np.asarray(small).astype(np.uint8), expected)
    assert small.dtype == ml_dtypes.uint4
    assert_same(wide, x)


def test_a_scalar_is_split_into_words(elementwise: Apply) -> None:
    assert_same(
        elementwise(lambda v: lax.bitcast_convert_type(v, np.uint32), np.uint64(5 << 32 | 7)),
        np.array([7, 5], np.uint32),
    )
