"""Rules written in JAX: trace a function of arrays, then lower the primitives it is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.lowering.jaxpr.compat import eval_jaxpr
from mosaic_gpu.lowering.jaxpr.context import RuleContext


def lower_function(
    ctx: RuleContext, function: Callable[..., Any], values: Sequence[ir.Value], avals: Sequence[Any]
) -> list[ir.Value]:
    """Emits `function` of arrays with the shapes and dtypes of `avals`, applied to `values`.

    64-bit dtypes are on while it is traced if an operand or result has one, else off: what is emitted
    depends on the equation alone, not on the state of the thread that lowers it.
    """
    specs = [jax.ShapeDtypeStruct(tuple(a.shape), a.dtype) for a in avals]
    dtypes = [np.dtype(a.dtype) for a in (*avals, *ctx.avals_out) if isinstance(a.dtype, np.dtype)]
    with jax.enable_x64(any(d.itemsize == 8 for d in dtypes)):
        jaxpr = jax.make_jaxpr(function)(*specs)
    return ctx.lower_jaxpr(jaxpr, values)


def lower_mapped(ctx: RuleContext, jaxpr: Any, values: Sequence[ir.Value], shape: Sequence[int]) -> list[ir.Value]:
    """Emits a jaxpr of scalars on tiles of `shape` (or scalars, where it is `()`), element by element."""

    def function(*arrays: Any) -> Any:
        return eval_jaxpr(jaxpr, arrays)

    for _ in shape:
        function = jax.vmap(function)
    avals = [jax.ShapeDtypeStruct(tuple(shape), v.aval.dtype) for v in jaxpr.invars]
    return lower_function(ctx, function, values, avals)
