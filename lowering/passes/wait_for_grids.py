"""Makes a kernel that may start before its predecessor on the stream has ended wait for it as late as possible.

Requires: copies, barriers and fences in place; last of all.  Does, where `LoweringOptions.programmatic_launch` asks for
it: puts `mgpu.wait_for_grids` at the kernel's top level, in front of the first op that touches global memory, at any
depth. What comes before, addresses and the making of mbarriers, runs while the predecessor ends.  Leaves: the same
values.

    "mgpu.barrier_init"(%full)              "mgpu.barrier_init"(%full)
    "mgpu.barrier"()                        "mgpu.barrier"()
    "mgpu.specialize"() ({ .. })            "mgpu.wait_for_grids"()
                                            "mgpu.specialize"() ({ .. })

A kernel that touches nothing waits too, at its end.  When a grid has ended, all before it have: the grid behind the
next one relies on it, for it waits for the next one alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.ops_kernel import WaitForGridsOp
from mosaic_gpu.dialect.types import GMEM
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.effects import PRINT, Memories
from mosaic_gpu.lowering.passes.walk import body_of, kernels


@dataclass(frozen=True)
class WaitForGrids:
    """The pass; `LoweringOptions.programmatic_launch` asks for it."""

    name: str = "wait-for-grids"

    def apply(self, module: ir.Module, options: LoweringOptions) -> None:
        if not options.programmatic_launch:
            return
        for kernel in kernels(module):
            first = _first_access(kernel)
            place = ir.InsertionPoint(body_of(kernel)) if first is None else ir.InsertionPoint(first)
            with place, kernel.location:
                WaitForGridsOp()


def _first_access(kernel: Any) -> Any:
    """The first op at the top level that touches memory outside of the block, prints included; None without one."""
    memories = Memories.of(kernel)
    for view in body_of(kernel).operations:
        effects = memories.effects(view.operation)
        if any(m == PRINT or (isinstance(m, tuple) and m[0] == GMEM) for m in effects.reads | effects.writes):
            return view.operation
    return None
