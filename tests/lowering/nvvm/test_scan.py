"""Scans over random shapes, axes, dtypes and layouts, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.layouts import Layout
from tests.lowering.nvvm.combiners import add, maximum, scan
from tests.lowering.nvvm.harness import load, run, store
from tests.lowering.nvvm.layouts import random_array, random_layout, random_shape


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.int64, np.float16], ids=lambda d: np.dtype(d).name)
def test_running_sums_agree_with_numpy(dtype: Any, reverse: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape, num_warps = random_shape(rng, int(rng.integers(1, 4))), int(2 ** rng.integers(0, 4))
    axis, layout = int(rng.integers(len(shape))), random_layout(rng, shape, num_warps)
    x = random_array(rng, shape, dtype)

    def body(ref: ir.Value, out: ir.Value) -> None:
        store(scan([load(ref, layout)], axis, add, [0], reverse=reverse)[0], out)

    (found,) = run(body, [x], [(shape, dtype)], num_warps)
    turned = np.flip(x, axis) if reverse else x
    expected = np.cumsum(turned, axis, dtype=dtype)
    np.testing.assert_array_equal(found, np.flip(expected, axis) if reverse else expected)


@pytest.mark.parametrize("num_warps", [1, 8])
def test_a_long_row_is_scanned_across_warps_and_repetitions(num_warps: int) -> None:
    layout = Layout.blocked((3000,), num_warps, 4)
    x = np.random.default_rng(0).integers(-9, 9, 3000).astype(np.int32)

    def body(ref: ir.Value, out: ir.Value) -> None:
        store(scan([load(ref, layout)], 0, add, [0])[0], out)

    (found,) = run(body, [x], [((3000,), np.int32)], num_warps)
    np.testing.assert_array_equal(found, np.cumsum(x, dtype=np.int32))


def test_a_reverse_maximum_ignores_the_padding() -> None:
    layout = Layout.blocked((45,), 1)
    x = -1.0 - np.random.default_rng(0).random(45, np.float32)

    def body(ref: ir.Value, out: ir.Value) -> None:
        store(scan([load(ref, layout)], 0, maximum, [-np.inf], reverse=True)[0], out)

    (found,) = run(body, [x], [((45,), np.float32)], 1)
    np.testing.assert_array_equal(found, np.maximum.accumulate(x[::-1])[::-1])


def _affine(a: ir.Value, b: ir.Value, c: ir.Value, d: ir.Value) -> list[ir.Value]:
    """The map x -> a x + b, then x -> c x + d: associative, but the sides may not be exchanged."""
    inner = arith.AddIOp(arith.MulIOp(b, c).result, d).result
    return [arith.MulIOp(a, c).result, inner]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_of_pairs_keeps_the_sides_apart(reverse: bool, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = random_shape(rng, 2, 30)
    layout = random_layout(rng, shape)
    a, b = (rng.integers(-5, 5, shape).astype(np.int64) for _ in range(2))

    def body(first: ir.Value, second: ir.Value, out_a: ir.Value, out_b: ir.Value) -> None:
        factors, terms = scan([load(first, layout), load(second, layout)], 1, _affine, [1, 0], reverse=reverse)
        store(factors, out_a)
        store(terms, out_b)

    found_a, found_b = run(body, [a, b], [(shape, np.int64)] * 2)
    order = range(shape[1] - 1, -1, -1) if reverse else range(shape[1])
    factor, term = np.ones(shape[0], np.int64), np.zeros(shape[0], np.int64)
    with np.errstate(over="ignore"):
        for column in order:
            factor, term = factor * a[:, column], term * a[:, column] + b[:, column]
            np.testing.assert_array_equal(found_a[:, column], factor)
            np.testing.assert_array_equal(found_b[:, column], term)
