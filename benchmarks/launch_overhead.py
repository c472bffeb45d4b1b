"""Microseconds that the host takes for one launch of a small kernel.

    python benchmarks/launch_overhead.py [--calls N] [--json FILE]

For kernels of 2, 5 and 17 arrays, and one with a tensor map:

  driver       the launch alone: addresses at hand (`LoadedKernel.launch`), the driver's own time included
  given        `CompiledKernel.launch` on arrays of ours with results given
  new          the same with new arrays for the results
  foreign      on arrays of another library (`__cuda_array_interface__`), results given
  custom call  one more kernel in a program of `jax.jit`: a program of 101 against one of a single kernel

Medians of the fastest of several rounds.  With no GPU everything runs against the stand-in for the driver that the
tests use, where kernels do nothing and launches are queued; a GPU's driver takes some microseconds more.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jax.experimental import pallas as pl

import mosaic_gpu
from mosaic_gpu.kernel import compilation_of, gpu_kernel
from mosaic_gpu.launcher import CUSTOM_CALL_TARGET, register_library
from mosaic_gpu.runtime import driver as cuda
from mosaic_gpu.runtime.devices import Device, default_target, device, device_count
from mosaic_gpu.runtime.gpu import GpuCaller
from mosaic_gpu.runtime.gpu_kernel import GpuKernel
from mosaic_gpu.runtime.loaded import LoadedKernel
from tests.support import gpu_kernels
from tests.support.stand_in import Driver, build_host_launcher, install

SIZE = 128
CHAIN = 100
ROUNDS = 7


class Foreign:
    """An array as another library would pass it."""

    def __init__(self, memory: mosaic_gpu.DeviceArray) -> None:
        self.memory = memory
        self.__cuda_array_interface__ = memory.__cuda_array_interface__


def add_all(*arrays: Any) -> Any:
    """The sum of arrays, by one block."""

    def kernel(*refs: Any) -> None:
        total = refs[0][...]
        for ref in refs[1:-1]:
            total = total + ref[...]
        refs[-1][...] = total

    out = jax.ShapeDtypeStruct(arrays[0].shape, arrays[0].dtype)
    return pl.pallas_call(kernel, out, compiler_params=mosaic_gpu.CompilerParams(), name="add_all")(*arrays)


def microseconds(call: Callable[[], Any], calls: int, finish: Callable[[], Any]) -> float:
    """Median over rounds of the time of one call; `finish` waits for the work, outside of the time."""
    rounds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        rounds.append((time.perf_counter() - start) / calls)
        finish()
    return 1e6 * statistics.median(sorted(rounds)[: ROUNDS // 2 + 1])


def cuda_python_path(kernel: GpuKernel, place: Device, calls: int) -> dict[str, float]:
    """What a launch takes through cuda-python, by way of calling."""
    arrays = [mosaic_gpu.DeviceArray(t.shape, t.memory_dtype) for t in kernel.operands]
    outs = [mosaic_gpu.DeviceArray(t.shape, t.memory_dtype) for t in kernel.results]
    foreign, foreign_outs = [Foreign(a) for a in arrays], [Foreign(a) for a in outs]
    loaded, call = LoadedKernel(kernel, place), GpuCaller(kernel)
    pointers = [a.pointer for a in (*arrays, *outs)]

    def finish() -> None:
        cuda.call("cuCtxSynchronize")

    ways: dict[str, Callable[[], Any]] = {
        "driver": lambda: loaded.launch(pointers, 0),
        "given": lambda: call(arrays, out=outs),
        "new": lambda: call(arrays),
        "foreign": lambda: call(foreign, out=foreign_outs),
    }
    return {name: microseconds(way, calls, finish) for name, way in ways.items()}


def custom_call_path(arrays: list[Any], stand_in: Driver | None) -> float:
    """Microseconds for one more kernel in a jitted program."""

    def chain(length: int, *given: Any) -> Any:
        first, *rest = given
        for _ in range(length):
            first = add_all(first, *rest)
        return first

    def seconds(length: int) -> float:
        def function(*given: Any) -> Any:
            return chain(length, *given)

        run = jax.jit(function)
        if stand_in is not None:  # XLA's CPU client runs what was lowered for a GPU
            checks = [export.DisabledSafetyCheck.platform()]
            run = jax.jit(export.export(run, platforms=["cuda"], disabled_checks=checks)(*arrays).call)
        run(*arrays).block_until_ready()
        times = []
        for _ in range(20 * ROUNDS):
            start = time.perf_counter()
            run(*arrays).block_until_ready()
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    return 1e6 * (seconds(CHAIN + 1) - seconds(1)) / CHAIN


def measure(count: int, place: Device, stand_in: Driver | None, calls: int) -> dict[str, float]:
    """All numbers for a kernel of `count` arrays."""
    arrays = [jnp.asarray(np.full(SIZE, i, np.float32)) for i in range(count - 1)]
    (call,) = mosaic_gpu.trace_calls(add_all, *arrays)
    compilation = compilation_of(call)
    if stand_in is not None:
        stand_in.add_kernel(mosaic_gpu.CompiledKernel(call, compilation))
    row = cuda_python_path(gpu_kernel(call, compilation), place, calls)
    return {**row, "custom call": custom_call_path(arrays, stand_in)}


def main() -> None:
    """Measures, and prints a table."""
    parser = argparse.ArgumentParser(description="Microseconds that the host takes for one launch.")
    parser.add_argument("--calls", type=int, default=1000, help="calls of one round (default: 1000)")
    parser.add_argument("--json", type=Path, help="file for the numbers")
    options = parser.parse_args()
    stand_in = None
    if device_count() == 0:
        stand_in = install()
        stand_in.run_nothing()
        register_library(build_host_launcher(), "MosaicGpuKernelOnHost", CUSTOM_CALL_TARGET, "Host")
    place = device(0)
    rows: dict[str, dict[str, float]] = {}
    with place.active():
        for count in (2, 5, 17):
            rows[f"{count} arrays"] = measure(count, place, stand_in, options.calls)
        if stand_in is not None or default_target() == "sm_90a":
            rows["tensor map"] = cuda_python_path(gpu_kernels.tma(stand_in), place, options.calls)
    print(f"microseconds a launch, {place.name}{' (the stand-in driver)' if stand_in else ''}")
    columns = ("driver", "given", "new", "foreign", "custom call")
    print(f"{'':12}" + "".join(f"{column:>13}" for column in columns))
    for name, row in rows.items():
        print(f"{name:12}" + "".join(f"{row[c]:13.1f}" if c in row else f"{'-':>13}" for c in columns))
    if options.json is not None:
        options.json.write_text(
            json.dumps({"device": place.name, "stand_in": stand_in is not None, "rows": rows}, indent=1)
        )


if __name__ == "__main__":
    main()
