"""Random keys and bits: JAX's own definitions, traced and lowered, so every bit is as outside a kernel.

A key is the tile of its words: a scalar threefry key has shape (2,), uint32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.lowering.jaxpr import compat, emit
from mosaic_gpu.lowering.jaxpr.casts import fill, fill_like
from mosaic_gpu.lowering.jaxpr.context import RuleContext, aval_type
from mosaic_gpu.lowering.jaxpr.registry import lowers
from mosaic_gpu.lowering.jaxpr.tracing import lower_function

_UINT32 = np.dtype(np.uint32)


def _words(aval: Any) -> Any:
    return jax.ShapeDtypeStruct(*compat.physical_shape_dtype(aval))


@lowers("random_wrap", "random_unwrap", "random_clone")
def lower_random_wrap(_ctx: RuleContext, words: ir.Value, **_: Any) -> ir.Value:
    return words


@lowers("random_seed")
def lower_random_seed(ctx: RuleContext, seeds: ir.Value, *, impl: Any, **_: Any) -> list[ir.Value]:
    return lower_function(ctx, lambda s: compat.random_seed(s, impl), [seeds], ctx.avals_in)


@lowers("random_split")
def lower_random_split(ctx: RuleContext, keys: ir.Value, *, shape: Sequence[int], **_: Any) -> list[ir.Value]:
    aval = ctx.avals_in[0]
    return lower_function(ctx, lambda w: compat.random_split(aval, w, tuple(shape)), [keys], [_words(aval)])


@lowers("random_fold_in")
def lower_random_fold_in(ctx: RuleContext, keys: ir.Value, data: ir.Value, **_: Any) -> list[ir.Value]:
    aval = ctx.avals_in[0]
    avals = [_words(aval), ctx.avals_in[1]]
    return lower_function(ctx, lambda w, d: compat.random_fold_in(aval, w, d), [keys, data], avals)


@lowers("random_bits")
def lower_random_bits(
    ctx: RuleContext, keys: ir.Value, *, bit_width: int, shape: Sequence[int], **_: Any
) -> list[ir.Value]:
    aval = ctx.avals_in[0]
    return lower_function(ctx, lambda w: compat.random_bits(aval, w, bit_width, tuple(shape)), [keys], [_words(aval)])


@lowers("random_gamma")
def lower_random_gamma(ctx: RuleContext, keys: ir.Value, a: ir.Value, *, log_space: bool, **_: Any) -> list[ir.Value]:
    return lower_function(ctx, lambda k, x: compat.random_gamma(k, x, log_space), [keys, a], ctx.avals_in)


@lowers("threefry2x32")
def lower_threefry2x32(ctx: RuleContext, *values: ir.Value, **_: Any) -> list[ir.Value]:
    return lower_function(ctx, compat.threefry, values, ctx.avals_in)


@lowers("iota_2x32_shape")
def lower_iota_2x32_shape(ctx: RuleContext, *, shape: Sequence[int], **_: Any) -> list[ir.Value]:
    """High and low words of the row-major number of each element; no tile has 2**32 elements."""
    zero = fill(0, aval_type(ctx.avals_out[0]), _UINT32)
    low, stride = zero, 1
    for d in reversed(range(len(shape))):
        place = emit.iota(tuple(shape), d)
        low = arith.AddIOp(low, arith.MulIOp(place, fill_like(stride, place, _UINT32)).result).result
        stride *= shape[d]
    return [zero, low]
