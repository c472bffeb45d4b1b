"""Primitives that JAX defines by other ones, from JAX 0.12 on: traced and lowered."""

from __future__ import annotations

from typing import Any

import jax

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.lowering.jaxpr.compat import is_array
from mosaic_gpu.lowering.jaxpr.context import RuleContext
from mosaic_gpu.lowering.jaxpr.registry import lowers
from mosaic_gpu.lowering.jaxpr.tracing import lower_function


@lowers("call_hi_primitive")
def lower_call_hi_primitive(ctx: RuleContext, *values: ir.Value, _prim: Any) -> list[ir.Value]:
    """A composite primitive, such as `nonzero`: what JAX says that it stands for."""
    if not all(map(is_array, ctx.avals_in)):
        raise ctx.refuse(f"jax's composite primitive {type(_prim).__name__} on references is not supported")

    def expand(*arrays: Any) -> list[Any]:
        return jax.tree.leaves(_prim.expand(*jax.tree.unflatten(_prim.in_tree, arrays)))

    return lower_function(ctx, expand, values, ctx.avals_in)


@lowers("polynomial")
def lower_polynomial(ctx: RuleContext, *values: ir.Value, **_: Any) -> list[ir.Value]:
    """c0 + c1 x + c2 x**2 + .. by Horner's rule."""

    def horner(x: Any, *coefficients: Any) -> Any:
        result = coefficients[-1]
        for coefficient in reversed(coefficients[:-1]):
            result = result * x + coefficient
        return result

    return lower_function(ctx, horner, values, ctx.avals_in)
