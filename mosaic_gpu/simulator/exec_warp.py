"""Instructions among the lanes of a warp: shfl, vote, match, redux, activemask, elect, bar.warp.

The machine runs a `.sync` instruction only when the threads of its member mask are together, so each
function sees all lanes that take part.  The general form spreads the lanes over a table of warps x 32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mosaic_gpu.simulator.ptx import TYPES, Sink
from mosaic_gpu.simulator.registry import Decoder, Operation, instruction

Array = np.ndarray[Any, np.dtype[Any]]
U32 = np.uint32


def take_mask(d: Decoder, index: int) -> int:
    """The member mask, which the machine waits for."""
    d.member_mask = d.src(index, "u32")
    return d.member_mask


def lane_table(frame: Any, value: Array, empty: Any) -> tuple[Array, Array, Array]:
    """(table of warps x 32 with `empty` where no thread is, each thread's row, each thread's lane)."""
    wave = frame.wave
    warp, lane = frame.pick(wave.warp_of), frame.pick(wave.lane)
    if frame.threads is not None:
        rows, warp = np.unique(warp, return_inverse=True)
        count = len(rows)
    else:
        count = wave.warps
        if wave.per_block % 32 == 0 and len(value) == frame.n:
            return value.reshape(-1, 32), warp, lane
    table = np.full((count, 32), empty, value.dtype)
    table[warp, lane] = value
    return table, warp, lane


@instruction("shfl", converges=True)
def exec_shfl(d: Decoder) -> Operation:
    if not d.flag("sync"):
        raise d.refuse("without .sync")
    mode, kind = d.need(("up", "down", "bfly", "idx")), d.type()
    d.count(5)
    target, valid = d.pair(0)
    o = d.destination(target, "b32")
    p = None if isinstance(valid, Sink) else d.destination(valid, "pred")
    a, b, c = d.src(1, "b32"), d.src(2, "u32"), d.src(3, "u32")
    take_mask(d, 4)
    if kind != "b32":
        raise d.fail(".b32 expected")

    def run(slots: list[Array], frame: Any) -> None:
        if frame.threads is None and len(slots[b]) == 1 and len(slots[c]) == 1 and frame.wave.per_block % 32 == 0:
            _shuffle_whole(mode, slots, frame, (o, p, a), int(slots[b][0]), int(slots[c][0]))
        else:
            _shuffle(d, mode, slots, frame, (o, p, a, b, c))

    return run


def source_lanes(mode: str, lane: Array, b: Array, c: Array) -> tuple[Array, Array]:
    """(source lane, whether it is in range) by the pseudo-code of the PTX ISA, shfl.sync."""
    b, clamp, segment = b & 31, c & 31, (c >> 8) & 31
    bound = (lane & segment) | (clamp & ~segment & 31)
    least = lane & segment
    if mode == "up":
        source = lane - b
        inside = source >= bound
    elif mode == "down":
        source = lane + b
        inside = source <= bound
    elif mode == "bfly":
        source = lane ^ b
        inside = source <= bound
    else:
        source = least | (b & ~segment & 31)
        inside = source <= bound
    return np.where(inside, source, lane), inside


def _shuffle_whole(mode: str, slots: list[Array], frame: Any, at: tuple[int, int | None, int], b: int, c: int) -> None:
    """Every lane of every warp takes part and the pattern is the same: one gather of columns."""
    lanes = np.arange(32)
    source, inside = source_lanes(mode, lanes, np.array(b), np.array(c))
    o, p, a = at
    value = np.broadcast_to(slots[a], frame.n).reshape(-1, 32)
    result = value[:, source]
    slots[o].reshape(-1, 32)[...] = result
    if p is not None:
        slots[p].reshape(-1, 32)[...] = inside


def _shuffle(d: Decoder, mode: str, slots: list[Array], frame: Any, at: tuple[int, int | None, int, int, int]) -> None:
    o, p, a, b, c = at
    lane = frame.pick(frame.wave.lane)
    source, inside = source_lanes(mode, lane, slots[b].astype(np.int64), slots[c].astype(np.int64))
    value = np.broadcast_to(slots[a], frame.n)
    table, warp, _ = lane_table(frame, value, 0)
    there, _, _ = lane_table(frame, np.ones(frame.n, np.bool_), False)
    slots[o][...] = np.where(there[warp, source], table[warp, source], value)
    if p is not None:
        slots[p][...] = inside


def lane_masks(frame: Any, value: Array) -> Array:
    """For each thread, the bits of the lanes of its warp for which `value` holds."""
    table, warp, _ = lane_table(frame, np.broadcast_to(value, frame.n), False)
    bits = np.packbits(table, axis=1, bitorder="little").view(U32).reshape(-1)
    return bits[warp]


@instruction("vote", converges=True)
def exec_vote(d: Decoder) -> Operation:
    if not d.flag("sync"):
        raise d.refuse("without .sync")
    mode, kind = d.need(("all", "any", "uni", "ballot")), d.type()
    d.count(3)
    o = d.dst(0, "b32" if mode == "ballot" else "pred")
    a, negated = d.predicate(d.operand(1))
    mask = take_mask(d, 2)
    if (kind == "pred") == (mode == "ballot"):
        raise d.fail("the type does not fit the mode")

    def run(slots: list[Array], frame: Any) -> None:
        yes = lane_masks(frame, slots[a] ^ negated) & slots[mask]
        if mode == "ballot":
            slots[o][...] = yes
            return
        members = lane_masks(frame, np.ones(1, np.bool_)) & slots[mask]
        every, none = yes == members, yes == 0
        slots[o][...] = every if mode == "all" else ~none if mode == "any" else every | none

    return run


@instruction("match", converges=True)
def exec_match(d: Decoder) -> Operation:
    mode = d.need(("any", "all"))
    d.flag("sync")
    kind = d.type()
    d.count(3)
    target, valid = d.pair(0)
    o = d.destination(target, "b32")
    p = None if isinstance(valid, Sink) else d.destination(valid, "pred")
    a, mask = d.src(1, kind), take_mask(d, 2)

    def run(slots: list[Array], frame: Any) -> None:
        value = np.broadcast_to(slots[a], frame.n)
        table, warp, _ = lane_table(frame, value, 0)
        members = lane_masks(frame, np.ones(1, np.bool_)) & slots[mask]
        present = (members[:, None] >> np.arange(32, dtype=U32)) & 1 == 1
        equal = (table[warp] == value[:, None]) & present
        bits = np.packbits(equal, axis=1, bitorder="little").view(U32).reshape(-1)
        same = bits == members
        slots[o][...] = bits if mode == "any" else np.where(same, members, U32(0))
        if p is not None:
            slots[p][...] = same

    return run


_REDUCTIONS: dict[str, Any] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip


def _neutral(name: str, dtype: np.dtype[Any]) -> Any:
    limits = np.iinfo(dtype)
    return {"min": limits.max, "max": limits.min, "and": -1 if dtype.kind == "i" else limits.max}.get(name, 0)


@instruction("redux", converges=True)
def exec_redux(d: Decoder) -> Operation:
    d.flag("sync")
    name, kind = d.one_of(tuple(_REDUCTIONS)), d.type()
    if not name or "f" in kind:
        raise d.refuse()
    d.count(3)
    o, a, mask = d.dst(0, kind), d.src(1, kind), take_mask(d, 2)
    neutral = _neutral(name, TYPES[kind])

    def run(slots: list[Array], frame: Any) -> None:
        value = np.broadcast_to(slots[a], frame.n)
        lane = frame.pick(frame.wave.lane).astype(U32)
        inside = (slots[mask] >> lane) & 1 == 1
        # Lanes with different masks, such as the tiles of a warp, are different reductions.
        first = slots[mask][:1]
        for members in first if (slots[mask] == first).all() else np.unique(slots[mask]):
            mine = inside & (slots[mask] == members)
            table, warp, _ = lane_table(frame, np.where(mine, value, neutral).astype(value.dtype), neutral)
            total = _REDUCTIONS[name].reduce(table, axis=1, dtype=table.dtype)[warp]
            np.copyto(slots[o], total, where=mine)

    return run


@instruction("activemask")
def exec_activemask(d: Decoder) -> Operation:
    d.count(1)
    o = d.dst(0, "b32")

    def run(slots: list[Array], frame: Any) -> None:
        slots[o][...] = lane_masks(frame, np.ones(1, np.bool_))

    return run


@instruction("elect", converges=True)
def exec_elect(d: Decoder) -> Operation:
    d.flag("sync")
    target, elected = d.pair(0)
    o, p = d.destination(target, "b32"), d.destination(elected, "pred")
    mask = take_mask(d, 1)

    def run(slots: list[Array], frame: Any) -> None:
        members = lane_masks(frame, np.ones(1, np.bool_)) & slots[mask]
        lowest = members & (~members + U32(1))
        leader = np.log2(lowest.astype(np.float64)).astype(U32)
        slots[o][...] = leader
        slots[p][...] = frame.pick(frame.wave.lane) == leader

    return run


@instruction("bar", dests=0, converges=True)
def exec_bar_warp(d: Decoder) -> Operation | None:
    d.flag("warp")
    d.flag("sync")
    d.count(1)
    take_mask(d, 0)
    return _meet


def _meet(slots: list[Array], frame: Any) -> None:
    if frame.wave.races is not None:
        frame.wave.races.warp_barrier(frame.ids)
