"""Ops from tiles to tiles.  Elementwise arithmetic is upstream's `arith` and `math` on tensors."""

from collections.abc import Sequence
from typing import Any

from mosaic_gpu.dialect._mlir import ext, ir
from mosaic_gpu.dialect.diagnostics import require
from mosaic_gpu.dialect.mgpu import Mgpu
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.dialect.types import element_of, shape_of, storage_bits


def _same_element(op: Any, a: ir.Type, b: ir.Type) -> bool:
    return require(op, element_of(a) == element_of(b), f"element types {element_of(a)} and {element_of(b)} differ")


def _require_shape(op: Any, shape: Sequence[int]) -> bool:
    return require(op, shape_of(op.result.type) == tuple(shape), f"result shape must be {list(shape)}")


class IotaOp(Mgpu.Operation, name="iota", traits=[ext.Pure]):
    """Each element's coordinate along `dimension`; the result's elements are integers."""

    result: ext.Result[Any]
    dimension: ir.IntegerAttr

    def verify_invariants(self) -> bool:
        rank = len(shape_of(self.result.type))
        inside = 0 <= ir.IntegerAttr(self.dimension).value < rank
        integer = isinstance(element_of(self.result.type), ir.IntegerType)
        return require(self, inside, f"dimension must be below {rank}") and require(
            self, integer, "the result's elements must be integers"
        )


class BroadcastOp(Mgpu.Operation, name="broadcast", traits=[ext.Pure]):
    """Dimension i of `operand` becomes dimension `dimensions[i]` (ascending) of the result; sizes 1 stretch.

    A scalar operand (no dimensions) fills the whole tile.
    """

    result: ext.Result[Any]
    operand: ext.Operand[Any]
    dimensions: ir.ArrayAttr

    def verify_invariants(self) -> bool:
        source, target, dims = shape_of(self.operand.type), shape_of(self.result.type), ints(self.dimensions)
        if not require(self, len(dims) == len(source), f"dimensions must have {len(source)} entries"):
            return False
        ascending = list(dims) == sorted(set(dims)) and all(0 <= d < len(target) for d in dims)
        if not require(self, ascending, "dimensions must ascend inside the result's rank"):
            return False
        fits = all(n in (1, target[d]) for n, d in zip(source, dims, strict=True))
        return require(self, fits, f"{list(source)} does not stretch to {list(target)}") and _same_element(
            self, self.operand.type, self.result.type
        )


class ReshapeOp(Mgpu.Operation, name="reshape", traits=[ext.Pure]):
    """The same elements in row-major order under another shape."""

    result: ext.Result[Any]
    operand: ext.Operand[Any]

    def verify_invariants(self) -> bool:
        counts = [1, 1]
        for i, value in enumerate((self.operand, self.result)):
            for n in shape_of(value.type):
                counts[i] *= n
        return require(self, counts[0] == counts[1], "numbers of elements differ") and _same_element(
            self, self.operand.type, self.result.type
        )


class TransposeOp(Mgpu.Operation, name="transpose", traits=[ext.Pure]):
    """Dimension i of the result is dimension `permutation[i]` of the operand."""

    result: ext.Result[Any]
    operand: ext.Operand[Any]
    permutation: ir.ArrayAttr

    def verify_invariants(self) -> bool:
        shape, perm = shape_of(self.operand.type), ints(self.permutation)
        return (
            require(self, sorted(perm) == list(range(len(shape))), "not a permutation of the dimensions")
            and _require_shape(self, [shape[d] for d in perm])
            and _same_element(self, self.operand.type, self.result.type)
        )


class SliceOp(Mgpu.Operation, name="slice", traits=[ext.Pure]):
    """A static strided box: element i of the result is element `starts + i * strides` of the operand.

    A stride may be negative (a reversal); the box lies inside the operand.
    """

    result: ext.Result[Any]
    operand: ext.Operand[Any]
    starts: ir.ArrayAttr
    strides: ir.ArrayAttr

    def verify_invariants(self) -> bool:
        source, target = shape_of(self.operand.type), shape_of(self.result.type)
        starts, strides = ints(self.starts), ints(self.strides)
        ranks = {len(source), len(target), len(starts), len(strides)}
        if not require(self, len(ranks) == 1, "ranks of operand, result, starts and strides differ"):
            return False
        boxes = zip(source, target, starts, strides, strict=True)
        inside = all(n == 0 or (0 <= s < m and 0 <= s + (n - 1) * k < m) for m, n, s, k in boxes)
        return require(self, inside, "the box leaves the operand") and _same_element(
            self, self.operand.type, self.result.type
        )


class ConcatenateOp(Mgpu.Operation, name="concatenate", traits=[ext.Pure]):
    """The operands, all of one type, one after another along `dimension`."""

    result: ext.Result[Any]
    operands_: Sequence[ext.Operand[Any]]
    dimension: ir.IntegerAttr

    def verify_invariants(self) -> bool:
        dim, count = ir.IntegerAttr(self.dimension).value, len(self.operands_)
        if not require(self, count > 0, "needs an operand"):
            return False
        shape = list(shape_of(self.operands_[0].type))
        if not require(self, 0 <= dim < len(shape), "dimension is outside the rank"):
            return False
        shape[dim] *= count
        return _require_shape(self, shape) and _same_element(self, self.operands_[0].type, self.result.type)


def _check_combiner(op: Any, values: Sequence[ir.Value]) -> bool:
    """The body takes two scalars a value (all of the left side, then all of the right), yields one each."""
    if not require(op, len(op.body.blocks) == 1, "needs exactly one block"):
        return False
    block = op.body.blocks[0]
    elements = [element_of(v.type) for v in values]
    takes = [a.type for a in block.arguments]
    yields = [v.type for v in block.operations[len(block.operations) - 1].operands]
    return require(op, takes == elements * 2, "the body must take two scalars an operand") and require(
        op, yields == elements, "the body must yield one scalar an operand"
    )


class ReduceOp(Mgpu.Operation, name="reduce", traits=[ext.Pure]):
    """Folds tiles along `axes` with an associative and commutative body.

    `inputs`: n tiles of one type; `identities`: n scalars that leave the other side as it is; the body takes
    (left_0..left_n-1, right_0..right_n-1) scalars and yields n.  The results lack `axes`; over all axes
    they are scalars.  The order of the fold is not said.
    """

    outputs: Sequence[ext.Result[Any]]
    inputs: Sequence[ext.Operand[Any]]
    identities: Sequence[ext.Operand[Any]]
    axes: ir.ArrayAttr
    body: ext.Region

    def verify_invariants(self) -> bool:
        inputs, outputs = list(self.inputs), list(self.outputs)
        counts = {len(inputs), len(outputs), len(self.identities)}
        if not require(self, len(counts) == 1 and bool(inputs), "needs as many identities and results as inputs"):
            return False
        shape, axes = shape_of(inputs[0].type), set(ints(self.axes))
        kept = tuple(n for d, n in enumerate(shape) if d not in axes)
        return require(self, all(shape_of(v.type) == shape for v in inputs), "inputs differ in shape") and require(
            self, all(shape_of(v.type) == kept for v in outputs), f"result shape must be {list(kept)}"
        )

    def verify_region_invariants(self) -> bool:
        return _check_combiner(self, list(self.inputs))


class ScanOp(Mgpu.Operation, name="scan", traits=[ext.Pure]):
    """The inclusive running fold along `axis`, from the high end where `reverse` is 1.

    Operands and body as in `mgpu.reduce` (associative; left is the earlier side); results have the inputs' shape.
    """

    outputs: Sequence[ext.Result[Any]]
    inputs: Sequence[ext.Operand[Any]]
    identities: Sequence[ext.Operand[Any]]
    axis: ir.IntegerAttr
    reverse: ir.IntegerAttr
    body: ext.Region

    def verify_invariants(self) -> bool:
        inputs, outputs = list(self.inputs), list(self.outputs)
        counts = {len(inputs), len(outputs), len(self.identities)}
        if not require(self, len(counts) == 1 and bool(inputs), "needs as many identities and results as inputs"):
            return False
        shape = shape_of(inputs[0].type)
        same = all(shape_of(v.type) == shape for v in (*inputs, *outputs))
        return require(self, same, "inputs and results differ in shape") and require(
            self, 0 <= ir.IntegerAttr(self.axis).value < len(shape), "axis is outside the rank"
        )

    def verify_region_invariants(self) -> bool:
        return _check_combiner(self, list(self.inputs))


class ConvertLayoutOp(Mgpu.Operation, name="convert_layout", traits=[ext.Pure]):
    """The same tile, held by the threads in the result type's layout."""

    result: ext.Result[Any]
    operand: ext.Operand[Any]

    def verify_invariants(self) -> bool:
        return _require_shape(self, shape_of(self.operand.type)) and _same_element(
            self, self.operand.type, self.result.type
        )


class BitcastOp(Mgpu.Operation, name="bitcast", traits=[ext.Pure]):
    """The operand's bits under another element type.

    Same width: same shape.  A wider operand element gains a last dimension of width/width elements, the
    lowest bits first; a wider result element takes the last dimension away.
    """

    result: ext.Result[Any]
    operand: ext.Operand[Any]

    def verify_invariants(self) -> bool:
        source, target = self.operand.type, self.result.type
        bits = storage_bits(element_of(source)), storage_bits(element_of(target))
        shape = shape_of(source)
        if bits[0] > bits[1]:
            return _require_shape(self, (*shape, bits[0] // bits[1]))
        if bits[0] < bits[1]:
            return require(self, bool(shape) and shape[-1] == bits[1] // bits[0], "last dimension does not fit")
        return _require_shape(self, shape)


class LibdeviceOp(Mgpu.Operation, name="libdevice", traits=[ext.Pure]):
    """Applies `function` of NVIDIA's libdevice (`__nv_sinf`, ...) to each element of arguments of one type."""

    result: ext.Result[Any]
    arguments: Sequence[ext.Operand[Any]]
    function: ir.StringAttr

    def verify_invariants(self) -> bool:
        shape = shape_of(self.result.type)
        return require(self, all(shape_of(v.type) == shape for v in self.arguments), "shapes differ")


class PtxOp(Mgpu.Operation, name="ptx", traits=[ext.Pure]):
    """Applies one pure PTX instruction to each element: `asm` with `$0` the result and `$1`.. the arguments.

    The arguments are of one type.

    `constraints`: LLVM's inline-assembly constraints, for instance "=f,f".
    """

    result: ext.Result[Any]
    arguments: Sequence[ext.Operand[Any]]
    asm: ir.StringAttr
    constraints: ir.StringAttr

    def verify_invariants(self) -> bool:
        shape = shape_of(self.result.type)
        return require(self, all(shape_of(v.type) == shape for v in self.arguments), "shapes differ")
