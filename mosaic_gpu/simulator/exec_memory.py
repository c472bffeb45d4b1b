"""ld, ldu, st, prefetch and their like."""

from __future__ import annotations

from typing import Any

import numpy as np

from mosaic_gpu.errors import SimulationError
from mosaic_gpu.simulator.copies import IN_FLIGHT
from mosaic_gpu.simulator.memory import LOCAL_WINDOW, WINDOW_BYTES, Access, Region, window_slice
from mosaic_gpu.simulator.ptx import TYPES, Address, Register, Sink, Symbol
from mosaic_gpu.simulator.registry import Decoder, Operation, instruction

Array = np.ndarray[Any, np.dtype[Any]]
_SPACES = (
    "global", "shared", "local", "param", "const", "shared::cta", "shared::cluster", "param::entry", "param::func",
)  # fmt: skip
_ORDERS = ("volatile", "relaxed", "acquire", "release", "weak", "mmio")
_SCOPES = ("cta", "cluster", "gpu", "sys")
_CACHES = ("ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc")


def take_space(d: Decoder) -> str:
    """The state space of an access, "" for a generic one; consumes order, scope and cache hints.  Only
    shared::cluster keeps its second part."""
    take_order(d, _ORDERS)
    space = d.one_of(_SPACES)
    take_hints(d)
    return space if space == "shared::cluster" else space.partition("::")[0]


def take_order(d: Decoder, orders: tuple[str, ...], default: str = "") -> None:
    """Consumes memory order and scope."""
    order = d.one_of(orders, default)
    d.order = "" if order == "weak" else order
    if d.one_of(_SCOPES) in ("gpu", "sys") and order in ("acquire", "release", "acq_rel"):
        d.layout.fenced = True


def take_hints(d: Decoder) -> None:
    """Cache hints change nothing here; the last operand of .L2::cache_hint, a policy, is taken off."""
    if d.flag("L2::cache_hint"):
        d.source(d.operand(len(d.operands) - 1), "b64")
        d.operands = d.operands[:-1]
    while d.one_of(_CACHES):
        pass
    for word in list(d.words):
        if word.startswith(("L1::", "L2::")):
            d.words.remove(word)


def access_of(d: Decoder, index: int, space: str, total: int, what: str) -> Access:
    """How operand `index`, an address, is reached."""
    address = d.address(index)
    if address.extra:
        raise d.refuse("a second address operand")
    return access_to(d, address, space, total, what)


def access_to(d: Decoder, address: Address, space: str, total: int, what: str) -> Access:
    """How an address is reached."""
    remote = space == "shared::cluster"
    space = space.partition("::")[0]
    base = address.base
    if isinstance(base, Symbol):
        key = d.layout.find(d.slots.function, base.name)
        if key is None:
            raise d.fail(f"`{base.name}` is not a variable here")
        declared = d.layout.spaces[key]
        if space and declared != space and {declared, space} != {"global", "const"}:
            raise d.fail(f"`{base.name}` is a .{declared} variable")
        address_of = d.layout.addresses[key]
        if space == "param" and LOCAL_WINDOW <= address_of < LOCAL_WINDOW + WINDOW_BYTES:
            slot = d.slots.constant(np.uint64(address_of - LOCAL_WINDOW + base.offset), TYPES["u64"])
            return Access(d.instruction, "local", slot, address.offset, total, what)
    wide = not (isinstance(base, Register) and TYPES[base.type].itemsize == 4)
    if not wide and space not in ("shared", "local"):
        raise d.fail(f"a 32-bit address of .{space or 'generic'} memory")
    access = Access(d.instruction, space, d.source(base, "u64" if wide else "u32"), address.offset, total, what)
    access.remote = remote
    access.order, access.strong = d.order, d.order != ""
    return d.layout.note_access(access)


def place_name(space: str, what: str) -> str:
    """What an access is called in an error."""
    return f"{space} {what}" if space else f"generic {what}"


@instruction("ld", "ldu", dests=1)
def exec_ld(d: Decoder) -> Operation:
    space = take_space(d)
    d.count(2)
    count, kind = vector_count(d), d.type()
    dtype = TYPES[kind] if kind[0] in "su" else TYPES[f"b{8 * TYPES[kind].itemsize}"]
    access = access_of(d, 1, space, dtype.itemsize * count, place_name(space, "load"))
    # The first look of a compare-and-swap loop: a torn or stale value only makes the swap fail.
    access.strong |= (d.slots.function, d.address(1)) in d.layout.swapped
    items = d.vector(0)
    if len(items) != count:
        raise d.fail(f"{count} destinations expected")
    stored = kind if kind[0] in "su" else f"b{8 * dtype.itemsize}"
    access.targets = tuple((d.slots.function, r.name) if isinstance(r, Register) else None for r in items)
    targets = [(i, d.destination(item, stored)) for i, item in enumerate(items) if not isinstance(item, Sink)]
    if count == 1:
        return _load_one(access, dtype, targets[0][1] if targets else None)
    return _load_vector(access, dtype, count, targets)


def vector_count(d: Decoder) -> int:
    """1, or what .v2, .v4 or .v8 says."""
    word = d.one_of(("v2", "v4", "v8"))
    return int(word[1:]) if word else 1


def fetch(
    access: Access,
    region: Region,
    index: Array,
    dtype: np.dtype[Any],
    count: int,
    frame: Any,
    chosen: Array | None,
) -> Array:
    """The elements at `index`; raises SimulationError for memory that was never written."""
    window = window_slice(index, frame.wave.iota)
    if region.shadow is not None:
        check_written(access, region, index, window, frame, chosen)
    if frame.wave.races is not None:
        note_read(access, region, index if window is None else window, frame, chosen)
    memory = region.typed(dtype, count)
    return memory[window] if window is not None else memory.take(index, axis=0)


def note_read(access: Access, region: Region, where: Any, frame: Any, chosen: Array | None) -> None:
    """Tells the race detector of a read."""
    races = frame.wave.races
    if access.strong:
        races.strong(frame.ids, acquires=access.order in ("acquire", "acq_rel"), releases=False)
    races.read(access, region, where, frame, chosen)


def note_write(access: Access, region: Region, where: Any, frame: Any, chosen: Array | None) -> None:
    """Tells the race detector of a write, or of an atomic."""
    races = frame.wave.races
    if access.strong:
        races.strong(
            frame.ids, acquires=access.order in ("acquire", "acq_rel"), releases=access.order in ("release", "acq_rel")
        )
    races.write(access, region, where, frame, chosen)


def check_written(
    access: Access, region: Region, index: Array, window: slice | None, frame: Any, chosen: Array | None
) -> None:
    """Raises SimulationError, or marks the targets of a load, for memory that was never written."""
    width = access.total
    unit = np.dtype(f"u{min(width, 8)}")
    shadow = region.typed(unit, max(1, width // 8), shadow=True)
    state = shadow[window] if window is not None else shadow.take(index, axis=0)
    full = unit.type((1 << 8 * unit.itemsize) - 1)
    if np.bitwise_and.reduce(state, axis=None) != full:
        flying = bool((np.ascontiguousarray(state).view(np.uint8) == IN_FLIGHT).any())
        if access.targets and not flying:
            _mark_unwritten(access, region, index, state, frame, chosen)
            return
        bad = (state != full).reshape(len(state), -1).any(axis=1)
        position = int(np.argmax(bad))
        position = position if chosen is None else int(chosen[position])
        start = int(index[min(int(np.argmax(bad)), len(index) - 1)]) * width
        why = "an asynchronous copy has yet to write" if flying else "were never written"
        raise access.error(
            f"{access.what} of {width} bytes that {why}: byte {start % max(region.stride, 1)} of "
            f"{region.name}", frame, position,
        )  # fmt: skip


def _mark_unwritten(
    access: Access, region: Region, index: Array, state: Array, frame: Any, chosen: Array | None
) -> None:  # fmt: skip
    """Notes which registers receive bytes that were never written; `taint.py` says when that is a fault."""
    count, width = len(access.targets), access.total
    bad = (np.ascontiguousarray(state).view(np.uint8).reshape(len(state), count, -1) != 0xFF).any(axis=2)
    first = int(np.argmax(bad.any(axis=1)))
    byte = int(index[first]) * width % max(region.stride, 1 << 62 if not region.unit else 1)
    ids = frame.ids if chosen is None else frame.ids[chosen]
    bad = np.broadcast_to(bad, (len(ids), count))
    origin = (
        f"PTX line {access.instruction.line}: {access.instruction.name}, {width} bytes that were never written: byte "
        f"{byte} of {region.name}"
    )
    for item, target in enumerate(access.targets):
        if target is not None and bad[:, item].any():
            frame.wave.taint.mark(target, ids, bad[:, item], origin)


def _load_one(access: Access, dtype: np.dtype[Any], target: int | None) -> Operation:
    def run(slots: list[Array], frame: Any) -> None:
        for region, index, chosen in access.reach(slots, frame):
            value = fetch(access, region, index, dtype, 1, frame, chosen)
            if target is not None:
                slots[target][... if chosen is None else chosen] = value

    return run


def _load_vector(access: Access, dtype: np.dtype[Any], count: int, targets: list[tuple[int, int]]) -> Operation:
    def run(slots: list[Array], frame: Any) -> None:
        for region, index, chosen in access.reach(slots, frame):
            value = fetch(access, region, index, dtype, count, frame, chosen)
            for item, target in targets:
                slots[target][... if chosen is None else chosen] = value[:, item]

    return run


def store(d: Decoder) -> Operation:
    """st, but for st.async."""
    space = take_space(d)
    d.count(2)
    count, kind = vector_count(d), d.type()
    dtype = TYPES[f"b{8 * TYPES[kind].itemsize}"]
    access = access_of(d, 0, space, dtype.itemsize * count, place_name(space, "store"))
    items = d.vector(1)
    if len(items) != count:
        raise d.fail(f"{count} sources expected")
    bits = f"b{8 * dtype.itemsize}"
    sources = [d.source(item, bits) for item in items]

    def run(slots: list[Array], frame: Any) -> None:
        for region, index, chosen in access.reach(slots, frame):
            values = [slots[a] for a in sources]
            if chosen is not None:
                values = [v if len(v) == 1 else v[chosen] for v in values]
            put(access, region, index, dtype, values, frame, chosen)

    return run


def put(
    access: Access, region: Region, index: Array, dtype: np.dtype[Any], values: list[Array], frame: Any,
    chosen: Array | None,
) -> None:  # fmt: skip
    """Writes the elements at `index`; of threads that write the same place, the last one wins."""
    access.written(region, frame)
    window = window_slice(index, frame.wave.iota)
    where: Any = index if window is None else window
    if frame.wave.races is not None:
        _note_store(access, region, where, values, frame, chosen)
    memory = region.typed(dtype, len(values))
    single = len(index) == 1
    if len(values) == 1:
        memory[where] = values[0][-1:] if single else values[0]
    else:
        for item, value in enumerate(values):
            memory[where, item] = value[-1:] if single else value
    if region.shadow is not None:
        unit = np.dtype(f"u{min(access.total, 8)}")
        shadow = region.typed(unit, max(1, access.total // 8), shadow=True)
        shadow[where] = unit.type((1 << 8 * unit.itemsize) - 1)
    if frame.wave.taint.storing is not None:
        _store_uninitialised(access, region, index, frame, chosen, len(values))


def _note_store(
    access: Access, region: Region, where: Any, values: list[Array], frame: Any, chosen: Array | None
) -> None:
    """Tells the race detector of a store.  Threads that store the same value to the same place with one instruction,
    as compilers have all threads of a block do, do not race with one another: they count as the last of them."""
    try:
        note_write(access, region, where, frame, chosen)
    except SimulationError:
        n = frame.n if chosen is None else len(chosen)
        last = None if isinstance(where, slice) else _agreeing(where, values, n)
        if last is None:
            raise
        index = where if len(where) == 1 else where[last]
        note_write(access, region, index, frame, last if chosen is None else chosen[last])


def _agreeing(index: Array, values: list[Array], n: int) -> Array | None:
    """The last thread of those that write each place; None if all write different ones, or values differ."""
    places = np.broadcast_to(index, n)
    order = np.argsort(places, kind="stable")
    ends = np.append(places[order][1:] != places[order][:-1], True)
    last: Array = order[ends]
    if len(last) == n:
        return None
    final = np.repeat(last, np.diff(np.flatnonzero(np.append(True, ends))))
    for value in values:
        bits = np.broadcast_to(value, n)
        if (bits[order] != bits[final]).any():
            return None
    last.sort()
    return last


def _store_uninitialised(
    access: Access, region: Region, index: Array, frame: Any, chosen: Array | None, count: int
) -> None:  # fmt: skip
    """What is stored is not initialised in some threads: its bytes count as not written, if memory knows that."""
    ids = frame.ids if chosen is None else frame.ids[chosen]
    index = np.broadcast_to(index, len(ids))
    for item, mask in enumerate(frame.wave.taint.storing):
        bad = mask[ids]
        if not bad.any():
            continue
        if not region.unit:
            position = int(np.argmax(bad))
            raise access.error(
                f"an uninitialised value is stored to {region.name}: {frame.wave.taint.store_origin}", frame,
                position if chosen is None else int(chosen[position]),
            )  # fmt: skip
        if region.shadow is not None:
            bytes_each = access.total // count
            shadow = region.typed(np.dtype(np.uint8), access.total, shadow=True).reshape(-1, access.total)
            shadow[index[bad], item * bytes_each : (item + 1) * bytes_each] = 0


@instruction("prefetch", "prefetchu", "applypriority", "discard", dests=0)
def exec_prefetch(d: Decoder) -> Operation | None:
    if d.instruction.opcode == "discard":
        raise d.refuse()
    d.one_of(("global", "local", "const", "param", "tensormap"))
    d.one_of(("L1", "L2", "tensormap"))
    take_hints(d)
    return None


@instruction("createpolicy")
def exec_createpolicy(d: Decoder) -> Operation:
    """A cache policy is opaque and changes nothing here (PTX ISA, "createpolicy")."""
    if not d.one_of(("fractional", "range", "cvt")):
        raise d.refuse()
    d.one_of(("L2", "global"))
    take_hints(d)
    o = d.dst(0, "b64")

    def run(slots: list[Array], frame: Any) -> None:
        slots[o][...] = 0

    return run
