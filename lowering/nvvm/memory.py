"""Loads, stores, gathers and scatters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.types import is_tile, shape_of
from mosaic_gpu.errors import InternalError
from mosaic_gpu.lowering.nvvm import emit
from mosaic_gpu.lowering.nvvm.access import (
    Address,
    from_memory,
    load_piece,
    load_registers,
    register_addresses,
    store_piece,
    store_registers,
    to_memory,
)
from mosaic_gpu.lowering.nvvm.conversion import Conversion, converts
from mosaic_gpu.lowering.nvvm.mask_width import mask_width
from mosaic_gpu.lowering.nvvm.memref import MemRef
from mosaic_gpu.lowering.nvvm.predicates import Condition, Coordinates, all_of
from mosaic_gpu.lowering.nvvm.registers import chosen_layout
from mosaic_gpu.lowering.views import vector_elements, view_of


@converts("mgpu.load")
def convert_load(conversion: Conversion, op: Any) -> list[ir.Value]:
    """One access a piece; a scalar is loaded by all threads."""
    memref: MemRef = conversion.get(op.source)
    mask = None if op.mask is None else conversion.get(op.mask)
    other = None if op.other is None else conversion.get(op.other)
    type_ = op.result.type
    if not is_tile(type_):
        return [_load_scalar(conversion, memref, mask, other)]
    coordinates = _coordinates(conversion, type_)
    width = _width(op.source, type_, op.mask)
    conditions = [
        all_of((coordinates.inside(r), coordinates.passes(r, memref.checks), _lane(mask, r)))
        for r in range(0, len(coordinates), width)
    ]
    return [load_registers(memref, register_addresses(memref, coordinates)[::width], conditions, width, other)]


@converts("mgpu.store")
def convert_store(conversion: Conversion, op: Any) -> list[ir.Value]:
    """One access a piece; of replicated elements one thread's are stored, of a scalar thread 0's."""
    memref: MemRef = conversion.get(op.dest)
    mask = None if op.mask is None else conversion.get(op.mask)
    stored = conversion.get(op.value)
    if not is_tile(op.value.type):
        condition = all_of((_is_first(conversion), _scalar_condition(conversion, memref, mask)))
        store_piece(memref, Address(memref.pointer, 0), to_memory(emit.splat(stored, 1)), condition)
        return []
    coordinates = _coordinates(conversion, op.value.type)
    width = _width(op.dest, op.value.type, op.mask)
    holder = _holder(conversion, coordinates.layout)
    conditions = [
        all_of((holder, coordinates.inside(r), coordinates.passes(r, memref.checks), _lane(mask, r)))
        for r in range(0, len(coordinates), width)
    ]
    store_registers(memref, register_addresses(memref, coordinates)[::width], conditions, width, stored)
    return []


@converts("mgpu.gather")
def convert_gather(conversion: Conversion, op: Any) -> list[ir.Value]:
    """One access a register, at the address that its indices say."""
    memref: MemRef = conversion.get(op.source)
    indices = conversion.all(op.indices)
    mask = None if op.mask is None else conversion.get(op.mask)
    other = None if op.other is None else conversion.get(op.other)
    if not is_tile(op.result.type):
        moved = _at(memref, indices)
        condition = all_of((_index_condition(memref, indices), True if mask is None else mask))
        return [_scalar_of(load_piece(moved, Address(moved.pointer, 0), 1, condition, _spread(other)), memref)]
    coordinates = _coordinates(conversion, op.result.type)
    addresses = _indexed_addresses(memref, indices, len(coordinates))
    conditions = _indexed_conditions(memref, indices, mask, coordinates)
    return [load_registers(memref, addresses, conditions, 1, other)]


@converts("mgpu.scatter")
def convert_scatter(conversion: Conversion, op: Any) -> list[ir.Value]:
    """One access a register; of replicated elements one thread's are stored."""
    memref: MemRef = conversion.get(op.dest)
    indices = conversion.all(op.indices)
    mask = None if op.mask is None else conversion.get(op.mask)
    stored = conversion.get(op.value)
    if not is_tile(op.value.type):
        moved = _at(memref, indices)
        inside = _index_condition(memref, indices)
        condition = all_of((_is_first(conversion), inside, True if mask is None else mask))
        store_piece(moved, Address(moved.pointer, 0), to_memory(emit.splat(stored, 1)), condition)
        return []
    coordinates = _coordinates(conversion, op.value.type)
    holder = _holder(conversion, coordinates.layout)
    addresses = _indexed_addresses(memref, indices, len(coordinates))
    conditions = [all_of((holder, c)) for c in _indexed_conditions(memref, indices, mask, coordinates)]
    store_registers(memref, addresses, conditions, 1, stored)
    return []


def _coordinates(conversion: Conversion, type_: ir.Type) -> Coordinates:
    return Coordinates(conversion.threads, chosen_layout(type_), shape_of(type_))


def _width(ref: ir.Value, type_: ir.Type, mask: ir.Value | None) -> int:
    """Registers in one access, from what is known of the reference and the mask beforehand."""
    view = view_of(ref)
    width = vector_elements(view, chosen_layout(type_))
    if mask is None or not is_tile(mask.type) or view.vector_dim is None:
        return width
    return min(width, mask_width(mask, view.vector_dim))


def _lane(mask: ir.Value | None, register: int) -> Condition:
    if mask is None:
        return True
    return emit.extract(mask, register) if emit.is_vector(mask.type) else mask


def _spread(scalar: ir.Value | None) -> ir.Value | None:
    """A scalar as a vector of one memory element."""
    return None if scalar is None else to_memory(emit.splat(scalar, 1))


def _holder(conversion: Conversion, layout: Layout) -> Condition:
    holder = conversion.threads.is_holder(layout)
    return True if holder is None else holder


def _is_first(conversion: Conversion) -> ir.Value:
    return emit.compare(emit.EQ, conversion.threads.tid, 0)


def _scalar_condition(conversion: Conversion, memref: MemRef, mask: ir.Value | None) -> Condition:
    inside = all_of(emit.compare(emit.ULT, c.start, c.extent) for c in memref.checks)
    return all_of((inside, True if mask is None else mask))


def _load_scalar(conversion: Conversion, memref: MemRef, mask: ir.Value | None, other: ir.Value | None) -> ir.Value:
    condition = _scalar_condition(conversion, memref, mask)
    loaded = load_piece(memref, Address(memref.pointer, 0), 1, condition, _spread(other))
    return _scalar_of(loaded, memref)


def _scalar_of(loaded: ir.Value, memref: MemRef) -> ir.Value:
    return emit.extract(from_memory(loaded, memref.element), 0)


def _at(memref: MemRef, indices: Sequence[ir.Value]) -> MemRef:
    """The one element of `memref` that scalar indices name."""
    _require_strides(memref)
    pointer = memref.pointer
    for index, stride in zip(indices, memref.strides, strict=True):
        pointer = emit.gep(pointer, emit.mul(emit.convert_int(index, 64), stride * memref.element_bytes))
    return MemRef(pointer, memref.element, (), (), (), memref.invariant)


def _require_strides(memref: MemRef) -> None:
    if memref.box is not None:
        raise InternalError("single elements of swizzled shared memory are not addressed")


def _indexed_addresses(memref: MemRef, indices: Sequence[ir.Value], count: int) -> list[Address]:
    """Addresses from scalar or vector indices; the scalar ones move the common pointer."""
    _require_strides(memref)
    pointer, total = memref.pointer, None
    extents = zip(memref.shape, memref.strides, strict=True)
    reach = sum(n * abs(s) for n, s in extents) * memref.element_bytes
    bits = 32 if reach < 2**31 else 64
    for index, stride in zip(indices, memref.strides, strict=True):
        step = stride * memref.element_bytes
        if not emit.is_vector(index.type):
            pointer = emit.gep(pointer, emit.mul(emit.convert_int(index, 64), step))
            continue
        part = emit.mul(emit.convert_int(index, bits), step)
        total = part if total is None else emit.add(total, part)
    if total is None:
        return [Address(pointer, 0)] * count
    return [Address(emit.gep(pointer, emit.extract(total, r)), 0) for r in range(count)]


def _index_condition(memref: MemRef, indices: Sequence[ir.Value]) -> Condition:
    """Whether indices pass the reference's checks: an i1, or a vector of them where an index is a vector."""
    conditions: list[Condition] = []
    count = next((emit.length(i) for i in indices if emit.is_vector(i.type)), None)
    for check in memref.checks:
        at = emit.convert_int(check.start, 64)
        if check.dim is not None:
            index = emit.mul(emit.convert_int(indices[check.dim], 64), check.scale)
            at = emit.add(emit.splat(at, emit.length(index)) if emit.is_vector(index.type) else at, index)
        passed = emit.compare(emit.ULT, at, check.extent)
        spread = count is not None and not emit.is_vector(passed.type)
        conditions.append(emit.splat(passed, count) if spread and count is not None else passed)
    return all_of(conditions)


def _indexed_conditions(
    memref: MemRef, indices: Sequence[ir.Value], mask: ir.Value | None, coordinates: Coordinates
) -> list[Condition]:
    """For each register whether it is inside of the tile, the checks and the mask."""
    checked = _index_condition(memref, indices)
    inside = None if isinstance(checked, bool) else checked
    return [all_of((coordinates.inside(r), _lane(mask, r), _lane(inside, r))) for r in range(len(coordinates))]
