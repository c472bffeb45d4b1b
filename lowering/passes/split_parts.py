"""What has to be computed of tiles to have their parts along one dimension, and the parts themselves.

For `split-tiles`.  `Part` is what lies on the way to a tile, found backwards from it; `Parts` makes it for one step of
a loop over parts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.dialect.ops_tile import SliceOp
from mosaic_gpu.dialect.types import element_of, is_tile, shape_of, storage_bits, tile_type
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.passes.effects import is_pure
from mosaic_gpu.lowering.passes.split_axes import Window, Windows, operand_windows

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
      values: tiles and the window of each that its parts are taken from, those that others are computed from first.
      loads: the ops among them that read memory.
      whole: tiles that are needed whole.
    """

    size: int
    values: dict[tuple[Any, Window], None] = field(default_factory=dict)
    loads: list[tuple[Any, Window]] = field(default_factory=list)
    whole: list[Any] = field(default_factory=list)

    def add(self, value: Any, window: Window, block: Any) -> bool:
        """Adds a tile and what it is computed from; False where an op on the way cannot be split."""
        ahead: list[tuple[Any, Window, bool]] = [(value, window, False)]
        while ahead:
            current, along, is_ready = ahead.pop()
            if (current, along) in self.values:
                continue
            windows = _windows_of(current, along, block)
            if windows is None:
                return False
            if is_ready:
                self._append(current, along, windows)
                continue
            ahead.append((current, along, True))
            for operand, inner in zip(current.owner.operands, windows, strict=True):
                if inner is not None:
                    ahead.append((operand, inner, False))
        return True

    def _append(self, value: Any, window: Window, windows: Sequence[Window | None]) -> None:
        op = value.owner.operation
        self.values[value, window] = None
        if op.name in ("mgpu.load", "mgpu.gather"):
            self.loads.append((op, window))
        operands = zip(op.operands, windows, strict=True)
        self.whole += [operand for operand, inner in operands if inner is None and is_tile(operand.type)]

    def words(self) -> int:
        """Of the largest tile."""
        return max(words(value.type) for value, _ in self.values)

    def length(self, elements: int, is_last_axis: bool) -> int:
        """The size of a part along the dimension, where its largest tile is to have about so many elements.

        A divisor of the whole size where there is one that is not much smaller.
        """
        per_place = max(_elements_per_place(value, window) for value, window in self.values)
        unit = math.lcm(*(window.scale.denominator for _, window in self.values))
        wanted = max(int(elements / per_place), MIN_ROW_ELEMENTS if is_last_axis else 1)
        wanted = max(1 << (wanted.bit_length() - 1), unit)
        if unit > 1:
            return min(wanted // unit * unit, self.size)
        wanted = min(wanted, self.size)
        if is_last_axis:
            return wanted
        return next((n for n in range(wanted, wanted // 2, -1) if self.size % n == 0), wanted)

    def cost(self) -> int:
        """Words of the largest tile that has to be computed whole."""
        return max((max(words(t) for t in _with_reduced(v)) for v in self.whole), default=0)


def _elements_per_place(value: Any, window: Window) -> Fraction:
    """Elements of a value for each place along the dimension that is split."""
    shape = shape_of(value.type)
    return window.scale * (math.prod(shape) // shape[window.axis])


def _windows_of(value: Any, window: Window, block: Any) -> Windows:
    """The operands' windows, where the value is computed in `block`, or outside of it but not from memory."""
    if isinstance(value.owner, ir.Block):
        return None
    op = value.owner.operation
    return operand_windows(op, window) if is_pure(op) or op.block == block else None


def _with_reduced(value: Any) -> Iterator[Any]:
    """The type of a tile, and of what it is a reduction of."""
    yield value.type
    if not isinstance(value.owner, ir.Block) and value.owner.operation.name == "mgpu.reduce":
        yield value.owner.operation.operands[0].type


class Parts:
    """Computes the parts of tiles in one step of a loop, at the current insertion point."""

    def __init__(self, counter: Any, length: int, size: int) -> None:
        self.counter, self.length, self.size, self.is_ragged = counter, length, size, size % length != 0
        self._starts: dict[Window, Any] = {}
        self._made: dict[tuple[Any, Window], Any] = {}

    def compute(self, part: Part) -> None:
        """All values of `part`."""
        for value, window in part.values:
            if (value, window) not in self._made:
                self._compute(value.owner.operation, window)

    def of(self, value: Any, window: Window | None) -> Any:
        """The part of a value; the value itself where it is needed whole."""
        return value if window is None else self._made[value, window]

    def view(self, ref: Any, window: Window) -> Any:
        """The part of a reference."""
        shape, axes = list(shape_of(ref.type)), range(len(shape_of(ref.type)))
        offsets = [self._start(window) if d == window.axis else emit.int_constant(0) for d in axes]
        strides = [window.stride if d == window.axis else 1 for d in axes]
        checked = [int(self.is_ragged and d == window.axis) for d in axes]
        shape[window.axis] = self._length(window)
        return emit.subview(ref, offsets, shape, strides, checked=checked)

    def inside(self, shape: Sequence[int], window: Window) -> Any:
        """Which elements of a part of this shape are inside of the whole."""
        plain = replace(window, start=0, stride=1)
        place = self._placed(emit.iota(shape, window.axis), plain)
        return arith.cmpi(emit.SLT, place, emit.int_constant(int(self.size * window.scale), place.type))

    def _length(self, window: Window) -> int:
        return int(self.length * window.scale)

    def _start(self, window: Window) -> Any:
        """Where in the whole the part begins (i32)."""
        along = replace(window, axis=0)
        if along not in self._starts:
            start = arith.muli(self.counter, emit.int_constant(self._length(window) * window.stride))
            self._starts[along] = arith.addi(start, emit.int_constant(window.start)) if window.start else start
        return self._starts[along]

    def _compute(self, op: Any, window: Window) -> None:
        made = self._special(op, window)
        if made is None:
            made = self._cloned(op, window)
        for old, new in zip(op.results, made, strict=True):
            self._made[old, window] = new

    def _special(self, op: Any, window: Window) -> list[Any] | None:
        """The parts of an op that is not just done on parts of its operands; else None."""
        match op.name:
            case "arith.constant":
                element = ir.DenseElementsAttr(op.attributes["value"]).get_splat_value()
                type_ = self._type(op.results[0].type, window)
                return [arith.ConstantOp(type_, ir.DenseElementsAttr.get_splat(type_, element)).result]
            case "mgpu.slice" if operand_windows(op, window) != [window]:
                return [self._sliced(op, window)]
            case "mgpu.gather" if self.is_ragged:
                return [self._gathered(op, window)]
            case "mgpu.iota" if ir.IntegerAttr(op.attributes["dimension"]).value == window.axis:
                (iota,) = self._cloned(op, window)
                return [self._placed(iota, window)]
        return None

    def _cloned(self, op: Any, window: Window) -> list[Any]:
        operands = [self.of(v, inner) for v, inner in zip(op.operands, self._windows(op, window), strict=True)]
        if op.name == "mgpu.load":
            operands[0] = self.view(op.operands[0], window)
        clone = op.clone().operation
        for number, operand in enumerate(operands):
            clone.operands[number] = operand
        for old, new in zip(op.results, clone.results, strict=True):
            new.set_type(self._type(old.type, window))
        return list(clone.results)

    def _windows(self, op: Any, window: Window) -> list[Window | None]:
        windows = operand_windows(op, window)
        assert windows is not None
        return windows

    def _sliced(self, op: Any, window: Window) -> Any:
        """The part of a slice: along the split dimension its operand's part is what is wanted already."""
        (inner,) = self._windows(op, window)
        starts, strides = (list(ints(op.attributes[name])) for name in ("starts", "strides"))
        starts[window.axis], strides[window.axis] = 0, 1
        type_ = self._type(op.results[0].type, window)
        return SliceOp(type_, self.of(op.operands[0], inner), emit.int_array(starts), emit.int_array(strides)).result

    def _gathered(self, op: Any, window: Window) -> Any:
        """The part of a gather; past the end of the whole, where indices may be anything, nothing is read."""
        gather = op.opview
        indices = [self._made[index, window] for index in gather.indices]
        mask, other = (
            None if v is None else self.of(v, window if is_tile(v.type) else None) for v in (gather.mask, gather.other)
        )
        inside = self.inside(shape_of(indices[0].type), window)
        if mask is not None:
            inside = arith.andi(inside, emit.broadcast(mask, shape_of(inside.type), ()))
        return emit.gather(gather.source, indices, inside, other)

    def _placed(self, iota: Any, window: Window) -> Any:
        """Coordinates of the part as those in the whole."""
        element, shape = element_of(iota.type), shape_of(iota.type)
        if window.stride != 1:
            iota = arith.muli(iota, emit.int_constant(window.stride, iota.type))
        return arith.addi(iota, emit.broadcast(emit.resize_int(self._start(window), element), shape, ()))

    def _type(self, type_: Any, window: Window) -> Any:
        shape = list(shape_of(type_))
        shape[window.axis] = self._length(window)
        return tile_type(tuple(shape), element_of(type_))
