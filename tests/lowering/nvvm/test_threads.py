"""A thread computes its coordinate from its number, whatever the images of the number's bits are."""

from __future__ import annotations

import numpy as np
import pytest

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.lowering.nvvm.threads import Split, split_offset, thread_mask
from tests.lowering.nvvm.harness import load, ptx_of, store

PLAIN = Layout.parse("4x128 r:0,1;0,2 l:0,4;0,8;0,16;0,32;0,64 w:1,0;2,0")
MIXED = Layout.parse("8x16 r:1,3;0,2 l:0,1;2,0;4,0;0,4;0,8 w:")


def test_the_mask_holds_the_bits_that_threads_move() -> None:
    assert thread_mask(PLAIN) == (3, 124)
    assert thread_mask(MIXED) == (6, 13)


@pytest.mark.parametrize(
    ("layout", "offset", "expected"),
    [
        (PLAIN, (0, 3), Split((0, 0), (0, 3))),
        (PLAIN, (4, 128), Split((0, 0), (4, 128))),
        (MIXED, (1, 3), Split((0, 1), (1, 2))),
    ],
)
def test_an_offset_is_added_where_no_thread_moves_and_xored_elsewhere(
    layout: Layout, offset: tuple[int, ...], expected: Split
) -> None:
    assert split_offset(offset, thread_mask(layout)) == expected


@pytest.mark.parametrize("layout", [PLAIN, MIXED], ids=str)
def test_splits_give_the_coordinates_of_the_layout(layout: Layout) -> None:
    mask, shape = thread_mask(layout), tuple(2 * n for n in layout.base)
    threads, coordinates = layout.thread_coordinates(), layout.coordinates(shape)
    for register, offset in enumerate(layout.register_offsets(shape)):
        split = split_offset(offset, mask)
        found = (threads ^ np.array(split.flipped)) + np.array(split.added)
        np.testing.assert_array_equal(found, coordinates[:, register])


def test_rows_that_lie_one_after_another_take_one_multiplication() -> None:
    x = np.zeros((4, 128), np.float32)

    def body(ref: ir.Value, out: ir.Value) -> None:
        store(load(ref, PLAIN), out)

    text, _ = ptx_of(body, [x, x], 1, 4)
    assert text.count("mul.wide") == 1
    assert not any(name in text for name in ("and.b32", "shr.u32", "xor.b32"))
