"""Swizzled offsets: the worked table of the module, bijection, linearity, and banks."""

from __future__ import annotations

import pytest

from mosaic_gpu.lowering.swizzles import SWIZZLES, Panels, swizzle_for

SHAPES = [(swizzle, size) for swizzle in SWIZZLES for size in (1, 2, 4)]


def test_the_worked_table() -> None:
    panels = Panels(128, 24, 128, 2)
    places = {(0, 0): 0, (1, 0): 144, (1, 8): 128, (9, 0): 1168, (0, 64): 128 * 24}
    assert {place: panels.offset(*place) for place in places} == places


@pytest.mark.parametrize(("swizzle", "size"), SHAPES)
def test_every_element_has_a_place_of_its_own(swizzle: int, size: int) -> None:
    panels = Panels(swizzle, 24, 2 * swizzle // size, size)
    offsets = {panels.offset(row, column) for row in range(24) for column in range(panels.columns)}
    assert offsets == set(range(0, 24 * 2 * swizzle, size))


@pytest.mark.parametrize(("swizzle", "size"), SHAPES)
def test_offsets_are_linear_over_xor(swizzle: int, size: int) -> None:
    panels = Panels(swizzle, 64, swizzle // size, size)
    bits = [panels.in_panel(1 << i, 0) for i in range(6)]
    for row in range(64):
        total = 0
        for i, image in enumerate(bits):
            total ^= image if row >> i & 1 else 0
        assert panels.in_panel(row, 0) == total


@pytest.mark.parametrize(("swizzle", "size"), SHAPES)
def test_a_column_of_chunks_in_eight_rows_uses_every_bank_evenly(swizzle: int, size: int) -> None:
    """Eight chunks of 16 bytes are one pass over the 128 bytes of banks where no two share them."""
    panels = Panels(swizzle, 8, swizzle // size, size)
    groups = sorted(panels.offset(row, 0) % 128 // 16 for row in range(8))
    assert groups == list(range(8)) if swizzle == 128 else len(set(groups)) == 8


@pytest.mark.parametrize(
    ("columns", "size", "swizzle"), [(8, 2, 32), (16, 2, 32), (24, 2, 64), (64, 2, 128), (100, 2, 128), (33, 1, 64)]
)
def test_the_narrowest_panel_that_holds_a_row_is_chosen(columns: int, size: int, swizzle: int) -> None:
    assert swizzle_for(columns, size) == swizzle
