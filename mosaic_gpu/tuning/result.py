"""What tuning gives: every candidate with what became of it, and the best."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from mosaic_gpu.lowering.launch import LaunchFacts
    from mosaic_gpu.lowering.resources import Resources
    from mosaic_gpu.runtime.timing import Timing
    from mosaic_gpu.tuning.model import Estimate

Status = Literal["measured", "estimated", "spills", "does not fit", "refused", "failed", "wrong"]

_LONGEST_WHY = 90


@dataclass(frozen=True)
class Candidate:
    """One configuration, and what became of it.

    Attributes:
      config: what `make_kernel` was called with.
      status: "measured" and "estimated" are ranked; the others are left out: "spills" (registers ran out), "does not
        fit" (the GPU cannot hold one block of it), "refused" (by `make_kernel`, Pallas or the compiler), "failed" (a
        tool or the driver broke, or it took too long), "wrong" (`check` says so).
      why: of those that are left out, the reason in full.
      resources, launches: of each kernel that it calls; empty where there is no code.
      timing: on the GPU.
      estimate: of the model; None where there is no code.
      is_from_cache: whether the timing was measured earlier.
      compile_seconds: of the stages that ran; 0 where the code was in the cache.
    """

    config: Mapping[str, Any]
    status: Status
    why: str = ""
    resources: tuple[Resources, ...] = ()
    launches: tuple[LaunchFacts, ...] = ()
    timing: Timing | None = None
    estimate: Estimate | None = None
    is_from_cache: bool = False
    compile_seconds: float = 0.0

    @property
    def microseconds(self) -> float | None:
        """What it is ranked by: the median of the measured times, else the estimate; None where it is left out."""
        if self.status == "measured" and self.timing is not None:
            return self.timing.median
        return self.estimate.microseconds if self.status == "estimated" and self.estimate is not None else None


@dataclass(frozen=True, repr=False)
class Tuned:
    """The result of `autotune`; calling it calls the best kernel.

    Attributes:
      config: the best configuration.
      kernel: what `make_kernel` returned for it.
      candidates: all, the best first, those that were left out last.
      how: where the numbers are from, in words.
    """

    config: Mapping[str, Any]
    kernel: Callable[..., Any]
    candidates: tuple[Candidate, ...]
    how: str

    def __call__(self, *args: Any, **options: Any) -> Any:
        """What `kernel` gives."""
        return self.kernel(*args, **options)

    def __str__(self) -> str:
        return f"{self.how}\n{table(self.candidates)}"

    __repr__ = __str__


def table(candidates: Sequence[Candidate]) -> str:
    """The candidates as a table of text."""
    names = list(dict.fromkeys(name for c in candidates for name in c.config))
    rows = [[*names, "us", "model us", "bound", "warps", "registers", "shared KiB", "blocks/SM", "status"]]
    rows += [[_shown(c.config.get(name, "")) for name in names] + _cells(c) for c in candidates]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row[:-1], widths, strict=False)) for row in rows]
    return "\n".join(f"{line}  {row[-1]}".rstrip() for line, row in zip(lines, rows, strict=True))


def _cells(candidate: Candidate) -> list[str]:
    estimate = candidate.estimate
    measured = "" if candidate.timing is None else f"{candidate.timing.median:.1f}"
    model = ["", ""]
    if estimate is not None:
        model = [f"{estimate.microseconds:.1f}" + "?" * estimate.is_assumed, estimate.bound]
    code = ["", "", "", ""]
    if candidate.launches and estimate is not None:
        shared = max(launch.shared_bytes for launch in candidate.launches)
        code = [
            "+".join(str(launch.block[0] // 32) for launch in candidate.launches),
            "+".join(str(used.registers) for used in candidate.resources),
            f"{shared / 1024:.1f}",
            str(estimate.tiles_at_once),
        ]
    return [measured, *model, *code, _status(candidate)]


def _status(candidate: Candidate) -> str:
    if not candidate.why:
        return candidate.status + (" (earlier)" if candidate.is_from_cache else "")
    first = candidate.why.split("\n", 1)[0]
    short = first if len(first) <= _LONGEST_WHY else first[: _LONGEST_WHY - 3] + "..."
    return f"{candidate.status}: {short}"


def _shown(value: Any) -> str:
    return getattr(value, "__name__", None) or str(value)
