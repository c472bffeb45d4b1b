"""What a user may choose about a compilation, as the lowering sees it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LoweringOptions:
    """Choices that change the code; part of the key of every cache.

    Attributes:
      target: name of the GPU architecture, for instance "sm_90a".
      num_warps: warps a block (a power of two up to 32), or None to choose by the tiles' sizes.
      approx_math: whether the hardware's approximate functions may stand in for accurate ones.
      dimension_semantics: "parallel" or "sequential" for each grid dimension, or None to infer.
    """

    target: str = "sm_90a"
    num_warps: int | None = None
    approx_math: bool = False
    dimension_semantics: tuple[str, ...] | None = None
