"""Special functions without an instruction or a libdevice function: traced from jax.numpy code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.lowering.jaxpr import special
from mosaic_gpu.lowering.jaxpr.casts import convert
from mosaic_gpu.lowering.jaxpr.compat import special_function
from mosaic_gpu.lowering.jaxpr.context import RuleContext, constant
from mosaic_gpu.lowering.jaxpr.kinds import math_dtype
from mosaic_gpu.lowering.jaxpr.registry import lowers
from mosaic_gpu.lowering.jaxpr.rules_elementwise import spread
from mosaic_gpu.lowering.jaxpr.tracing import lower_function

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "digamma": special.digamma,
    "zeta": special.zeta,
    "polygamma": special.polygamma,
    "bessel_i0e": special.bessel_i0e,
    "bessel_i1e": special.bessel_i1e,
    "igamma": special_function("igamma"),
    "igammac": special_function("igammac"),
    "igamma_grad_a": special_function("igamma_grad_a"),
    "regularized_incomplete_beta": special_function("regularized_incomplete_beta"),
}


@lowers(*_FUNCTIONS)
def lower_special(ctx: RuleContext, *values: ir.Value, **_: Any) -> ir.Value:
    """In f32 or f64; f16 and bf16 are rounded once."""
    aval = ctx.avals_out[0]
    work = math_dtype(aval.dtype)
    wide = [convert(v, aval.dtype, work) for v in spread(ctx, values)]
    spec = jax.ShapeDtypeStruct(tuple(aval.shape), work)
    (result,) = lower_function(ctx, _FUNCTIONS[ctx.primitive], wide, [spec] * len(wide))
    return convert(result, work, aval.dtype)


@lowers("platform_index")
def lower_platform_index(ctx: RuleContext, *, platforms: Any, **_: Any) -> ir.Value:
    """Which of `lax.platform_dependent`'s branches: the one for "cuda", else the default."""
    for wanted in ("cuda", None):
        for index, names in enumerate(platforms):
            if (names is None) if wanted is None else (names is not None and wanted in names):
                return constant(np.int32(index), ctx.avals_out[0])
    raise ctx.refuse(f"platform_dependent without a branch for cuda, and without a default (has {platforms})")
