"""Boxes of TMA: together they copy a view, each element to where the swizzle says, zeros from outside of the array."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mosaic_gpu.lowering.diagnostics import parse_module
from mosaic_gpu.lowering.passes.walk import body_of, kernels, walk
from mosaic_gpu.lowering.pipeline import compilation_context
from mosaic_gpu.lowering.swizzles import Panels
from mosaic_gpu.lowering.tma import CopyPlan, plan_copy
from mosaic_gpu.lowering.views import RefView, view_of

BITS = {"i8": 8, "f16": 16, "f32": 32, "f64": 64}


def view(array: str, offsets: list[int], sizes: list[int], dropped: list[int], **fields: list[int]) -> RefView:
    """The facts of a view of an array such as "64x128xf16"."""
    element = array.split("x")[-1]
    kept = "x".join(str(n) for d, n in enumerate(sizes) if d not in dropped)
    ref, part = (f'!mgpu.ref<tensor<{t}>, "gmem">' for t in (array, f"{kept}x{element}"))
    rank = len(sizes)
    strides, checked = fields.get("strides", [1] * rank), fields.get("checked", [1] * rank)
    constants = "\n".join(f"%o{d} = arith.constant {n} : i32" for d, n in enumerate(offsets))
    text = f""""mgpu.kernel"() ({{
    ^bb0(%g: {ref}):
      {constants}
      %v = "mgpu.subview"(%g, {", ".join(f"%o{d}" for d in range(rank))}) {{sizes = {sizes}, strides = {strides},
        dropped = {dropped}, checked = {checked}, operandSegmentSizes = array<i32: 1, {rank}>}}
        : ({ref}, {", ".join(["i32"] * rank)}) -> {part}
    }}) {{grid = [1], num_warps = 1 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0]}} : () -> ()"""
    with compilation_context():
        module = parse_module(text, "view")
        (kernel,) = kernels(module)
        (op,) = [op for op in walk(body_of(kernel)) if op.name == "mgpu.subview"]
        return view_of(op.results[0])


def copied(plan: CopyPlan, array: np.ndarray[Any, Any], start: list[int], size: int, panels: Panels | None) -> Any:
    """Shared memory after the copies, by elements; -1 where nothing arrived."""
    memory = np.full(size, -1, np.int64)
    for piece in plan.pieces:
        first = [s + p for s, p in zip(start, piece.start, strict=True)]
        for number, place in enumerate(itertools.product(*(range(n) for n in plan.box))):
            at = tuple(f + p for f, p in zip(first, place, strict=True))
            inside = all(0 <= a < n for a, n in zip(at, array.shape, strict=True))
            offset = number * plan.element_bytes
            offset = piece.offset_bytes + (offset if panels is None else panels.swizzled(offset))
            memory[offset // plan.element_bytes] = array[at] if inside else 0
    return memory


@given(
    rows=st.sampled_from([1, 8, 40, 256, 264]),
    columns=st.sampled_from([16, 32, 64, 256, 512]),
    element=st.sampled_from(["i8", "f16", "f32"]),
    start=st.tuples(st.integers(-3, 70), st.integers(-9, 600)),
    swizzle=st.sampled_from([0, 32, 64, 128]),
)
def test_the_boxes_copy_the_view(rows: int, columns: int, element: str, start: tuple[int, int], swizzle: int) -> None:
    size = BITS[element] // 8
    array = np.arange(1, 1 + 96 * 640).reshape(96, 640)
    found = view(f"96x640x{element}", list(start), [rows, columns], [])
    panels = Panels(swizzle, -(-rows // 8) * 8, columns, size) if swizzle else None
    if panels is not None and columns % panels.panel_columns:
        assert plan_copy(found, panels) is None
        return
    plan = plan_copy(found, panels)
    if plan is None:
        return
    elements = rows * columns if panels is None else panels.rows * columns
    memory = copied(plan, array, list(start), elements, panels)
    padded = np.pad(array, ((400, 400), (700, 700)))
    expected = padded[400 + start[0] : 400 + start[0] + rows, 700 + start[1] : 700 + start[1] + columns]
    for row, column in itertools.product({0, rows // 2, rows - 1}, range(0, columns, 7)):
        offset = row * columns + column if panels is None else panels.offset(row, column) // size
        assert memory[offset] == expected[row, column]


def test_a_matrix_in_panels_is_one_box_a_panel() -> None:
    plan = plan_copy(view("128x256xf16", [0, 64], [128, 128], []), Panels(128, 128, 128, 2))
    assert plan is not None
    assert (plan.dims, plan.strides_bytes, plan.box) == ((256, 128), (512,), (128, 64))
    assert [(p.start, p.offset_bytes) for p in plan.pieces] == [((0, 0), 0), ((0, 64), 16384)]
    assert plan.num_bytes == 128 * 128 * 2


def test_dimensions_that_the_view_drops_have_boxes_of_one() -> None:
    plan = plan_copy(view("4x6x32x64xf32", [1, 2, 0, 0], [1, 1, 32, 64], [0, 1]), None)
    assert plan is not None
    assert plan.box == (1, 1, 32, 64)


@pytest.mark.parametrize(
    ("array", "sizes", "dropped", "strides"),
    [
        ("64x100xf16", [64, 64], [], [1, 1]),
        ("64x64xf16", [64, 4], [], [1, 1]),
        ("64x64xf16", [32, 64], [], [2, 1]),
        ("64x64xf16", [64, 1], [1], [1, 1]),
        ("2x2x2x2x8x64xf16", [1, 1, 1, 1, 8, 64], [0, 1, 2, 3], [1] * 6),
        ("2147483647x64xf16", [64, 64], [], [1, 1]),
    ],
    ids=["stride", "narrow", "step", "column", "rank", "unknown"],
)
def test_what_tma_cannot_copy_has_no_plan(array: str, sizes: list[int], dropped: list[int], strides: list[int]) -> None:
    assert plan_copy(view(array, [0] * len(sizes), sizes, dropped, strides=strides), None) is None
