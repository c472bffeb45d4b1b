"""Splits the work on tiles that are too large for the registers of a block into a loop over parts of them.

A kernel may work on an array of any size at once; a thread has 255 registers.  What is written of a large tile, or
summed over it, is computed part by part along one dimension, from the loads on:

    %x = load %a : 1024x1024                      scf.for %k = 0 to 256 {
    %s = reduce %x axes [1] : 1024                  %x = load (subview %a[4 * %k, 0] sizes [4, 1024])
    %y = divf %x, (broadcast %s)                    %s = reduce %x axes [1] : 4
    store %y, %o                                    %y = divf %x, (broadcast %s)
                                                    store %y, (subview %o[4 * %k, 0] sizes [4, 1024])
                                                  }

A dimension will do where each op on the way handles it element by element: a sum along it does not, and is a loop of
its own before, which carries what was summed so far.  The steps of a loop of stores are independent:
`parallelize-loops` makes blocks of them where nothing stands in the way.

Requires: canonical form with common subexpressions removed, no layouts yet.  Does: the above for stores and reductions
of what depends on tiles of more than `limit` words.  Leaves: tiles as they are where an op on the way has no rule in
`split_axes`, or where loads would change places with stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import arith, ir, scf
from mosaic_gpu.dialect.ops_kernel import SEPARATED
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.dialect.types import GMEM, SMEM, element_of, is_tile, ref_space, shape_of, tile_type
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.choose_num_warps import MAX_REGISTERS, MAX_WARPS, largest_tile
from mosaic_gpu.lowering.passes.effects import Memories, root_of
from mosaic_gpu.lowering.passes.emit_parts import Parts
from mosaic_gpu.lowering.passes.split_axes import Window
from mosaic_gpu.lowering.passes.split_parts import Part
from mosaic_gpu.lowering.passes.split_scratch import is_never_read
from mosaic_gpu.lowering.passes.walk import blocks_of, body_of, kernels
from mosaic_gpu.lowering.views import constant_int

THREADS = 32 * MAX_WARPS
PART_ELEMENTS = 4096
"""About so many elements has a part: a block's work where the parts become blocks."""
SUMMED_ELEMENTS = 16_384
"""The same of what one block sums."""


@dataclass(frozen=True)
class SplitTiles:
    """The pass; it has no options."""

    name: str = "split-tiles"

    def apply(self, module: ir.Module, options: LoweringOptions) -> None:
        limit = 32 * options.num_warps * MAX_REGISTERS if options.num_warps else THREADS * MAX_REGISTERS // 2
        for kernel in kernels(module):
            if largest_tile(kernel)[1] <= limit:
                continue
            memories, ahead = Memories.of(kernel), [body_of(kernel)]
            while ahead:
                block = ahead.pop()
                while (
                    _split_stores(block, memories, limit, GMEM)
                    or _split_reduction(block, memories, limit)
                    or _split_stores(block, memories, limit, SMEM)  # last: the others may leave nothing of it
                ):
                    pass
                ahead += [inner for op in _ops(block) for inner in blocks_of(op)]


def _ops(block: Any) -> list[Any]:
    return [view.operation for view in block.operations]


@dataclass
class _Root:
    """A store or reduction, the dimension its value is split along, and what is computed for it."""

    op: Any
    window: Window
    part: Part

    @property
    def is_last_axis(self) -> bool:
        """Whether neighbours along the dimension are neighbours in memory."""
        return self.window.axis == len(shape_of(self.op.operands[0].type)) - 1


def _best_store(op: Any, block: Any, limit: int, size: int | None = None) -> _Root | None:
    """How to split a store whose value depends on a large tile; None where that cannot be.

    `size`: of the dimension, where others have been chosen before.
    """
    best: _Root | None = None
    tiles = [v for v in (op.operands[0], *list(op.operands)[2:]) if is_tile(v.type)]
    for axis, extent in enumerate(shape_of(op.operands[0].type)):
        part = Part(extent)
        if extent < 2 or (size is not None and extent != size):
            continue
        if not all(part.add(v, Window(axis), block) for v in tiles):
            continue
        if part.words() <= limit or (best is not None and best.part.cost() <= part.cost()):
            continue
        found = _Root(op, Window(axis), part)
        if part.length(PART_ELEMENTS, found.is_last_axis) < extent:
            best = found
    return best


def _split_stores(block: Any, memories: Memories, limit: int, space: str) -> bool:
    """Puts the first store to `space` that can be split, with those that go along, into a loop; False without one."""
    ops = _ops(block)
    for number, op in enumerate(ops):
        is_meant = op.name == "mgpu.store" and ref_space(op.operands[1].type) == space
        first = _best_store(op, block, limit) if is_meant else None
        if first is None:
            continue
        together = _group(first, ops[number + 1 :], block, memories, limit)
        for stores in (together, [first]):
            if _length(stores) < first.part.size and all(_keeps_order(s, stores, ops, memories) for s in stores):
                _emit_stores(stores, block)
                return True
    return False


def _group(first: _Root, behind: Sequence[Any], block: Any, memories: Memories, limit: int) -> list[_Root]:
    """The stores that can be in the loop of `first`."""
    stores, written = [first], memories.effects(first.op).writes
    for op in behind:
        effects = memories.effects(op)
        is_like = op.name == "mgpu.store" and ref_space(op.operands[1].type) == ref_space(first.op.operands[1].type)
        if is_like and not effects.writes & written:
            store = _best_store(op, block, limit, first.part.size)
            if store is not None:
                stores.append(store)
                written |= effects.writes
                continue
        is_scratch = op.name == "mgpu.store" and ref_space(op.operands[1].type) == SMEM
        if (effects.writes and not is_scratch) or (effects.writes | effects.reads) & written:
            break
    return stores


def _length(stores: Sequence[_Root]) -> int:
    """The size of a part that suits all stores."""
    together = Part(stores[0].part.size)
    for store in stores:
        together.values |= store.part.values
    return together.length(PART_ELEMENTS, any(s.is_last_axis for s in stores))


def _keeps_order(store: _Root, stores: Sequence[_Root], ops: Sequence[Any], memories: Memories) -> bool:
    """Whether the loads of a store read the same in a loop where the last of `stores` stands."""
    members, last = [s.op for s in stores], stores[-1].op
    for load, window in store.part.loads:
        read = memories.effects(load).reads
        for op in ops[ops.index(load) + 1 : ops.index(last) + 1]:
            if not memories.effects(op).writes & read:
                continue
            if op not in members or load.name != "mgpu.load":
                return False
            is_same_part = window == stores[members.index(op)].window
            if not (is_same_part and _is_same_view(load.operands[0], op.operands[1], memories)):
                return False
    return True


def _is_same_view(a: Any, b: Any, memories: Memories) -> bool:
    """Whether two references certainly are the same elements of one memory."""
    if a == b:
        return True
    if isinstance(a.owner, ir.Block) or isinstance(b.owner, ir.Block):
        is_root = isinstance(a.owner, ir.Block) and isinstance(b.owner, ir.Block)
        return is_root and a.type == b.type and memories.memory(a) == memories.memory(b)
    left, right = a.owner.operation, b.owner.operation
    if left.name != "mgpu.subview" or right.name != "mgpu.subview" or left.attributes != right.attributes:
        return False
    offsets = zip(list(left.operands)[1:], list(right.operands)[1:], strict=True)
    equal = all(x == y or (constant_int(x) is not None and constant_int(x) == constant_int(y)) for x, y in offsets)
    return equal and _is_same_view(left.operands[0], right.operands[0], memories)


def _emit_stores(stores: Sequence[_Root], block: Any) -> None:
    """The loop, behind the last of the stores; which are erased, and what only they used."""
    size, length = stores[0].part.size, _length(stores)
    last = stores[-1].op
    with ir.InsertionPoint.after(last), last.location:
        loop = scf.ForOp(*(emit.int_constant(n) for n in (0, -(-size // length), 1)))
        loop.operation.attributes[SEPARATED] = ir.UnitAttr.get()
        with ir.InsertionPoint(loop.body):
            parts = Parts(loop.induction_variable, length, size)
            for store in stores:
                parts.compute(store.part)
            for store in stores:
                _store_part(store, parts)
            scf.yield_([])
    for store in stores:
        store.op.erase()
    _erase_unused(block)


def _store_part(store: _Root, parts: Parts) -> None:
    value, ref, *mask = store.op.operands
    masks = [parts.of(m, store.window if is_tile(m.type) else None) for m in mask]
    with store.op.location:
        emit.store(parts.of(value, store.window), parts.view(ref, store.window), *masks)


def _split_reduction(block: Any, memories: Memories, limit: int) -> bool:
    """Makes a loop of the first large reduction that can be split; False if there is none."""
    ops = _ops(block)
    for op in ops:
        if op.name != "mgpu.reduce" or any(len(step.regions) for step in _ops(op.regions[0].blocks[0])):
            continue
        inputs = list(op.operands)[: len(op.results)]
        for axis in ints(op.attributes["axes"]):
            part = Part(shape_of(inputs[0].type)[axis])
            if part.size < 2 or not all(part.add(v, Window(axis), block) for v in inputs):
                continue
            if part.words() <= limit:
                continue
            root = _Root(op, Window(axis), part)
            length = part.length(SUMMED_ELEMENTS, root.is_last_axis)
            if length < part.size and _keeps_order(root, [root], ops, memories):
                _emit_reduction(root, length, block)
                return True
    return False


def _emit_reduction(root: _Root, length: int, block: Any) -> None:
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
    _erase_unused(block)


def _combine(reduction: Any, left: Sequence[Any], right: Sequence[Any]) -> list[Any]:
    """A reduction's body, which combines scalars, on tiles of one shape."""
    body = reduction.regions[0].blocks[0]
    shape = shape_of(left[0].type)
    names = dict(zip(body.arguments, (*left, *right), strict=True))
    *steps, end = _ops(body)
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


def _erase_unused(block: Any) -> None:
    """Erases what nothing uses any more, of the ops that only compute or load, and scratch memory that is not read."""
    for op in reversed(_ops(block)):
        if op.name == "mgpu.store" and is_never_read(root_of(op.operands[1])):
            op.erase()
            continue
        idle = op.name.startswith(("arith.", "math.")) or op.name in _ERASABLE
        if idle and not any(list(result.uses) for result in op.results):
            op.erase()


_ERASABLE = frozenset(
    {
        "mgpu.alloc", "mgpu.load", "mgpu.gather", "mgpu.subview", "mgpu.iota", "mgpu.broadcast", "mgpu.reshape",
        "mgpu.transpose", "mgpu.slice", "mgpu.concatenate", "mgpu.reduce", "mgpu.scan", "mgpu.bitcast",
        "mgpu.libdevice", "mgpu.ptx",
    }
)  # fmt: skip
