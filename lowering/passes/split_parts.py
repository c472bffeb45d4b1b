"""What has to be computed of tiles to have their parts along one dimension, and the parts themselves.

For `split-tiles`.  `Part` is what lies on the way to a tile, found backwards from it; `Parts` makes it for one step of
a loop over parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.types import element_of, is_tile, shape_of, storage_bits, tile_type
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.passes.effects import is_pure
from mosaic_gpu.lowering.passes.split_axes import Axes, operand_axes

MIN_ROW_ELEMENTS = 8
"""Neighbours in memory that a part keeps together."""


def words(type_: Any) -> int:
    """The 32-bit registers that a tile takes, all threads together."""
    return math.prod(shape_of(type_)) * max(16, storage_bits(element_of(type_))) // 32 if is_tile(type_) else 0


@dataclass
class Part:
    """What has to be computed of a tile to have its parts along one dimension.

    Attributes:
      size: of the dimension.
      values: tiles and the dimension that each is split along, those that others are computed from first.
      loads: the ops among them that read memory.
      whole: tiles that are needed whole.
    """

    size: int
    values: list[tuple[Any, int]] = field(default_factory=list)
    loads: list[tuple[Any, int]] = field(default_factory=list)
    whole: list[Any] = field(default_factory=list)

    def add(self, value: Any, axis: int, block: Any) -> bool:
        """Adds a tile and what it is computed from; False where an op on the way cannot be split."""
        ahead: list[tuple[Any, int, bool]] = [(value, axis, False)]
        while ahead:
            current, along, is_ready = ahead.pop()
            if (current, along) in self.values:
                continue
            axes = _axes_of(current, along, block)
            if axes is None or shape_of(current.type)[along] != self.size:
                return False
            if is_ready:
                self._append(current, along, axes)
                continue
            ahead.append((current, along, True))
            for operand, inner in zip(current.owner.operands, axes, strict=True):
                if inner is not None:
                    ahead.append((operand, inner, False))
        return True

    def _append(self, value: Any, axis: int, axes: Sequence[int | None]) -> None:
        op = value.owner.operation
        self.values.append((value, axis))
        if op.name in ("mgpu.load", "mgpu.gather"):
            self.loads.append((op, axis))
        operands = zip(op.operands, axes, strict=True)
        self.whole += [operand for operand, inner in operands if inner is None and is_tile(operand.type)]

    def largest(self) -> Any:
        """The type of the largest tile."""
        return max((value.type for value, _ in self.values), key=words)

    def length(self, elements: int, is_last_axis: bool) -> int:
        """The size of a part along the dimension, where its largest tile is to have about so many elements.

        A divisor of the whole size where there is one that is not much smaller.
        """
        wanted = max(
            elements * self.size // math.prod(shape_of(self.largest())), MIN_ROW_ELEMENTS if is_last_axis else 1
        )
        wanted = min(1 << (wanted.bit_length() - 1), self.size)
        if is_last_axis:
            return wanted
        return next((n for n in range(wanted, wanted // 2, -1) if self.size % n == 0), wanted)

    def cost(self) -> int:
        """Words of the largest tile that has to be computed whole."""
        return max((max(words(t) for t in _with_reduced(v)) for v in self.whole), default=0)


def _axes_of(value: Any, axis: int, block: Any) -> Axes:
    """The operands' dimensions, where the value is computed in `block`, or outside of it but not from memory."""
    if isinstance(value.owner, ir.Block):
        return None
    op = value.owner.operation
    return operand_axes(op, axis) if is_pure(op) or op.block == block else None


def _with_reduced(value: Any) -> Iterator[Any]:
    """The type of a tile, and of what it is a reduction of."""
    yield value.type
    if not isinstance(value.owner, ir.Block) and value.owner.operation.name == "mgpu.reduce":
        yield value.owner.operation.operands[0].type


class Parts:
    """Computes the parts of tiles in one step of a loop, at the current insertion point."""

    def __init__(self, counter: Any, length: int, size: int) -> None:
        self.start = arith.muli(counter, emit.int_constant(length))
        self.length, self.is_ragged = length, size % length != 0
        self._made: dict[tuple[Any, int], Any] = {}

    def compute(self, part: Part) -> None:
        """All values of `part`."""
        for value, axis in part.values:
            if (value, axis) not in self._made:
                self._compute(value.owner.operation, axis)

    def of(self, value: Any, axis: int | None) -> Any:
        """The part of a value; the value itself where it is needed whole."""
        return value if axis is None else self._made[value, axis]

    def view(self, ref: Any, axis: int) -> Any:
        """The part of a reference."""
        shape = list(shape_of(ref.type))
        offsets = [self.start if d == axis else emit.int_constant(0) for d in range(len(shape))]
        checked = [int(self.is_ragged and d == axis) for d in range(len(shape))]
        shape[axis] = self.length
        return emit.subview(ref, offsets, shape, checked=checked)

    def _compute(self, op: Any, axis: int) -> None:
        if op.name == "arith.constant":
            element = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
            type_ = self._type(op.results[0].type, axis)
            self._made[op.results[0], axis] = arith.ConstantOp(
                type_, ir.DenseElementsAttr.get_splat(type_, element)
            ).result
            return
        axes = operand_axes(op, axis)
        assert axes is not None
        operands = [self.of(v, inner) for v, inner in zip(op.operands, axes, strict=True)]
        if op.name == "mgpu.load":
            operands[0] = self.view(op.operands[0], axis)
        clone = op.clone().operation
        for number, operand in enumerate(operands):
            clone.operands[number] = operand
        for old, new in zip(op.results, clone.results, strict=True):
            new.set_type(self._type(old.type, axis))
            self._made[old, axis] = new
        if op.name == "mgpu.iota" and ir.IntegerAttr(op.attributes["dimension"]).value == axis:
            self._made[op.results[0], axis] = self._moved(clone.results[0])

    def _moved(self, iota: Any) -> Any:
        """Coordinates of the part as those in the whole."""
        start = emit.resize_int(self.start, element_of(iota.type))
        return arith.addi(iota, emit.broadcast(start, shape_of(iota.type), ()))

    def _type(self, type_: Any, axis: int) -> Any:
        shape = list(shape_of(type_))
        shape[axis] = self.length
        return tile_type(tuple(shape), element_of(type_))

    def inside(self, shape: Sequence[int], axis: int, size: int) -> Any:
        """Which elements of a part of this shape are inside of the whole, whose size along the axis is `size`."""
        place = self._moved(emit.iota(shape, axis))
        return arith.cmpi(emit.SLT, place, emit.int_constant(size, place.type))
