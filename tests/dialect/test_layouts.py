"""The laws of register layouts, against their definition element by element."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mosaic_gpu.dialect.layouts import Coordinate, Layout, element_ids, register_map
from tests.support.layouts import element_at, holders, layouts, shaped_layouts, shapes

ROW = "4x128 r:0,1;0,2 l:0,4;0,8;0,16;0,32;0,64 w:1,0;2,0"
LANES = "l:1,0;2,0;4,0;8,0;16,0"


def test_the_worked_table_of_the_module_holds() -> None:
    layout = Layout.parse(ROW)
    table = {(0, 0, 0): (0, 0), (0, 0, 3): (0, 3), (0, 5, 0): (0, 20), (3, 31, 3): (3, 127)}
    for (warp, lane, register), element in table.items():
        assert tuple(layout.coordinates((4, 128))[warp * 32 + lane, register]) == element


def test_a_tile_larger_than_the_base_repeats_it_in_registers() -> None:
    layout = Layout.parse(ROW)
    assert layout.reps((4, 1000)) == (1, 8)
    assert layout.num_registers((4, 1000)) == 32
    assert layout.register_offsets((4, 1000))[4:9] == ((0, 128), (0, 129), (0, 130), (0, 131), (0, 256))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (f"32x3 r: {LANES} w:", "powers of two"),
        ("32 r: l:1;2;4;8 w:", "5 lane bits"),
        ("32 r: l:1;2;4;8;32 w:", "leaves the base"),
        ("32 r:0 l:1;2;4;8;16 w:", "registers are not replicated"),
        ("32 r: l:1;2;4;8;12 w:", "independent and span"),
        ("64 r: l:1;2;4;8;16 w:", "independent and span"),
        ("32 r: l:1;2;4;8;16 w:16", "independent and span"),
    ],
)
def test_what_is_no_layout_is_refused(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        Layout.parse(text)


@given(shaped_layouts(mixed=True))
def test_a_layout_reads_back_from_its_text(case: tuple[Coordinate, Layout]) -> None:
    assert Layout.parse(str(case[1])) == case[1]


@given(shaped_layouts(mixed=True, max_rank=2))
def test_coordinates_are_the_xor_of_the_images(case: tuple[Coordinate, Layout]) -> None:
    shape, layout = case
    coordinates = layout.coordinates(shape)
    assert coordinates.shape == (layout.num_threads, layout.num_registers(shape), len(shape))
    for thread in (0, 1, 13, layout.num_threads - 1):
        for register in range(layout.num_registers(shape)):
            assert tuple(coordinates[thread, register]) == element_at(layout, shape, thread, register)


@given(shaped_layouts(mixed=True))
def test_registers_offset_their_threads_coordinate(case: tuple[Coordinate, Layout]) -> None:
    shape, layout = case
    threads, offsets = layout.thread_coordinates(), np.array(layout.register_offsets(shape))
    combined = threads[:, None] ^ offsets[None]
    assert (layout.coordinates(shape) == combined).all()
    if layout.is_disjoint:
        assert (threads[:, None] + offsets[None] == combined).all()


@given(shaped_layouts(mixed=True, max_rank=2))
def test_every_element_is_held_as_often_as_the_free_bits_say(case: tuple[Coordinate, Layout]) -> None:
    shape, layout = case
    copies = 2 ** (layout.free_lanes.bit_count() + layout.free_warps.bit_count())
    for pairs in holders(layout, shape).values():
        threads = {thread for thread, _ in pairs}
        assert len(pairs) == len(threads) == copies
        assert len({thread & ~layout.free_threads for thread in threads}) == 1


@given(shaped_layouts(), st.data())
def test_a_slice_holds_what_a_fold_along_the_axes_leaves_in_place(
    case: tuple[Coordinate, Layout], data: st.DataObject
) -> None:
    shape, layout = case
    assume(len(shape) > 1)
    gone = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1, max_size=len(shape) - 1))
    kept = [d for d in range(len(shape)) if d not in gone]
    sliced = layout.slice(gone)
    rest = tuple(shape[d] for d in kept)
    before, after = layout.coordinates(shape)[..., kept], sliced.coordinates(rest)
    for thread in range(layout.num_threads):
        assert {tuple(c) for c in before[thread]} == {tuple(c) for c in after[thread]}


def test_slicing_everything_is_refused() -> None:
    with pytest.raises(ValueError, match="scalar"):
        Layout.parse(ROW).slice([0, 1])


def test_slicing_a_swizzle_that_mixes_its_dimensions_is_refused() -> None:
    swizzle = Layout.parse("2x32 r:1,1 l:0,1;0,2;0,4;0,8;0,16 w:")
    with pytest.raises(ValueError, match="independent"):
        swizzle.slice([0])


@given(shaped_layouts(mixed=True), st.data())
def test_a_transposition_permutes_coordinates(case: tuple[Coordinate, Layout], data: st.DataObject) -> None:
    shape, layout = case
    permutation = data.draw(st.permutations(range(len(shape))))
    moved_shape = tuple(shape[d] for d in permutation)
    numbers = np.arange(math.prod(shape)).reshape(shape).transpose(permutation).reshape(-1)
    ids = element_ids(layout.transpose(permutation), moved_shape)
    expected = np.where(ids >= 0, numbers[ids], -1)
    held = element_ids(layout, shape)
    for thread in range(layout.num_threads):
        assert set(held[thread]) | {-1} == set(expected[thread]) | {-1}


RESHAPES = [
    ((4, 1024), (4096,)),
    ((4096,), (4, 1024)),
    ((6, 4, 5), (24, 5)),
    ((24, 5), (6, 4, 5)),
    ((12,), (3, 4)),
    ((3, 4), (12,)),
    ((32, 8), (8, 32)),
    ((5,), (5, 1)),
    ((1, 5, 1), (5,)),
    ((7, 16), (7, 4, 4)),
    ((8, 8, 8), (64, 8)),
]


@given(st.sampled_from(RESHAPES), st.data())
def test_a_reshape_keeps_every_element_in_its_thread(
    shapes_: tuple[Coordinate, Coordinate], data: st.DataObject
) -> None:
    old, new = shapes_
    layout = data.draw(layouts(old))
    moved = layout.reshape(old, new)
    assume(moved is not None)
    assert moved is not None
    mapped = register_map(element_ids(layout, old), element_ids(moved, new))
    assert mapped is not None
    assert moved.free_threads == layout.free_threads


@pytest.mark.parametrize(("old", "new"), RESHAPES)
def test_power_of_two_reshapes_of_a_blocked_layout_are_expressible(old: Coordinate, new: Coordinate) -> None:
    assert Layout.blocked(old, 1, 1).reshape(old, new) is not None or old == (6, 4, 5)


def test_a_reshape_that_no_bits_express_is_none() -> None:
    assert Layout.blocked((4, 1000), 4).reshape((4, 1000), (4000,)) is None
    assert Layout.blocked((15,), 1).reshape((15,), (3, 5)) is None


@given(shapes(), st.data())
def test_an_operand_of_a_broadcast_is_held_where_the_result_wants_it(shape: Coordinate, data: st.DataObject) -> None:
    layout = data.draw(layouts(shape))
    kept = data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))
    dimensions = sorted(kept)
    operand = tuple(1 if data.draw(st.booleans()) else shape[d] for d in dimensions)
    source = layout.broadcast_source(dimensions, operand, shape)
    numbers = np.broadcast_to(
        np.arange(math.prod(operand)).reshape(
            [operand[dimensions.index(d)] if d in kept else 1 for d in range(len(shape))]
        ),
        shape,
    ).reshape(-1)
    ids = element_ids(layout, shape)
    assert register_map(element_ids(source, operand), np.where(ids >= 0, numbers[ids], -1)) is not None


@given(shaped_layouts(mixed=True), st.data())
def test_the_vector_width_counts_adjacent_elements(case: tuple[Coordinate, Layout], data: st.DataObject) -> None:
    shape, layout = case
    dim = data.draw(st.integers(0, len(shape) - 1))
    width = layout.vector_width(dim, shape)
    coordinates = layout.coordinates(shape)
    vectors = coordinates.reshape(layout.num_threads, -1, width, len(shape))
    step = np.eye(len(shape), dtype=np.int64)[dim]
    assert (vectors == vectors[:, :, :1] + np.arange(width)[:, None] * step).all()
    assert (vectors[:, :, 0, dim] % width == 0).all()


def test_the_vector_width_goes_on_into_repetitions() -> None:
    assert Layout.parse("32x4 r:0,1;0,2 l:1,0;2,0;4,0;8,0;16,0 w:").vector_width(1, (32, 16)) == 16
    assert Layout.parse("32x4 r:0,1;0,2 l:1,0;2,0;4,0;8,0;16,0 w:").vector_width(1, (32, 12)) == 4


@given(shaped_layouts(mixed=True), st.data())
def test_a_wider_base_holds_the_same_elements_in_each_thread(
    case: tuple[Coordinate, Layout], data: st.DataObject
) -> None:
    shape, layout = case
    wide = layout.extend([n << data.draw(st.integers(0, 2)) for n in layout.base])
    assert register_map(element_ids(layout, shape), element_ids(wide, shape)) is not None
    assert register_map(element_ids(wide, shape), element_ids(layout, shape)) is not None


@given(shapes(), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8]))
def test_the_default_layout_spreads_neighbours_over_lanes(shape: Coordinate, num_warps: int, vector: int) -> None:
    layout = Layout.blocked(shape, num_warps, vector)
    assert layout.num_warps == num_warps
    ids = element_ids(layout, shape)
    assert set(range(math.prod(shape))) <= set(ids.reshape(-1).tolist())
    if shape[-1] >= 64 * vector:
        assert layout.vector_width(len(shape) - 1, shape) >= vector
        assert (layout.thread_coordinates()[:32, -1] == np.arange(32) * vector).all()


def test_left_over_threads_replicate() -> None:
    layout = Layout.blocked((3, 5), 4)
    assert layout.base == (4, 8)
    assert layout.free_lanes == 0
    assert layout.free_warps == 0b11


def test_warps_may_have_an_order_of_their_own() -> None:
    layout = Layout.blocked((4, 1000), 4, 4, warp_order=(0, 1))
    assert str(layout) == ROW


@given(shaped_layouts(), st.sampled_from([2, 4]))
def test_appended_elements_are_the_lowest_registers(case: tuple[Coordinate, Layout], factor: int) -> None:
    shape, layout = case
    wide = layout.append(factor)
    ids = element_ids(layout, shape)
    expected = np.where(ids[..., None] >= 0, ids[..., None] * factor + np.arange(factor), -1)
    assert wide.num_registers((*shape, factor)) == layout.num_registers(shape) * factor
    assert set(element_ids(wide, (*shape, factor))[0]) == set(expected[0].reshape(-1))
    assert (element_ids(wide, (*shape, factor))[:, :factor] == expected[:, 0]).all()
