"""atom and red.

Threads that reach different places do so at once.  Where several reach the same place they take turns
in the order of their numbers: in round r the r-th of each place acts, so the old values are those of a
real sequence.  Integer additions whose old value nobody reads are summed in one step.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mosaic_gpu.simulator import halves
from mosaic_gpu.simulator.exec_cluster import reduce_async
from mosaic_gpu.simulator.exec_memory import (
    access_of,
    check_written,
    note_write,
    place_name,
    take_hints,
    take_order,
    vector_count,
)
from mosaic_gpu.simulator.ptx import TYPES, Sink, Vector
from mosaic_gpu.simulator.registry import Decoder, Operation, instruction

Array = np.ndarray[Any, np.dtype[Any]]
_NAMES = ("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
_UNORDERED: dict[str, Any] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip


#: (type, elements) of the vectors.
_VECTORS = {("f32", 2), ("f32", 4), *((k, n) for k in ("f16", "bf16") for n in (2, 4, 8)),
            *((k, n) for k in ("f16x2", "bf16x2") for n in (2, 4))}  # fmt: skip


@instruction("atom")
def exec_atom(d: Decoder) -> Operation:
    return _atomic(d, 1, d.operand(0))


@instruction("red", dests=0)
def exec_red(d: Decoder) -> Operation:
    if d.flag("async"):
        return reduce_async(d)
    return _atomic(d, 0, Sink())


def _atomic(d: Decoder, at: int, target: Any) -> Operation:
    take_order(d, ("relaxed", "acquire", "release", "acq_rel"), "relaxed")
    space = d.one_of(("global", "shared", "shared::cta", "shared::cluster"))
    space = space if space == "shared::cluster" else space.partition("::")[0]
    take_hints(d)
    name, kind = d.one_of(_NAMES), d.type()
    d.flag("noftz")
    if not name or (kind == "b128" and name not in ("exch", "cas")):
        raise d.refuse()
    count = vector_count(d)
    if count > 1:
        return _vector(d, at, target, space, name, kind, count)
    d.count(at + 2, at + 3)
    storage = f"b{8 * TYPES[kind].itemsize}" if ("f" in kind and "x2" in kind) or kind in ("f16", "bf16") else kind
    access = access_of(d, at, space, TYPES[kind].itemsize, place_name(space, "atomic"))
    operands = [d.src(at + 1, storage)] + ([d.src(at + 2, storage)] if name == "cas" else [])
    result = None if isinstance(target, Sink) else d.destination(target, storage)
    update = _update(name, kind)
    quick = _UNORDERED.get(name) if result is None and "f" not in kind else None

    def run(slots: list[Array], frame: Any) -> None:
        for region, index, chosen in access.reach(slots, frame):
            access.written(region, frame)
            n = frame.n if chosen is None else len(chosen)
            values = [np.broadcast_to(slots[a] if chosen is None or len(slots[a]) == 1 else slots[a][chosen], n)
                      for a in operands]  # fmt: skip
            index = np.broadcast_to(index, n)
            memory = region.typed(TYPES[storage], 1)
            if region.shadow is not None:
                check_written(access, region, index, None, frame, chosen)
            if frame.wave.races is not None:
                note_write(access, region, index, frame, chosen)
            if quick is not None:
                quick.at(memory, index, values[0])
                continue
            old = in_turns(memory, index, values, update)
            if result is not None:
                slots[result][... if chosen is None else chosen] = old

    return run


def _vector(d: Decoder, at: int, target: Any, space: str, name: str, kind: str, count: int) -> Operation:
    """atom and red with .v2, .v4 or .v8, on global memory: each element is updated on its own (PTX ISA, "atom")."""
    names = ("add",) if kind == "f32" else ("add", "min", "max")
    if space not in ("", "global") or name not in names or (kind, count) not in _VECTORS:
        raise d.refuse("this vector")
    d.count(at + 2)
    bits = f"b{8 * TYPES[kind].itemsize}"
    storage = kind if kind == "f32" else bits
    access = access_of(d, at, space, TYPES[kind].itemsize * count, place_name(space, "atomic"))
    items = d.vector(at + 1)
    results = [d.destination(item, bits) for item in target.items] if isinstance(target, Vector) else []
    if len(items) != count or len(results) not in (0, count):
        raise d.fail(f"vectors of {count} expected")
    sources = [d.source(item, storage) for item in items]
    update = _update(name, kind)

    def run(slots: list[Array], frame: Any) -> None:
        for region, index, chosen in access.reach(slots, frame):
            access.written(region, frame)
            if frame.wave.races is not None:
                note_write(access, region, index, frame, chosen)
            n = frame.n if chosen is None else len(chosen)
            memory = region.typed(TYPES[storage], count)
            for i, source in enumerate(sources):
                value = slots[source] if chosen is None or len(slots[source]) == 1 else slots[source][chosen]
                old = in_turns(memory[:, i], np.broadcast_to(index, n), [np.broadcast_to(value, n)], update)
                if results:
                    slots[results[i]][... if chosen is None else chosen] = old.view(TYPES[bits])

    return run


def _update(name: str, kind: str) -> Any:
    """The function (old, operands) -> new."""
    if name == "exch":
        return lambda old, v: v[0]
    if name == "cas":
        return lambda old, v: np.where(old == v[0], v[1], old)
    if name == "inc":
        return lambda old, v: np.where(old >= v[0], old.dtype.type(0), old + old.dtype.type(1))
    if name == "dec":
        return lambda old, v: np.where((old == 0) | (old > v[0]), v[0], old - old.dtype.type(1))
    if kind in ("f16", "bf16", "f16x2", "bf16x2"):
        return _half_update(name, kind)
    ufunc = _UNORDERED[name]
    return lambda old, v: ufunc(old, v[0])


def _half_update(name: str, kind: str) -> Any:
    element, ufunc = kind.removesuffix("x2"), {"add": np.add, "min": np.fmin, "max": np.fmax}[name]

    def one(a: Array, b: Array) -> Array:
        return halves.narrow(ufunc(halves.widen(a, element), halves.widen(b, element)), element)

    if not kind.endswith("x2"):
        return lambda old, v: one(old, v[0])
    return lambda old, v: halves.join(one(halves.low(old), halves.low(v[0])), one(halves.high(old), halves.high(v[0])))


def in_turns(memory: Array, index: Array, values: list[Array], update: Any) -> Array:
    """Applies `update` for each thread in order; returns the value each one found."""
    order = np.argsort(index, kind="stable")
    place = index[order]
    first = np.concatenate([[True], place[1:] != place[:-1]])
    starts = np.flatnonzero(first)
    if len(starts) == len(index):
        old = memory[index]
        memory[index] = update(old, values)
        return old
    counts = np.diff(np.append(starts, len(index)))
    old = np.empty(len(index), memory.dtype)
    for turn in range(int(counts.max())):
        actors = order[starts[counts > turn] + turn]
        found = memory[index[actors]]
        old[actors] = found
        memory[index[actors]] = update(found, [v[actors] for v in values])
    return old
