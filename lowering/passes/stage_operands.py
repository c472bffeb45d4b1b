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
the layout that the unit wants there, or nearly so.  What a loop around the dot does not change is staged before the
loop, and a tile that several dots read in one form is staged once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.dot_layouts import K_BYTES, WgmmaPlan
from mosaic_gpu.dialect.ops_matmul import fence_async
from mosaic_gpu.dialect.ops_tile import SliceOp
from mosaic_gpu.dialect.types import element_of, is_tile, shape_of, tile_type
from mosaic_gpu.lowering.dots import DotFacts, instruction_columns
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.passes.effects import is_defined_outside
from mosaic_gpu.lowering.passes.operands_in_place import in_place
from mosaic_gpu.lowering.passes.round_operands import rounded
from mosaic_gpu.lowering.swizzles import PERIOD_ROWS, SWIZZLE, swizzle_for

_LOOPS = frozenset({"scf.for", "scf.while"})
_STRUCTURES = _LOOPS | {"scf.if"}
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
        if op.name == "scf.if":
            stack += [v for v in _yielded(op) if is_tile(v.type)]
        if op.name.startswith(("arith.", "math.", "mgpu.libdevice", "mgpu.ptx", "mgpu.bitcast", "mgpu.reshape")):
            stack += [v for v in op.operands if is_tile(v.type)]
    return False


def _yielded(op: Any) -> list[Any]:
    """What the regions of an `scf.if` give."""
    return [v for region in op.regions for block in region.blocks for v in list(block.operations)[-1].operands]


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


@dataclass
class Staged:
    """The shared memory of a kernel for operands.

    Attributes:
      num_bytes: what one dot may take; what is staged outside of a loop stays taken.
      known: (tile, rows, columns, swizzle) of what was staged whole -> the block and the view.
    """

    num_bytes: int
    known: dict[tuple[Any, int, int, int], tuple[Any, ir.Value]] = field(default_factory=dict)

    def find(self, op: Any, value: Any, place: Staging) -> ir.Value | None:
        """The view of what `op` would stage, where that was done in a block around it."""
        block, view = self.known.get(_key(value, place), (None, None))
        around = op
        while block is not None and around.name != "mgpu.kernel":
            if around.block == block:
                return view
            around = around.parent.operation
        return None


def _key(value: Any, place: Staging) -> tuple[Any, int, int, int]:
    return value, place.rows, place.columns, place.swizzle


def stage_operands(op: Any, facts: DotFacts, plan: WgmmaPlan, staged: Staged) -> list[Any]:
    """The dots, one after another along K, that stand for `op`, with their operands in place."""
    depth = depth_of(facts, plan, staged.num_bytes)
    dots, total = [], op.operands[2]
    for start in range(0, facts.k, depth):
        count = min(depth, facts.k - start)
        with ir.InsertionPoint(op), op.location:
            part = op.clone().operation if depth < facts.k else op
        part.operands[2] = total
        _stage_both(part, facts, plan, start, count, staged)
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


def _stage_both(op: Any, facts: DotFacts, plan: WgmmaPlan, start: int, count: int, staged: Staged) -> None:
    """Stages the tile operands of `op`: those that a loop around it does not change before the loop."""
    is_fenced = True
    for number, is_lhs in enumerate((True, False)):
        value = op.operands[number]
        if not is_tile(value.type):
            continue
        if is_lhs and stays_in_registers(value):
            with ir.InsertionPoint(op), op.location:
                op.operands[number] = _oriented(op, value, facts, is_lhs, (start, count), k_last=True)
            continue
        place = staging(facts, plan, is_lhs, count)
        fits = _is_as_given(value, facts, is_lhs, place)
        view = staged.find(op, value, place) or in_place(op, value, place.swizzle) if fits else None
        if view is not None:
            _tell(op, is_lhs, k_last=place.k_dim == 1)
            op.operands[number] = view
            if value.owner.operation.name == "mgpu.load" and not list(value.uses):
                value.owner.operation.erase()
            continue
        point = _where(op, value) if count == facts.k and place.num_bytes * 2 <= staged.num_bytes else op
        with ir.InsertionPoint(point), op.location:
            tile = _oriented(op, value, facts, is_lhs, (start, count), k_last=place.k_dim == 1)
            op.operands[number] = view = stage(tile, place)
            if fits:
                staged.known[_key(value, place)] = point.block, view
            if point != op:
                fence_async("matrix units read what threads stored")
                staged.num_bytes -= place.num_bytes
            else:
                is_fenced = False
    if not is_fenced:
        with ir.InsertionPoint(op), op.location:
            fence_async("matrix units read what threads stored")


def _is_as_given(value: Any, facts: DotFacts, is_lhs: bool, place: Staging) -> bool:
    """Whether the tile is staged whole, unchanged and the way round that it has, with nothing beside it."""
    is_last = not facts.lhs_transposed if is_lhs else facts.rhs_transposed
    is_whole = shape_of(value.type) == place.shape and not _tails(place)
    return is_whole and is_last == (place.k_dim == 1) and facts.lhs_element != "f32"


def _where(op: Any, value: Any) -> Any:
    """The op before which `value` is staged: the outermost loop around `op` that does not compute it, or `op`."""
    found, around = op, op.parent.operation
    while around.name in _STRUCTURES and is_defined_outside(value, around):
        found = around if around.name in _LOOPS else found
        around = around.parent.operation
    return found


def _oriented(op: Any, value: ir.Value, facts: DotFacts, is_lhs: bool, part: tuple[int, int], *, k_last: bool) -> Any:
    """Elements `part` (first, count) of K of an operand, with K as its last or first dimension; `op` is told which."""
    is_last = not facts.lhs_transposed if is_lhs else facts.rhs_transposed
    value = _part(rounded(value, facts), *part, 1 if is_last else 0)
    if is_last != k_last:
        value = emit.transpose(value, [1, 0])
    _tell(op, is_lhs, k_last=k_last)
    return value


def _tell(op: Any, is_lhs: bool, *, k_last: bool) -> None:
    """Notes in `op` which way round an operand is."""
    name, transposed = ("lhs_transposed", not k_last) if is_lhs else ("rhs_transposed", k_last)
    op.attributes[name] = emit.int_attr(int(transposed))


def _part(value: ir.Value, start: int, count: int, dim: int) -> ir.Value:
    """`count` elements along `dim` from `start`."""
    shape = shape_of(value.type)
    if count == shape[dim]:
        return value
    sizes = tuple(count if d == dim else n for d, n in enumerate(shape))
    starts = emit.int_array([start if d == dim else 0 for d in range(2)])
    return SliceOp(tile_type(sizes, element_of(value.type)), value, starts, emit.int_array([1, 1])).result
