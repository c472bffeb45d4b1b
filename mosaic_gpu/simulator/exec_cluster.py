"""Clusters: mapa, getctarank, and stores and reductions to another block's shared memory that an mbarrier counts.

Addresses of shared::cluster are described in `memory.py`; barrier.cluster is with the other barriers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mosaic_gpu.simulator.bulk import Flight, Reduction, SharedSpan, Value
from mosaic_gpu.simulator.exec_mbarrier import barrier_access, barrier_indexes
from mosaic_gpu.simulator.exec_memory import access_of, store, vector_count
from mosaic_gpu.simulator.frame import Frame
from mosaic_gpu.simulator.memory import RANK_SHIFT, SHARED_WINDOW, WINDOW_BYTES
from mosaic_gpu.simulator.ptx import TYPES, Address, Operand
from mosaic_gpu.simulator.registry import Decoder, Operation, instruction

Array = np.ndarray[Any, np.dtype[Any]]
_OFFSET_MASK = np.uint64((1 << RANK_SHIFT) - 1)
_MBARRIER = "mbarrier::complete_tx::bytes"


def _source(d: Decoder, index: int, kind: str) -> int:
    """An address that may be a variable or a register, with or without an offset or brackets."""
    operand: Operand = d.operand(index)
    if isinstance(operand, Address):
        if operand.offset or operand.extra:
            raise d.refuse("an offset here")
        operand = operand.base
    return d.source(operand, kind)


@instruction("mapa")
def exec_mapa(d: Decoder) -> Operation:
    """The address that corresponds to `a` in the block of rank b (PTX ISA, "mapa")."""
    generic = not d.flag("shared::cluster")
    kind = d.type()
    d.count(3)
    if kind not in ("u32", "u64") or (generic and kind == "u32"):
        raise d.refuse()
    o, a, b = d.dst(0, kind), _source(d, 1, kind), d.src(2, "u32")

    def run(slots: list[Array], frame: Frame) -> None:
        address, rank = slots[a].astype(np.uint64), slots[b].astype(np.uint64)
        if generic:
            _require_shared(d, frame, address)
            address = address - np.uint64(SHARED_WINDOW)
        size = frame.wave.cluster_blocks.shape[1]
        if (rank >= np.uint64(size)).any():
            ranks = np.broadcast_to(rank, frame.n)
            position = int(np.argmax(ranks >= size))
            raise frame.error(d.instruction, f"rank {int(ranks[position])} in a cluster of {size}", position)
        result = (address & _OFFSET_MASK) | (rank + np.uint64(1)) << np.uint64(RANK_SHIFT)
        slots[o][...] = result + np.uint64(SHARED_WINDOW) if generic else result

    return run


def _require_shared(d: Decoder, frame: Frame, address: Array) -> None:
    outside = address - np.uint64(SHARED_WINDOW) >= np.uint64(WINDOW_BYTES)
    if outside.any():
        position = int(np.argmax(np.broadcast_to(outside, frame.n)))
        raise frame.error(d.instruction, "the address is not one of shared memory", position)


@instruction("getctarank")
def exec_getctarank(d: Decoder) -> Operation:
    """The rank of the block that an address of shared memory belongs to (PTX ISA, "getctarank")."""
    generic = not d.flag("shared::cluster")
    kind = d.type()
    d.count(2)
    o, a = d.dst(0, "u32"), _source(d, 1, kind)

    def run(slots: list[Array], frame: Frame) -> None:
        address = slots[a].astype(np.uint64)
        if generic:
            _require_shared(d, frame, address)
            address = address - np.uint64(SHARED_WINDOW)
        field = np.broadcast_to((address >> np.uint64(RANK_SHIFT)).astype(np.int64), frame.n)
        own = frame.wave.rank[frame.wave.block_of[frame.ids]]
        slots[o][...] = np.where(field == 0, own, field - 1)

    return run


@instruction("st", dests=0)
def exec_st(d: Decoder) -> Operation:
    if "bulk" in d.words:
        raise d.refuse()
    return store_async(d) if d.flag("async") else store(d)


def store_async(d: Decoder) -> Operation:
    """st.async{.weak}{.shared::cluster}.mbarrier::complete_tx::bytes{.v2, .v4}.type [a], b, [mbar]."""
    return _remote(d, "")


def reduce_async(d: Decoder) -> Operation:
    """red.async.relaxed.cluster{.shared::cluster}.mbarrier::complete_tx::bytes.op.type [a], b, [mbar]."""
    name = d.one_of(("inc", "dec", "min", "max", "add", "and", "or", "xor"))
    if not name:
        raise d.refuse()
    return _remote(d, name)


def _remote(d: Decoder, name: str) -> Operation:
    d.one_of(("weak", "relaxed"))
    d.flag("cluster")
    d.flag("shared::cluster")
    if not d.flag(_MBARRIER):
        raise d.refuse("without an mbarrier")
    count, kind = vector_count(d), d.type()
    d.count(3)
    size = TYPES[kind].itemsize
    access = access_of(d, 0, "shared::cluster", size * count, "asynchronous store to shared memory")
    barrier = barrier_access(d, 2, "shared::cluster")
    items = d.vector(1)
    if len(items) != count:
        raise d.fail(f"{count} sources expected")
    sources = [d.source(item, f"b{8 * size}") for item in items]
    reduction = Reduction(name, kind) if name else None

    def run(slots: list[Array], frame: Frame) -> None:
        shared = frame.wave.shared
        indexes = barrier_indexes(barrier, slots, frame).tolist()
        values = np.stack([np.broadcast_to(slots[a], frame.n) for a in sources], axis=1)
        flights = []
        for _, index, chosen in access.reach(slots, frame):
            positions = np.arange(frame.n) if chosen is None else chosen
            for position, unit in zip(positions.tolist(), np.broadcast_to(index, len(positions)).tolist(), strict=True):
                block, start = divmod(unit * access.total, shared.stride)
                span = SharedSpan(shared, block, start, access.total)
                data = np.ascontiguousarray(values[position]).view(np.uint8)
                flights.append(Flight(d.instruction, int(frame.ids[position]), access.total, Value(data), (span,),
                                      (indexes[position],), reduction))  # fmt: skip
        frame.wave.bulk.start(flights)

    return run
