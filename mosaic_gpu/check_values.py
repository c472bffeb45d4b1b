"""Rules on the values inside a kernel; before any IR."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from mosaic_gpu.check_blocks import check_dtype
from mosaic_gpu.errors import KernelError, MosaicGpuError
from mosaic_gpu.lowering.jaxpr import compat
from mosaic_gpu.lowering.jaxpr.sources import equation_source

MAX_TILE_ELEMENTS = 2**20
"""Elements of one value: 1,024 for each of the 1,024 threads that a block can have at most."""


def check_values(jaxpr: Any) -> None:
    """Every value that the kernel computes, in nested jaxprs too: its dtype and its size.

    Raises:
      UnsupportedError: a dtype that no kernel can hold.
      KernelError: a value so large that no block of threads could hold it.
    """
    for equation in _equations(jaxpr):
        for var in equation.outvars:
            try:
                _check_value(var.aval, equation.primitive.name)
            except MosaicGpuError as error:
                raise error.at(equation_source(equation)) from None


def _equations(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        yield equation
        for inner in compat.jaxpr_params(equation.params):
            yield from _equations(inner)


def _check_value(aval: Any, primitive: str) -> None:
    if not compat.is_array(aval) or compat.is_extended_dtype(aval):
        return
    what = f"a value that {primitive} gives"
    check_dtype(aval.dtype, what)
    elements = math.prod(aval.shape)
    if elements > MAX_TILE_ELEMENTS:
        raise KernelError(
            f"{what} is larger than a block of threads can hold",
            got=f"shape {list(aval.shape)}: {elements} elements",
            expected=f"at most {MAX_TILE_ELEMENTS} elements",
            hint="cut the arrays into smaller blocks with BlockSpec and grid, or read part of a reference at a time",
        )
