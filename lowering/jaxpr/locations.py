"""From an equation's source to MLIR locations."""

from __future__ import annotations

from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.lowering.jaxpr.compat import user_frame


def equation_location(equation: Any) -> ir.Location:
    """The MLIR location of an equation: its user's file and line.

    Inside of JAX's own functions there is none: what they are made of counts as the line that calls them,
    whose location is the current one.
    """
    frame = user_frame(equation.source_info)
    if frame is None:
        return ir.Location.current
    return ir.Location.file(frame.file_name, frame.start_line, frame.start_column)
