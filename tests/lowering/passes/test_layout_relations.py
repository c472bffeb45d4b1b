"""A layout that an op is said to carry over for free leaves every element in its thread."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from mosaic_gpu.dialect.layouts import Coordinate, Layout, element_ids, register_map
from mosaic_gpu.lowering.passes.layout_relations import (
    Boxed,
    Broadcast,
    Narrowed,
    Reduced,
    Relation,
    Reshaped,
    Transposed,
    Widened,
)
from tests.support.layouts import layouts, shaped_layouts

Numbers = np.ndarray[tuple[int, ...], np.dtype[np.int64]]


def stays(source: Layout, source_shape: Coordinate, dest: Layout, from_dest: Numbers) -> bool:
    """Whether threads keep their elements; `from_dest`: the operand's element number of each of the result's."""
    ids = element_ids(dest, from_dest.shape)
    wanted = np.where(ids >= 0, from_dest.reshape(-1)[ids], -1)
    return register_map(element_ids(source, source_shape), wanted) is not None


def numbered(shape: Coordinate) -> Numbers:
    return np.arange(math.prod(shape)).reshape(shape)


@given(shaped_layouts(), st.data())
def test_a_transposition(case: tuple[Coordinate, Layout], data: st.DataObject) -> None:
    shape, layout = case
    permutation = tuple(data.draw(st.permutations(range(len(shape)))))
    moved = numbered(shape).transpose(permutation)
    relation = Transposed(shape, moved.shape, permutation)
    assert stays(layout, shape, relation.forward(layout), moved)
    assert relation.backward(relation.forward(layout)) == layout


@given(shaped_layouts(), st.data())
def test_a_box(case: tuple[Coordinate, Layout], data: st.DataObject) -> None:
    shape, layout = case
    starts = tuple(data.draw(st.sampled_from([0, 0, n // 2, n - 1])) for n in shape)
    box = numbered(shape)[tuple(slice(start, None) for start in starts)]
    natural = Boxed(shape, box.shape, starts, (1,) * len(shape)).forward(layout)
    assume(natural is not None)
    assert natural is not None
    assert stays(layout, shape, natural, box)


@given(shaped_layouts())
def test_a_strided_box_is_not_promised(case: tuple[Coordinate, Layout]) -> None:
    shape, layout = case
    assert Boxed(shape, shape, (0,) * len(shape), (2,) * len(shape)).forward(layout) is None


@given(st.sampled_from([((8, 16), (128,)), ((6, 4), (24,)), ((5, 1), (5,)), ((64,), (4, 16))]), st.data())
def test_a_reshape(shapes: tuple[Coordinate, Coordinate], data: st.DataObject) -> None:
    old, new = shapes
    layout = data.draw(layouts(old))
    natural = Reshaped(old, new).forward(layout)
    assume(natural is not None)
    assert natural is not None
    assert stays(layout, old, natural, numbered(old).reshape(new))


@given(shaped_layouts(max_rank=2), st.data())
def test_a_broadcast(case: tuple[Coordinate, Layout], data: st.DataObject) -> None:
    shape, layout = case
    dim = data.draw(st.integers(0, len(shape) - 1))
    seen = [n if d == dim else 1 for d, n in enumerate(shape)]
    stretched = np.broadcast_to(numbered((shape[dim],)).reshape(seen), shape)
    relation = Broadcast((shape[dim],), shape, (dim,))
    assert stays(relation.backward(layout), (shape[dim],), layout, stretched)
    assert relation.cost(relation.backward(layout), layout, 4) == 0


@given(shaped_layouts(), st.sampled_from([2, 4, 8]))
def test_bitcasts_between_widths(case: tuple[Coordinate, Layout], factor: int) -> None:
    shape, layout = case
    wide = (*shape, factor)
    narrow_to_wide = np.repeat(numbered(shape)[..., None], factor, axis=-1)
    assert stays(layout, shape, Widened(shape, wide, factor).forward(layout), narrow_to_wide)
    relation = Narrowed(wide, shape, factor)
    assert relation.forward(relation.backward(layout)) == layout


def test_costs_are_zero_exactly_where_nothing_moves() -> None:
    layout = Layout.blocked((32, 64), 4, 4)
    cases: list[tuple[Relation, Layout, Layout]] = [
        (Reduced((32, 64), (32,), (1,)), layout, layout.slice([1])),
        (Transposed((32, 64), (64, 32), (1, 0)), layout, layout.transpose([1, 0])),
    ]
    for relation, operand, result in cases:
        other = Layout.blocked(relation.result_shape, 4, 2)
        assert relation.cost(operand, result, 4) == 0
        assert relation.cost(operand, other, 4) > 0
