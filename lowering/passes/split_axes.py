"""Which dimensions of an op's operands go with a dimension of its result, element by element.

    operand_axes(op, axis)    the results of `op` are split along `axis`: for each operand the dimension it is to be
                              split along, or None where it is needed whole; None where `op` cannot be split so

One function for each op that is not elementwise; to let another op be split, write one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.dialect.types import is_tile, shape_of

type Axes = list[int | None] | None


def operand_axes(op: Any, axis: int) -> Axes:
    """See the file's head."""
    rule = _RULES.get(op.name)
    if rule is not None:
        return rule(op, axis)
    if op.name.startswith(("arith.", "math.")):
        return _alike(op, axis)
    return None


def _alike(op: Any, axis: int) -> Axes:
    """Elementwise in all operands that are tiles; references and scalars are needed whole."""
    return [axis if is_tile(v.type) else None for v in op.operands]


def _constant(op: Any, axis: int) -> Axes:
    value = op.attributes["value"]
    return [] if isinstance(value, ir.DenseElementsAttr) and value.is_splat else None


def _iota(op: Any, axis: int) -> Axes:
    return []


def _broadcast(op: Any, axis: int) -> Axes:
    dims, shape = ints(op.attributes["dimensions"]), shape_of(op.operands[0].type)
    if axis in dims and shape[dims.index(axis)] == shape_of(op.results[0].type)[axis]:
        return [dims.index(axis)]
    return [None]


def _reshape(op: Any, axis: int) -> Axes:
    """Dimensions of the same size with as many elements in front of them."""
    source, target = shape_of(op.operands[0].type), shape_of(op.results[0].type)
    before = math.prod(target[:axis])
    for d, size in enumerate(source):
        if size == target[axis] and math.prod(source[:d]) == before:
            return [d]
    return None


def _transpose(op: Any, axis: int) -> Axes:
    return [ints(op.attributes["permutation"])[axis]]


def _slice(op: Any, axis: int) -> Axes:
    is_all = shape_of(op.operands[0].type)[axis] == shape_of(op.results[0].type)[axis]
    return [axis] if is_all and ints(op.attributes["strides"])[axis] == 1 else None


def _concatenate(op: Any, axis: int) -> Axes:
    return None if ir.IntegerAttr(op.attributes["dimension"]).value == axis else _alike(op, axis)


def _reduce(op: Any, axis: int) -> Axes:
    axes, count = ints(op.attributes["axes"]), len(op.results)
    kept = [d for d in range(len(shape_of(op.operands[0].type))) if d not in axes]
    return [*[kept[axis]] * count, *[None] * (len(op.operands) - count)]


def _scan(op: Any, axis: int) -> Axes:
    return None if ir.IntegerAttr(op.attributes["axis"]).value == axis else _alike(op, axis)


def _bitcast(op: Any, axis: int) -> Axes:
    ranks = len(shape_of(op.operands[0].type)), len(shape_of(op.results[0].type))
    return [axis] if axis < min(ranks) else None


_RULES: dict[str, Callable[[Any, int], Axes]] = {
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
    "mgpu.load": _alike,
    "mgpu.gather": _alike,
    "mgpu.libdevice": _alike,
    "mgpu.ptx": _alike,
}
