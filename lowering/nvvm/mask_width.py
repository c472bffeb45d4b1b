"""How many neighbours share one mask bit: what lets a masked access stay as wide as an unmasked one.

    %i = iota along 1                       0, 1, 2, ..
    %x = %i + 64 * program_id               64 p, 64 p + 1, ..     steps of 1 from a multiple of 64
    %m = cmpi slt, %x, 1000                 changes at multiples of 8 only: 8 neighbours share a bit

Only aligned groups along one dimension count, as an access reads them.  Everything here looks at the IR and emits
nothing; what it does not know counts as a mask that may differ from element to element.
"""

from __future__ import annotations

from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.dialect.types import is_tile, shape_of
from mosaic_gpu.lowering.views import MAX_DIVISOR, divisor

_BITWISE = frozenset({"arith.andi", "arith.ori", "arith.xori"})
_CASTS = frozenset({"arith.extsi", "arith.extui", "arith.trunci", "mgpu.convert_layout"})
_LESS, _LESS_SWAPPED = frozenset({2, 5, 6, 9}), frozenset({3, 4, 7, 8})
"""arith's predicates that tell a < b from a >= b (slt, sge, ult, uge), and the same with the sides exchanged."""


def mask_width(mask: ir.Value, dim: int) -> int:
    """The largest power of two such that each aligned group of that many neighbours along `dim` has one mask bit."""
    op = _owner(mask)
    if _level(mask, dim) is not None:
        return MAX_DIVISOR
    if op is None:
        return 1
    if op.name in _BITWISE:
        return min(mask_width(op.operands[0], dim), mask_width(op.operands[1], dim))
    if op.name == "mgpu.convert_layout":
        return mask_width(op.operands[0], dim)
    if op.name == "mgpu.broadcast":
        inner = _source_dim(op, dim)
        return MAX_DIVISOR if inner is None else mask_width(op.operands[0], inner)
    return _comparison_width(op, dim) if op.name == "arith.cmpi" else 1


def _comparison_width(op: Any, dim: int) -> int:
    predicate, (left, right) = ir.IntegerAttr(op.attributes["predicate"]).value, op.operands
    if predicate in _LESS_SWAPPED:
        left, right = right, left
    elif predicate not in _LESS:
        return 1
    start, bound = _steps(left, dim), _level(right, dim)
    return 1 if start is None or bound is None else min(start, bound)


def _steps(value: ir.Value, dim: int) -> int | None:
    """Where `value` counts up by 1 along `dim`: a power of two that divides its start; else None."""
    op = _owner(value)
    if op is None:
        return None
    if op.name == "mgpu.iota":
        return MAX_DIVISOR if ir.IntegerAttr(op.attributes["dimension"]).value == dim else None
    if op.name in _CASTS:
        return _steps(op.operands[0], dim)
    if op.name == "mgpu.broadcast":
        inner = _source_dim(op, dim)
        return None if inner is None else _steps(op.operands[0], inner)
    if op.name == "arith.addi":
        for counting, level in (op.operands, reversed(list(op.operands))):
            start, more = _steps(counting, dim), _level(level, dim)
            if start is not None and more is not None:
                return min(start, more)
    return None


def _level(value: ir.Value, dim: int) -> int | None:
    """Where `value` does not change along `dim`: a power of two that divides it; else None."""
    if not is_tile(value.type):
        return divisor(value)
    op = _owner(value)
    if op is None:
        return None
    if op.name == "arith.constant":
        return _constant_divisor(op.attributes["value"])
    if op.name == "mgpu.iota":
        return None if ir.IntegerAttr(op.attributes["dimension"]).value == dim else 1
    if op.name == "mgpu.broadcast":
        inner = _source_dim(op, dim)
        operand = op.operands[0]
        if inner is None:
            return divisor(operand) if not is_tile(operand.type) else 1
        return _level(operand, inner)
    if op.name in _CASTS:
        return _level(op.operands[0], dim)
    return _level_of_result(op, dim) if op.name.startswith(("arith.", "math.")) else None


def _level_of_result(op: Any, dim: int) -> int | None:
    """Of an elementwise op: level where all operands are."""
    levels = [_level(v, dim) for v in op.operands]
    known = [level for level in levels if level is not None]
    if len(known) < len(levels):
        return None
    return min(known) if op.name in ("arith.addi", "arith.subi") else 1


def _constant_divisor(attr: ir.Attribute) -> int | None:
    if not isinstance(attr, ir.DenseElementsAttr) or not attr.is_splat:
        return None
    splat = attr.get_splat_value()
    number = ir.IntegerAttr(splat).value if isinstance(splat, ir.IntegerAttr) else 1
    return min(MAX_DIVISOR, number & -number) if number else MAX_DIVISOR


def _source_dim(broadcast: Any, dim: int) -> int | None:
    """The operand's dimension that becomes `dim`; None where the operand is the same all along it."""
    dims, sizes = ints(broadcast.attributes["dimensions"]), shape_of(broadcast.operands[0].type)
    if dim not in dims or (sizes[dims.index(dim)] == 1 and shape_of(broadcast.results[0].type)[dim] != 1):
        return None
    return dims.index(dim)


def _owner(value: ir.Value) -> Any:
    """The operation that makes `value`; None for a block argument."""
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation
