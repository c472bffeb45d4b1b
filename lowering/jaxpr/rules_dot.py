"""`lax.dot_general`: any shapes, batch and contracting dimensions, as products of matrices.

Operands are brought to [batch, free, contracted] or [batch, contracted, free] (whichever needs no transposition)
and to the dtypes of `dot_types`.  Then

* a product that is small, or of vectors (M, N or K is 1) is a multiplication and a sum of whole tiles;
* any other is one `mgpu.dot` for each matrix of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.ops_matmul import DotOp
from mosaic_gpu.dialect.ops_tile import ConcatenateOp
from mosaic_gpu.dialect.types import element_of, shape_of, storage_bits, tile_type
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.arithmetic import binary, compare_to
from mosaic_gpu.lowering.jaxpr.casts import convert, fill
from mosaic_gpu.lowering.jaxpr.context import RuleContext
from mosaic_gpu.lowering.jaxpr.dot_types import DotTypes, dot_types
from mosaic_gpu.lowering.jaxpr.dtypes import element_type
from mosaic_gpu.lowering.jaxpr.folds import fold
from mosaic_gpu.lowering.jaxpr.kinds import is_bool, is_float, is_signed
from mosaic_gpu.lowering.jaxpr.registry import lowers
from mosaic_gpu.lowering.jaxpr.rules_shape import empty_of, sliced
from mosaic_gpu.lowering.jaxpr.scratch import constants, repeat, spill
from mosaic_gpu.lowering.targets import parse_target

SMALL_PRODUCTS = 4096
"""Multiplications up to which a product is made of whole tiles."""
UNROLLED_BATCH = 4
"""Matrices of a batch up to which they are taken from registers, one after another."""


@dataclass(frozen=True)
class _Side:
    """An operand as [batch, free, contracted], or where `transposed` as [batch, contracted, free].

    A batch of one has no dimension.
    """

    value: ir.Value
    batch: int
    free: int
    contracted: int
    transposed: bool
    dtype: Any

    @property
    def matrix(self) -> tuple[int, int]:
        return (self.contracted, self.free) if self.transposed else (self.free, self.contracted)

    def at(self, number: int) -> ir.Value:
        """One matrix of the batch, in registers."""
        if self.batch == 1:
            return self.value
        piece = sliced(self.value, (number, 0, 0), (1, *self.matrix), (1, 1, 1))
        return emit.reshape(piece, self.matrix)


@lowers("dot_general")
def lower_dot_general(
    ctx: RuleContext,
    lhs: ir.Value,
    rhs: ir.Value,
    *,
    dimension_numbers: Any,
    precision: Any,
    preferred_element_type: Any,
    **_: Any,
) -> ir.Value:
    out, avals = ctx.avals_out[0], ctx.avals_in
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    contracted = math.prod(avals[0].shape[d] for d in lhs_contract)
    types = dot_types(avals[0].dtype, avals[1].dtype, out.dtype, contracted, precision, ctx.kernel.options.approx_math)
    if (empty := empty_of(out)) is not None:
        return empty
    if contracted == 0:
        return fill(0, ctx.out_type(), out.dtype)
    left = _side(lhs, avals[0], lhs_batch, lhs_contract, types.lhs, contracted_last=True)
    right = _side(rhs, avals[1], rhs_batch, rhs_contract, types.rhs, contracted_last=False)
    total = _products(ctx, left, right, types)
    total = emit.reshape(total, tuple(out.shape))
    return compare_to("ne", total, 0, types.acc) if is_bool(out.dtype) else convert(total, types.acc, out.dtype)


def _side(
    value: ir.Value, aval: Any, batch: Sequence[int], contract: Sequence[int], dtype: Any, contracted_last: bool
) -> _Side:
    """The operand with its dimensions in one of the two orders: that which it has, or the natural one of its side."""
    rank = len(aval.shape)
    free = [d for d in range(rank) if d not in batch and d not in contract]
    orders = {False: [*batch, *free, *contract], True: [*batch, *contract, *free]}
    sizes = {False: 0, True: 0}
    for flag, order in orders.items():
        sizes[flag] = sum(order[i] != i for i in range(rank) if aval.shape[order[i]] != 1)
    natural = not contracted_last
    transposed = natural if sizes[natural] <= sizes[not natural] else not natural
    extents = [math.prod(aval.shape[d] for d in dims) for dims in (batch, free, contract)]
    side = _Side(convert(value, aval.dtype, dtype), extents[0], extents[1], extents[2], transposed, dtype)
    moved = emit.transpose(side.value, orders[transposed])
    shape = side.matrix if side.batch == 1 else (side.batch, *side.matrix)
    return replace(side, value=emit.reshape(moved, shape))


def _products(ctx: RuleContext, left: _Side, right: _Side, types: DotTypes) -> ir.Value:
    """[batch, M, N] of dtype `types.acc`, or another shape of as many elements in this order."""
    extents = (left.free, right.free, left.contracted)
    if 1 in extents or left.batch * math.prod(extents) <= SMALL_PRODUCTS:
        return _multiplied(left, right, types)
    if left.batch == 1:
        return _dot(left.at(0), right.at(0), left, right, types)
    if (
        left.batch <= UNROLLED_BATCH
        or _batch_bytes(left, right, types) > parse_target(ctx.kernel.options.target).max_shared_bytes * 3 // 4
    ):
        pieces = [_dot(left.at(b), right.at(b), left, right, types) for b in range(left.batch)]
        single = [emit.reshape(p, (1, *extents[:2])) for p in pieces]
        type_ = tile_type((left.batch, *extents[:2]), element_type(types.acc))
        return ConcatenateOp(type_, single, emit.int_attr(0)).result
    return _looped(left, right, types)


def _batch_bytes(left: _Side, right: _Side, types: DotTypes) -> int:
    """Shared memory that the operands and results of a batch take."""
    per_matrix = left.free * right.free * storage_bits(element_type(types.acc))
    per_matrix += sum(math.prod(s.matrix) * storage_bits(element_of(s.value.type)) for s in (left, right))
    return left.batch * per_matrix // 8


def _looped(left: _Side, right: _Side, types: DotTypes) -> ir.Value:
    """A loop over the batch, whose operands and results lie in shared memory."""
    shape = (left.batch, left.free, right.free)
    operands = [spill(s.value) for s in (left, right)]
    result = emit.alloc(shape, element_type(types.acc))

    def matrix(memory: ir.Value, number: ir.Value) -> ir.Value:
        sizes = shape_of(memory.type)[1:]
        return emit.subview(memory, [number, *constants([0, 0])], [1, *sizes], dropped=[0])

    def step(number: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
        values = [emit.load(matrix(memory, number)) for memory in operands]
        emit.store(_dot(values[0], values[1], left, right, types), matrix(result, number))
        return []

    repeat(left.batch, step, [])
    return emit.load(result)


def _dot(lhs: ir.Value, rhs: ir.Value, left: _Side, right: _Side, types: DotTypes) -> ir.Value:
    """One `mgpu.dot` with an accumulator of zeros."""
    type_ = tile_type((left.free, right.free), element_type(types.acc))
    flags = [
        int(left.transposed),
        int(not right.transposed),
        *(int(not is_float(t) and not is_signed(t)) for t in (types.lhs, types.rhs)),
    ]
    zero = fill(0, type_, types.acc)
    names = ir.StringAttr.get(types.precision), ir.StringAttr.get("")
    return DotOp(type_, lhs, rhs, zero, *map(emit.int_attr, flags), *names).result


def _multiplied(left: _Side, right: _Side, types: DotTypes) -> ir.Value:
    """Products of tiles that are stretched to all four extents, summed: in the order that the larger side has.

    Dimensions are batch, M, and N and K in the order of `right` (or batch, N, and M and K in that of `left`, where
    there is but one column); those of extent 1 are left out.
    """
    extents = {"b": left.batch, "m": left.free, "n": right.free, "k": left.contracted}
    names = {"left": "bkm" if left.transposed else "bmk", "right": "bkn" if right.transposed else "bnk"}
    order = "b" + "n" + names["left"][1:] if right.free == 1 else "b" + "m" + names["right"][1:]
    kept = [d for d in order if extents[d] > 1]
    shape = tuple(extents[d] for d in kept)
    factors = []
    for side, dims in ((left, names["left"]), (right, names["right"])):
        value = convert(side.value, side.dtype, types.acc)
        own = [d for d in dims if extents[d] > 1]
        value = emit.reshape(value, tuple(extents[d] for d in own))
        places = [kept.index(d) for d in own]
        value = emit.transpose(value, sorted(range(len(own)), key=places.__getitem__))
        factors.append(emit.broadcast(value, shape, sorted(places)))
    product = binary("mul", factors[0], factors[1], np.dtype(types.acc))
    if "k" in kept:
        product = fold("add", product, types.acc, [kept.index("k")])
    rest = [d for d in kept if d != "k"]
    final = [d for d in "bmn" if d in rest]
    return emit.transpose(product, [rest.index(d) for d in final])
