"""mov, cvta, isspacep, and moves that pack and unpack registers."""

from __future__ import annotations

from typing import Any

import numpy as np

from mosaic_gpu.simulator.memory import LOCAL_WINDOW, PARAM_WINDOW, RANK_SHIFT, SHARED_WINDOW, WINDOW_BYTES
from mosaic_gpu.simulator.ptx import TYPES, Immediate, Operand, Register, Sink, Special, Symbol, Vector
from mosaic_gpu.simulator.registry import Decoder, Operation, instruction
from mosaic_gpu.simulator.slots import TIMERS

Array = np.ndarray[Any, np.dtype[Any]]
#: In nanoseconds since 1970, so that the upper half is not zero.
_TIMER_START = 1_700_000_000 * 10**9
_WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}


@instruction("mov")
def exec_mov(d: Decoder) -> Operation:
    d.count(2)
    kind, target, source = d.type(), d.operand(0), d.operand(1)
    if isinstance(source, Vector) or isinstance(target, Vector):
        return _mov_vector(d, kind)
    if isinstance(source, Special) and source.name in TIMERS:
        return _mov_timer(d, source.name, kind)
    bits = kind if kind == "pred" else f"b{8 * TYPES[kind].itemsize}"
    if isinstance(source, Immediate) and source.kind != "int":
        a, o = d.source(source, kind), d.dst(0, kind)
    else:
        a, o = d.src(1, bits), d.dst(0, bits)

    def run(slots: list[Array], frame: Any) -> None:
        np.copyto(slots[o], slots[a], casting="unsafe")

    return run


def _mov_timer(d: Decoder, name: str, kind: str) -> Operation:
    """Clocks count thread-instructions run so far, and so does globaltimer, as nanoseconds from a fixed start."""
    o = d.dst(0, kind)
    upper = name.endswith("_hi")

    def run(slots: list[Array], frame: Any) -> None:
        value = frame.wave.clock() + (_TIMER_START if "globaltimer" in name else 0)
        mask = (1 << 8 * slots[o].dtype.itemsize) - 1
        slots[o][...] = (value >> 32 if upper else value) & mask

    return run


def _mov_vector(d: Decoder, kind: str) -> Operation:
    """mov.b32 {a, b}, c and mov.b32 c, {a, b}: the first item is the lowest part."""
    target, source = d.operand(0), d.operand(1)
    if isinstance(target, Vector) and isinstance(source, Vector):
        raise d.fail("one side must be a register")
    items: tuple[Operand, ...] = target.items if isinstance(target, Vector) else source.items  # type: ignore[union-attr]
    part = f"b{8 * TYPES[kind].itemsize // max(1, len(items))}"
    if kind == "b128" and isinstance(source, Vector):
        return _pack_b128(d, items)
    if part not in TYPES or kind == "pred" or len(items) < 2:
        raise d.fail(f"{len(items)} parts of a .{kind}")
    if isinstance(target, Vector):
        return _unpack(d, items, source, part)
    return _pack(d, items, kind, part)


def _unpack(d: Decoder, items: tuple[Operand, ...], source: Operand, part: str) -> Operation:
    if not isinstance(source, Register):
        raise d.fail("a register expected")
    pairs = [
        (d.destination(item, part), d.part(source, TYPES[part], i))
        for i, item in enumerate(items)
        if not isinstance(item, Sink)
    ]
    names = {item.name for item in items if isinstance(item, Register)}
    overlap = source.name in names

    def run(slots: list[Array], frame: Any) -> None:
        parts = [slots[a].copy() if overlap else slots[a] for _, a in pairs]
        for (o, _), value in zip(pairs, parts, strict=True):
            slots[o][...] = value

    return run


def _pack(d: Decoder, items: tuple[Operand, ...], kind: str, part: str) -> Operation:
    sources = [d.source(item, part) for item in items]
    o = d.dst(0, f"b{8 * TYPES[kind].itemsize}")
    wide = TYPES[f"b{8 * TYPES[kind].itemsize}"].type
    shifts = [wide(8 * TYPES[part].itemsize * i) for i in range(len(items))]

    def run(slots: list[Array], frame: Any) -> None:
        total = slots[sources[0]].astype(wide)
        for a, shift in zip(sources[1:], shifts[1:], strict=True):
            total = total | np.left_shift(slots[a].astype(wide), shift)
        slots[o][...] = total

    return run


def _pack_b128(d: Decoder, items: tuple[Operand, ...]) -> Operation:
    """mov.b128 d, {low, high}."""
    d.count(2)
    if len(items) != 2:
        raise d.fail("two parts of a .b128 expected")
    low, high = (d.source(item, "b64") for item in items)
    o = d.dst(0, "b128")

    def run(slots: list[Array], frame: Any) -> None:
        parts = np.broadcast_arrays(slots[low], slots[high], np.empty(len(slots[o]), np.bool_))[:2]
        slots[o][...] = np.stack(parts, axis=1).view(TYPES["b128"]).reshape(-1)

    return run


@instruction("cvta")
def exec_cvta(d: Decoder) -> Operation:
    to_space = d.flag("to")
    space, kind = d.one_of(("global", "shared", "local", "const", "param")), d.type()
    if d.one_of(("shared::cta", "shared::cluster")):
        space = "shared"
    if not space:
        raise d.refuse()
    base = 0 if isinstance(d.operand(1), Symbol) and space == "param" else _WINDOWS.get(space, 0)
    if space == "param":
        base = 0
    o, a = d.dst(0, kind), d.src(1, kind)
    step = np.uint64(-base % (1 << 64) if to_space else base)

    def run(slots: list[Array], frame: Any) -> None:
        np.add(slots[a], step, slots[o]) if base else np.copyto(slots[o], slots[a])

    return run


@instruction("isspacep")
def exec_isspacep(d: Decoder) -> Operation:
    space = d.need(("global", "shared", "shared::cta", "shared::cluster", "local", "const", "param"))
    o, a = d.dst(0, "pred"), d.src(1, "b64")
    base = np.uint64(_WINDOWS.get(space.partition("::")[0], 0))
    own = space in ("shared", "shared::cta")

    def run(slots: list[Array], frame: Any) -> None:
        if not base:
            np.less(slots[a], np.uint64(SHARED_WINDOW), slots[o])
        else:
            np.less(slots[a] - base, np.uint64(WINDOW_BYTES), slots[o])
            if own:
                rank = ((slots[a] - base) >> np.uint64(RANK_SHIFT)).astype(np.int64)
                slots[o][...] &= (rank == 0) | (rank == frame.wave.rank[frame.wave.block_of[frame.ids]] + 1)

    return run
