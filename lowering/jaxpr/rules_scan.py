"""Running folds: cumsum, cumprod, cummax, cummin and cumlogsumexp, from either end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.lowering.jaxpr.arithmetic import binary, compare_to, libdevice
from mosaic_gpu.lowering.jaxpr.casts import convert, fill, fill_like, select
from mosaic_gpu.lowering.jaxpr.context import RuleContext
from mosaic_gpu.lowering.jaxpr.dtypes import element_type
from mosaic_gpu.lowering.jaxpr.folds import running, scan
from mosaic_gpu.lowering.jaxpr.kinds import compute_dtype, math_dtype, sum_dtype
from mosaic_gpu.lowering.jaxpr.registry import lowers

_OPERATIONS = {"cumsum": "add", "cumprod": "mul", "cummax": "max", "cummin": "min"}


@lowers(*_OPERATIONS)
def lower_named_scan(ctx: RuleContext, x: ir.Value, *, axis: int, reverse: bool, **_: Any) -> ir.Value:
    """f16 and bf16 sums and products are accumulated in f32 and each result is rounded once."""
    name, dtype = _OPERATIONS[ctx.primitive], ctx.avals_in[0].dtype
    work = sum_dtype(dtype) if name in ("add", "mul") else compute_dtype(dtype)
    return convert(running(name, convert(x, dtype, work), work, axis, reverse), work, dtype)


@lowers("cumlogsumexp")
def lower_cumlogsumexp(ctx: RuleContext, x: ir.Value, *, axis: int, reverse: bool, **_: Any) -> ir.Value:
    dtype = ctx.avals_in[0].dtype
    work = math_dtype(dtype)

    def combine(left: Sequence[ir.Value], right: Sequence[ir.Value]) -> list[ir.Value]:
        return [_logaddexp(left[0], right[0], work)]

    start = fill(-np.inf, element_type(work), work)
    return convert(scan([convert(x, dtype, work)], [start], axis, reverse, combine)[0], work, dtype)


def _logaddexp(x: ir.Value, y: ir.Value, dtype: Any) -> ir.Value:
    """max + log1p(exp(min - max)); the infinities, where that difference is no number, are their maximum."""
    high, low = binary("max", x, y, dtype), binary("min", x, y, dtype)
    correction = libdevice("log1p", libdevice("exp", arith.SubFOp(low, high).result))
    same = compare_to("eq", arith.SubFOp(high, high).result, 0, dtype)
    return select(same, arith.AddFOp(high, correction).result, binary("add", high, fill_like(0, high, dtype), dtype))
