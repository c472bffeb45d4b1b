"""Register layouts as linear maps over bits: which thread holds which element of a tile.

Write a hardware position as bits: register bits r0 r1 .., five lane bits l0..l4, warp bits w0 w1 ..  A
layout gives every bit an *image*, a coordinate in a power-of-two *base tile*; the element that
(register, lane, warp) holds is the XOR of the images of its set bits.  The layout

    4x128 r:0,1;0,2 l:0,4;0,8;0,16;0,32;0,64 w:1,0;2,0

says that a thread's four registers are four consecutive columns, that the 32 lanes of a warp lie side
by side along a row of 128, and that the four warps hold one row each:

    warp  lane  register   images that are set                    element
    0     0     0          (none)                                 (0, 0)
    0     0     3          r0 -> (0,1), r1 -> (0,2)               (0, 3)
    0     5     0          l0 -> (0,4), l2 -> (0,16)              (0, 20)
    3     31    3          everything                             (3, 127)

A zero image means *replication*: lanes (or warps) that differ in that bit alone hold the same element.
The other images are linearly independent and span the base tile, so every element is held, and by one
(register, lane, warp) but for replication.

A tile larger than the base repeats it in registers: `reps[d] = max(1, ceil(shape[d] / base[d]))` times
along dimension d, and register number = (repetition, row-major over the dimensions) * 2**register bits +
r.  Coordinates that are not inside the shape are *padding*, their registers hold don't-care values.  A
(4, 1000) tile in the layout above has 8 repetitions along the columns, 32 registers, and the last 24
columns of the eighth repetition are padding.

What follows is algebra on the images: a reduction's result drops coordinates (`slice`), a transposition
permutes them, a power-of-two reshape concatenates and splits their bits, and a conversion from layout A
to B is "B, then the inverse of A" (`layout_conversions`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from mosaic_gpu.dialect.bits import ceil_log2, ceil_power, is_power, rank_of

Coordinate = tuple[int, ...]
LANE_BITS = 5
WARP_SIZE = 32


@dataclass(frozen=True)
class Layout:
    """Which element of a tile each (register, lane, warp) holds; see the head of this file.

    Attributes:
      base: extents of the base tile, powers of two, one a dimension (at least one).
      register, lane, warp: the image of each bit, lowest bit first.  Five lane bits; no register image is zero.

    Raises ValueError where the images leave the base, depend on each other or do not span it.
    """

    base: Coordinate
    register: tuple[Coordinate, ...]
    lane: tuple[Coordinate, ...]
    warp: tuple[Coordinate, ...]

    def __post_init__(self) -> None:
        images = (*self.register, *self.lane, *self.warp)
        if not self.base or not all(is_power(n) for n in self.base):
            raise ValueError(f"base {self.base} must have powers of two, at least one")
        if len(self.lane) != LANE_BITS:
            raise ValueError(f"a warp has {LANE_BITS} lane bits, got {len(self.lane)}")
        for image in images:
            if len(image) != len(self.base) or not all(0 <= c < n for c, n in zip(image, self.base, strict=True)):
                raise ValueError(f"image {image} leaves the base {self.base}")
        if not all(any(image) for image in self.register):
            raise ValueError("a register image is zero: registers are not replicated")
        moving = [self.flat(image) for image in images if any(image)]
        if len(moving) != ceil_log2(math.prod(self.base)) or rank_of(moving) != len(moving):
            raise ValueError(f"the images of {self} must be independent and span the base")

    @staticmethod
    @lru_cache(4096)
    def parse(text: str) -> Layout:
        """The layout that `str` wrote as `text`."""
        base, *parts = text.split(" ")
        images = dict(part.split(":") for part in parts)
        return Layout(_ints(base, "x"), *(_images(images[key]) for key in "rlw"))

    def __str__(self) -> str:
        return _text(self)

    @property
    def rank(self) -> int:
        return len(self.base)

    @property
    def num_warps(self) -> int:
        return 1 << len(self.warp)

    @property
    def num_threads(self) -> int:
        return WARP_SIZE * self.num_warps

    @property
    def thread_images(self) -> tuple[Coordinate, ...]:
        """Images of the bits of the thread number: five lane bits, then the warp bits."""
        return self.lane + self.warp

    @property
    def free_lanes(self) -> int:
        """Mask of the lane bits that only replicate."""
        return sum(1 << i for i, image in enumerate(self.lane) if not any(image))

    @property
    def free_warps(self) -> int:
        """Mask of the warp bits that only replicate."""
        return sum(1 << i for i, image in enumerate(self.warp) if not any(image))

    @property
    def free_threads(self) -> int:
        """Mask of the bits of the thread number (lane + 32 * warp) that only replicate."""
        return self.free_lanes | self.free_warps << LANE_BITS

    @property
    def is_disjoint(self) -> bool:
        """Whether thread images and register images touch different bits, so that XOR between them is addition."""
        return all(
            _union(image[d] for image in self.register) & _union(image[d] for image in self.thread_images) == 0
            for d in range(self.rank)
        )

    def flat(self, coordinate: Coordinate) -> int:
        """The row-major number of a coordinate in the base tile; linear over XOR."""
        number = 0
        for c, n in zip(coordinate, self.base, strict=True):
            number = number * n + c
        return number

    def reps(self, shape: Sequence[int]) -> Coordinate:
        """How often the base tile is repeated along each dimension of a tile of `shape`."""
        return tuple(max(1, -(-s // n)) for s, n in zip(shape, self.base, strict=True))

    def num_registers(self, shape: Sequence[int]) -> int:
        """Elements that each thread holds of a tile of `shape`, padding included; at least one."""
        return math.prod(self.reps(shape)) << len(self.register)

    def register_offsets(self, shape: Sequence[int]) -> tuple[Coordinate, ...]:
        """What each register adds to (XORs into) the thread's coordinate, for a tile of `shape`."""
        return _register_offsets(self, tuple(shape))

    def thread_coordinates(self) -> NDArray[np.int64]:
        """Coordinates in the base tile of each thread's register 0: [threads, rank]."""
        return _combinations(self.thread_images, self.rank)

    def coordinates(self, shape: Sequence[int]) -> NDArray[np.int64]:
        """Coordinates of all that is held: [threads, registers, rank]; padding lies outside of `shape`."""
        base = self.thread_coordinates()[:, None, :] ^ _combinations(self.register, self.rank)[None]
        reps = np.array(list(np.ndindex(*self.reps(shape))), np.int64) * np.array(self.base)
        both = base[:, None, :, :] + reps[None, :, None, :]
        return both.reshape(self.num_threads, -1, self.rank)

    def collapse(self, dims: Iterable[int]) -> Layout:
        """The layout in which `dims` have base 1: their coordinates are forgotten, their threads replicate.

        Raises ValueError where bits that are then equal were told apart by `dims` alone (swizzled layouts).
        """
        gone = set(dims)

        def project(image: Coordinate) -> Coordinate:
            return tuple(0 if d in gone else c for d, c in enumerate(image))

        base = tuple(1 if d in gone else n for d, n in enumerate(self.base))
        register = tuple(image for image in map(project, self.register) if any(image))
        return Layout(base, register, tuple(map(project, self.lane)), tuple(map(project, self.warp)))

    def slice(self, dims: Iterable[int]) -> Layout:
        """The layout of a reduction's result: without `dims`.  Raises ValueError where no dimension is left."""
        gone = set(dims)
        if len(gone) == self.rank:
            raise ValueError("slicing all dimensions leaves a scalar, which has no layout")
        return self.collapse(gone)._select([d for d in range(self.rank) if d not in gone])

    def insert(self, dim: int) -> Layout:
        """The layout with a new dimension, of base 1, at `dim`."""

        def widen(image: Coordinate, value: int) -> Coordinate:
            return (*image[:dim], value, *image[dim:])

        groups = (tuple(widen(image, 0) for image in group) for group in (self.register, self.lane, self.warp))
        return Layout(widen(self.base, 1), *groups)

    def append(self, factor: int) -> Layout:
        """The layout with a new last dimension of `factor` (a power of two) elements, a thread's lowest registers."""
        bits = tuple((0,) * self.rank + (1 << i,) for i in range(ceil_log2(factor)))
        wide = self.insert(self.rank)
        return Layout((*self.base, factor), (*bits, *wide.register), wide.lane, wide.warp)

    def transpose(self, permutation: Sequence[int]) -> Layout:
        """The layout whose dimension i is dimension `permutation[i]` of this one."""
        return self._select(permutation)

    def broadcast_source(
        self, dimensions: Sequence[int], operand_shape: Sequence[int], result_shape: Sequence[int]
    ) -> Layout:
        """The layout an operand must have so that broadcasting it to this layout moves nothing between threads.

        Dimension i of the operand is dimension `dimensions[i]` (ascending) of the result; sizes 1 stretch.
        """
        stretched = [d for d, n in zip(dimensions, operand_shape, strict=True) if n == 1 and result_shape[d] != 1]
        missing = [d for d in range(self.rank) if d not in dimensions]
        return self.collapse(stretched).slice(missing)

    def extend(self, base: Sequence[int]) -> Layout:
        """The layout with a larger base tile: what were repetitions become register bits (last dimension first)."""
        bits: list[Coordinate] = []
        for d in reversed(range(self.rank)):
            size = self.base[d]
            while size < base[d]:
                bits.append(tuple(size if e == d else 0 for e in range(self.rank)))
                size *= 2
        new_base = tuple(max(n, m) for n, m in zip(self.base, base, strict=True))
        return Layout(new_base, (*self.register, *bits), self.lane, self.warp)

    def reshape(self, old: Sequence[int], new: Sequence[int]) -> Layout | None:
        """The layout of a tile of shape `old` seen (row-major) as shape `new`; None where no layout says it.

        The same thread holds the same elements; the order of its registers may differ (`register_map`).
        """
        from mosaic_gpu.dialect.layout_reshape import reshape

        return reshape(self, tuple(old), tuple(new))

    def vector_width(self, dim: int, shape: Sequence[int]) -> int:
        """How many consecutive registers are consecutive elements along `dim`, aligned to that number.

        A power of two; counts padding as elements.
        """
        width, bits = 1, 0
        for image in self.register:
            if image != tuple(width if d == dim else 0 for d in range(self.rank)):
                break
            width, bits = width * 2, bits + 1
        others = (*self.register[bits:], *self.thread_images)
        touched = _union(image[dim] for image in others)
        if touched & (width - 1):
            return touched & -touched
        reps = self.reps(shape)
        if bits == len(self.register) and width == self.base[dim] and math.prod(reps[dim + 1 :]) == 1:
            width *= reps[dim] & -reps[dim]
        return width

    @staticmethod
    def blocked(
        shape: Sequence[int],
        num_warps: int,
        vector: int = 1,
        order: Sequence[int] | None = None,
        warp_order: Sequence[int] | None = None,
    ) -> Layout:
        """The default for a tile of `shape`: neighbouring lanes at neighbouring elements of memory.

        Each thread has `vector` (a power of two) consecutive elements along the fastest dimension; lanes,
        then warps, spread over the dimensions in `order`, fastest first (row-major where it is left out), as
        far as the shape needs; threads that are left over replicate, elements left over become repetitions.
        `warp_order`: an order for the warps alone.
        """
        return _blocked(
            tuple(shape),
            num_warps,
            vector,
            tuple(reversed(range(len(shape)))) if order is None else tuple(order),
            None if warp_order is None else tuple(warp_order),
        )

    def _select(self, dims: Sequence[int]) -> Layout:
        def pick(image: Coordinate) -> Coordinate:
            return tuple(image[d] for d in dims)

        groups = (tuple(map(pick, group)) for group in (self.register, self.lane, self.warp))
        return Layout(pick(self.base), *groups)


def element_ids(layout: Layout, shape: Sequence[int]) -> NDArray[np.int64]:
    """Row-major number of each held element, -1 for padding: [threads, registers]."""
    coordinates = layout.coordinates(shape)
    inside = (coordinates < np.array(shape)).all(axis=-1)
    numbers = np.zeros(inside.shape, np.int64)
    for d, n in enumerate(shape):
        numbers = numbers * n + coordinates[..., d]
    return np.where(inside, numbers, -1)


def register_map(source: NDArray[np.int64], dest: NDArray[np.int64]) -> tuple[int | None, ...] | None:
    """For each register of `dest` the register of `source` with the same elements, the same one for all threads.

    Both hold, for (thread, register), the number of an element, -1 for padding: [threads, registers].
    A register that is all padding maps to None.  The whole is None where some element would have to come
    from another thread, or from a register that depends on the thread.
    """
    needed = dest >= 0
    witness = needed.argmax(axis=0)
    wanted = dest[witness, np.arange(dest.shape[1])]
    candidate = (source[witness] == wanted[:, None]).argmax(axis=1)
    if not ((source[:, candidate] == dest) | ~needed).all():
        return None
    used = needed.any(axis=0)
    return tuple(int(c) if u else None for c, u in zip(candidate, used, strict=True))


def _ints(text: str, separator: str) -> Coordinate:
    return tuple(int(part) for part in text.split(separator))


def _images(text: str) -> tuple[Coordinate, ...]:
    return tuple(_ints(image, ",") for image in text.split(";") if image)


@lru_cache(4096)
def _text(layout: Layout) -> str:
    def show(images: tuple[Coordinate, ...]) -> str:
        return ";".join(",".join(map(str, image)) for image in images)

    base = "x".join(map(str, layout.base))
    return f"{base} r:{show(layout.register)} l:{show(layout.lane)} w:{show(layout.warp)}"


def _union(values: Iterable[int]) -> int:
    mask = 0
    for value in values:
        mask |= value
    return mask


def _combinations(images: Sequence[Coordinate], rank: int) -> NDArray[np.int64]:
    """The XOR of each subset of `images`: [2**len(images), rank], row i for the bits of i."""
    rows = np.zeros((1, rank), np.int64)
    for image in images:
        rows = np.concatenate([rows, rows ^ np.array(image, np.int64)])
    return rows


@lru_cache(512)
def _register_offsets(layout: Layout, shape: Coordinate) -> tuple[Coordinate, ...]:
    inner = [tuple(row) for row in _combinations(layout.register, layout.rank).tolist()]
    steps = (range(0, r * n, n) for r, n in zip(layout.reps(shape), layout.base, strict=True))
    return tuple(
        tuple(o + i for o, i in zip(outer, bits, strict=True)) for outer in itertools.product(*steps) for bits in inner
    )


@lru_cache(4096)
def _blocked(
    shape: Coordinate, num_warps: int, vector: int, order: Coordinate, warp_order: Coordinate | None
) -> Layout:
    used = [1] * len(shape)

    def take(bits: int, dims: Sequence[int]) -> list[Coordinate]:
        images: list[Coordinate] = []
        for d in dims:
            while len(images) < bits and used[d] < ceil_power(shape[d]):
                images.append(tuple(used[d] if e == d else 0 for e in range(len(shape))))
                used[d] *= 2
        return images

    register = take(ceil_log2(vector), order[:1])
    lane, warp_bits = take(LANE_BITS, order), ceil_log2(num_warps)
    warp = take(warp_bits, order if warp_order is None else warp_order)
    zero = (0,) * len(shape)
    lane += [zero] * (LANE_BITS - len(lane))
    warp += [zero] * (warp_bits - len(warp))
    return Layout(tuple(used), tuple(register), tuple(lane), tuple(warp))
