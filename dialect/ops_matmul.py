"""Matrix products of tiles, and the fence that lets the matrix units see what threads stored."""

from typing import Any

from mosaic_gpu.dialect._mlir import ext, ir
from mosaic_gpu.dialect.diagnostics import require
from mosaic_gpu.dialect.mgpu import Mgpu
from mosaic_gpu.dialect.ops_kernel import WHY
from mosaic_gpu.dialect.types import SMEM, RefType, element_of, ref_space, shape_of

PENDING = "mgpu.pending"
"""Attribute of a `mgpu.dot`; see there."""
PRECISIONS = ("ieee", "tf32")
KINDS = ("", "wgmma", "mma", "fma")


class DotOp(Mgpu.Operation, name="dot"):
    """`acc + lhs @ rhs`: acc and result [M, N], lhs [M, K], rhs [K, N].

    Products are exact and are summed in the accumulator's element type (f32, f64 or an integer that wraps), in
    any order and association.

    `lhs`, `rhs`: each a tile, or a reference to shared memory that is read when the op runs.
    `lhs_transposed`, `rhs_transposed`: 1 where the operand given is [K, M], [N, K].
    `lhs_unsigned`, `rhs_unsigned`: 1 where 8-bit integers are not signed; other integers have the accumulator's type.
    `precision`: "tf32" allows f32 operands to be rounded to 10 bits of mantissa; "ieee" does not.
    `kind`: how it is computed: "" until it is chosen; "wgmma" (a warpgroup, operands in shared memory), "mma"
    (a warp, operands in registers) or "fma" (each thread for itself; no op of this kind is left after choose-dots).
    """

    result: ext.Result[Any]
    lhs: ext.Operand[Any]
    rhs: ext.Operand[Any]
    acc: ext.Operand[Any]
    lhs_transposed: ir.IntegerAttr
    rhs_transposed: ir.IntegerAttr
    lhs_unsigned: ir.IntegerAttr
    rhs_unsigned: ir.IntegerAttr
    precision: ir.StringAttr
    kind: ir.StringAttr

    def verify_invariants(self) -> bool:
        lhs, rhs, acc = self.lhs.type, self.rhs.type, self.acc.type
        shapes = [shape_of(t) for t in (lhs, rhs, acc)]
        if not require(self, all(len(s) == 2 for s in shapes), "operands must have two dimensions"):
            return False
        (m, k), (k2, n) = oriented(shapes[0], self.lhs_transposed), oriented(shapes[1], self.rhs_transposed)
        refs = [t for t in (lhs, rhs) if isinstance(t, RefType)]
        return (
            require(self, k == k2, f"contracts {k} with {k2} elements")
            and require(self, shapes[2] == (m, n), f"acc must be {m}x{n}")
            and require(self, self.result.type == acc, "result and acc differ in type")
            and require(self, all(ref_space(r) == SMEM for r in refs), "references must be to shared memory")
            and require(self, ir.StringAttr(self.precision).value in PRECISIONS, f"precision must be of {PRECISIONS}")
            and require(self, ir.StringAttr(self.kind).value in KINDS, f"kind must be of {KINDS}")
            and require(self, _agree(element_of(lhs), element_of(rhs), element_of(acc)), "element types do not fit")
        )


def oriented(shape: tuple[int, ...], transposed: Any) -> tuple[int, int]:
    """The two extents of an operand of `mgpu.dot`, swapped where `transposed` (an attribute or int) is 1."""
    flag = transposed if isinstance(transposed, int) else ir.IntegerAttr(transposed).value
    rows, columns = shape
    return (columns, rows) if flag else (rows, columns)


def _agree(lhs: ir.Type, rhs: ir.Type, acc: ir.Type) -> bool:
    """Whether products of such operands may be summed in such an accumulator."""
    if isinstance(acc, ir.IntegerType):
        is_small = {str(lhs), str(rhs)} == {"i8"} and acc.width == 32
        return is_small or lhs == rhs == acc
    if all(str(t) in ("f8E4M3FN", "f8E5M2") for t in (lhs, rhs)):
        return isinstance(acc, ir.F32Type)
    if lhs != rhs:
        return False
    return isinstance(acc, ir.F64Type if isinstance(lhs, ir.F64Type) else ir.F32Type)


class DotWaitOp(Mgpu.Operation, name="dot_wait"):
    """The value of a dot that may still be in flight, when at most `pending` groups of such dots are."""

    result: ext.Result[Any]
    operand: ext.Operand[Any]
    pending: ir.IntegerAttr

    def verify_invariants(self) -> bool:
        return require(self, self.result.type == self.operand.type, "result and operand differ in type") and require(
            self, 0 <= ir.IntegerAttr(self.pending).value <= 7, "pending must be in 0 .. 7"
        )


class FenceAsyncOp(Mgpu.Operation, name="fence_async"):
    """Orders this thread's loads and stores of shared memory before later accesses of the async proxy (wgmma, TMA).

    Others' accesses are ordered by the barrier that follows.  PTX ISA, `fence.proxy.async`.
    """


def fence_async(why: str) -> None:
    """Emits a `mgpu.fence_async` that says why it is there."""
    FenceAsyncOp().operation.attributes[WHY] = ir.StringAttr.get(why)
