"""Conversion plans, run on arrays of element numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mosaic_gpu.dialect.layout_conversions import conversion, run_conversion
from mosaic_gpu.dialect.layouts import Coordinate, Layout, element_ids
from tests.support.layouts import layouts, shapes


def check(source: Layout, dest: Layout, shape: Coordinate) -> str:
    """Runs the plan and compares every element that is not padding; the plan's kind."""
    plan = conversion(source, dest, shape)
    if plan.kind != "shared":
        wanted = element_ids(dest, shape)
        got = run_conversion(plan, element_ids(source, shape))
        assert got.shape == wanted.shape
        assert (got == wanted)[wanted >= 0].all()
    return plan.kind


def same_threads(source: Layout, dest: Layout, shape: Coordinate) -> bool:
    """Whether each thread holds, before, all elements that it holds after."""
    before, after = element_ids(source, shape), element_ids(dest, shape)
    return all(set(b) >= set(a) - {-1} for b, a in zip(before, after, strict=True))


@given(st.data(), shapes(max_rank=2))
def test_any_two_layouts_convert(data: st.DataObject, shape: Coordinate) -> None:
    source = data.draw(layouts(shape, max_warp_bits=0, mixed=data.draw(st.booleans())))
    dest = data.draw(layouts(shape, max_warp_bits=0, mixed=data.draw(st.booleans())))
    check(source, dest, shape)


@given(st.data(), shapes(max_rank=2))
def test_layouts_of_several_warps_convert(data: st.DataObject, shape: Coordinate) -> None:
    source = data.draw(layouts(shape, max_warp_bits=1))
    dest = data.draw(layouts(shape, max_warp_bits=1).filter(lambda layout: layout.num_warps == source.num_warps))
    check(source, dest, shape)


@given(st.data(), shapes(max_rank=2))
def test_images_that_only_move_inside_a_warp_need_no_shared_memory(data: st.DataObject, shape: Coordinate) -> None:
    source = data.draw(layouts(shape, max_warp_bits=1))
    count = len(source.register)
    moving = data.draw(st.permutations([i for i in (*source.register, *source.lane) if any(i)]))
    lanes = data.draw(st.permutations([*moving[count:], *(i for i in source.lane if not any(i))]))
    dest = Layout(source.base, tuple(moving[:count]), tuple(lanes), source.warp)
    kind = check(source, dest, shape)
    plan = conversion(source, dest, shape)
    assert kind != "shared" or len(source.register) > 2, plan


@given(st.data(), shapes(max_rank=2))
def test_reordered_registers_stay_in_their_threads(data: st.DataObject, shape: Coordinate) -> None:
    source = data.draw(layouts(shape))
    registers = data.draw(st.permutations(source.register))
    wide = source.extend([n << data.draw(st.integers(0, 1)) for n in source.base])
    assert check(source, Layout(source.base, tuple(registers), source.lane, source.warp), shape) == "registers"
    assert check(source, wide, shape) == "registers"
    assert check(wide, source, shape) == "registers"


@given(st.data(), shapes(max_rank=2))
def test_a_plan_inside_threads_is_found_only_where_threads_have_what_they_need(
    data: st.DataObject, shape: Coordinate
) -> None:
    source = data.draw(layouts(shape, max_warp_bits=0))
    dest = data.draw(layouts(shape, max_warp_bits=0))
    if conversion(source, dest, shape).kind == "registers":
        assert same_threads(source, dest, shape)


def test_a_transposition_among_four_lanes_is_shuffled() -> None:
    a = Layout.parse("4x4 r:0,1;0,2 l:1,0;2,0;0,0;0,0;0,0 w:")
    plan = conversion(a, a.transpose([1, 0]), (4, 4))
    assert plan.kind == "shuffle"
    assert plan.shuffle is not None
    assert plan.shuffle.before == plan.shuffle.after == ((0, 1), (1, 2))
    assert [plan.shuffle.source_lane(5, k) for k in range(4)] == [5, 4, 7, 6]
    assert check(a, a.transpose([1, 0]), (4, 4)) == "shuffle"


def test_what_lies_in_another_warp_goes_through_shared_memory() -> None:
    a, b = Layout.parse("64 r: l:1;2;4;8;16 w:32"), Layout.parse("64 r: l:2;4;8;16;32 w:1")
    assert check(a, b, (64,)) == "shared"


def test_replicated_warps_need_no_shared_memory() -> None:
    a, b = Layout.parse("64 r:32 l:1;2;4;8;16 w:0"), Layout.parse("64 r: l:1;2;4;8;16 w:32")
    assert check(a, b, (64,)) == "shuffle"
    assert check(b, a, (64,)) == "shared"
    plan = conversion(a, b, (64,)).shuffle
    assert plan is not None
    assert not plan.moves_lanes


def test_spreading_one_warps_row_over_all_registers_is_left_to_shared_memory() -> None:
    a = Layout.parse("32 r: l:1;2;4;8;16 w:")
    b = Layout.parse("32 r:1;2;4;8;16 l:0;0;0;0;0 w:")
    assert check(a, b, (32,)) == "shared"
    assert check(b, a, (32,)) == "shuffle"


def test_layouts_of_different_blocks_do_not_convert() -> None:
    with pytest.raises(ValueError, match="numbers of warps"):
        conversion(Layout.blocked((8,), 1), Layout.blocked((8,), 2), (8,))
