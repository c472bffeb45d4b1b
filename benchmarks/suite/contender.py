"""Who takes part: a contender prepares a case, and gives a function that enqueues one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .cases import Case
from .floats import Array
from .memory import Rotation

EVENTS, HOST = "events", "host"


class NotApplicableError(Exception):
    """A contender does not do a case; the reason is its text."""


@dataclass(frozen=True)
class Prepared:
    """A case that is ready to run.

    Attributes:
      run: `run(i)` enqueues the i-th of its runs; what it returns is given to `wait`.
      results: runs the first copy and gives its results on the host: pairs of float32 or integers, and the name of the
        dtype that they came in.
      wait: None where the work is on the default stream and CUDA events time it; else it waits for what the last
        `run` returned, and the host's clock does.
      calls: of the operation in one run.
    """

    run: Callable[[int], Any]
    results: Callable[[], list[tuple[Array, str]]]
    wait: Callable[[Any], None] | None = None
    calls: int = 1

    @property
    def clock(self) -> str:
        """What times it."""
        return EVENTS if self.wait is None else HOST


Builder = Callable[[Case, Rotation], Prepared]


@dataclass(frozen=True)
class Contender:
    """One way to do some operations.

    Attributes:
      name: for tables.
      missing: why it cannot run on this machine; "" where it can.
      ways: by operation, what does it (a library's routine) and what prepares a case.  The latter raises
        NotApplicableError for a case that it does not do.
      errors: what its library raises when it fails.
    """

    name: str
    missing: str
    ways: Mapping[str, tuple[str, Builder]]
    errors: tuple[type[Exception], ...] = ()
