"""All five 8-bit floats convert exactly, as ml_dtypes does."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.types import element_of
from mosaic_gpu.errors import UnsupportedError
from tests.lowering.nvvm.harness import Array, load, ptx_of, run, store, tile

FP8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz")
LAYOUT_OF_ALL = Layout.blocked((256,), 4, 2)


def fp8(name: str) -> Any:
    return np.dtype(getattr(ml_dtypes, name))


def all_bytes(name: str) -> Array:
    return np.arange(256).astype(np.uint8).view(fp8(name))


@pytest.mark.parametrize("target", [np.float32, np.float16, ml_dtypes.bfloat16, np.float64], ids=lambda t: t.__name__)
@pytest.mark.parametrize("name", FP8)
def test_every_byte_has_its_value_in_wider_floats(name: str, target: Any) -> None:
    def body(ref: ir.Value, out: ir.Value) -> None:
        store(arith.ExtFOp(tile((256,), element_of(out.type), LAYOUT_OF_ALL), load(ref, LAYOUT_OF_ALL)).result, out)

    (found,) = run(body, [all_bytes(name)], [((256,), target)])
    np.testing.assert_array_equal(found.astype(np.float64), all_bytes(name).astype(np.float64))


def _numbers(name: str) -> Array:
    """Values, midpoints between neighbours and their neighbours, edges, and random floats of any size: [n, 1024]."""
    rng = np.random.default_rng(0)
    values = all_bytes(name).astype(np.float64)
    finite = np.sort(values[np.isfinite(values)])
    middles = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)
    near = [np.nextafter(middles, np.float32(s * np.inf)) for s in (-1, 1)]
    edges = np.array(
        [np.inf, -np.inf, np.nan, 0.0, -0.0, 464, 465, 480, 61439, 61440, 61441, 248, 249, 31, 32], np.float32
    )
    wild = rng.integers(0, 2**32, 4000, dtype=np.uint32).view(np.float32)
    tame = (rng.standard_normal(4000) * np.exp2(rng.integers(-20, 20, 4000))).astype(np.float32)
    everything = np.concatenate([finite.astype(np.float32), middles, *near, edges, wild, tame])
    return np.resize(everything, (-(-everything.size // 1024), 1024))


@pytest.mark.parametrize("source", [np.float32, np.float16, ml_dtypes.bfloat16], ids=lambda t: t.__name__)
@pytest.mark.parametrize("name", FP8)
def test_floats_are_rounded_to_nearest_even_and_overflow_as_in_xla(name: str, source: Any) -> None:
    with np.errstate(all="ignore"):
        x = _numbers(name).astype(source)
        expected = x.astype(np.float32).astype(fp8(name))
    layout = Layout.blocked(x.shape, 4, 4)

    def body(ref: ir.Value, out: ir.Value) -> None:
        store(arith.TruncFOp(tile(x.shape, element_of(out.type), layout), load(ref, layout)).result, out)

    (found,) = run(body, [x], [(x.shape, fp8(name))])
    is_nan = np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(found.astype(np.float32)), is_nan)
    np.testing.assert_array_equal(found.view(np.uint8)[~is_nan], expected.view(np.uint8)[~is_nan])


@pytest.mark.parametrize("name", FP8)
def test_constants_keep_their_value(name: str) -> None:
    def body(out: ir.Value) -> None:
        element = element_of(out.type)
        type_ = tile((256,), element, LAYOUT_OF_ALL)
        splat = ir.DenseElementsAttr.get_splat(type_, ir.FloatAttr.get(element, -1.5))
        store(arith.ConstantOp(type_, splat).result, out)

    (found,) = run(body, [], [((256,), fp8(name))])
    np.testing.assert_array_equal(found.astype(np.float32), np.full(256, -1.5))


def test_doubles_are_not_rounded_twice_but_refused() -> None:
    def body(ref: ir.Value, out: ir.Value) -> None:
        store(arith.TruncFOp(tile((256,), element_of(out.type), LAYOUT_OF_ALL), load(ref, LAYOUT_OF_ALL)).result, out)

    with pytest.raises(UnsupportedError, match="from f64 to f8E4M3FN"):
        ptx_of(body, [np.zeros(256), all_bytes("float8_e4m3fn")], 1, 4)
