"""Time from jaxpr to cubin, stage by stage, in a warm process; beside it Triton, where it is installed.

    python benchmarks/compile_time.py [--repeat N] [--approx] [--profile KERNEL]

By default exp and division are accurate here; Triton's are approximate, as ours are with --approx.

Nothing is cached: not by this package, whose disk cache is not asked, and not by Triton, which is told to forget.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

from kernels import Benchmark, benchmarks

from mosaic_gpu import trace_calls
from mosaic_gpu.errors import MosaicGpuError
from mosaic_gpu.lowering.kernel_call import KernelCall
from mosaic_gpu.lowering.pipeline import STAGE_NAMES, compile_call

Row = dict[str, Any]


def kernel_call(benchmark: Benchmark, approx: bool) -> KernelCall:
    """The kernel of `benchmark`, traced."""
    (call,) = trace_calls(benchmark.call, *benchmark.arguments)
    return replace(call, options=replace(call.options, approx_math=approx or call.options.approx_math))


def stage_times(call: KernelCall, repeat: int) -> dict[str, float]:
    """Median seconds of each stage, of what is around them ("rest") and in total."""
    runs: list[dict[str, float]] = []
    for _ in range(repeat + 1):
        seconds: dict[str, float] = {}
        began = time.perf_counter()

        def observe(stage: Any, _: Any, took: float, seconds: dict[str, float] = seconds) -> None:
            seconds[stage.name] = took

        compile_call(call, observer=observe)
        total = time.perf_counter() - began
        runs.append({**seconds, "rest": total - sum(seconds.values()), "total": total})
    return {key: statistics.median(run[key] for run in runs[1:]) for key in runs[0]}  # the first run warms up


def triton_time(name: str, repeat: int) -> float | None:
    """Median seconds that Triton takes for the same kernel; None where it is not installed."""
    if find_spec("triton") is None:
        return None
    os.environ["TRITON_ALWAYS_COMPILE"] = "1"
    from triton_kernels import compiler

    return _median(compiler(name), repeat)


def _median(work: Callable[[], Any], repeat: int) -> float:
    times = []
    for _ in range(repeat + 1):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def profile(call: KernelCall, repeat: int) -> None:
    """Prints where the time goes, by function."""
    compile_call(call)
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(repeat):
        compile_call(call)
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(40)


def table(chosen: Sequence[Benchmark], repeat: int, approx: bool = False, with_triton: bool = True) -> list[Row]:
    """Prints a row for each kernel as it is measured, in milliseconds, and returns them: seconds by stage.

    `with_triton`: whether Triton compiles a kernel of each name too.  A kernel that is refused has its "error" alone.
    """
    columns, width = (*STAGE_NAMES, "rest", "total"), max(12, *(len(b.name) for b in chosen)) + 1
    print(f"milliseconds, median of {repeat}")
    print(
        f"{'':{width}}" + "".join(f"{c:>10}" for c in columns) + (f"{'Triton':>9}{'ratio':>7}" if with_triton else "")
    )
    rows: list[Row] = []
    for benchmark in chosen:
        try:
            times = stage_times(kernel_call(benchmark, approx), repeat)
        except MosaicGpuError as error:
            print(f"{benchmark.name:{width}}{type(error).__name__}: {error.what.splitlines()[0]}", flush=True)
            rows.append({"name": benchmark.name, "error": str(error)})
            continue
        line = f"{benchmark.name:{width}}" + "".join(f"{1e3 * times[c]:10.1f}" for c in columns)
        triton = triton_time(benchmark.name, repeat) if with_triton else None
        if triton is not None:
            line += f"{1e3 * triton:9.1f}{times['total'] / triton:7.2f}"
        elif with_triton:
            line += f"{'-':>9}{'-':>7}"
        print(line, flush=True)
        rows.append({"name": benchmark.name, **times, "triton": triton})
    return rows


def main() -> None:
    """Prints a table, milliseconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=15, help="the median of so many runs")
    parser.add_argument("--profile", metavar="KERNEL", help="print a profile of this kernel instead")
    parser.add_argument("--approx", action="store_true", help="compile with approx_math=True")
    options = parser.parse_args()
    if options.profile:
        benchmark = next(b for b in benchmarks() if b.name == options.profile)
        profile(kernel_call(benchmark, options.approx), options.repeat)
        return
    table(benchmarks(), options.repeat, options.approx)


if __name__ == "__main__":
    main()
