"""Which elements of an op's operands go with a stretch of its result along one dimension, element by element.

    operand_windows(op, window)    the results of `op` are wanted in `window`: for each operand the window of it that is
                                   needed, or None where it is needed whole; None where `op` cannot be split so

One function for each op that is not elementwise; to let another op be split, write one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.dialect.types import is_tile, shape_of


@dataclass(frozen=True)
class Window:
    """The elements `start + stride * i` along a dimension of a tile.

    `scale`: how many of them go with one element of what is split in the end (of the store or reduction); `is_loose`:
    some of them may be outside of the tile, and are not used.
    """

    axis: int
    start: int = 0
    stride: int = 1
    scale: Fraction = Fraction(1)
    is_loose: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it holds the elements as they are in memory, from the first one on."""
        return (self.start, self.stride) == (0, 1)


type Windows = list[Window | None] | None


def operand_windows(op: Any, window: Window) -> Windows:
    """See the file's head."""
    rule = _RULES.get(op.name)
    if rule is not None:
        return rule(op, window)
    if op.name.startswith(("arith.", "math.")):
        return _alike(op, window)
    return None


def _alike(op: Any, window: Window) -> Windows:
    """Elementwise in all operands that are tiles; references and scalars are needed whole."""
    return [window if is_tile(v.type) else None for v in op.operands]


def _constant(op: Any, window: Window) -> Windows:
    value = op.attributes["value"]
    return [] if isinstance(value, ir.DenseElementsAttr) and value.is_splat else None


def _iota(op: Any, window: Window) -> Windows:
    return []


def _broadcast(op: Any, window: Window) -> Windows:
    dims, shape = ints(op.attributes["dimensions"]), shape_of(op.operands[0].type)
    if window.axis in dims and shape[dims.index(window.axis)] == shape_of(op.results[0].type)[window.axis]:
        return [replace(window, axis=dims.index(window.axis))]
    return [None]


def _reshape(op: Any, window: Window) -> Windows:
    """Dimensions with as many elements in front of them: the same one, or one that is a part of the other."""
    source, target = shape_of(op.operands[0].type), shape_of(op.results[0].type)
    before, size = math.prod(target[: window.axis]), target[window.axis]
    found = [d for d, n in enumerate(source) if n > 1 and math.prod(source[:d]) == before]
    if not found:
        return None
    (d,) = found
    if source[d] == size:
        return [replace(window, axis=d)]
    if window.is_plain and (source[d] % size == 0 or size % source[d] == 0):
        return [replace(window, axis=d, scale=window.scale * Fraction(source[d], size))]
    return None


def _transpose(op: Any, window: Window) -> Windows:
    return [replace(window, axis=ints(op.attributes["permutation"])[window.axis])]


def _slice(op: Any, window: Window) -> Windows:
    start, stride = (ints(op.attributes[name])[window.axis] for name in ("starts", "strides"))
    return [replace(window, start=start + stride * window.start, stride=stride * window.stride)]


def _concatenate(op: Any, window: Window) -> Windows:
    return None if ir.IntegerAttr(op.attributes["dimension"]).value == window.axis else _alike(op, window)


def _reduce(op: Any, window: Window) -> Windows:
    axes, count = ints(op.attributes["axes"]), len(op.results)
    kept = [d for d in range(len(shape_of(op.operands[0].type))) if d not in axes]
    return [*[replace(window, axis=kept[window.axis])] * count, *[None] * (len(op.operands) - count)]


def _scan(op: Any, window: Window) -> Windows:
    return None if ir.IntegerAttr(op.attributes["axis"]).value == window.axis else _alike(op, window)


def _dot(op: Any, window: Window) -> Windows:
    """Rows of the left operand, or columns of the right one; the other operand whole."""
    if not all(is_tile(v.type) for v in op.operands):
        return None
    lhs, rhs = (ir.IntegerAttr(op.attributes[f"{side}_transposed"]).value for side in ("lhs", "rhs"))
    if window.axis == 0:
        return [replace(window, axis=1 if lhs else 0), None, window]
    return [None, replace(window, axis=0 if rhs else 1), window]


def _bitcast(op: Any, window: Window) -> Windows:
    ranks = len(shape_of(op.operands[0].type)), len(shape_of(op.results[0].type))
    return [window] if window.axis < min(ranks) else None


_RULES: dict[str, Callable[[Any, Window], Windows]] = {
    "arith.constant": _constant,
    "mgpu.iota": _iota,
    "mgpu.broadcast": _broadcast,
    "mgpu.reshape": _reshape,
    "mgpu.transpose": _transpose,
    "mgpu.slice": _slice,
    "mgpu.concatenate": _concatenate,
    "mgpu.reduce": _reduce,
    "mgpu.scan": _scan,
    "mgpu.bitcast": _bitcast,
    "mgpu.dot": _dot,
    "mgpu.load": _alike,
    "mgpu.gather": _alike,
    "mgpu.libdevice": _alike,
    "mgpu.ptx": _alike,
}
