"""How long calls take on the GPU, measured by CUDA events.

Two things spoil short measurements.  An event has a resolution of about half a microsecond (CUDA runtime API,
`cudaEventElapsedTime`); and where a kernel is quicker than the host launches the next, the gaps are measured.  So:

* Before each measured span the stream gets a head start: writes to memory that take the GPU longer than the host needs
  to enqueue the span.  When the first event passes, all the rest of the span is in the queue.
* Unless the cache is to be cold, a span is a batch of calls that together take some hundred microseconds.  One call
  that is not measured stands between the head start and the batch, and brings back what the writes drove out of the
  caches.
* With a cold cache a span is one call; the head start has written more than the L2 cache holds.

Needs NumPy and cuda-python alone.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaic_gpu.errors import KernelError, ToolError
from mosaic_gpu.runtime import driver
from mosaic_gpu.runtime.devices import Device, current_device

_BATCH_SECONDS = 2e-4
_LONGEST_BATCH = 200  # the driver's queue takes about a thousand launches before it makes the host wait
_MOST_SAMPLES = 1000
_LEAST_SAMPLES = 3
_TRIAL_CALLS = 3
_SMALLEST_BUFFER = 1 << 24
_MOST_WRITES = 200


@dataclass(frozen=True)
class Timing:
    """What one call takes on the GPU, in microseconds.

    Attributes:
      median: of the samples.
      low, high: the 10th and the 90th percentile of them.
      count: how many samples there are.
      batch: calls of one sample, which is their mean.
      is_cold: whether the L2 cache held nothing of the call's when it started.
    """

    median: float
    low: float
    high: float
    count: int
    batch: int
    is_cold: bool

    def __str__(self) -> str:
        return f"{self.median:.2f} us ({self.low:.2f} to {self.high:.2f}, {self.count} samples)"


def time_calls(
    run: Callable[[int], Any],
    *,
    stream: int = 0,
    warmup: int = 3,
    repeats: int = 20,
    min_seconds: float = 0.02,
    max_seconds: float = 2.0,
    cold_l2: bool = False,
) -> Timing:
    """Measures `run`, in the current context (the first GPU's where there is none).

    Arguments:
      run: `run(i)` enqueues the i-th call on `stream`, i from 0, and does not wait for it: inputs can be rotated by i.
      stream: the stream, as the driver's number.
      warmup: calls before anything is measured.
      repeats: the fewest samples, unless `max_seconds` pass before.
      min_seconds: samples are taken until the measured calls together took so long on the GPU.
      max_seconds: no sample starts later, once there are three.
      cold_l2: whether to write more memory than the L2 cache holds before each call.

    Raises:
      KernelError: a number is out of range.
      ToolError: the driver refuses, a kernel faults, or the GPU has no room for the memory that is written.
    """
    _check(warmup=warmup, repeats=repeats - 1, min_seconds=min_seconds, max_seconds=max_seconds)
    place = current_device()
    with place.active(), _event() as begin, _event() as end, _memory(_buffer_bytes(place)) as buffer:
        clock = _Clock(run, stream, begin, end, buffer, _buffer_bytes(place))
        clock.enqueue(warmup)
        driver.call("cuStreamSynchronize", stream)
        clock.calibrate()
        batch = 1 if cold_l2 else clock.batch()
        samples = _samples(clock, batch, cold_l2, repeats, min_seconds, max_seconds)
    low, median, high = np.percentile(np.array(samples) * 1e6, [10, 50, 90])
    return Timing(float(median), float(low), float(high), len(samples), batch, cold_l2)


def _samples(
    clock: _Clock, batch: int, is_cold: bool, repeats: int, min_seconds: float, max_seconds: float
) -> list[float]:
    """Seconds of one call, for each sample."""
    samples: list[float] = []
    measured, stop = 0.0, time.perf_counter() + max_seconds
    while len(samples) < repeats or (measured < min_seconds and len(samples) < _MOST_SAMPLES):
        if len(samples) >= _LEAST_SAMPLES and time.perf_counter() > stop:
            break
        seconds = clock.measure(batch, is_cold)
        measured += seconds
        samples.append(seconds / batch)
    return samples


class _Clock:
    """Two events on a stream, the calls between them, and the memory whose writing comes before."""

    def __init__(
        self, run: Callable[[int], Any], stream: int, begin: Any, end: Any, buffer: int, buffer_bytes: int
    ) -> None:
        self._run, self._stream = run, stream
        self._begin, self._end = begin, end
        self._buffer, self._buffer_bytes = buffer, buffer_bytes
        self._calls = 0
        self._call_seconds = self._host_seconds = self._write_seconds = 0.0

    def enqueue(self, calls: int) -> None:
        """Enqueues so many calls."""
        for _ in range(calls):
            self._run(self._calls)
            self._calls += 1

    def calibrate(self) -> None:
        """Finds what one call takes of the host and of the GPU, and what one writing of the memory takes."""
        self._write_seconds = self._span(self._write)
        self._span(self._timed_trial)
        self._call_seconds = self.measure(_TRIAL_CALLS, False) / _TRIAL_CALLS

    def _timed_trial(self) -> None:
        began = time.perf_counter()
        self.enqueue(_TRIAL_CALLS)
        self._host_seconds = (time.perf_counter() - began) / _TRIAL_CALLS

    def batch(self) -> int:
        """How many calls make one sample."""
        return max(1, min(_LONGEST_BATCH, math.ceil(_BATCH_SECONDS / max(self._call_seconds, 1e-9))))

    def measure(self, batch: int, is_cold: bool) -> float:
        """Seconds that so many calls take together."""
        host = self._host_seconds * (batch + 1)
        for _ in range(max(1, min(_MOST_WRITES, math.ceil(host / max(self._write_seconds, 1e-9))))):
            self._write()
        if not is_cold:
            self.enqueue(1)
        return self._span(lambda: self.enqueue(batch))

    def _write(self) -> None:
        driver.call("cuMemsetD8Async", self._buffer, 0, self._buffer_bytes, self._stream)

    def _span(self, enqueue: Callable[[], None]) -> float:
        """Seconds from the first to the last of what `enqueue` enqueues."""
        driver.call("cuEventRecord", self._begin, self._stream)
        enqueue()
        driver.call("cuEventRecord", self._end, self._stream)
        driver.call("cuEventSynchronize", self._end)
        return float(driver.call("cuEventElapsedTime", self._begin, self._end)) / 1e3


def _check(**numbers: float) -> None:
    for name, number in numbers.items():
        if not 0 <= number < math.inf:
            least = 1 if name == "repeats" else 0
            raise KernelError(f"{name} is out of range", got=number + least, expected=f"at least {least}, and finite")


def _buffer_bytes(place: Device) -> int:
    """Twice the L2 cache: what is written last stays there."""
    cuda = driver.bindings()
    attribute = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE
    handle = driver.call("cuDeviceGet", place.ordinal)
    return max(2 * int(driver.call("cuDeviceGetAttribute", attribute, handle)), _SMALLEST_BUFFER)


@contextmanager
def _event() -> Iterator[Any]:
    event = driver.call("cuEventCreate", driver.bindings().CUevent_flags.CU_EVENT_DEFAULT)
    try:
        yield event
    finally:
        with contextlib.suppress(ToolError):  # of a lost context, whose first error is the one to tell
            driver.call("cuEventDestroy", event)


@contextmanager
def _memory(size: int) -> Iterator[int]:
    pointer = int(driver.call("cuMemAlloc", size, about=f"{size} bytes to drive the L2 cache out with"))
    try:
        yield pointer
    finally:
        with contextlib.suppress(ToolError):
            driver.call("cuMemFree", pointer)
