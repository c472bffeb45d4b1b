"""The cost model ranks accesses and conversions as the hardware does."""

from __future__ import annotations

from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.lowering.passes.layout_costs import access_cost, conversion_cost, reduction_cost

SHAPE, STRIDES = (64, 128), (128, 1)
BYTES = 64 * 128 * 4


def cost(layout: Layout, vector: int, space: str = "gmem", leader_only: bool = False) -> int:
    return access_cost(layout, SHAPE, STRIDES, 4, vector, space, leader_only)


def test_a_coalesced_access_moves_its_bytes_and_little_more() -> None:
    wide, narrow = cost(Layout.blocked(SHAPE, 4, 4), 4), cost(Layout.blocked(SHAPE, 4, 1), 1)
    assert BYTES < wide < narrow < BYTES * 1.2


def test_lanes_along_rows_touch_a_sector_each() -> None:
    assert cost(Layout.blocked(SHAPE, 4, 1, order=(0, 1)), 1) > 8 * BYTES


def test_lanes_along_rows_of_shared_memory_meet_in_one_bank() -> None:
    straight = cost(Layout.blocked(SHAPE, 4, 1), 1, "smem")
    conflicting = cost(Layout.blocked(SHAPE, 4, 1, order=(0, 1)), 1, "smem")
    assert conflicting > 16 * straight


def test_replicating_warps_all_load_but_only_one_stores() -> None:
    layout = Layout.parse("64x128 r:0,1;0,2;1,0;2,0;4,0;8,0;16,0;32,0 l:0,4;0,8;0,16;0,32;0,64 w:0,0;0,0")
    assert cost(layout, 4) == 4 * cost(layout, 4, leader_only=True)


def test_registers_are_cheaper_than_shuffles_and_those_than_shared_memory() -> None:
    layout = Layout.blocked((64, 64), 4, 4)
    permuted = Layout(layout.base, layout.register[::-1], layout.lane, layout.warp)
    shuffled = Layout(layout.base, layout.register, layout.lane[::-1], layout.warp)
    shared = Layout(layout.base, layout.register, layout.lane, layout.warp[::-1])
    costs = [conversion_cost(layout, other, (64, 64), 4) for other in (permuted, shuffled, shared)]
    assert costs[0] == 0 < costs[1] < costs[2]


def test_a_fold_costs_nothing_inside_threads_and_most_between_warps() -> None:
    in_threads = Layout.blocked(SHAPE, 4, 1, order=(0, 1))
    in_warps = Layout.blocked(SHAPE, 4, 4, warp_order=(0, 1))
    between = Layout.blocked((64, 512), 4, 4)
    costs = [
        reduction_cost(in_threads, SHAPE, (1,), 4),
        reduction_cost(in_warps, SHAPE, (1,), 4),
        reduction_cost(between, (64, 512), (1,), 4),
    ]
    assert costs[1] < costs[2]
    assert reduction_cost(Layout.parse("32x4 r:0,1;0,2 l:1,0;2,0;4,0;8,0;16,0 w:"), (32, 4), (1,), 4) == 0
    assert costs[0] < costs[1]
