"""Rules on the values inside a kernel; before any IR."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mosaic_gpu.check_blocks import check_dtype
from mosaic_gpu.errors import MosaicGpuError
from mosaic_gpu.lowering.jaxpr import compat
from mosaic_gpu.lowering.jaxpr.sources import equation_source


def check_values(jaxpr: Any) -> None:
    """The dtype of every value that the kernel computes, in nested jaxprs too.

    Raises UnsupportedError for one that no kernel can hold.
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
    check_dtype(aval.dtype, f"a value that {primitive} gives")
