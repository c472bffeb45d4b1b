"""Irregular data movement through shared memory, and the indices it needs.

A tile is stored to a scratch allocation and read back through another view of it: a box at a traced
place, a strided box, single elements.  Barriers are a later pass's business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mosaic_gpu.dialect._mlir import arith, ir, scf
from mosaic_gpu.dialect.types import element_of, shape_of
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.casts import convert, fill_like
from mosaic_gpu.lowering.jaxpr.kinds import is_signed, width

INT32, INT64 = np.dtype(np.int32), np.dtype(np.int64)


def spill(value: ir.Value) -> ir.Value:
    """A reference to shared memory that holds `value`."""
    memory = emit.alloc(shape_of(value.type), element_of(value.type))
    emit.store(value, memory)
    return memory


def index_of(value: ir.Value, dtype: Any) -> ir.Value:
    """An index of any integer dtype as i32, or as i64 where i32 cannot hold it (uint64 saturates)."""
    if width(dtype) == 64 and not is_signed(dtype):
        return arith.MinUIOp(value, fill_like(2**63 - 1, value, INT64)).result
    small = width(dtype) < 32 or (width(dtype) == 32 and is_signed(dtype))
    return convert(value, dtype, INT32 if small else INT64)


def clamp_index(value: ir.Value, dtype: Any, limit: int) -> ir.Value:
    """The index `value` moved into 0 .. `limit` (included), as i32."""
    wide = index_of(value, dtype)
    wide_dtype = np.dtype(f"int{element_of(wide.type).width}")
    low = arith.MaxSIOp(wide, fill_like(0, wide, wide_dtype)).result
    return convert(arith.MinSIOp(low, fill_like(limit, wide, wide_dtype)).result, wide_dtype, INT32)


def inside(value: ir.Value, dtype: Any, limit: int) -> ir.Value:
    """Where the index `value` is in 0 .. `limit` (included); i1."""
    wide = index_of(value, dtype)
    wide_dtype = np.dtype(f"int{element_of(wide.type).width}")
    if limit < 0:
        return fill_like(0, value, np.bool_)
    return arith.CmpIOp(arith.CmpIPredicate.ule, wide, fill_like(limit, wide, wide_dtype)).result


def constants(numbers: Sequence[int]) -> list[ir.Value]:
    """i32 scalars."""
    return [emit.int_constant(n) for n in numbers]


def joined(values: Sequence[ir.Value], dimension: int) -> ir.Value:
    """Tiles of any sizes one after another along `dimension`."""
    shapes = [shape_of(v.type) for v in values]
    total = list(shapes[0])
    total[dimension] = sum(s[dimension] for s in shapes)
    memory, place = emit.alloc(total, element_of(values[0].type)), 0
    for value, shape in zip(values, shapes, strict=True):
        offsets = [place if d == dimension else 0 for d in range(len(shape))]
        emit.store(value, emit.subview(memory, constants(offsets), shape))
        place += shape[dimension]
    return emit.load(memory)


def repeat(
    count: ir.Value | int, body: Callable[[ir.Value, list[ir.Value]], Sequence[ir.Value]], carried: Sequence[ir.Value]
) -> list[ir.Value]:
    """`carried` after `body(step, carried)` for step = 0 .. count - 1 (i32)."""
    bound = emit.int_constant(count) if isinstance(count, int) else count
    loop = scf.ForOp(emit.int_constant(0), bound, emit.int_constant(1), list(carried))
    with ir.InsertionPoint(loop.body):
        results = body(loop.induction_variable, list(loop.inner_iter_args))
        scf.YieldOp(list(results))
    return list(loop.results)
