"""Rules of Pallas' atomic operations, where no other block can interfere.

A block works as one: its threads go through its statements together.  So an atomic operation needs
hardware only against other blocks, and there are none where the grid's parallel dimensions were inferred:
they have different output blocks.  Where the user has said "parallel", atomics are refused.
"""

from __future__ import annotations

from typing import Any

import jax

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.context import RuleContext
from mosaic_gpu.lowering.jaxpr.indexing import Operand
from mosaic_gpu.lowering.jaxpr.refs import resolve
from mosaic_gpu.lowering.jaxpr.registry import lowers
from mosaic_gpu.lowering.jaxpr.updates import MadeAval, update_one_by_one

_PRIMITIVES = {"add": "add", "max": "max", "min": "min", "and": "and", "or": "or", "xor": "xor", "xchg": None}


def _check_exclusive(ctx: RuleContext) -> None:
    if not ctx.kernel.exclusive:
        raise ctx.refuse(
            "an atomic operation in a grid with parallel dimension_semantics is not supported",
            hint="leave dimension_semantics out: steps that share an output block then run one after another",
        )


@lowers("atomic_rmw")
def lower_atomic_rmw(ctx: RuleContext, *values: ir.Value, args_tree: Any, atomic_type: Any) -> ir.Value:
    """`plgpu.atomic_add` and its kin: `ref[indices] = op(ref[indices], value)`, giving what was there."""
    _check_exclusive(ctx)
    operands = [Operand(v, a) for v, a in zip(values, ctx.avals_in, strict=True)]
    ref, transforms, value, mask = jax.tree_util.tree_unflatten(args_tree, operands)
    primitive = _PRIMITIVES[str(getattr(atomic_type, "value", atomic_type))]
    access = resolve(ref.value, transforms, writes=True)
    ctx = ctx.with_operands((ref.aval, value.aval))
    where = None if mask is None else mask.value
    if access.coordinates is not None:
        old = update_one_by_one(ctx, access, value.value, primitive, where, keeps_old=True)
        assert old is not None
        return old
    old, new = access.read(), value.value
    if primitive is not None:
        aval = MadeAval(tuple(value.aval.shape), value.aval.dtype)
        (new,) = ctx.apply(primitive, (aval, aval), (aval,), old, new)
    access.write(new, where)
    return old


@lowers("atomic_cas")
def lower_atomic_cas(ctx: RuleContext, ref: ir.Value, expected: ir.Value, value: ir.Value) -> ir.Value:
    """`plgpu.atomic_cas(ref, expected, value)`: writes `value` where `ref` holds `expected`; gives what was there."""
    _check_exclusive(ctx)
    old = emit.load(ref)
    aval, flag = MadeAval((), ctx.avals_in[1].dtype), MadeAval((), "bool")
    (equal,) = ctx.apply("eq", (aval, aval), (flag,), old, expected)
    emit.store(value, ref, equal)
    return old
