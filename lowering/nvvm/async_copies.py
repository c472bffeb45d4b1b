"""Copies between global and shared memory: inline PTX for TMA, with the tensor maps it names, and for cp.async."""

from __future__ import annotations

from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.errors import InternalError
from mosaic_gpu.lowering.nvvm import emit
from mosaic_gpu.lowering.nvvm.access import register_addresses
from mosaic_gpu.lowering.nvvm.async_barriers import barrier_at, first_thread
from mosaic_gpu.lowering.nvvm.conversion import Conversion, converts
from mosaic_gpu.lowering.nvvm.memref import MemRef
from mosaic_gpu.lowering.nvvm.predicates import Condition, Coordinates, all_of
from mosaic_gpu.lowering.tensor_maps import TensorMapFacts
from mosaic_gpu.lowering.tma import CopyPlan, plan_copy
from mosaic_gpu.lowering.views import RefView, vector_elements, view_of


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


@converts("mgpu.async_copy")
def convert_async_copy(conversion: Conversion, op: Any) -> list[ir.Value]:
    """`cp.async` a piece; what is outside of the array has no bytes to read, and arrives as zeros."""
    source, dest = conversion.get(op.source), conversion.get(op.dest)
    layout = Layout.parse(str(ir.StringAttr(op.layout.text).value))
    coordinates = Coordinates(conversion.threads, layout, source.shape)
    width = min(vector_elements(view_of(op.source), layout), vector_elements(view_of(op.dest), layout))
    size = width * source.element_bytes
    if size not in _COPY_BYTES:
        raise InternalError(f"cp.async does not copy {size} bytes at once")
    addresses = [register_addresses(memref, coordinates)[::width] for memref in (source, dest)]
    holder = conversion.threads.is_holder(layout)
    for number, (start, end) in enumerate(zip(*addresses, strict=True)):
        register = number * width
        condition = all_of((True if holder is None else holder, coordinates.inside(register)))
        passes = coordinates.passes(register, source.checks)
        _copy_piece(size, [emit.gep(a.pointer, a.constant) for a in (end, start)], condition, passes)
    return []


_COPY_BYTES = (4, 8, 16)


def _copy_piece(size: int, pointers: list[ir.Value], condition: Condition, passes: Condition) -> None:
    """One `cp.async` from pointers[1] to pointers[0] where `condition` holds; of zeros where `passes` does not."""
    if condition is False:
        return
    if isinstance(passes, bool):
        count: ir.Value = emit.const(size if passes else 0)
    else:
        count = emit.select(passes, emit.const(size), emit.const(0))
    kind = "cg" if size == _COPY_BYTES[-1] else "ca"
    text = f"cp.async.{kind}.shared.global [$0], [$1], {size}, $2;"
    if condition is True:
        _effect(text, "l,l,r", [*pointers, count])
    else:
        _effect(f"@$3 {text}", "l,l,r,b", [*pointers, count, condition])


@converts("mgpu.async_commit")
def convert_async_commit(conversion: Conversion, op: Any) -> list[ir.Value]:
    """A group of a thread's own copies."""
    _effect("cp.async.commit_group;", "", [])
    return []


@converts("mgpu.async_wait_copies")
def convert_async_wait_copies(conversion: Conversion, op: Any) -> list[ir.Value]:
    """For a thread's own copies."""
    _effect(f"cp.async.wait_group {ir.IntegerAttr(op.pending).value};", "", [])
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
    clobbered = "~{memory}"
    emit.inline_asm(text, f"{constraints},{clobbered}" if constraints else clobbered, operands, [], effects=True)
