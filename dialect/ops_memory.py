"""References to memory: views of them, and the loads and stores that go through them."""

from collections.abc import Sequence
from typing import Any

from mosaic_gpu.dialect._mlir import ext, ir
from mosaic_gpu.dialect.diagnostics import require
from mosaic_gpu.dialect.mgpu import Mgpu
from mosaic_gpu.dialect.types import SMEM, RefType, element_of, ref_space, shape_of


def ints(attr: ir.ArrayAttr) -> tuple[int, ...]:
    """The Python ints of an array attribute of integers."""
    return tuple(ir.IntegerAttr(a).value for a in attr)


def _is_int(type_: ir.Type) -> bool:
    return isinstance(element_of(type_), ir.IntegerType) or isinstance(type_, ir.IndexType)


class AllocOp(Mgpu.Operation, name="alloc"):
    """Shared memory for one tile, uninitialised; lives until its last use."""

    result: ext.Result[RefType]

    def verify_invariants(self) -> bool:
        return require(self, ref_space(self.result.type) == SMEM, 'allocates "smem" only')


class SubviewOp(Mgpu.Operation, name="subview", traits=[ext.Pure]):
    """A strided box of `source`: element i of the result is element `offset + i * stride` of it.

    `offsets`: one integer scalar a dimension of `source`, all i32 or all i64; `sizes`, `strides`: ints, the same
    number; a stride may be negative or zero.  `dropped`: the dimensions (of size 1) that the result does not have.
    `checked`: one 0 or 1 a dimension; 1 = the box may leave `source` there, and what lies outside reads
    as `other` (or zero) and is never written; 0 = the offset is known to keep the box inside.
    """

    result: ext.Result[RefType]
    source: ext.Operand[RefType]
    offsets: Sequence[ext.Operand[Any]]
    sizes: ir.ArrayAttr
    strides: ir.ArrayAttr
    dropped: ir.ArrayAttr
    checked: ir.ArrayAttr

    def verify_invariants(self) -> bool:
        rank = len(shape_of(self.source.type))
        lengths = {len(self.offsets), len(self.sizes), len(self.strides), len(self.checked)}
        if not require(self, lengths == {rank}, f"offsets, sizes, strides, checked must have {rank} entries"):
            return False
        sizes, dropped = ints(self.sizes), ints(self.dropped)
        kept = tuple(s for d, s in enumerate(sizes) if d not in dropped)
        return (
            require(self, all(sizes[d] == 1 for d in dropped), "a dropped dimension must have size 1")
            and require(self, shape_of(self.result.type) == kept, f"result shape must be {list(kept)}")
            and require(self, all(_is_int(o.type) for o in self.offsets), "offsets must be integers")
            and require(self, element_of(self.result.type) == element_of(self.source.type), "element types differ")
            and require(self, ref_space(self.result.type) == ref_space(self.source.type), "memory spaces differ")
        )


def _check_access(op: Any, ref: RefType, value: ir.Type, mask: ir.Value | None) -> bool:
    """What load and store share: the value has the reference's shape and element, the mask its shape."""
    return (
        require(op, shape_of(value) == shape_of(ref), f"shape must be {list(shape_of(ref))}")
        and require(op, element_of(value) == element_of(ref), f"element type must be {element_of(ref)}")
        and _check_mask(op, value, mask)
    )


def _check_mask(op: Any, value: ir.Type, mask: ir.Value | None) -> bool:
    if mask is None:
        return True
    bit = ir.IntegerType.get_signless(1)
    return require(op, element_of(mask.type) == bit, "mask must be of i1") and require(
        op, shape_of(mask.type) in ((), shape_of(value)), "mask must be a scalar or of the value's shape"
    )


def _check_indices(op: Any, ref: RefType, value: ir.Type, indices: Sequence[ir.Value], mask: ir.Value | None) -> bool:
    """What gather and scatter share: one integer index a dimension, of the value's shape."""
    rank = len(shape_of(ref))
    fitting = all(_is_int(i.type) and shape_of(i.type) == shape_of(value) for i in indices)
    return (
        require(op, len(indices) == rank, f"needs {rank} indices")
        and require(op, fitting, "indices must be integers of the value's shape")
        and require(op, element_of(value) == element_of(ref), f"element type must be {element_of(ref)}")
        and _check_mask(op, value, mask)
    )


class LoadOp(Mgpu.Operation, name="load"):
    """The tile (at rank 0 the scalar) that `source` holds.

    Where `mask` (i1) is false, and outside of a checked subview, the element is `other`'s (a scalar or
    a tile of the result's shape; zero where it is left out) and memory is not touched.
    """

    result: ext.Result[Any]
    source: ext.Operand[RefType]
    mask: ext.Operand[Any] | None = None
    other: ext.Operand[Any] | None = None

    def verify_invariants(self) -> bool:
        return _check_access(self, self.source.type, self.result.type, self.mask)


class StoreOp(Mgpu.Operation, name="store"):
    """Writes `value` to `dest`, except where `mask` is false or a checked subview is left."""

    value: ext.Operand[Any]
    dest: ext.Operand[RefType]
    mask: ext.Operand[Any] | None = None

    def verify_invariants(self) -> bool:
        return _check_access(self, self.dest.type, self.value.type, self.mask)


class GatherOp(Mgpu.Operation, name="gather"):
    """Element p of the result is `source[indices[0][p], indices[1][p], ...]`.

    `indices`: one a dimension of `source`, all of one type, in range wherever `mask` is true (the lowering clamps or
    masks); `mask`, `other`: as in `mgpu.load`.
    """

    result: ext.Result[Any]
    source: ext.Operand[RefType]
    indices: Sequence[ext.Operand[Any]]
    mask: ext.Operand[Any] | None = None
    other: ext.Operand[Any] | None = None

    def verify_invariants(self) -> bool:
        return _check_indices(self, self.source.type, self.result.type, list(self.indices), self.mask)


class ScatterOp(Mgpu.Operation, name="scatter"):
    """`dest[indices[0][p], indices[1][p], ...] = value[p]` for each p where `mask` is true.

    Where two elements name one place, one of them is kept, it is not said which.
    """

    value: ext.Operand[Any]
    dest: ext.Operand[RefType]
    indices: Sequence[ext.Operand[Any]]
    mask: ext.Operand[Any] | None = None

    def verify_invariants(self) -> bool:
        return _check_indices(self, self.dest.type, self.value.type, list(self.indices), self.mask)
