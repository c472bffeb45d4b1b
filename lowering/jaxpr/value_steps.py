"""What a reshaped, transposed or bitcast reference does to the value that is read or written through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.ops_tile import BitcastOp
from mosaic_gpu.dialect.types import is_tile, storage_bits, tile_type
from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.lowering.jaxpr import emit

Convert = Callable[[ir.Value], ir.Value]


@dataclass(frozen=True)
class Step:
    """From what memory holds to the value, and back; the third does so for masks and the values in their place,
    where a scalar that stands for all elements stays one."""

    after_read: Convert
    before_write: Convert
    mask_before_write: Convert


def reshape_step(before: tuple[int, ...], after: tuple[int, ...]) -> Step:
    """The row-major reshape of a `before` in memory to an `after`."""
    back = _of_tiles(lambda v: emit.reshape(v, before))
    return Step(lambda v: emit.reshape(v, after), lambda v: emit.reshape(v, before), back)


def transpose_step(permutation: Sequence[int]) -> Step:
    """Dimension i of the value is dimension `permutation[i]` of memory."""
    inverse = [int(d) for d in np.argsort(permutation)]
    back = _of_tiles(lambda v: emit.transpose(v, inverse))
    return Step(lambda v: emit.transpose(v, permutation), lambda v: emit.transpose(v, inverse), back)


def _of_tiles(convert: Convert) -> Convert:
    """`convert`, but for scalars (a mask of all elements), which stay."""
    return lambda v: convert(v) if is_tile(v.type) else v


def bitcast_step(shape: tuple[int, ...], source: ir.Type, target: ir.Type) -> tuple[Step, tuple[int, ...]]:
    """The bits under another element type, and the value's shape.

    Where the widths differ, JAX stretches or shrinks the last dimension but one: element (i, j) of a wide
    type is the elements (r*i .. r*i + r-1, j) of the narrow one, lowest bits first.
    """
    if 4 in (source.width, target.width):
        raise UnsupportedError("a bitcast of a reference from or to 4-bit integers is not supported")
    bits = storage_bits(source), storage_bits(target)
    if bits[0] == bits[1]:
        return Step(_cast(shape, target), _cast(shape, source), _refuse_mask), shape
    if len(shape) < 2:
        raise UnsupportedError("a bitcast to another width needs a reference of two dimensions or more")
    rows, columns = shape[-2], shape[-1]
    new = (*shape[:-2], rows * bits[0] // bits[1], columns)
    if bits[0] > bits[1]:
        ratio = bits[0] // bits[1]
        return Step(_split(shape, ratio, new, target), _join(shape, ratio, source), _refuse_mask), new
    ratio = bits[1] // bits[0]
    return Step(_join(new, ratio, target), _split(new, ratio, shape, source), _refuse_mask), new


def _refuse_mask(mask: ir.Value) -> ir.Value:
    raise UnsupportedError("a masked load or store through a bitcast reference is not supported")


def _cast(shape: tuple[int, ...], element: ir.Type) -> Convert:
    return lambda v: BitcastOp(tile_type(shape, element), v).result


def _split(wide_shape: tuple[int, ...], ratio: int, shape: tuple[int, ...], element: ir.Type) -> Convert:
    """From a wide type to `ratio` times as many rows of the narrow `element`."""

    def convert(value: ir.Value) -> ir.Value:
        parts = BitcastOp(tile_type((*wide_shape, ratio), element), value).result
        return emit.reshape(emit.transpose(parts, _exchange_last(len(wide_shape))), shape)

    return convert


def _join(wide_shape: tuple[int, ...], ratio: int, element: ir.Type) -> Convert:
    """The inverse of `_split`; `element` is the wide type."""

    def convert(value: ir.Value) -> ir.Value:
        parts = emit.reshape(value, (*wide_shape[:-1], ratio, wide_shape[-1]))
        return BitcastOp(tile_type(wide_shape, element), emit.transpose(parts, _exchange_last(len(wide_shape)))).result

    return convert


def _exchange_last(rank: int) -> list[int]:
    """The permutation of rank + 1 dimensions that exchanges the last two."""
    return [*range(rank - 1), rank, rank - 1]
