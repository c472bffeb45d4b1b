"""Reductions and running folds: the `mgpu.reduce` and `mgpu.scan` of one named or one traced operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.ops_kernel import YieldOp
from mosaic_gpu.dialect.ops_tile import ReduceOp, ScanOp
from mosaic_gpu.dialect.types import element_of, shape_of, tile_type
from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.arithmetic import binary
from mosaic_gpu.lowering.jaxpr.casts import bitcast, fill
from mosaic_gpu.lowering.jaxpr.dtypes import element_type
from mosaic_gpu.lowering.jaxpr.kinds import is_bool, is_float, width

Combine = Callable[[Sequence[ir.Value], Sequence[ir.Value]], Sequence[ir.Value]]


def identity(name: str, dtype: Any) -> int | float:
    """What leaves the other side of the operation `name` as it is."""
    if name in ("max", "min"):
        return _extreme(name, dtype)
    return {"add": 0, "mul": 1, "or": 0, "xor": 0, "and": -1}[name]


def _extreme(name: str, dtype: Any) -> int | float:
    if is_bool(dtype):
        return int(name == "min")
    if is_float(dtype):
        return -np.inf if name == "max" else np.inf
    info = jnp.iinfo(dtype)
    return int(info.min if name == "max" else info.max)


def fold(name: str, value: ir.Value, dtype: Any, axes: Sequence[int]) -> ir.Value:
    """`value` folded along `axes` with a named operation of `arithmetic.binary`."""
    element = element_type(dtype)
    start = fill(identity(name, dtype), element, dtype)
    return reduce([value], [start], axes, lambda left, right: [binary(name, left[0], right[0], dtype)])[0]


def running(name: str, value: ir.Value, dtype: Any, axis: int, reverse: bool) -> ir.Value:
    """The inclusive running fold of `value` along `axis` with a named operation."""
    element = element_type(dtype)
    start = fill(identity(name, dtype), element, dtype)
    return scan([value], [start], axis, reverse, lambda left, right: [binary(name, left[0], right[0], dtype)])[0]


def reduce(
    values: Sequence[ir.Value], identities: Sequence[ir.Value], axes: Sequence[int], combine: Combine
) -> list[ir.Value]:
    """Tiles of one type folded along `axes` by `combine(lefts, rights)`, which emits scalar code."""
    if not axes:
        return list(values)
    shape = shape_of(values[0].type)
    kept = tuple(n for d, n in enumerate(shape) if d not in axes)
    types = [tile_type(kept, element_of(v.type)) for v in values]
    if 0 in shape:
        return [emit.broadcast(i, kept, ()) for i in identities]
    op = ReduceOp(types, list(values), list(identities), emit.int_array(axes))
    _fill_body(op, values, combine)
    return list(op.outputs)


def scan(
    values: Sequence[ir.Value], identities: Sequence[ir.Value], axis: int, reverse: bool, combine: Combine
) -> list[ir.Value]:
    """The running folds of tiles of one type along `axis`, from the high end where `reverse`."""
    if 0 in shape_of(values[0].type):
        return list(values)
    types = [v.type for v in values]
    attrs = emit.int_attr(axis), emit.int_attr(int(reverse))
    op = ScanOp(types, list(values), list(identities), *attrs)
    _fill_body(op, values, combine)
    return list(op.outputs)


def _fill_body(op: Any, values: Sequence[ir.Value], combine: Combine) -> None:
    elements = [element_of(v.type) for v in values]
    block = op.body.blocks.append(*elements, *elements)
    count = len(elements)
    with ir.InsertionPoint(block):
        YieldOp(list(combine(list(block.arguments[:count]), list(block.arguments[count:]))))
    if any(len(inner.operation.regions) for inner in block.operations):
        raise UnsupportedError(
            "the function of a reduction has a loop or a branch, which is not supported there",
            hint="use jnp.where in place of lax.cond, or write the reduction as a loop over the array",
        )


def carry(value: ir.Value, dtype: Any, bits: int) -> ir.Value:
    """The bits of `value` in an integer of `bits` bits, so that tiles of several dtypes have one type."""
    if not is_bool(dtype) and width(dtype) >= 8:
        value = bitcast(value, np.dtype(f"int{width(dtype)}"))
    own = int(element_of(value.type).width)
    type_ = tile_type(shape_of(value.type), ir.IntegerType.get_signless(bits))
    return value if own == bits else arith.ExtUIOp(type_, value).result


def uncarry(value: ir.Value, dtype: Any) -> ir.Value:
    """What `carry` was given."""
    own = width(dtype)
    if own != int(element_of(value.type).width):
        type_ = tile_type(shape_of(value.type), ir.IntegerType.get_signless(own))
        value = arith.TruncIOp(type_, value).result
    return value if is_bool(dtype) or own < 8 else bitcast(value, dtype)
