"""Elementwise ops on vectors of registers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mosaic_gpu.dialect._mlir import arith, ir, math
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.ops_tile import LibdeviceOp, PtxOp
from mosaic_gpu.dialect.types import element_of
from mosaic_gpu.errors import UnsupportedError
from tests.lowering.nvvm.harness import constant, load, ptx_of, run, store, tile
from tests.lowering.nvvm.layouts import DTYPES, random_array, random_layout, random_shape


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != np.bool_], ids=lambda d: np.dtype(d).name)
def test_sums_and_products_of_tiles_are_numpys(dtype: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = random_shape(rng, 2)
    layout = random_layout(rng, shape)
    x, y = (random_array(rng, shape, dtype) for _ in range(2))
    is_int = np.dtype(dtype).kind in "iu"

    def body(a: ir.Value, b: ir.Value, out: ir.Value) -> None:
        left, right = load(a, layout), load(b, layout)
        product = (arith.MulIOp if is_int else arith.MulFOp)(left, right).result
        store((arith.AddIOp if is_int else arith.AddFOp)(product, left).result, out)

    (found,) = run(body, [x, y], [(shape, dtype)])
    np.testing.assert_array_equal(found, x * y + x)


def test_comparisons_and_choices_work_on_predicates() -> None:
    shape = (5, 33)
    layout = Layout.blocked(shape, 2, 2)
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-3, 3, shape).astype(np.int16) for _ in range(2))

    def body(a: ir.Value, b: ir.Value, less: ir.Value, smaller: ir.Value) -> None:
        left, right = load(a, layout), load(b, layout)
        condition = arith.CmpIOp(arith.CmpIPredicate.slt, left, right).result
        store(condition, less)
        store(arith.SelectOp(condition, left, right).result, smaller)

    less, smaller = run(body, [x, y], [(shape, bool), (shape, np.int16)], 2)
    np.testing.assert_array_equal(less, x < y)
    np.testing.assert_array_equal(smaller, np.minimum(x, y))


def test_a_scalar_condition_chooses_between_tiles() -> None:
    layout = Layout.blocked((40,), 1)

    def body(a: ir.Value, flag: ir.Value, out: ir.Value) -> None:
        value = load(a, layout)
        store(arith.SelectOp(load(flag), value, arith.NegFOp(value).result).result, out)

    x = np.arange(40, dtype=np.float32)
    for flag in (True, False):
        (found,) = run(body, [x, np.array(flag)], [((40,), np.float32)], 1)
        np.testing.assert_array_equal(found, x if flag else -x)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64], ids=lambda d: d.__name__)
def test_splat_constants_of_special_values_arrive(dtype: Any) -> None:
    layout = Layout.blocked((70,), 1, 2)
    numbers = [np.inf, -np.inf, np.nan, 1 / 3, -0.0, float(np.finfo(np.float16).smallest_subnormal), 65504.0]

    def body(*outs: ir.Value) -> None:
        for number, out in zip(numbers, outs, strict=True):
            element = element_of(out.type)
            type_ = tile((70,), element, layout)
            splat = ir.DenseElementsAttr.get_splat(type_, ir.FloatAttr.get(element, float(np.array(number, dtype))))
            store(arith.ConstantOp(type_, splat).result, out)

    found = run(body, [], [((70,), dtype)] * len(numbers), 1)
    for array, number in zip(found, numbers, strict=True):
        exact, expected = array.astype(np.float64), np.full(70, number).astype(dtype).astype(np.float64)
        np.testing.assert_array_equal(exact, expected)
        np.testing.assert_array_equal(np.signbit(exact), np.signbit(expected))


def test_four_bit_integers_extend_with_and_without_sign() -> None:
    layout = Layout.blocked((16,), 1)
    x = np.array([0x00, 0x07, 0x08, 0x0F, 0xF8, 0xFF, 0xA3, 0x5C] * 2, np.uint8)

    def body(ref: ir.Value, signed: ir.Value, unsigned: ir.Value) -> None:
        int4 = tile((16,), ir.IntegerType.get_signless(4), layout)
        value = arith.TruncIOp(int4, load(ref, layout)).result
        store(arith.ExtSIOp(tile((16,), element_of(signed.type), layout), value).result, signed)
        store(arith.ExtUIOp(tile((16,), element_of(unsigned.type), layout), value).result, unsigned)

    signed, unsigned = run(body, [x], [((16,), np.int32), ((16,), np.int8)], 1)
    low = (x & 15).astype(np.int32)
    np.testing.assert_array_equal(signed, np.where(low > 7, low - 16, low))
    np.testing.assert_array_equal(unsigned, low)


def test_an_integer_becomes_a_bool_by_its_lowest_bit() -> None:
    layout = Layout.blocked((6,), 1)

    def body(ref: ir.Value, out: ir.Value) -> None:
        store(arith.TruncIOp(tile((6,), element_of(out.type), layout), load(ref, layout)).result, out)

    (found,) = run(body, [np.arange(6, dtype=np.int16)], [((6,), bool)], 1)
    np.testing.assert_array_equal(found, [False, True] * 3)


def test_libdevice_functions_are_called_for_each_element() -> None:
    layout = Layout.blocked((300,), 4)
    x = np.linspace(-3, 3, 300).astype(np.float32)

    def body(ref: ir.Value, out: ir.Value) -> None:
        value = load(ref, layout)
        sine = LibdeviceOp(value.type, [value], ir.StringAttr.get("__nv_sinf")).result
        power = LibdeviceOp(value.type, [sine, value], ir.StringAttr.get("__nv_atan2f")).result
        store(LibdeviceOp(value.type, [power], ir.StringAttr.get("__nv_sinf")).result, out)

    (found,) = run(body, [x], [((300,), np.float32)])
    wide = x.astype(np.float64)
    np.testing.assert_allclose(found, np.sin(np.arctan2(np.sin(wide), wide)), rtol=1e-5, atol=1e-6)


def test_one_ptx_instruction_is_applied_to_each_element_and_to_scalars() -> None:
    layout = Layout.blocked((50,), 1)
    x = np.linspace(1, 9, 50).astype(np.float32)

    def body(ref: ir.Value, out: ir.Value, one: ir.Value) -> None:
        asm, constraints = ir.StringAttr.get("rcp.rn.f32 $0, $1;"), ir.StringAttr.get("=f,f")
        value = load(ref, layout)
        store(PtxOp(value.type, [value], asm, constraints).result, out)
        scalar = constant(element_of(value.type), 4.0)
        store(PtxOp(scalar.type, [scalar], asm, constraints).result, one)

    found, one = run(body, [x], [((50,), np.float32), ((), np.float32)], 1)
    np.testing.assert_array_equal(found, np.float32(1) / x)
    assert one == 0.25


def test_packed_arithmetic_is_used_for_pairs_of_bfloat16() -> None:
    layout = Layout.blocked((1024,), 4, 8)

    def body(a: ir.Value, out: ir.Value) -> None:
        value = load(a, layout)
        store(arith.AddFOp(value, value).result, out)

    text, _ = ptx_of(body, [np.zeros(1024, ml_dtypes.bfloat16)] * 2, 1, 4)
    assert text.count("bf16x2") == 4


def test_a_value_that_nobody_needs_may_be_anything() -> None:
    layout = Layout.blocked((32,), 1)

    def body(a: ir.Value, out: ir.Value) -> None:
        value = load(a, layout)
        unused = ir.Operation.create("ub.poison", results=[value.type]).results[0]
        store(arith.SelectOp(constant(ir.IntegerType.get_signless(1), 1), value, unused).result, out)

    (found,) = run(body, [np.arange(32)], [((32,), np.int64)], 1)
    np.testing.assert_array_equal(found, np.arange(32))


def test_what_llvm_cannot_select_is_refused_with_its_line() -> None:
    layout = Layout.blocked((32,), 1)

    def body(a: ir.Value, out: ir.Value) -> None:
        value = load(a, layout)
        with ir.Location.file("kernel.py", 5, 1):
            store(math.Exp2Op(value).result, out)

    with pytest.raises(UnsupportedError, match=r"math.exp2 from f64 to f64\n.*kernel.py:5"):
        ptx_of(body, [np.zeros(32)] * 2, 1, 1)


def test_a_remainder_that_llvm_computes_inexactly_is_refused() -> None:
    layout = Layout.blocked((32,), 1)

    def body(a: ir.Value, out: ir.Value) -> None:
        value = load(a, layout)
        store(arith.RemFOp(value, value).result, out)

    with pytest.raises(UnsupportedError, match=r"arith\.remf"):
        ptx_of(body, [np.zeros(32, np.float32)] * 2, 1, 1)
