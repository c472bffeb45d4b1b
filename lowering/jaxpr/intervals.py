"""Which values an integer of the emitted IR can have, as an interval.

A small abstract interpreter over def-use chains: constants, program ids (below the grid's extents),
induction variables (between their loops' bounds) and the arithmetic around them.  What it does not know
is any value of the type.  Arithmetic that may wrap around is "not known" as well, so an interval holds
for the machine's integers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.ops_kernel import PERSISTENT
from mosaic_gpu.dialect.types import element_of, shape_of

_MAX_DEPTH = 40
_MAX_BLOCKS = 2**31 - 1


@dataclass(frozen=True)
class Interval:
    """The integers from `low` to `high`, both included (signed; an i1 is 0 or 1)."""

    low: int
    high: int

    @property
    def constant(self) -> int | None:
        """The one value, where there is only one."""
        return self.low if self.low == self.high else None

    def inside(self, low: int, high: int) -> bool:
        """Whether every value is between `low` and `high` (included)."""
        return low <= self.low and self.high <= high

    def union(self, other: Interval) -> Interval:
        """The smallest interval around both."""
        return Interval(min(self.low, other.low), max(self.high, other.high))


def interval_of(value: ir.Value) -> Interval:
    """The interval of an integer scalar, or of all elements of a tile of integers."""
    return _interval(value, _MAX_DEPTH)


def _everything(type_: ir.Type) -> Interval:
    element = element_of(type_)
    bits = 64 if isinstance(element, ir.IndexType) else int(element.width)
    return Interval(0, 1) if bits == 1 else Interval(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _interval(value: ir.Value, depth: int) -> Interval:
    everything = _everything(value.type)
    if depth == 0:
        return everything
    owner = value.owner
    if isinstance(owner, ir.Block):
        found = _of_block_argument(value, owner, depth)
    else:
        rule = _RULES.get(owner.operation.name)
        found = None if rule is None else rule(owner.operation, depth - 1)
    if found is None or not found.inside(everything.low, everything.high):
        return everything
    return found


def _is_bool(type_: ir.Type) -> bool:
    return bool(element_of(type_) == ir.IntegerType.get_signless(1))


def _of_block_argument(value: ir.Value, block: Any, depth: int) -> Interval | None:
    """The induction variable of a loop with a positive step."""
    loop = block.owner.operation
    if loop.name != "scf.for" or ir.BlockArgument(value).arg_number != 0:
        return None
    lower, upper, step = (_interval(loop.operands[i], depth - 1) for i in range(3))
    if step.low < 1 or upper.high <= lower.low:
        return None
    return Interval(lower.low, upper.high - 1)


def _constant(op: Any, depth: int) -> Interval | None:
    attr = op.attributes["value"]
    if isinstance(attr, ir.DenseElementsAttr) and attr.is_splat:
        attr = attr.get_splat_value()
    if not isinstance(attr, ir.IntegerAttr):
        return None
    number = int(ir.IntegerAttr(attr).value)
    if _is_bool(op.results[0].type):
        number &= 1
    return Interval(number, number)


def _iota(op: Any, depth: int) -> Interval | None:
    extent = shape_of(op.results[0].type)[ir.IntegerAttr(op.attributes["dimension"]).value]
    return Interval(0, max(extent - 1, 0))


def _program_id(op: Any, depth: int) -> Interval | None:
    kernel = op.parent
    while kernel is not None and kernel.name != "mgpu.kernel":
        kernel = kernel.parent
    if kernel is None:
        return None
    extent = ir.IntegerAttr(kernel.attributes["grid"][ir.IntegerAttr(op.attributes["axis"]).value]).value
    return Interval(0, (_MAX_BLOCKS if extent == PERSISTENT else max(extent, 1)) - 1)


def _num_programs(op: Any, depth: int) -> Interval | None:
    return Interval(1, _MAX_BLOCKS)


def _operands(op: Any, depth: int) -> list[Interval]:
    return [_interval(v, depth) for v in op.operands]


def _corners(combine: Callable[[int, int], int]) -> Callable[[Any, int], Interval]:
    """A rule for an operation that is monotone in each operand: extremes are at the corners."""

    def rule(op: Any, depth: int) -> Interval:
        a, b = _operands(op, depth)
        corners = [combine(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
        return Interval(min(corners), max(corners))

    return rule


def _div_toward_zero(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _divide(combine: Callable[[int, int], int]) -> Callable[[Any, int], Interval | None]:
    def rule(op: Any, depth: int) -> Interval | None:
        divisor = _interval(op.operands[1], depth)
        return _corners(combine)(op, depth) if divisor.low > 0 else None

    return rule


def _unsigned_divide(op: Any, depth: int) -> Interval | None:
    dividend = _interval(op.operands[0], depth)
    return _divide(_div_toward_zero)(op, depth) if dividend.low >= 0 else None


def _remainder(op: Any, depth: int) -> Interval | None:
    a, b = _operands(op, depth)
    if b.low <= 0:
        return None
    if a.low >= 0 and a.high < b.low:
        return a
    return Interval(max(a.low, 1 - b.high) if a.low < 0 else 0, min(max(a.high, 0), b.high - 1))


def _unsigned_remainder(op: Any, depth: int) -> Interval | None:
    a, b = _operands(op, depth)
    return _remainder(op, depth) if a.low >= 0 and b.low > 0 else None


def _select(op: Any, depth: int) -> Interval | None:
    condition = _interval(op.operands[0], depth).constant
    if condition is not None:
        return _interval(op.operands[1 if condition else 2], depth)
    return _interval(op.operands[1], depth).union(_interval(op.operands[2], depth))


def _compare(op: Any, depth: int) -> Interval | None:
    a, b = _operands(op, depth)
    predicate = ir.IntegerAttr(op.attributes["predicate"]).value
    if predicate >= 6 and (a.low < 0 or b.low < 0):
        return None
    if 2 <= predicate < 6 and _is_bool(op.operands[0].type):
        return None
    always = {
        0: (a.constant is not None and a == b, a.high < b.low or b.high < a.low),
        1: (a.high < b.low or b.high < a.low, a.constant is not None and a == b),
        2: (a.high < b.low, a.low >= b.high),
        3: (a.high <= b.low, a.low > b.high),
        4: (a.low > b.high, a.high <= b.low),
        5: (a.low >= b.high, a.high < b.low),
    }
    true, false = always[predicate if predicate < 6 else predicate - 4]
    return Interval(1, 1) if true else Interval(0, 0) if false else None


def _same(op: Any, depth: int) -> Interval | None:
    return _interval(op.operands[0], depth)


def _sign_extended(op: Any, depth: int) -> Interval | None:
    return None if _is_bool(op.operands[0].type) else _interval(op.operands[0], depth)


def _zero_extended(op: Any, depth: int) -> Interval | None:
    source = _interval(op.operands[0], depth)
    return source if source.low >= 0 else None


def _and(op: Any, depth: int) -> Interval | None:
    masks = [v for v in _operands(op, depth) if v.low >= 0]
    return Interval(0, min(m.high for m in masks)) if masks else None


def _shift_left(op: Any, depth: int) -> Interval | None:
    shift = _interval(op.operands[1], depth)
    return _corners(lambda a, b: a << b)(op, depth) if shift.inside(0, 31) else None


def _shift_right(op: Any, depth: int) -> Interval | None:
    shift = _interval(op.operands[1], depth)
    return _corners(lambda a, b: a >> b)(op, depth) if shift.inside(0, 31) else None


_RULES: dict[str, Callable[[Any, int], Interval | None]] = {
    "arith.constant": _constant,
    "mgpu.program_id": _program_id,
    "mgpu.num_programs": _num_programs,
    "mgpu.iota": _iota,
    "mgpu.broadcast": _same,
    "mgpu.reshape": _same,
    "mgpu.transpose": _same,
    "mgpu.slice": _same,
    "arith.addi": _corners(lambda a, b: a + b),
    "arith.subi": _corners(lambda a, b: a - b),
    "arith.muli": _corners(lambda a, b: a * b),
    "arith.maxsi": _corners(max),
    "arith.minsi": _corners(min),
    "arith.divsi": _divide(_div_toward_zero),
    "arith.divui": _unsigned_divide,
    "arith.floordivsi": _divide(lambda a, b: a // b),
    "arith.remsi": _remainder,
    "arith.remui": _unsigned_remainder,
    "arith.select": _select,
    "arith.cmpi": _compare,
    "arith.extsi": _sign_extended,
    "arith.trunci": _same,
    "arith.index_cast": _same,
    "arith.extui": _zero_extended,
    "arith.andi": _and,
    "arith.shli": _shift_left,
    "arith.shrsi": _shift_right,
}
