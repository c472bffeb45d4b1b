"""Turns memory that is only read and written whole into tiles that loops and branches carry.

Requires: no layouts yet; runs best after `canonicalize,cse,loop-invariant-code-motion`, which make one value of
equal views. Does two things, as LLVM's mem2reg does for variables:

* An `mgpu.alloc` whose every use is a load or store of the whole becomes a value.  What is read before it was
  written is zero (the memory was uninitialised: any value would do).
* A view of global memory that stays the same in a loop, through which alone the loop touches that memory
  (by whatever argument), and which every iteration writes whole, is read before the loop, carried, and written
  once behind it.  A kernel that accumulates into its output block does so in registers.

Leaves: the same results.  Memory is written by the loop's last iteration only; elements that no iteration wrote are
not written (so a loop must surely run, or the write behind it is guarded).  Outside of a checked view, where Pallas
leaves open what a kernel reads, reading gives what the kernel wrote there.

    %acc = "mgpu.alloc"()                                    %zero = arith.constant dense<0.0>
    scf.for %k = .. {                                        %r = scf.for %k = .. iter_args(%a = %zero) {
      %a = "mgpu.load"(%acc)                                   %s = arith.addf %a, %x
      %s = arith.addf %a, %x                                   scf.yield %s
      "mgpu.store"(%s, %acc)                                 }
    }
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import arith, ir, scf
from mosaic_gpu.dialect.ops_memory import LoadOp, StoreOp
from mosaic_gpu.dialect.ops_tile import BroadcastOp
from mosaic_gpu.dialect.types import element_of, shape_of, storage_bits, tile_type
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.effects import Memories, is_defined_outside, is_inside
from mosaic_gpu.lowering.passes.rebuild import carry_through_for, carry_through_if, carry_through_while
from mosaic_gpu.lowering.passes.walk import blocks_of, body_of, kernels, walk
from mosaic_gpu.lowering.views import constant_int

BUDGET_BYTES = 160 * 1024
"""The most bytes of tiles that are promoted in one kernel: a multiprocessor has 256 KB of registers."""
_CARRIERS = frozenset({"scf.for", "scf.if", "scf.while"})
_DEST = 1  # where a store has its reference
_BOUNDS = 3  # operands of an scf.for in front of what it carries


@dataclass(frozen=True)
class PromoteRefs:
    """The pass; it has no options."""

    name: str = "promote-refs"

    def apply(self, module: ir.Module, options: LoweringOptions) -> None:
        for kernel in kernels(module):
            used = _promote_allocations(kernel)
            while (room := _promote_one_view(kernel, BUDGET_BYTES - used)) is not None:
                used += room


def _promote_allocations(kernel: Any) -> int:
    """Promotes what fits the budget; gives the bytes that it took."""
    chosen: dict[Any, Any] = {}
    used = 0
    for op in walk(body_of(kernel)):
        if op.name != "mgpu.alloc":
            continue
        ref = op.results[0]
        size = _bytes(ref)
        if used + size <= BUDGET_BYTES and all(_is_whole_access(use.owner.operation, kernel) for use in ref.uses):
            chosen[ref] = op
            used += size
    if chosen:
        _Promoter(set(chosen)).block(body_of(kernel), {})
        for op in chosen.values():
            op.erase()
    return used


def _promote_one_view(kernel: Any, budget: int) -> int | None:
    """Promotes one view of global memory in one loop; the bytes it took, or None where there is none."""
    memories = Memories.of(kernel)
    for op in walk(body_of(kernel)):
        if op.name != "scf.for":
            continue
        for view in _candidates(op, memories):
            if _bytes(view) <= budget:
                _promote_view(op, view, memories)
                return _bytes(view)
    return None


def _candidates(loop: Any, memories: Memories) -> Iterable[Any]:
    """The views that a loop writes whole in every iteration, and touches that memory by no other way."""
    touched: dict[Any, set[Any]] = {}
    refused: set[Any] = set()
    for op in walk(loop.regions[0].blocks[0]):
        if op.name in ("mgpu.load", "mgpu.store"):
            ref = op.operands[0 if op.name == "mgpu.load" else _DEST]
            touched.setdefault(memories.memory(ref), set()).add(ref)
            if not _has_known_parents(op, loop) or (op.name == "mgpu.load" and len(op.operands) > 1):
                refused.add(memories.memory(ref))
        elif op.name.startswith("mgpu.") and not len(op.regions):
            effects = memories.effects(op)
            refused |= effects.reads | effects.writes
    for memory, refs in touched.items():
        if memory in refused or len(refs) != 1 or not isinstance(memory, tuple):
            continue
        (ref,) = refs
        if is_defined_outside(ref, loop) and _surely_stores(loop.regions[0].blocks[0], ref):
            yield ref


def _has_known_parents(op: Any, outer: Any) -> bool:
    """Whether only loops and branches that can carry values are between an op and `outer`."""
    parent = op.parent.operation
    while parent != outer:
        if parent.name not in _CARRIERS:
            return False
        parent = parent.parent.operation
    return True


def _surely_stores(block: Any, ref: Any) -> bool:
    """Whether every way through a block stores the whole of `ref`, unmasked."""
    for view in block.operations:
        op = view.operation
        if op.name == "mgpu.store":
            if len(op.operands) == 2 and op.operands[_DEST] == ref:
                return True
        elif op.name == "scf.if":
            ways = [r.blocks[0] for r in op.regions if len(r.blocks)]
            if len(ways) == 2 and all(_surely_stores(way, ref) for way in ways):
                return True
        elif op.name == "scf.for" and surely_runs(op) and _surely_stores(op.regions[0].blocks[0], ref):
            return True
    return False


def surely_runs(loop: Any) -> bool:
    """Whether an `scf.for` is known to run at least once."""
    return _is_below(loop.operands[0], loop.operands[1])


def _is_below(lower: Any, upper: Any) -> bool:
    first, end = constant_int(lower), constant_int(upper)
    return first is not None and end is not None and first < end


def _promote_view(loop: Any, view: Any, memories: Memories) -> None:
    always = surely_runs(loop)
    bounds = [loop.operands[0], loop.operands[1]]
    location, number = loop.location, len(loop.operands)
    initial = _known_before(loop, view, memories, always)
    if initial is None:
        with ir.InsertionPoint(loop), location:
            initial = LoadOp(_tile(view), view).result
    values = {view: initial}
    new = _Promoter({view}).carrier(loop, values)
    if not _is_read(new.regions[0].blocks[0].arguments[number - _BOUNDS + 1]):
        with ir.InsertionPoint(new), location:
            new.operands[number] = zero(initial.type)
        if _is_unused(initial, "mgpu.load"):
            initial.owner.operation.erase()
    with ir.InsertionPoint.after(new), location, where_it_runs(*bounds):
        StoreOp(values[view], view)


@contextmanager
def where_it_runs(lower: Any, upper: Any) -> Iterator[None]:
    """What is emitted inside happens only where a loop of these bounds has a step."""
    if _is_below(lower, upper):
        yield
        return
    guard = scf.IfOp(arith.CmpIOp(arith.CmpIPredicate.slt, lower, upper).result)
    with ir.InsertionPoint(guard.then_block):
        yield
        scf.YieldOp([])


def _is_read(argument: Any) -> bool:
    """Whether what a loop carries into its body matters: handing it to an inner loop that does not read it does not."""
    for use in argument.uses:
        user, number = use.owner.operation, use.operand_number
        if user.name != "scf.for" or _is_read(user.regions[0].blocks[0].arguments[number - _BOUNDS + 1]):
            return True
    return False


def _is_unused(value: Any, name: str) -> bool:
    owner = value.owner
    return not isinstance(owner, ir.Block) and owner.operation.name == name and not any(True for _ in value.uses)


def _known_before(loop: Any, view: Any, memories: Memories, overwrites: bool) -> Any | None:
    """What a store just before the loop left in `view`; where the loop overwrites it, the store goes."""
    memory = memories.memory(view)
    for op in reversed(_before(loop)):
        effects = memories.effects(op)
        if memory not in effects.reads | effects.writes:
            continue
        if op.name == "mgpu.store" and len(op.operands) == 2 and op.operands[_DEST] == view:
            value = op.operands[0]
            if overwrites:
                op.erase()
            return value
        return None
    return None


def _before(loop: Any) -> list[Any]:
    found = []
    for view in loop.block.operations:
        if view.operation == loop:
            break
        found.append(view.operation)
    return found


def _bytes(ref: Any) -> int:
    type_ = ref.type
    return math.prod(shape_of(type_)) * storage_bits(element_of(type_)) // 8


def _tile(ref: Any) -> Any:
    type_ = ref.type
    return tile_type(shape_of(type_), element_of(type_))


def _is_whole_access(op: Any, kernel: Any) -> bool:
    return op.name in ("mgpu.load", "mgpu.store") and _has_known_parents(op, kernel)


class _Promoter:
    """Follows the values of memories (`slots`: references) through a kernel, and takes their accesses out."""

    def __init__(self, slots: set[Any]) -> None:
        self.slots = slots

    def block(self, block: Any, values: dict[Any, Any]) -> None:
        """Rewrites a block; `values` says what each slot holds, at the start and then at the end."""
        for view in list(block.operations):
            op = view.operation
            if op.name == "mgpu.alloc":
                if op.results[0] in self.slots:
                    with ir.InsertionPoint(op), op.location:
                        values[op.results[0]] = zero(_tile(op.results[0]))
            elif op.name == "mgpu.load":
                self.load(op, values)
            elif op.name == "mgpu.store":
                self.store(op, values)
            elif op.name in _CARRIERS:
                self.carrier(op, values)

    def load(self, op: Any, values: dict[Any, Any]) -> None:
        load = op.opview
        if load.source not in self.slots:
            return
        value = values[load.source]
        if load.mask is not None:
            with ir.InsertionPoint(op), op.location:
                shape = shape_of(value.type)
                other = zero(value.type) if load.other is None else _stretched(load.other, shape)
                value = arith.SelectOp(_stretched(load.mask, shape), value, other).result
        op.results[0].replace_all_uses_with(value)
        op.erase()

    def store(self, op: Any, values: dict[Any, Any]) -> None:
        value, dest, *mask = op.operands
        if dest not in self.slots:
            return
        if mask:
            with ir.InsertionPoint(op), op.location:
                value = arith.SelectOp(_stretched(mask[0], shape_of(value.type)), value, values[dest]).result
        values[dest] = value
        op.erase()

    def carrier(self, op: Any, values: dict[Any, Any]) -> Any:
        """Rewrites a loop or branch so that it carries the slots that it writes; gives the new op."""
        slots = [slot for slot in values if _is_written_in(op, slot)]
        if not slots:
            for block in blocks_of(op):
                self.block(block, dict(values))
            return op
        held = [values[slot] for slot in slots]

        def body(block: Any, arguments: list[Any]) -> list[Any]:
            inner = dict(values)
            inner.update(zip(slots, arguments or held, strict=True))
            self.block(block, inner)
            return [inner[slot] for slot in slots]

        if op.name == "scf.for":
            new, results = carry_through_for(op, held, body)
        elif op.name == "scf.while":
            new, results = carry_through_while(op, held, body)
        else:
            new, results = carry_through_if(op, [v.type for v in held], body)
        values.update(zip(slots, results, strict=True))
        return new


def _is_written_in(op: Any, slot: Any) -> bool:
    for use in slot.uses:
        user = use.owner.operation
        if user.name == "mgpu.store" and is_inside(user, op):
            return True
    return False


def zero(type_: Any) -> Any:
    """The zero of a tile's or scalar's type."""
    element = element_of(type_)
    is_int = isinstance(element, ir.IntegerType)
    attr: Any = ir.IntegerAttr.get(element, 0) if is_int else ir.FloatAttr.get(element, 0.0)
    if shape_of(type_):
        attr = ir.DenseElementsAttr.get_splat(type_, attr)
    return arith.ConstantOp(type_, attr).result


def _stretched(value: Any, shape: tuple[int, ...]) -> Any:
    """A scalar (a mask, or what takes the place of masked elements) as a tile of `shape`."""
    if shape_of(value.type) == shape:
        return value
    return BroadcastOp(tile_type(shape, element_of(value.type)), value, ir.ArrayAttr.get([])).result
