"""Ops that move elements to other coordinates: iota, broadcast, reshape, transpose, slice, concatenate, bitcast.

Where every thread already holds what it needs, a register permutation is all; else the tile passes through
shared memory, written by its own coordinates and read by the result's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.dialect.types import element_of, is_tile, shape_of, storage_bits
from mosaic_gpu.lowering.nvvm import emit, rearrange
from mosaic_gpu.lowering.nvvm.conversion import Conversion, converts
from mosaic_gpu.lowering.nvvm.exchange import Side, exchange, padded_extents
from mosaic_gpu.lowering.nvvm.memref import row_major
from mosaic_gpu.lowering.nvvm.predicates import Coordinates
from mosaic_gpu.lowering.nvvm.registers import chosen_layout, register_element, register_type


@converts("mgpu.iota")
def convert_iota(conversion: Conversion, op: Any) -> list[ir.Value]:
    """The coordinates that the registers have."""
    type_ = op.result.type
    coordinates = Coordinates(conversion.threads, chosen_layout(type_), shape_of(type_))
    bits = emit.bits_of(register_type(type_))
    return [coordinates.vector(ir.IntegerAttr(op.dimension).value, bits)]


@converts("mgpu.broadcast")
def convert_broadcast(conversion: Conversion, op: Any) -> list[ir.Value]:
    """A scalar fills a vector; of a tile, registers are repeated."""
    value, type_, dims = conversion.get(op.operand), op.result.type, ints(op.dimensions)
    if not is_tile(op.operand.type):
        return [emit.splat(value, int(ir.VectorType(register_type(type_)).shape[0]))]
    sizes = shape_of(op.operand.type)
    strides = tuple(0 if n == 1 else 1 for n in sizes)
    return [_box(conversion, value, op, (0,) * len(sizes), strides, dims)]


@converts("mgpu.transpose")
def convert_transpose(conversion: Conversion, op: Any) -> list[ir.Value]:
    """A relabeling, unless the result's layout is another than the transposed one."""
    permutation = ints(op.permutation)
    dims = tuple(permutation.index(d) for d in range(len(permutation)))
    ones = (1,) * len(dims)
    return [_box(conversion, conversion.get(op.operand), op, (0,) * len(dims), ones, dims)]


@converts("mgpu.slice")
def convert_slice(conversion: Conversion, op: Any) -> list[ir.Value]:
    """Drops registers where the layouts allow it."""
    starts, strides = ints(op.starts), ints(op.strides)
    return [_box(conversion, conversion.get(op.operand), op, starts, strides, tuple(range(len(starts))))]


def _box(
    conversion: Conversion,
    value: ir.Value,
    op: Any,
    starts: tuple[int, ...],
    strides: tuple[int, ...],
    dims: tuple[int, ...],
) -> ir.Value:
    """The tile whose element c is the operand's at `starts[i] + strides[i] * c[dims[i]]`."""
    source, dest = op.operand.type, op.result.type
    layouts = chosen_layout(source), chosen_layout(dest)
    shapes = shape_of(source), shape_of(dest)
    registers = rearrange.boxed(layouts[0], shapes[0], layouts[1], shapes[1], starts, strides, dims)
    if registers is not None:
        return _permuted(value, registers)
    extents = padded_extents(layouts[0], shapes[0])
    steps, element = row_major(extents), register_element(element_of(source))
    write = Side(layouts[0], shapes[0], element, steps, 0, extents)
    read_steps = [0] * len(shapes[1])
    for step, stride, dim in zip(steps, strides, dims, strict=True):
        read_steps[dim] = step * stride
    first = sum(s * k for s, k in zip(starts, steps, strict=True))
    read = Side(layouts[1], shapes[1], element, tuple(read_steps), first, shapes[1])
    return exchange(conversion, [(value, write)], [read], _bytes(extents, element))[0]


@converts("mgpu.reshape")
def convert_reshape(conversion: Conversion, op: Any) -> list[ir.Value]:
    """Row-major in, row-major out; to and from a tile of one element, which a scalar may be."""
    value, source, dest = conversion.get(op.operand), op.operand.type, op.result.type
    if not is_tile(source):
        return [emit.splat(value, int(ir.VectorType(register_type(dest)).shape[0])) if is_tile(dest) else value]
    layout, shape, element = chosen_layout(source), shape_of(source), register_element(element_of(source))
    write = Side(layout, shape, element, row_major(shape), 0, shape)
    if not is_tile(dest):
        return [_only_element(conversion, value, write)]
    target, target_shape = chosen_layout(dest), shape_of(dest)
    registers = rearrange.same_elements(layout, shape, target, target_shape)
    if registers is not None:
        return [_permuted(value, registers)]
    read = Side(target, target_shape, element, row_major(target_shape), 0, target_shape)
    return exchange(conversion, [(value, write)], [read], _bytes(shape, element))


def _only_element(conversion: Conversion, value: ir.Value, write: Side) -> ir.Value:
    """The scalar in a tile of one element: in register 0 of all threads, where they all replicate it."""
    if not any(any(image) for image in write.layout.thread_images):
        return emit.extract(value, 0)
    everywhere = _everywhere(write.layout, write.layout.rank)
    read = Side(everywhere, write.shape, write.element, write.strides, 0, write.extents)
    return emit.extract(exchange(conversion, [(value, write)], [read], storage_bits(write.element) // 8)[0], 0)


@converts("mgpu.concatenate")
def convert_concatenate(conversion: Conversion, op: Any) -> list[ir.Value]:
    """The operands' registers one after another where the layouts allow it."""
    operands, dimension = list(op.operands_), ir.IntegerAttr(op.dimension).value
    values, type_ = conversion.all(operands), op.result.type
    target, shape, element = chosen_layout(type_), shape_of(type_), register_element(element_of(type_))
    sources = tuple((chosen_layout(v.type), shape_of(v.type)) for v in operands)
    registers = rearrange.joined(sources, target, shape, dimension)
    if registers is not None:
        joined = values[0]
        for value in values[1:]:
            joined = emit.append(joined, value)
        return [_permuted(joined, registers)]
    steps, start, writes = row_major(shape), 0, []
    for value, (layout, part) in zip(values, sources, strict=True):
        writes.append((value, Side(layout, part, element, steps, start * steps[dimension], part)))
        start += part[dimension]
    return exchange(conversion, writes, [Side(target, shape, element, steps, 0, shape)], _bytes(shape, element))


@converts("mgpu.bitcast")
def convert_bitcast(conversion: Conversion, op: Any) -> list[ir.Value]:
    """The same bits; elements of another width take or lose a last dimension."""
    value, source, dest = conversion.get(op.operand), op.operand.type, op.result.type
    widths = storage_bits(element_of(source)), storage_bits(element_of(dest))
    if widths[0] == widths[1]:
        same = emit.bitcast(value, emit.like(value.type, register_element(element_of(dest))))
        return [_relaid(conversion, same, source, dest)]
    if widths[0] > widths[1]:
        return [_split_elements(conversion, value, source, dest, widths[0] // widths[1])]
    return [_join_elements(conversion, value, source, dest, widths[1] // widths[0])]


def _relaid(conversion: Conversion, value: ir.Value, source: ir.Type, dest: ir.Type) -> ir.Value:
    """`value` of the shape of `source`, from its layout to that of `dest`."""
    from mosaic_gpu.lowering.nvvm.convert import convert_tile

    if not is_tile(source):
        return value
    return convert_tile(conversion, value, shape_of(source), chosen_layout(source), chosen_layout(dest))


def _split_elements(conversion: Conversion, value: ir.Value, source: ir.Type, dest: ir.Type, parts: int) -> ir.Value:
    """Wide elements become a last dimension of `parts` narrow ones."""
    narrow, target, shape = register_element(element_of(dest)), chosen_layout(dest), shape_of(dest)
    if not is_tile(source):
        pieces = emit.bitcast(value, emit.vector_type(parts, narrow))
        return _spread_parts(conversion, pieces, target, shape)
    layout, wide_shape = chosen_layout(source), shape_of(source)
    registers = rearrange.split_elements(layout, wide_shape, target, shape, parts)
    if registers is not None:
        split = emit.bitcast(value, emit.vector_type(emit.length(value) * parts, narrow))
        return _permuted(split, registers)
    extents = padded_extents(layout, wide_shape)
    wide = register_element(element_of(source))
    write = Side(layout, wide_shape, wide, row_major(extents), 0, extents)
    read = Side(target, shape, narrow, row_major((*extents, parts)), 0, shape)
    return exchange(conversion, [(value, write)], [read], _bytes(extents, wide))[0]


def _spread_parts(conversion: Conversion, pieces: ir.Value, layout: Layout, shape: tuple[int, ...]) -> ir.Value:
    """A tile of shape (parts,) from a vector that all threads hold."""
    coordinates = Coordinates(conversion.threads, layout, shape)
    number = coordinates.vector(0, 32)
    result = emit.splat(emit.extract(pieces, 0), len(coordinates))
    for part in range(1, emit.length(pieces)):
        here = emit.compare(emit.EQ, number, part)
        result = emit.select(here, emit.splat(emit.extract(pieces, part), len(coordinates)), result)
    return result


def _join_elements(conversion: Conversion, value: ir.Value, source: ir.Type, dest: ir.Type, parts: int) -> ir.Value:
    """The last dimension, of `parts` narrow elements, becomes one wide element."""
    layout, shape = chosen_layout(source), shape_of(source)
    narrow, wide = register_element(element_of(source)), register_element(element_of(dest))
    is_scalar = not is_tile(dest)
    target = _everywhere(layout, 1) if is_scalar else chosen_layout(dest)
    wide_shape = (1,) if is_scalar else shape_of(dest)
    narrow_shape = (1, *shape) if is_scalar else shape
    seen = layout.insert(0) if is_scalar else layout
    registers = rearrange.join_elements(seen, narrow_shape, target, wide_shape, parts)
    if registers is not None:
        count = len(registers) // parts
        joined = emit.bitcast(_permuted(value, registers), emit.vector_type(count, wide))
    else:
        extents = (*padded_extents(target, wide_shape), parts)
        write = Side(seen, narrow_shape, narrow, row_major(extents), 0, narrow_shape)
        read = Side(target, wide_shape, wide, row_major(extents[:-1]), 0, wide_shape)
        joined = exchange(conversion, [(value, write)], [read], _bytes(extents, narrow))[0]
    return emit.extract(joined, 0) if is_scalar else joined


def _everywhere(like: Layout, rank: int) -> Layout:
    """The layout in which every thread holds the one element of a tile of `rank` dimensions."""
    zero = (0,) * rank
    return Layout((1,) * rank, (), (zero,) * len(like.lane), (zero,) * len(like.warp))


def _permuted(value: ir.Value, registers: Sequence[int | None]) -> ir.Value:
    """The registers that a map of `rearrange` names; padding is left open."""
    return emit.pick(value, [-1 if r is None else r for r in registers])


def _bytes(extents: Sequence[int], element: ir.Type) -> int:
    return math.prod(extents) * (storage_bits(element) // 8)
