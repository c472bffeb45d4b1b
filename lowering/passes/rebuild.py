"""Structured control flow with more values carried through it.

An op of the bindings cannot gain results, so these functions make a new one that takes over the blocks of the
old one; the old op is erased.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mosaic_gpu.dialect._mlir import ir, scf

Values = Sequence[Any]
Body = Callable[[Any, list[Any]], Values]
"""Called with a block and the carried values at its start; rewrites it and gives those at its end."""


def terminator(block: Any) -> Any:
    """The last op of a block."""
    operations = block.operations
    return operations[len(operations) - 1].operation


def carry_through_for(op: Any, values: Values, body: Body) -> tuple[Any, list[Any]]:
    """An `scf.for` that carries `values` too: the new op, and what they are behind it."""
    new = _successor(op, [*op.operands, *values], [v.type for v in values], 1)
    block = _take_block(op.regions[0], new.regions[0])
    arguments = [block.add_argument(v.type, op.location) for v in values]
    _extend_terminator(block, body(block, arguments))
    return _finish(op, new)


def carry_through_if(op: Any, types: Sequence[Any], body: Body) -> tuple[Any, list[Any]]:
    """An `scf.if` with more results; `body` is called for both branches, with no values at the start."""
    new = _successor(op, op.operands, types, 2)
    for source, target in zip(op.regions, new.regions, strict=True):
        if len(source.blocks):
            block = _take_block(source, target)
        else:
            block = target.blocks.append()
            with ir.InsertionPoint(block), op.location:
                scf.YieldOp([])
        _extend_terminator(block, body(block, []))
    return _finish(op, new)


def carry_through_while(op: Any, values: Values, body: Body) -> tuple[Any, list[Any]]:
    """An `scf.while` that carries `values` too; `body` is called for the test, then for the loop's body."""
    new = _successor(op, [*op.operands, *values], [v.type for v in values], 2)
    for source, target in zip(op.regions, new.regions, strict=True):
        block = _take_block(source, target)
        arguments = [block.add_argument(v.type, op.location) for v in values]
        _extend_terminator(block, body(block, arguments))
    return _finish(op, new)


def _successor(op: Any, operands: Values, more_results: Sequence[Any], regions: int) -> Any:
    attributes = {key: op.attributes[key] for key in op.attributes}
    results = [*(r.type for r in op.results), *more_results]
    with ir.InsertionPoint(op), op.location:
        return ir.Operation.create(
            op.name, results=results, operands=list(operands), attributes=attributes, regions=regions
        )


def _take_block(source: Any, target: Any) -> Any:
    block = source.blocks[0]
    block.append_to(target)
    return block


def _extend_terminator(block: Any, values: Values) -> None:
    old = terminator(block)
    if not values:
        return
    with ir.InsertionPoint(old), old.location:
        ir.Operation.create(old.name, operands=[*old.operands, *values])
    old.erase()


def _finish(op: Any, new: Any) -> tuple[Any, list[Any]]:
    count = len(op.results)
    for old, result in zip(op.results, list(new.results)[:count], strict=True):
        old.replace_all_uses_with(result)
    op.erase()
    return new, list(new.results)[count:]
