"""The matrix units' layouts, compared with the formulas of the PTX ISA, element by element."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mosaic_gpu.dialect.dot_layouts import fma_layout, mma_layouts, warp_grid, wgmma_layouts, wgmma_plan
from mosaic_gpu.dialect.layouts import Layout, element_ids

Formula = Callable[[int, int], tuple[int, int]]


def a16(lane: int, i: int) -> tuple[int, int]:
    """mma.m16n8k16, .f16 and .bf16: a0 .. a7."""
    row = lane // 4 + (0 if i % 4 < 2 else 8)
    return row, (lane % 4) * 2 + (i & 1) + (8 if i >= 4 else 0)


def b16(lane: int, i: int) -> tuple[int, int]:
    return (lane % 4) * 2 + (i & 1) + (8 if i >= 2 else 0), lane // 4


def a8(lane: int, i: int) -> tuple[int, int]:
    """mma.m16n8k32, 8-bit types: a0 .. a15."""
    row = lane // 4 + (0 if i < 4 or 8 <= i < 12 else 8)
    return row, (lane % 4) * 4 + (i & 3) + (16 if i >= 8 else 0)


def b8(lane: int, i: int) -> tuple[int, int]:
    return (lane % 4) * 4 + (i & 3) + (16 if i >= 4 else 0), lane // 4


def a32(lane: int, i: int) -> tuple[int, int]:
    """mma.m16n8k8, .tf32: a0 .. a3."""
    return lane // 4 + (8 if i in (1, 3) else 0), lane % 4 + (4 if i >= 2 else 0)


def b32(lane: int, i: int) -> tuple[int, int]:
    return lane % 4 + 4 * i, lane // 4


def c32(lane: int, i: int) -> tuple[int, int]:
    """The accumulators of all of these: c0 .. c3."""
    return lane // 4 + (8 if i >= 2 else 0), (lane % 4) * 2 + (i & 1)


def a64(lane: int, i: int) -> tuple[int, int]:
    """mma.m8n8k4, .f64."""
    return lane // 4, lane % 4


def b64(lane: int, i: int) -> tuple[int, int]:
    return lane % 4, lane // 4


def c64(lane: int, i: int) -> tuple[int, int]:
    return lane // 4, (lane % 4) * 2 + i


@pytest.mark.parametrize(
    ("bits", "shape", "formulas"),
    [
        (16, (16, 8, 16), (a16, b16, c32)),
        (8, (16, 8, 32), (a8, b8, c32)),
        (32, (16, 8, 8), (a32, b32, c32)),
        (64, (8, 8, 4), (a64, b64, c64)),
    ],
)
def test_one_fragment_is_as_the_manual_says(
    bits: int, shape: tuple[int, int, int], formulas: tuple[Formula, Formula, Formula]
) -> None:
    m, n, k = shape
    layouts = mma_layouts(bits, m, n, 1)
    for layout, formula, extent in zip(
        (layouts.lhs, layouts.rhs, layouts.acc), formulas, ((m, k), (k, n), (m, n)), strict=True
    ):
        held = layout.coordinates(extent)
        for lane in range(32):
            assert [tuple(c) for c in held[lane].tolist()] == [formula(lane, i) for i in range(held.shape[1])]


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("extents", [(16, 8), (64, 64), (17, 100), (8, 8), (128, 24)])
@pytest.mark.parametrize("num_warps", [1, 4, 8])
def test_fragments_of_a_warp_belong_together(bits: int, extents: tuple[int, int], num_warps: int) -> None:
    """Each warp's accumulators need the rows of A and the columns of B that it holds, in order."""
    m, n = extents
    layouts = mma_layouts(bits, m, n, num_warps)
    k = layouts.lhs.base[1]
    a, b, c = (
        layout.coordinates(shape)
        for layout, shape in zip((layouts.lhs, layouts.rhs, layouts.acc), ((m, k), (k, n), (m, n)), strict=True)
    )
    rows, columns = layouts.lhs.reps((m, k))[0], layouts.rhs.reps((k, n))[1]
    size = c.shape[1] // (rows * columns)
    high = 8 if bits == 64 else 16
    for warp in range(num_warps):
        for i in range(rows):
            for j in range(columns):
                first = c[32 * warp, (i * columns + j) * size]
                assert first[0] == a[32 * warp, i * a.shape[1] // rows][0]
                assert first[1] == b[32 * warp, j * b.shape[1] // columns][1]
                assert first[0] % high == 0
                assert first[1] % 8 == 0


@pytest.mark.parametrize(
    ("extents", "num_warps", "grid"),
    [((64, 64), 4, (2, 2)), ((16, 64), 4, (1, 4)), ((128, 8), 8, (8, 1)), ((16, 8), 8, (1, 1)), ((64, 256), 8, (2, 4))],
)
def test_warps_are_dealt_out_in_squares(extents: tuple[int, int], num_warps: int, grid: tuple[int, int]) -> None:
    assert warp_grid(*extents, num_warps) == grid


def wgmma_d(thread: int, i: int) -> tuple[int, int]:
    """PTX ISA, "Register fragments for wgmma.mma_async": the accumulator D of m64nN."""
    row = 16 * (thread % 128 // 32) + thread % 32 // 4 + (8 if i // 2 % 2 else 0)
    return row, (i // 4) * 8 + (thread % 4) * 2 + (i & 1)


def wgmma_a16(thread: int, i: int) -> tuple[int, int]:
    """A of m64nNk16 in registers, 16-bit types."""
    row = 16 * (thread % 128 // 32) + thread % 32 // 4 + (8 if i // 2 % 2 else 0)
    return row, (i // 4) * 8 + (thread % 4) * 2 + (i & 1)


@pytest.mark.parametrize(("m", "n", "num_warps"), [(64, 8, 4), (64, 24, 4), (64, 256, 4), (128, 72, 8), (256, 64, 16)])
def test_a_warpgroup_holds_what_the_manual_says(m: int, n: int, num_warps: int) -> None:
    plan = wgmma_plan(m, n, num_warps)
    lhs, acc = wgmma_layouts(16, plan, num_warps)
    held, left = acc.coordinates((m, n)), lhs.coordinates((m, 16))
    assert plan.along_m * 4 == num_warps
    for thread in range(32 * num_warps):
        group = thread // 128
        for i in range(n // 2):
            row, column = wgmma_d(thread, i)
            assert tuple(held[thread, i]) == (64 * group + row, column)
        for i in range(8):
            row, column = wgmma_a16(thread, i)
            assert tuple(left[thread, i]) == (64 * group + row, column)


@pytest.mark.parametrize(
    ("m", "n", "num_warps"), [(64, 256, 8), (64, 512, 16), (192, 40, 8), (100, 300, 8), (64, 64, 16), (512, 32, 8)]
)
def test_a_plan_covers_every_element_once(m: int, n: int, num_warps: int) -> None:
    plan = wgmma_plan(m, n, num_warps)
    _, acc = wgmma_layouts(16, plan, num_warps)
    assert plan.along_m * plan.along_n <= num_warps // 4
    assert plan.rows >= m
    assert plan.columns * plan.along_n >= n
    assert sum(count for _, count in plan.splits) == plan.columns
    assert all(start % 64 == 0 and 8 <= count <= 256 and count % 8 == 0 for start, count in plan.splits)
    assert set(element_ids(acc, (m, n)).ravel().tolist()) - {-1} == set(range(m * n))
    assert acc.num_registers((m, n)) == plan.repeats_m * plan.columns // 2


def test_an_accumulator_becomes_a_left_operand_inside_of_each_thread() -> None:
    """What lets the second product of attention take the first one's result from registers."""
    from mosaic_gpu.dialect.layout_conversions import conversion

    lhs, acc = wgmma_layouts(16, wgmma_plan(128, 128, 8), 8)
    assert conversion(acc, lhs, (128, 128)).kind == "registers"
    assert isinstance(lhs, Layout)


@pytest.mark.parametrize(("m", "n", "num_warps"), [(128, 128, 8), (64, 64, 4), (32, 64, 4), (128, 32, 2), (24, 40, 1)])
def test_squares_of_neighbours_for_multiply_adds(m: int, n: int, num_warps: int) -> None:
    """Every element is held once, and a warp's vectors of a row fall into different banks or are the same words."""
    layout = fma_layout(m, n, num_warps)
    assert layout is not None
    assert layout.free_threads == 0
    ids = element_ids(layout, (m, n))
    assert sorted(ids[ids >= 0].tolist()) == list(range(m * n))
    lanes = layout.coordinates((m, n))[:32, 0]
    for dim in range(2):
        words = {word for start in set(lanes[:, dim].tolist()) for word in range(start, start + 4)}
        assert len({word % 32 for word in words}) == len(words)


@pytest.mark.parametrize(("m", "n", "num_warps"), [(1, 64, 1), (8, 8, 4), (4, 4, 1)])
def test_small_tiles_have_no_squares(m: int, n: int, num_warps: int) -> None:
    assert fma_layout(m, n, num_warps) is None
