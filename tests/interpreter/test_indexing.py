"""References as selections of memory: against NumPy's own indexing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.experimental import pallas as pl

from mosaic_gpu.interpreter.indexing import Rules, resolve
from mosaic_gpu.interpreter.memory import Box, Places, memory_of, recast, tile
from mosaic_gpu.lowering.jaxpr.compat import NDIndexer, ReshapeTransform, TransposeTransform

VALUES = np.arange(6 * 8, dtype=np.float32).reshape(6, 8)


def select(*transforms: Any, rules: Rules | None = None) -> Any:
    return resolve(memory_of("memory", "smem", VALUES).whole(), transforms, rules or Rules())


def index(shape: tuple[int, ...], *indices: Any) -> Any:
    return NDIndexer.from_indices_shape(indices, shape)


def computed(shape: tuple[int, ...], *indices: Any) -> Any:
    """An indexer as a kernel's equations hold it, whose starts JAX did not see."""
    return NDIndexer(tuple(indices), shape, ())


@given(st.integers(-6, 5), st.integers(0, 7), st.integers(1, 2))
def test_numbers_and_slices_are_boxes(row: int, start: int, step: int) -> None:
    found = select(index((6, 8), np.int32(row), slice(start, None, step)))
    assert isinstance(found, Box)
    np.testing.assert_array_equal(found.read(), VALUES[row, start::step])


@given(st.lists(st.integers(-6, 5), min_size=1, max_size=7))
def test_index_arrays_are_places(rows: list[int]) -> None:
    found = select(index((6, 8), np.array(rows, np.int32)))
    assert isinstance(found, Places)
    np.testing.assert_array_equal(found.read(), VALUES[rows])


def test_a_chain_of_transforms() -> None:
    found = select(index((6, 8), slice(1, 5)), TransposeTransform((1, 0)), ReshapeTransform((4, 8)))
    np.testing.assert_array_equal(found.read(), VALUES[1:5].T.reshape(4, 8))
    found.write(np.zeros((4, 8), np.float32))
    assert (found.read() == 0).all()


@pytest.mark.parametrize(("start", "rows"), [(4, slice(2, 6)), (-1, slice(2, 6)), (-9, slice(0, 4)), (99, slice(2, 6))])
def test_starts_wrap_once_and_are_clamped_so_that_the_slice_fits(start: int, rows: slice) -> None:
    told: list[str] = []
    found = select(computed((6, 8), pl.ds(np.int32(start), 4), pl.ds(0, 8)), rules=Rules(outside=told.append))
    np.testing.assert_array_equal(found.read(), VALUES[rows])
    assert told


def test_elements_out_of_range_are_clamped_when_read_and_dropped_when_written() -> None:
    rows = np.array([0, 9, -7, 3], np.int32)
    np.testing.assert_array_equal(select(index((6, 8), rows)).read(), VALUES[[0, 5, 0, 3]])
    found = select(index((6, 8), rows), rules=Rules(writes=True))
    np.testing.assert_array_equal(found.inside[:, 0], [True, False, False, True])
    found.write(np.full((4, 8), -1, np.float32))
    expected = VALUES.copy()
    expected[[0, 3]] = -1
    np.testing.assert_array_equal(found.memory.whole().array(), expected)


def test_exact_rules_leave_out_what_is_outside() -> None:
    found = select(computed((6, 8), pl.ds(np.int32(4), 4), pl.ds(np.int32(-2), 4)), rules=Rules(exact=True))
    expected = np.zeros((4, 4), bool)
    expected[:2, 2:] = True
    np.testing.assert_array_equal(found.inside, expected)
    np.testing.assert_array_equal(found.read()[:2, 2:], VALUES[4:, :2])


def test_tiled_memory_untiles_without_a_copy() -> None:
    class UntilingTransform:
        tiling = (2, 4)

    memory = memory_of("memory", "smem", np.zeros((3, 2, 2, 4), np.float32))
    assert isinstance(resolve(memory.whole(), [UntilingTransform()], Rules()), Places)
    tile(memory, ((2, 4),))
    whole = resolve(memory.whole(), [UntilingTransform()], Rules())
    assert isinstance(whole, Box)
    whole.write(VALUES)
    np.testing.assert_array_equal(memory.whole().read(), VALUES.reshape(3, 2, 2, 4).transpose(0, 2, 1, 3))


def test_recast_pairs_rows() -> None:
    wide = np.array([[0x00020001, 0x00040003]], np.uint32)
    narrow = recast(wide, np.dtype(np.uint16))
    np.testing.assert_array_equal(narrow, [[1, 3], [2, 4]])
    np.testing.assert_array_equal(recast(narrow, np.dtype(np.uint32)), wide)
