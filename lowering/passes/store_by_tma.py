"""Writes results that threads hold in scattered pieces by way of shared memory, as boxes that TMA copies.

Requires: layouts assigned, loops pipelined, shared memory not planned yet. Does, for an `mgpu.store` of a tile of two
dimensions outside of any loop, unmasked, whose layout would make accesses of less than 16 bytes (accumulators of the
matrix units): stores the tile to swizzled shared memory, where no banks collide, and from there by one
`mgpu.async_store`.  Only where nothing else in the kernel touches that memory, and where shared memory has room
(what loops staged is free by then). Leaves: the same memory.

    "mgpu.store"(%x, %view)                      %s = "mgpu.alloc"() {mgpu.swizzle = 128}
                                                 "mgpu.store"(%x, %s); fence_async; barrier
                                                 "mgpu.async_store"(%s, %view); async_wait_stores; barrier
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.attrs import layout_of
from mosaic_gpu.dialect.ops_async import AsyncStoreOp, AsyncWaitStoresOp
from mosaic_gpu.dialect.ops_matmul import fence_async
from mosaic_gpu.dialect.types import element_of, is_tile
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.effects import Memories
from mosaic_gpu.lowering.passes.pipeline_loops import RESERVE_BYTES, barrier
from mosaic_gpu.lowering.passes.plan_shared_memory import shared_bytes
from mosaic_gpu.lowering.passes.walk import blocks_of, body_of, kernels, walk
from mosaic_gpu.lowering.swizzles import PERIOD_ROWS, SWIZZLE, Panels, swizzle_for
from mosaic_gpu.lowering.targets import parse_target
from mosaic_gpu.lowering.tma import plan_copy
from mosaic_gpu.lowering.views import RefView, vector_elements, view_of

MIN_BYTES = 8192
"""The least that is worth a way through shared memory."""
WIDE_BYTES = 16


@dataclass(frozen=True)
class StoreByTma:
    """The pass; it has no options."""

    name: str = "store-by-tma"

    def apply(self, module: ir.Module, options: LoweringOptions) -> None:
        target = parse_target(options.target)
        if "tma" not in target.features:
            return
        for kernel in kernels(module):
            for store in _stores(kernel):
                _try(kernel, store, target.max_shared_bytes - RESERVE_BYTES)


def _stores(kernel: Any) -> list[Any]:
    """The stores outside of loops and branches to memory that nothing else touches."""
    memories = Memories.of(kernel)
    touching: dict[Any, int] = {}
    for op in walk(body_of(kernel)):
        if op.name.startswith("mgpu.") and not len(op.regions):
            effects = memories.effects(op)
            for memory in effects.reads | effects.writes:
                touching[memory] = touching.get(memory, 0) + 1
    top = [view.operation for view in body_of(kernel).operations]
    for op in list(top):
        if op.name == "mgpu.specialize":
            top += [view.operation for view in blocks_of(op)[1].operations]
    stores = [op for op in top if op.name == "mgpu.store" and len(op.operands) == 2 and is_tile(op.operands[0].type)]
    return [op for op in stores if touching[memories.memory(op.operands[1])] == 1]


def _try(kernel: Any, store: Any, limit_bytes: int) -> None:
    value, dest = store.operands
    view, layout = view_of(dest), layout_of(value.type)
    if view.space != "gmem" or len(view.shape) != 2 or math.prod(view.shape) * view.element_bytes < MIN_BYTES:
        return
    panels = _panels(view)
    is_wide = vector_elements(view, layout) * view.element_bytes >= WIDE_BYTES
    if is_wide or plan_copy(view, panels) is None:
        return
    with ir.InsertionPoint(store), store.location:
        memory = emit.alloc((panels.rows, panels.columns), element_of(value.type))
        memory.owner.attributes[SWIZZLE] = emit.int_attr(panels.swizzle)
        box = memory
        if (panels.rows, panels.columns) != view.shape:
            zero = emit.int_constant(0)
            box = emit.subview(memory, [zero, zero], view.shape)
        emit.store(value, box)
        if shared_bytes(kernel) > limit_bytes:
            _undo(memory, box)
            return
        fence_async("copies read what threads stored")
        barrier("copies read what all threads stored")
        AsyncStoreOp(box, dest)
        AsyncWaitStoresOp()
        barrier("the memory may be stored to again by all threads")
    store.erase()


def _undo(memory: ir.Value, box: ir.Value) -> None:
    """Takes the staging away again."""
    for use in list(box.uses):
        use.owner.operation.erase()
    if box != memory:
        box.owner.operation.erase()
    memory.owner.operation.erase()


def _panels(view: RefView) -> Panels:
    rows, columns = view.shape
    swizzle = swizzle_for(columns, view.element_bytes)
    width = swizzle // view.element_bytes
    return Panels(swizzle, -(-rows // PERIOD_ROWS) * PERIOD_ROWS, -(-columns // width) * width, view.element_bytes)
