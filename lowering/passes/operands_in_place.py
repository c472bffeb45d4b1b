"""Operands of "wgmma" dots that the kernel itself keeps in shared memory are read there, in a swizzle.

An operand that was loaded whole from an `mgpu.alloc` (or from one matrix of several in it) need not be copied: the
allocation gets the swizzle that the dot wants, if all that is done with it are loads and stores of boxes, and the unit
reads it.  Each store to it is followed by a fence.

    %b = "mgpu.alloc"() : () -> !mgpu.ref<tensor<2x64x64xf16>, "smem">
    %x = "mgpu.load"(subview(%b [%slot, 0, 0]))
    %r = "mgpu.dot"(%x, ..)

    %b = "mgpu.alloc"() {mgpu.swizzle = 128 : i32} : ..
    %r = "mgpu.dot"(subview(%b [%slot, 0, 0]), ..)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.ops_matmul import fence_async
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.dialect.types import RefType, shape_of
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.passes.walk import blocks_of, walk
from mosaic_gpu.lowering.swizzles import SWIZZLE, swizzle_of
from mosaic_gpu.lowering.views import constant_int

_READERS = frozenset({"mgpu.load", "mgpu.dot"})
_DEST = 1  # where a store has its reference


def in_place(op: Any, value: Any, swizzle: int) -> ir.Value | None:
    """The reference that `op` may read in the place of its tile operand `value`; swizzles the allocation.

    None where the tile is not in shared memory as a whole, in this block and unchanged until `op`.
    """
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "mgpu.load" or len(owner.operation.operands) != 1:
        return None
    load = owner.operation
    alloc = _matrix_of(load.operands[0])
    if alloc is None or load.block != op.block or not _is_unchanged(alloc, load, op):
        return None
    if swizzle_of(alloc) not in (0, swizzle) or not _has_boxes_only(alloc.results[0]):
        return None
    if not swizzle_of(alloc):
        alloc.attributes[SWIZZLE] = emit.int_attr(swizzle)
        _fence_stores(alloc.results[0])
    return load.operands[0]


def _matrix_of(ref: Any) -> Any | None:
    """The allocation of which a reference is the whole, or one matrix; None where it is neither."""
    if isinstance(ref.owner, ir.Block):
        return None
    op = ref.owner.operation
    if op.name == "mgpu.alloc":
        return op if len(shape_of(op.results[0].type)) == 2 else None
    source = op.operands[0]
    if op.name != "mgpu.subview" or isinstance(source.owner, ir.Block) or source.owner.operation.name != "mgpu.alloc":
        return None
    shape, offsets = shape_of(source.type), list(op.operands)[1:]
    is_whole = ints(op.attributes["sizes"])[-2:] == shape[-2:] and all(constant_int(o) == 0 for o in offsets[-2:])
    return source.owner.operation if is_whole and _is_box(op) else None


def _is_box(subview: Any) -> bool:
    """Whether a view of matrices is a box, without strides, in one of them."""
    rank = len(ints(subview.attributes["sizes"]))
    leading = tuple(range(rank - 2))
    return (
        ints(subview.attributes["dropped"]) == leading
        and ints(subview.attributes["strides"])[-2:] == (1, 1)
        and not any(ints(subview.attributes["checked"]))
    )


def _has_boxes_only(ref: Any) -> bool:
    """Whether everything that is done with memory are loads, stores and dots of boxes in single matrices."""
    is_matrix = len(shape_of(ref.type)) == 2
    for use in ref.uses:
        user = use.owner.operation
        if user.name == "mgpu.subview":
            if not (_is_box(user) and _has_boxes_only(user.results[0])):
                return False
        elif not is_matrix or user.name not in (*_READERS, "mgpu.store"):
            return False
    return True


def _is_unchanged(alloc: Any, load: Any, op: Any) -> bool:
    """Whether nothing between `load` and `op`, which are in one block, writes the allocation."""
    inside = False
    for view in load.block.operations:
        between = view.operation
        if between == op:
            return inside
        if inside and any(_writes(inner, alloc) for inner in _all_of(between)):
            return False
        inside = inside or between == load
    return False


def _all_of(op: Any) -> Iterator[Any]:
    yield op
    for block in blocks_of(op):
        yield from walk(block)


def _writes(op: Any, alloc: Any) -> bool:
    """Whether `op` does anything but read with the allocation or a view of it."""
    if op.name in _READERS or op.name == "mgpu.subview":
        return False
    return any(isinstance(v.type, RefType) and _root(v) == alloc.results[0] for v in op.operands)


def _root(ref: Any) -> Any:
    while not isinstance(ref.owner, ir.Block) and ref.owner.operation.name == "mgpu.subview":
        ref = ref.owner.operation.operands[0]
    return ref


def _fence_stores(ref: Any) -> None:
    for use in list(ref.uses):
        user = use.owner.operation
        if user.name == "mgpu.subview":
            _fence_stores(user.results[0])
        elif user.name == "mgpu.store" and user.operands[_DEST] == ref:
            with ir.InsertionPoint.after(user), user.location:
                fence_async("matrix units read what threads stored")
