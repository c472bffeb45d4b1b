"""What has to be computed of tiles to have their parts along one dimension: what lies on the way, found backwards.

For `split-tiles`; `emit_parts` computes it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.types import SMEM, element_of, is_tile, ref_space, shape_of, storage_bits
from mosaic_gpu.lowering.passes.effects import Memories, is_pure
from mosaic_gpu.lowering.passes.split_axes import Window, operand_windows
from mosaic_gpu.lowering.passes.split_scratch import Pieced, pieced

MIN_ROW_ELEMENTS = 8
"""Neighbours in memory that a part keeps together."""
MIN_DOT_ELEMENTS = 64
"""What a part keeps together along each dimension of a product: a warpgroup's matrix units take 64 rows at once."""


def words(type_: Any) -> int:
    """The 32-bit registers that a tile takes, all threads together."""
    return math.prod(shape_of(type_)) * max(16, storage_bits(element_of(type_))) // 32 if is_tile(type_) else 0


type Inputs = list[tuple[Any, Window | None]] | None


@dataclass(frozen=True)
class Scope:
    """Where parts are computed, and what tiles are large.

    Attributes:
      block: what is split stands in it.
      memories: of the kernel.
      written: those that the kernel writes at all; what is loaded of others may be loaded again anywhere.
      limit: words of the largest tile that stays as it is.
    """

    block: Any
    memories: Memories
    written: frozenset[Any]
    limit: int

    def may_compute(self, op: Any) -> bool:
        """Whether an op can be done again where the block's ops stand."""
        if is_pure(op) or op.block == self.block:
            return True
        return op.name in ("mgpu.load", "mgpu.gather") and not self.memories.effects(op).reads & self.written


@dataclass
class Part:
    """What has to be computed of a tile to have its parts along one dimension.

    Attributes:
      size: of the dimension.
      values: tiles and the window of each that its parts are taken from, those that others are computed from first.
      loads: the ops among them that read memory.
      whole: tiles that are needed whole.
      pieced: what is known of values that are put together of pieces.
    """

    size: int
    values: dict[tuple[Any, Window], None] = field(default_factory=dict)
    loads: list[tuple[Any, Window]] = field(default_factory=list)
    whole: list[Any] = field(default_factory=list)
    pieced: dict[Any, Pieced] = field(default_factory=dict)

    def add(self, value: Any, window: Window, scope: Scope) -> bool:
        """Adds a tile and what it is computed from; False where an op on the way cannot be split."""
        ahead: list[tuple[Any, Window, bool]] = [(value, window, False)]
        while ahead:
            current, along, is_ready = ahead.pop()
            if (current, along) in self.values:
                continue
            inputs = self._inputs(current, along, scope)
            if inputs is None:
                return False
            if is_ready:
                self._append(current, along, inputs)
                continue
            ahead.append((current, along, True))
            ahead += [(operand, inner, False) for operand, inner in inputs if inner is not None]
        return True

    def _inputs(self, value: Any, window: Window, scope: Scope) -> Inputs:
        """What a tile is computed from; None where it cannot be computed part by part."""
        if isinstance(value.owner, ir.Block):
            return None
        op = value.owner.operation
        if not scope.may_compute(op):
            return None
        if may_be_pieced(op, window):
            known = self.pieced.get(value) or pieced(op)
            if known is not None and (inner := piece_windows(known, shape_of(value.type), window)) is not None:
                self.pieced[value] = known
                return [(piece, w) for (piece, _), w in zip(known.pieces, inner, strict=True)]
        windows = operand_windows(op, window)
        return None if windows is None else list(zip(op.operands, windows, strict=True))

    def _append(self, value: Any, window: Window, inputs: Sequence[tuple[Any, Window | None]]) -> None:
        op = value.owner.operation
        self.values[value, window] = None
        if op.name in ("mgpu.load", "mgpu.gather") and value not in self.pieced:
            self.loads.append((op, window))
        self.whole += [operand for operand, inner in inputs if inner is None and is_tile(operand.type)]

    def words(self) -> int:
        """Of the largest tile."""
        return max(words(value.type) for value, _ in self.values)

    def unit(self) -> int:
        """The size of a part is a multiple of this: merged dimensions are cut between rows."""
        return math.lcm(*(window.scale.denominator for _, window in self.values))

    def length(self, elements: int, least: int) -> int:
        """The size of a part along the dimension, where its largest tile is to have about so many elements.

        At least `least`; where that is 1, a divisor of the whole size where there is one that is not much smaller.
        """
        per_place = max(_elements_per_place(value, window) for value, window in self.values)
        unit = self.unit()
        if any(value.owner.name == "mgpu.dot" for value, _ in self.values):
            least = MIN_DOT_ELEMENTS
        wanted = max(int(elements / per_place), least)
        wanted = max(1 << (wanted.bit_length() - 1), unit)
        if unit > 1:
            return min(wanted // unit * unit, self.size)
        wanted = min(wanted, self.size)
        if least > 1:
            return wanted
        return next((n for n in range(wanted, wanted // 2, -1) if self.size % n == 0), wanted)

    def cost(self) -> int:
        """Words of the largest tile that has to be computed whole."""
        return max((max(words(t) for t in _with_reduced(v)) for v in self.whole), default=0)


def _elements_per_place(value: Any, window: Window) -> Fraction:
    """Elements of a value for each place along the dimension that is split."""
    shape = shape_of(value.type)
    return window.scale * (math.prod(shape) // shape[window.axis])


def may_be_pieced(op: Any, window: Window) -> bool:
    """Whether an op reads scratch memory, or puts tiles one after another along the dimension."""
    if op.name == "mgpu.concatenate":
        return bool(ir.IntegerAttr(op.attributes["dimension"]).value == window.axis)
    return op.name == "mgpu.load" and bool(ref_space(op.operands[0].type) == SMEM)


def piece_windows(known: Pieced, shape: Sequence[int], window: Window) -> list[Window] | None:
    """The windows of the pieces for one of a tile of `shape`; None where pieces move along several dimensions.

    Along a dimension in which everything stays, they are the same.
    """
    if known.is_still(window.axis, shape[window.axis]):
        return [window] * len(known.pieces)
    if any(not known.is_still(d, n) for d, n in enumerate(shape) if d != window.axis):
        return None
    first = window.start + known.offsets[window.axis]
    return [replace(window, start=first - at[window.axis], is_loose=True) for _, at in known.pieces]


def _with_reduced(value: Any) -> Iterator[Any]:
    """The type of a tile, and of what it is a reduction of."""
    yield value.type
    if not isinstance(value.owner, ir.Block) and value.owner.operation.name == "mgpu.reduce":
        yield value.owner.operation.operands[0].type
