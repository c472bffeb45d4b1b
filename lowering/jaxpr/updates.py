"""Reading, changing and writing back elements of a reference, where two of them may be one place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.types import element_of, shape_of
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.context import RuleContext
from mosaic_gpu.lowering.jaxpr.refs import Access
from mosaic_gpu.lowering.jaxpr.scratch import repeat, spill


@dataclass(frozen=True)
class MadeAval:
    """Shape and dtype, where a rule makes an abstract value up."""

    shape: tuple[int, ...]
    dtype: Any


def update_one_by_one(
    ctx: RuleContext,
    access: Access,
    value: ir.Value,
    primitive: str | None,
    mask: ir.Value | None = None,
    keeps_old: bool = False,
) -> ir.Value | None:
    """`ref[i] = primitive(ref[i], value[i])` for one element after another, in their row-major order.

    Arguments:
      access: goes through coordinates.
      value: of the access' shape; the second operand of the equation.
      primitive: a jax primitive of two operands; None takes the value itself.
      mask: of the value's shape, or a scalar; where it is false nothing is written.
      keeps_old: whether to give what each element found.
    """
    assert access.coordinates is not None
    indices, where = access.coordinates.indices, access.write_mask(mask)
    shape, scalar = shape_of(indices[0].type), MadeAval((), ctx.avals_in[1].dtype)
    tiles = [access.to_memory(value), *indices, *([] if where is None else [where])]
    count, rank = math.prod(shape), len(indices)
    memories = [spill(emit.reshape(tile, (count,))) for tile in tiles]
    found = emit.alloc((count,), element_of(access.view.type)) if keeps_old else None

    def step(place: ir.Value, _: list[ir.Value]) -> list[ir.Value]:
        new, *rest = [emit.load(_element(memory, place)) for memory in memories]
        view = emit.subview(access.view, rest[:rank], [1] * rank, dropped=range(rank))
        old = emit.load(view)
        if primitive is not None:
            (new,) = ctx.apply(primitive, (scalar, scalar), (scalar,), old, new)
        emit.store(new, view, rest[rank] if len(rest) > rank else None)
        if found is not None:
            emit.store(old, _element(found, place))
        return []

    repeat(count, step, [])
    return None if found is None else access.from_memory(emit.reshape(emit.load(found), shape))


def _element(memory: ir.Value, place: ir.Value) -> ir.Value:
    return emit.subview(memory, [place], [1], dropped=[0])
