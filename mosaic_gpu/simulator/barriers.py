"""Barriers of a block (bar, barrier.cta) and of a cluster.

A thread that waits is taken off the schedule; it comes back when its barrier completes, so waiting
costs nothing.  A barrier without a thread count waits for the threads of the block that have not exited
(CUDA C++ Programming Guide, `__syncthreads`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mosaic_gpu.simulator.frame import Frame
from mosaic_gpu.simulator.ptx import Instruction

if TYPE_CHECKING:
    from mosaic_gpu.simulator.wave import Wave

Array = np.ndarray[Any, np.dtype[Any]]
Successors = int | list[tuple[int, Array]]
Reduction = tuple[str, int, Array]
BARRIERS = 16


@dataclass
class _Waiting:
    instruction: Instruction
    threads: Array
    after: int
    reduction: Reduction | None = None


@dataclass
class _State:
    """One barrier id over all blocks: arrivals so far, the count expected (0: all that are left), and for the race
    detector what the threads that have arrived know."""

    arrived: Array
    expected: Array
    waiting: list[_Waiting] = field(default_factory=list)
    known: Array | None = None


class Barriers:
    """All barriers of a wave."""

    def __init__(self, wave: Wave) -> None:
        self.wave = wave
        self.states: dict[int, _State] = {}
        size = wave.shape.cluster[0] * wave.shape.cluster[1] * wave.shape.cluster[2]
        self.cluster_size = size
        self.cluster_waiting: list[_Waiting] = []
        self.phase = np.zeros(wave.T, np.int64)
        self.cluster_known: dict[int, Array] = {}

    def state(self, number: int) -> _State:
        """The state of one barrier id."""
        if number not in self.states:
            zeros = np.zeros(self.wave.blocks, np.int64)
            self.states[number] = _State(zeros, zeros.copy())
        return self.states[number]

    def arrive(
        self, instruction: Instruction, frame: Frame, ids: Array, counts: Array | None, after: int, waits: bool,
        *, reduction: Reduction | None = None,
    ) -> Successors:  # fmt: skip
        """Threads of the frame arrive; returns who goes on, and where."""
        if len(ids) > 1 and ids.min() == ids.max():
            ids = ids[:1]
        if (
            frame.threads is None and waits and reduction is None and not self.states
            and self._all_of_block(counts) and len(ids) == 1 and int(ids[0]) < BARRIERS
        ):  # fmt: skip
            if self.wave.races is not None:
                self.wave.races.everyone()
            return after
        successors: list[tuple[int, Array]] = []
        each = np.broadcast_to(ids, frame.n)
        for number in np.unique(each).tolist():
            if number >= BARRIERS:
                raise frame.error(instruction, f"barrier {number}: there are {BARRIERS} of them", 0)
            chosen = np.flatnonzero(each == number)
            expected = None if counts is None else np.broadcast_to(counts, frame.n)[chosen]
            part = None if reduction is None else (*reduction[:2], reduction[2][chosen])
            waiting = _Waiting(instruction, frame.ids[chosen], after, part)
            self._arrive(frame, number, waiting, expected, waits)
            if not waits:
                successors.append((after, waiting.threads))
            successors += self._release(number)
        return successors

    def _all_of_block(self, counts: Array | None) -> bool:
        return counts is None or (len(counts) == 1 and int(counts[0]) == self.wave.per_block)

    def _arrive(self, frame: Frame, number: int, waiting: _Waiting, expected: Array | None, waits: bool) -> None:
        state = self.state(number)
        blocks = self.wave.block_of[waiting.threads]
        state.arrived += np.bincount(blocks, minlength=self.wave.blocks)
        if self.wave.races is not None:
            if state.known is None:
                state.known = self.wave.races.totals(self.wave.blocks)
            self.wave.races.release(state.known, waiting.threads, np.arange(self.wave.blocks))
        if expected is not None:
            if (expected % 32).any() or not expected.all():
                raise frame.error(waiting.instruction, f"thread count {expected[0]} is no multiple of 32", 0)
            known = state.expected[blocks]
            if ((known != 0) & (known != expected)).any():
                raise frame.error(waiting.instruction, f"barrier {number} is in use with another thread count", 0)
            state.expected[blocks] = expected
        if waits:
            state.waiting.append(waiting)
        full = np.where(state.expected == 0, self.wave.per_block, self._rounded(state.expected))
        if (state.arrived > full).any():
            raise frame.error(waiting.instruction, f"more threads arrive at barrier {number} than it expects", 0)

    def _rounded(self, expected: Array) -> Array:
        """A count of whole warps, where a block's last warp may lack threads."""
        short = -self.wave.per_block % 32
        return np.where(expected >= self.wave.warps_per_block * 32, expected - short, expected)

    def _release(self, number: int) -> list[tuple[int, Array]]:
        state = self.states[number]
        need = np.where(state.expected == 0, self.wave.alive, self._rounded(state.expected))
        done = (state.arrived >= need) & (state.arrived > 0)
        if not done.any():
            return []
        released: list[tuple[int, Array]] = []
        kept: list[_Waiting] = []
        if len(state.waiting) > 1:
            self._check_aligned(state, done)
        results = self._reduce(state, done)
        for waiting in state.waiting:
            free = done[self.wave.block_of[waiting.threads]]
            if free.any():
                threads = waiting.threads[free]
                released.append((waiting.after, threads))
                if self.wave.races is not None and state.known is not None:
                    self.wave.races.acquire(state.known, threads, np.arange(self.wave.blocks))
                if waiting.reduction is not None:
                    slot = self.wave.slots[waiting.reduction[1]]
                    slot[threads] = results[waiting.reduction[0]][self.wave.block_of[threads]].astype(slot.dtype)
            if not free.all():
                rest = waiting.reduction and (*waiting.reduction[:2], waiting.reduction[2][~free])
                kept.append(_Waiting(waiting.instruction, waiting.threads[~free], waiting.after, rest))
        state.waiting = kept
        if state.known is not None:
            state.known[done] = 0
        state.arrived[done] = 0
        state.expected[done] = 0
        if not kept and not state.arrived.any():
            del self.states[number]
        return released

    def _check_aligned(self, state: _State, done: Array) -> None:
        """The threads of a warp must execute the same aligned barrier (PTX ISA, "bar")."""
        first: dict[int, Instruction] = {}
        for waiting in state.waiting:
            instruction = waiting.instruction
            if instruction.opcode != "bar" and "aligned" not in instruction.modifiers:
                continue
            threads = waiting.threads[done[self.wave.block_of[waiting.threads]]]
            for warp in np.unique(self.wave.warp_of[threads]).tolist():
                other = first.setdefault(warp, instruction)
                if other is not instruction:
                    thread = int(threads[np.argmax(self.wave.warp_of[threads] == warp)])
                    frame = Frame(self.wave, np.array([thread]), 1, self.wave.slots)
                    raise frame.error(
                        instruction, "the threads of a warp wait at different aligned barriers: the others at PTX "
                        f"line {other.line}", 0, hint="barrier.sync without .aligned, or one barrier for the warp",
                    )  # fmt: skip

    def _reduce(self, state: _State, done: Array) -> dict[str, Array]:
        """Per block, how many of the waiting threads' predicates hold, and whether any or all do."""
        yes, total = np.zeros(self.wave.blocks, np.int64), np.zeros(self.wave.blocks, np.int64)
        for waiting in state.waiting:
            if waiting.reduction is not None:
                blocks = self.wave.block_of[waiting.threads]
                yes += np.bincount(blocks, weights=waiting.reduction[2], minlength=self.wave.blocks).astype(np.int64)
                total += np.bincount(blocks, minlength=self.wave.blocks)
        return {"popc": yes, "or": yes > 0, "and": yes == total}

    def threads_left(self) -> list[tuple[int, Array]]:
        """Called when threads have exited: the barriers that are complete without them."""
        released: list[tuple[int, Array]] = []
        for number in list(self.states):
            released += self._release(number)
        return released + self._cluster_release()

    def cluster_arrive(self, instruction: Instruction, frame: Frame, after: int) -> Successors:
        """barrier.cluster.arrive."""
        self.phase[frame.ids] += 1
        races = self.wave.races
        if races is not None:
            for phase in np.unique(self.phase[frame.ids]).tolist():
                known = self.cluster_known.setdefault(phase, races.totals(int(self.wave.cluster_of.max()) + 1))
                races.release(known, frame.ids[self.phase[frame.ids] == phase], self.wave.cluster_of)
        released = self._cluster_release()
        return [(after, frame.ids), *released] if released else after

    def cluster_wait(self, instruction: Instruction, frame: Frame, after: int) -> Successors:
        """barrier.cluster.wait: until every thread of the cluster has arrived as often as this one."""
        self.cluster_waiting.append(_Waiting(instruction, frame.ids, after))
        return self._cluster_release()

    def _cluster_release(self) -> list[tuple[int, Array]]:
        if not self.cluster_waiting:
            return []
        wave = self.wave
        gone = (wave.exited_bits[wave.warp_of] >> wave.lane.astype(np.uint32)) & 1
        phase = np.where(gone == 1, np.iinfo(np.int64).max, self.phase)
        cluster = wave.cluster_of[wave.block_of]
        lowest = np.full(int(cluster.max()) + 1, np.iinfo(np.int64).max)
        np.minimum.at(lowest, cluster, phase)
        released, kept = [], []
        for waiting in self.cluster_waiting:
            free = self.phase[waiting.threads] <= lowest[cluster[waiting.threads]]
            if free.any():
                released.append((waiting.after, waiting.threads[free]))
                self._cluster_acquire(waiting.threads[free])
            if not free.all():
                kept.append(_Waiting(waiting.instruction, waiting.threads[~free], waiting.after))
        self.cluster_waiting = kept
        return released

    def _cluster_acquire(self, threads: Array) -> None:
        races = self.wave.races
        if races is None:
            return
        for phase in np.unique(self.phase[threads]).tolist():
            if phase in self.cluster_known:
                races.acquire(self.cluster_known[phase], threads[self.phase[threads] == phase], self.wave.cluster_of)

    def table(self) -> list[str]:
        """Who waits on what, a line per block and barrier."""
        lines = []
        for number, state in self.states.items():
            for waiting in state.waiting:
                for block in np.unique(self.wave.block_of[waiting.threads]).tolist():
                    count = int(np.count_nonzero(self.wave.block_of[waiting.threads] == block))
                    expected = int(state.expected[block]) or int(self.wave.alive[block])
                    lines.append(
                        f"block {self.wave.block_number(block)}: {count} threads wait on barrier {number} "
                        f"({int(state.arrived[block])} of {expected} arrived), PTX line {waiting.instruction.line}"
                    )
        for waiting in self.cluster_waiting:
            lines.append(
                f"{len(waiting.threads)} threads wait on the cluster barrier, PTX line {waiting.instruction.line}"
            )
        return lines
