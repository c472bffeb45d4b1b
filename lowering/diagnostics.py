"""The one place where errors of MLIR become errors of this package."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


def parse_module(text: str, name: str) -> ir.Module:
    """The module of `text`, verified; `name` is what messages call it.

    Raises:
      KernelError: the text does not parse, or does not verify.
    """
    with _user_errors(name):
        return ir.Module.parse(text)


def parse_module_file(path: Path) -> ir.Module:
    """The module in the file `path`, verified; an op without a location of its own is at its line of the file.

    Raises:
      KernelError: the file does not parse, or does not verify.
    """
    with _user_errors(str(path)):
        return ir.Module.parseFile(str(path))


@contextmanager
def _user_errors(name: str) -> Iterator[None]:
    """MLIR's errors inside are the user's: in `name`, at the line where the parser or the verifier stopped."""
    try:
        yield
    except ir.MLIRError as error:
        places = (_PLACE.findall(str(diagnostic.location)) for diagnostic in error.error_diagnostics)
        file, line = next((found[0] for found in places if found), (name, 0))
        source = SourceLine(name if file == "-" else file, int(line)) if line else None  # "-" is a text
        raise KernelError(f"{name} does not hold a valid module: {error}", source=source) from error
