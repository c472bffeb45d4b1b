"""What a thread computes from its number: the coordinate it holds in each layout.

The coordinate of (thread, register) is the XOR of both parts.  Where a register's offset has no bit that
thread images touch, XOR is addition, so an offset splits into a part that must be XORed into the thread's
coordinate and a part that may be added; the latter becomes a constant in an address.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.layouts import LANE_BITS, Coordinate, Layout
from mosaic_gpu.lowering.nvvm import emit
from mosaic_gpu.lowering.nvvm.shuffles import shuffle_from


@dataclass(frozen=True)
class Split:
    """A register's offset: XOR `flipped` into the thread's coordinate, then add `added`."""

    flipped: Coordinate
    added: Coordinate


def thread_mask(layout: Layout) -> Coordinate:
    """For each dimension, the coordinate bits that depend on the thread."""
    masks = [0] * layout.rank
    for image in layout.thread_images:
        masks = [m | c for m, c in zip(masks, image, strict=True)]
    return tuple(masks)


def split_offset(offset: Coordinate, mask: Coordinate) -> Split:
    """`offset` split by the bits that depend on the thread."""
    return Split(
        tuple(c & m for c, m in zip(offset, mask, strict=True)),
        tuple(c & ~m for c, m in zip(offset, mask, strict=True)),
    )


@dataclass
class Threads:
    """Values computed once in the entry block, where `entry` points.

    Attributes:
      entry: insertion point in the entry block; what stands there dominates the whole body.
      tid: the number of the thread in the block, i32.
      num_bits: how many bits that number has: five for the lane, the others for the warp.
    """

    entry: ir.InsertionPoint
    location: ir.Location
    tid: ir.Value
    num_bits: int
    _sums: dict[tuple[int, ...], ir.Value | None] = field(default_factory=dict)
    _numbers: dict[tuple[int, ...], ir.Value | None] = field(default_factory=dict)
    _uniform: dict[tuple[int, ...], ir.Value | None] = field(default_factory=dict)

    def coordinate(self, layout: Layout) -> list[ir.Value | None]:
        """The thread's coordinate (i32, one a dimension) in `layout`; None where it is always 0."""
        return [self.number([image[d] for image in layout.thread_images]) for d in range(layout.rank)]

    def number(self, images: Sequence[int]) -> ir.Value | None:
        """The XOR of `images` over the set bits of the thread's number, i32; None where all are zero."""
        key = tuple(images)
        if key not in self._numbers:
            with self.entry, self.location:
                self._numbers[key] = self._combine(key)
        return self._numbers[key]

    def is_holder(self, layout: Layout) -> ir.Value | None:
        """Whether the thread is the one that stands for its replicas (i1); None where there are none."""
        return self.has_no_bits(layout.free_threads)

    def has_no_bits(self, mask: int) -> ir.Value | None:
        """Whether the thread's number has none of the bits of `mask` (i1, at the insertion point); None for no mask."""
        if mask == 0:
            return None
        if mask == (1 << self.num_bits) - 1:
            return emit.compare(emit.EQ, self.tid, 0)
        return emit.compare(emit.EQ, emit.and_(self.tid, mask), 0)

    def weighted(self, weights: Sequence[int]) -> ir.Value | None:
        """The sum of `weights` over the set bits of the thread's number, i32; None where all are zero."""
        key = tuple(weights)
        if key not in self._sums:
            with self.entry, self.location:
                self._sums[key] = self._sum(key)
        return self._sums[key]

    def weighted_by_warp(self, weights: Sequence[int]) -> ir.Value | None:
        """`weighted` for weights of the warp's bits alone, in a form that tells ptxas that a warp's threads agree."""
        key = tuple(weights)
        if any(key[:LANE_BITS]):
            raise AssertionError("a lane's bits differ within the warp")
        if key not in self._uniform:
            total = self.weighted(key)
            if total is not None:
                with self.entry, self.location:
                    total = emit.extract(shuffle_from(emit.splat(total, 1), emit.const(0)), 0)
            self._uniform[key] = total
        return self._uniform[key]

    def _sum(self, weights: tuple[int, ...]) -> ir.Value | None:
        total: ir.Value | None = None
        for start, count in _runs(weights, any_start=True):
            low = emit.shr(self.tid, start)
            bits = low if start + count == len(weights) else emit.and_(low, (1 << count) - 1)
            part = emit.mul(bits, weights[start])
            total = part if total is None else emit.add(total, part)
        return total

    def _combine(self, images: tuple[int, ...]) -> ir.Value | None:
        total: ir.Value | None = None
        used = 0
        for start, count in _runs(images):
            part = self._run(start, count, images[start], start + count == len(images))
            span = _or_all(images[start : start + count])
            join = emit.xor if used & span else emit.or_
            total = part if total is None else join(total, part)
            used |= span
        return total

    def _run(self, start: int, count: int, image: int, is_last: bool) -> ir.Value:
        """Bits start.. of the thread's number, moved to where `image` (the first bit's) says."""
        if image & (image - 1):
            return emit.mul(emit.and_(emit.shr(self.tid, start), 1), image)
        shift = image.bit_length() - 1
        is_right = start >= shift
        moved = emit.shr(self.tid, start - shift) if is_right else emit.shl(self.tid, shift - start)
        low_bits_clear = shift == 0 if is_right else start == 0
        if is_last and low_bits_clear:
            return moved
        return emit.and_(moved, ((1 << count) - 1) << shift)


def _or_all(numbers: Sequence[int]) -> int:
    union = 0
    for number in numbers:
        union |= number
    return union


def _runs(images: Sequence[int], *, any_start: bool = False) -> list[tuple[int, int]]:
    """(start, count) of maximal runs of non-zero images that double from one to the next.

    Only powers of two run together, unless `any_start`.
    """
    runs: list[tuple[int, int]] = []
    for bit, image in enumerate(images):
        if image == 0:
            continue
        power = any_start or image & (image - 1) == 0
        if runs and power and sum(runs[-1]) == bit and images[bit - 1] * 2 == image:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((bit, 1))
    return runs
