"""TMA: inline PTX for copies between global and shared memory, and the tensor maps that they name."""

from __future__ import annotations

from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.errors import InternalError
from mosaic_gpu.lowering.nvvm import emit
from mosaic_gpu.lowering.nvvm.async_barriers import barrier_at, first_thread
from mosaic_gpu.lowering.nvvm.conversion import Conversion, converts
from mosaic_gpu.lowering.nvvm.memref import MemRef
from mosaic_gpu.lowering.tensor_maps import TensorMapFacts
from mosaic_gpu.lowering.tma import CopyPlan, plan_copy
from mosaic_gpu.lowering.views import RefView, view_of


@converts("mgpu.async_load")
def convert_async_load(conversion: Conversion, op: Any) -> list[ir.Value]:
    """`cp.async.bulk.tensor` a box, from one thread."""
    view = view_of(op.source)
    dest: MemRef = conversion.get(op.dest)
    plan = copy_plan(view, dest)
    tensor = conversion.tensor_map(_facts(view, plan))
    start = _start(conversion, view)
    barrier, elected = barrier_at(conversion, op), first_thread(conversion)
    rank = len(start)
    places = ", ".join(f"${4 + d}" for d in range(rank))
    text = (
        f"@$0 cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes "
        f"[$1], [$2, {{{places}}}], [$3];"
    )
    for piece in plan.pieces:
        at = [emit.add(s, p) for s, p in zip(start, piece.start, strict=True)][::-1]
        pointer = emit.gep(dest.pointer, piece.offset_bytes)
        _effect(text, "b,l,l,l" + ",r" * rank, [elected, pointer, tensor, barrier, *at])
    return []


@converts("mgpu.async_store")
def convert_async_store(conversion: Conversion, op: Any) -> list[ir.Value]:
    """The same the other way, as one bulk group."""
    view = view_of(op.dest)
    source: MemRef = conversion.get(op.source)
    plan = copy_plan(view, source)
    tensor = conversion.tensor_map(_facts(view, plan))
    start, elected = _start(conversion, view), first_thread(conversion)
    rank = len(start)
    places = ", ".join(f"${3 + d}" for d in range(rank))
    text = f"@$0 cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group [$1, {{{places}}}], [$2];"
    for piece in plan.pieces:
        at = [emit.add(s, p) for s, p in zip(start, piece.start, strict=True)][::-1]
        pointer = emit.gep(source.pointer, piece.offset_bytes)
        _effect(text, "b,l,l" + ",r" * rank, [elected, tensor, pointer, *at])
    _effect("@$0 cp.async.bulk.commit_group;", "b", [elected])
    return []


@converts("mgpu.async_wait_stores")
def convert_async_wait_stores(conversion: Conversion, op: Any) -> list[ir.Value]:
    """Until shared memory has been read."""
    _effect("@$0 cp.async.bulk.wait_group.read 0;", "b", [first_thread(conversion)])
    return []


def copy_plan(view: RefView, memref: MemRef) -> CopyPlan:
    """The plan of a copy that a pass has found to be possible."""
    if memref.box is not None and not memref.box.is_whole:
        raise InternalError("a copy starts inside of a swizzled tile")
    plan = plan_copy(view, None if memref.box is None else memref.box.panels)
    if plan is None:
        raise InternalError("TMA cannot copy this view")
    return plan


def _facts(view: RefView, plan: CopyPlan) -> TensorMapFacts:
    number = ir.BlockArgument(view.root).arg_number
    box = tuple(reversed(plan.box))
    return TensorMapFacts(number, plan.element_bytes, plan.dims, plan.strides_bytes, box, plan.swizzle)


def _start(conversion: Conversion, view: RefView) -> list[ir.Value]:
    """The coordinate of the view's first element in its root, i32."""
    totals: list[ir.Value | None] = [None] * len(view.root_shape)
    dims = list(range(len(view.root_shape)))
    for step in view.chain:
        for d, offset in zip(dims, step.offsets, strict=True):
            part = emit.convert_int(conversion.get(offset), 32)
            before = totals[d]
            totals[d] = part if before is None else emit.add(before, part)
        dims = [dims[d] for d in step.kept]
    return [emit.const(0) if total is None else total for total in totals]


def _effect(text: str, constraints: str, operands: list[ir.Value]) -> None:
    emit.inline_asm(text, f"{constraints},~{{memory}}", operands, [], effects=True)
