"""Everything private to JAX that this package uses, in one place.

Supported: jax 0.11.2 and 0.12.x.  Nothing here imports the MLIR bindings.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax._src import callback as callback_lib
from jax._src import core, dtypes, effects, ffi, source_info_util, state, traceback_util
from jax._src import indexing as jax_indexing
from jax._src.export import _export
from jax._src.interpreters import mlir
from jax._src.lax import special
from jax._src.pallas import core as pallas_core
from jax._src.pallas import pallas_call
from jax._src.random import core as random_core
from jax._src.random import prng, threefry2x32
from jax._src.state import indexing as state_indexing
from jax._src.state import types as state_types
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

CompilerParamsBase = pallas_core.CompilerParams
pallas_call_p = pallas_call.pallas_call_p
ShapedArray = core.ShapedArray
GridSpec = pallas_core.GridSpec
no_block_spec = pallas_core.no_block_spec


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
    ours = functools.partial(rule, pallas_call._pallas_call_lowering)
    mlir.register_lowering(pallas_call_p, ours)
    # Where kernels over a mesh (`plgpu.kernel`) end up.
    pallas_call._pallas_call_lowering = ours


def register_backend(params_class: type[Any], rule: Callable[..., Any]) -> None:
    """Tells Pallas that `rule(ctx, *operands, **params)` lowers kernels with a `params_class` for GPUs."""
    pallas_core.register_lowering_rule(params_class, rule, "gpu")


def has_effects(jaxpr: Any) -> bool:
    """Whether a kernel does more than read and write its references, for instance print."""
    return any(not isinstance(effect, state.RefEffect) for effect in jaxpr.effects)


def written_arguments(jaxpr: Any) -> dict[int, Any]:
    """Positions of the references among the arguments that `jaxpr` writes to, with the first equation that does."""
    writes = (state.WriteEffect, state.AccumEffect)
    positions = {var: i for i, var in enumerate(jaxpr.invars)}
    written: dict[int, Any] = {}
    for equation in jaxpr.eqns:
        for effect in equation.effects:
            if isinstance(effect, writes):
                var = equation.invars[effect.input] if isinstance(effect.input, int) else effect.input
                if var in positions:
                    written.setdefault(positions[var], equation)
    return written


def open_jaxpr(jaxpr: Any) -> Any:
    """The equations of what `jax.make_jaxpr` gives; in some versions it is a pair with constants."""
    return getattr(jaxpr, "jaxpr", jaxpr)


def is_traced(value: Any) -> bool:
    """Whether `value` is a JAX array or a tracer of one."""
    return isinstance(value, (core.Tracer, jax.Array))


def is_dynamic_bound(bound: Any) -> bool:
    """Whether a bound of a GridMapping's grid is known at run time only."""
    return bool(pallas_core.is_dynamic_dim(bound))


def symbolic_sizes(ctx: Any, sizes: Sequence[Any]) -> list[Any]:
    """Emits the values, int32 of rank 0, of expressions of dimension variables."""
    return list(mlir.eval_dynamic_shape_as_vals(ctx, tuple(sizes)))


def whole_reference(aval: Any) -> Any:
    """The abstract value of a reference to a whole array."""
    return state_types.AbstractRef(core.ShapedArray(aval.shape, aval.dtype), pallas_core.MemorySpace.ANY)


def bound_sizes(jaxpr: Any, equation: Any, count: int) -> tuple[str | None, ...]:
    """For each of the first `count` operands of an equation the expression of dimension variables that it is, as text.

    None for one that is something else.
    """
    sizes = {e.outvars[0]: str(e.params["dim"]) for e in jaxpr.eqns if e.primitive.name == "dim_as_value"}
    return tuple(None if isinstance(v, core.Literal) else sizes.get(v) for v in equation.invars[:count])


def is_symbolic(size: Any) -> bool:
    """Whether a size is an expression of dimension variables (`jax.export.symbolic_shape`)."""
    return bool(core.is_symbolic_dim(size))


def is_array(aval: Any) -> bool:
    """Whether `aval` is an array's abstract value (not a reference's or a token's)."""
    return isinstance(aval, core.ShapedArray)


def is_extended_dtype(aval: Any) -> bool:
    """Whether the elements are no numbers: random keys, barriers, semaphores."""
    return bool(dtypes.issubdtype(aval.dtype, dtypes.extended))


def is_accumulator(aval: Any) -> bool:
    """Whether a reference is a `plgpu.ACC`, by name: its module is slow to import."""
    return type(aval).__name__ == "WGMMAAbstractAccumulatorRef"


def block_kind(dim: Any) -> str:
    """What an entry of a BlockMapping's block shape is: "Blocked", "Element", "Squeezed", ..."""
    return type(dim).__name__


def allow_in_exports(custom_call_target: str) -> None:
    """Lets `jax.export` serialise calls of `custom_call_target` with no flag of the user's."""
    _export._CUSTOM_CALL_TARGETS_GUARANTEED_STABLE.add(custom_call_target)


def convert_values(values: Sequence[Any], avals: Sequence[Any]) -> list[Any]:
    """Emits StableHLO conversions of `values` to the types of `avals`, where they differ."""
    elements = [mlir.dtype_to_ir_type(a.dtype) for a in avals]
    return [
        v if v.type.element_type == e else stablehlo.convert(ir.RankedTensorType.get(v.type.shape, e), v)
        for v, e in zip(values, elements, strict=True)
    ]


def emit_host_call(ctx: Any, callback: Callable[..., Any], operands: Sequence[Any], side_effect: bool) -> list[Any]:
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
        return ir.DenseI64ArrayAttr.get(value)
    return ir.StringAttr.get(value)


def backend_platform(ctx: Any) -> str:
    """The platform whose client will run what is being lowered; "" where it is lowered for no client."""
    backend = ctx.module_context.backend
    return "" if backend is None else str(backend.platform)


def named_location(ctx: Any, name: str) -> Any:
    """The location of the equation that is lowered, which HLO and profiles show as its `op_name`, with `name` in it.

    jit(step)/layer7/pallas_call -> jit(step)/layer7/softmax/pallas_call
    """
    return mlir.source_info_to_location(ctx.module_context, ctx.primitive, ctx.name_stack.extend(name), ctx.traceback)


def lower_per_platform(ctx: Any, rules: Mapping[str, Callable[..., Any]], operands: Sequence[Any]) -> Any:
    """Lowers by the rule of each platform that the module is for; other platforms are JAX's error."""
    return mlir.lower_per_platform(ctx, "pallas_call", dict(rules), None, effects.no_effects, *operands)


def lower_function(function: Callable[..., Any], ctx: Any, operands: Sequence[Any]) -> list[Any]:
    """Lowers `function`, traced by JAX, in place of the primitive: from arrays to a list of arrays."""
    return list(mlir.lower_fun(function, multiple_results=True)(ctx, *operands))


def jaxpr_params(params: Mapping[str, Any]) -> list[Any]:
    """The jaxprs among an equation's parameters, also those in tuples (the branches of a `cond`)."""
    values = [v for value in params.values() for v in (value if isinstance(value, tuple) else (value,))]
    return [open_jaxpr(v) for v in values if isinstance(open_jaxpr(v), core.Jaxpr)]


# Of jaxprs and of Pallas' kernels, for the lowering.

Slice = jax_indexing.Slice
NDIndexer = state_indexing.NDIndexer
AbstractRef = state_types.AbstractRef
ReshapeTransform = state_types.ReshapeTransform
TransposeTransform = state_types.TransposeTransform
BitcastTransform = state_types.BitcastTransform
Blocked = pallas_core.Blocked
Element = pallas_core.Element
Squeezed = pallas_core.Squeezed


def is_literal(atom: Any) -> bool:
    """Whether an operand of an equation is a constant (`atom.val`)."""
    return isinstance(atom, core.Literal)


def physical_shape_dtype(aval: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and dtype of the array that holds a value; for random keys that of their words."""
    physical = core.physical_aval(aval)
    return tuple(physical.shape), np.dtype(physical.dtype)


def written_refs(jaxpr: Any) -> set[Any]:
    """The arguments of a kernel that it writes to, loops and branches included."""
    writes = (state_types.WriteEffect, state_types.AccumEffect)
    return {effect.input for effect in jaxpr.effects if isinstance(effect, writes)}


def function_source(jaxpr: Any) -> tuple[str, int] | None:
    """File and line at which the function of a jaxpr is defined, where JAX knows them."""
    file, line = jaxpr.debug_info.func_filename, jaxpr.debug_info.func_lineno
    return None if file is None or line is None else (file, line)


def scan_counts(params: Mapping[str, Any]) -> tuple[int, int]:
    """How many of a `scan`'s operands are constants, and how many are carried; the others are scanned over."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()
    return len(consts), len(carry)


def is_key(aval: Any) -> bool:
    """Whether a value is an array of random keys, whose words are a dimension that its shape does not have."""
    return isinstance(aval, core.ShapedArray) and len(core.physical_aval(aval).shape) > len(aval.shape)


def eval_jaxpr(jaxpr: Any, arrays: Sequence[Any]) -> list[Any]:
    """The results of a closed jaxpr of `arrays`; traces it where they are traced."""
    return list(core.eval_jaxpr(open_jaxpr(jaxpr), getattr(jaxpr, "consts", ()), *arrays))


def threefry(key_high: Any, key_low: Any, high: Any, low: Any) -> tuple[Any, Any]:
    """JAX's Threefry-2x32 hash, written in uint32 arithmetic."""
    return tuple(threefry2x32._threefry2x32_lowering(key_high, key_low, high, low, use_rolled_loops=False))


def random_seed(seeds: Any, impl: Any) -> Any:
    """The words of the keys that `jax.random.key` makes of `seeds`."""
    return prng.random_seed_impl_base(seeds, impl=impl)


def random_split(keys_aval: Any, words: Any, shape: Sequence[int]) -> Any:
    """The words of the keys that `jax.random.split` makes of keys with these `words`."""
    return prng.random_split_impl_base(keys_aval.dtype._impl, words, len(keys_aval.shape), shape=shape)


def random_fold_in(keys_aval: Any, words: Any, data: Any) -> Any:
    """The words of the keys that `jax.random.fold_in` makes."""
    return prng.random_fold_in_impl_base(keys_aval.dtype._impl, words, data, keys_aval.shape)


def random_bits(keys_aval: Any, words: Any, bit_width: int, shape: Sequence[int]) -> Any:
    """Random unsigned integers of `bit_width` bits, an array of `shape` for each key."""
    impl = keys_aval.dtype._impl
    return prng.random_bits_impl_base(impl, words, len(keys_aval.shape), bit_width=bit_width, shape=shape)


def random_gamma(keys: Any, a: Any, log_space: bool) -> Any:
    """Gamma variates (or their logarithms) of the shape of `a`."""
    return random_core._gamma_impl(keys, a, log_space=log_space, use_vmap=True)


def special_function(name: str) -> Callable[..., Any]:
    """JAX's own implementation of one of its special functions, of arrays of one shape in f32 or f64."""
    implementation = getattr(special, f"{name}_impl")
    return lambda *arrays: implementation(*arrays, dtype=arrays[0].dtype)


def is_jaxpr(value: Any) -> bool:
    """Whether `value` is a jaxpr, open or closed."""
    return isinstance(open_jaxpr(value), core.Jaxpr)


def wrap_words(words: Any, impl: Any) -> Any:
    """Random keys of their words, in the equations that JAX traces."""
    return prng.random_wrap(words, impl=impl)


def keep_tokens(ctx: Any) -> None:
    """Says that what is lowered does not wait for the program's ordered effects, nor they for it."""
    if ctx.tokens_in is not None and ctx.tokens_out is None and ctx.tokens_in.effects():
        ctx.set_tokens_out(ctx.tokens_in)


def is_tracer(value: Any) -> bool:
    """Whether `value` stands for an array, or a reference, in something that JAX traces."""
    return isinstance(value, core.Tracer)
