"""The ops that jaxpr rules emit, with plain Python values in place of attributes and result types.

Every function emits at the current insertion point and location and gives the op's value.  `shape` is
a tuple of ints; where it is `()` values are scalars.
"""

from __future__ import annotations

from collections.abc import Sequence

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.ops_memory import AllocOp, GatherOp, LoadOp, ScatterOp, StoreOp, SubviewOp
from mosaic_gpu.dialect.ops_tile import BroadcastOp, IotaOp, ReshapeOp, TransposeOp
from mosaic_gpu.dialect.types import SMEM, element_of, ref_space, ref_type, shape_of, tile_type

EQ, NE, SLT, SLE, SGT, SGE, ULT, ULE, UGT, UGE = range(10)


def i1() -> ir.Type:
    """The type of a bool."""
    return ir.IntegerType.get_signless(1)


def i32() -> ir.Type:
    """The type of program ids and offsets."""
    return ir.IntegerType.get_signless(32)


def int_attr(number: int) -> ir.IntegerAttr:
    """An i32 attribute."""
    return ir.IntegerAttr.get(i32(), number)


def int_array(numbers: Sequence[int]) -> ir.ArrayAttr:
    """An array attribute of i32."""
    return ir.ArrayAttr.get([int_attr(n) for n in numbers])


def int_constant(number: int, type_: ir.Type | None = None) -> ir.Value:
    """An integer constant of a scalar type (i32 where it is not said) or splat of a tile type."""
    type_ = i32() if type_ is None else type_
    attr: ir.Attribute = ir.IntegerAttr.get(element_of(type_), number)
    if shape_of(type_):
        attr = ir.DenseElementsAttr.get_splat(type_, attr)
    return arith.ConstantOp(type_, attr).result


def resize_int(value: ir.Value, element: ir.Type) -> ir.Value:
    """A signed integer (scalar or tile) sign-extended or truncated to `element`."""
    source, target = element_of(value.type).width, element.width
    type_ = tile_type(shape_of(value.type), element)
    if source == target:
        return value
    return arith.extsi(type_, value) if source < target else arith.trunci(type_, value)


def alloc(shape: Sequence[int], element: ir.Type) -> ir.Value:
    """A reference to uninitialised shared memory."""
    return AllocOp(ref_type(tuple(shape), element, SMEM)).result


def subview(
    source: ir.Value,
    offsets: Sequence[ir.Value],
    sizes: Sequence[int],
    strides: Sequence[int] | None = None,
    dropped: Sequence[int] = (),
    checked: Sequence[int] | None = None,
) -> ir.Value:
    """A box of `source`, of unit stride and known to lie inside where the last two are not given."""
    strides = [1] * len(sizes) if strides is None else strides
    checked = [0] * len(sizes) if checked is None else checked
    kept = tuple(n for d, n in enumerate(sizes) if d not in dropped)
    type_ = ref_type(kept, element_of(source.type), ref_space(source.type))
    arrays = (int_array(sizes), int_array(strides), int_array(dropped), int_array(checked))
    return SubviewOp(type_, source, list(offsets), *arrays).result


def load(source: ir.Value, mask: ir.Value | None = None, other: ir.Value | None = None) -> ir.Value:
    """What `source` holds: a tile, or a scalar at rank 0."""
    type_ = tile_type(shape_of(source.type), element_of(source.type))
    return LoadOp(type_, source, mask=mask, other=other).result


def store(value: ir.Value, dest: ir.Value, mask: ir.Value | None = None) -> None:
    """Writes `value` to `dest`."""
    StoreOp(value, dest, mask=mask)


def gather(
    source: ir.Value, indices: Sequence[ir.Value], mask: ir.Value | None = None, other: ir.Value | None = None
) -> ir.Value:
    """`source` at one index tile a dimension (at least one; all of one type)."""
    type_ = tile_type(shape_of(indices[0].type), element_of(source.type))
    return GatherOp(type_, source, list(indices), mask=mask, other=other).result


def scatter(value: ir.Value, dest: ir.Value, indices: Sequence[ir.Value], mask: ir.Value | None = None) -> None:
    """Writes `value` to `dest` at one index tile a dimension."""
    ScatterOp(value, dest, list(indices), mask=mask)


def iota(shape: Sequence[int], dimension: int, element: ir.Type | None = None) -> ir.Value:
    """Each element's coordinate along `dimension`."""
    return IotaOp(tile_type(tuple(shape), element or i32()), int_attr(dimension)).result


def broadcast(value: ir.Value, shape: Sequence[int], dimensions: Sequence[int]) -> ir.Value:
    """Dimension i of `value` as dimension `dimensions[i]` (ascending) of `shape`."""
    if tuple(shape) == shape_of(value.type):
        return value
    return BroadcastOp(tile_type(tuple(shape), element_of(value.type)), value, int_array(dimensions)).result


def reshape(value: ir.Value, shape: Sequence[int]) -> ir.Value:
    """The same elements in row-major order under another shape."""
    if tuple(shape) == shape_of(value.type):
        return value
    if not shape_of(value.type):
        return broadcast(value, shape, ())
    return ReshapeOp(tile_type(tuple(shape), element_of(value.type)), value).result


def transpose(value: ir.Value, permutation: Sequence[int]) -> ir.Value:
    """Dimension i of the result is dimension `permutation[i]` of `value`."""
    if list(permutation) == list(range(len(permutation))):
        return value
    shape = tuple(shape_of(value.type)[d] for d in permutation)
    return TransposeOp(tile_type(shape, element_of(value.type)), value, int_array(permutation)).result
