"""What a user may choose for an interpreted kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Literal

import mosaic_gpu.options  # noqa: F401  (registers the lowering of kernels with JAX)
from mosaic_gpu.errors import KernelError, SourceLine

Action = Literal["raise", "warn", "ignore"]
ACTIONS = ("raise", "warn", "ignore")


@dataclass(frozen=True)
class Event:
    """One step of an interpreted kernel.

    Attributes:
      kind: "read", "write", "copy", "land", "arrive", "wait", "commit", "wgmma", "block" or "report".
      thread: who did it, for instance "block (0, 1) thread 2".
      detail: what it was, in words.
      source: the kernel's line.
    """

    kind: str
    thread: str
    detail: str
    source: SourceLine | None = None

    def __str__(self) -> str:
        where = f" at {self.source}" if self.source else ""
        return f"{self.thread}: {self.kind} {self.detail}{where}"


@dataclass(frozen=True)
class InterpretParams:
    """Runs a kernel in the interpreter: `pl.pallas_call(..., interpret=InterpretParams())`.

    Attributes:
      seed: draws the order in which threads, blocks and asynchronous copies go on; None is one fixed order, in
        which a copy lands as late as it can.
      resident_blocks: how many blocks (clusters, where there are any) run interleaved; 1 is one after another.
      out_of_bounds_reads: what an index outside of a dimension reads: "clamp" the nearest element, as compiled
        kernels do; "fill" the value of uninitialised memory.
      uninitialised: what memory holds before it is written: "nan" (NaN, the least integer, False), "zero",
        "random", or a byte (0 to 255) that fills it.
      out_of_bounds: what a read or write out of bounds does: "raise" an error, "warn", or "ignore" it.
      uninitialised_reads: the same for reads of memory that nothing wrote.
      unwritten_outputs: the same for elements of results that nothing wrote.
      block_conflicts: the same for two blocks that write one element, or one that reads what another writes.
      races: the same for accesses that nothing orders, of two threads, or of a thread and an asynchronous copy.
      missing_waits: the same for asynchronous work that is used or left without a wait.
      missing_commits: the same for shared memory that a copy or a wgmma reads before `commit_smem`, and for copies
        that are never committed to a group.
      on_event: called with each `Event`.
      log: whether every event is printed.

    Raises KernelError for a value that is none of these.
    """

    seed: int | None = None
    resident_blocks: int = 1
    out_of_bounds_reads: Literal["clamp", "fill"] = "clamp"
    uninitialised: Literal["nan", "zero", "random"] | int = "nan"
    out_of_bounds: Action = "raise"
    uninitialised_reads: Action = "raise"
    unwritten_outputs: Action = "raise"
    block_conflicts: Action = "raise"
    races: Action = "raise"
    missing_waits: Action = "raise"
    missing_commits: Action = "raise"
    on_event: Callable[[Event], None] | None = None
    log: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.type == "Action" and getattr(self, field.name) not in ACTIONS:
                raise _wrong(field.name, getattr(self, field.name), f"one of {ACTIONS}")
        if self.out_of_bounds_reads not in ("clamp", "fill"):
            raise _wrong("out_of_bounds_reads", self.out_of_bounds_reads, "'clamp' or 'fill'")
        value = self.uninitialised
        if value not in ("nan", "zero", "random") and not (type(value) is int and 0 <= value <= 255):
            raise _wrong("uninitialised", value, "'nan', 'zero', 'random' or a byte")
        if type(self.resident_blocks) is not int or self.resident_blocks < 1:
            raise _wrong("resident_blocks", self.resident_blocks, "an int >= 1")


def _wrong(name: str, got: object, expected: str) -> KernelError:
    return KernelError(f"InterpretParams({name}=...) has a value that it cannot have", got=repr(got), expected=expected)
