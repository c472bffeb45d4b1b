"""The register layouts of the matrix units: which thread holds which element of A, B and the accumulator.

Both families share one pattern.  Lane l = 4 g + c: g (three bits) numbers rows of A and of the accumulator and columns
of B, c (two bits) numbers groups of neighbours along K in A and B and pairs of columns in the accumulator.  For
`mma.m16n8k16` with 16-bit operands (PTX ISA, "Matrix fragments for mma.m16n8k16"):

    A (16 x 16)      B (16 x 8)       accumulator (16 x 8)
    r0 -> (0, 1)     r0 -> (1, 0)     r0 -> (0, 1)
    r1 -> (8, 0)     r1 -> (8, 0)     r1 -> (8, 0)
    r2 -> (0, 8)
    c  -> (0, 2 c)   c  -> (2 c, 0)   c  -> (0, 2 c)
    g  -> (g, 0)     g  -> (0, g)     g  -> (g, 0)

Narrower operands have more neighbours in a thread (the 32 bits of a register), wider ones fewer; K is always
32 bytes (for f64, m8n8k4).  For `wgmma` (m64nNk, "Register fragments for wgmma.mma_async") warp w of a warpgroup
holds rows 16 w .. 16 w + 15 in the same way.  Several warps (warpgroups) lie side by side along M or N.

Tiles that are larger repeat the base tile in registers, so fragment (i, j) of a tile is a run of registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from mosaic_gpu.dialect.bits import ceil_log2, ceil_power
from mosaic_gpu.dialect.layouts import Coordinate, Layout

WARPGROUP_WARPS = 4
WGMMA_ROWS = 64
MMA_ROWS, MMA_COLUMNS = 16, 8
K_BYTES = 32
"""Bytes of K that one instruction contracts, for all operands up to 32 bits."""


@dataclass(frozen=True)
class DotLayouts:
    """Layouts of the tiles of a dot: `lhs` is [M, K], `rhs` [K, N], `acc` [M, N]."""

    lhs: Layout
    rhs: Layout
    acc: Layout


def warp_grid(m: int, n: int, num_warps: int, rows: int = MMA_ROWS, columns: int = MMA_COLUMNS) -> tuple[int, int]:
    """How many of the warps lie along M and along N, powers of two; their product may be less than `num_warps`.

    Tiles of `rows` x `columns` are dealt out so that the part of a warp stays as square as it can.
    """
    tiles = [ceil_power(-(-m // rows)), ceil_power(-(-n // columns))]
    grid = [1, 1]
    while grid[0] * grid[1] < num_warps:
        parts = [tiles[0] // grid[0] * rows, tiles[1] // grid[1] * columns]
        splittable = [d for d in range(2) if grid[d] < tiles[d]]
        if not splittable:
            break
        grid[max(splittable, key=lambda d: parts[d])] *= 2
    return grid[0], grid[1]


def mma_layouts(bits: int, m: int, n: int, num_warps: int) -> DotLayouts:
    """Fragments of `mma.sync` with operands of `bits` bits (tf32 counts as 32) for a dot of M x N.

    Warps beyond the grid of `warp_grid` replicate.
    """
    if bits == 64:
        return _f64_layouts(m, n, num_warps)
    grid = warp_grid(m, n, num_warps)
    near = 32 // bits
    deep = K_BYTES * 8 // bits
    along_k = [1 << i for i in range(ceil_log2(near))]
    lane_k = [near, 2 * near]
    rows = tuple((1 << i, 0) for i in range(3))
    columns = tuple((0, 1 << i) for i in range(3))
    low, high = _warp_images(grid, MMA_ROWS, MMA_COLUMNS, num_warps)
    lhs = Layout(
        (MMA_ROWS * grid[0], deep),
        (*((0, k) for k in along_k), (8, 0), (0, deep // 2)),
        (*((0, k) for k in lane_k), *rows),
        low,
    )
    rhs = Layout(
        (deep, MMA_COLUMNS * grid[1]),
        (*((k, 0) for k in along_k), (deep // 2, 0)),
        (*((k, 0) for k in lane_k), *columns),
        high,
    )
    both = tuple((a[0], b[1]) for a, b in zip(low, high, strict=True))
    acc = Layout((MMA_ROWS * grid[0], MMA_COLUMNS * grid[1]), ((0, 1), (8, 0)), ((0, 2), (0, 4), *rows), both)
    return DotLayouts(lhs, rhs, acc)


def _f64_layouts(m: int, n: int, num_warps: int) -> DotLayouts:
    """`mma.m8n8k4` of f64 (PTX ISA, "Matrix fragments for mma.m8n8k4 with .f64")."""
    grid = warp_grid(m, n, num_warps, 8, 8)
    low, high = _warp_images(grid, 8, 8, num_warps)
    both = tuple((a[0], b[1]) for a, b in zip(low, high, strict=True))
    rows = tuple((1 << i, 0) for i in range(3))
    columns = tuple((0, 1 << i) for i in range(3))
    return DotLayouts(
        Layout((8 * grid[0], 4), (), ((0, 1), (0, 2), *rows), low),
        Layout((4, 8 * grid[1]), (), ((1, 0), (2, 0), *columns), high),
        Layout((8 * grid[0], 8 * grid[1]), ((0, 1),), ((0, 2), (0, 4), *rows), both),
    )


def _warp_images(
    grid: tuple[int, int], rows: int, columns: int, num_warps: int
) -> tuple[tuple[Coordinate, ...], tuple[Coordinate, ...]]:
    """Images of the warp bits: (along M, along N).  The lowest bits go to M, and what is left replicates."""
    bits = ceil_log2(num_warps)
    along = [ceil_log2(g) for g in grid]
    low, high = [(0, 0)] * bits, [(0, 0)] * bits
    for i in range(along[0]):
        low[i] = (rows << i, 0)
    for i in range(along[1]):
        high[along[0] + i] = (0, columns << i)
    return tuple(low), tuple(high)


def fma_layout(m: int, n: int, num_warps: int) -> Layout | None:
    """A layout for outer products of rows in shared memory: each thread has squares of neighbours.

    With squares of 4 x 4, lanes 4 x 8 of them, a warp reads 64 bytes of one row and 128 of the other for 512
    multiply-adds, each in one pass over the banks.  None where the tile is too small for every thread to have a part.
    """
    side = next((s for s in (4, 2, 1) if s * s * 32 * num_warps <= m * n and 4 * s <= m and 8 * s <= n), None)
    if side is None:
        return None
    grid = warp_grid(m, n, num_warps, 4 * side, 8 * side)
    low, high = _warp_images(grid, 4 * side, 8 * side, num_warps)
    inner = [1 << i for i in range(ceil_log2(side))]
    return Layout(
        (4 * side * grid[0], 8 * side * grid[1]),
        (*((0, c) for c in inner), *((r, 0) for r in inner)),
        ((0, side), (0, 2 * side), (0, 4 * side), (side, 0), (2 * side, 0)),
        tuple((a[0], b[1]) for a, b in zip(low, high, strict=True)),
    )


@dataclass(frozen=True)
class WgmmaPlan:
    """How a dot of M x N is dealt out to warpgroups; warpgroups beyond `along_m` x `along_n` replicate.

    Attributes:
      along_m, along_n: warpgroups along M and N, powers of two.
      columns: columns of the accumulator that belong to one warpgroup, a multiple of 8.
      repeats_m: row blocks of 64 that one warpgroup computes.
      splits: (first column, number of columns) of each instruction of a warpgroup, along N.
    """

    along_m: int
    along_n: int
    columns: int
    repeats_m: int
    splits: tuple[tuple[int, int], ...]

    @property
    def rows(self) -> int:
        """Rows of A that are read in all, padding included."""
        return WGMMA_ROWS * self.along_m * self.repeats_m


MAX_COLUMNS = 256
_SPLIT_COLUMNS = 64
"""Instructions along N start at multiples of this, where there are several: a whole panel of any swizzle."""


def wgmma_plan(m: int, n: int, num_warps: int) -> WgmmaPlan:
    """The plan for a dot of M x N on `num_warps` warps (a multiple of 4)."""
    groups = num_warps // WARPGROUP_WARPS
    blocks = -(-m // WGMMA_ROWS)
    along_m = min(groups, blocks & -blocks)
    along_n = 1
    if n == ceil_power(n):
        while along_m * along_n < groups and n // along_n >= 2 * _SPLIT_COLUMNS:
            along_n *= 2
    while along_m * along_n < groups and along_m < blocks:
        along_m *= 2
    columns = -(-n // (8 * along_n)) * 8
    most = columns if columns <= MAX_COLUMNS else MAX_COLUMNS
    splits = tuple((start, min(most, columns - start)) for start in range(0, columns, most))
    return WgmmaPlan(along_m, along_n, columns, -(-m // (WGMMA_ROWS * along_m)), splits)


def wgmma_layouts(bits: int, plan: WgmmaPlan, num_warps: int) -> tuple[Layout, Layout]:
    """Layouts of A in registers (operands of `bits` bits) and of the accumulator.

    PTX ISA, "Register fragments for wgmma.mma_async": warp w of a warpgroup holds rows 16 w .. 16 w + 15.
    """
    near, deep = 32 // bits, K_BYTES * 8 // bits
    rows = tuple((1 << i, 0) for i in range(3))
    along_n = ceil_log2(plan.along_n)
    low, high = _warp_images((WARPGROUP_WARPS * plan.along_m, plan.along_n), MMA_ROWS, plan.columns, num_warps)
    lhs = Layout(
        (WGMMA_ROWS * plan.along_m, deep),
        (*((0, 1 << i) for i in range(ceil_log2(near))), (8, 0), (0, deep // 2)),
        ((0, near), (0, 2 * near), *rows),
        low,
    )
    wide = [(0, 8 << i) for i in range(ceil_log2(plan.columns // 8))] if along_n else []
    acc = Layout(
        (WGMMA_ROWS * plan.along_m, 8 if not along_n else plan.columns * plan.along_n),
        ((0, 1), (8, 0), *wide),
        ((0, 2), (0, 4), *rows),
        tuple((a[0], b[1]) for a, b in zip(low, high, strict=True)),
    )
    return lhs, acc
