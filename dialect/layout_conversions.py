"""How a tile goes from one register layout to another: inside threads, across lanes, or through shared memory.

Let A and B be the layouts, both brought to one base tile (repetitions become register bits).  The holder
in A of what B's (register, lane, warp) shall hold is A^-1 B (register, lane, warp), linear over GF(2):

    source register = G_r rb + G_l l + G_w w      source lane = F_r rb + F_l l + F_w w      source warp = w

If the source warp is not always the thread's own, the tile passes through shared memory.  Otherwise the
exchange runs in rounds k, one a destination register.  In round k lane l fills register rb = k + H l; H is
chosen so that the lane it reads from,

    la = M l + F_r k + F_w w,    M = F_l + F_r H,

tells which of its registers lane la must offer: D la + P k + W w.  The lane-dependent parts are XORs of
register numbers, so each set bit of D, W and H costs one select a register ("swap s with s ^ mask in the
threads that have this bit").  Example, a 4x4 transposition among four lanes with four registers
(A: r -> column, l -> row; B: r -> row, l -> column): G_l = F_r = identity, the rest zero; H = identity
makes M = identity, so D = identity: select, shuffle from lane l + k, select.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mosaic_gpu.dialect.bits import apply, kernel, reduce_by, solve
from mosaic_gpu.dialect.layouts import LANE_BITS, WARP_SIZE, Layout

BitMask = tuple[int, int]
INSTRUCTIONS_PER_REGISTER = 6
"""Shuffles and selects a register up to which a shuffle beats a store, a barrier and a load."""


@dataclass(frozen=True)
class Shuffle:
    """An exchange inside each warp.  All lists are over *slots*: register numbers in the common base tile.

    A thread t = lane + 32 * warp runs:
      1. slot[s] = source register `sources[s]` (None: padding, any value).
      2. for (bit, mask) in `before`: in threads with bit `bit` of t set, slot[s] := slot[s ^ mask], all s at once.
      3. for each round k with `picks[k]` not None: got[k] = slot[picks[k]] of lane `source_lane(t, k)` of the same warp
         (where `moves_lanes` is false that is the thread itself).
      4. for (bit, mask) in `after`: in threads with the bit set, got[k] := got[k ^ mask], all k at once.
      5. destination register r = got[dests[r]].
    """

    sources: tuple[int | None, ...]
    before: tuple[BitMask, ...]
    picks: tuple[int | None, ...]
    lane_images: tuple[int, ...]
    lane_offsets: tuple[int, ...]
    after: tuple[BitMask, ...]
    dests: tuple[int, ...]

    def source_lane(self, thread: int, round_: int) -> int:
        """The lane that `thread` reads from in a round: the images of its bits, XORed with the round's offset."""
        return apply(self.lane_images, thread) ^ self.lane_offsets[round_]

    @property
    def moves_lanes(self) -> bool:
        identity = (*(1 << i for i in range(LANE_BITS)), *(0 for _ in self.lane_images[LANE_BITS:]))
        return self.lane_images != identity or any(self.lane_offsets)

    @property
    def instructions(self) -> int:
        """Shuffles and selects a thread needs, for elements of at most 32 bits."""
        rounds = sum(pick is not None for pick in self.picks)
        selects = len(self.before) * len(self.sources) + len(self.after) * len(self.picks)
        return selects + (rounds if self.moves_lanes else 0)


@dataclass(frozen=True)
class Conversion:
    """The way from one layout to another.

    Attributes:
      kind: "registers" (each thread has what it needs), "shuffle" (its warp has), or "shared" (through shared memory).
      registers: for "registers", the source register of each destination register; None: padding, any value.
      shuffle: for "shuffle".
    """

    kind: Literal["registers", "shuffle", "shared"]
    registers: tuple[int | None, ...] = ()
    shuffle: Shuffle | None = None


SHARED = Conversion("shared")


@lru_cache(512)
def conversion(source: Layout, dest: Layout, shape: tuple[int, ...]) -> Conversion:
    """How a tile of `shape` goes from layout `source` to `dest` (of the same number of warps)."""
    if source.rank != dest.rank or source.num_warps != dest.num_warps:
        raise ValueError(f"no conversion between {source} and {dest}: ranks or numbers of warps differ")
    if source == dest:
        return Conversion("registers", tuple(range(source.num_registers(shape))))
    base = [max(m, n) for m, n in zip(source.base, dest.base, strict=True)]
    wide_source, wide_dest = source.extend(base), dest.extend(base)
    columns = _holders(wide_source, wide_dest)
    if columns is None:
        return SHARED
    source_slots = slot_registers(source, wide_source, shape)
    dest_slots = slot_registers(dest, wide_dest, shape)
    plan = _plan(columns, len(wide_source.register), len(wide_dest.register), source_slots, dest_slots)
    if plan is None:
        return SHARED
    if not (plan.before or plan.after or plan.moves_lanes):
        return Conversion("registers", tuple(_picked(plan, slot) for slot in plan.dests))
    registers = source.num_registers(shape), dest.num_registers(shape)
    if registers[1] > 2 * registers[0] or plan.instructions > INSTRUCTIONS_PER_REGISTER * max(registers):
        return SHARED
    return Conversion("shuffle", shuffle=plan)


def slot_registers(layout: Layout, wide: Layout, shape: Sequence[int]) -> tuple[int | None, ...]:
    """For each register of `wide` (`layout.extend(...)`) the register of `layout`; None where it has none (padding)."""
    numbers = {offset: r for r, offset in enumerate(layout.register_offsets(shape))}
    return tuple(numbers.get(offset) for offset in wide.register_offsets(shape))


def _picked(plan: Shuffle, slot: int) -> int | None:
    pick = plan.picks[slot]
    return None if pick is None else plan.sources[pick]


@dataclass(frozen=True)
class _Columns:
    """Columns of the maps at the head of this file: for each register, lane and warp bit of the destination."""

    registers: list[int]
    lanes: list[int]


def _holders(source: Layout, dest: Layout) -> _Columns | None:
    """Source register and source lane for each bit of the destination; None where it is in another warp."""
    na, free = len(source.register), source.free_threads
    images = [source.flat(image) for image in (*source.register, *source.thread_images)]
    targets = [dest.flat(image) for image in (*dest.register, *dest.thread_images)]
    solutions = solve(images, targets)
    if solutions is None:
        raise AssertionError(f"{source} does not cover its base")
    registers, lanes = [], []
    for number, solution in enumerate(solutions):
        bit = number - len(dest.register)
        thread = solution >> na | (free & (1 << bit) if bit >= 0 else 0)
        own = 1 << (bit - LANE_BITS) if bit >= LANE_BITS else 0
        if thread >> LANE_BITS != own:
            return None
        registers.append(solution & ((1 << na) - 1))
        lanes.append(thread & (WARP_SIZE - 1))
    return _Columns(registers, lanes)


def _plan(
    columns: _Columns, na: int, nb: int, sources: tuple[int | None, ...], dest_slots: tuple[int | None, ...]
) -> Shuffle | None:
    g_r, g_l, g_w = _split(columns.registers, nb)
    f_r, f_l, f_w = _split(columns.lanes, nb)
    h = _skew(f_r, f_l, g_l)
    if h is None:
        return None
    m = [f ^ apply(f_r, column) for f, column in zip(f_l, h, strict=True)]
    offered = [g ^ apply(g_r, column) for g, column in zip(g_l, h, strict=True)]
    d = _through(m, offered)
    if d is None:
        return None
    by_warp = [g ^ apply(d, f) for g, f in zip(g_w, f_w, strict=True)]
    pick = [g ^ apply(d, f) for g, f in zip(g_r, f_r, strict=True)]
    before = tuple((bit, mask) for bit, mask in enumerate((*d, *by_warp)) if mask)
    after = tuple((bit, mask) for bit, mask in enumerate(h) if mask)
    dests = {register: slot for slot, register in enumerate(dest_slots) if register is not None}
    needed = _reached(dests.values(), [mask for _, mask in after])
    low = (1 << nb) - 1
    picks = [(k >> nb << na) | apply(pick, k & low) if k in needed else None for k in range(len(dest_slots))]
    offsets = tuple(apply(f_r, k & low) for k in range(len(dest_slots)))
    ordered = tuple(dests[r] for r in range(len(dests)))
    return Shuffle(sources, before, tuple(picks), (*m, *f_w), offsets, after, ordered)


def _split(columns: list[int], nb: int) -> tuple[list[int], list[int], list[int]]:
    return columns[:nb], columns[nb : nb + LANE_BITS], columns[nb + LANE_BITS :]


def _reached(slots: Iterable[int], masks: Sequence[int]) -> set[int]:
    reached = set(slots)
    for mask in masks:
        reached |= {slot ^ mask for slot in reached}
    return reached


def _skew(f_r: list[int], f_l: list[int], g_l: list[int]) -> list[int] | None:
    """Columns of H, one a lane bit: no two lanes that need different registers read from one lane in one round."""
    pivots: dict[int, int] = {}
    for column in f_l:
        rest = reduce_by(pivots, column)
        if rest:
            pivots[rest.bit_length()] = rest
    h = [0] * LANE_BITS
    spare = list(range(len(f_r)))
    for vector in kernel(f_l):
        if not apply(g_l, vector):
            continue
        for r in spare:
            rest = reduce_by(pivots, f_r[r])
            if rest:
                pivots[rest.bit_length()] = rest
                # The kernel's vectors come in echelon form: the highest bit of each is in no other one.
                h[vector.bit_length() - 1] ^= 1 << r
                spare.remove(r)
                break
        else:
            return None
    return h


def _through(m: list[int], offered: list[int]) -> list[int] | None:
    """Columns of D, one a source lane bit, with D M = offered; None where M forgets what it needs."""
    for vector in kernel(m):
        if apply(offered, vector):
            return None
    units = [1 << i for i in range(LANE_BITS)]
    d = []
    for how in _complete(m, units):
        d.append(apply(offered, how))
    return d


def _complete(m: list[int], units: list[int]) -> list[int]:
    """For each unit vector of source lanes a lane vector that M maps to it; complements of M's image map to 0."""
    padded = [*m, *units]
    solutions = solve(padded, units)
    if solutions is None:
        raise AssertionError("unit vectors span everything")
    return [solution & (WARP_SIZE - 1) for solution in solutions]


def run_conversion(plan: Conversion, values: NDArray[np.int64]) -> NDArray[np.int64]:
    """What a plan of kind "registers" or "shuffle" does to `values`: the executable meaning of `Shuffle`.

    From [threads, source registers] to [threads, destination registers]; padding becomes -1.
    """
    threads = np.arange(values.shape[0])
    blank = np.full(values.shape[0], -1, values.dtype)

    def column(array: NDArray[np.int64], register: int | None) -> NDArray[np.int64]:
        return blank if register is None else array[:, register]

    if plan.shuffle is None:
        return np.stack([column(values, r) for r in plan.registers], axis=1)
    shuffle = plan.shuffle
    slots = np.stack([column(values, r) for r in shuffle.sources], axis=1)
    for bit, mask in shuffle.before:
        swapped = slots[:, np.arange(slots.shape[1]) ^ mask]
        slots = np.where((threads >> bit & 1)[:, None] == 1, swapped, slots)
    got = np.full((len(threads), len(shuffle.picks)), -1, values.dtype)
    for k, pick in enumerate(shuffle.picks):
        if pick is not None:
            lanes = np.array([shuffle.source_lane(int(t), k) for t in threads])
            got[:, k] = slots[threads // WARP_SIZE * WARP_SIZE + lanes, pick]
    for bit, mask in shuffle.after:
        swapped = got[:, np.arange(got.shape[1]) ^ mask]
        got = np.where((threads >> bit & 1)[:, None] == 1, swapped, got)
    return got[:, list(shuffle.dests)]
