"""cp.async: copies from global to shared memory, see `copies.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from mosaic_gpu.simulator.bulk import CopyArrival
from mosaic_gpu.simulator.copies import IN_FLIGHT, Copy
from mosaic_gpu.simulator.exec_bulk import exec_bulk
from mosaic_gpu.simulator.exec_mbarrier import barrier_access, barrier_indexes
from mosaic_gpu.simulator.exec_memory import access_of, take_hints
from mosaic_gpu.simulator.frame import Frame
from mosaic_gpu.simulator.mbarriers import failure
from mosaic_gpu.simulator.memory import Access, Region
from mosaic_gpu.simulator.ptx import TYPES, Immediate
from mosaic_gpu.simulator.registry import Decoder, Operation, instruction

Array = np.ndarray[Any, np.dtype[Any]]


@instruction("cp", dests=0)
def exec_cp(d: Decoder) -> Operation | None:
    if "bulk" in d.words:
        return exec_bulk(d)
    if not d.flag("async"):
        raise d.refuse()
    if d.flag("mbarrier"):
        return _mbarrier_arrive(d)
    if d.flag("commit_group"):
        return _commit
    if d.flag("wait_all"):
        return _wait(0, commit=True)
    if d.flag("wait_group"):
        most = d.operand(0)
        if not isinstance(most, Immediate):
            raise d.fail("the number of groups must be a constant")
        return _wait(most.value, commit=False)
    return _copy(d)


def _mbarrier_arrive(d: Decoder) -> Operation:
    """cp.async.mbarrier.arrive{.noinc}.shared.b64 [address]: arrives when the thread's earlier copies have landed.
    Without .noinc the pending count first goes up by one (PTX ISA, "cp.async.mbarrier.arrive")."""
    if not d.flag("arrive"):
        raise d.refuse()
    more = 0 if d.flag("noinc") else 1
    access = barrier_access(d, 0, d.one_of(("shared", "shared::cta")))
    d.count(1)

    def run(slots: list[Array], frame: Frame) -> None:
        indexes = barrier_indexes(access, slots, frame)
        for position, index in enumerate(indexes.tolist()):
            frame.wave.mbarriers.update(index, failure(frame, d.instruction, position), arrivals=-more)
        frame.wave.bulk.flying.append(CopyArrival(d.instruction, frame.ids, indexes))

    return run


def _commit(slots: list[Array], frame: Frame) -> None:
    frame.wave.copies.group[frame.ids] += 1


def _wait(most: int, *, commit: bool) -> Operation:
    def run(slots: list[Array], frame: Frame) -> None:
        if commit:
            _commit(slots, frame)
        frame.wave.copies.wait(frame.ids, most)

    return run


def _copy(d: Decoder) -> Operation:
    take_hints(d)
    spaces = [word for word in d.words if word.partition("::")[0] in ("shared", "global")]
    if [s.removesuffix("::cta") for s in spaces] != ["shared", "global"]:
        raise d.refuse()
    d.words = [word for word in d.words if word not in spaces]
    d.count(3, 4)
    size = d.operand(2)
    if not isinstance(size, Immediate) or size.value not in (4, 8, 16):
        raise d.fail("a size of 4, 8 or 16 expected")
    to = access_of(d, 0, "shared", size.value, "asynchronous copy to shared memory")
    of = access_of(d, 1, "global", size.value, "asynchronous copy from global memory")
    given = d.src(3, "u32") if len(d.operands) == 4 else None

    def run(slots: list[Array], frame: Frame) -> None:
        n = frame.n
        length = np.full(n, size.value) if given is None else np.broadcast_to(slots[given], n).astype(np.int64)
        if (length > size.value).any():
            position = int(np.argmax(length > size.value))
            raise frame.error(d.instruction, f"{length[position]} bytes of {size.value} to read", position)
        ((region, target, _),) = to.reach(slots, frame)
        target = np.broadcast_to(target, n)
        if frame.wave.races is not None:
            frame.wave.races.write(to, region, target, frame, None)
        region.typed(TYPES["b8"], size.value, shadow=True)[target] = IN_FLIGHT
        groups = frame.wave.copies.group[frame.ids]
        reading = np.flatnonzero(length > 0)
        some = frame if len(reading) == n else frame.sub(reading, (of.slot,), ())
        for source_region, source, chosen in of.reach(some.V, some) if len(reading) else ():
            part = reading if chosen is None else reading[chosen]
            index = np.broadcast_to(source, len(part))
            if frame.wave.races is not None:
                frame.wave.races.read(of, source_region, index, some, chosen)
            _start(frame, part, groups, size.value, region, target, source_region, index, length, to)
        empty = np.flatnonzero(length == 0)
        if len(empty):
            nothing = Region("nothing", 0, 0, np.zeros(0, np.uint8))
            source = np.zeros(len(empty), np.int64)
            _start(frame, empty, groups, size.value, region, target, nothing, source, length, to)

    return run


def _start(
    frame: Frame, part: Array, groups: Array, size: int, region: Region, target: Array, source_region: Region,
    source: Array, length: Array, access: Access,
) -> None:  # fmt: skip
    ids = frame.ids[part]
    copy = Copy(ids, groups[part], size, region, target[part], source_region, source, length[part], access)
    if frame.wave.timing.early():
        copy.land(np.arange(len(part)))
    else:
        frame.wave.copies.flying.append(copy)
