"""Splits the work on tiles that are too large for the registers of a block into a loop over parts of them.

A kernel may work on an array of any size at once; a thread has 255 registers.  What is written of a large tile, or
summed over it, is computed part by part along one dimension, from the loads on:

    %x = load %a : 1024x1024                      scf.for %k = 0 to 256 {
    %s = reduce %x axes [1] : 1024                  %x = load (subview %a[4 * %k, 0] sizes [4, 1024])
    %y = divf %x, (broadcast %s)                    %s = reduce %x axes [1] : 4
    store %y, %o                                    %y = divf %x, (broadcast %s)
                                                    store %y, (subview %o[4 * %k, 0] sizes [4, 1024])
                                                  }

A dimension will do where each op on the way handles it element by element, or moves what is along it (`split_axes`,
`split_scratch`): a sum along it does not, and is a loop of its own before, which carries what was summed so far
(`split_sums`).  The steps of a loop of stores are independent: `parallelize-loops` makes blocks of them where nothing
stands in the way.

Requires: canonical form with common subexpressions removed, no layouts yet.  Does: the above for stores, reductions and
products of what depends on tiles of more than `limit` words.  Leaves: tiles as they are where an op on the way has no
rule in `split_axes`, or where loads would change places with stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import ir, scf
from mosaic_gpu.dialect.ops_kernel import SEPARATED
from mosaic_gpu.dialect.types import GMEM, SMEM, is_tile, ref_space, shape_of
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.choose_num_warps import MAX_REGISTERS, MAX_WARPS, largest_tile
from mosaic_gpu.lowering.passes.effects import Memories
from mosaic_gpu.lowering.passes.emit_parts import Parts
from mosaic_gpu.lowering.passes.split_axes import Window
from mosaic_gpu.lowering.passes.split_parts import Part, Scope, words
from mosaic_gpu.lowering.passes.split_roots import Root, erase_unused, keeps_order, ops_of
from mosaic_gpu.lowering.passes.split_sums import split_dot, split_reduction
from mosaic_gpu.lowering.passes.walk import blocks_of, body_of, kernels

THREADS = 32 * MAX_WARPS
PART_ELEMENTS = 4096
"""About so many elements has a part: a block's work where the parts become blocks."""


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
                scope = Scope(block, memories, memories.effects(kernel).writes, limit)
                while (
                    _split_stores(scope, GMEM)
                    or _narrow_slice(scope)
                    or split_reduction(scope)
                    or split_dot(scope)
                    or _split_stores(scope, SMEM)  # last: the others may leave nothing of it
                ):
                    pass
                ahead += [inner for op in ops_of(block) for inner in blocks_of(op)]


def _best_store(op: Any, scope: Scope, size: int | None = None) -> Root | None:
    """How to split a store whose value depends on a large tile; None where that cannot be.

    `size`: of the dimension, where others have been chosen before.
    """
    best: Root | None = None
    tiles = [v for v in (op.operands[0], *list(op.operands)[2:]) if is_tile(v.type)]
    for axis, extent in enumerate(shape_of(op.operands[0].type)):
        part = Part(extent)
        if extent < 2 or (size is not None and extent != size):
            continue
        if not all(part.add(v, Window(axis), scope) for v in tiles):
            continue
        if part.words() <= scope.limit or (best is not None and best.part.cost() <= part.cost()):
            continue
        found = Root(op, Window(axis), part)
        if _length([found], scope) < extent:
            best = found
    return best


def _split_stores(scope: Scope, space: str) -> bool:
    """Puts the first store to `space` that can be split, with those that go along, into a loop; False without one."""
    ops = ops_of(scope.block)
    for number, op in enumerate(ops):
        is_meant = op.name == "mgpu.store" and ref_space(op.operands[1].type) == space
        first = _best_store(op, scope) if is_meant else None
        if first is None:
            continue
        together = _group(first, ops[number + 1 :], scope)
        for stores in (together, [first]):
            if _length(stores, scope) < first.part.size and all(keeps_order(s, stores, ops, scope) for s in stores):
                _emit_stores(stores, scope)
                return True
    return False


def _group(first: Root, behind: Sequence[Any], scope: Scope) -> list[Root]:
    """The stores that can be in the loop of `first`."""
    memories = scope.memories
    stores, written = [first], memories.effects(first.op).writes
    for op in behind:
        effects = memories.effects(op)
        is_like = op.name == "mgpu.store" and ref_space(op.operands[1].type) == ref_space(first.op.operands[1].type)
        if is_like and not effects.writes & written:
            store = _best_store(op, scope, first.part.size)
            if store is not None:
                stores.append(store)
                written |= effects.writes
                continue
        is_scratch = op.name == "mgpu.store" and ref_space(op.operands[1].type) == SMEM
        if (effects.writes and not is_scratch) or (effects.writes | effects.reads) & written:
            break
    return stores


def _length(stores: Sequence[Root], scope: Scope) -> int:
    """The size of a part that suits all stores."""
    together = Part(stores[0].part.size)
    for store in stores:
        together.values |= store.part.values
    return together.length(min(PART_ELEMENTS, scope.limit), max(s.least for s in stores))


def _emit_stores(stores: Sequence[Root], scope: Scope) -> None:
    """The loop, behind the last of the stores; which are erased, and what only they used."""
    size, length = stores[0].part.size, _length(stores, scope)
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
    erase_unused(scope.block)


def _narrow_slice(scope: Scope) -> bool:
    """Computes no more of a large tile than a slice takes of it, if that is a half at most; False if there is none."""
    ops = ops_of(scope.block)
    for op in ops:
        if op.name != "mgpu.slice" or words(op.operands[0].type) <= scope.limit:
            continue
        for axis, (size, extent) in enumerate(
            zip(*(shape_of(v.type) for v in (*op.results, *op.operands)), strict=True)
        ):
            root = Root(op, Window(axis), Part(size))
            if 2 * size > extent or not root.part.add(op.results[0], root.window, scope):
                continue
            if size % root.part.unit() == 0 and keeps_order(root, [root], ops, scope):
                with ir.InsertionPoint(op), op.location:
                    parts = Parts(emit.int_constant(0), size, size)
                    parts.compute(root.part)
                op.results[0].replace_all_uses_with(parts.of(op.results[0], root.window))
                erase_unused(scope.block)
                return True
    return False


def _store_part(store: Root, parts: Parts) -> None:
    value, ref, *mask = store.op.operands
    masks = [parts.of(m, store.window if is_tile(m.type) else None) for m in mask]
    with store.op.location:
        emit.store(parts.of(value, store.window), parts.view(ref, store.window), *masks)
