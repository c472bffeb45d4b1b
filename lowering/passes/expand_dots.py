"""Turns the `mgpu.dot`s of kind "fma" into loops of fused multiply-adds on whole tiles.

Requires: the kinds of all `mgpu.dot`s chosen, no layouts yet. Does: stores the operands of a dot to shared memory, each
with K as its first dimension, and adds up outer products; layouts, barriers and broadcast loads are
the business of the passes that follow. Leaves: dots of other kinds.

    %r = "mgpu.dot"(%a, %b, %c) {kind = "fma"}           // 32x64, 64x48

    "mgpu.store"(transpose(%a), %p)                      // 64x32
    "mgpu.store"(%b, %q)                                 // 64x48
    %r = scf.for %k = 0 to 64 step 4 iter_args(%s = %c) {
      four times: %s = math.fma(broadcast(load(%p[%k + i, :])), broadcast(load(%q[%k + i, :])), %s)
    }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import arith, ir, math, scf
from mosaic_gpu.dialect.attrs import PREFERRED_LAYOUT, layout_attr
from mosaic_gpu.dialect.dot_layouts import fma_layout
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.ops_tile import SliceOp
from mosaic_gpu.dialect.types import element_of, is_tile, shape_of, storage_bits, tile_type
from mosaic_gpu.lowering.dots import dot_of
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.walk import body_of, kernels, walk

STAGED_BYTES = 64 * 1024
"""Shared memory that the operands of one loop may take; more are cut along K."""
UNROLLED = 4


@dataclass(frozen=True)
class ExpandDots:
    """The pass; it has no options."""

    name: str = "expand-dots"

    def apply(self, module: ir.Module, options: LoweringOptions) -> None:
        for kernel in kernels(module):
            num_warps = ir.IntegerAttr(kernel.attributes["num_warps"]).value
            for op in list(walk(body_of(kernel))):
                if op.name == "mgpu.dot" and dot_of(op).kind == "fma":
                    with ir.InsertionPoint(op), op.location:
                        total = _expanded(op, num_warps)
                    op.results[0].replace_all_uses_with(total)
                    op.erase()


@dataclass(frozen=True)
class _Operand:
    """A tile [K, rows], its 8-bit integers unsigned or not."""

    tile: ir.Value
    is_unsigned: bool

    @property
    def rows(self) -> int:
        return shape_of(self.tile.type)[1]

    def staged(self, start: int, count: int) -> _Staged:
        """`count` of the K rows from `start`, in shared memory."""
        shape, element = (count, self.rows), element_of(self.tile.type)
        part = self.tile
        if shape != shape_of(part.type):
            arrays = emit.int_array([start, 0]), emit.int_array([1, 1])
            part = SliceOp(tile_type(shape, element), part, *arrays).result
        memory = emit.alloc(shape, element)
        emit.store(part, memory)
        return _Staged(memory, self.rows, self.is_unsigned)


@dataclass(frozen=True)
class _Staged:
    """An operand [K, rows] in shared memory."""

    memory: ir.Value
    rows: int
    is_unsigned: bool

    def at(self, k: ir.Value, acc: ir.Type, dim: int) -> ir.Value:
        """Row `k`, widened to the accumulator's element type and spread along its other dimension."""
        view = emit.subview(self.memory, [k, emit.int_constant(0)], [1, self.rows], dropped=[0])
        row = _widened(emit.load(view), element_of(acc), self.is_unsigned)
        return emit.broadcast(row, shape_of(acc), [dim])


def _widened(row: ir.Value, element: ir.Type, is_unsigned: bool) -> ir.Value:
    if element_of(row.type) == element:
        return row
    type_ = tile_type(shape_of(row.type), element)
    if not isinstance(element, ir.IntegerType):
        return arith.ExtFOp(type_, row).result
    return (arith.ExtUIOp if is_unsigned else arith.ExtSIOp)(type_, row).result


def _expanded(op: Any, num_warps: int) -> ir.Value:
    """The value of a dot as loops at the insertion point."""
    facts = dot_of(op)
    lhs, rhs, total = op.operands
    sides = (
        _k_first(lhs, facts.lhs_transposed, facts.lhs_unsigned),
        _k_first(rhs, not facts.rhs_transposed, facts.rhs_unsigned),
    )
    contracted = facts.k
    row_bytes = sum(s.rows * storage_bits(element_of(s.tile.type)) // 8 for s in sides)
    layout = fma_layout(facts.m, facts.n, num_warps)
    most = max(UNROLLED, STAGED_BYTES // row_bytes // UNROLLED * UNROLLED)
    for start in range(0, contracted, most):
        count = min(most, contracted - start)
        total = _accumulated([s.staged(start, count) for s in sides], count, total, layout)
    return total


def _k_first(value: ir.Value, has_k_first: bool, is_unsigned: bool) -> _Operand:
    tile = value if is_tile(value.type) else emit.load(value)
    return _Operand(tile if has_k_first else emit.transpose(tile, [1, 0]), is_unsigned)


def _accumulated(sides: Sequence[_Staged], count: int, total: ir.Value, layout: Layout | None) -> ir.Value:
    """`total` and the outer products of `count` rows of both sides."""
    whole = count // UNROLLED * UNROLLED
    if whole > UNROLLED:
        loop = scf.ForOp(*(emit.int_constant(n) for n in (0, whole, UNROLLED)), [total])
        with ir.InsertionPoint(loop.body):
            inner = loop.inner_iter_args[0]
            for i in range(UNROLLED):
                k = arith.AddIOp(loop.induction_variable, emit.int_constant(i)).result if i else loop.induction_variable
                inner = _outer_product(sides, k, inner, layout)
            scf.YieldOp([inner])
        total, start = loop.results[0], whole
    else:
        start = 0
    for k in range(start, count):
        total = _outer_product(sides, emit.int_constant(k), total, layout)
    return total


def _outer_product(sides: Sequence[_Staged], k: ir.Value, total: ir.Value, layout: Layout | None) -> ir.Value:
    """`total` and the product of two rows; `layout`: what suits the loads of floats."""
    left, right = (side.at(k, total.type, dim) for dim, side in enumerate(sides))
    if isinstance(element_of(total.type), ir.IntegerType):
        return arith.AddIOp(total, arith.MulIOp(left, right).result).result
    product = math.FmaOp(left, right, total)
    if layout is not None:
        product.operation.attributes[PREFERRED_LAYOUT] = layout_attr(layout)
    return product.result
