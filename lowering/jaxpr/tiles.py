"""Grids whose bounds are known at run time only: blocks of threads that walk over the tiles.

A tile is one point of the parallel part of a grid.  Tiles are numbered row-major, and the kernel is launched with as
many blocks as run on the GPU at once; block b of B does the tiles b, b + B, b + 2 B, ..  So tiles that
run at the same time are neighbours along the last dimension, and find each other's data in the caches.

    %total = n * 4                                     for a grid of (n, 4), n loaded from an argument
    scf.for %tile = %block to %total step %blocks {
      %j = %tile mod 4;  %i = %tile div 4
      ..
    }

Numbers of tiles are 64 bits wide: a loop counter must be able to pass its bound.

Steps may be independent only up to some bound (a kernel that writes `o_ref[pl.ds(i * 128, 128)]` writes the last place
over and over where the bound is too large).  Beyond it the first block does all tiles, in order, and the others none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mosaic_gpu.dialect._mlir import arith, ir, scf
from mosaic_gpu.dialect.ops_kernel import NumProgramsOp, ProgramIdOp
from mosaic_gpu.lowering.jaxpr import emit

type Extent = int | ir.Value
"""A bound of a grid: a number, or an i32 value that may be anything."""

_MOST = 2**63 - 1
_I32_SPAN = 2**31


def at_least_one(extent: ir.Value) -> ir.Value:
    """The bound (i32) as a program sees it: where one runs, it is not below 1."""
    return arith.maxsi(extent, emit.int_constant(1))


@contextmanager
def loop_over(lower: ir.Value, upper: ir.Value, step: ir.Value) -> Iterator[ir.Value]:
    """What is emitted inside stands in a loop; gives its counter."""
    loop = scf.ForOp(lower, upper, step)
    with ir.InsertionPoint(loop.body):
        yield loop.induction_variable
        scf.yield_([])


@contextmanager
def loop_over_tiles(extents: Sequence[Extent], limits: Sequence[int] = ()) -> Iterator[list[ir.Value]]:
    """What is emitted inside is done for each tile of a grid of these extents, by one block each; gives its i32 ids.

    `limits`: an extent for each dimension, beyond which one block does all tiles in order; empty for none.
    """
    block, blocks = (_wide(op(emit.int_attr(0)).result) for op in (ProgramIdOp, NumProgramsOp))
    total = _number_of_tiles(extents)
    if limits and (beyond := _is_beyond(extents, limits)) is not None:
        is_first = arith.cmpi(emit.EQ, block, _wide_constant(0))
        block = arith.select(beyond, arith.select(is_first, block, total), block)
        blocks = arith.select(beyond, _wide_constant(1), blocks)
    radices = [_radix(extent) for extent in extents]
    with loop_over(block, total, blocks) as tile:
        yield _digits(tile, extents, radices)


def _is_beyond(extents: Sequence[Extent], limits: Sequence[int]) -> ir.Value | None:
    """Whether an extent is larger than its limit (i1); None where none can be."""
    beyond: ir.Value | None = None
    for extent, limit in zip(extents, limits, strict=True):
        if not isinstance(extent, int) and limit < _I32_SPAN - 1:
            test = arith.cmpi(emit.SGT, extent, emit.int_constant(limit))
            beyond = test if beyond is None else arith.ori(beyond, test)
    return beyond


def _wide(value: ir.Value) -> ir.Value:
    return emit.resize_int(value, ir.IntegerType.get_signless(64))


def _wide_constant(number: int) -> ir.Value:
    return emit.int_constant(number, ir.IntegerType.get_signless(64))


def _number_of_tiles(extents: Sequence[Extent]) -> ir.Value:
    """The product of the extents (i64), those below 0 taken for 0; more than an i64 holds is the largest i64."""
    most = 1
    for extent in extents:
        most *= extent if isinstance(extent, int) else 1
    total = None if most == 1 else _wide_constant(most)
    for extent in extents:
        if isinstance(extent, int):
            continue
        factor = _wide(arith.maxsi(extent, emit.int_constant(0)))
        most *= _I32_SPAN
        if total is None:
            total = factor
            continue
        if most > _MOST:
            limit = arith.divsi(_wide_constant(_MOST), arith.maxsi(factor, _wide_constant(1)))
            total = arith.minsi(total, limit)
        total = arith.muli(total, factor)
    return _wide_constant(1) if total is None else total


def _radix(extent: Extent) -> ir.Value:
    return _wide_constant(extent) if isinstance(extent, int) else _wide(at_least_one(extent))


def _digits(tile: ir.Value, extents: Sequence[Extent], radices: Sequence[ir.Value]) -> list[ir.Value]:
    """The digits (i32) of a tile's number in the mixed radix of the extents (i64: radices), the last one fastest."""
    i32 = emit.i32()
    wanted = [d for d, extent in enumerate(extents) if not isinstance(extent, int) or extent != 1]
    digits = [emit.int_constant(0) if d not in wanted else tile for d in range(len(extents))]
    rest = tile
    for d in reversed(wanted):
        if d == wanted[0]:
            digits[d] = emit.resize_int(rest, i32)
        else:
            digits[d] = emit.resize_int(arith.remui(rest, radices[d]), i32)
            rest = arith.divui(rest, radices[d])
    return digits
