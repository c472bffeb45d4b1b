"""How fast the PTX simulator is: thread-instructions a second, with and without the search for hazards.

    python benchmarks/simulator_speed.py

Kernels that nvcc and Triton compiled (tests/simulator/data): saxpy with 256 blocks, a matrix product of 256 x 256 x
256 by wgmma, Collatz steps with heavy divergence, and how the time of saxpy grows with the number of blocks.
The fastest of some runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mosaic_gpu.simulator import LaunchResult, load

DATA = Path(__file__).parent.parent / "tests" / "simulator" / "data"
_RUNS = 3
_BLOCK = 256


def fastest(run: Callable[[], LaunchResult]) -> tuple[float, LaunchResult]:
    """Seconds of the fastest of some runs, and the result of the last."""
    seconds, result = [], None
    for _ in range(_RUNS):
        start = time.perf_counter()
        result = run()
        seconds.append(time.perf_counter() - start)
    assert result is not None
    return min(seconds), result


def show(name: str, run: Callable[..., LaunchResult]) -> None:
    """Prints a line for a launch, which is called with `races`."""
    on, result = fastest(lambda: run(races=True))
    off, _ = fastest(lambda: run(races=False))
    rate = result.instructions / on / 1e6
    print(f"{name:34} {on * 1e3:9.1f} ms {rate:8.0f} million/s   without hazards {off * 1e3:9.1f} ms ({on / off:.2f}x)")


def saxpy(blocks: int, per_thread: int = 8) -> Callable[..., LaunchResult]:
    """saxpy on `per_thread` elements a thread."""
    module = load((DATA / "nvcc_kernels.ptx").read_text())
    n = blocks * _BLOCK * per_thread
    x, y = np.random.default_rng(0).standard_normal((2, n)).astype(np.float32)
    return lambda **options: module.launch("saxpy", blocks, _BLOCK, [n, 2.5, x, y], **options)


def matmul(size: int) -> Callable[..., LaunchResult]:
    """Triton's matrix product of f16."""
    module = load((DATA / "triton_matmul.ptx").read_text())
    a, b = np.random.default_rng(0).standard_normal((2, size, size)).astype(np.float16)
    c = np.zeros((size, size), np.float16)
    arguments: list[Any] = [a, b, c, size, size, size, 0, 0]
    grid = (size // 64, size // 64)
    return lambda **options: module.launch("matmul", grid, 128, arguments, shared_bytes=49152, **options)


def divergent(count: int) -> Callable[..., LaunchResult]:
    """Collatz steps, a number a thread."""
    module = load((DATA / "nvcc_kernels.ptx").read_text())
    x = np.random.default_rng(0).integers(1, 3000, count).astype(np.int32)
    y = np.zeros_like(x)
    return lambda **options: module.launch("divergent", -(-count // 128), 128, [count, x, y], **options)


def main() -> None:
    """Prints all figures."""
    show("saxpy, 256 blocks", saxpy(256))
    show("triton_matmul, 256 x 256 x 256", matmul(256))
    show("divergent, 8,000 threads", divergent(8000))
    for blocks in (1, 4, 16, 64, 256, 1024):
        show(f"saxpy, {blocks:,} blocks", saxpy(blocks))


if __name__ == "__main__":
    main()
