"""The race detector by itself: what happens before what."""

from __future__ import annotations

import numpy as np

from mosaic_gpu.interpreter.clocks import AccessLog, Actor, Clock, Times
from mosaic_gpu.interpreter.memory import Box, allocate


class Party:
    """Something with a slot and a clock."""

    def __init__(self, times: Times, generic: bool = True) -> None:
        self.times, self.slot, self.generic = times, times.slot(generic), generic
        self.clock = Clock(np.zeros(times.size, np.int64), np.zeros(times.size, np.int64))
        self.release()

    def actor(self) -> Actor:
        return Actor(self.slot, int(self.clock.seen[self.slot]), self.clock, not self.generic, "somebody", None)

    def release(self) -> Clock:
        published = self.clock.copy()
        self.clock.seen[self.slot] = self.times.tick()
        return published

    def acquire(self, clock: Clock) -> None:
        mine = self.clock.seen[self.slot]
        self.clock.join(clock)
        self.clock.seen[self.slot] = mine


def setting(*generic: bool) -> tuple[AccessLog, list[Party], Box]:
    times = Times()
    memory = allocate("memory", "smem", (4, 4), np.dtype(np.float32))
    return AccessLog(memory.granules, times), [Party(times, g) for g in generic], memory.whole()


def test_accesses_of_one_thread_never_race() -> None:
    log, (one,), whole = setting(True)
    assert log.write(whole, one.actor()) is None
    assert log.read(whole, one.actor()) is None
    assert log.write(whole, one.actor()) is None


def test_a_read_races_with_a_write_that_it_has_not_seen() -> None:
    log, (one, two), whole = setting(True, True)
    log.write(whole, one.actor())
    assert log.read(whole, two.actor()) is not None


def test_what_was_published_and_taken_over_does_not_race() -> None:
    log, (one, two), whole = setting(True, True)
    log.write(whole, one.actor())
    two.acquire(one.release())
    assert log.read(whole, two.actor()) is None
    log.write(whole, one.actor())
    assert log.read(whole, two.actor()) is not None


def test_a_write_races_with_any_read_that_it_has_not_seen() -> None:
    log, (one, two, three), whole = setting(True, True, True)
    log.read(whole, one.actor())
    log.read(whole, two.actor())
    three.acquire(two.release())
    assert log.write(whole, three.actor()) is not None


def test_different_elements_do_not_race() -> None:
    log, (one, two), whole = setting(True, True)
    top, bottom = (Box(whole.memory, whole.dtype, (2, 4), 32 * i, whole.strides) for i in range(2))
    log.write(top, one.actor())
    assert log.write(bottom, two.actor()) is None
    assert log.write(whole, two.actor()) is not None


def test_the_asynchronous_proxy_needs_a_fence() -> None:
    log, (one, copy), whole = setting(True, False)
    log.write(whole, one.actor())
    copy.acquire(one.release())
    conflict = log.read(whole, copy.actor())
    assert conflict is not None
    assert conflict.unfenced
    np.maximum(copy.clock.fenced, copy.clock.seen, out=copy.clock.fenced)
    assert log.read(whole, copy.actor()) is None


def test_slots_come_back_and_grow() -> None:
    times = Times()
    first = [times.slot() for _ in range(100)]
    assert first == list(range(100))
    assert times.size >= 100
    times.free.append(first[7])
    assert times.slot() == 7
