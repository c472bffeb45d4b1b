"""Loads and stores of swizzled shared memory: where elements lie, through any view and layout, and bank conflicts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.ops_kernel import BarrierOp
from mosaic_gpu.dialect.ops_memory import AllocOp, SubviewOp
from mosaic_gpu.dialect.types import SMEM, element_of, ref_type
from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.lowering.swizzles import SWIZZLES, Panels
from tests.lowering.nvvm.harness import Array, array_attr, i32, int_attr, load, run, store
from tests.lowering.nvvm.layouts import random_layout

DTYPES = {1: np.uint8, 2: np.uint16, 4: np.float32}


def alloc(shape: tuple[int, ...], element: ir.Type, swizzle: int = 0) -> ir.Value:
    """Shared memory at offset 0."""
    memory = AllocOp(ref_type(shape, element, SMEM)).result
    memory.owner.attributes["mgpu.offset"] = int_attr(0)
    if swizzle:
        memory.owner.attributes["mgpu.swizzle"] = int_attr(swizzle)
    return memory


def view(
    source: ir.Value, offsets: list[int], sizes: list[int], dropped: list[int], strides: list[int] | None = None
) -> ir.Value:
    kept = tuple(n for d, n in enumerate(sizes) if d not in dropped)
    arrays = [array_attr(a) for a in (sizes, strides or [1] * len(sizes), dropped, [0] * len(sizes))]
    starts = [i32(n) for n in offsets]
    return SubviewOp(ref_type(kept, element_of(source.type), SMEM), source, starts, *arrays).result


def placed(x: Array, swizzle: int) -> Array:
    """The elements of `x` in the order of memory."""
    panels = Panels(swizzle, x.shape[0], x.shape[1], x.itemsize)
    flat = np.zeros(x.size, x.dtype)
    for row, column in np.ndindex(*x.shape):
        flat[panels.offset(row, column) // x.itemsize] = x[row, column]
    return flat


@pytest.mark.parametrize("swizzle", SWIZZLES)
@pytest.mark.parametrize("size", DTYPES)
@pytest.mark.parametrize("seed", range(3))
def test_a_tile_in_any_layout_is_stored_where_the_swizzle_says(swizzle: int, size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(1, 200, (int(rng.choice([8, 24, 64])), int(rng.choice([1, 2, 3])) * swizzle // size))
    x = x.astype(DTYPES[size])
    layouts = [random_layout(rng, x.shape) for _ in range(2)]

    def body(a: ir.Value, raw: ir.Value, back: ir.Value) -> None:
        memory = alloc(x.shape, element_of(a.type), swizzle)
        store(load(a, layouts[0]), memory)
        BarrierOp()
        store(load(memory, layouts[1]), back)
        flat = alloc((x.size,), element_of(a.type))
        store(load(flat, Layout.blocked((x.size,), 4)), raw)

    raw, back = run(body, [x], [((x.size,), x.dtype), (x.shape, x.dtype)], smem_bytes=x.nbytes)
    np.testing.assert_array_equal(back, x)
    np.testing.assert_array_equal(raw, placed(x, swizzle))


@pytest.mark.parametrize("seed", range(8))
def test_boxes_of_a_tile(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.integers(1, 200, (32, 128)).astype(np.uint16)
    sizes = [int(rng.integers(1, 20)), int(rng.integers(1, 70))]
    starts = [int(rng.integers(0, n - s + 1)) for n, s in zip(x.shape, sizes, strict=True)]
    box = tuple(slice(a, a + n) for a, n in zip(starts, sizes, strict=True))

    def body(a: ir.Value, o: ir.Value) -> None:
        memory = alloc(x.shape, element_of(a.type), 128)
        store(load(a, Layout.blocked(x.shape, 4)), memory)
        BarrierOp()
        inner = view(memory, starts, sizes, [])
        store(load(inner, random_layout(rng, sizes)), o)

    (got,) = run(body, [x], [(sizes, x.dtype)], smem_bytes=x.nbytes)
    np.testing.assert_array_equal(got, x[box])


def test_a_stage_of_several_tiles() -> None:
    x = np.arange(3 * 16 * 64).reshape(3, 16, 64).astype(np.uint16)
    layout = Layout.blocked((16, 64), 4, 8)

    def body(a: ir.Value, o: ir.Value) -> None:
        memory = alloc(x.shape, element_of(a.type), 128)
        for stage in range(3):
            part = view_of_argument(a, stage)
            store(load(part, layout), view(memory, [stage, 0, 0], [1, 16, 64], [0]))
        BarrierOp()
        for stage in range(3):
            source = view(memory, [2 - stage, 0, 0], [1, 16, 64], [0])
            store(load(source, layout), view_of_argument(o, stage))

    (got,) = run(body, [x], [(x.shape, x.dtype)], smem_bytes=x.nbytes)
    np.testing.assert_array_equal(got, x[::-1])


def view_of_argument(ref: ir.Value, stage: int) -> ir.Value:
    arrays = [array_attr(a) for a in ([1, 16, 64], [1, 1, 1], [0], [0, 0, 0])]
    starts = [i32(stage), i32(0), i32(0)]
    return SubviewOp(ref_type((16, 64), element_of(ref.type)), ref, starts, *arrays).result


def test_a_view_with_a_stride_is_refused_by_name() -> None:
    x = np.zeros((16, 64), np.uint16)

    def body(a: ir.Value, o: ir.Value) -> None:
        memory = alloc(x.shape, element_of(a.type), 128)
        store(load(view(memory, [0, 0], [8, 64], [], [2, 1]), Layout.blocked((8, 64), 4)), o)

    with pytest.raises(UnsupportedError, match="view of swizzled shared memory"):
        run(body, [x], [((8, 64), x.dtype)], smem_bytes=x.nbytes)


def bank_passes(addresses: Any) -> int:
    """How many passes the 32 banks need for one 16-byte access of each of eight lanes."""
    words = np.array(addresses)[:, None] // 4 + np.arange(4)
    return int(np.bincount(words.ravel() % 32, minlength=32).max())


@pytest.mark.parametrize("along_rows", [False, True])
def test_eight_lanes_never_share_a_bank(along_rows: bool) -> None:
    """Along a row of memory, and down a column of chunks (the rows of A that `ldmatrix` or a fragment reads)."""
    panels = Panels(128, 64, 64, 2)
    lanes = [panels.offset(0, 8 * i) if along_rows else panels.offset(i, 8) for i in range(8)]
    assert bank_passes(lanes) == 1
