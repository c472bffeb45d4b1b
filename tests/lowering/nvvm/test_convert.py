"""Any layout to any other."""

from __future__ import annotations

import numpy as np
import pytest

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.ops_tile import ConvertLayoutOp
from mosaic_gpu.dialect.types import element_of, shape_of
from tests.lowering.nvvm.harness import Array, load, ptx_of, run, store, tile
from tests.lowering.nvvm.layouts import random_array, random_dtype, random_layout, random_shape


def _convert(ref: ir.Value, source: Layout, dest: Layout) -> ir.Value:
    value = load(ref, source)
    return ConvertLayoutOp(tile(shape_of(value.type), element_of(value.type), dest), value).result


def check(x: Array, source: Layout, dest: Layout) -> None:
    def body(ref: ir.Value, out: ir.Value) -> None:
        store(_convert(ref, source, dest), out)

    (found,) = run(body, [x], [(x.shape, x.dtype)], source.num_warps)
    np.testing.assert_array_equal(found, x)


@pytest.mark.parametrize("seed", range(40))
def test_conversion_keeps_every_element(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape, num_warps = random_shape(rng, int(rng.integers(1, 4))), int(2 ** rng.integers(0, 4))
    x = random_array(rng, shape, random_dtype(rng))
    check(x, random_layout(rng, shape, num_warps), random_layout(rng, shape, num_warps))


def test_a_transposition_within_warps_takes_shuffles() -> None:
    source = Layout.parse("32x4 r:0,1;0,2 l:1,0;2,0;4,0;8,0;16,0 w:")
    dest = Layout.parse("32x4 r:1,0;2,0 l:0,1;0,2;4,0;8,0;16,0 w:")
    x = np.arange(128, dtype=np.float32).reshape(32, 4)
    check(x, source, dest)
    text, launch = ptx_of(lambda ref, out: store(_convert(ref, source, dest), out), [x, x], 1, 1)
    assert "shfl.sync.idx" in text
    assert launch.shared_bytes == 0


def test_registers_are_renamed_without_instructions() -> None:
    source = Layout.parse("64x4 r:0,1;0,2;1,0 l:2,0;4,0;8,0;16,0;32,0 w:")
    dest = Layout.parse("64x4 r:1,0;0,1;0,2 l:2,0;4,0;8,0;16,0;32,0 w:")
    x = np.arange(256, dtype=np.int32).reshape(64, 4)
    check(x, source, dest)
    text, launch = ptx_of(lambda ref, out: store(_convert(ref, source, dest), out), [x, x], 1, 1)
    assert "shfl" not in text
    assert launch.shared_bytes == 0


def test_a_tile_larger_than_shared_memory_is_moved_in_rounds() -> None:
    shape = (256, 512)
    source, dest = Layout.blocked(shape, 16, 4), Layout.blocked(shape, 16, 1, order=(0, 1))
    x = np.random.default_rng(0).integers(0, 2**31, shape).astype(np.int32)

    def body(ref: ir.Value, out: ir.Value) -> None:
        store(_convert(ref, source, dest), out)

    _, launch = ptx_of(body, [x, x], 1, 16)
    assert launch.shared_bytes <= 227 * 1024 < x.nbytes
    check(x, source, dest)


def test_planned_memory_is_left_alone_and_the_limit_kept() -> None:
    shape = (64, 512)
    source, dest = Layout.blocked(shape, 4, 4), Layout.blocked(shape, 4, 1, order=(0, 1))
    x = np.random.default_rng(0).integers(0, 2**31, shape).astype(np.int32)

    def body(ref: ir.Value, out: ir.Value) -> None:
        store(_convert(ref, source, dest), out)

    planned = 200 * 1024 + 4
    _, launch = ptx_of(body, [x, x], 1, 4, smem_bytes=planned)
    assert planned < launch.shared_bytes <= 227 * 1024
    (found,) = run(body, [x], [(shape, np.int32)], 4, smem_bytes=planned)
    np.testing.assert_array_equal(found, x)
