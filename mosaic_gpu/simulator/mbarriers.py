"""mbarrier objects in shared memory (PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier").

An mbarrier is a 64-bit word.  PTX leaves its layout open; here it is

    bits    field
    0-19    arrivals still pending in this phase
    20-39   arrivals expected in each phase
    40-61   tx-count, two's complement
    62      1: there is an mbarrier here
    63      parity of the phase that is under way

A phase completes when no arrival is pending and the tx-count is 0: the parity flips and the pending count is
the expected one again.  Example, a barrier of count 1 that a TMA load of 128 bytes completes:

    instruction           pending  tx-count  parity   wait for parity 0 says
    init 1                1        0         0        no
    arrive.expect_tx 128  0        128       0        no
    the copy lands        1        0         1        yes

Threads that wait for a phase sleep until it completes.  PTX lets test_wait and try_wait say no at any time: the
first question about a phase that is not complete is answered with no, so that a wait without a loop shows; the
next sleeps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mosaic_gpu.errors import SimulationError
from mosaic_gpu.simulator.ptx import Instruction

if TYPE_CHECKING:
    from mosaic_gpu.simulator.frame import Frame
    from mosaic_gpu.simulator.wave import Wave

Array = np.ndarray[Any, np.dtype[Any]]
#: The error for a fault of the thread that acts, from its description.
Fail = Callable[[str], SimulationError]
MAX_COUNT = (1 << 20) - 1
_VALID = 1 << 62
_COUNT_BITS, _TX_BITS = 20, 22


@dataclass
class State:
    """The fields of an mbarrier."""

    pending: int
    expected: int
    tx: int
    phase: int

    @classmethod
    def of(cls, word: int) -> State | None:
        """The fields of a word, None if it is no mbarrier."""
        if not word & _VALID:
            return None
        tx = word >> 40 & (1 << _TX_BITS) - 1
        tx -= (tx >> _TX_BITS - 1) << _TX_BITS
        return cls(word & MAX_COUNT, word >> _COUNT_BITS & MAX_COUNT, tx, word >> 63)

    def word(self) -> int:
        """The word in memory, which is also the state that an arrive returns."""
        tx = self.tx & (1 << _TX_BITS) - 1
        return self.pending | self.expected << _COUNT_BITS | tx << 40 | _VALID | self.phase << 63


@dataclass
class Waiting:
    """Threads that sleep until the phase of `parity` completes; then the predicate in `slot` is set and they go
    on at the block `after`."""

    instruction: Instruction
    threads: Array
    parity: int
    slot: int
    after: int


class Mbarriers:
    """The mbarriers of a wave.  `index` is always a place in shared memory, in words of 8 bytes from the
    start of the wave's first block."""

    def __init__(self, wave: Wave) -> None:
        self.wave = wave
        self.waiting: dict[int, list[Waiting]] = {}
        self.asked = np.full(wave.T, -1, np.int64)
        self.progress = False
        #: What those who arrived know, for the race detector; `heard` is as of the last complete phase.
        self.told: dict[int, Array] = {}
        #: What was last put in each place; the program may have used the memory for something else since.
        self.put: dict[int, int] = {}
        self.heard: dict[int, Array] = {}

    @property
    def words(self) -> Array:
        """Shared memory as words of 8 bytes."""
        return self.wave.shared.typed(np.dtype(np.uint64), 1)

    def state(self, index: int, fail: Fail) -> State:
        """The mbarrier at `index`; an error if there is none."""
        state = State.of(int(self.words[index]))
        if state is None:
            raise fail(f"there is no mbarrier at {self.place(index)}")
        return state

    def place(self, index: int) -> str:
        """Where an mbarrier is, for people."""
        block, word = divmod(index, self.wave.shared.stride // 8)
        return f"byte {8 * word} of the shared memory of block {self.wave.block_number(block)}"

    def init(self, index: int, count: int, fail: Fail) -> None:
        """mbarrier.init."""
        if not 1 <= count <= MAX_COUNT:
            raise fail(f"an mbarrier's count is 1 to {MAX_COUNT}, got {count}")
        word = int(self.words[index])
        old = State.of(word) if self.put.get(index) == word else None
        if old is not None and (self.waiting.get(index) or old.pending != old.expected or old.tx):
            raise fail(f"the mbarrier at {self.place(index)} is initialised again while it is in use")
        self._store(index, State(count, count, 0, 0).word())

    def invalidate(self, index: int, fail: Fail) -> None:
        """mbarrier.inval."""
        self.state(index, fail)
        if self.waiting.get(index):
            raise fail(f"the mbarrier at {self.place(index)} is invalidated while threads wait on it")
        self._store(index, 0)

    def _store(self, index: int, word: int) -> None:
        self.words[index] = self.put[index] = word
        if self.wave.shared.shadow is not None:
            self.wave.shared.typed(np.dtype(np.uint64), 1, shadow=True)[index] = (1 << 64) - 1

    def update(
        self, index: int, fail: Fail, *, arrivals: int = 0, dropped: int = 0, tx: int = 0, may_complete: bool = True
    ) -> State:
        """Adds to the tx-count, then arrives; `dropped` arrivals are no longer expected in the next phases.
        Returns the state before."""
        before = self.state(index, fail)
        after = State(before.pending - arrivals, before.expected - dropped, before.tx + tx, before.phase)
        if after.pending < 0:
            raise fail(
                f"over-arrival: {arrivals} arrivals at the mbarrier at {self.place(index)}, where "
                f"{before.pending} of {before.expected} are pending"
            )
        if abs(after.tx) > MAX_COUNT:
            raise fail(f"the tx-count of the mbarrier at {self.place(index)} becomes {after.tx}, beyond {MAX_COUNT}")
        complete = after.pending == 0 and after.tx == 0
        if complete and not may_complete:
            raise fail(f".noComplete completes the phase of the mbarrier at {self.place(index)}")
        if complete:
            after = State(after.expected, after.expected, 0, 1 - after.phase)
        self._store(index, after.word())
        if complete:
            if self.wave.races is not None:
                self.wave.races.complete(index)
            self._wake(index, after.phase)
        return before

    def arrive(
        self, frame: Frame, instruction: Instruction, indexes: Array, counts: Array, tx: Array, *, drop: bool,
        may_complete: bool,
    ) -> Array:  # fmt: skip
        """Each thread of the frame arrives `counts` times, after it expects `tx` bytes; returns the state that
        each found."""
        states = np.empty(frame.n, np.uint64)
        order = np.argsort(indexes, kind="stable")
        ends = np.flatnonzero(np.append(np.diff(indexes[order]) != 0, True)) + 1
        start = 0
        for end in ends.tolist():
            same = order[start:end]
            start = end
            self._arrive_at(frame, instruction, int(indexes[same[0]]), same, counts, tx, states, drop, may_complete)
        return states

    def _arrive_at(
        self, frame: Frame, instruction: Instruction, index: int, same: Array, counts: Array, tx: Array,
        states: Array, drop: bool, may_complete: bool,
    ) -> None:  # fmt: skip
        """The threads at positions `same` arrive at one mbarrier: together if they fit one phase, else in turns."""
        total = int(counts[same].sum())
        state = self.state(index, failure(frame, instruction, int(same[0])))
        together = total <= state.pending
        for part in [same] if together else [same[i : i + 1] for i in range(len(same))]:
            arrivals = int(counts[part].sum())
            if self.wave.races is not None:
                self.wave.races.arrive(index, frame.ids[part])
            self._release(index, frame.ids[part])
            before = self.update(
                index, failure(frame, instruction, int(part[0])), arrivals=arrivals,
                dropped=arrivals if drop else 0, tx=int(tx[part].sum()), may_complete=may_complete,
            )  # fmt: skip
            earlier = np.concatenate([[0], np.cumsum(counts[part])[:-1]]).astype(np.uint64)
            states[part] = np.uint64(before.word()) - earlier

    def wait(
        self, frame: Frame, instruction: Instruction, indexes: Array, parities: Array, slot: int, after: int
    ) -> list[tuple[int, Array]]:
        """test_wait and try_wait: who goes on now; the others sleep."""
        words = self.words[indexes]
        absent = words & np.uint64(_VALID) == 0
        if absent.any():
            position = int(np.argmax(absent))
            self.state(int(indexes[position]), failure(frame, instruction, position))
        ready = (words >> np.uint64(63)).astype(np.int64) != parities
        key = indexes * 2 + parities
        if self.heard:
            for place in np.unique(indexes[ready]).tolist():
                self._acquire(place, frame.ids[ready & (indexes == place)])
        sleeps = ~ready & (self.asked[frame.ids] == key)
        if self.wave.timing.early():
            sleeps[:] = False
        self.asked[frame.ids] = np.where(ready, -1, key)
        self.wave.slots[slot][frame.ids] = ready
        if self.wave.races is not None:
            for place in np.unique(indexes[ready]).tolist():
                self.wave.races.pass_mbarrier(place, frame.ids[ready & (indexes == place)])
        for place in np.unique(key[sleeps]).tolist():
            threads = frame.ids[sleeps & (key == place)]
            waiting = Waiting(instruction, threads, place & 1, slot, after)
            self.waiting.setdefault(place >> 1, []).append(waiting)
        return [(after, frame.ids[~sleeps])] if not sleeps.all() else []

    def _wake(self, index: int, phase: int) -> None:
        self.progress = True
        if index in self.told:
            self.heard[index] = self.told[index]
        left = []
        for waiting in self.waiting.pop(index, ()):
            if waiting.parity == phase:
                left.append(waiting)
                continue
            self._acquire(index, waiting.threads)
            self.wave.slots[waiting.slot][waiting.threads] = True
            if self.wave.races is not None:
                self.wave.races.pass_mbarrier(index, waiting.threads)
            self.wave.woken.append((waiting.after, waiting.threads))
        if left:
            self.waiting[index] = left

    def _release(self, index: int, threads: Array) -> None:
        """The race detector's release: what the threads know goes to who waits for this phase."""
        races = self.wave.races
        if races is not None:
            told = races.knowledge(threads)[1].max(axis=0)
            self.told[index] = np.maximum(self.told[index], told) if index in self.told else told
            races.tick()

    def _acquire(self, index: int, threads: Array) -> None:
        races = self.wave.races
        if races is not None and index in self.heard:
            races.acquire_rows(np.unique(self.wave.warp_of[threads]), self.heard[index])

    def time_out(self) -> bool:
        """Wakes all sleepers with the answer no; False if there are none."""
        if not self.waiting:
            return False
        for waiting in (w for some in self.waiting.values() for w in some):
            self.wave.slots[waiting.slot][waiting.threads] = False
            self.wave.woken.append((waiting.after, waiting.threads))
        self.waiting = {}
        return True

    def table(self) -> list[str]:
        """Who waits on which mbarrier, a line each."""
        lines = []
        for index, some in self.waiting.items():
            state = State.of(int(self.words[index]))
            what = "which is no more" if state is None else (
                f"phase parity {state.phase}, {state.expected - state.pending} of {state.expected} arrived, "
                f"tx-count {state.tx}"
            )  # fmt: skip
            for waiting in some:
                lines.append(
                    f"{len(waiting.threads)} threads ({self.wave.describe(int(waiting.threads[0]))} first) wait for "
                    f"phase parity {waiting.parity} of the mbarrier at {self.place(index)} ({what}), PTX line "
                    f"{waiting.instruction.line}"
                )
        return lines


def failure(frame: Frame, instruction: Instruction, position: int) -> Fail:
    """The faults of the thread at a position of the frame."""
    return lambda what: frame.error(instruction, what, position)
