"""Binding arguments, and running a grid wave by wave."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaic_gpu.errors import SimulationError
from mosaic_gpu.runtime.floating_point import ieee_arithmetic
from mosaic_gpu.simulator.arguments import bind_arguments, poison
from mosaic_gpu.simulator.layout import Layout
from mosaic_gpu.simulator.machine import Scheduler
from mosaic_gpu.simulator.memory import SHARED_WINDOW, GlobalMemory, Region
from mosaic_gpu.simulator.prepare import Kernel
from mosaic_gpu.simulator.races import Races
from mosaic_gpu.simulator.register_hazards import RegisterHazards
from mosaic_gpu.simulator.wave import Counters, Shape, Wave, cluster_numbers

#: Threads that are resident at once, and the bytes of registers and local memory they may take.
RESIDENT_THREADS = 1 << 15
RESIDENT_BYTES = 1 << 28
#: Shared memory of a block on sm_90.
MAX_SHARED_BYTES = 232448
MAX_BLOCK_THREADS = 1024
#: With the attribute that allows more than the portable 8.
MAX_CLUSTER_BLOCKS = 16

Array = np.ndarray[Any, np.dtype[Any]]
Dims = int | Sequence[int]


@dataclass(frozen=True)
class LaunchResult:
    """What a launch did.

    `instructions` and `warp_instructions` count PTX instructions times threads, or warps, that ran them
    (a false predicate counts, as it takes an issue slot); `printed` is the text of vprintf, one string
    per call of a thread; `seconds` is the simulator's own time.
    """

    instructions: int
    warp_instructions: int
    printed: tuple[str, ...]
    blocks: int
    threads: int
    seconds: float


def dims(value: Dims, what: str) -> tuple[int, int, int]:
    """An int or up to three of them as three; ValueError if one is negative or there are more."""
    numbers = (value,) if isinstance(value, int | np.integer) else tuple(value)
    if not 1 <= len(numbers) <= 3 or any(int(n) < 0 for n in numbers):
        raise ValueError(f"{what} must be one to three ints, none negative: got {value!r}")
    padded = [int(n) for n in numbers] + [1] * (3 - len(numbers))
    return padded[0], padded[1], padded[2]


def launch(
    kernel: Kernel, grid: Dims, block: Dims, args: Sequence[Any], *, cluster: Dims, shared_bytes: int,
    instruction_limit: int, print_text: Callable[[str], object] | None, seed: int = 0, races: bool = True,
    uninitialised: Sequence[int] = (), progress: Callable[[int, int], object] | None = None,
) -> LaunchResult:  # fmt: skip
    """Runs a kernel; see `Module.launch`."""
    start = time.perf_counter()
    shape = Shape(dims(grid, "grid"), dims(block, "block"), _cluster(kernel, dims(cluster, "cluster")), shared_bytes)
    _check(kernel, shape)
    memory = GlobalMemory()
    params = bind_arguments(kernel, args, memory)
    _module_memory(kernel, memory)
    poison(kernel, params, memory, args, uninitialised)
    counters = Counters(limit=instruction_limit)
    detector, hazards = (Races(kernel), RegisterHazards(kernel)) if races else (None, None)
    printed: list[str] = []
    write = sys.stdout.write if print_text is None else print_text

    def emit(text: str) -> None:
        printed.append(text)
        write(text)

    done = 0
    with _ieee(), np.errstate(all="ignore"):
        for numbers in _waves(kernel, shape, seed):
            wave = Wave(kernel, shape, memory, params.region, numbers, emit, counters, seed)
            if detector is not None and hazards is not None:
                detector.begin(wave)
                wave.races = wave.copies.races = detector
                if hazards.active:
                    hazards.start_wave(wave)
                    wave.register_hazards = hazards
            Scheduler(wave, counters).run()
            done += wave.blocks
            if progress is not None:
                progress(done, shape.blocks)
    params.finish()
    return LaunchResult(
        counters.instructions, counters.warp_instructions, tuple(printed), shape.blocks,
        shape.blocks * shape.threads, time.perf_counter() - start,
    )  # fmt: skip


def _ieee() -> AbstractContextManager[None]:
    """Guards against a caller whose thread takes subnormal numbers for zero, as XLA's do."""
    kept = float(np.float32(1e-40) * np.float32(1.0)) != 0.0
    return nullcontext() if kept else ieee_arithmetic()


def _cluster(kernel: Kernel, given: tuple[int, int, int]) -> tuple[int, int, int]:
    """The launch's cluster, or the one that the kernel declares."""
    declared = kernel.entry.directives.get("reqnctapercluster")
    if not declared:
        return given
    wanted = dims(declared, "reqnctapercluster")
    if given not in ((1, 1, 1), wanted):
        raise SimulationError(f"`{kernel.entry.name}` is declared with .reqnctapercluster {declared}", got=given)
    return wanted


def _check(kernel: Kernel, shape: Shape) -> None:
    name = kernel.entry.name
    if not 1 <= shape.threads <= MAX_BLOCK_THREADS:
        raise SimulationError(f"`{name}`: a block has 1 to {MAX_BLOCK_THREADS} threads", got=shape.block)
    total = kernel.shared_bytes + shape.shared_bytes
    if total > MAX_SHARED_BYTES:
        raise SimulationError(f"`{name}`: {total} bytes of shared memory", expected=f"at most {MAX_SHARED_BYTES}")
    for word in ("reqntid", "maxntid"):
        limit = kernel.entry.directives.get(word)
        if not limit:
            continue
        wanted = dims(limit, word)
        if (word == "reqntid" and wanted != shape.block) or shape.threads > np.prod(wanted):
            raise SimulationError(f"`{name}` is declared with .{word} {limit}", got=shape.block)
    if any(c < 1 or g % c for g, c in zip(shape.grid, shape.cluster, strict=True)):
        raise SimulationError(f"`{name}`: the cluster must divide the grid", got=shape.cluster, expected=shape.grid)
    if shape.cluster[0] * shape.cluster[1] * shape.cluster[2] > MAX_CLUSTER_BLOCKS:
        raise SimulationError(f"`{name}`: a cluster has at most {MAX_CLUSTER_BLOCKS} blocks", got=shape.cluster)


def _waves(kernel: Kernel, shape: Shape, seed: int) -> list[Array]:
    """The numbers of the blocks of each wave; whole clusters stay together.  A seed shuffles them."""
    bytes_per_block = kernel.bytes_per_thread * shape.threads + 2 * (kernel.shared_bytes + shape.shared_bytes) + 256
    most = max(1, min(RESIDENT_THREADS // shape.threads, RESIDENT_BYTES // bytes_per_block))
    numbers = np.arange(shape.blocks)
    size = shape.cluster[0] * shape.cluster[1] * shape.cluster[2]
    if size > 1:
        numbers = numbers[np.argsort(cluster_numbers(numbers, shape), kind="stable")]
        most = max(1, most // size) * size
    if seed:
        numbers = np.random.default_rng(seed).permutation(numbers.reshape(-1, size)).reshape(-1)
    return [numbers[first : first + most] for first in range(0, shape.blocks, most)]


def _module_memory(kernel: Kernel, memory: GlobalMemory) -> None:
    """The module's .global and .const variables, fresh for each launch."""
    layout = kernel.layout
    for name, variable in layout.variables.items():
        if variable.space not in ("global", "const"):
            continue
        data = np.zeros(variable.size, np.uint8)
        data[: len(variable.data)] = np.frombuffer(variable.data, np.uint8)
        for relocation in variable.relocations:
            address = _address(layout, relocation.symbol.name, variable.line) + relocation.symbol.offset
            raw = (address & ((1 << 8 * relocation.bytes) - 1)).to_bytes(relocation.bytes, "little")
            data[relocation.offset : relocation.offset + relocation.bytes] = np.frombuffer(raw, np.uint8)
        memory.add(
            Region(f"variable `{name}`", layout.addresses[name], variable.size, data,
                   writable=variable.space == "global")
        )  # fmt: skip


def _address(layout: Layout, name: str, line: int) -> int:
    if name in layout.functions:
        return layout.functions[name]
    if name not in layout.addresses:
        raise SimulationError(f"PTX line {line}: the initialiser names `{name}`, which is no variable or function")
    return layout.addresses[name] + (SHARED_WINDOW if layout.spaces[name] == "shared" else 0)
