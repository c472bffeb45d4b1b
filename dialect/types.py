"""The reference type, and small questions about types that every stage asks."""

from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.mgpu import Mgpu

GMEM = "gmem"
SMEM = "smem"


class RefType(Mgpu.Type, name="ref"):
    """`!mgpu.ref<tensor<64x128xf32>, "gmem">`: memory that holds a tile.

    `tile` is a ranked tensor type without encoding: the shape (rank 0 allowed) and element type;
    `space` is "gmem" (global memory) or "smem" (shared memory of the block).
    """

    tile: ir.TypeAttr
    space: ir.StringAttr


def ref_type(shape: tuple[int, ...], element: ir.Type, space: str = GMEM) -> RefType:
    """The type of a reference to a tile of `shape` in memory space `space`."""
    return RefType.get(ir.RankedTensorType.get(list(shape), element), ir.StringAttr.get(space))


def ref_tile(type_: RefType) -> ir.RankedTensorType:
    """The tile type a reference points to: its shape and element type."""
    return ir.RankedTensorType(ir.TypeAttr(type_.tile).value)


def ref_space(type_: RefType) -> str:
    """The memory space of a reference: "gmem" or "smem"."""
    return str(ir.StringAttr(type_.space).value)


def is_tile(type_: ir.Type) -> bool:
    """Whether `type_` is a tile, that is a ranked tensor; a rank-0 value is a plain scalar."""
    return isinstance(type_, ir.RankedTensorType)


def shape_of(type_: ir.Type) -> tuple[int, ...]:
    """The shape of a tile, a reference or a scalar (whose shape is `()`)."""
    if isinstance(type_, RefType):
        return tuple(ref_tile(type_).shape)
    return tuple(ir.RankedTensorType(type_).shape) if is_tile(type_) else ()


def element_of(type_: ir.Type) -> ir.Type:
    """The element type of a tile or a reference; a scalar type is its own."""
    if isinstance(type_, RefType):
        return ref_tile(type_).element_type
    return ir.RankedTensorType(type_).element_type if is_tile(type_) else type_


def tile_type(shape: tuple[int, ...], element: ir.Type, encoding: Any = None) -> ir.Type:
    """The type of a value of `shape`: a tensor, or the element type itself at rank 0."""
    return ir.RankedTensorType.get(list(shape), element, encoding) if shape else element


def storage_bits(element: ir.Type) -> int:
    """Bits one element takes in memory: a bool and a 4-bit number take a whole byte."""
    if isinstance(element, ir.IndexType):
        return 64
    return max(8, int(element.width))
