"""Rules of the primitives that read and write references."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.types import shape_of
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.context import RuleContext
from mosaic_gpu.lowering.jaxpr.indexing import Operand
from mosaic_gpu.lowering.jaxpr.refs import Access, resolve
from mosaic_gpu.lowering.jaxpr.registry import lowers
from mosaic_gpu.lowering.jaxpr.scratch_refs import alloc_scratch
from mosaic_gpu.lowering.jaxpr.updates import MadeAval, update_one_by_one


def _transforms(tree: Any, values: Sequence[ir.Value], avals: Sequence[Any]) -> tuple[Any, ...]:
    """The transforms of an equation, with `Operand`s as the leaves."""
    operands = [Operand(v, a) for v, a in zip(values, avals, strict=True)]
    return tuple(jax.tree_util.tree_unflatten(tree, operands))


@lowers("get")
def lower_get(ctx: RuleContext, ref: ir.Value, *indices: ir.Value, tree: Any) -> ir.Value:
    """`ref[indices]`."""
    return resolve(ref, _transforms(tree, indices, ctx.avals_in[1:]), writes=False).read()


@lowers("load")
def lower_load(ctx: RuleContext, ref: ir.Value, *indices: ir.Value, tree: Any, optimized: bool) -> ir.Value:
    """`plgpu.load` of the Mosaic GPU dialect of Pallas: `optimized` asks for speed, not for another result."""
    return lower_get(ctx, ref, *indices, tree=tree)


@lowers("swap")
def lower_swap(ctx: RuleContext, ref: ir.Value, value: ir.Value, *indices: ir.Value, tree: Any) -> ir.Value:
    """`ref[indices] = value`, giving what was there."""
    access = resolve(ref, _transforms(tree, indices, ctx.avals_in[2:]), writes=True)
    return _swap(ctx, access, value, None)


def _swap(ctx: RuleContext, access: Access, value: ir.Value, mask: ir.Value | None) -> ir.Value:
    """Writes, after it has read what somebody uses; a result that nobody reads is the value itself."""
    old = access.read(mask, value if mask is not None else None) if ctx.used[0] else value
    access.write(value, mask)
    return old


@lowers("addupdate")
def lower_addupdate(ctx: RuleContext, ref: ir.Value, value: ir.Value, *indices: ir.Value, tree: Any) -> list[ir.Value]:
    """`ref[indices] += value`; an index array that names a place twice adds twice."""
    access = resolve(ref, _transforms(tree, indices, ctx.avals_in[2:]), writes=True)
    if access.coordinates is not None:
        update_one_by_one(ctx, access, value, "add")
        return []
    aval = ctx.avals_in[1]
    (total,) = ctx.apply("add", (aval, aval), (aval,), access.read(), value)
    access.write(total)
    return []


@lowers("masked_load")
def lower_masked_load(ctx: RuleContext, *values: ir.Value, args_tree: Any, **hints: Any) -> ir.Value:
    """`plgpu.load(ref, idx, mask=, other=)`; hints on caching change no result."""
    ref, transforms, mask, other = _masked_arguments(ctx, values, args_tree)
    out = ctx.avals_out[0]
    access = resolve(ref.value, transforms, writes=False, checked=True)
    return access.read(_mask_of(ctx, mask, out.shape), _other_of(ctx, other, out))


@lowers("masked_swap")
def lower_masked_swap(ctx: RuleContext, *values: ir.Value, args_tree: Any, **hints: Any) -> ir.Value:
    """`plgpu.store(ref, idx, value, mask=)` and `pl.swap`: where the mask is false, nothing is touched."""
    ref, transforms, value, mask = _masked_arguments(ctx, values, args_tree)
    access = resolve(ref.value, transforms, writes=True, checked=True)
    return _swap(ctx, access, value.value, _mask_of(ctx, mask, ctx.avals_out[0].shape))


def _masked_arguments(ctx: RuleContext, values: Sequence[ir.Value], tree: Any) -> Any:
    operands = [Operand(v, a) for v, a in zip(values, ctx.avals_in, strict=True)]
    return jax.tree_util.tree_unflatten(tree, operands)


def _mask_of(ctx: RuleContext, mask: Operand | None, shape: tuple[int, ...]) -> ir.Value | None:
    if mask is None:
        return None
    if mask.aval.dtype != np.bool_:
        raise ctx.refuse(f"a mask of {mask.aval.dtype} is not supported", hint="use a mask of booleans")
    return _stretch(mask.value, shape)


def _other_of(ctx: RuleContext, other: Any, out: Any) -> ir.Value | None:
    if other is None:
        return None
    value, aval = other.value, other.aval
    if aval.dtype != out.dtype:
        to = MadeAval(tuple(aval.shape), out.dtype)
        params = {"new_dtype": out.dtype, "weak_type": False, "sharding": None}
        (value,) = ctx.apply("convert_element_type", (aval,), (to,), value, **params)
    return _stretch(value, out.shape)


def _stretch(value: ir.Value, shape: tuple[int, ...]) -> ir.Value:
    """`value` broadcast to `shape` as NumPy does; scalars stay scalars."""
    source = shape_of(value.type)
    if not source or source == tuple(shape):
        return value
    return emit.broadcast(value, shape, range(len(shape) - len(source), len(shape)))


@lowers("broadcast_to")
def lower_broadcast_to(ctx: RuleContext, value: ir.Value, *, shape: tuple[int, ...], **params: Any) -> ir.Value:
    """NumPy's broadcast, which Pallas uses on index arrays."""
    source = shape_of(value.type)
    return emit.broadcast(value, shape, range(len(shape) - len(source), len(shape)))


@lowers("new_ref")
def lower_new_ref(ctx: RuleContext, value: ir.Value, **params: Any) -> ir.Value:
    """`jax.new_ref(value)`: memory of the block that starts as `value`."""
    ref = alloc_scratch(ctx.avals_out[0])
    emit.store(value, ref)
    return ref


@lowers("empty_ref")
def lower_empty_ref(ctx: RuleContext, **params: Any) -> ir.Value:
    """Memory of the block that starts with anything."""
    return alloc_scratch(ctx.avals_out[0])


@lowers("freeze")
def lower_freeze(ctx: RuleContext, ref: ir.Value) -> ir.Value:
    """The last value of a reference."""
    return emit.load(ref)


@lowers("free_ref")
def lower_free_ref(ctx: RuleContext, ref: ir.Value) -> list[ir.Value]:
    """The end of a reference; nothing to do."""
    return []
