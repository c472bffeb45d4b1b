"""Checks every contender's results, then times those that are right, in rounds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaic_gpu.errors import MosaicGpuError
from mosaic_gpu.runtime.devices import Device
from mosaic_gpu.runtime.peaks import throughput_of_device
from mosaic_gpu.runtime.timing import time_calls

from .cases import Case
from .contender import Contender, NotApplicableError, Prepared
from .floats import Array
from .memory import Rotation, check_room, rotation
from .operation import Operation, Reference, Tolerance, take

TIMED, WRONG, MISSING, FAILED, NOT_APPLICABLE = "timed", "wrong", "missing", "failed", "not applicable"

_KINDS = {"float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "f8", "float8_e5m2": "f8"}


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes:
      rounds: in each, every contender is timed once; another one begins each time.
      repeats, min_seconds: of a round, as `time_calls` takes them.
      warmup: calls before each measurement.
    """

    rounds: int = 5
    repeats: int = 10
    min_seconds: float = 0.02
    warmup: int = 3


FULL, QUICK = Effort(), Effort(rounds=2, repeats=3, min_seconds=0.0, warmup=1)


@dataclass
class Row:
    """What one contender did with one case; times are microseconds of one call.

    Attributes:
      status: "timed", "wrong", "missing", "failed" or "not applicable".
      reason: for all but "timed".
      how: what does it.
      clock: "events" or "host".
      error: the largest of the results' errors, in terms of what is allowed; None where nothing was checked.
      median: of the rounds' medians.
      low, high: the lowest 10th and the highest 90th percentile of a round.
      samples: of all rounds.
      share: the roofline's time in terms of the median.
    """

    contender: str
    how: str
    status: str
    reason: str = ""
    clock: str = ""
    error: float | None = None
    median: float | None = None
    low: float | None = None
    high: float | None = None
    samples: int = 0
    share: float | None = None


@dataclass(frozen=True)
class Roofline:
    """The least time that a GPU can take: by arithmetic, and by traffic with memory.

    Attributes:
      flops, bytes: of the case.
      flops_per_s, bytes_per_s: the GPU's peaks.
    """

    flops: float
    bytes: float
    flops_per_s: float
    bytes_per_s: float

    @property
    def compute_us(self) -> float:
        """Microseconds of the arithmetic."""
        return 1e6 * self.flops / self.flops_per_s if self.flops_per_s else 0.0

    @property
    def memory_us(self) -> float:
        """Microseconds of the traffic."""
        return 1e6 * self.bytes / self.bytes_per_s

    @property
    def bound(self) -> str:
        """Which of them it is."""
        return "compute" if self.compute_us > self.memory_us else "memory"

    @property
    def least_us(self) -> float:
        """Microseconds."""
        return max(self.compute_us, self.memory_us)


@dataclass(frozen=True)
class Measured:
    """All of a case.

    Attributes:
      copies: of the inputs, which calls rotate through.
      exceeds_cache: whether they are more than the L2 cache holds.
      checked_rows: how many rows of the results the reference has; None for all.
    """

    case: Case
    roofline: Roofline
    tolerance: Tolerance
    rows: list[Row]
    copies: int
    exceeds_cache: bool
    checked_rows: int | None


def roofline(case: Case, place: Device) -> Roofline:
    """Of a case on a GPU, at its clocks."""
    how: Operation = case.how
    peaks = throughput_of_device(place)
    rate = peaks.tensor_flops_per_s(_KINDS[case.dtype]) if how.is_matrix else peaks.fp32_flops_per_s
    return Roofline(how.flops(case), how.bytes(case), rate, peaks.dram_bytes_per_s)


def measure(case: Case, contenders: Sequence[Contender], place: Device, effort: Effort) -> Measured:
    """Checks and times all contenders on a case.

    Raises ToolError where the case's arrays do not fit into the GPU's memory.
    """
    check_room(place, int(case.how.bytes(case)))
    arrays = case.how.inputs(case)
    inputs = rotation(arrays, throughput_of_device(place).l2_bytes)
    reference = case.how.reference(case, arrays)
    rows, ready = [], []
    for contender in (c for c in contenders if case.operation in c.ways):
        row, prepared = _prepare(case, contender, inputs, reference)
        rows.append(row)
        if prepared is not None:
            ready.append((contender, row, prepared))
    limits = roofline(case, place)
    time_rounds(ready, effort, limits)
    checked = None if reference.rows is None else len(reference.rows)
    tolerance = case.how.tolerance(case, "float32" if case.operation == "cross_entropy" else case.dtype)
    return Measured(case, limits, tolerance, rows, len(inputs), inputs.exceeds_cache, checked)


def _prepare(case: Case, contender: Contender, inputs: Rotation, reference: Reference) -> tuple[Row, Prepared | None]:
    """The row so far, and what is to be timed: nothing where it cannot run, or is wrong."""
    how, build = contender.ways[case.operation]
    row = Row(contender.name, how, NOT_APPLICABLE)
    if contender.missing:
        row.status, row.reason = MISSING, contender.missing
        return row, None
    try:
        prepared = build(case, inputs)
        row.clock = prepared.clock
        found = prepared.results()
    except NotApplicableError as reason:
        row.reason = str(reason)
        return row, None
    except (MosaicGpuError, *contender.errors) as error:
        row.status, row.reason = FAILED, _first_line(error)
        return row, None
    row.error = max(
        worst(result, values, reference, case.how.tolerance(case, dtype))
        for (result, dtype), values in zip(found, reference.values, strict=False)
    )
    if not row.error <= 1:
        row.status, row.reason = WRONG, f"results are off by {row.error:.3g} times what is allowed"
        return row, None
    row.status = TIMED
    return row, prepared


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


def worst(found: Array, values: Array, reference: Reference, tolerance: Tolerance) -> float:
    """The largest error of a result in terms of what is allowed; infinite where a number is none."""
    rows = found.reshape(-1, *values.shape[1:]) if values.ndim > 1 else found.reshape(-1)
    if reference.rows is None and rows.shape != values.shape:
        return float("inf")
    if not np.isfinite(rows).all():
        return float("inf")
    scale = reference.scale if values is reference.values[0] else 1.0
    allowed = tolerance.relative * np.abs(values) + tolerance.absolute * scale
    return float((np.abs(take(rows, reference.rows).astype(np.float64) - values) / allowed).max())


def time_rounds(ready: Sequence[tuple[Contender, Row, Prepared]], effort: Effort, limits: Roofline) -> None:
    """Fills in the times.  In each round another contender begins: a clock that drifts does so for all."""
    rounds: dict[str, list[tuple[float, float, float, int]]] = {contender.name: [] for contender, _, _ in ready}
    failed: set[str] = set()
    for number in range(effort.rounds):
        first = number % max(len(ready), 1)
        for contender, row, prepared in (*ready[first:], *ready[:first]):
            if contender.name in failed:
                continue
            try:
                rounds[contender.name].append(_once(prepared, effort))
            except (MosaicGpuError, *contender.errors) as error:
                failed.add(contender.name)
                row.status, row.reason = FAILED, _first_line(error)
    for contender, row, _ in ready:
        if contender.name not in failed:
            medians, lows, highs, counts = zip(*rounds[contender.name], strict=True)
            row.median, row.low, row.high = statistics.median(medians), min(lows), max(highs)
            row.samples, row.share = sum(counts), limits.least_us / row.median


def _once(prepared: Prepared, effort: Effort) -> tuple[float, float, float, int]:
    """Median, 10th and 90th percentile of one round, and how many samples they are of."""
    options: dict[str, Any] = {"warmup": effort.warmup, "repeats": effort.repeats, "min_seconds": effort.min_seconds}
    if prepared.wait is None:
        timing = time_calls(prepared.run, stream=0, **options)
        return timing.median, timing.low, timing.high, timing.count
    return _host_clock(prepared.run, prepared.wait, prepared.calls, effort)


_SAMPLE_SECONDS = 2e-3  # the wait at its end takes some 20 microseconds


def _host_clock(
    run: Callable[[int], Any], wait: Callable[[Any], None], calls: int, effort: Effort
) -> tuple[float, float, float, int]:
    """The same by the host's clock: a sample is many runs in flight, from the first until the last is done."""
    number = 0

    def seconds(runs: int) -> float:
        nonlocal number
        began = time.perf_counter()
        last = None
        for _ in range(runs):
            last = run(number)
            number += 1
        wait(last)
        return time.perf_counter() - began

    seconds(max(effort.warmup, 1))
    runs = max(1, min(200, int(_SAMPLE_SECONDS / max(seconds(3) / 3, 1e-9)) + 1))
    samples: list[float] = []
    while len(samples) < effort.repeats or sum(samples) < effort.min_seconds:
        samples.append(seconds(runs))
    each = [1e6 * sample / (runs * calls) for sample in samples]
    low, median, high = np.percentile(each, [10, 50, 90])
    return float(median), float(low), float(high), len(each)
