"""The one place where errors of MLIR become errors of this package."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.errors import InternalError, KernelError, SourceLine

_PLACE = re.compile(r'"([^"]+)":(\d+):\d+')


@contextmanager
def translated_errors(stage: str) -> Iterator[None]:
    """MLIR's errors inside become an `InternalError` that names the stage and the kernel's line.

    The checks before the first stage accept a kernel; where a later stage refuses the IR, the fault is ours.
    """
    try:
        yield
    except ir.MLIRError as error:
        raise InternalError(
            f"stage {stage!r} failed: {error}",
            hint="please report it, with the kernel",
            source=error_source(error),
        ) from error


def error_source(error: ir.MLIRError) -> SourceLine | None:
    """The first line of a source file that the diagnostics of `error` name; None where they name none."""
    sources = (location_source(diagnostic.location) for diagnostic in error.error_diagnostics)
    return next((source for source in sources if source is not None), None)


def location_source(location: ir.Location) -> SourceLine | None:
    """The first line of a source file that `location` names; None where it names none."""
    places = _PLACE.findall(str(location))
    return next((SourceLine(file, int(line)) for file, line in places if file != "-"), None)


def parse_module(text: str, file: str) -> ir.Module:
    """The module of `text`, verified; `file` is named where the text is wrong.

    Raises:
      KernelError: the text does not parse, or does not verify.
    """
    try:
        return ir.Module.parse(text)
    except ir.MLIRError as error:
        raise KernelError(f"{file} does not hold a valid module: {error}", source=_line_of(error, file)) from error


def _line_of(error: ir.MLIRError, file: str) -> SourceLine | None:
    """Where in `file` the parser stopped; MLIR calls the text it parses "-"."""
    for diagnostic in error.error_diagnostics:
        for name, line in _PLACE.findall(str(diagnostic.location)):
            return SourceLine(file if name == "-" else name, int(line))
    return None
