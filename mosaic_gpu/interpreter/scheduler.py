"""Cooperative scheduling: threads of blocks are greenlets, of which one runs until it has to wait.

The order is fixed where there is no seed: threads in their order, each as far as it gets, and an asynchronous
operation completes only when no thread can go on, the oldest first.  With a seed everything is drawn, and threads
stop at every access, too.  There are no OS threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import greenlet
import numpy as np

from mosaic_gpu.errors import SimulationError


class Scheduler:
    """Runs the threads of one kernel."""

    def __init__(self, seed: int | None) -> None:
        self.random = np.random.default_rng(seed)
        self.draws = seed is not None
        self._ready: deque[Any] = deque()
        self._blocked: list[Any] = []
        self._flights: deque[Any] = deque()
        self._hub: Any = None

    def launch(self, flight: Any) -> None:
        """Takes an asynchronous operation on: something with `land()` and `landed`."""
        self._flights.append(flight)

    def land(self, flight: Any) -> None:
        """Completes an operation now, if it has not completed."""
        if not flight.landed:
            flight.land()
            self._flights.remove(flight)

    def run(self, groups: Iterator[list[tuple[Any, Callable[[], None]]]], resident: int, alone: bool) -> None:
        """Runs groups of threads (thread, body), `resident` groups at a time, to their end.

        `alone`: whether threads never have to wait for one another, so that no greenlets are needed.
        """
        if alone and not self.draws:
            for group in groups:
                for _, body in group:
                    body()
            return
        self._hub = greenlet.getcurrent()
        try:
            self._loop(groups, resident)
        finally:
            for thread in [*self._ready, *self._blocked]:
                thread.greenlet.throw(greenlet.GreenletExit)
            self._hub = None

    def _loop(self, groups: Iterator[list[tuple[Any, Callable[[], None]]]], resident: int) -> None:
        active: list[list[Any]] = []
        more = True
        while True:
            active = [group for group in active if not all(t.greenlet.dead for t in group)]
            while more and len(active) < resident:
                group = next(groups, None)
                more = group is not None
                if group is not None:
                    active.append([self.start(thread, body) for thread, body in group])
            if not active and not more:
                return
            self._step()

    def start(self, thread: Any, body: Callable[[], None]) -> Any:
        """Makes a thread ready to run."""
        thread.greenlet = greenlet.greenlet(body, parent=self._hub)
        self._ready.append(thread)
        return thread

    def _step(self) -> None:
        """Lets one thread go on, or one operation complete."""
        if self._blocked:
            awake = [t for t in self._blocked if t.condition()]
            if awake:
                self._blocked = [t for t in self._blocked if t not in awake]
                self._ready.extend(awake)
        choices = len(self._ready) + (len(self._flights) if self.draws else 0)
        if not self._ready and not self._flights:
            if self._blocked:
                raise self.deadlock(self._blocked)
            return
        number = int(self.random.integers(choices)) if self.draws else 0
        if number >= len(self._ready) or not self._ready:
            self.land(self._flights[number - len(self._ready) if self.draws else 0])
            return
        thread = self._ready[number]
        del self._ready[number]
        thread.greenlet.switch()

    def wait(self, thread: Any, condition: Callable[[], bool], what: Callable[[], str]) -> None:
        """Returns when `condition()` holds; `what()` says what a thread waits for."""
        if self._hub is None:
            while not condition():
                if not self._flights:
                    thread.condition, thread.waits_for = condition, what
                    raise self.deadlock([thread])
                self.land(self._flights[0])
            return
        if condition() and not self.draws:
            return
        thread.condition, thread.waits_for = condition, what
        self._blocked.append(thread)
        self._hub.switch()

    def pause(self, thread: Any) -> None:
        """Lets others go on, where the order is drawn."""
        if self.draws and self._hub is not None:
            self._ready.append(thread)
            self._hub.switch()

    @staticmethod
    def deadlock(blocked: list[Any]) -> SimulationError:
        """The report of who waits on what."""
        lines = [f"{t.name} waits for {t.waits_for()} at {t.source}" for t in blocked]
        return SimulationError(
            "the kernel never ends: every thread waits\n  " + "\n  ".join(lines),
            hint="a barrier completes when as many arrivals as its num_arrivals came; a copy into it counts as one",
            source=blocked[0].source,
        )
