"""What a user may choose for a kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from mosaic_gpu.lowering.jaxpr.compat import CompilerParamsBase
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.registration import register

DEFAULT_TARGET = "sm_90a"


@dataclass(frozen=True)
class CompilerParams(CompilerParamsBase):
    """Hands a `pallas_call` to this compiler, with these choices.

    Attributes:
      num_warps: warps of 32 threads in a block (1, 2, 4, 8, 16 or 32); None chooses by the tiles' sizes.
      approx_math: whether the hardware's approximate functions may stand in for accurate ones, and multiply-adds, which
        round once, for products and sums.
      dimension_semantics: "parallel" or "sequential" for each grid dimension; None infers them.
      target: the GPU architecture, for instance "sm_90a"; None takes the default, "sm_90a".
      dynamic_grid: "refuse" makes a traced grid bound an error even where it could work.
      max_concurrent_steps: the most steps of a sequential grid dimension or loop whose loads are under way at once;
        None takes as many as fit, up to 4; 1 leaves the loads where they are.
      warp_specialize: whether warps of their own start the copies of such a loop; None decides by what pays.
      programmatic_launch: whether the kernel may start while its predecessor on the stream ends, and wait for it before
        it touches memory (CUDA's programmatic dependent launch); from sm_90 on.

    The values are checked together with the kernel, before it is compiled.
    """

    num_warps: int | None = None
    approx_math: bool = False
    dimension_semantics: Sequence[str] | None = None
    target: str | None = None
    dynamic_grid: Literal["allow", "refuse"] = "allow"
    max_concurrent_steps: int | None = None
    warp_specialize: bool | None = None
    programmatic_launch: bool = False

    def __post_init__(self) -> None:
        # JAX keys its caches with these parameters: they have to be hashable.
        if isinstance(self.dimension_semantics, list):
            object.__setattr__(self, "dimension_semantics", tuple(self.dimension_semantics))


def lowering_options(params: CompilerParams, target: str, vmapped: Sequence[int], rank: int) -> LoweringOptions:
    """The lowering's view of `params`.

    Arguments:
      target: the architecture.
      vmapped: grid dimensions that `jax.vmap` added: they are parallel.
      rank: of the grid, the added dimensions included.
    """
    semantics = params.dimension_semantics
    if semantics is not None:
        words = iter(semantics)
        semantics = tuple("parallel" if d in vmapped else next(words) for d in range(rank))
    return LoweringOptions(
        target=target,
        num_warps=params.num_warps,
        approx_math=params.approx_math,
        dimension_semantics=semantics,
        max_concurrent_steps=params.max_concurrent_steps,
        warp_specialize=params.warp_specialize,
        programmatic_launch=params.programmatic_launch,
    )


register(CompilerParams)
