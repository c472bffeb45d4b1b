"""What was measured, as a table, as JSON, and as a picture."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mosaic_gpu.errors import KernelError, MosaicGpuError, ToolError

from .cases import Case
from .measure import FAILED, MISSING, NOT_APPLICABLE, TIMED, WRONG, Measured, Row
from .ours import NAME

VERSION = 1
"""Of the JSON."""

HEAD = (
    f"  {'':12}{'median us':>11}{'low':>10}{'high':>10}{'TFLOP/s':>9}{'GB/s':>8}{'share':>8}{'vs ours':>9}{'error':>7}"
    f"  {'clock':8}by"
)


def describe(measured: Measured) -> str:
    """The line above a case's rows."""
    limits, rows = measured.roofline, measured.checked_rows
    cache = "" if measured.exceeds_cache else " (the L2 cache holds them)"
    checked = "" if rows is None else f", {rows} rows checked"
    return (
        f"{measured.case.name}: {limits.bound} bounds it, {limits.least_us:.4g} us at least; "
        f"{measured.copies} cop{'y' if measured.copies == 1 else 'ies'} of the inputs{cache}{checked}"
    )


def line(row: Row, measured: Measured) -> str:
    """A contender's row."""
    if row.status != TIMED or row.median is None or row.low is None or row.high is None or row.share is None:
        return f"  {row.contender:12}{row.status}: {row.reason}"
    limits = measured.roofline
    mine = next((r.median for r in measured.rows if r.contender == NAME and r.status == TIMED), None)
    ratio = "-" if mine is None else f"{row.median / mine:.2f}x"
    rates = f"{limits.flops / row.median / 1e6:>9.1f}{limits.bytes / row.median / 1e3:>8.0f}"
    return (
        f"  {row.contender:12}{row.median:>11.2f}{row.low:>10.2f}{row.high:>10.2f}{rates}{row.share:>8.1%}{ratio:>9}"
        f"{row.error:>7.2f}  {row.clock:8}{row.how}"
    )


def case_content(measured: Measured) -> dict[str, Any]:
    """A case as JSON has it."""
    limits = measured.roofline
    return {
        "operation": measured.case.operation,
        **measured.case.line(),
        "flops": limits.flops,
        "bytes": limits.bytes,
        "bound": limits.bound,
        "roofline_us": limits.least_us,
        "copies": measured.copies,
        "exceeds_l2": measured.exceeds_cache,
        "checked_rows": measured.checked_rows,
        "tolerance": asdict(measured.tolerance),
        "contenders": [{key: _finite(value) for key, value in asdict(row).items()} for row in measured.rows],
    }


def failed_case(case: Case, error: MosaicGpuError) -> dict[str, Any]:
    """A case that could not even begin."""
    row = Row(NAME, "", FAILED, str(error))
    return {"operation": case.operation, **case.line(), "contenders": [asdict(row)]}


def _finite(value: Any) -> Any:
    """JSON has no infinity: results that hold NaN are off by "inf"."""
    return "inf" if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Writes the content.  Raises ToolError where the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"version": VERSION, **content}, indent=1, allow_nan=False) + "\n")
    except OSError as error:
        raise ToolError(f"the numbers cannot be written: {error}") from error


def check_plot(path: Path) -> None:
    """Raises, before anything is measured, what `write_plot` would: ToolError, or KernelError for another suffix."""
    if path.suffix != ".png":
        raise KernelError("the picture is a PNG", got=str(path), expected="a name that ends with .png")
    try:
        import matplotlib  # noqa: F401 (to see whether it is there)
    except ImportError as error:
        raise ToolError(f"the picture needs matplotlib: {error}", hint="pip install matplotlib") from error


def write_plot(path: Path, content: dict[str, Any]) -> None:
    """Draws the shares of the roofline of each case, or where nothing ran on a GPU the times of compilation.

    Raises ToolError where the file cannot be written.
    """
    check_plot(path)
    from . import plot

    figure = plot.shares(content["cases"], content["gpu"]["name"]) if content["cases"] else plot.compile_times(content)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=130)
    except OSError as error:
        raise ToolError(f"the picture cannot be written: {error}") from error


def summary(cases: Sequence[dict[str, Any]]) -> str:
    """The last lines: how many rows came to what, and whether our results are right."""
    rows = [(case["name"], row) for case in cases for row in case["contenders"]]
    every = (TIMED, WRONG, FAILED, MISSING, NOT_APPLICABLE)
    counts = {status: sum(row["status"] == status for _, row in rows) for status in every}
    counted = ", ".join(f"{count} {status}" for status, count in counts.items())
    faults = [f"{name} ({row['status']})" for name, row in rows if row["contender"] == NAME and row["status"] != TIMED]
    verdict = f"NOT right in {', '.join(faults)}" if faults else "every result is right"
    return f"rows: {counted}\n{NAME}: {verdict}"


def is_right(cases: Sequence[dict[str, Any]]) -> bool:
    """Whether our kernels ran and were right in all cases."""
    rows = [row for case in cases for row in case["contenders"] if row["contender"] == NAME]
    return bool(rows) and all(row["status"] == TIMED for row in rows)
