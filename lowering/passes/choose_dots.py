"""Chooses how each `mgpu.dot` is computed, and where its operands lie.

Requires: `num_warps` chosen, no layouts yet. Does: sets `kind`. Leaves: everything else.
"""

from __future__ import annotations

from dataclasses import dataclass

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.walk import body_of, kernels, walk


@dataclass(frozen=True)
class ChooseDots:
    """The pass; it has no options."""

    name: str = "choose-dots"

    def apply(self, module: ir.Module, options: LoweringOptions) -> None:
        for kernel in kernels(module):
            for op in walk(body_of(kernel)):
                if op.name == "mgpu.dot":
                    op.attributes["kind"] = ir.StringAttr.get("fma")
