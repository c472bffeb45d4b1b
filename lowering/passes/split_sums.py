"""Reductions and products of large tiles as loops over parts of what they sum, which carry the sum so far.

For `split-tiles`.

    %d = dot %x, %y, %acc : 64x4096, 4096x64      %d = scf.for %k = 0 to 16 iter_args(%s = %acc) {
                                                    dot (part of %x : 64x256), (part of %y : 256x64), %s
                                                  }
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mosaic_gpu.dialect._mlir import arith, ir, scf
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.dialect.types import element_of, is_tile, shape_of, tile_type
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.passes.emit_parts import Parts
from mosaic_gpu.lowering.passes.promote_refs import zero
from mosaic_gpu.lowering.passes.split_axes import Window
from mosaic_gpu.lowering.passes.split_parts import MIN_DOT_ELEMENTS, Part, Scope
from mosaic_gpu.lowering.passes.split_roots import Root, erase_unused, keeps_order, ops_of

SUMMED_ELEMENTS = 16_384
"""About so many elements has a part of what one block sums."""


def split_reduction(scope: Scope) -> bool:
    """Makes a loop of the last large reduction that can be split, what it needs inside; False if there is none."""
    ops = ops_of(scope.block)
    for op in reversed(ops):
        if op.name != "mgpu.reduce" or any(len(step.regions) for step in ops_of(op.regions[0].blocks[0])):
            continue
        inputs = list(op.operands)[: len(op.results)]
        for axis in ints(op.attributes["axes"]):
            part = Part(shape_of(inputs[0].type)[axis])
            if part.size < 2 or not all(part.add(v, Window(axis), scope) for v in inputs):
                continue
            if part.words() <= scope.limit:
                continue
            root = Root(op, Window(axis), part)
            length = part.length(min(SUMMED_ELEMENTS, scope.limit), root.least)
            if length < part.size and keeps_order(root, [root], ops, scope):
                _emit_reduction(root, length, scope)
                return True
    return False


def _emit_reduction(root: Root, length: int, scope: Scope) -> None:
    """The loop that carries what was reduced so far, in place of a reduction."""
    op, window, part = root.op, root.window, root.part
    count = len(op.results)
    inputs, identities = list(op.operands)[:count], list(op.operands)[count:]
    with ir.InsertionPoint(op), op.location:
        starts = [
            emit.broadcast(identity, shape_of(result.type), ())
            for identity, result in zip(identities, op.results, strict=True)
        ]
        bounds = (emit.int_constant(n) for n in (0, -(-part.size // length), 1))
        loop = scf.ForOp(*bounds, starts)
        with ir.InsertionPoint(loop.body):
            parts = Parts(loop.induction_variable, length, part.size)
            parts.compute(part)
            found = [parts.of(value, window) for value in inputs]
            if parts.is_ragged:
                inside = parts.inside(shape_of(found[0].type), window, part.size)
                found = [
                    arith.select(inside, value, emit.broadcast(identity, shape_of(value.type), ()))
                    for value, identity in zip(found, identities, strict=True)
                ]
            clone = op.clone().operation
            for number, value in enumerate(found):
                clone.operands[number] = value
            scf.yield_(_combine(op, list(loop.inner_iter_args), list(clone.results)))
    for old, new in zip(op.results, loop.results, strict=True):
        old.replace_all_uses_with(new)
    op.erase()
    erase_unused(scope.block)


def split_dot(scope: Scope) -> bool:
    """Makes a loop of the last product of large tiles that can be split along what it sums; False if there is none."""
    ops = ops_of(scope.block)
    for op in reversed(ops):
        if op.name != "mgpu.dot" or not all(is_tile(v.type) for v in op.operands):
            continue
        lhs, rhs = _summed(op)
        part = Part(shape_of(op.operands[0].type)[lhs.axis])
        if not (part.add(op.operands[0], lhs, scope) and part.add(op.operands[1], rhs, scope)):
            continue
        root, length = Root(op, lhs, part), part.length(min(SUMMED_ELEMENTS, scope.limit), MIN_DOT_ELEMENTS)
        if part.words() > scope.limit and length < part.size and keeps_order(root, [root], ops, scope):
            _emit_dot(root, length, scope)
            return True
    return False


def _summed(dot: Any) -> tuple[Window, Window]:
    """The dimension of each operand that a product sums over."""
    lhs, rhs = (ir.IntegerAttr(dot.attributes[f"{side}_transposed"]).value for side in ("lhs", "rhs"))
    return Window(0 if lhs else 1), Window(1 if rhs else 0)


def _emit_dot(root: Root, length: int, scope: Scope) -> None:
    """The loop that carries the sum of products so far, in place of a product."""
    op, part = root.op, root.part
    with ir.InsertionPoint(op), op.location:
        bounds = (emit.int_constant(n) for n in (0, -(-part.size // length), 1))
        loop = scf.ForOp(*bounds, [op.operands[2]])
        with ir.InsertionPoint(loop.body):
            parts = Parts(loop.induction_variable, length, part.size)
            parts.compute(part)
            found = []
            for value, window in zip(list(op.operands)[:2], _summed(op), strict=True):
                made = parts.of(value, window)
                if parts.is_ragged:
                    inside = parts.inside(shape_of(made.type), window, part.size)
                    made = arith.select(inside, made, zero(made.type))
                found.append(made)
            clone = op.clone().operation
            for number, value in enumerate((*found, loop.inner_iter_args[0])):
                clone.operands[number] = value
            scf.yield_(list(clone.results))
    op.results[0].replace_all_uses_with(loop.results[0])
    op.erase()
    erase_unused(scope.block)


def _combine(reduction: Any, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    """A reduction's body, which combines scalars, on tiles of one shape."""
    body = reduction.regions[0].blocks[0]
    shape = shape_of(left[0].type)
    names = dict(zip(body.arguments, (*left, *right), strict=True))
    *steps, end = ops_of(body)
    for step in steps:
        if step.name == "arith.constant":
            constant = step.clone().operation.results[0]
            names[step.results[0]] = emit.broadcast(constant, shape, ())
            continue
        clone = step.clone().operation
        for number, operand in enumerate(step.operands):
            clone.operands[number] = names[operand] if operand in names else emit.broadcast(operand, shape, ())
        for old, new in zip(step.results, clone.results, strict=True):
            new.set_type(tile_type(shape, element_of(old.type)))
            names[old] = new
    return [names[v] if v in names else emit.broadcast(v, shape, ()) for v in end.operands]
