"""Everything private to JAX that this package uses, in one place.

Supported: jax 0.11.2 and 0.12.x.  Nothing here imports the MLIR bindings.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jax._src import callback as callback_lib
from jax._src import core, effects, ffi, source_info_util, traceback_util
from jax._src.export import _export
from jax._src.interpreters import mlir
from jax._src.lib.mlir.dialects import hlo
from jax._src.pallas import core as pallas_core
from jax._src.pallas import pallas_call

CompilerParamsBase = pallas_core.CompilerParams
pallas_call_p = pallas_call.pallas_call_p


def user_frame(source_info: Any) -> Any:
    """The innermost frame of user code (file_name, start_line, start_column, function_name), or None."""
    return source_info_util.user_frame(source_info.traceback)


def hide_from_tracebacks(folder: str) -> None:
    """Makes JAX take the files under `folder` for its own: no user frame is in them."""
    traceback_util.register_exclusion(folder)
    source_info_util.register_exclusion(folder)


def replace_pallas_call_lowering(rule: Callable[..., Any]) -> None:
    """Makes `rule(original, ctx, *operands, **params)` lower `pallas_call` on every platform.

    `original` is JAX's own rule, to hand on what is not for us.
    """
    original = pallas_call._pallas_call_lowering
    mlir.register_lowering(pallas_call_p, functools.partial(rule, original))


def allow_in_exports(custom_call_target: str) -> None:
    """Lets `jax.export` serialise calls of `custom_call_target` with no flag of the user's."""
    _export._CUSTOM_CALL_TARGETS_GUARANTEED_STABLE.add(custom_call_target)


def convert_values(values: Sequence[Any], avals: Sequence[Any]) -> list[Any]:
    """Emits StableHLO conversions of `values` to the types of `avals`, where they differ."""
    types = [mlir.ir.RankedTensorType.get(a.shape, mlir.dtype_to_ir_type(a.dtype)) for a in avals]
    return [v if v.type == t else hlo.convert(t, v) for v, t in zip(values, types, strict=True)]


def emit_host_call(
    ctx: Any, callback: Callable[..., Any], operands: Sequence[Any], side_effect: bool
) -> list[Any]:
    """Emits a call of `callback(*numpy arrays) -> tuple of numpy arrays` on the CPU platform.

    Like `jax.pure_callback`, but the arrays never become JAX arrays on the way: a callback that waits for
    one can wait for ever for the thread it stands on, and the dtypes must not depend on that thread's x64 mode.
    """
    sharding = callback_lib._callback_op_sharding(ctx.module_context.axis_context, None, ctx.avals_out)
    ctx.module_context.add_host_callback(callback)
    index = np.uint64(len(ctx.module_context.host_callbacks) - 1)
    call = ffi.build_ffi_lowering_function("xla_ffi_python_cpu_callback", has_side_effect=side_effect)
    op = call(ctx, *operands, index=index)
    if sharding is not None:
        mlir.set_sharding(ctx.module_context, op, sharding)
    return list(op.results)


def emit_custom_call(
    ctx: Any,
    target: str,
    operands: Sequence[Any],
    attributes: Mapping[str, str | bytes | int | tuple[int, ...]],
    aliases: Mapping[int, int],
    side_effect: bool,
) -> list[Any]:
    """Emits a call of the typed FFI (API version 4) to `target`, all arrays row-major.

    `attributes`: what the handler gets; `aliases`: operand -> result that is the same memory.
    """
    call = ffi.build_ffi_lowering_function(
        target,
        backend_config={name: _attribute(value) for name, value in attributes.items()},
        operand_output_aliases=dict(aliases),
        has_side_effect=side_effect,
    )
    return list(call(ctx, *operands).results)


def _attribute(value: str | bytes | int | tuple[int, ...]) -> Any:
    if isinstance(value, int):
        return mlir.i64_attr(value)
    if isinstance(value, tuple):
        return mlir.ir.DenseI64ArrayAttr.get(value)
    return mlir.ir.StringAttr.get(value)


def lower_per_platform(ctx: Any, rules: Mapping[str, Callable[..., Any]], operands: Sequence[Any]) -> Any:
    """Lowers by the rule of each platform that the module is for; other platforms are JAX's error."""
    return mlir.lower_per_platform(ctx, "pallas_call", dict(rules), None, effects.no_effects, *operands)


def jaxpr_params(params: Mapping[str, Any]) -> list[Any]:
    """The jaxprs among an equation's parameters, also those in tuples (the branches of a `cond`)."""
    return list(core.jaxprs_in_params(params))
