"""Masked accesses are as wide as the mask allows, and never wider."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.ops_tile import BroadcastOp, IotaOp
from mosaic_gpu.dialect.types import element_of
from tests.lowering.nvvm.harness import array_attr, constant, i32, int_attr, load, ptx_of, run, store, tile

SHAPE = (4, 512)
LAYOUT = Layout.blocked(SHAPE, 4, 4)
Mask = Callable[[], ir.Value]


def int_tile(number: int) -> ir.Value:
    return BroadcastOp(tile(SHAPE, i32(0).type, LAYOUT), i32(number), array_attr([])).result


def iota(dimension: int) -> ir.Value:
    return IotaOp(tile(SHAPE, i32(0).type, LAYOUT), int_attr(dimension)).result


def compare(name: str, left: ir.Value, right: ir.Value) -> ir.Value:
    return arith.CmpIOp(getattr(arith.CmpIPredicate, name), left, right).result


def shifted(number: int) -> ir.Value:
    return arith.AddIOp(iota(1), int_tile(number)).result


ROW, COLUMN = np.indices(SHAPE)
CASES: list[tuple[str, Mask, np.ndarray[tuple[int, int], np.dtype[np.bool_]], int]] = [
    ("columns below a multiple of 4", lambda: compare("slt", iota(1), int_tile(300)), COLUMN < 300, 4),
    ("a bound above columns", lambda: compare("sgt", int_tile(300), iota(1)), COLUMN < 300, 4),
    ("columns from a multiple of 4 on", lambda: compare("uge", iota(1), int_tile(20)), COLUMN >= 20, 4),
    ("shifted columns", lambda: compare("slt", shifted(-8), int_tile(100)), COLUMN - 8 < 100, 4),
    ("columns below an even number", lambda: compare("slt", iota(1), int_tile(302)), COLUMN < 302, 2),
    ("columns below an odd number", lambda: compare("slt", iota(1), int_tile(301)), COLUMN < 301, 1),
    ("columns up to a multiple of 4", lambda: compare("sle", iota(1), int_tile(300)), COLUMN <= 300, 1),
    ("columns shifted by 1", lambda: compare("slt", shifted(1), int_tile(300)), COLUMN + 1 < 300, 1),
    ("one column", lambda: compare("eq", iota(1), int_tile(300)), COLUMN == 300, 1),
    ("rows below a number", lambda: compare("slt", iota(0), int_tile(3)), ROW < 3, 4),
    (
        "two bounds",
        lambda: arith.AndIOp(compare("slt", iota(1), int_tile(300)), compare("sge", iota(1), int_tile(6))).result,
        (COLUMN < 300) & (COLUMN >= 6),
        2,
    ),
]


@pytest.mark.parametrize(("mask", "expected", "width"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_mask_narrows_an_access_as_far_as_it_must(
    mask: Mask, expected: np.ndarray[tuple[int, int], np.dtype[np.bool_]], width: int
) -> None:
    x = np.random.default_rng(0).random(SHAPE, np.float32)

    def body(ref: ir.Value, out: ir.Value) -> None:
        one = constant(element_of(ref.type), 1.0)
        store(load(ref, LAYOUT, mask=mask(), other=one), out)

    (found,) = run(body, [x], [(SHAPE, np.float32)])
    np.testing.assert_array_equal(found, np.where(expected, x, 1))
    text, _ = ptx_of(body, [x, x], 1, 4)
    assert text.count("ld.global.nc") == 16 // width


def test_a_mask_that_is_the_same_all_along_rows_leaves_them_whole() -> None:
    rows = LAYOUT.slice([1])
    x, keep = np.random.default_rng(0).random(SHAPE, np.float32), np.array([True, False, True, True])

    def body(ref: ir.Value, flags: ir.Value, out: ir.Value) -> None:
        kept = load(flags, rows)
        mask = BroadcastOp(tile(SHAPE, kept.type.element_type, LAYOUT), kept, array_attr([0])).result
        store(load(ref, LAYOUT, mask=mask), out)

    (found,) = run(body, [x, keep], [(SHAPE, np.float32)])
    np.testing.assert_array_equal(found, np.where(keep[:, None], x, 0))
    text, _ = ptx_of(body, [x, keep, x], 2, 4)
    assert text.count("ld.global.nc.v4") == 4
