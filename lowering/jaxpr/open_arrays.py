"""Blocks of arrays with sizes that are known at run time only (`jax.export` with symbolic dimensions).

Let k be the last dimension of such a size.  Blocks have one element along the dimensions before it, so that the array
is addressed as one long row of rows: dimensions 0 .. k are one, of which no size is known, and the
array's reference says a size that is never too small (2**31 - 1, more than the rows of one block of the grid).

    array (b, s, 128), block (None, 8, 128) at (i, j, 0)
    reference 1 x 2147483647 x 128; the block's rows are i s + 8 j + 0 .. 7, of which those below (i + 1) s count

That rows from `end` = (i + 1) s on are not touched is the work of two views.  The first is moved so that it ends, in
its own coordinates, where its size does; the second is the block in it, checked against that size.

    %rows  = subview %array[end - M] sizes [M]
    %block = subview %rows[start - end + M] sizes [8] checked

Offsets are 64 bits wide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.types import shape_of
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.compat import Blocked, Squeezed, is_symbolic

UNKNOWN = 2**31 - 1


def last_symbolic(shape: Sequence[Any]) -> int | None:
    """The last dimension of a size that is not known; None where all are."""
    return max((d for d, n in enumerate(shape) if is_symbolic(n)), default=None)


def root_shape(shape: Sequence[Any]) -> tuple[int, ...]:
    """The shape that the reference to a whole array says."""
    last = last_symbolic(shape)
    if last is None:
        return tuple(shape)
    return (*(1,) * last, UNKNOWN, *shape[last + 1 :])


@dataclass(frozen=True)
class OpenBlock:
    """A block of an array with a size that is not known.

    Attributes:
      shape: of the array.
      kinds: of the block, one a dimension (Pallas' `Blocked` and `Squeezed`).
      sizes: the values (i32) of the sizes that are not known.
    """

    shape: tuple[Any, ...]
    kinds: tuple[Any, ...]
    sizes: Mapping[Any, ir.Value]

    def view(self, array: ir.Value, indices: Sequence[ir.Value], offsets: Sequence[ir.Value], checked: Any) -> ir.Value:
        """The block of `array`.

        Arguments:
          indices: of the block, along the dimensions up to the last one of unknown size.
          offsets, checked: of the block's first element, and whether to test, along the dimensions behind it.
        """
        last = len(indices) - 1
        start, end = self._rows(indices)
        unknown, zero = _constant(UNKNOWN), _constant(0)
        whole = list(shape_of(array.type))
        before, behind = [zero] * last, [zero] * len(offsets)
        rows = emit.subview(array, [*before, arith.subi(end, unknown), *behind], whole)
        sizes = [1 if isinstance(kind, Squeezed) else int(kind.block_size) for kind in self.kinds]
        moved = arith.addi(arith.subi(start, end), unknown)
        return emit.subview(
            rows,
            [*before, moved, *(_wide(o) for o in offsets)],
            sizes,
            dropped=[d for d, kind in enumerate(self.kinds) if isinstance(kind, Squeezed)],
            checked=[*[0] * last, 1, *checked],
        )

    def _rows(self, indices: Sequence[ir.Value]) -> tuple[ir.Value, ir.Value]:
        """The first row of the block, and the end of the rows that are there; equal where the block is outside."""
        first, inside = _constant(0), None
        for d, index in enumerate(indices[:-1]):
            extent, place = self._extent(d), _wide(index)
            is_in = arith.cmpi(emit.ULT, place, extent)
            inside = is_in if inside is None else arith.andi(inside, is_in)
            first = arith.addi(arith.muli(first, extent), place)
        extent = self._extent(len(indices) - 1)
        first = arith.muli(first, extent)
        end = arith.addi(first, extent)
        place = arith.minsi(_wide(indices[-1]), extent)
        is_in = arith.cmpi(emit.SGE, place, _constant(0))
        inside = is_in if inside is None else arith.andi(inside, is_in)
        kind = self.kinds[len(indices) - 1]
        size = int(kind.block_size) if isinstance(kind, Blocked) else 1
        start = arith.addi(first, place if size == 1 else arith.muli(place, _constant(size)))
        return arith.select(inside, start, end), end

    def _extent(self, dim: int) -> ir.Value:
        size = self.shape[dim]
        return _wide(self.sizes[size]) if is_symbolic(size) else _constant(int(size))


def _constant(number: int) -> ir.Value:
    return emit.int_constant(number, ir.IntegerType.get_signless(64))


def _wide(value: ir.Value) -> ir.Value:
    return emit.resize_int(value, ir.IntegerType.get_signless(64))
