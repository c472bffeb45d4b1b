"""What goes to a process that compiles, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass

from mosaic_gpu.lowering.options import LoweringOptions


@dataclass(frozen=True)
class Job:
    """A kernel in the dialect, as `cache.module_text` prints it, and how to compile it."""

    text: str
    options: LoweringOptions


@dataclass(frozen=True)
class Built:
    """A compiled kernel: its PTX's text, its cubin, the fields of its `Resources`, seconds of each stage that ran."""

    ptx: str
    cubin: bytes
    resources: dict[str, int]
    seconds: dict[str, float]


@dataclass(frozen=True)
class Failure:
    """Why there is no compiled kernel.

    Attributes:
      is_refusal: whether the compiler refused the kernel; else something broke on the way, or took too long.
      why: in words.
    """

    is_refusal: bool
    why: str


Outcome = Built | Failure
