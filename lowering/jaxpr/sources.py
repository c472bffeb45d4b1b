"""From an equation to the user's line, for error messages.  Free of the MLIR bindings."""

from __future__ import annotations

from typing import Any

from mosaic_gpu.errors import SourceLine
from mosaic_gpu.lowering.jaxpr.compat import user_frame


def equation_source(equation: Any) -> SourceLine | None:
    """The user's line an equation comes from; None where JAX kept none."""
    frame = user_frame(equation.source_info)
    return None if frame is None else SourceLine(frame.file_name, frame.start_line, frame.function_name)
