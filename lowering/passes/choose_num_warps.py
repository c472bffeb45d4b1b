"""Chooses how many warps run one block of a kernel.

Requires: nothing. Does: sets `num_warps` of each `mgpu.kernel` to the user's choice, or by the largest
tile: at least as many warps as leave a thread 16 elements (up to 4 warps) or 32 (up to 8), and beyond that as many as
keep the tile within 64 32-bit registers a thread.  With dots that a warpgroup can compute there are at least one, from
128 rows on two warpgroups, and the tile (an accumulator as a rule) may take 128 registers. Leaves: everything else.

    "mgpu.kernel"() ({ .. tensor<4x1000xf32> .. }) {num_warps = 0 : i32}
    "mgpu.kernel"() ({ .. tensor<4x1000xf32> .. }) {num_warps = 4 : i32}      // 31 elements a thread
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.bits import is_power
from mosaic_gpu.dialect.dot_layouts import WARPGROUP_WARPS, WGMMA_ROWS
from mosaic_gpu.dialect.layouts import WARP_SIZE
from mosaic_gpu.dialect.types import is_tile, shape_of, storage_bits
from mosaic_gpu.errors import KernelError
from mosaic_gpu.lowering.dots import dot_of, fits_warpgroup
from mosaic_gpu.lowering.nvvm.sources import source_of
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.walk import body_of, kernels, walk
from mosaic_gpu.lowering.targets import Target, parse_target

MAX_WARPS = 32
MAX_REGISTERS = 64
"""32-bit registers of a thread that its part of the largest tile may take before more warps are used."""
MAX_DOT_REGISTERS = 128
"""The same, in a kernel whose dots run on warpgroups."""
REFERENCES = frozenset({"mgpu.subview", "mgpu.alloc"})
"""Ops whose results are no tiles (and slow to ask for)."""
MAX_TILE_ELEMENTS = 2**20
"""Elements of one tile: 1,024 for each of the 1,024 threads that a block can have at most."""
STEPS = ((4, 16), (8, 32))
"""(warps, elements a thread): up to so many warps are used while a thread would have more elements than that."""


def choose(elements: int, words: int) -> int:
    """Warps for a kernel whose largest tile has `elements` elements and takes `words` 32-bit words."""
    warps = 1
    for most, per_thread in STEPS:
        while warps < most and elements > warps * WARP_SIZE * per_thread:
            warps *= 2
    while warps < MAX_WARPS and words > warps * WARP_SIZE * MAX_REGISTERS:
        warps *= 2
    return warps


def choose_warpgroups(rows: int, columns: int, words: int) -> int:
    """Warps for a kernel with a dot of `rows` x `columns` on warpgroups, whose largest tile takes `words` words."""
    warps = 2 * WARPGROUP_WARPS if rows >= 2 * WGMMA_ROWS and columns >= WGMMA_ROWS else WARPGROUP_WARPS
    while warps < MAX_WARPS and words > warps * WARP_SIZE * MAX_DOT_REGISTERS:
        warps *= 2
    return warps


def largest_warpgroup_dot(kernel: Any, target: Target) -> tuple[int, int] | None:
    """M and N of the largest `mgpu.dot` that a warpgroup can compute; None where there is none."""
    dots = [dot_of(op) for op in walk(body_of(kernel)) if op.name == "mgpu.dot"]
    fitting = [(d.m * d.n, d.m, d.n) for d in dots if fits_warpgroup(d, target)]
    return max(fitting)[1:] if fitting else None


def largest_tile(kernel: Any) -> tuple[int, int]:
    """Most elements, and most 32-bit words, that one tile in the kernel has; (1, 1) where there are only scalars.

    Elements narrower than 16 bits count as 16: the registers hold them no denser.
    """
    elements = words = 1
    for op in walk(body_of(kernel)):
        for result in () if op.name in REFERENCES else op.results:
            if is_tile(result.type):
                tile = ir.RankedTensorType(result.type)
                count = math.prod(shape_of(tile))
                elements = max(elements, count)
                words = max(words, count * max(16, storage_bits(tile.element_type)) // 32)
    return elements, words


@dataclass(frozen=True)
class ChooseNumWarps:
    """The pass; `LoweringOptions.num_warps` overrules it.

    Raises KernelError where no block has that number, or no number of warps could hold a tile.
    """

    name: str = "choose-num-warps"

    def apply(self, module: ir.Module, options: LoweringOptions) -> None:
        if options.num_warps is not None and not (is_power(options.num_warps) and options.num_warps <= MAX_WARPS):
            raise KernelError(
                "num_warps must be a power of two",
                got=options.num_warps,
                expected=f"1, 2, 4 .. {MAX_WARPS}",
                hint="leave num_warps out to have it chosen",
            )
        for kernel in kernels(module):
            elements, words = largest_tile(kernel)
            if elements > MAX_TILE_ELEMENTS:
                raise _too_large(kernel)
            dot = largest_warpgroup_dot(kernel, parse_target(options.target))
            chosen = choose(elements, words) if dot is None else choose_warpgroups(*dot, words)
            warps = options.num_warps or chosen
            kernel.attributes["num_warps"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), warps)


def _too_large(kernel: Any) -> KernelError:
    """What to say of the first tile that is too large, of those whose line is known."""
    values = [result for op in walk(body_of(kernel)) for result in op.results if is_tile(result.type)]
    large = [value for value in values if math.prod(shape_of(value.type)) > MAX_TILE_ELEMENTS]
    value = min(large, key=lambda value: source_of(value.owner.location) is None)
    shape = shape_of(value.type)
    return KernelError(
        "a value is larger than a block of threads can hold, and cannot be computed part by part",
        got=f"shape {list(shape)}: {math.prod(shape)} elements",
        expected=f"at most {MAX_TILE_ELEMENTS} elements",
        hint="cut the arrays into smaller blocks with BlockSpec and grid, or read part of a reference at a time",
        source=source_of(value.owner.location),
    )
