"""Asynchronous operations: copies between global and shared memory, which complete some time after they start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaic_gpu.errors import SourceLine
from mosaic_gpu.interpreter import access
from mosaic_gpu.interpreter.clocks import Actor
from mosaic_gpu.interpreter.eval_elementwise import widen

_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


@dataclass(eq=False)
class Flight:
    """One copy.

    Attributes:
      thread: who started it.
      source_selection, target: what is copied where.
      reads, writes: the actors that do it; None where nothing is tracked.
      then: what happens when it has completed, for instance the arrival on a barrier.
      reduction: what is done with the element that is there, in place of overwriting it.
      outside: what is written where there is no source element.
      landed: whether it has completed.
      done: whether somebody waited for it, so that its shared memory is free.
    """

    thread: Any
    source_selection: Any
    target: Any
    reads: Actor | None
    writes: Actor | None
    what: str
    source: SourceLine | None
    then: Callable[[], None] | None = None
    reduction: str | None = None
    outside: Any = None
    landed: bool = False
    done: bool = False

    @property
    def actor_name(self) -> str:
        """For messages."""
        return f"{self.what} of {self.thread.name}"

    def claim(self) -> None:
        """Checks, when it starts, that nothing races with what it reads and writes until somebody waits for it."""
        for selection, actor, verb in (
            (self.source_selection, self.reads, "reads"),
            (self.target, self.writes, "writes"),
        ):
            if actor is not None:
                access.claim(self.thread, selection, verb, actor)

    def land(self) -> None:
        """Copies."""
        self.landed = True
        thread, source, target = self.thread, self.source_selection, self.target
        if thread.watched:
            thread.machine.reporter.event("land", thread.name, self.what, self.source)
        value = source.read()
        inside = source.inside
        if inside is not None:
            filler = np.zeros((), source.dtype) if self.outside is None else self.outside
            value = np.where(inside, value, filler)
        if self.reduction is not None:
            value = np.asarray(_REDUCTIONS[self.reduction](*widen(target.read(), value))).astype(target.dtype)
        if target.memory.written is not None:
            target.put(target.memory.written, True)
        target.write(value)
        self._carry_unwritten(source, target, inside)
        if self.then is not None:
            self.then()

    @staticmethod
    def _carry_unwritten(source: Any, target: Any, inside: Any) -> None:
        """What was never written stays so, wherever it is copied."""
        if source.memory.written is None or target.memory.written is None:
            return
        written = source.pick(source.memory.written)
        if not written.all() and source.memory.granule == target.memory.granule:
            if inside is not None and inside.shape == written.shape:
                written = written | ~inside
            target.put(target.memory.written, written)
