"""Matrix descriptors, bit by bit as the PTX ISA lays them out, and the elements that they lead to."""

from __future__ import annotations

import pytest

from mosaic_gpu.lowering.nvvm.descriptors import Operand
from mosaic_gpu.lowering.swizzles import Panels


@pytest.mark.parametrize(
    ("operand", "lbo", "sbo", "code"),
    [
        (Operand(Panels(128, 128, 64, 2), k_major=True), 0, 1024, 1),
        (Operand(Panels(64, 64, 32, 2), k_major=True), 0, 512, 2),
        (Operand(Panels(32, 64, 32, 1), k_major=True), 0, 256, 3),
        (Operand(Panels(128, 64, 256, 2), k_major=False), 64 * 128, 1024, 1),
        (Operand(Panels(32, 16, 16, 2), k_major=False), 16 * 32, 256, 3),
    ],
)
def test_fields_are_where_the_manual_puts_them(operand: Operand, lbo: int, sbo: int, code: int) -> None:
    bits = operand.constant
    assert bits & 0x3FFF == 0
    assert bits >> 16 & 0x3FFF == lbo // 16
    assert bits >> 32 & 0x3FFF == sbo // 16
    assert bits >> 49 & 7 == 0
    assert bits >> 62 == code


@pytest.mark.parametrize("swizzle", [32, 64, 128])
@pytest.mark.parametrize("size", [1, 2, 4])
def test_steps_along_k_start_where_their_first_element_lies(swizzle: int, size: int) -> None:
    """The unit swizzles addresses itself: a start is the place in the unswizzled panel."""
    panels = Panels(swizzle, 64, 4 * swizzle // size, size)
    operand = Operand(panels, k_major=True)
    for step in range(panels.columns * size // 32):
        panel, inner = divmod(step * 32, swizzle)
        assert operand.step_bytes(step) == panels.offset(0, panel * swizzle // size) + inner
    for rows in range(0, 64, 8):
        assert operand.offset_bytes(rows) == panels.offset(rows, 0)


@pytest.mark.parametrize("swizzle", [32, 64, 128])
def test_steps_along_k_go_down_the_rows_where_k_does(swizzle: int) -> None:
    panels = Panels(swizzle, 64, 2 * swizzle, 2)
    operand = Operand(panels, k_major=False)
    for step in range(4):
        assert operand.step_bytes(step) == panels.offset(16 * step, 0)
    for panel in range(4):
        columns = panel * panels.panel_columns
        assert operand.offset_bytes(columns) == panels.offset(0, columns)
