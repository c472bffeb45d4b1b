"""The interpreter beside JAX's own GPU interpret mode, on the same kernels: seconds of one run.

    python benchmarks/interpreter_speed.py [--sizes 256 512 1024] [--skip-jax]

The kernels are JAX's: `hopper_matmul_mgpu` of jax.experimental.pallas.ops.gpu (f16, cubes of the given sizes, three
warpgroups a block and a pipeline of TMA copies).  Both run once to be compiled, then once to be timed; both with
their checks: ours all of them, JAX's with and without its race detector.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.experimental.pallas.ops.gpu import hopper_matmul_mgpu as hopper

import mosaic_gpu

_SMS = 4
"""Blocks of the persistent launch: JAX's kernels ask the device, which here is a CPU."""


def matmul(interpret: Any) -> Callable[[Any, Any], Any]:
    """JAX's matmul with every kernel interpreted so."""
    config = hopper.TuningConfig(tile_m=64, tile_n=64, tile_k=64, max_concurrent_steps=2)

    def run(a: Any, b: Any) -> Any:
        with plgpu.force_gpu_interpret_mode(interpret):
            return hopper.matmul(a, b, None, config)

    return run


def seconds(function: Callable[..., Any], *arrays: Any) -> tuple[float, Any]:
    """Time of a run that does not compile, and its result."""
    compiled = jax.jit(function).lower(*arrays).compile()
    start = time.perf_counter()
    result = np.asarray(compiled(*arrays))
    return time.perf_counter() - start, result


def measure(size: int, skip_jax: bool) -> tuple[float, ...]:
    """Seconds of our interpreter, of JAX's, and of JAX's with its race detector."""
    rng = np.random.default_rng(size)
    a, b = (jnp.asarray(rng.normal(size=(size, size)), jnp.float16) for _ in range(2))
    modes: list[Any] = [mosaic_gpu.InterpretParams()]
    if not skip_jax:
        modes += [plgpu.InterpretGPUParams(), plgpu.InterpretGPUParams(detect_races=True)]
    expected = np.asarray(a, np.float32) @ np.asarray(b, np.float32)
    times = []
    for mode in modes:
        spent, result = seconds(matmul(mode), a, b)
        np.testing.assert_allclose(np.asarray(result, np.float32), expected, rtol=1e-2, atol=0.5)
        times.append(spent)
    return tuple(times)


def main() -> None:
    """Prints a line a size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, 512, 1024])
    parser.add_argument("--skip-jax", action="store_true", help="time ours alone")
    arguments = parser.parse_args()
    hopper.get_num_sms = lambda: _SMS
    print(f"{'cube':>6} {'ours':>9} {'JAX':>9} {'JAX races':>10} {'faster':>8}")
    for size in arguments.sizes:
        ours, *theirs = measure(size, arguments.skip_jax)
        columns = [f"{t:8.3f}s" for t in theirs] or ["-", "-"]
        factor = f"{theirs[0] / ours:7.1f}x" if theirs else "-"
        print(f"{size:>6} {ours:8.3f}s {columns[0]:>9} {columns[1]:>10} {factor:>8}", flush=True)


if __name__ == "__main__":
    main()
