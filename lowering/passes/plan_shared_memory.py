"""Places each `mgpu.alloc` in the block's shared memory.

Requires: nothing. Does: takes an allocation as live from its op to its last use in program order, a use
inside of a loop that does not hold the allocation keeping it live to the loop's end, and gives those that
live together different bytes, first fit. Sets `mgpu.offset` (bytes, i32) on each allocation and
`mgpu.smem_bytes` (the end of the last one, i32) on the kernel. Leaves: everything else. Allocations may share bytes:
`insert-barriers` comes after.

    %a = "mgpu.alloc"() : () -> !mgpu.ref<tensor<32x32xf32>, "smem">            // last used before %b
    %b = "mgpu.alloc"() : () -> !mgpu.ref<tensor<64xf32>, "smem">

    %a = "mgpu.alloc"() {mgpu.offset = 0 : i32} : ..
    %b = "mgpu.alloc"() {mgpu.offset = 0 : i32} : ..                             // kernel: mgpu.smem_bytes = 4096
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.types import element_of, shape_of, storage_bits
from mosaic_gpu.errors import KernelError
from mosaic_gpu.lowering.diagnostics import location_source
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.walk import blocks_of, body_of, kernels
from mosaic_gpu.lowering.swizzles import ALIGNMENT, swizzle_of
from mosaic_gpu.lowering.targets import parse_target

LARGE_ALIGNMENT = 128
SMALL_ALIGNMENT = 16
KEEP = "mgpu.keep"
"""The attribute of an allocation that lives to the kernel's end."""
LOOPS = frozenset({"scf.for", "scf.while"})


@dataclass(frozen=True)
class Buffer:
    """An allocation: its op, size, the positions in program order between which it lives, and its place."""

    op: Any
    num_bytes: int
    first: int
    last: int
    offset: int = 0
    is_swizzled: bool = False

    @property
    def end(self) -> int:
        return self.offset + self.num_bytes

    @property
    def alignment(self) -> int:
        if self.is_swizzled:
            return ALIGNMENT
        return LARGE_ALIGNMENT if self.num_bytes >= LARGE_ALIGNMENT else SMALL_ALIGNMENT


def alloc_bytes(op: Any) -> int:
    """Bytes of shared memory that an `mgpu.alloc` asks for."""
    type_ = op.results[0].type
    return math.prod(shape_of(type_)) * storage_bits(element_of(type_)) // 8


def place(buffers: list[Buffer]) -> list[Buffer]:
    """The buffers with offsets: each, in order of its start, in the lowest gap that it fits into."""
    placed: list[Buffer] = []
    for buffer in sorted(buffers, key=lambda b: b.first):
        living = sorted((b for b in placed if b.last >= buffer.first), key=lambda b: b.offset)
        offset = 0
        for other in living:
            if offset + buffer.num_bytes <= other.offset:
                break
            offset = max(offset, -(-other.end // buffer.alignment) * buffer.alignment)
        placed.append(replace(buffer, offset=offset))
    return placed


@dataclass(frozen=True)
class PlanSharedMemory:
    """The pass.  Raises KernelError, with a table, where the target has less shared memory than is needed."""

    name: str = "plan-shared-memory"

    def apply(self, module: ir.Module, options: LoweringOptions) -> None:
        limit = parse_target(options.target).max_shared_bytes
        i32 = ir.IntegerType.get_signless(32)
        for kernel in kernels(module):
            placed = place(_buffers(kernel))
            total = max((buffer.end for buffer in placed), default=0)
            if total > limit:
                raise _too_large(placed, total, limit, options.target)
            for buffer in placed:
                buffer.op.attributes["mgpu.offset"] = ir.IntegerAttr.get(i32, buffer.offset)
            kernel.attributes["mgpu.smem_bytes"] = ir.IntegerAttr.get(i32, total)


def shared_bytes(kernel: Any) -> int:
    """Bytes of shared memory that the kernel's allocations, as they are now, will take."""
    return max((buffer.end for buffer in place(_buffers(kernel))), default=0)


def _buffers(kernel: Any) -> list[Buffer]:
    allocs: list[tuple[Any, int]] = []
    span: dict[Any, tuple[int, int]] = {}
    _number(body_of(kernel), 0, span, allocs)
    return [
        Buffer(op, alloc_bytes(op), first, _last_use(op, span, op.results[0]), is_swizzled=swizzle_of(op) > 0)
        for op, first in allocs
    ]


def _number(block: Any, position: int, span: dict[Any, tuple[int, int]], allocs: list[tuple[Any, int]]) -> int:
    """Numbers all ops in program order: each one's own position and that of the last op inside of it."""
    for view in block.operations:
        op = view.operation
        first = position
        position += 1
        if op.name == "mgpu.alloc":
            allocs.append((op, first))
        for inner in blocks_of(op):
            position = _number(inner, position, span, allocs)
        span[op] = first, position - 1
    return position


def _last_use(alloc: Any, span: dict[Any, tuple[int, int]], ref: Any) -> int:
    last = span[alloc][0]
    if KEEP in alloc.attributes:
        return max(end for _, end in span.values())
    for use in ref.uses:
        user = use.owner.operation
        last = max(last, span[_outermost_loop(user, alloc)][1])
        if user.name == "mgpu.subview":
            last = max(last, _last_use(alloc, span, user.results[0]))
    return last


def _outermost_loop(user: Any, alloc: Any) -> Any:
    """The outermost loop around `user` that does not hold `alloc` too; `user` itself where there is none."""
    holders = set(_ancestors(alloc))
    found = user
    for ancestor in _ancestors(user):
        if ancestor in holders:
            break
        if ancestor.name in LOOPS:
            found = ancestor
    return found


def _ancestors(op: Any) -> list[Any]:
    found = []
    parent = op.parent
    while parent is not None:
        found.append(parent.operation)
        parent = parent.operation.parent
    return found


def _too_large(placed: list[Buffer], total: int, limit: int, target: str) -> KernelError:
    largest = sorted(placed, key=lambda b: -b.num_bytes)
    rows = [f"{b.num_bytes:>10} bytes at offset {b.offset:>8}  {_what(b.op)}" for b in largest]
    return KernelError(
        "the kernel needs more shared memory than a block may have:\n  " + "\n  ".join(rows),
        got=f"{total} bytes",
        expected=f"at most {limit} bytes on {target}",
        hint="make the blocks or the scratch buffers smaller",
        source=location_source(largest[0].op.location),
    )


def _what(op: Any) -> str:
    type_ = op.results[0].type
    shape = "x".join(map(str, shape_of(type_)))
    source = location_source(op.location)
    return f"{shape or 'scalar'} {element_of(type_)}" + ("" if source is None else f"  {source}")
