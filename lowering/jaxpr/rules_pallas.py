"""Rules of Pallas' own primitives, of printing, and of hints."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.ops_kernel import BarrierOp, DebugPrintOp
from mosaic_gpu.dialect.types import is_tile
from mosaic_gpu.errors import KernelError, UnsupportedError
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.context import RuleContext, constant
from mosaic_gpu.lowering.jaxpr.registry import lowers
from mosaic_gpu.lowering.jaxpr.scratch_refs import alloc_scratch
from mosaic_gpu.lowering.jaxpr.tiles import at_least_one

Values = list[ir.Value]


@lowers("program_id")
def lower_program_id(ctx: RuleContext, *, axis: int) -> ir.Value:
    """The block's coordinate along a dimension of the grid as the user wrote it."""
    if not 0 <= axis < len(ctx.kernel.program_ids):
        raise ctx.refuse(f"program_id({axis}) is outside of a grid of {len(ctx.kernel.program_ids)} dimensions")
    return ctx.kernel.program_ids[axis]


@lowers("num_programs")
def lower_num_programs(ctx: RuleContext, *, axis: int) -> ir.Value:
    """The extent of a dimension of the grid."""
    extent = ctx.kernel.grid[axis]
    return emit.int_constant(extent) if isinstance(extent, int) else at_least_one(extent)


@lowers("multiple_of", "max_contiguous", "name")
def lower_multiple_of(ctx: RuleContext, value: ir.Value, **params: Any) -> ir.Value:
    """A promise about a value, or a name for it: the value itself."""
    return value


@lowers("reciprocal")
def lower_reciprocal(ctx: RuleContext, value: ir.Value, **params: Any) -> ir.Value:
    """`pl.reciprocal`: 1 / x in the value's dtype; it may be approximate where the user says so, but need not."""
    aval = ctx.avals_in[0]
    (result,) = ctx.apply("div", (aval, aval), ctx.avals_out, constant(1, aval), value)
    return result


@lowers("debug_barrier_p")
def lower_debug_barrier(ctx: RuleContext) -> Values:
    """`plgpu.debug_barrier()`: all threads of the block meet."""
    BarrierOp()
    return []


@lowers("run_scoped")
def lower_run_scoped(
    ctx: RuleContext,
    *consts: ir.Value,
    jaxpr: Any,
    collective_axes: Sequence[Any] = (),
    ref_transforms: Sequence[Any] = (),
) -> Values:
    """`pl.run_scoped(f, *memory)`: f's body, with memory of the block for its arguments."""
    if collective_axes:
        raise ctx.refuse("run_scoped with collective_axes is not supported")
    if any(ref_transforms):
        raise ctx.refuse("run_scoped memory with transforms (tiling, swizzling, ..) is not supported")
    return ctx.lower_jaxpr(jaxpr, [alloc_scratch(v.aval) for v in jaxpr.invars], consts)


@lowers("debug_print")
def lower_debug_print(
    ctx: RuleContext,
    *values: ir.Value,
    fmt: str,
    in_tree: Any,
    static_args: Any,
    has_placeholders: bool,
    **params: Any,
) -> Values:
    """`pl.debug_print` and `jax.debug.print`: once a block; any number of scalars, or one tile."""
    arguments = _print_arguments(in_tree, static_args, list(zip(values, ctx.avals_in, strict=True)))
    text, printed = _print_format(ctx, fmt, has_placeholders, *arguments)
    if len(printed) > 1 and any(is_tile(v.type) for v, _ in printed):
        raise ctx.refuse(
            "debug_print of several values, one of them an array, is not supported", hint="print one array at a time"
        )
    kinds = [_kind(ctx, aval.dtype) for _, aval in printed]
    words = [v if is_tile(v.type) else _as_word(v, kind) for (v, _), kind in zip(printed, kinds, strict=True)]
    DebugPrintOp(words, ir.StringAttr.get(text), ir.ArrayAttr.get([ir.StringAttr.get(k) for k in kinds]))
    return []


def _print_arguments(tree: Any, static_args: Any, dynamic: list[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """Positional and keyword arguments of the print; what is computed is a pair (value, aval)."""
    static = dict(static_args or ())
    count = len(dynamic) + len(static)
    computed = iter(dynamic)
    leaves = [static[i] if i in static else next(computed) for i in range(count)]
    args, kwargs = jax.tree_util.tree_unflatten(tree, leaves)
    return args, kwargs


def _print_format(
    ctx: RuleContext, fmt: str, has_placeholders: bool, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[str, list[Any]]:
    """The text with `{}` for each printed value, and the values in that order."""
    pieces = _parse(fmt)
    if not has_placeholders and all(field is None for _, field, _, _ in pieces):
        # JAX takes such a text as it is, and puts the values behind it.
        pieces = _parse(" ".join([_escape(fmt), *["{}"] * len(args)]))
    text, printed, position = "", [], 0
    for literal, field, spec, conversion in pieces:
        text += _escape(literal)
        if field is None:
            continue
        if spec or conversion:
            what = f"!{conversion}" if conversion else f":{spec}"
            raise ctx.refuse(f"{{{field}{what}}} in the format of debug_print is not supported", hint="use a plain {}")
        key: Any = position if field == "" else int(field) if field.isdigit() else field
        position += field == ""
        value = _lookup(ctx, key, args, kwargs)
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], ir.Value):
            text += "{}"
            printed.append(value)
        else:
            text += _escape(str(value))
    return text, printed


def _parse(fmt: str) -> list[tuple[str, str | None, str | None, str | None]]:
    """The pieces of a format: literal, name of the field, format specification, conversion."""
    try:
        return list(string.Formatter().parse(fmt))
    except ValueError as error:
        raise KernelError(f"the format of debug_print is wrong: {error}", got=fmt) from error


def _escape(text: str) -> str:
    """`text` as a format that prints it: braces doubled."""
    return text.replace("{", "{{").replace("}", "}}")


def _lookup(ctx: RuleContext, key: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    try:
        return args[key] if isinstance(key, int) else kwargs[key]
    except (IndexError, KeyError) as error:
        raise UnsupportedError(
            f"debug_print has no argument for {{{key}}}", hint="give one argument for each {} of the format"
        ) from error


def _kind(ctx: RuleContext, dtype: Any) -> str:
    if dtype == np.bool_:
        return "bool"
    if jnp.issubdtype(dtype, jnp.floating):
        return "float"
    if jnp.issubdtype(dtype, jnp.unsignedinteger):
        return "uint"
    if jnp.issubdtype(dtype, jnp.signedinteger):
        return "int"
    raise ctx.refuse(f"debug_print of {dtype} is not supported")


def _as_word(value: ir.Value, kind: str) -> ir.Value:
    """A scalar in 64 bits: an integer extended, a float as the bits of an f64."""
    i64 = ir.IntegerType.get_signless(64)
    if kind == "float":
        f64 = ir.F64Type.get()
        return arith.bitcast(i64, value if value.type == f64 else arith.extf(f64, value))
    if value.type == i64:
        return value
    return arith.extsi(i64, value) if kind == "int" else arith.extui(i64, value)
