"""From an MLIR location to the user's line, for error messages."""

from __future__ import annotations

import re

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.errors import SourceLine

_PLACE = re.compile(r'"([^"]+)":(\d+)(?::\d+)?')


def source_of(location: ir.Location) -> SourceLine | None:
    """The first file and line that a location names; None where it names none."""
    for file, line in _PLACE.findall(str(location)):
        return SourceLine(file, int(line))
    return None
