"""Reductions: fold a thread's registers, then lanes by shuffles, then warps through shared memory.

tensor<4x128xf32, L> over axis 1, L = "4x128 r:0,1;0,2 l:0,4;..;0,64 w:1,0;2,0"
    four registers are folded to one            (r0, r1 lie along the axis)
    five exchanges with lane ^ 1, 2, 4, 8, 16   (all lane bits lie along the axis)
    nothing between warps                       (w0, w1 lie along dimension 0)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.layouts import LANE_BITS, Coordinate, Layout
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.dialect.types import shape_of, storage_bits
from mosaic_gpu.lowering.nvvm import emit
from mosaic_gpu.lowering.nvvm.combiner import Combiner, Values
from mosaic_gpu.lowering.nvvm.conversion import Conversion, converts
from mosaic_gpu.lowering.nvvm.exchange import Side, convert_through_memory, exchange, padded_extents
from mosaic_gpu.lowering.nvvm.memref import row_major
from mosaic_gpu.lowering.nvvm.predicates import Condition, Coordinates
from mosaic_gpu.lowering.nvvm.registers import chosen_layout
from mosaic_gpu.lowering.nvvm.shuffles import shuffle_xor


@dataclass(frozen=True)
class _Plan:
    """What one reduction works on.

    Attributes:
      layout, shape, axes: the inputs'.
      kept: the layout of the result, with base 1 along the axes.
    """

    layout: Layout
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    kept: Layout

    @property
    def kept_shape(self) -> tuple[int, ...]:
        """The shape with 1 along the axes."""
        return tuple(1 if d in self.axes else n for d, n in enumerate(self.shape))

    @property
    def groups(self) -> int:
        """Registers of the result."""
        return self.kept.num_registers(self.kept_shape)

    def folded_bits(self, start: int, stop: int) -> list[int]:
        """Bits start .. stop of the thread's number that lie along the axes."""
        pairs = list(zip(self.layout.thread_images, self.kept.thread_images, strict=True))
        return [b for b in range(start, min(stop, len(pairs))) if any(pairs[b][0]) and not any(pairs[b][1])]


@converts("mgpu.reduce")
def convert_reduce(conversion: Conversion, op: Any) -> list[ir.Value]:
    """The results are replicated: all threads along the reduced axes hold them."""
    inputs, identities = conversion.all(op.inputs), conversion.all(op.identities)
    combiner = Combiner(conversion, op.body.blocks[0])
    plan, values = _plan(conversion, op, inputs)
    values = _fold_registers(conversion, plan, combiner, values, identities)
    for bit in plan.folded_bits(0, LANE_BITS):
        values = _fold_lanes(conversion, combiner, values, bit)
    warp_bits = plan.folded_bits(LANE_BITS, LANE_BITS + 5)
    if warp_bits:
        values = _fold_warps(conversion, plan, combiner, values, warp_bits)
    if len(plan.axes) == len(plan.shape):
        return [emit.extract(v, 0) for v in values]
    return [_in_layout(conversion, plan, v, r.type) for v, r in zip(values, op.operation.results, strict=True)]


def _plan(conversion: Conversion, op: Any, inputs: Values) -> tuple[_Plan, Values]:
    """The plan; inputs whose layout mixes the axes with other dimensions are converted to one that does not."""
    types = [v.type for v in op.inputs]
    shape, axes = shape_of(types[0]), tuple(sorted(set(ints(op.axes))))
    layouts = [chosen_layout(t) for t in types]
    layout = layouts[0]
    try:
        kept = layout.collapse(axes)
    except ValueError:
        layout = Layout.blocked(shape, layout.num_warps)
        kept = layout.collapse(axes)
    values = [
        v if known == layout else convert_through_memory(conversion, v, shape, known, layout)
        for v, known in zip(inputs, layouts, strict=True)
    ]
    return _Plan(layout, shape, axes, kept), values


def _fold_registers(
    conversion: Conversion, plan: _Plan, combiner: Combiner, values: Values, identities: Sequence[ir.Value]
) -> Values:
    """Folds each thread's registers to those of the result; padding along the axes is replaced by identities."""
    neutral = [emit.splat(i, plan.groups) for i in identities]
    partial: Values | None = None
    for condition, slabs in _conditional_slabs(conversion, plan):
        order = [r for slab in slabs for r in slab]
        folded = combiner.fold([emit.pick(v, order) for v in values], plan.groups)
        if not isinstance(condition, bool):
            folded = [emit.select(condition, f, n) for f, n in zip(folded, neutral, strict=True)]
        partial = folded if partial is None else combiner(partial, folded)
    return neutral if partial is None else partial


def _conditional_slabs(conversion: Conversion, plan: _Plan) -> list[tuple[Condition, list[list[int]]]]:
    """The slabs that are not all padding, together where one condition says whether they are inside."""
    coordinates = Coordinates(conversion.threads, plan.layout, plan.shape)
    found: dict[Condition, list[list[int]]] = {}
    for slab in _slabs(plan):
        condition = coordinates.inside(slab[0], plan.axes)
        if condition is not False:
            found.setdefault(condition, []).append(slab)
    return list(found.items())


def _slabs(plan: _Plan) -> list[list[int]]:
    """Registers by their coordinates along the axes; in each list one for each register of the result, in order."""
    targets = {c: i for i, c in enumerate(plan.kept.register_offsets(plan.kept_shape))}
    slabs: dict[Coordinate, list[int]] = {}
    for register, offset in enumerate(plan.layout.register_offsets(plan.shape)):
        along = tuple(offset[d] for d in plan.axes)
        across = tuple(0 if d in plan.axes else c for d, c in enumerate(offset))
        slab = slabs.setdefault(along, [-1] * len(targets))
        slab[targets[across]] = register
    return list(slabs.values())


def _fold_lanes(conversion: Conversion, combiner: Combiner, values: Values, bit: int) -> Values:
    """Combines with the lane whose number differs in `bit`; the lower lane is on the left in both."""
    others = [shuffle_xor(v, 1 << bit) for v in values]
    if combiner.is_symmetric:
        return combiner(values, others)
    lower = conversion.threads.has_no_bits(1 << bit)
    left = [emit.select(lower, v, o) for v, o in zip(values, others, strict=True)]
    right = [emit.select(lower, o, v) for v, o in zip(values, others, strict=True)]
    return combiner(left, right)


def _fold_warps(conversion: Conversion, plan: _Plan, combiner: Combiner, values: Values, bits: Sequence[int]) -> Values:
    """Each warp leaves its part in shared memory; all threads read all parts of what they keep."""
    parts = 1 << len(bits)
    dims = [d for d in range(plan.layout.rank) if d not in plan.axes]
    shape = (*(plan.shape[d] for d in dims), parts)
    write = _parts_layout(plan, dims, bits, parts, in_registers=False)
    read = _parts_layout(plan, dims, bits, parts, in_registers=True)
    extents = padded_extents(write, shape)
    strides, start = row_major(extents), 0
    sides: list[tuple[Side, Side]] = []
    for value in values:
        element = emit.element(value.type)
        size = storage_bits(element) // 8
        first = -(-start // 16) * 16
        side = Side(write, shape, element, strides, first // size, extents)
        sides.append((side, Side(read, shape, element, strides, first // size, shape)))
        start = first + size * extents[0] * strides[0]
    writes = [(v, w) for v, (w, _) in zip(values, sides, strict=True)]
    loaded = exchange(conversion, writes, [r for _, r in sides], start)
    order = [g * parts + k for k in range(parts) for g in range(plan.groups)]
    return combiner.fold([emit.pick(v, order) for v in loaded], plan.groups)


def _parts_layout(plan: _Plan, dims: Sequence[int], bits: Sequence[int], parts: int, *, in_registers: bool) -> Layout:
    """The layout of the parts, shape (kept dimensions, parts): one part a warp, or all in consecutive registers."""

    def widen(image: Coordinate, part: int) -> Coordinate:
        return (*(image[d] for d in dims), part)

    number = {bit: 1 << i for i, bit in enumerate(bits)}
    own = [1 << i for i in range(len(bits))] if in_registers else []
    zero = (0,) * plan.layout.rank
    register = (*(widen(zero, p) for p in own), *(widen(i, 0) for i in plan.kept.register))
    threads = tuple(
        widen(image, 0 if in_registers else number.get(b, 0)) for b, image in enumerate(plan.kept.thread_images)
    )
    base = (*(plan.layout.base[d] for d in dims), parts)
    return Layout(base, register, threads[:LANE_BITS], threads[LANE_BITS:])


def _in_layout(conversion: Conversion, plan: _Plan, value: ir.Value, type_: ir.Type) -> ir.Value:
    """`value` in the layout of the result type, which nearly always is the one it has."""
    have, want = plan.kept.slice(plan.axes), chosen_layout(type_)
    return value if have == want else convert_through_memory(conversion, value, shape_of(type_), have, want)
