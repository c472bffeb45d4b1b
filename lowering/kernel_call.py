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
      jaxpr: the kernel's body; its arguments are references: index operands, blocks of inputs and of outputs, scratch.
      grid_mapping: Pallas' GridMapping: grid, block mappings with their index maps, operand counts.
      out_avals: shapes and dtypes of the outputs (whole arrays).
      input_output_aliases: pairs (input, output) that are one array; index operands count as inputs here.
      options: the user's choices.
      bound_sizes: what each computed bound of the grid is as an expression of dimension variables, as text; None where
        it is something else, or where nobody asks.  Decides nothing of the code.
    """

    name: str
    jaxpr: Any
    grid_mapping: Any
    out_avals: tuple[Any, ...]
    input_output_aliases: tuple[tuple[int, int], ...]
    options: LoweringOptions
    bound_sizes: tuple[str | None, ...] = ()

    @property
    def num_bounds(self) -> int:
        """How many bounds of the grid are computed: each is an operand, an int32 of rank 0, in front of all others."""
        return int(self.grid_mapping.num_dynamic_grid_bounds)

    @property
    def index_avals(self) -> tuple[Any, ...]:
        """Shapes and dtypes of the operands that the index maps see (scalar prefetch), whole arrays."""
        mapping = self.grid_mapping
        return tuple(aval.inner_aval for aval in mapping.index_map_avals[len(mapping.grid) :])

    @property
    def array_avals(self) -> tuple[Any, ...]:
        """Shapes and dtypes of all index operands, inputs and outputs, in this order: whole arrays."""
        return (*self.index_avals, *(block.array_aval for block in self.grid_mapping.block_mappings))

    @property
    def symbols(self) -> tuple[Any, ...]:
        """The sizes of arrays that are not known (expressions of dimension variables), each once.

        Each is an operand, an int32 of rank 0, behind the bounds.
        """
        from mosaic_gpu.lowering.jaxpr.compat import is_symbolic  # JAX: the stages behind the first do without it

        sizes = [size for aval in self.array_avals for size in aval.shape]
        return tuple(dict.fromkeys(size for size in sizes if is_symbolic(size)))

    @property
    def num_scalars(self) -> int:
        """How many operands there are in front of the arrays: bounds and sizes."""
        return self.num_bounds + len(self.symbols)

    @property
    def num_operands(self) -> int:
        """How many operands the kernel is given: bounds, sizes, index operands and inputs."""
        return self.num_scalars + len(self.index_avals) + int(self.grid_mapping.num_inputs)

    @property
    def aliases(self) -> tuple[tuple[int, int], ...]:
        """Pairs (operand, result) that are one array; bounds and sizes count as operands here."""
        return tuple((self.num_scalars + source, target) for source, target in self.input_output_aliases)
