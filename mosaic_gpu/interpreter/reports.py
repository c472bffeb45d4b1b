"""What is done about a fault: an error, a warning, or nothing; and the stream of events."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

from mosaic_gpu.errors import SimulationError, SourceLine
from mosaic_gpu.interpreter.params import Event, InterpretParams


class InterpretWarning(UserWarning):
    """A fault in an interpreted kernel whose check is set to "warn"."""


@dataclass
class Reporter:
    """Reports for one run of a kernel."""

    params: InterpretParams
    kernel: str
    _warned: set[Any] = field(default_factory=set)

    @property
    def watched(self) -> bool:
        """Whether somebody wants to know every event."""
        return self.params.log or self.params.on_event is not None

    def wants(self, check: str) -> bool:
        """Whether a check is not ignored."""
        return bool(getattr(self.params, check) != "ignore")

    def fault(self, check: str, what: str, source: SourceLine | None, thread: str = "", **sides: Any) -> None:
        """Reports a fault that `check` finds: raises SimulationError, warns, or does nothing.

        Arguments:
          sides: `got`, `expected` and `hint` of the message.
        """
        action = getattr(self.params, check)
        if action == "ignore":
            return
        self.event("report", thread, what, source)
        where = f"kernel {self.kernel}" + (f", {thread}" if thread else "")
        error = SimulationError(f"{what} ({where})", source=source, **sides)
        if action == "raise":
            raise error
        if (check, source) not in self._warned:
            self._warned.add((check, source))
            warnings.warn(str(error), InterpretWarning, stacklevel=2)

    def event(self, kind: str, thread: str, detail: str, source: SourceLine | None) -> None:
        """Tells of one step, where somebody listens."""
        if not self.watched:
            return
        event = Event(kind, thread, detail, source)
        if self.params.log:
            print(event)
        if self.params.on_event is not None:
            self.params.on_event(event)
