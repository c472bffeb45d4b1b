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
      max_concurrent_steps: the most steps of a loop whose loads are under way at once; None: as many as fit, up to 4.
      warp_specialize: whether warps of their own start the copies of such loops; None: where it pays.
      programmatic_launch: whether the kernel may start before its predecessor on the stream has ended.
    """

    target: str = "sm_90a"
    num_warps: int | None = None
    approx_math: bool = False
    dimension_semantics: tuple[str, ...] | None = None
    max_concurrent_steps: int | None = None
    warp_specialize: bool | None = None
    programmatic_launch: bool = False
