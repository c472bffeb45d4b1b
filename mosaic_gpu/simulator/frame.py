"""The threads that execute a basic block together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mosaic_gpu.errors import SimulationError
from mosaic_gpu.simulator.ptx import Instruction

if TYPE_CHECKING:
    from mosaic_gpu.simulator.memory import Region
    from mosaic_gpu.simulator.wave import Wave

Array = np.ndarray[Any, np.dtype[Any]]


class Frame:
    """`n` threads of a wave; `threads` are their numbers in ascending order, or None for all of them.

    `V` holds one array per slot, with an element per thread of the frame (or one, for all alike).
    """

    __slots__ = ("V", "n", "threads", "wave")

    def __init__(self, wave: Wave, threads: Array | None, n: int, slots: list[Array]) -> None:
        self.wave, self.threads, self.n, self.V = wave, threads, n, slots

    @property
    def ids(self) -> Array:
        """The threads' numbers in the wave."""
        return self.wave.iota if self.threads is None else self.threads

    def pick(self, per_thread: Array) -> Array:
        """The elements of an array over the wave's threads that belong to this frame."""
        return per_thread if self.threads is None else per_thread[self.threads]

    def unit_starts(self, region: Region, shift: int) -> Array:
        """Where each thread's stretch of a shared or local region starts, in units of 2**shift bytes."""
        return self.pick(self.wave.unit_starts(region, shift))

    def sub(self, chosen: Array, reads: tuple[int, ...], writes: tuple[int, ...]) -> Frame:
        """The frame of the threads at positions `chosen`, with the given slots gathered."""
        slots = self.V.copy()
        for slot in reads:
            array = self.V[slot]
            if len(array) == self.n:
                slots[slot] = array[chosen]
        for slot in writes:
            slots[slot] = self.V[slot][chosen]
        return Frame(self.wave, self.ids[chosen], len(chosen), slots)

    def error(self, instruction: Instruction, what: str, position: int, *, hint: str = "") -> SimulationError:
        """The fault of the thread at `position` of this frame, at an instruction."""
        thread = int(self.ids[position])
        return SimulationError(
            f"{what}\n  PTX line {instruction.line}: {instruction.name}\n  {self.wave.describe(thread)}",
            hint=hint,
            source=instruction.source,
        )
