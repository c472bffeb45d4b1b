"""Reductions over random shapes, axes, dtypes and layouts, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.ops_tile import BroadcastOp, IotaOp
from tests.lowering.nvvm.combiners import add, maximum, reduce
from tests.lowering.nvvm.harness import array_attr, int_attr, load, ptx_of, run, store, tile
from tests.lowering.nvvm.layouts import DTYPES, random_array, random_layout, random_shape


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != np.bool_], ids=lambda d: np.dtype(d).name)
def test_sums_agree_with_numpy(dtype: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank, num_warps = int(rng.integers(1, 4)), int(2 ** rng.integers(0, 4))
    shape = random_shape(rng, rank, 12 if dtype == ml_dtypes.bfloat16 else 20)
    axes = sorted(set(rng.integers(0, rank, rng.integers(1, rank + 1)).tolist()))
    layout, kept = random_layout(rng, shape, num_warps), tuple(n for d, n in enumerate(shape) if d not in axes)
    x = random_array(rng, shape, dtype)
    if dtype == ml_dtypes.bfloat16:
        x = (np.abs(x.astype(np.float32)) < 1).astype(dtype)  # sums up to 256 are exact

    def body(ref: ir.Value, out: ir.Value) -> None:
        target = _sliced(layout, axes) or random_layout(rng, kept, num_warps) if kept else None
        store(reduce([load(ref, layout)], axes, target, add, [0])[0], out)

    (found,) = run(body, [x], [(kept, dtype)], num_warps)
    if np.dtype(dtype).kind in "iu":
        expected = x.sum(tuple(axes), dtype=dtype)
    else:
        expected = x.astype(np.float64).sum(tuple(axes)).astype(dtype)
    np.testing.assert_array_equal(found, expected)


def _sliced(layout: Layout, axes: list[int]) -> Layout | None:
    """The reduction's own layout; None for a layout that mixes dimensions."""
    try:
        return layout.slice(axes)
    except ValueError:
        return None


def test_maximum_of_a_padded_row_of_negative_numbers_is_negative() -> None:
    layout = Layout.blocked((3, 37), 2, 4)
    x = -1.0 - np.random.default_rng(0).random((3, 37), np.float32)

    def body(ref: ir.Value, out: ir.Value) -> None:
        store(reduce([load(ref, layout)], [1], layout.slice([1]), maximum, [-np.inf])[0], out)

    (found,) = run(body, [x], [((3,), np.float32)], 2)
    np.testing.assert_array_equal(found, x.max(1))


def test_a_reduction_over_nothing_gives_the_identity() -> None:
    layout = Layout.blocked((4, 0), 1)

    def body(ref: ir.Value, out: ir.Value) -> None:
        store(reduce([load(ref, layout)], [1], layout.slice([1]), add, [5])[0], out)

    (found,) = run(body, [np.zeros((4, 0), np.int32)], [((4,), np.int32)], 1)
    np.testing.assert_array_equal(found, [5] * 4)


def _first_maximum(value: ir.Value, index: ir.Value, other: ir.Value, other_index: ir.Value) -> list[ir.Value]:
    larger = arith.CmpIOp(arith.CmpIPredicate.sgt, value, other).result
    same = arith.CmpIOp(arith.CmpIPredicate.eq, value, other).result
    earlier = arith.CmpIOp(arith.CmpIPredicate.slt, index, other_index).result
    keep = arith.OrIOp(larger, arith.AndIOp(same, earlier).result).result
    return [arith.SelectOp(keep, value, other).result, arith.SelectOp(keep, index, other_index).result]


@pytest.mark.parametrize("axes", [[0], [1], [0, 1]], ids=str)
def test_two_values_are_folded_together(axes: list[int]) -> None:
    shape = (9, 70)
    layout = Layout.blocked(shape, 4)
    x = np.random.default_rng(1).integers(0, 20, shape).astype(np.int32)
    kept = tuple(n for d, n in enumerate(shape) if d not in axes)
    target = layout.slice(axes) if kept else None

    def body(ref: ir.Value, values: ir.Value, places: ir.Value) -> None:
        value = load(ref, layout)
        flat = IotaOp(value.type, int_attr(axes[-1])).result
        best, where = reduce([value, flat], axes, target, _first_maximum, [-(2**31), 2**31 - 1])
        store(best, values)
        store(where, places)

    values, places = run(body, [x], [(kept, np.int32), (kept, np.int32)])
    np.testing.assert_array_equal(values, x.max(tuple(axes)))
    expected = np.nonzero(x == x.max())[1].min() if len(axes) == 2 else x.argmax(axes[0])
    np.testing.assert_array_equal(places, expected)


def _first_nonzero(left: ir.Value, right: ir.Value) -> list[ir.Value]:
    zero = arith.ConstantOp(left.type, 0).result
    is_zero = arith.CmpIOp(arith.CmpIPredicate.eq, left, zero).result
    return [arith.SelectOp(is_zero, right, left).result]


def test_all_threads_get_the_same_scalar_from_a_fold_that_is_not_symmetric() -> None:
    layout = Layout.blocked((256,), 4)
    x = np.zeros(256, np.int32)
    x[[40, 200]] = 3, 9

    def body(ref: ir.Value, out: ir.Value) -> None:
        (first,) = reduce([load(ref, layout)], [0], None, _first_nonzero, [0])
        spread = arith.AddIOp(IotaOp(tile((256,), first.type, layout), int_attr(0)).result, _splat(first, layout))
        store(spread.result, out)

    (found,) = run(body, [x], [((256,), np.int32)])
    assert len(set((found - np.arange(256)).tolist())) == 1


def _splat(scalar: ir.Value, layout: Layout) -> ir.Value:
    return BroadcastOp(tile((256,), scalar.type, layout), scalar, array_attr([])).result


def test_a_row_held_by_one_warp_is_reduced_without_shared_memory() -> None:
    layout = Layout.parse("4x128 r:0,1;0,2 l:0,4;0,8;0,16;0,32;0,64 w:1,0;2,0")

    def body(ref: ir.Value, out: ir.Value) -> None:
        store(reduce([load(ref, layout)], [1], layout.slice([1]), add, [0])[0], out)

    text, launch = ptx_of(body, [np.zeros((4, 128), np.float32), np.zeros(4, np.float32)], 1, 4)
    assert text.count("shfl.sync.bfly") == 5
    assert launch.shared_bytes == 0
    assert "bar.sync" not in text
