"""What a kernel's launch should take, from what is known before it runs.

A *tile* is the work of one point of the parallel grid, with all its sequential steps.  B tiles are spread over S
multiprocessors, of which the busiest gets n = ceil(B / S); of these, a run there at the same time (as registers,
threads and shared memory allow, at most n).  For one tile we count (`work`, `traffic`), in cycles of its
multiprocessor:

    tensor   flops of the dots / rate of the tensor cores                        (wgmma: all of it, mma.sync: a part)
    alu      the largest of instructions / rate, over float32, float64, integers, special functions, and all together
    shared   bytes that the dots read from shared memory / 128
    load     bytes that move between the L2 cache and the multiprocessor / 64

The multiprocessor cannot be faster than its busiest unit, nor than its tiles are one after another:

    units    n * max(tensor, alu / u, shared, load)
    chain    ceil(n / a) * (start + computing + load + latency of reads)
    computing    max(tensor, alu / u1) + min(tensor, alu / u1) / g + latency of reductions and of barriers

u is the part of the arithmetic that the warps of a tiles can keep busy, u1 that of one tile's warps, and g how many
warpgroups a tile has: while one waits for the tensor cores, the others compute.  Where copies run ahead (cp.async,
TMA), the largest of computing, load and latency of reads / steps in flight stands in place of their sum, after one
latency for the first step.  The GPU as a whole cannot be faster than its memory:

    l2       bytes of all tiles / rate of the L2 cache
    dram     bytes from memory / rate of the memory

The largest of units, chain, l2 and dram is the `bound`.  Nothing overlaps perfectly, so a part of the others is added:

    time = launch + largest + OVERLAP_LOSS * (the sum of the three others)

Worked example: bfloat16 matrices of 4096 on an H100 (S = 132, 1.83 GHz), tiles of 128 by 256, depth 64:
B = 16 * 32 = 512, n = 4.  tensor = 2 * 128 * 256 * 4096 / 4096 = 65,536 cycles; load = (128 + 256) * 4096 * 2 / 64, and
for the result 128 * 256 * 2 / 64, together 50,176; so units = 262,144 cycles, 143 us.  l2 = 512 * 3.2 MB / 9.37 TB/s =
175 us is larger.  With tiles of 16 by 16 it is 1.8 ms.

What is left out: bank conflicts, partition camping, power limits, instruction caches, the order in which tiles are
walked, sharing within clusters.  Loops of unknown length count `work.ASSUMED_TRIPS` trips, computed grid bounds
ASSUMED_BOUND.  The numbers that are not in `lowering/throughput.py` are below; they are rounded and were not fitted to
measurements.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from mosaic_gpu.lowering.jaxpr.grid import GridPlan, plan_grid
from mosaic_gpu.lowering.kernel_call import KernelCall
from mosaic_gpu.lowering.launch import LaunchFacts
from mosaic_gpu.lowering.resources import Resources
from mosaic_gpu.lowering.targets import Target, parse_target
from mosaic_gpu.lowering.throughput import Throughput
from mosaic_gpu.tuning.traffic import Traffic, traffic_of
from mosaic_gpu.tuning.work import Dot, Work, work_of

ASSUMED_BOUND = 64
OVERLAP_LOSS = 0.15
LAUNCH_US = 2.0
START_CYCLES = 500
MEMORY_LATENCY = 700
REDUCTION_LATENCY = 120
BARRIER_LATENCY = 60
"""Of the waiting for a step's data, where they are there."""
SHARED_BYTES_PER_CYCLE = 128
LOAD_BYTES_PER_CYCLE = 64
WARPS_THAT_FILL = 8
"""Warps of a multiprocessor that keep its arithmetic busy: two for each of its four schedulers."""
_MOST_IN_FLIGHT = 4


@dataclass(frozen=True)
class Estimate:
    """What the model says of one launch.

    Attributes:
      microseconds: the time.
      bound: what decides it: "tensor", "alu", "shared", "load", "chain", "l2" or "dram".
      tiles: how many there are.
      tiles_at_once: how many of them one multiprocessor holds.
      flops: of the dots.
      dram_bytes, l2_bytes: bytes moved.
      is_assumed: whether a loop, a condition or a bound of the grid was not known.
    """

    microseconds: float
    bound: str
    tiles: int
    tiles_at_once: int
    flops: float
    dram_bytes: float
    l2_bytes: float
    is_assumed: bool


@dataclass(frozen=True)
class _Tile:
    """One tile's cycles on each unit, those that it waits, for reads and between, and whether copies run ahead."""

    tensor: float
    alu: float
    shared: float
    load: float
    read_waits: float
    waits: float
    runs_ahead: bool


def estimate(call: KernelCall, ptx: str, launch: LaunchFacts, used: Resources, peaks: Throughput) -> Estimate:
    """The model's time of a compiled kernel on the GPU whose peaks these are."""
    plan, target = _as_launched(plan_grid(call), launch), parse_target(call.options.target)
    extents = tuple(ASSUMED_BOUND if n is None else n for n in plan.extents)
    tiles = math.prod(extents[d] for d in plan.parallel)
    steps = math.prod(extents[d] for d in plan.sequential)
    if tiles * steps == 0:
        return Estimate(0.0, "launch", 0, 0, 0.0, 0.0, 0.0, False)
    work = work_of(call.jaxpr, len(call.array_avals), extents, call.options.approx_math)
    at_once = _tiles_at_once(target, launch, used)
    first = len(call.index_avals)
    wave = at_once * peaks.multiprocessors
    moved = traffic_of(call.grid_mapping, plan, extents, work, first, wave, peaks.l2_bytes)
    tile = _tile(work, moved, steps, ptx, launch, used, peaks)
    times = _times(tile, moved, tiles, at_once, _computing_warps(ptx, launch), peaks)
    bound, largest = max(times.items(), key=lambda item: item[1])
    seconds = largest + OVERLAP_LOSS * (sum(times.values()) - largest)
    flops = tiles * steps * sum(2.0 * d.m * d.n * d.k * count for d, count in work.dots.items())
    return Estimate(
        microseconds=LAUNCH_US + 1e6 * seconds,
        bound=_busiest(tile) if bound == "units" else bound,
        tiles=tiles,
        tiles_at_once=at_once,
        flops=flops,
        dram_bytes=moved.dram_bytes,
        l2_bytes=moved.l2_bytes,
        is_assumed=work.is_assumed or None in plan.extents,
    )


def _as_launched(plan: GridPlan, launch: LaunchFacts) -> GridPlan:
    """The plan, where the compiler launches steps too that have only scratch memory between them."""
    if math.prod(launch.grid) == math.prod(n for n in plan.launched):
        return plan
    parallel = tuple(sorted((*plan.parallel, *plan.separated)))
    return dataclasses.replace(
        plan, parallel=parallel, sequential=tuple(d for d in plan.sequential if d not in parallel)
    )


def _tiles_at_once(target: Target, launch: LaunchFacts, used: Resources) -> int:
    shared = used.shared_bytes + launch.shared_bytes
    return target.blocks_at_once(launch.block[0], used.registers, shared) // target.multiprocessors


def _times(tile: _Tile, moved: Traffic, tiles: int, at_once: int, warps: int, peaks: Throughput) -> dict[str, float]:
    """Seconds by each of the four limits."""
    busiest = math.ceil(tiles / peaks.multiprocessors)
    together = min(at_once, busiest)
    filled = min(1.0, together * warps / WARPS_THAT_FILL)
    units = busiest * max(tile.tensor, tile.alu / filled, tile.shared, tile.load)
    alu = tile.alu / min(1.0, warps / WARPS_THAT_FILL)
    alone = min(tile.tensor, alu) / max(1, warps // 4)
    computing = max(tile.tensor, alu) + alone + tile.waits
    if tile.runs_ahead:
        own = MEMORY_LATENCY + max(computing, tile.load, tile.read_waits)
    else:
        own = computing + tile.load + tile.read_waits
    chain = math.ceil(busiest / together) * (START_CYCLES + own)
    return {
        "units": units / peaks.cycles_per_s,
        "chain": chain / peaks.cycles_per_s,
        "l2": moved.l2_bytes / peaks.l2_bytes_per_s,
        "dram": moved.dram_bytes / peaks.dram_bytes_per_s,
    }


def _computing_warps(ptx: str, launch: LaunchFacts) -> int:
    """Warps of a tile, without the warpgroup that only copies: where there is one, registers are moved from it."""
    warps = math.prod(launch.block) // 32
    return warps - 4 if "setmaxnreg" in ptx and warps > 4 else warps


def _busiest(tile: _Tile) -> str:
    units = {"tensor": tile.tensor, "alu": tile.alu, "shared": tile.shared, "load": tile.load}
    return max(units, key=lambda name: units[name])


def _tile(
    work: Work, moved: Traffic, steps: int, ptx: str, launch: LaunchFacts, used: Resources, peaks: Throughput
) -> _Tile:
    """`work` is of one step, and a tile has `steps` of them."""
    warps = launch.block[0] // 32
    runs_ahead = "cp.async" in ptx
    in_flight = 1.0
    if runs_ahead and moved.tile_read_bytes:
        of_a_phase = moved.tile_read_bytes / max(1.0, work.read_phases * steps)
        in_flight = min(max(1.0, launch.shared_bytes / of_a_phase), _MOST_IN_FLIGHT)
    tensor = shared = 0.0
    lanes = dict(work.lanes)
    for dot, count in work.dots.items():
        unit = _matrix_unit(dot, ptx)
        if unit is None:
            pipe = {"f64": "fp64", "i8": "int32", "int32": "int32"}.get(dot.kind, "fp32")
            lanes[pipe] = lanes.get(pipe, 0.0) + dot.m * dot.n * dot.k * count
        else:
            tensor += count * _tensor_cycles(dot, unit, peaks)
        shared += count * _shared_bytes(dot, unit, warps) / SHARED_BYTES_PER_CYCLE
    alu = _alu_cycles(lanes, _smallest_share(work, launch.block[0]), peaks) + _spill_cycles(used, warps)
    return _Tile(
        tensor=tensor * steps,
        alu=alu * steps,
        shared=shared * steps,
        load=moved.tile_bytes / LOAD_BYTES_PER_CYCLE,
        read_waits=MEMORY_LATENCY * work.read_phases / in_flight * steps,
        waits=(REDUCTION_LATENCY * work.reductions + BARRIER_LATENCY * work.read_phases) * steps,
        runs_ahead=runs_ahead,
    )


def _alu_cycles(lanes: dict[str, float], share: float, peaks: Throughput) -> float:
    """Cycles of the unit that is busiest; `share`: instructions really started, against those that were counted."""
    rates = {"fp32": peaks.fp32, "fp64": peaks.fp64, "int32": peaks.int32, "special": peaks.special}
    by_unit = [count / rates[name] for name, count in lanes.items()]
    issued = sum(lanes.values()) / (32 * peaks.issue)
    return share * max([issued, *by_unit])


def _smallest_share(work: Work, threads: int) -> float:
    """How much more is computed where tiles have fewer elements than the block has threads, which all do something."""
    total = sum(amount for _, amount in work.tiles)
    if not total:
        return 1.0
    return sum(amount * max(1.0, threads / max(size, 1)) for size, amount in work.tiles) / total


def _spill_cycles(used: Resources, warps: int) -> float:
    """Spilled bytes are moved by every thread, in words, about once a step."""
    return used.spill_bytes / 4 * warps * 32 / LOAD_BYTES_PER_CYCLE


def _matrix_unit(dot: Dot, ptx: str) -> str | None:
    """The unit that computes a dot: "wgmma", "mma", or None where it is multiply-adds of threads."""
    if (dot.kind == "f32" and ".tf32" not in ptx) or dot.kind == "int32":
        return None
    if "wgmma.mma_async" in ptx and dot.kind != "f64" and dot.m >= 64:
        return "wgmma"
    return "mma" if "mma.sync" in ptx else None


def _tensor_cycles(dot: Dot, unit: str, peaks: Throughput) -> float:
    kind = "tf32" if dot.kind == "f32" else dot.kind
    # Matrices are filled up to what one instruction takes (PTX ISA, "Matrix Shape").
    rows, columns = (64, 8) if unit == "wgmma" else (16, 8)
    m, n = (math.ceil(size / least) * least for size, least in ((dot.m, rows), (dot.n, columns)))
    k = math.ceil(dot.k * dot.element_bytes / 32) * 32 / dot.element_bytes
    rate = peaks.tensor.get(kind, 2 * peaks.fp32) * (1.0 if unit == "wgmma" else peaks.mma_fraction)
    return 2.0 * m * n * k / rate


def _shared_bytes(dot: Dot, unit: str | None, warps: int) -> float:
    """Bytes that one dot's operands take from shared memory.

    A wgmma of 64 rows reads the whole right side; a warp of mma.sync its own rows and columns, the warps standing in a
    grid of about the result's shape; threads that multiply by themselves keep 8 by 8 sums each.
    """
    left, right = dot.m * dot.k * dot.element_bytes, dot.k * dot.n * dot.element_bytes
    if unit == "wgmma":
        return left + math.ceil(dot.m / 64) * right
    if unit == "mma":
        down = min(max(1.0, math.sqrt(warps * dot.m / dot.n)), warps)
        return left * (warps / down) + right * down
    return dot.m * dot.n * dot.k * dot.element_bytes * 2 / 8


def estimate_all(parts: Sequence[Estimate]) -> Estimate:
    """Of several kernels, one after another; the bound is that of the longest."""
    longest = max(parts, key=lambda part: part.microseconds)
    return Estimate(
        microseconds=sum(p.microseconds for p in parts),
        bound=longest.bound,
        tiles=longest.tiles,
        tiles_at_once=longest.tiles_at_once,
        flops=sum(p.flops for p in parts),
        dram_bytes=sum(p.dram_bytes for p in parts),
        l2_bytes=sum(p.l2_bytes for p in parts),
        is_assumed=any(p.is_assumed for p in parts),
    )
