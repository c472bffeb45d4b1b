"""Which register of a thread holds what another tile's register shall hold: the free way to move elements.

Elements have numbers (of a common source, row-major); -1 is padding.  Where, in every thread, each register
of the result finds its element in the same register of the source, moving elements is only a matter of
names.  All functions here are pure and cached.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mosaic_gpu.dialect.layouts import Layout, element_ids, register_map

Ids = NDArray[np.int64]
Registers = tuple[int | None, ...]
Ints = tuple[int, ...]


@lru_cache(1024)
def ids(layout: Layout, shape: Ints) -> Ids:
    """`element_ids`, cached: [threads, registers]."""
    return element_ids(layout, shape)


@lru_cache(1024)
def same_elements(source: Layout, source_shape: Ints, dest: Layout, dest_shape: Ints) -> Registers | None:
    """For a reshape: both tiles number their elements row-major."""
    return register_map(ids(source, source_shape), ids(dest, dest_shape))


@lru_cache(1024)
def boxed(
    source: Layout, source_shape: Ints, dest: Layout, dest_shape: Ints, starts: Ints, strides: Ints, dims: Ints
) -> Registers | None:
    """For ops whose element c is the source's at `starts[i] + strides[i] * c[dims[i]]` along each dimension i."""
    coordinates = dest.coordinates(dest_shape)
    inside = (coordinates < np.array(dest_shape)).all(axis=-1)
    numbers = np.zeros(inside.shape, np.int64)
    for size, start, stride, dim in zip(source_shape, starts, strides, dims, strict=True):
        numbers = numbers * size + start + stride * coordinates[..., dim]
    return register_map(ids(source, source_shape), np.where(inside, numbers, -1))


@lru_cache(1024)
def joined(
    sources: tuple[tuple[Layout, Ints], ...], dest: Layout, dest_shape: Ints, dimension: int
) -> Registers | None:
    """For a concatenation along `dimension`; source registers are numbered through all sources."""
    parts, start = [], 0
    for layout, shape in sources:
        coordinates = layout.coordinates(shape)
        inside = (coordinates < np.array(shape)).all(axis=-1)
        numbers = np.zeros(inside.shape, np.int64)
        for d, size in enumerate(dest_shape):
            numbers = numbers * size + coordinates[..., d] + (start if d == dimension else 0)
        parts.append(np.where(inside, numbers, -1))
        start += shape[dimension]
    return register_map(np.concatenate(parts, axis=1), ids(dest, dest_shape))


@lru_cache(1024)
def split_elements(wide: Layout, wide_shape: Ints, narrow: Layout, narrow_shape: Ints, parts: int) -> Registers | None:
    """From the parts of wide elements (`parts` a register, lowest first) to a tile of narrow elements."""
    return register_map(_parts(wide, wide_shape, parts), ids(narrow, narrow_shape))


@lru_cache(1024)
def join_elements(narrow: Layout, narrow_shape: Ints, wide: Layout, wide_shape: Ints, parts: int) -> Registers | None:
    """From a tile of narrow elements to the parts of wide elements: the inverse of `split_elements`."""
    return register_map(ids(narrow, narrow_shape), _parts(wide, wide_shape, parts))


def _parts(wide: Layout, shape: Ints, parts: int) -> Ids:
    numbers = ids(wide, shape)[:, :, None]
    split = np.where(numbers < 0, -1, numbers * parts + np.arange(parts))
    return split.reshape(numbers.shape[0], -1)
