"""Brings the operands of a "wgmma" dot to swizzled shared memory, where the unit reads them itself.

Each operand becomes an `mgpu.alloc` with a swizzle, large enough for whole instructions, an `mgpu.store` of the
tile, and a view of the tile's shape; an `mgpu.fence_async` follows.  What the unit reads beyond the tile is stored as
zeros: along K because it would be summed, along M and N because memory that nobody wrote is not to be read.

    %r = "mgpu.dot"(%a, %b, %c)                          // 64x40xf16, 40x24xf16

    %p = "mgpu.alloc"() {mgpu.swizzle = 128 : i32} : () -> !mgpu.ref<tensor<64x64xf16>, "smem">
    "mgpu.store"(%a, subview(%p [0, 0] sizes [64, 40]))
    "mgpu.store"(%zeros, subview(%p [0, 40] sizes [64, 8]))
    ..                                                   // the same for %b
    "mgpu.fence_async"()
    %r = "mgpu.dot"(subview(%p), subview(%q), %c) {kind = "wgmma"}

Operands of 16 bits may be stored either way round.  All others must have K as their last dimension, and are
transposed on the way where they do not.  A left side that was computed from another dot stays in registers: it has
the layout that the unit wants there, or nearly so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.dot_layouts import K_BYTES, WgmmaPlan
from mosaic_gpu.dialect.ops_matmul import FenceAsyncOp
from mosaic_gpu.dialect.ops_tile import SliceOp
from mosaic_gpu.dialect.types import element_of, is_tile, shape_of, tile_type
from mosaic_gpu.lowering.dots import DotFacts, instruction_columns
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.passes.round_operands import rounded
from mosaic_gpu.lowering.swizzles import PERIOD_ROWS, SWIZZLE, swizzle_for

MAX_SEARCH = 64
"""Ops above an operand that are looked at for another dot."""


@dataclass(frozen=True)
class Staging:
    """How one operand lies in shared memory.

    Attributes:
      shape: of the tile, as stored: [M or N, K] or [K, M or N].
      rows, columns: of the allocation.
      swizzle: in bytes.
      k_dim: which dimension is K.
      k_read, read: how far the unit reads along K, and along M or N.
    """

    shape: tuple[int, int]
    rows: int
    columns: int
    swizzle: int
    k_dim: int
    k_read: int
    read: int
    element_bytes: int

    @property
    def num_bytes(self) -> int:
        """Of shared memory."""
        return self.rows * self.columns * self.element_bytes


def staging(facts: DotFacts, plan: WgmmaPlan, is_lhs: bool, depth: int) -> Staging:
    """For an operand of a dot that contracts `depth` elements at once."""
    element_bytes = facts.bits // 8
    step = K_BYTES // element_bytes
    k_read = _up(depth, step)
    extent, read = (facts.m, plan.rows) if is_lhs else (facts.n, _columns_read(facts, plan))
    if k_is_last(facts, is_lhs):
        swizzle = swizzle_for(depth, element_bytes)
        columns = _up(k_read, swizzle // element_bytes)
        return Staging((extent, depth), _up(read, PERIOD_ROWS), columns, swizzle, 1, k_read, read, element_bytes)
    swizzle = swizzle_for(read, element_bytes)
    columns = _up(read, swizzle // element_bytes)
    return Staging((depth, extent), _up(k_read, PERIOD_ROWS), columns, swizzle, 0, k_read, read, element_bytes)


def k_is_last(facts: DotFacts, is_lhs: bool) -> bool:
    """Whether the operand is stored with K as its last dimension."""
    given = not facts.lhs_transposed if is_lhs else facts.rhs_transposed
    return given or facts.bits != 16


def _columns_read(facts: DotFacts, plan: WgmmaPlan) -> int:
    start, count = plan.splits[-1]
    return plan.columns * (plan.along_n - 1) + start + instruction_columns(facts, count)


def _up(number: int, step: int) -> int:
    return -(-number // step) * step


def stays_in_registers(value: Any) -> bool:
    """Whether a left operand comes from another dot through tiles alone."""
    seen: set[Any] = set()
    stack = [value]
    while stack and len(seen) < MAX_SEARCH:
        owner = stack.pop().owner
        if isinstance(owner, ir.Block) or owner.operation in seen:
            continue
        op = owner.operation
        seen.add(op)
        if op.name == "mgpu.dot":
            return True
        if op.name.startswith(("arith.", "math.", "mgpu.libdevice", "mgpu.ptx", "mgpu.bitcast", "mgpu.reshape")):
            stack += [v for v in op.operands if is_tile(v.type)]
    return False


def stage(value: ir.Value, place: Staging) -> ir.Value:
    """Stores a tile of `place.shape`; the view of it in shared memory."""
    element = element_of(value.type)
    memory = emit.alloc((place.rows, place.columns), element)
    memory.owner.attributes[SWIZZLE] = emit.int_attr(place.swizzle)
    zero = emit.int_constant(0)
    view = emit.subview(memory, [zero, zero], place.shape)
    emit.store(value, view)
    for offsets, sizes in _tails(place):
        starts = [emit.int_constant(n) for n in offsets]
        emit.store(_zeros(sizes, element), emit.subview(memory, starts, sizes))
    return view


def _tails(place: Staging) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Offsets and sizes of what the unit reads outside of the tile: beyond K, then beyond M or N."""
    depth, extent = place.shape[place.k_dim], place.shape[1 - place.k_dim]
    boxes = [((depth, 0), (place.k_read - depth, extent)), ((0, extent), (place.k_read, place.read - extent))]
    return [
        (offsets, sizes) if place.k_dim == 0 else (offsets[::-1], sizes[::-1]) for offsets, sizes in boxes if min(sizes)
    ]


def _zeros(shape: tuple[int, ...], element: ir.Type) -> ir.Value:
    is_int = isinstance(element, ir.IntegerType)
    number: Any = ir.IntegerAttr.get(element, 0) if is_int else ir.FloatAttr.get(element, 0.0)
    type_ = tile_type(shape, element)
    return arith.ConstantOp(type_, ir.DenseElementsAttr.get_splat(type_, number)).result


def stage_operands(op: Any, facts: DotFacts, plan: WgmmaPlan, room_bytes: int) -> list[Any]:
    """The dots, one after another along K, that stand for `op`, with their operands in place.

    `room_bytes`: shared memory that the operands of one of them may take.
    """
    depth = depth_of(facts, plan, room_bytes)
    dots, total = [], op.operands[2]
    with ir.InsertionPoint(op), op.location:
        for start in range(0, facts.k, depth):
            count = min(depth, facts.k - start)
            part = op.clone().operation if depth < facts.k else op
            part.operands[2] = total
            with ir.InsertionPoint(part):
                _stage_both(part, facts, plan, start, count)
            total = part.results[0]
            dots.append(part)
    if dots[-1] != op:
        op.results[0].replace_all_uses_with(total)
        op.erase()
    return dots


def depth_of(facts: DotFacts, plan: WgmmaPlan, room_bytes: int) -> int:
    """How much of K is staged at once: all of it, or as many whole panels as have room; 0 where not one has."""

    def bytes_for(depth: int) -> int:
        return sum(staging(facts, plan, is_lhs, depth).num_bytes for is_lhs in (True, False))

    if bytes_for(facts.k) <= room_bytes:
        return facts.k
    panel = 128 * 8 // facts.bits
    depth = panel if bytes_for(panel) <= room_bytes else 0
    while depth and bytes_for(2 * depth) <= room_bytes:
        depth *= 2
    return depth


def _stage_both(op: Any, facts: DotFacts, plan: WgmmaPlan, start: int, count: int) -> None:
    fenced = False
    for number, is_lhs in enumerate((True, False)):
        value = op.operands[number]
        if not is_tile(value.type):
            continue
        name = "lhs_transposed" if is_lhs else "rhs_transposed"
        k_last = not facts.lhs_transposed if is_lhs else facts.rhs_transposed
        in_registers = is_lhs and stays_in_registers(value)
        value = _part(rounded(value, facts), start, count, 1 if k_last else 0)
        if not k_last and (in_registers or k_is_last(facts, is_lhs)):
            value = emit.transpose(value, [1, 0])
            op.attributes[name] = emit.int_attr(0 if is_lhs else 1)
        if not in_registers:
            value = stage(value, staging(facts, plan, is_lhs, count))
            fenced = True
        op.operands[number] = value
    if fenced:
        FenceAsyncOp()


def _part(value: ir.Value, start: int, count: int, dim: int) -> ir.Value:
    """`count` elements along `dim` from `start`."""
    shape = shape_of(value.type)
    if count == shape[dim]:
        return value
    sizes = tuple(count if d == dim else n for d, n in enumerate(shape))
    starts = emit.int_array([start if d == dim else 0 for d in range(2)])
    return SliceOp(tile_type(sizes, element_of(value.type)), value, starts, emit.int_array([1, 1])).result
