"""Makes launched dimensions of sequential grid dimensions whose steps turned out not to depend on each other.

Requires: scratch memory promoted (`promote-refs`), dead carries dropped. A sequential dimension of the grid is an
`scf.for`; it has the attribute `mgpu.separated` where its steps write different blocks, and were put one after another
only because scratch memory lives through all of them.  Does: where such a loop, the outermost, carries nothing,
uses no memory of the block from outside, and stands alone (what is around it writes nothing, and reads nothing that
the loop writes), its steps become those of a new last dimension of the kernel's grid. Leaves: the same results.

    kernel {grid = []} {                          kernel {grid = [4]} {
      scf.for %i = 0 to 4 { .. }                    %i = program_id 0
    }                                               ..
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.ops_kernel import PERSISTENT, SEPARATED, ProgramIdOp
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.effects import Memories, is_inside
from mosaic_gpu.lowering.passes.rebuild import terminator
from mosaic_gpu.lowering.passes.walk import body_of, kernels
from mosaic_gpu.lowering.views import constant_int


@dataclass(frozen=True)
class ParallelizeLoops:
    """The pass; it has no options."""

    name: str = "parallelize-loops"

    def apply(self, module: ir.Module, options: LoweringOptions) -> None:
        for kernel in kernels(module):
            while (loop := _loop_of(kernel)) is not None:
                _launch(kernel, loop)


def _loop_of(kernel: Any) -> Any | None:
    """The loop to be launched next; None where there is none."""
    ops = [view.operation for view in body_of(kernel).operations]
    loops = [op for op in ops if op.name == "scf.for"]
    if len(loops) != 1 or SEPARATED not in loops[0].attributes or PERSISTENT in ints(kernel.attributes["grid"]):
        return None
    (loop,) = loops
    lower, upper, step = (constant_int(v) for v in loop.operands[:3]) if len(loop.operands) == 3 else (None,) * 3
    if (lower, step) != (0, 1) or upper is None or upper < 1:
        return None
    return loop if stands_alone(loop, ops, Memories.of(kernel)) else None


def stands_alone(loop: Any, ops: list[Any], memories: Memories) -> bool:
    """Whether blocks that each do some steps of a loop, and all of what is around it (`ops`), do the same as one.

    What is around must write nothing, nor read what the loop writes: another block's steps may have come first.
    """
    written = memories.effects(loop).writes
    for op in ops:
        if op == loop:
            continue
        if op.name == "mgpu.alloc" and is_used_in(op.results[0], loop):
            return False
        effects = memories.effects(op)
        if effects.writes or effects.reads & written:
            return False
    return True


def is_used_in(ref: ir.Value, loop: Any) -> bool:
    """Whether memory of the block is used inside of a loop, views of it included."""
    for use in ref.uses:
        user = use.owner.operation
        if is_inside(user, loop) or (user.name == "mgpu.subview" and is_used_in(user.results[0], loop)):
            return True
    return False


def _launch(kernel: Any, loop: Any) -> None:
    grid = ints(kernel.attributes["grid"])
    body = loop.regions[0].blocks[0]
    with ir.InsertionPoint(loop), loop.location:
        step = ProgramIdOp(emit.int_attr(len(grid))).result
    kernel.attributes["grid"] = emit.int_array([*grid, constant_int(loop.operands[1]) or 0])
    body.arguments[0].replace_all_uses_with(step)
    terminator(body).erase()
    for view in list(body.operations):
        view.operation.move_before(loop)
    loop.erase()
