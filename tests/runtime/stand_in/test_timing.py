"""Timing calls: what is enqueued, what is freed, and what the numbers are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mosaic_gpu import KernelError, ToolError
from mosaic_gpu.runtime import driver as cuda
from mosaic_gpu.runtime.devices import device
from mosaic_gpu.runtime.peaks import throughput_of_device
from mosaic_gpu.runtime.timing import time_calls
from tests.support.stand_in import Driver

L2_BYTES = 62_914_560  # the stand-in's


class Busy:
    """Work of about a millisecond on a stream: memory written again and again."""

    def __init__(self, size: int = 1 << 16) -> None:
        self.size = size
        with device(0).active():
            self.pointer = cuda.call("cuMemAlloc", size)
        self.calls: list[int] = []

    def __call__(self, i: int) -> None:
        self.calls.append(i)
        cuda.call("cuMemsetD8Async", self.pointer, 1, self.size, 0)

    def __enter__(self) -> Busy:
        return self

    def __exit__(self, *_: Any) -> None:
        with device(0).active():
            cuda.call("cuMemFree", self.pointer)


def test_calls_are_numbered_from_zero_without_gaps(driver: Driver) -> None:
    with Busy() as busy:
        time_calls(busy, repeats=4, min_seconds=0)
    assert busy.calls == list(range(len(busy.calls)))


def test_a_sample_is_a_batch_of_calls_and_its_time_is_one_call_s(driver: Driver) -> None:
    with Busy() as short, Busy(1 << 24) as long:
        brief = time_calls(short, repeats=5, min_seconds=0)
        slow = time_calls(long, repeats=5, min_seconds=0)
    assert brief.batch > 10 * slow.batch
    # 256 times the memory: 20 times the time leaves room for any host.
    assert slow.median > 20 * brief.median
    assert brief.count >= 5
    assert brief.low <= brief.median <= brief.high


def test_with_a_cold_cache_more_than_the_cache_is_written_before_every_call(driver: Driver) -> None:
    order: list[str] = []
    with Busy() as busy:

        def run(i: int) -> None:
            order.append("call")
            busy(i)

        original = cuda.call
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cuda, "call", _noting(original, order, busy.pointer))
            timing = time_calls(run, warmup=0, repeats=4, min_seconds=0, cold_l2=True)
    assert timing.is_cold
    assert timing.batch == 1
    spans = " ".join(order).split("begin ")[-4:]
    assert all(span.split()[:2] == ["call", "end"] for span in spans)
    assert all(span.split()[2:] for span in spans[:-1])
    assert {word for span in spans[:-1] for word in span.split()[2:]} == {"write"}


def _noting(original: Callable[..., Any], order: list[str], ours: Any) -> Callable[..., Any]:
    def call(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "cuMemsetD8Async" and int(arguments[0]) != int(ours):
            assert arguments[2] > L2_BYTES
            order.append("write")
        if name == "cuEventRecord":
            order.append("begin" if order.count("begin") == order.count("end") else "end")
        return original(name, *arguments, **options)

    return call


def test_samples_are_taken_until_the_least_time_is_over(driver: Driver) -> None:
    with Busy(1 << 22) as busy:
        few = time_calls(busy, repeats=1, min_seconds=0)
        many = time_calls(busy, repeats=1, min_seconds=0.05)
    assert few.count == 1
    assert many.count > 5


def test_after_the_longest_time_three_samples_are_enough(driver: Driver) -> None:
    with Busy() as busy:
        assert time_calls(busy, repeats=50, min_seconds=1, max_seconds=0).count == 3


@pytest.mark.parametrize("function", ["cuEventRecord", "cuEventElapsedTime", "cuMemsetD8Async", "cuMemAlloc"])
def test_events_and_memory_go_back_where_the_driver_refuses(driver: Driver, function: str) -> None:
    # The fixture counts what is left behind.
    with Busy() as busy:
        driver.fail(function, 2, skip=0)
        with pytest.raises(ToolError, match=f"{function} failed.*OUT_OF_MEMORY"):
            time_calls(busy)


def test_an_error_of_the_call_itself_comes_out_and_nothing_is_left_behind(driver: Driver) -> None:
    def run(i: int) -> None:
        raise ZeroDivisionError(i)

    with pytest.raises(ZeroDivisionError, match="0"):
        time_calls(run)


def test_a_lost_context_is_told_by_its_first_error(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    original, allocated = cuda.call, []

    def call(name: str, *arguments: Any, **options: Any) -> Any:
        result = original(name, *arguments, **options)
        if name == "cuMemAlloc":
            allocated.append(result)
        return result

    with Busy() as busy:
        monkeypatch.setattr(cuda, "call", call)
        driver.fail("cuEventSynchronize", 700)
        with pytest.raises(ToolError, match="cuEventSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS"):
            time_calls(busy)
        driver.heal()
    with device(0).active():
        for pointer in allocated:  # a real context takes its memory with it
            original("cuMemFree", pointer)


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"repeats": 0}, "repeats is out of range\n  got: 0\n  expected: at least 1"),
        ({"warmup": -1}, "warmup is out of range\n  got: -1\n  expected: at least 0"),
        ({"min_seconds": float("nan")}, "min_seconds is out of range"),
        ({"max_seconds": float("inf")}, "max_seconds is out of range"),
    ],
)
def test_numbers_out_of_range_are_refused(driver: Driver, numbers: dict[str, Any], message: str) -> None:
    with pytest.raises(KernelError, match=message):
        time_calls(lambda i: None, **numbers)
    assert driver.count("events") == 0


def test_the_peaks_of_a_gpu_are_by_what_its_driver_tells(driver: Driver) -> None:
    peaks = throughput_of_device(device(0))
    assert (peaks.gpu, peaks.multiprocessors, peaks.l2_bytes) == ("Stand-in GPU", 132, L2_BYTES)
    assert peaks.clock_ghz == pytest.approx(1.83)
    assert peaks.dram_bytes_per_s == pytest.approx(2 * 3_201_000e3 * 6144 / 8)  # two transfers a cycle, 6144 bits wide
    assert peaks.tensor["bf16"] == 4096
