"""The scheduler of one wave of blocks.

All threads at the same basic block run it together, across warps and blocks.  The lowest block runs
first, so that threads which took the longer way around catch up before the others move on; now and then
the block that has waited longest runs instead, so that a thread which spins on memory cannot keep out
the one it waits for.  Deterministic: the same launch takes the same course.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from mosaic_gpu.errors import SimulationError
from mosaic_gpu.simulator.control import EXIT, Converge
from mosaic_gpu.simulator.frame import Frame
from mosaic_gpu.simulator.prepare import Block
from mosaic_gpu.simulator.ptx import Instruction
from mosaic_gpu.simulator.wave import Counters, Wave

Array = np.ndarray[Any, np.dtype[Any]]
_FAIRNESS_STEPS = 1024
#: Rounds in which all sleepers look again and find nothing changed, before that counts as a deadlock.
_TIME_OUTS = 32


class Scheduler:
    """Runs the threads of a wave to their end."""

    def __init__(self, wave: Wave, counters: Counters) -> None:
        self.wave = wave
        self.counters = counters
        self.blocks = wave.kernel.blocks
        self.full = Frame(wave, None, wave.T, wave.slots)
        self.pending: dict[int, list[Array]] = {}
        self.since: dict[int, int] = {}
        self.heap: list[int] = []
        self.parked: dict[int, list[Array]] = {}
        self.steps = 1
        self.exits = False
        self.time_outs = 0

    def run(self) -> None:
        """Runs until every thread has exited.  Raises SimulationError for a fault or a deadlock."""
        index, threads = self.wave.kernel.start, None
        while True:
            block = self.blocks[index]
            if block.converge is not None:
                ready = self._converge(block, threads)
                if ready is not None and not len(ready):
                    following = self._next()
                    if following is None:
                        return
                    index, threads = following
                    continue
                threads = ready
            successors = self._execute(block, threads)
            if type(successors) is int and not self.pending and successors != EXIT and not self.wave.restless:
                index = successors
                continue
            self._add_all(successors, threads)
            following = self._next()
            if following is None:
                return
            index, threads = following

    def _execute(self, block: Block, threads: Array | None) -> Any:
        counters, n = self.counters, self.wave.T if threads is None else len(threads)
        size = len(block.instructions)
        counters.instructions += size * n
        counters.warp_instructions += size * (self.wave.warps if threads is None else self._warps(threads))
        if counters.limit and counters.instructions > counters.limit:
            raise self._over_limit(block, threads)
        if threads is None:
            self._operate(block, self.full)
            return self._end(block, self.full)
        first, last = int(threads[0]), int(threads[-1])
        if last - first + 1 == n:
            frame = self._slice_frame(block, threads, slice(first, last + 1))
            self._operate(block, frame)
        else:
            frame = self._gathered(block, threads)
        return self._end(block, frame)

    def _operate(self, block: Block, frame: Frame) -> None:
        """Runs the operations; one by one with a look at each while there are uninitialised values."""
        hazards = self.wave.register_hazards
        if hazards is not None:
            hazards.before(block, frame)
        slots, bits = frame.V, self.wave.taint.bits
        if bits:
            self.wave.taint.run_block(block, slots, frame, 0)
            return
        for position, operation in enumerate(block.operations):
            operation(slots, frame)
            if bits:
                self.wave.taint.run_block(block, slots, frame, position + 1)
                return

    def _end(self, block: Block, frame: Frame) -> Any:
        if self.wave.register_hazards is not None:
            self.wave.register_hazards.after(block, frame)
        if self.wave.taint.bits:
            self.wave.taint.check_ending(block, frame.V, frame)
        return block.ending(frame.V, frame)

    def _slice_frame(self, block: Block, threads: Array, window: slice) -> Frame:
        base = self.wave.slots
        slots = base.copy()
        for views in block.rows.values():
            for slot, _ in views:
                slots[slot] = base[slot][window]
        for slot in block.per_thread:
            if len(base[slot]) > 1:
                slots[slot] = base[slot][window]
        return Frame(self.wave, threads, len(threads), slots)

    def _gathered(self, block: Block, threads: Array) -> Frame:
        """Runs a block for threads that are scattered: rows are gathered first and scattered after."""
        wave, n = self.wave, len(threads)
        slots = wave.slots.copy()
        rows = {}
        for row, views in block.rows.items():
            source = wave.storage[row.dtype][row.number]
            packed = source.take(threads) if row in block.gather else np.empty(n, row.dtype)
            rows[row] = packed
            for slot, view in views:
                slots[slot] = packed.view(view.dtype)[view.start :: view.step]
        for slot in block.per_thread:
            if len(slots[slot]) > 1:
                slots[slot] = slots[slot][threads]
        frame = Frame(wave, threads, n, slots)
        self._operate(block, frame)
        for row in block.scatter:
            wave.storage[row.dtype][row.number][threads] = rows[row]
        return frame

    def _warps(self, threads: Array) -> int:
        warps = self.wave.warp_of[threads]
        return 1 + int(np.count_nonzero(warps[1:] != warps[:-1]))

    def _over_limit(self, block: Block, threads: Array | None) -> SimulationError:
        thread = 0 if threads is None else int(threads[0])
        return SimulationError(
            f"the launch ran more than {self.counters.limit} thread-instructions\n  PTX line {block.line}\n"
            f"  {self.wave.describe(thread)}",
            hint="raise instruction_limit if the kernel is only long, not endless",
        )

    def _add_all(self, successors: Any, threads: Array | None) -> None:
        if isinstance(successors, int):
            successors = [(successors, self.wave.iota if threads is None else threads)]
        for index, some in successors:
            if index == EXIT:
                self._exit(some)
            else:
                self._add(index, some)

    def _add(self, index: int, threads: Array) -> None:
        waiting = self.pending.get(index)
        if waiting is None:
            self.pending[index] = [threads]
            self.since[index] = self.steps
            heapq.heappush(self.heap, index)
        else:
            waiting.append(threads)

    def _exit(self, threads: Array) -> None:
        wave = self.wave
        wave.exited += len(threads)
        if wave.exited == wave.T:
            return
        wave.exited_bits |= wave.lane_bits(threads)
        wave.alive -= np.bincount(wave.block_of[threads], minlength=wave.blocks)
        self.exits = True
        for index, some in wave.barriers.threads_left():
            self._add(index, some)

    def _next(self) -> tuple[int, Array | None] | None:
        """The next block and its threads; None when all have exited."""
        if self.steps % _FAIRNESS_STEPS == 0 or (self.wave.bulk.flying and self.wave.timing.early()):
            self.wave.bulk.advance()
        self._take_woken()
        while not self.pending:
            if self.wave.exited == self.wave.T:
                self._finish()
                return None
            if not (self._retry_parked() or self.wave.bulk.advance() or self._time_out()):
                raise self._deadlock()
            self._take_woken()
        self.steps += 1
        index = self.heap[0]
        fair = self.steps % _FAIRNESS_STEPS == 0
        if (fair or self.wave.timing.now_and_then()) and len(self.pending) > 1:
            waiting = sorted(self.pending, key=self.since.__getitem__)
            index = waiting[0 if fair else self.wave.timing.choose(len(waiting))]
            self.heap.remove(index)
            heapq.heapify(self.heap)
        else:
            heapq.heappop(self.heap)
        threads = self._merge(self.pending.pop(index))
        return index, self._some_warps(index, threads) if self.wave.timing.now_and_then() else threads

    def _some_warps(self, index: int, threads: Array | None) -> Array | None:
        """Some of the warps go first; the others stay on the schedule."""
        wave = self.wave
        threads = wave.iota if threads is None else threads
        first = wave.timing.half(wave.warps)[wave.warp_of[threads]]
        if first.all() or not first.any():
            return None if len(threads) == wave.T else threads
        self._add(index, threads[~first])
        return threads[first]

    def _finish(self) -> None:
        """All threads have exited: nothing may be under way."""
        wave = self.wave
        wave.bulk.finish()
        if wave.races is None:
            return
        if wave.copies.flying:
            copy = wave.copies.flying[0]
            if copy.access is not None and (copy.read_bytes > 0).any():
                thread = int(copy.threads[int(np.argmax(copy.read_bytes > 0))])
                self._under_way(copy.access.instruction, thread, "cp.async.wait_all before the end")
        if wave.warpgroups.pending:
            product = wave.warpgroups.pending[0]
            hint = "wgmma.wait_group.sync.aligned 0 before the end"
            self._under_way(product.operation.instruction, int(product.threads[0, 0]), hint)

    def _under_way(self, instruction: Instruction, thread: int, hint: str) -> None:
        frame = Frame(self.wave, np.array([thread]), 1, self.wave.slots)
        raise frame.error(instruction, "hazard: it is still under way when the kernel ends", 0, hint=hint)

    def _take_woken(self) -> None:
        """Threads that an mbarrier has woken come back on the schedule."""
        if self.wave.woken:
            woken, self.wave.woken = self.wave.woken, []
            for index, threads in woken:
                self._add(index, threads)

    def _time_out(self) -> bool:
        """Nothing can run: those who sleep on an mbarrier are told that its phase is not complete.  False if that
        has been tried often with no phase completed since."""
        mbarriers = self.wave.mbarriers
        self.time_outs = 0 if mbarriers.progress else self.time_outs + 1
        mbarriers.progress = False
        return self.time_outs < _TIME_OUTS and mbarriers.time_out()

    def _merge(self, sets: list[Array]) -> Array | None:
        if len(sets) == 1:
            merged = sets[0]
        elif sum(map(len, sets)) < 256:
            merged = np.sort(np.concatenate(sets))
        else:
            mask = np.zeros(self.wave.T, np.bool_)
            for some in sets:
                mask[some] = True
            merged = np.flatnonzero(mask)
        result: Array | None = None if len(merged) == self.wave.T else merged
        return result

    def _converge(self, block: Block, threads: Array | None) -> Array | None:
        """The threads at `block` whose warps are complete; the others are parked until the rest comes."""
        assert block.converge is not None
        if not block.converge.everyone:
            self._check_members(block.converge, threads)
        if threads is None and not (block.converge.warpgroup and self.wave.per_block % 128):
            return None
        wave, index = self.wave, block.index
        threads = wave.iota if threads is None else threads
        if index in self.parked:
            threads = self._merge([threads, *self.parked.pop(index)])
            if threads is None:
                return None
        mask = wave.slots[block.converge.mask]
        wanted = (mask if len(mask) == 1 else mask[threads]).astype(np.uint32)
        warps = wave.warp_of[threads]
        there = wave.lane_bits(threads)
        needed = wanted & (wave.warp_bits & ~wave.exited_bits)[warps]
        ready = (there[warps] & needed) == needed
        if block.converge.warpgroup:
            ready = wave.whole_warpgroups(there)[warps]
        if ready.all():
            return threads
        self.parked.setdefault(index, []).append(threads[~ready])
        together: Array = threads[ready]
        return together

    def _check_members(self, mark: Converge, threads: Array | None) -> None:
        """A thread that executes a .sync instruction must be in its own mask (PTX ISA, shfl.sync)."""
        wave = self.wave
        mask = wave.slots[mark.mask]
        ids = wave.iota if threads is None else threads
        members = mask if len(mask) == 1 else mask[ids]
        outside = (members >> wave.lane[ids].astype(np.uint32)) & 1 == 0
        if outside.any():
            position = int(np.argmax(outside))
            frame = Frame(wave, ids, len(ids), wave.slots)
            what = f"the thread is not in the member mask {int(np.broadcast_to(members, len(ids))[position]):#x}"
            raise frame.error(mark.instruction, what, position)

    def _retry_parked(self) -> bool:
        """Nothing else can run: parked threads go on if an exit completed their warp, or if the rest of
        their warp waits at another bar.warp.sync; else they stay, and this returns False."""
        if not self.parked:
            return False
        parked, self.parked = self.parked, {}
        if self.exits:
            self.exits = False
            for index, sets in parked.items():
                for some in sets:
                    self._add(index, some)
            return True
        self.parked = parked
        meeting = {
            index: sets for index, sets in parked.items()
            if (mark := self.blocks[index].converge) is not None and mark.instruction.opcode == "bar"
        }  # fmt: skip
        if len(meeting) < 2:
            return False
        everyone = self._merge([some for sets in meeting.values() for some in sets])
        everyone = self.wave.iota if everyone is None else everyone
        there, moved = self.wave.lane_bits(everyone), False
        for index, sets in meeting.items():
            moved |= self._pass_warp_barrier(index, sets, there)
        return moved

    def _pass_warp_barrier(self, index: int, sets: list[Array], there: Array) -> bool:
        wave, block = self.wave, self.blocks[index]
        assert block.converge is not None
        threads = self._merge(sets)
        threads = wave.iota if threads is None else threads
        mask = wave.slots[block.converge.mask]
        wanted = (mask if len(mask) == 1 else mask[threads]).astype(np.uint32)
        warps = wave.warp_of[threads]
        needed = wanted & (wave.warp_bits & ~wave.exited_bits)[warps]
        ready = (there[warps] & needed) == needed
        if not ready.any():
            return False
        if ready.all():
            del self.parked[index]
        else:
            self.parked[index] = [threads[~ready]]
        self._add_all(self._execute(block, threads[ready]), threads[ready])
        return True

    def _deadlock(self) -> SimulationError:
        lines = self.wave.barriers.table() + self.wave.mbarriers.table()
        for index, sets in self.parked.items():
            mark = self.blocks[index].converge
            assert mark is not None
            group = "warpgroup" if mark.warpgroup else "warp"
            for some in sets:
                lines.append(
                    f"{len(some)} threads ({self.wave.describe(int(some[0]))} first) wait for the other lanes "
                    f"of their {group} at {mark.instruction.name}, PTX line {mark.instruction.line}"
                )
        left = self.wave.T - self.wave.exited
        shown = [*lines[:20], *([f"... and {len(lines) - 20} more"] if len(lines) > 20 else [])]
        table = "".join(f"\n  {line}" for line in shown)
        return SimulationError(
            f"deadlock: {left} of {self.wave.T} threads wait, {self.wave.exited} have exited{table}",
            hint="every thread that a barrier counts must reach it",
            source=self._waiting_source(),
        )

    def _waiting_source(self) -> Any:
        for state in self.wave.barriers.states.values():
            for waiting in state.waiting:
                return waiting.instruction.source
        for some in self.wave.mbarriers.waiting.values():
            return some[0].instruction.source
        for index in self.parked:
            mark = self.blocks[index].converge
            return mark.instruction.source if mark else None
        return None
