"""Moves what a loop does in its first step only to before the loop, and what it does in its last step only behind it.

Requires: best after `canonicalize,cse,loop-invariant-code-motion`. Does, for an `scf.if` without results and
without an else branch that stands in the body of an `scf.for`:

* its condition is `counter == lower bound`, and nothing in front of it in the body touches the same memory: its
  insides go before the loop;
* its condition is `counter == last value of the counter`, and nothing behind it in the body touches the same
  memory: its insides go behind the loop; tiles of the body that it uses become results of the loop.

Only where the loop is known to run, or with a branch around it; a first step that only starts memory of the loop's own
needs neither. Leaves: the same accesses to each memory in the same
order.

    scf.for %k = 0 to 8 {                              "mgpu.store"(%zero, %acc)
      scf.if %k == 0 { "mgpu.store"(%zero, %acc) }     scf.for %k = 0 to 8 {
      ..accumulate into %acc..                           ..accumulate into %acc..
      scf.if %k == 7 { ..write %acc out.. }            }
    }                                                  ..write %acc out..
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.types import RefType, shape_of
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.effects import Effects, Memories, is_defined_outside, is_inside, is_pure
from mosaic_gpu.lowering.passes.promote_refs import where_it_runs, zero
from mosaic_gpu.lowering.passes.rebuild import carry_through_for
from mosaic_gpu.lowering.passes.walk import blocks_of, body_of, kernels, walk
from mosaic_gpu.lowering.views import constant_int

_STORED = 2  # operands of a store without a mask
_EQUAL = 0  # arith.CmpIPredicate.eq
_COPIED = frozenset({"mgpu.subview", "mgpu.program_id"})


@dataclass(frozen=True)
class HoistSteps:
    """The pass; it has no options."""

    name: str = "hoist-steps"

    def apply(self, module: ir.Module, options: LoweringOptions) -> None:
        for kernel in kernels(module):
            memories = Memories.of(kernel)
            loops = [op for op in walk(body_of(kernel)) if op.name == "scf.for"]
            for loop in reversed(loops):  # inner ones first: what leaves them may leave outer ones too
                _hoist_first(loop, memories)
                _hoist_last(loop, memories)


def _hoist_first(loop: Any, memories: Memories) -> None:
    before = Effects()
    lower = loop.operands[0]
    for op in _body_ops(loop):
        effects = memories.effects(op)
        if _is_step(op, loop, lambda bound: _same(bound, lower)) and not effects.conflicts(before):
            moved = _Moved(loop, op)
            if not moved.tiles and moved.can_copy:
                guard = nullcontext() if _starts_own_memory(op, loop) else where_it_runs(*list(loop.operands)[:2])
                with ir.InsertionPoint(loop), op.location, guard:
                    moved.place(lower, {})
                continue
        before |= effects


def _starts_own_memory(branch: Any, loop: Any) -> bool:
    """Whether a branch does no more than write whole allocations that nothing outside of the loop uses.

    Where the loop does not run, nobody sees what was written: before the next time that it runs it is written again.
    """
    for op in walk(branch.regions[0].blocks[0]):
        if op.name == "mgpu.store" and len(op.operands) == _STORED:
            owner = op.operands[1].owner
            if isinstance(owner, ir.Block) or owner.operation.name != "mgpu.alloc":
                return False
            if op.parent.operation != branch or not all(
                is_inside(use.owner.operation, loop) for use in op.operands[1].uses
            ):
                return False
        elif op.name not in ("mgpu.load", "scf.yield") and not is_pure(op):
            return False
    return True


def _hoist_last(loop: Any, memories: Memories) -> None:
    behind = Effects()
    bounds = list(loop.operands)[:3]

    def is_last(bound: Any) -> bool:
        return _is_last(bound, *bounds)

    for op in reversed(_body_ops(loop)):
        effects = memories.effects(op)
        if _is_step(op, loop, is_last) and not effects.conflicts(behind):
            moved = _Moved(loop, op)
            if moved.can_copy:
                loop = _place_behind(loop, moved)
                continue
        behind |= effects


def _body_ops(loop: Any) -> list[Any]:
    return [view.operation for view in loop.regions[0].blocks[0].operations]


def _is_step(op: Any, loop: Any, fits: Callable[[Any], bool]) -> bool:
    """Whether `op` is a branch, without results or an else, that is taken where the counter equals a fitting bound."""
    if op.name != "scf.if" or len(op.results) or not _is_one_way(op):
        return False
    owner = op.operands[0].owner
    if isinstance(owner, ir.Block) or owner.operation.name != "arith.cmpi":
        return False
    compare = owner.operation
    if ir.IntegerAttr(compare.attributes["predicate"]).value != _EQUAL:
        return False
    counter, (left, right) = loop.regions[0].blocks[0].arguments[0], compare.operands
    return (left == counter and fits(right)) or (right == counter and fits(left))


def _is_one_way(op: Any) -> bool:
    blocks = op.regions[1].blocks
    return not len(blocks) or len(blocks[0].operations) <= 1


def _same(a: Any, b: Any) -> bool:
    number = constant_int(a)
    return a == b if number is None else number == constant_int(b)


def _is_last(bound: Any, lower: Any, upper: Any, stride: Any) -> bool:
    """Whether `bound` is the counter's value in the last step."""
    first, end, step, number = (constant_int(v) for v in (lower, upper, stride, bound))
    if step is None or step < 1:
        return False
    if number is not None:
        if first is None or end is None or first >= end:
            return False
        return number == first + (end - 1 - first) // step * step
    return step == 1 and _is_one_less(bound, upper)


def _is_one_less(value: Any, upper: Any) -> bool:
    owner = value.owner
    if isinstance(owner, ir.Block):
        return False
    op = owner.operation
    if op.name == "arith.subi":
        return bool(op.operands[0] == upper) and constant_int(op.operands[1]) == 1
    return op.name == "arith.addi" and bool(op.operands[0] == upper) and constant_int(op.operands[1]) == -1


class _Moved:
    """The insides of a branch on their way out of a loop.

    Attributes:
      copied: scalar ops of the body that they need, which are computed again outside, in order.
      tiles: values of the body that they need and that are not computed again.
      can_copy: whether all that they need can be had outside.
    """

    def __init__(self, loop: Any, branch: Any) -> None:
        self.loop, self.branch = loop, branch
        self.copied: list[Any] = []
        self.tiles: list[Any] = []
        self.can_copy = True
        self._counter = loop.regions[0].blocks[0].arguments[0]
        for op in self._insides(branch):
            for operand in op.operands:
                if not is_inside(_holder(operand), branch) and _holder(operand) != branch:
                    self._need(operand)

    def _insides(self, branch: Any) -> list[Any]:
        return list(walk(branch.regions[0].blocks[0]))

    def _need(self, value: Any) -> None:
        if value == self._counter or is_defined_outside(value, self.loop):
            return
        owner = value.owner
        if not isinstance(owner, ir.Block) and _is_copied(owner.operation):
            if owner.operation not in self.copied:
                for operand in owner.operation.operands:
                    self._need(operand)
                self.copied.append(owner.operation)
            return
        if isinstance(value.type, RefType) or (isinstance(owner, ir.Block) and owner.owner.operation != self.loop):
            self.can_copy = False
        elif value not in self.tiles:
            self.tiles.append(value)

    def place(self, counter: Any, tiles: dict[Any, Any]) -> None:
        """Moves the insides to the insertion point: the counter is `counter` there, `tiles` what the tiles are."""
        names = {self._counter: counter, **tiles}
        for op in self.copied:
            clone = op.clone()
            _rename(clone.operation, names)
            names.update(zip(op.results, clone.operation.results, strict=True))
        anchor = arith.ConstantOp(ir.IntegerType.get_signless(32), 0).operation
        for view in list(self.branch.regions[0].blocks[0].operations)[:-1]:
            op = view.operation
            op.move_before(anchor)
            _rename(op, names)
            for inner_block in blocks_of(op):
                for inner in walk(inner_block):
                    _rename(inner, names)
        anchor.erase()
        self.branch.erase()


def _holder(value: Any) -> Any:
    """The op that makes a value, or in whose region it is an argument."""
    owner = value.owner
    return owner.owner.operation if isinstance(owner, ir.Block) else owner.operation


def _is_copied(op: Any) -> bool:
    """Scalar arithmetic and views of memory."""
    if op.name in _COPIED:
        return True
    return op.name.startswith(("arith.", "math.")) and all(not shape_of(r.type) for r in op.results)


def _rename(op: Any, names: dict[Any, Any]) -> None:
    for number, operand in enumerate(op.operands):
        if operand in names:
            op.operands[number] = names[operand]


def _place_behind(loop: Any, moved: _Moved) -> Any:
    """The loop, which is a new op where it has new results."""
    tiles: dict[Any, Any] = {}
    if moved.tiles:
        with ir.InsertionPoint(loop), loop.location:
            initial = [zero(value.type) for value in moved.tiles]
        loop, results = carry_through_for(loop, initial, lambda block, arguments: moved.tiles)
        tiles = dict(zip(moved.tiles, results, strict=True))
    with ir.InsertionPoint.after(loop), moved.branch.location, where_it_runs(loop.operands[0], loop.operands[1]):
        moved.place(_last_value(loop), tiles)
    return loop


def _last_value(loop: Any) -> Any:
    """The counter in the last step (the step is 1 where the bounds are not constant)."""
    lower, upper, step = (constant_int(v) for v in list(loop.operands)[:3])
    type_ = loop.operands[0].type
    if lower is not None and upper is not None and step is not None:
        number = lower + (upper - 1 - lower) // step * step
        return arith.ConstantOp(type_, ir.IntegerAttr.get(type_, number)).result
    one = arith.ConstantOp(type_, ir.IntegerAttr.get(type_, 1)).result
    return arith.SubIOp(loop.operands[1], one).result
