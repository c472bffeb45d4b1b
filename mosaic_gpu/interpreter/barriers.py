"""mbarriers: arrivals counted in phases, and the clocks that arrivals publish (PTX ISA, "mbarrier")."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mosaic_gpu.errors import SimulationError, SourceLine
from mosaic_gpu.interpreter.clocks import Clock


@dataclass(eq=False)
class Barrier:
    """One barrier.

    Attributes:
      arrivals: how many complete a phase.
      phase: how many phases are complete.
      count: arrivals in the phase that goes on.
      clock: what the arrivals until now published; the same at the end of the last phases.
      seen: for each thread how many phases it waited for.
      slot: of copies that complete on it.
      flights: copies that have not completed yet.
      last_copy: the line of the last copy into it.
    """

    name: str
    arrivals: int
    source: SourceLine | None
    phase: int = 0
    count: int = 0
    clock: Clock | None = None
    complete: dict[int, Clock | None] = field(default_factory=dict)
    seen: dict[Any, int] = field(default_factory=dict)
    slot: int | None = None
    flights: int = 0
    last_copy: SourceLine | None = None

    def arrive(self, clock: Clock) -> None:
        """One arrival, which publishes `clock`."""
        if self.clock is None:
            self.clock = clock.copy()
        else:
            self.clock.join(clock)
        self.count += 1
        if self.count == self.arrivals:
            self.count, self.phase = 0, self.phase + 1
            self.complete[self.phase] = self.clock.copy()
            self.complete.pop(self.phase - 2, None)

    def wait(self, thread: Any) -> None:
        """Returns when the next phase for `thread` is complete.

        Raises SimulationError where the phase after that one is complete, too: hardware sees only the parity of the
        phase, so the thread might wait for ever, or go on too early.
        """
        target = self.seen.get(thread, 0) + 1
        thread.machine.scheduler.wait(thread, lambda: self.phase >= target, lambda: self._waited(target))
        if self.phase > target:
            raise SimulationError(
                f"{self.name} went on without {thread.name}: it waits for phase {target}, and phase {self.phase} is"
                " complete",
                hint="a thread that waits on a barrier has to wait for each of its phases",
                source=thread.source,
            )
        self.seen[thread] = target
        clock = self.complete.get(target)
        if clock is not None:
            thread.acquire(clock)

    def test(self, thread: Any) -> bool:
        """Whether the next phase for `thread` is complete."""
        return self.phase > self.seen.get(thread, 0)

    def _waited(self, target: int) -> str:
        flying = f", {self.flights} copies on their way" if self.flights else ""
        where = f", allocated at {self.source}" if self.source else ""
        return f"{self.name} (phase {target}: {self.count} of {self.arrivals} arrivals{flying}{where})"


@dataclass(eq=False)
class BarrierArray:
    """Barriers of one allocation; `collective`: the cluster's axes along which an arrival counts for all blocks."""

    name: str
    shape: tuple[int, ...]
    barriers: list[Barrier]
    key: Any = None
    collective: tuple[Any, ...] = ()

    def pick(self, plan: Any, leaves: Any, source: SourceLine | None) -> Barrier:
        """The one barrier that the transforms of a reference name; a slice stands for its start."""
        if len(self.barriers) == 1:
            return self.barriers[0]
        index = plan.first_indices(leaves)
        index += [0] * (len(self.shape) - len(index))
        if any(not 0 <= i < n for i, n in zip(index, self.shape, strict=True)):
            raise SimulationError(
                f"{self.name} has no barrier {index}", expected=f"indices below {list(self.shape)}", source=source
            )
        return self.barriers[int(np.ravel_multi_index(index, self.shape)) if self.shape else 0]
