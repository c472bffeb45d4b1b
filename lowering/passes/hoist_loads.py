"""Moves loads that give the same in every step of a loop to before the loop, and drops loads that nobody uses.

Requires: best after `loop-invariant-code-motion`, which has moved the views. Does: takes an `mgpu.load` that stands in
the body of an `scf.for` itself, whose view and masks come from outside, and whose memory (by whatever argument) the
loop does not write, in front of the loop. A loop that does not run loads for nothing, which does no harm: views
are inside of their arrays or checked, wherever they are. Leaves: the other accesses in their order.

    scf.for %k = .. {                                   %q = "mgpu.load"(%view)
      %q = "mgpu.load"(%view)                           scf.for %k = .. {
      ..                                                  ..
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.effects import Memories, is_defined_outside
from mosaic_gpu.lowering.passes.walk import body_of, kernels, walk


@dataclass(frozen=True)
class HoistLoads:
    """The pass; it has no options."""

    name: str = "hoist-loads"

    def apply(self, module: ir.Module, options: LoweringOptions) -> None:
        for kernel in kernels(module):
            ops = list(walk(body_of(kernel)))
            for op in reversed(ops):
                if op.name == "mgpu.load" and not any(True for _ in op.results[0].uses):
                    op.erase()
            memories = Memories.of(kernel)
            for loop in (op for op in walk(body_of(kernel)) if op.name == "scf.for"):
                _hoist(loop, memories)


def _hoist(loop: Any, memories: Memories) -> None:
    body = [view.operation for view in loop.regions[0].blocks[0].operations]
    loads = [op for op in body if op.name == "mgpu.load"]
    if not loads:
        return
    written = memories.effects(loop).writes
    for op in loads:
        same = memories.memory(op.operands[0]) not in written
        if same and all(is_defined_outside(operand, loop) for operand in op.operands):
            op.move_before(loop)
