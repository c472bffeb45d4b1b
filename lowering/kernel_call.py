"""One `pallas_call`, as the lowering takes it from JAX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mosaic_gpu.lowering.options import LoweringOptions


@dataclass(frozen=True)
class KernelCall:
    """The parts of a `pallas_call` equation that decide the code.

    Attributes:
      name: the kernel's name, as users and profiles see it.
      jaxpr: the kernel's body; its arguments are references to blocks: inputs, outputs, scratch.
      grid_mapping: Pallas' GridMapping: grid, block mappings with their index maps, operand counts.
      out_avals: shapes and dtypes of the outputs (whole arrays).
      input_output_aliases: pairs (input, output) that are one array.
      options: the user's choices.
    """

    name: str
    jaxpr: Any
    grid_mapping: Any
    out_avals: tuple[Any, ...]
    input_output_aliases: tuple[tuple[int, int], ...]
    options: LoweringOptions
