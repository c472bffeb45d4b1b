"""mbarrier instructions (PTX ISA, "mbarrier.init" to "mbarrier.test_wait / mbarrier.try_wait"); see `mbarriers.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from mosaic_gpu.simulator.exec_memory import access_of
from mosaic_gpu.simulator.frame import Frame
from mosaic_gpu.simulator.mbarriers import failure
from mosaic_gpu.simulator.memory import Access
from mosaic_gpu.simulator.ptx import Address, Sink
from mosaic_gpu.simulator.registry import Decoder, Ending, Operation, Successors, ending, instruction

Array = np.ndarray[Any, np.dtype[Any]]
_SPACES = ("shared", "shared::cta", "shared::cluster")


def barrier_access(d: Decoder, index: int, space: str) -> Access:
    """How the mbarrier whose address is operand `index` is reached; `space` is "" for a generic address."""
    return access_of(d, index, space, 8, "mbarrier access")


def barrier_indexes(access: Access, slots: list[Array], frame: Frame) -> Array:
    """The place of each thread's mbarrier in shared memory, in words of 8 bytes."""
    result = np.empty(frame.n, np.int64)
    for region, index, chosen in access.reach(slots, frame):
        if region is not frame.wave.shared:
            position = 0 if chosen is None else int(chosen[0])
            raise frame.error(
                access.instruction, f"an mbarrier in {region.name}: it must be in shared memory", position
            )
        result[... if chosen is None else chosen] = index
    return result


def _order(d: Decoder) -> None:
    """Consumes memory order and scope, which the machine's program order satisfies."""
    d.one_of(("release", "acquire", "relaxed"))
    d.one_of(("cta", "cluster"))


@instruction("mbarrier", dests=0)
def exec_mbarrier(d: Decoder) -> Operation:
    what = d.need(("init", "inval", "arrive", "arrive_drop", "expect_tx", "complete_tx", "pending_count"))
    d.types = [t for t in d.types if t != "b64"]
    if what == "pending_count":
        return _pending_count(d)
    if what in ("arrive", "arrive_drop"):
        return _arrive(d, what == "arrive_drop")
    if what in ("expect_tx", "complete_tx"):
        return _transactions(d, -1 if what == "complete_tx" else 1)
    space = d.one_of(_SPACES)
    access = barrier_access(d, 0, space)
    if what == "init":
        d.count(2)
        return _init(access, d.src(1, "u32"))
    d.count(1)

    def invalidate(slots: list[Array], frame: Frame) -> None:
        for position, index in enumerate(barrier_indexes(access, slots, frame).tolist()):
            frame.wave.mbarriers.invalidate(index, failure(frame, d.instruction, position))

    return invalidate


def _init(access: Access, count: int) -> Operation:
    def run(slots: list[Array], frame: Frame) -> None:
        counts = np.broadcast_to(slots[count], frame.n).tolist()
        for position, index in enumerate(barrier_indexes(access, slots, frame).tolist()):
            frame.wave.mbarriers.init(index, counts[position], failure(frame, access.instruction, position))

    return run


def _pending_count(d: Decoder) -> Operation:
    d.count(2)
    o, state = d.dst(0, "b32"), d.src(1, "b64")

    def run(slots: list[Array], frame: Frame) -> None:
        slots[o][...] = slots[state] & np.uint64((1 << 20) - 1)

    return run


def _arrive(d: Decoder, drop: bool) -> Operation:
    """mbarrier.arrive and arrive_drop{.expect_tx}{.noComplete} state, [address]{, count}."""
    expects, no_complete = d.flag("expect_tx"), d.flag("noComplete")
    _order(d)
    space = d.one_of(_SPACES)
    # The state may be left out for a remote mbarrier.
    at = 0 if isinstance(d.operand(0), Address) else 1
    result = None if at == 0 or isinstance(d.operand(0), Sink) else d.dst(0, "b64")
    d.count(at + 1, at + 2)
    access = barrier_access(d, at, space)
    given = d.src(at + 1, "u32") if len(d.operands) > at + 1 else None
    if (no_complete or expects) and given is None:
        raise d.fail("the count is missing")

    def run(slots: list[Array], frame: Frame) -> None:
        ones, zeros = np.ones(frame.n, np.int64), np.zeros(frame.n, np.int64)
        count = ones if given is None else np.broadcast_to(slots[given], frame.n).astype(np.int64)
        states = frame.wave.mbarriers.arrive(
            frame, d.instruction, barrier_indexes(access, slots, frame), ones if expects else count,
            count if expects else zeros, drop=drop, may_complete=not no_complete,
        )  # fmt: skip
        if result is not None:
            slots[result][...] = states

    return run


def _transactions(d: Decoder, sign: int) -> Operation:
    """mbarrier.expect_tx and complete_tx [address], bytes."""
    _order(d)
    access = barrier_access(d, 0, d.one_of(_SPACES))
    d.count(2)
    given = d.src(1, "u32")

    def run(slots: list[Array], frame: Frame) -> None:
        amount = np.broadcast_to(slots[given], frame.n).tolist()
        for position, index in enumerate(barrier_indexes(access, slots, frame).tolist()):
            fail = failure(frame, d.instruction, position)
            frame.wave.mbarriers.update(index, fail, tx=sign * amount[position])

    return run


@ending("mbarrier.test_wait", "mbarrier.try_wait")
def end_wait(d: Decoder, after: int) -> Ending:
    d.need(("test_wait", "try_wait"))
    by_parity = d.flag("parity")
    _order(d)
    space = d.one_of(_SPACES)
    d.types = [t for t in d.types if t != "b64"]
    d.count(3, 4)
    if len(d.operands) == 4:
        d.src(3, "u32")  # the longest time to suspend: a hint
    ready = d.dst(0, "pred")
    access = barrier_access(d, 1, space)
    phase = d.src(2, "u32" if by_parity else "b64")

    def end(slots: list[Array], frame: Frame) -> Successors:
        value = np.broadcast_to(slots[phase], frame.n)
        parities = (value & value.dtype.type(1) if by_parity else value >> np.uint64(63)).astype(np.int64)
        indexes = barrier_indexes(access, slots, frame)
        return frame.wave.mbarriers.wait(frame, d.instruction, indexes, parities, ready, after)

    return end
