"""Spreads sequential grid dimensions with computed bounds over all blocks, where their steps turned out independent.

Requires: as of `parallelize-loops`, which does the same for dimensions whose bounds are known, and runs after this. A
sequential dimension of the grid has the attribute `mgpu.separated` where its steps write different blocks, and were put
one after another only because scratch memory lives through all of them.  Does: takes the outermost such loop, and
those that fill its body, where they carry nothing and use no memory of the block from outside, one of them has a bound
that is computed, and the kernel has no launched dimension; makes one walk over their tiles of them (see
`lowering.jaxpr.tiles`). Leaves: the same results.

    kernel {grid = []} {                          kernel {grid = [-1]} {
      scf.for %i = 0 to %n {                        %total = %n * 4
        scf.for %j = 0 to 4 { .. }                  scf.for %tile = %block to %total step %blocks {
      }                                               %i, %j = digits of %tile
    }                                                 ..
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.ops_kernel import PERSISTENT, SEPARATED
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.tiles import Extent, loop_over_tiles
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.effects import Memories, is_defined_outside
from mosaic_gpu.lowering.passes.parallelize_loops import stands_alone
from mosaic_gpu.lowering.passes.rebuild import terminator
from mosaic_gpu.lowering.passes.walk import body_of, kernels
from mosaic_gpu.lowering.views import constant_int

_BOUNDS = 3  # operands of an scf.for in front of what it carries


@dataclass(frozen=True)
class WalkTiles:
    """The pass; it has no options."""

    name: str = "walk-tiles"

    def apply(self, module: ir.Module, options: LoweringOptions) -> None:
        for kernel in kernels(module):
            nest = _nest_of(kernel)
            if any(constant_int(loop.operands[1]) is None for loop in nest):
                _walk(kernel, nest)


def _nest_of(kernel: Any) -> list[Any]:
    """The loops, outermost first; none where the kernel is no case for this pass."""
    ops = _ops(body_of(kernel))
    loops = [op for op in ops if op.name == "scf.for"]
    if len(loops) != 1 or ints(kernel.attributes["grid"]) or not _is_separated(loops[0]):
        return []
    memories = Memories.of(kernel)
    outermost = loops[0]
    if not stands_alone(outermost, ops, memories):
        return []
    nest, written = [outermost], memories.effects(outermost).writes
    while True:
        *before, inner, _ = [None, *_ops(nest[-1].regions[0].blocks[0])]
        if inner is None or not _is_separated(inner) or not is_defined_outside(inner.operands[1], outermost):
            return nest
        effects = [memories.effects(op) for op in before if op is not None]
        if any(e.writes or e.reads & written for e in effects) or any(op and op.name == "mgpu.alloc" for op in before):
            return nest
        nest.append(inner)


def _ops(block: Any) -> list[Any]:
    return [view.operation for view in block.operations]


def _is_separated(op: Any) -> bool:
    """Whether an op loops over a sequential dimension of independent steps, by 1 from 0, and carries nothing."""
    if op.name != "scf.for" or SEPARATED not in op.attributes or len(op.operands) != _BOUNDS:
        return False
    return constant_int(op.operands[0]) == 0 and constant_int(op.operands[2]) == 1


def _walk(kernel: Any, nest: list[Any]) -> None:
    outermost = nest[0]
    extents: list[Extent] = []
    for loop in nest:
        known = constant_int(loop.operands[1])
        extents.append(loop.operands[1] if known is None else max(known, 0))
    with ir.InsertionPoint(outermost), outermost.location, loop_over_tiles(extents) as steps:
        anchor = emit.int_constant(0).owner.operation
        for loop, step in zip(nest, steps, strict=True):
            loop.regions[0].blocks[0].arguments[0].replace_all_uses_with(step)
        for loop in nest:
            for op in _ops(loop.regions[0].blocks[0])[:-1]:
                if op not in nest:
                    op.move_before(anchor)
    for loop in reversed(nest):
        terminator(loop.regions[0].blocks[0]).erase()
        loop.erase()
    kernel.attributes["grid"] = emit.int_array([PERSISTENT])
