"""Lets the dot of one step of a loop run on while the next step begins.

Where a loop's only dot on a warpgroup adds to a tile that the loop carries, and nothing else looks at that tile, a step
need not wait for its own dot but for the one before (`mgpu.pending` = 1): the matrix unit always has work. Behind the
loop an `mgpu.dot_wait` waits for the last one.

    %r = scf.for .. iter_args(%a = %z) {           %r = scf.for .. iter_args(%a = %z) {
      %s = "mgpu.dot"(%x, %y, %a)                    %s = "mgpu.dot"(%x, %y, %a) {mgpu.pending = 1}
      scf.yield %s                                   scf.yield %s
    }                                              }
                                                   %w = "mgpu.dot_wait"(%r) {pending = 0}
"""

from __future__ import annotations

from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.ops_matmul import PENDING, DotWaitOp
from mosaic_gpu.dialect.types import RefType
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.passes.rebuild import terminator
from mosaic_gpu.lowering.passes.walk import walk


def keep_in_flight(loop: Any) -> Any:
    """Does it in a loop, where it can be done: the `mgpu.dot_wait` behind the loop, or None."""
    body = loop.regions[0].blocks[0]
    dots = [op for op in walk(body) if op.name == "mgpu.dot" and ir.StringAttr(op.attributes["kind"]).value == "wgmma"]
    if len(dots) != 1 or dots[0].block != body:
        return None
    (dot,) = dots
    lhs, rhs, acc = dot.operands
    uses, acc_uses = list(dot.results[0].uses), list(acc.uses)
    if len(uses) != 1 or len(acc_uses) != 1 or not all(isinstance(v.type, RefType) for v in (lhs, rhs)):
        return None
    if uses[0].owner.operation != terminator(body) or acc != body.arguments[uses[0].operand_number + 1]:
        return None
    dot.attributes[PENDING] = emit.int_attr(1)
    result = loop.results[uses[0].operand_number]
    with ir.InsertionPoint.after(loop), loop.location:
        wait = DotWaitOp(result.type, result, emit.int_attr(0))
    result.replace_all_uses_except(wait.result, wait.operation)
    return wait.operation
