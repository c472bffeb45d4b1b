"""Vector clocks, and the race detector built on them.

Everything that acts on memory has a slot: each thread; each thread's copies out of shared memory (one slot for what
they read, one for what they write, since one waits for the two apart), its wgmmas, and each barrier's copies into
shared memory.  An access is stamped with its slot and the time of that slot.  A clock holds one time a slot: what
happened there until then happened before.  Arriving at a barrier publishes the thread's clock, waiting takes it over.

Two accesses race when neither clock holds the other and one of them writes.  Since one detector serves plain loads,
TMA copies and wgmma, a missing wait is a race between a thread and an asynchronous slot.

The asynchronous proxy sees plain writes to shared memory only after a fence (`commit_smem`; PTX ISA, "Async proxy").
So a clock has a second half, the times until which a slot's writes are fenced: a copy that reads a plain write must
find it there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mosaic_gpu.errors import SourceLine
from mosaic_gpu.interpreter.values import Array

_GROWTH = 64


@dataclass
class Clock:
    """Until when each slot's accesses happened before (`seen`), and are fenced (`fenced`)."""

    seen: Array
    fenced: Array

    def copy(self) -> Clock:
        """A clock of its own."""
        return Clock(self.seen.copy(), self.fenced.copy())

    def join(self, other: Clock) -> None:
        """Takes over what `other` knows."""
        size = max(len(self.seen), len(other.seen))
        self.grow(size)
        other.grow(size)
        np.maximum(self.seen, other.seen, out=self.seen)
        np.maximum(self.fenced, other.fenced, out=self.fenced)

    def grow(self, size: int) -> None:
        """Makes room for so many slots."""
        missing = size - len(self.seen)
        if missing > 0:
            self.seen = np.pad(self.seen, (0, missing))
            self.fenced = np.pad(self.fenced, (0, missing))


@dataclass
class Times:
    """The slots and the time of one run.  Times count up over all slots, so they never repeat."""

    now: int = 1
    size: int = _GROWTH
    generic: Array = field(default_factory=lambda: np.zeros(_GROWTH, np.bool_))
    free: list[int] = field(default_factory=list)
    used: int = 0

    def slot(self, generic: bool = False) -> int:
        """A slot; `generic`: for plain loads and stores."""
        if self.free:
            slot = self.free.pop()
        else:
            slot = self.used
            self.used += 1
        if self.used > self.size:
            self.size += _GROWTH
            self.generic = np.pad(self.generic, (0, _GROWTH))
        self.generic[slot] = generic
        return slot

    def tick(self) -> int:
        """The next time."""
        self.now += 1
        return self.now

    def start(self) -> Clock:
        """A clock that has seen everything until now."""
        return Clock(np.full(self.size, self.now, np.int64), np.full(self.size, self.now, np.int64))


@dataclass(frozen=True)
class Actor:
    """Who accesses memory: a slot at a time, with what it has seen.

    Attributes:
      slot, time: the stamp of its accesses.
      clock: what happened before.
      proxy: whether it goes through the asynchronous proxy.
      name: for messages.
      source: the line.
    """

    slot: int
    time: int
    clock: Clock
    proxy: bool
    name: str
    source: SourceLine | None


@dataclass(frozen=True)
class Conflict:
    """Two accesses that race, or a plain write that was not fenced.

    Attributes:
      other: what the other access was.
      source: its line.
      unfenced: whether only the fence is missing.
      asynchronous: whether the other access is a copy's or a wgmma's.
    """

    other: str
    source: SourceLine | None
    unfenced: bool
    asynchronous: bool


class AccessLog:
    """Who wrote and read each granule of a memory last."""

    def __init__(self, granules: int, times: Times) -> None:
        self._times = times
        self._writer = np.zeros(granules, np.int16)
        self._written = np.zeros(granules, np.int32)
        self._reads: dict[int, Array] = {}
        self._names: dict[tuple[int, int, bool], tuple[str, SourceLine | None]] = {}
        self._granules = granules

    def read(self, selection: Any, actor: Actor) -> Conflict | None:
        """Notes a read; gives the write that it races with."""
        conflict = self._unseen_write(selection, actor, fence=actor.proxy)
        if actor.slot not in self._reads:
            self._reads[actor.slot] = np.zeros(self._granules, np.int32)
        selection.put(self._reads[actor.slot], actor.time)
        self._names[actor.slot, actor.time, False] = (actor.name, actor.source)
        return conflict

    def write(self, selection: Any, actor: Actor, mask: Any = None) -> Conflict | None:
        """Notes a write; gives the access that it races with."""
        conflict = self._unseen_write(selection, actor, fence=False) or self._unseen_read(selection, actor)
        selection.put(self._written, actor.time, mask)
        selection.put(self._writer, actor.slot, mask)
        self._names[actor.slot, actor.time, True] = (actor.name, actor.source)
        return conflict

    def _unseen_write(self, selection: Any, actor: Actor, fence: bool) -> Conflict | None:
        times = selection.pick(self._written)
        if not times.size:
            return None
        clock = actor.clock
        clock.grow(self._times.size)
        slots = selection.pick(self._writer)
        first_time, first_slot = times.flat[0], slots.flat[0]
        if (times == first_time).all() and (slots == first_slot).all():
            # The usual case: one access wrote all of it.
            return self._judge(int(first_time), int(first_slot), actor, fence)
        limit = np.where(self._times.generic, clock.fenced, clock.seen) if fence else clock.seen
        late = (times > limit[slots]) & (slots != actor.slot if not fence else np.True_)
        if not late.any():
            return None
        place = tuple(np.argwhere(late)[0])
        return self._judge(int(times[place]), int(slots[place]), actor, fence)

    def _judge(self, time: int, slot: int, actor: Actor, fence: bool) -> Conflict | None:
        generic = bool(self._times.generic[slot])
        seen = time <= actor.clock.seen[slot] or slot == actor.slot
        if seen and not (fence and generic and time > actor.clock.fenced[slot]):
            return None
        name, source = self._names.get((slot, time, True), ("another thread", None))
        return Conflict(f"the write by {name}", source, seen, not generic)

    def _unseen_read(self, selection: Any, actor: Actor) -> Conflict | None:
        for slot, log in self._reads.items():
            if slot == actor.slot:
                continue
            times = selection.pick(log)
            late = times > actor.clock.seen[slot]
            if late.any():
                time = int(times[tuple(np.argwhere(late)[0])])
                name, source = self._names.get((slot, time, False), ("another thread", None))
                return Conflict(f"the read by {name}", source, False, not self._times.generic[slot])
        return None
