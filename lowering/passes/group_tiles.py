"""Numbers the tiles of a matrix product so that those that run at the same time share operands.

A row of tiles of A @ B needs the same rows of A, a column the same columns of B.  The blocks that run at the same time
are neighbours in the order of tiles: row-major, W of them are W / n rows of n tiles and read nearly all of B at each
step.  Grouped, with g rows to a group and columns first inside of one, they are g rows and W / g columns:

    row-major, n = 6        groups of g = 2 rows       12 tiles at once: 2 + 6 strips of operands read either way, but
     0  1  2  3  4  5        0  2  4  6  8 10          of the first 6: 1 + 6 row-major, 2 + 3 grouped
     6  7  8  9 10 11        1  3  5  7  9 11

Where a tile's strip of A takes a bytes and that of B b, g a + (W / g) b is least for g = sqrt(W b / a).

Requires: loops over tiles made (`walk-tiles`, `parallelize-loops`), canonical form.  Does: where a kernel has dots,
global memory is loaded from places that depend on the row alone and from places that depend on the column alone (of
the last two dimensions with more than one tile), and W blocks in a row-major order would span fewer than g rows,
computes row and column from the number of the tile in that order.  Leaves: the same tiles, each done once.

    kernel {grid = [64, 32]} {                    kernel {grid = [2048, 1]} {
      %i = program_id 0                             %tile = program_id 0
      %j = program_id 1                             %group = %tile div (8 * 32);  %rest = %tile mod (8 * 32)
      ..                                            %i = %group * 8 + %rest mod 8;  %j = %rest div 8
                                                    ..
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.ops_kernel import PERSISTENT, ProgramIdOp
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.dialect.types import GMEM, element_of, ref_space, shape_of, storage_bits
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.launch import MAX_GRID_X
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.effects import is_defined_outside
from mosaic_gpu.lowering.passes.rebuild import terminator
from mosaic_gpu.lowering.passes.walk import blocks_of, body_of, kernels, reached, walk
from mosaic_gpu.lowering.targets import parse_target
from mosaic_gpu.lowering.views import constant_int


@dataclass(frozen=True)
class GroupTiles:
    """The pass; it has no options."""

    name: str = "group-tiles"

    def apply(self, module: ir.Module, options: LoweringOptions) -> None:
        blocks = parse_target(options.target).multiprocessors
        for kernel in kernels(module):
            if any(op.name == "mgpu.dot" for op in walk(body_of(kernel))):
                walked = PERSISTENT in ints(kernel.attributes["grid"])
                (_group_walk if walked else _group_launch)(kernel, blocks)


def _group_launch(kernel: Any, blocks: int) -> None:
    """Tiles that are blocks of the launch."""
    grid = ints(kernel.attributes["grid"])
    wide = [axis for axis, extent in enumerate(grid) if extent > 1]
    if len(wide) < 2 or 0 in grid or math.prod(grid) > MAX_GRID_X:
        return
    row_axis, column_axis = wide[-2:]
    rows, columns = grid[row_axis], grid[column_axis]
    row_ids, column_ids = (_program_ids(kernel, axis) for axis in (row_axis, column_axis))
    size = min(_group_size(kernel, row_ids, column_ids, blocks), 1 << (rows - 1).bit_length())  # no number overflows
    if size < 2 or columns * size <= blocks:
        return
    with ir.InsertionPoint.at_block_begin(body_of(kernel)), kernel.location:
        tile = ProgramIdOp(emit.int_attr(row_axis)).result
        row, column = _place(tile, _constant(tile.type, rows), _constant(tile.type, columns), size)
    _replace(row_ids, row)
    _replace(column_ids, column)
    regrouped = {row_axis: rows * columns, column_axis: 1}
    kernel.attributes["grid"] = emit.int_array([regrouped.get(axis, extent) for axis, extent in enumerate(grid)])


def _program_ids(kernel: Any, axis: int) -> list[Any]:
    """The block's coordinate along an axis, wherever the kernel asks for it."""
    found = [op for op in walk(body_of(kernel)) if op.name == "mgpu.program_id"]
    return [op.results[0] for op in found if ir.IntegerAttr(op.attributes["axis"]).value == axis]


def _replace(values: list[Any], new: Any) -> None:
    for old in values:
        old.replace_all_uses_with(new)
        old.owner.erase()


def _group_walk(kernel: Any, blocks: int) -> None:
    """Tiles that a block walks over, one after another."""
    for loop in [view.operation for view in body_of(kernel).operations if view.operation.name == "scf.for"]:
        found = _walked(loop)
        if found is None:
            continue
        size = _group_size(kernel, [found.row], [found.column], blocks)
        known = constant_int(found.columns)
        if size < 2 or (known is not None and known * size <= blocks):
            continue
        tile = loop.regions[0].blocks[0].arguments[0]
        with ir.InsertionPoint.at_block_begin(loop.regions[0].blocks[0]), loop.location:
            if found.rows is None:
                places = _place(tile, arith.divui(loop.operands[1], found.columns), found.columns, size)
            else:  # the tile in its matrix of a batch
                tile = arith.remui(tile, arith.muli(found.rows, found.columns))
                places = _place(tile, found.rows, found.columns, size)
        _replace([found.row], places[0])
        _replace([found.column], places[1])


@dataclass(frozen=True)
class _Walked:
    """The last two digits of a tile's number in a loop over tiles, and their radices (i64 values).

    `rows` is None where there are no more digits: what the loop's bound leaves.
    """

    row: Any
    column: Any
    rows: Any
    columns: Any


def _walked(loop: Any) -> _Walked | None:
    """The digits that `lowering.jaxpr.tiles` made in a loop; None where it made no two of them.

    Nor in a loop that one block may walk alone, in the tiles' own order.
    """
    lower = loop.operands[0].owner
    if isinstance(lower, ir.Block) or lower.name != "arith.extsi" or not _is_op(lower.operands[0], "mgpu.program_id"):
        return None
    by_columns = _divisions(loop.regions[0].blocks[0].arguments[0], loop)
    if by_columns is None:
        return None
    column, rest = by_columns
    columns = column.owner.operands[1]
    by_rows = _divisions(rest, loop)
    if by_rows is None:
        return _Walked(rest, column, None, columns)
    return _Walked(by_rows[0], column, by_rows[0].owner.operands[1], columns)


def _divisions(number: Any, loop: Any) -> tuple[Any, Any] | None:
    """Remainder and quotient of a number by one radix from outside of the loop, where it is used for nothing else."""
    users = {use.owner.operation.name: use.owner.operation for use in number.uses}
    if set(users) != {"arith.remui", "arith.divui"} or len(list(number.uses)) != 2:
        return None
    remainder, quotient = users["arith.remui"], users["arith.divui"]
    radix = remainder.operands[1]
    if radix != quotient.operands[1] or not is_defined_outside(radix, loop):
        return None
    return remainder.results[0], quotient.results[0]


def _is_op(value: Any, name: str) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.name == name


def _group_size(kernel: Any, row: list[Any], column: list[Any], blocks: int) -> int:
    """The number of rows in a group, a power of two; 0 where tiles of a row or of a column share nothing."""
    row_bytes = column_bytes = 0
    for op in walk(body_of(kernel)):
        if op.name != "mgpu.load" or ref_space(op.operands[0].type) != GMEM or not shape_of(op.operands[0].type):
            continue
        sources = reached([op.operands[0]], _inputs)  # by data, or by a loop's bounds
        by_row, by_column = not sources.isdisjoint(row), not sources.isdisjoint(column)
        type_ = op.results[0].type
        num_bytes = math.prod(shape_of(type_)) * storage_bits(element_of(type_)) // 8
        row_bytes += num_bytes if by_row and not by_column else 0
        column_bytes += num_bytes if by_column and not by_row else 0
    if not row_bytes or not column_bytes:
        return 0
    return 1 << max(0, round(math.log2(blocks * column_bytes / row_bytes) / 2))


def _inputs(value: Any) -> list[Any]:
    """The values that `value` is computed from."""
    owner = value.owner
    if not isinstance(owner, ir.Block):
        op = owner.operation
        ends = [terminator(block) for block in blocks_of(op)]
        return [*op.operands, *(v for end in ends for v in end.operands)]
    parent = owner.owner.operation
    if parent.name == "mgpu.kernel":
        return []
    if parent.name == "scf.for" and value == owner.arguments[0]:
        return list(parent.operands)[:3]
    return [*parent.operands, *(v for block in blocks_of(parent) for v in terminator(block).operands)]


def _place(tile: Any, rows: Any, columns: Any, size: int) -> tuple[Any, Any]:
    """Row and column of the tile of a number, in groups of `size` rows; all integers of one type."""
    group_rows = _constant(tile.type, size)
    in_group = arith.muli(columns, group_rows)
    first = arith.muli(arith.divui(tile, in_group), group_rows)
    rest = arith.remui(tile, in_group)
    known = constant_int(rows)
    if known is None or known % size:  # the last group is smaller
        group_rows = arith.minui(arith.subi(rows, first), group_rows)
    return arith.addi(first, arith.remui(rest, group_rows)), arith.divui(rest, group_rows)


def _constant(type_: Any, number: int) -> Any:
    return emit.int_constant(number, type_)
