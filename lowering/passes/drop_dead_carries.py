"""Frees loops from carrying what nobody looks at.

Requires: nothing. Does: finds the values that matter, from the ops that do something (stores, prints, copies, ..)
backwards; where neither an argument that an `scf.for` carries nor its result matters, the loop yields the
argument itself; unused loads go. Leaves: such arguments for `canonicalize` to fold.

    %r = scf.for .. iter_args(%a = %z) {           %r = scf.for .. iter_args(%a = %z) {
      ..%a is not used..                             ..
      scf.yield %s                                   scf.yield %a
    }                                              }
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.effects import is_pure
from mosaic_gpu.lowering.passes.rebuild import terminator
from mosaic_gpu.lowering.passes.walk import blocks_of, body_of, kernels, reached, walk

_BOUNDS = 3  # operands of an scf.for in front of what it carries
_CARRIERS = frozenset({"scf.for", "scf.if", "scf.while"})
_ENDS = frozenset({"scf.yield", "scf.condition"})


@dataclass(frozen=True)
class DropDeadCarries:
    """The pass; it has no options."""

    name: str = "drop-dead-carries"

    def apply(self, module: ir.Module, options: LoweringOptions) -> None:
        for kernel in kernels(module):
            ops = list(walk(body_of(kernel)))
            loops = [op for op in ops if op.name == "scf.for" and len(op.results)]
            if not loops:
                continue
            live = _live(ops)
            for loop in loops:
                body = loop.regions[0].blocks[0]
                end, arguments = terminator(body), list(body.arguments)[1:]
                for number, (argument, result) in enumerate(zip(arguments, loop.results, strict=True)):
                    if argument not in live and result not in live:
                        end.operands[number] = argument


def _live(ops: list[Any]) -> set[Any]:
    """The values that matter."""
    stack: list[Any] = []
    for op in ops:
        if op.name == "scf.for":
            stack += list(op.operands)[:_BOUNDS]
        elif op.name in ("scf.if", "scf.condition"):
            stack.append(op.operands[0])
        elif op.name not in _CARRIERS and op.name not in _ENDS and op.name != "mgpu.load" and not is_pure(op):
            stack += op.operands
    return reached(stack, _sources)


def _sources(value: Any) -> list[Any]:
    """The values that `value` is made of."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return _sources_of_argument(value, owner)
    op = owner.operation
    if op.name not in _CARRIERS:
        return list(op.operands) + [v for b in blocks_of(op) for inner in walk(b) for v in inner.operands]
    number = list(op.results).index(value)
    if op.name == "scf.for":
        return [op.operands[_BOUNDS + number], terminator(op.regions[0].blocks[0]).operands[number]]
    if op.name == "scf.if":
        return [terminator(region.blocks[0]).operands[number] for region in op.regions]
    return [terminator(op.regions[0].blocks[0]).operands[number + 1]]


def _sources_of_argument(value: Any, block: Any) -> list[Any]:
    op, number = block.owner.operation, ir.BlockArgument(value).arg_number
    if op.name == "scf.for":
        return _sources(op.results[number - 1]) if number else []
    if op.name == "scf.while":
        test, body = (region.blocks[0] for region in op.regions)
        return (
            [op.operands[number], terminator(body).operands[number]]
            if block == test
            else [terminator(test).operands[number + 1]]
        )
    return []
