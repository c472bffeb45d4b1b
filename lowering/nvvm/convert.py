"""From one layout to another: register permutation, shuffles, or a pass through shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.layout_conversions import Shuffle
from mosaic_gpu.dialect.layout_conversions import conversion as plan_conversion
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.types import shape_of
from mosaic_gpu.lowering.nvvm import emit
from mosaic_gpu.lowering.nvvm.conversion import Conversion, converts
from mosaic_gpu.lowering.nvvm.exchange import convert_through_memory
from mosaic_gpu.lowering.nvvm.registers import chosen_layout
from mosaic_gpu.lowering.nvvm.shuffles import shuffle_from


@converts("mgpu.convert_layout")
def convert_convert_layout(conversion: Conversion, op: Any) -> list[ir.Value]:
    """The cheapest way that `layout_conversions` finds."""
    source, dest = chosen_layout(op.operand.type), chosen_layout(op.result.type)
    return [convert_tile(conversion, conversion.get(op.operand), shape_of(op.result.type), source, dest)]


def convert_tile(
    conversion: Conversion, value: ir.Value, shape: tuple[int, ...], source: Layout, dest: Layout
) -> ir.Value:
    """The vector of a tile in layout `source`, in layout `dest`."""
    plan = plan_conversion(source, dest, shape)
    if plan.kind == "registers":
        return emit.pick(value, _or_any(plan.registers))
    if plan.shuffle is not None:
        return _shuffled(conversion, value, plan.shuffle)
    return convert_through_memory(conversion, value, shape, source, dest)


def _or_any(registers: Sequence[int | None]) -> list[int]:
    return [-1 if r is None else r for r in registers]


def _shuffled(conversion: Conversion, value: ir.Value, plan: Shuffle) -> ir.Value:
    """The steps that `Shuffle` lists."""
    slots = emit.pick(value, _or_any(plan.sources))
    slots = _swapped(conversion, slots, plan.before)
    rounds: list[ir.Value | None] = []
    lane_part = conversion.threads.number(plan.lane_images)
    for pick, offset in zip(plan.picks, plan.lane_offsets, strict=True):
        rounds.append(None if pick is None else _from_lane(emit.pick(slots, [pick]), plan, lane_part, offset))
    anything = next(r for r in rounds if r is not None)
    got = emit.concat([anything if r is None else r for r in rounds])
    got = _swapped(conversion, got, plan.after)
    return emit.pick(got, plan.dests)


def _from_lane(slot: ir.Value, plan: Shuffle, lane_part: ir.Value | None, offset: int) -> ir.Value:
    if not plan.moves_lanes:
        return slot
    lane = emit.const(offset) if lane_part is None else emit.xor(lane_part, offset)
    return shuffle_from(slot, lane)


def _swapped(conversion: Conversion, slots: ir.Value, swaps: Sequence[tuple[int, int]]) -> ir.Value:
    """For each (bit, mask): threads with that bit take slot s ^ mask as slot s."""
    for bit, mask in swaps:
        clear = conversion.threads.has_no_bits(1 << bit)
        other = emit.pick(slots, [s ^ mask for s in range(emit.length(slots))])
        slots = emit.select(clear, slots, other)
    return slots
