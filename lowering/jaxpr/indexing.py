"""Indexers of references: as boxes where they are boxes, as coordinate tiles where they are not.

`refs` says what indices out of range mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.types import is_tile, shape_of, tile_type
from mosaic_gpu.errors import KernelError, UnsupportedError
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.compat import AbstractRef, NDIndexer, ReshapeTransform, Slice, TransposeTransform
from mosaic_gpu.lowering.jaxpr.intervals import interval_of


@dataclass(frozen=True)
class Operand:
    """An index that the kernel computes: its value and abstract value (for the dtype's sign)."""

    value: ir.Value
    aval: Any


@dataclass(frozen=True)
class Box:
    """The arguments of a subview; offsets are i32 values."""

    offsets: tuple[ir.Value, ...]
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dropped: tuple[int, ...]
    checked: tuple[int, ...]

    def view_of(self, ref: ir.Value) -> ir.Value:
        """The view of `ref` that is this box."""
        whole = self.sizes == shape_of(ref.type) and not self.dropped and set(self.strides) <= {1}
        if whole and all(interval_of(o).constant == 0 for o in self.offsets):
            return ref
        return emit.subview(ref, self.offsets, self.sizes, self.strides, self.dropped, self.checked)


@dataclass(frozen=True)
class Coordinates:
    """Elements of a reference: one i32 tile a dimension, in range.

    `inside`: which of them were in range before they were clamped, if that was asked; None = all.
    """

    indices: tuple[ir.Value, ...]
    inside: ir.Value | None = None


def as_i32(index: Any, extent: int) -> ir.Value:
    """An index (an int or an `Operand`) as i32, out of range (of `extent`) exactly where it was.

    Raises UnsupportedError for booleans and references.
    """
    if not isinstance(index, Operand):
        return emit.int_constant(int(index))
    aval = index.aval
    if isinstance(aval, AbstractRef):
        raise UnsupportedError("a reference as an index is not supported", hint="read it first: idx_ref[...]")
    if aval.dtype == np.bool_:
        raise UnsupportedError(
            "a boolean mask as an index is not supported",
            hint="use jnp.where on the value, or plgpu.load and plgpu.store with a mask",
        )
    value, bits, signed = index.value, aval.dtype.itemsize * 8, np.issubdtype(aval.dtype, np.signedinteger)
    if bits < 32:
        type_ = tile_type(shape_of(value.type), emit.i32())
        return arith.extsi(type_, value) if signed else arith.extui(type_, value)
    if bits == 32 and signed:
        return value
    return _narrow(value, bits, signed, extent)


def _narrow(value: ir.Value, bits: int, signed: bool, extent: int) -> ir.Value:
    """A wide (or unsigned 32-bit) index, brought to between -extent-1 and extent and truncated."""
    wide = tile_type(shape_of(value.type), ir.IntegerType.get_signless(64))
    value = value if bits == 64 else arith.extui(wide, value)
    limit = emit.int_constant(extent, wide)
    if not signed and bits == 64:
        value = arith.minui(value, limit)
    else:
        value = arith.maxsi(arith.minsi(value, limit), emit.int_constant(-extent - 1, wide))
    return arith.trunci(tile_type(shape_of(value.type), emit.i32()), value)


def wrapped(index: ir.Value, extent: int) -> ir.Value:
    """`index` with `extent` added where it is negative."""
    known = interval_of(index)
    if known.low >= 0:
        return index
    if known.constant is not None:
        return emit.int_constant(known.low + extent, index.type)
    below = arith.cmpi(emit.SLT, index, emit.int_constant(0, index.type))
    return arith.select(below, arith.addi(index, emit.int_constant(extent, index.type)), index)


def clamped(index: ir.Value, limit: int) -> ir.Value:
    """`index` brought to between 0 and `limit` (which is >= 0)."""
    known = interval_of(index)
    if known.constant is not None:
        return index if known.inside(0, limit) else emit.int_constant(min(max(known.low, 0), limit), index.type)
    if known.low < 0:
        index = arith.maxsi(index, emit.int_constant(0, index.type))
    if known.high > limit:
        index = arith.minsi(index, emit.int_constant(limit, index.type))
    return index


def _span(index: Slice) -> int:
    """How many places a slice covers from its first element to its last."""
    return 0 if index.size == 0 else (int(index.size) - 1) * index.stride + 1


def box_of(indexer: NDIndexer, checked: bool) -> Box | None:
    """The indexer as a box; None where it is not one.

    `checked`: starts stay as they are, and the box is checked.
    Raises KernelError where the box cannot fit, UnsupportedError for sizes that are not constants.
    """
    offsets, sizes, strides, checks = [], [], [], []
    for index, extent in zip(indexer.indices, indexer.shape, strict=True):
        if isinstance(index, Operand) and is_tile(index.value.type):
            return None
        box = index if isinstance(index, Slice) else Slice(index, 1, 1)
        limit = _check_slice(box, extent, checked)
        start = as_i32(box.start, extent)
        fits = interval_of(start).inside(0, limit)
        if not checked and not fits:
            if box.stride > 1 and isinstance(index, Slice):
                return None
            start = clamped(wrapped(start, extent), limit)
        offsets.append(start)
        sizes.append(int(box.size))
        strides.append(int(box.stride))
        checks.append(int(checked and not fits))
    dropped = tuple(d for d, index in enumerate(indexer.indices) if not isinstance(index, Slice))
    return Box(tuple(offsets), tuple(sizes), tuple(strides), dropped, tuple(checks))


def _check_slice(box: Slice, extent: int, checked: bool) -> int:
    """The largest start at which a slice fits."""
    if not isinstance(box.size, (int, np.integer)):
        raise UnsupportedError(
            "a slice whose size is computed (traced) is not supported",
            hint="use a constant size, and a mask for what is too much",
        )
    limit = extent - _span(box)
    if limit < 0 and not checked:
        raise KernelError("a slice is longer than its dimension", got=f"{_span(box)} elements", expected=extent)
    return limit


def identity_coordinates(shape: tuple[int, ...]) -> Coordinates:
    """Every element of a tile of `shape` at its own place."""
    return Coordinates(tuple(emit.iota(shape, d) for d in range(len(shape))))


@dataclass(frozen=True)
class Rules:
    """What becomes of indices out of range.

    Attributes:
      wraps: whether negative indices count from the end.
      tests: whether it must be known which elements were out of range.
    """

    wraps: bool
    tests: bool


def coordinates_of(
    transform: Any, shape: tuple[int, ...], results: Coordinates, is_last: bool, rules: Rules
) -> Coordinates:
    """From places in the result of a transform to places in what it is applied to, of `shape`.

    `is_last`: whether nothing follows, so that `results` is every element at its own place.
    """
    match transform:
        case NDIndexer():
            return _through_indexer(transform, results, is_last, rules)
        case ReshapeTransform():
            linear = _linear(results.indices, tuple(transform.shape))
            return Coordinates(_delinear(linear, shape, results), results.inside)
        case TransposeTransform():
            order = [int(d) for d in np.argsort(transform.permutation)]
            return Coordinates(tuple(results.indices[d] for d in order), results.inside)
        case _:
            raise UnsupportedError(f"indexing behind a {type(transform).__name__} is not supported")


def _linear(indices: Sequence[ir.Value], shape: tuple[int, ...]) -> ir.Value | None:
    """The row-major number of each element; None at rank 0."""
    total: ir.Value | None = None
    for index, extent in zip(indices, shape, strict=True):
        if total is not None:
            total = arith.addi(arith.muli(total, emit.int_constant(extent, index.type)), index)
        else:
            total = index
    return total


def _delinear(linear: ir.Value | None, shape: tuple[int, ...], results: Coordinates) -> tuple[ir.Value, ...]:
    """The inverse of `_linear`."""
    if linear is None:
        return tuple(emit.int_constant(0) for _ in shape)
    digits = []
    for d, extent in enumerate(reversed(shape)):
        base = emit.int_constant(max(extent, 1), linear.type)
        digits.append(linear if d == len(shape) - 1 else arith.remsi(linear, base))
        linear = arith.divsi(linear, base)
    return tuple(reversed(digits))


def _through_indexer(indexer: NDIndexer, results: Coordinates, is_last: bool, rules: Rules) -> Coordinates:
    slots = _result_dimensions(indexer)
    shape = shape_of(results.indices[0].type) if results.indices else ()
    indices, inside = [], results.inside
    for index, extent, slot in zip(indexer.indices, indexer.shape, slots, strict=True):
        if isinstance(index, Slice):
            _check_slice(index, extent, not rules.wraps)
            place = _along_slice(index, extent, results.indices[slot])
        else:
            place = _along_array(index, extent, slot, shape, is_last)
        if shape and not extent and 0 not in shape:
            raise KernelError("an index into an empty dimension")
        place = wrapped(place, extent) if rules.wraps else place
        if rules.tests:
            inside = _and(inside, _in_range(place, extent))
        indices.append(clamped(place, max(extent - 1, 0)))
    return Coordinates(tuple(indices), inside)


def _result_dimensions(indexer: NDIndexer) -> list[int]:
    """For each dimension that is indexed, (the first of) its dimension in the result.

    NumPy's rule: the dimensions of the index arrays stand where the arrays are, if those are neighbours,
    else in front.
    """
    is_array = [not isinstance(index, Slice) for index in indexer.indices]
    arrays = [d for d, array in enumerate(is_array) if array]
    rank = len(indexer.int_indexer_shape)
    together = not arrays or arrays[-1] - arrays[0] == len(arrays) - 1
    first = is_array[: arrays[0]].count(False) if arrays and together else 0
    slots, slices = [], 0
    for array in is_array:
        if array:
            slots.append(first)
        else:
            slots.append(slices if slices < first else slices + rank)
            slices += 1
    return slots


def _along_slice(index: Slice, extent: int, coordinate: ir.Value) -> ir.Value:
    if index.stride != 1:
        coordinate = arith.muli(coordinate, emit.int_constant(index.stride, coordinate.type))
    start = as_i32(index.start, extent)
    if interval_of(start).constant == 0:
        return coordinate
    return arith.addi(coordinate, emit.broadcast(start, shape_of(coordinate.type), ()))


def _along_array(index: Any, extent: int, slot: int, shape: tuple[int, ...], is_last: bool) -> ir.Value:
    place = as_i32(index, extent)
    rank = len(shape_of(place.type))
    if rank and not is_last:
        raise UnsupportedError(
            "indexing the result of an index array (ref.at[array].at[..]) is not supported",
            hint="read with the array first, then index the value",
        )
    return emit.broadcast(place, shape, range(slot, slot + rank))


def _in_range(place: ir.Value, extent: int) -> ir.Value | None:
    """Which places are inside; None = all of them are known to be."""
    known, tests = interval_of(place), []
    if known.low < 0:
        tests.append(arith.cmpi(emit.SGE, place, emit.int_constant(0, place.type)))
    if known.high >= extent:
        tests.append(arith.cmpi(emit.SLT, place, emit.int_constant(extent, place.type)))
    return None if not tests else tests[0] if len(tests) == 1 else arith.andi(*tests)


def _and(a: ir.Value | None, b: ir.Value | None) -> ir.Value | None:
    if a is None or b is None:
        return b if a is None else a
    return arith.andi(a, b)
