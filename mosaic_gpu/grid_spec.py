"""The grid specification of kernels whose index maps look things up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mosaic_gpu.lowering.jaxpr import compat


class PrefetchScalarGridSpec(compat.GridSpec):
    """A grid whose first operands are for index maps, and for the kernel's body.

    As `jax.experimental.pallas.tpu.PrefetchScalarGridSpec`, which works as well, with nothing of a TPU.  Index maps
    get the program ids, then a reference to each of these operands; so does the kernel, in front of its inputs.

    Arguments:
      num_scalar_prefetch: how many operands of the call these are: arrays of any rank and dtype, mostly integers.
      grid, in_specs, out_specs, scratch_shapes: as of `pl.GridSpec`; the specs are of the other operands.
    """

    def __init__(
        self,
        num_scalar_prefetch: int,
        grid: Any = (),
        in_specs: Any = compat.no_block_spec,
        out_specs: Any = compat.no_block_spec,
        scratch_shapes: Sequence[Any] = (),
    ) -> None:
        super().__init__(grid, in_specs, out_specs, scratch_shapes)
        self.num_scalar_prefetch = num_scalar_prefetch

    def _make_scalar_ref_aval(self, aval: Any) -> Any:
        return compat.whole_reference(aval)
