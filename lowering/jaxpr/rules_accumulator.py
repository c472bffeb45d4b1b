"""`plgpu.ACC`: an accumulator that is read and written whole.  Waits are the compiler's business.

The names of the primitives end in "_p" in jax 0.11.
"""

from __future__ import annotations

from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.context import RuleContext
from mosaic_gpu.lowering.jaxpr.registry import lowers


@lowers("wgmma_accumulator_deref", "wgmma_accumulator_deref_p")
def lower_accumulator_deref(ctx: RuleContext, ref: ir.Value, *, wait_n: int | None) -> ir.Value:
    """`acc[...]`."""
    return emit.load(ref)


@lowers("wgmma_accumulator_store", "wgmma_accumulator_store_p")
def lower_accumulator_store(ctx: RuleContext, ref: ir.Value, value: ir.Value, **_: Any) -> ir.Value:
    """`acc[...] = value`, which gives the value."""
    emit.store(value, ref)
    return value
