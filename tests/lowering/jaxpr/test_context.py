"""Constants, types of values, and the walk over equations."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import mosaic_gpu
from mosaic_gpu import dialect
from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.lowering.jaxpr.context import aval_type, constant
from tests.support.calls import call
from tests.support.dialect_ir import lowered, named


def text(value: Any, shape: tuple[int, ...], dtype: Any) -> str:
    """A constant as it is printed, without its name."""
    with ir.Context(), ir.Location.unknown():
        dialect.load()
        module = ir.Module.create()
        with ir.InsertionPoint(module.body), jax.enable_x64(True):
            made = constant(value, jax.core.ShapedArray(shape, np.dtype(dtype)))
        return str(made.owner).split("arith.constant ")[1]


@pytest.mark.parametrize(
    ("value", "shape", "dtype", "expected"),
    [
        (2**32 - 1, (), np.uint32, "-1 : i32"),
        (2**64 - 2, (), np.uint64, "-2 : i64"),
        (-(2**63), (), np.int64, "-9223372036854775808 : i64"),
        (200, (2, 3), np.uint8, "dense<-56> : tensor<2x3xi8>"),
        (True, (), np.bool_, "true"),
        (1.5, (4,), np.float16, "dense<1.500000e+00> : tensor<4xf16>"),
        (-0.0, (), np.float32, "-0.000000e+00 : f32"),
        (np.inf, (), ml_dtypes.bfloat16, "0x7F80 : bf16"),
        (np.full((2, 2), 7, np.int16), (2, 2), np.int16, "dense<7> : tensor<2x2xi16>"),
        (-3, (), jnp.int4, "-3 : i4"),
        (0.25, (), ml_dtypes.float8_e5m2, "2.500000e-01 : f8E5M2"),
        (np.zeros((0, 3), np.float32), (0, 3), np.float32, "dense<0.000000e+00> : tensor<0x3xf32>"),
    ],
)
def test_constants_of_every_kind(value: Any, shape: tuple[int, ...], dtype: Any, expected: str) -> None:
    assert text(value, shape, dtype) == expected


def test_nan_stays_nan() -> None:
    assert text(np.nan, (), np.float32) == "0x7FC00000 : f32"


def test_a_large_array_of_different_elements_is_refused_with_what_to_do() -> None:
    table = np.random.default_rng(0).integers(0, 2**31, 10_000).astype(np.int32)
    with pytest.raises(mosaic_gpu.UnsupportedError, match="elements differ") as caught:
        text(table, table.shape, np.int32)
    assert "input" in str(caught.value)


def test_a_random_key_is_the_tile_of_its_words() -> None:
    key = jax.eval_shape(lambda: jax.random.key(0))
    with ir.Context(), ir.Location.unknown():
        assert str(aval_type(jax.core.ShapedArray(key.shape, key.dtype))) == "tensor<2xi32>"


def test_a_complex_value_has_no_type() -> None:
    with ir.Context(), pytest.raises(mosaic_gpu.UnsupportedError, match="complex64"):
        aval_type(SimpleNamespace(shape=(), dtype=np.dtype(np.complex64)))


def test_a_function_called_twice_is_lowered_twice_with_its_own_operands() -> None:
    def body(x_ref: Any, o_ref: Any) -> None:
        double = jax.jit(lambda v: v * 2)
        o_ref[...] = double(double(x_ref[...]))

    with lowered(call(body, (4,)), jnp.ones(4)) as ops:
        first, second = named(ops, "arith.mulf")
        assert first.results[0] in list(second.operands)
