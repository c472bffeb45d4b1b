"""Reductions: sum, product, extremes, logic, argmax and argmin, and `lax.reduce` with any function.

f16 and bf16 (and fp8) sums and products are accumulated in f32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.types import shape_of
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.arithmetic import binary, compare, compare_to
from mosaic_gpu.lowering.jaxpr.casts import convert, fill, fill_like, is_nan, select
from mosaic_gpu.lowering.jaxpr.context import RuleContext
from mosaic_gpu.lowering.jaxpr.dtypes import element_type
from mosaic_gpu.lowering.jaxpr.folds import carry, fold, reduce, uncarry
from mosaic_gpu.lowering.jaxpr.kinds import compute_dtype, is_float, sum_dtype, width
from mosaic_gpu.lowering.jaxpr.registry import lowers
from mosaic_gpu.lowering.jaxpr.tracing import lower_mapped

_OPERATIONS = {
    "reduce_sum": "add",
    "reduce_prod": "mul",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_and": "and",
    "reduce_or": "or",
    "reduce_xor": "xor",
}


@lowers(*_OPERATIONS)
def lower_named_reduction(ctx: RuleContext, x: ir.Value, *, axes: Sequence[int], **_: Any) -> ir.Value:
    name, dtype = _OPERATIONS[ctx.primitive], ctx.avals_in[0].dtype
    work = sum_dtype(dtype) if name in ("add", "mul") else compute_dtype(dtype)
    return convert(fold(name, convert(x, dtype, work), work, axes), work, ctx.avals_out[0].dtype)


@lowers("argmax", "argmin")
def lower_arg_extreme(ctx: RuleContext, x: ir.Value, *, axes: Sequence[int], index_dtype: Any, **_: Any) -> ir.Value:
    """The first index of the extreme, where a NaN counts as one."""
    dtype, name = ctx.avals_in[0].dtype, ctx.primitive.removeprefix("arg")
    work = compute_dtype(dtype)
    x = convert(x, dtype, work)
    (axis,), shape = axes, shape_of(x.type)
    extreme = emit.broadcast(fold(name, x, work, axes), shape, [d for d in range(len(shape)) if d != axis])
    hit = compare("eq", x, extreme, work)
    if is_float(work):
        hit = arith.OrIOp(hit, is_nan(x)).result
    index = emit.iota(shape, axis)
    first = fold("min", select(hit, index, fill_like(2**31 - 1, index, np.int32)), np.dtype(np.int32), axes)
    return convert(first, np.int32, index_dtype)


@lowers("reduce")
def lower_reduce(ctx: RuleContext, *values: ir.Value, jaxpr: Any, dimensions: Sequence[int], **_: Any) -> Any:
    """Any associative and commutative function of scalars, then once more with the given start.

    The start need not leave the other side as it is, so the fold has an identity of its own: beside the
    values goes a flag that says whether there is one.  All travel as integers of one width.
    """
    count = len(values) // 2
    dtypes = [a.dtype for a in ctx.avals_in[:count]]
    bits = max(max(8, width(d)) for d in dtypes)
    word = np.dtype(f"int{bits}")

    def apply(left: Sequence[ir.Value], right: Sequence[ir.Value]) -> list[ir.Value]:
        given = [uncarry(v, d) for v, d in zip([*left, *right], [*dtypes, *dtypes], strict=True)]
        results = ctx.lower_jaxpr(jaxpr, given)
        return [carry(v, d, bits) for v, d in zip(results, dtypes, strict=True)]

    def combine(left: Sequence[ir.Value], right: Sequence[ir.Value]) -> list[ir.Value]:
        has_left, has_right = (compare_to("ne", side[0], 0, word) for side in (left, right))
        both = apply(left[1:], right[1:])
        merged = [
            select(has_left, select(has_right, b, x), y) for x, y, b in zip(left[1:], right[1:], both, strict=True)
        ]
        return [binary("or", left[0], right[0], word), *merged]

    tiles = [carry(v, d, bits) for v, d in zip(values[:count], dtypes, strict=True)]
    tiles = [fill_like(1, tiles[0], word), *tiles]
    nothing = [fill(0, element_type(word), word) for _ in tiles]
    flag, *folded = reduce(tiles, nothing, dimensions, combine)
    return _with_start(ctx, jaxpr, values[count:], [uncarry(v, d) for v, d in zip(folded, dtypes, strict=True)], flag)


def _with_start(
    ctx: RuleContext, jaxpr: Any, starts: Sequence[ir.Value], folded: list[ir.Value], flag: ir.Value
) -> Any:
    """`jaxpr(starts, folded)` element by element; the starts alone where nothing was folded."""
    shape = shape_of(folded[0].type)
    wide = [emit.broadcast(v, shape, ()) for v in starts]
    if 0 in ctx.avals_in[0].shape:
        return wide
    return lower_mapped(ctx, jaxpr, [*wide, *folded], shape)
