"""Ops that move elements, over random shapes, dtypes and layouts, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.ops_tile import (
    BitcastOp,
    BroadcastOp,
    ConcatenateOp,
    IotaOp,
    ReshapeOp,
    SliceOp,
    TransposeOp,
)
from mosaic_gpu.dialect.types import element_of
from tests.lowering.nvvm.harness import array_attr, int_attr, load, ptx_of, run, store, tile
from tests.lowering.nvvm.layouts import random_array, random_dtype, random_layout, random_shape

SEEDS = range(12)


@pytest.mark.parametrize("seed", SEEDS)
def test_iota_counts_along_its_dimension(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape, dtype = random_shape(rng, int(rng.integers(1, 4))), random_dtype(rng, (np.int32, np.int8, np.int64))
    dimension, layout = int(rng.integers(len(shape))), random_layout(rng, shape)

    def body(out: ir.Value) -> None:
        store(IotaOp(tile(shape, element_of(out.type), layout), int_attr(dimension)).result, out)

    (found,) = run(body, [], [(shape, dtype)])
    np.testing.assert_array_equal(found, np.indices(shape)[dimension].astype(dtype))


@pytest.mark.parametrize("seed", SEEDS)
def test_broadcast_stretches_and_adds_dimensions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    shape, dtype = random_shape(rng, rank, 14), random_dtype(rng)
    dims = sorted(rng.permutation(rank)[: rng.integers(1, rank + 1)].tolist())
    operand = tuple(1 if rng.random() < 0.4 else shape[d] for d in dims)
    target, source = random_layout(rng, shape), random_layout(rng, operand)
    x = random_array(rng, operand, dtype)

    def body(ref: ir.Value, out: ir.Value) -> None:
        value = load(ref, source)
        store(BroadcastOp(tile(shape, element_of(value.type), target), value, array_attr(dims)).result, out)

    (found,) = run(body, [x], [(shape, dtype)])
    aligned = x.reshape([operand[dims.index(d)] if d in dims else 1 for d in range(rank)])
    np.testing.assert_array_equal(found, np.broadcast_to(aligned, shape))


def test_broadcast_from_the_fitting_layout_moves_nothing() -> None:
    target = Layout.blocked((16, 64), 4, 2)
    source = target.broadcast_source([0], (16,), (16, 64))

    def body(ref: ir.Value, out: ir.Value) -> None:
        value = load(ref, source)
        store(BroadcastOp(tile((16, 64), element_of(value.type), target), value, array_attr([0])).result, out)

    x = np.arange(16, dtype=np.float32)
    text, launch = ptx_of(body, [x, np.zeros((16, 64), np.float32)], 1, 4)
    assert "shfl" not in text
    assert launch.shared_bytes == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_transpose_permutes_dimensions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape, dtype = random_shape(rng, int(rng.integers(1, 4))), random_dtype(rng)
    permutation = rng.permutation(len(shape)).tolist()
    result, source = tuple(shape[d] for d in permutation), random_layout(rng, shape)
    target = source.transpose(permutation) if seed % 2 else random_layout(rng, result)
    x = random_array(rng, shape, dtype)

    def body(ref: ir.Value, out: ir.Value) -> None:
        value = load(ref, source)
        type_ = tile(result, element_of(value.type), target)
        store(TransposeOp(type_, value, array_attr(permutation)).result, out)

    (found,) = run(body, [x], [(result, dtype)])
    np.testing.assert_array_equal(found, x.transpose(permutation))


@pytest.mark.parametrize("seed", SEEDS)
def test_reshape_keeps_the_row_major_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape, dtype = random_shape(rng, int(rng.integers(1, 4)), 10), random_dtype(rng)
    result = _random_factors(rng, int(np.prod(shape)))
    source = random_layout(rng, shape)
    target = source.reshape(shape, result) if seed % 2 else None
    target = target or random_layout(rng, result)
    x = random_array(rng, shape, dtype)

    def body(ref: ir.Value, out: ir.Value) -> None:
        value = load(ref, source)
        store(ReshapeOp(tile(result, element_of(value.type), target), value).result, out)

    (found,) = run(body, [x], [(result, dtype)])
    np.testing.assert_array_equal(found, x.reshape(result))


def _random_factors(rng: np.random.Generator, count: int) -> tuple[int, ...]:
    factors: list[int] = []
    while count > 1 and len(factors) < 3:
        divisors = [d for d in range(1, count + 1) if count % d == 0]
        factors.append(int(rng.choice(divisors)))
        count //= factors[-1]
    return (*factors, count) if count > 1 or not factors else tuple(factors)


@pytest.mark.parametrize("held_by", ["all", "one"])
def test_reshape_goes_between_one_element_and_a_scalar(held_by: str) -> None:
    everywhere = Layout((1, 1), (), ((0, 0),) * 5, ((0, 0),) * 2)
    one = Layout((1, 2), (), ((0, 1), *((0, 0),) * 4), ((0, 0),) * 2)
    layout = everywhere if held_by == "all" else one

    def body(ref: ir.Value, out: ir.Value) -> None:
        value = load(ref, layout)
        scalar = ReshapeOp(element_of(value.type), value).result
        store(ReshapeOp(value.type, scalar).result, out)

    (found,) = run(body, [np.full((1, 1), 7, np.int16)], [((1, 1), np.int16)])
    np.testing.assert_array_equal(found, [[7]])


@pytest.mark.parametrize("seed", SEEDS)
def test_slice_takes_a_strided_box(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape, dtype = random_shape(rng, int(rng.integers(1, 4))), random_dtype(rng)
    starts, strides, counts = [], [], []
    for size in shape:
        low, high = sorted(rng.integers(0, size, 2).tolist())
        step = int(rng.integers(1, 4))
        count = (high - low) // step + 1
        is_reversed = rng.random() < 0.3
        starts.append(low + (count - 1) * step if is_reversed else low)
        strides.append(-step if is_reversed else step)
        counts.append(count)
    result, source = tuple(counts), random_layout(rng, shape)
    target = source if seed % 3 == 0 else random_layout(rng, result)
    x = random_array(rng, shape, dtype)

    def body(ref: ir.Value, out: ir.Value) -> None:
        value = load(ref, source)
        type_ = tile(result, element_of(value.type), target)
        store(SliceOp(type_, value, array_attr(starts), array_attr(strides)).result, out)

    (found,) = run(body, [x], [(result, dtype)])
    box = np.ix_(*(s + k * np.arange(n) for s, k, n in zip(starts, strides, counts, strict=True)))
    np.testing.assert_array_equal(found, x[box])


@pytest.mark.parametrize("seed", SEEDS)
def test_concatenate_puts_one_after_another(seed: int) -> None:
    rng = np.random.default_rng(seed)
    part, dtype = random_shape(rng, int(rng.integers(1, 4)), 10), random_dtype(rng)
    dimension, count = int(rng.integers(len(part))), int(rng.integers(1, 5))
    result = tuple(n * count if d == dimension else n for d, n in enumerate(part))
    source, target = random_layout(rng, part), random_layout(rng, result)
    arrays = [random_array(rng, part, dtype) for _ in range(count)]

    def body(*refs: ir.Value) -> None:
        values = [load(r, source) for r in refs[:-1]]
        type_ = tile(result, element_of(values[0].type), target)
        store(ConcatenateOp(type_, values, int_attr(dimension)).result, refs[-1])

    (found,) = run(body, arrays, [(result, dtype)])
    np.testing.assert_array_equal(found, np.concatenate(arrays, dimension))


PAIRS: list[tuple[Any, Any]] = [
    (np.int32, np.int8),
    (np.int64, np.int16),
    (np.float64, np.float32),
    (np.float32, np.int32),
    (ml_dtypes.bfloat16, np.int16),
    (ml_dtypes.float8_e4m3fn, np.int8),
]


@pytest.mark.parametrize("shape", [(), (5,), (3, 16)], ids=str)
@pytest.mark.parametrize("direction", ["down", "up"])
@pytest.mark.parametrize("pair", PAIRS, ids=lambda p: f"{np.dtype(p[0])}-{np.dtype(p[1])}")
def test_bitcast_keeps_the_bits(shape: tuple[int, ...], direction: str, pair: tuple[Any, Any]) -> None:
    rng = np.random.default_rng(len(shape))
    wide, narrow = np.dtype(pair[0]), np.dtype(pair[1])
    parts = wide.itemsize // narrow.itemsize
    x = rng.integers(0, 256, (*shape, wide.itemsize)).astype(np.uint8).view(wide).reshape(shape)
    y = x.reshape(-1).view(narrow).reshape((*shape, parts) if parts > 1 else shape)
    if direction == "up":
        x, y = y, x
    source = random_layout(rng, x.shape) if x.shape else None
    target = random_layout(rng, y.shape) if y.shape else None

    def body(ref: ir.Value, out: ir.Value) -> None:
        value = load(ref, source)
        store(BitcastOp(tile(y.shape, element_of(out.type), target), value).result, out)

    (found,) = run(body, [x], [(y.shape, y.dtype)])
    assert found.tobytes() == y.tobytes()
