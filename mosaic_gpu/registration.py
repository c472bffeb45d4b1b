"""Registration with JAX: how a `pallas_call` with our parameters becomes part of a JAX program.

On platform "cuda" a kernel is a custom call that carries its cubin; on "cpu" it is a call back to the host,
which runs the kernel's PTX on the simulator.  Both compile while JAX lowers, so errors come before anything
runs.  A kernel with `interpret=InterpretParams(...)` is a call back to the interpreter, whoever's parameters it has.
Kernels of others, and kernels under JAX's own `interpret=`, go to JAX's rule unchanged.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from mosaic_gpu.errors import UnsupportedError, ends_at_kernel
from mosaic_gpu.launcher import CALL_VERSION, CUSTOM_CALL_TARGET, missing_launcher, register_if_built
from mosaic_gpu.lowering.jaxpr import compat
from mosaic_gpu.lowering.jaxpr.compat import ShapedArray
from mosaic_gpu.runtime.dtypes import initial_value
from mosaic_gpu.runtime.interface import ArrayType

if TYPE_CHECKING:
    from mosaic_gpu.kernel import Compilation
    from mosaic_gpu.lowering.kernel_call import KernelCall
    from mosaic_gpu.lowering.tensor_maps import TensorMapFacts
    from mosaic_gpu.runtime.interface import Program

_SUPPORTED_PLATFORMS = ("cpu", "cuda")
_GPU_BACKENDS = ("cuda", "gpu")

# XLA's numbers of the dtypes (xla_data.proto, PrimitiveType), as its custom calls get them.
_DTYPE_NUMBERS = {
    "bool": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "uint8": 6, "uint16": 7, "uint32": 8, "uint64": 9,
    "float16": 10, "float32": 11, "float64": 12, "bfloat16": 16, "float8_e5m2": 19, "float8_e4m3fn": 20,
}  # fmt: skip
_UNKNOWN_SIZE = -1


def register(params_class: type[Any]) -> None:
    """Makes this compiler lower every `pallas_call` whose compiler parameters are a `params_class`."""
    for folder in _own_folders():
        compat.hide_from_tracebacks(folder)
    compat.register_backend(params_class, _lower_ours)
    compat.replace_pallas_call_lowering(functools.partial(_lower, params_class))
    compat.allow_in_exports(CUSTOM_CALL_TARGET)
    register_if_built()


def _own_folders() -> list[str]:
    from mosaic_gpu import dialect, lowering

    return [str(Path(path).parent) for path in (__file__, str(dialect.__file__), str(lowering.__file__))]


def _lower(params_class: type[Any], original: Callable[..., Any], ctx: Any, *operands: Any, **params: Any) -> Any:
    """The lowering rule of `pallas_call`: ours, or JAX's."""
    choices = _interpreted(params["interpret"])
    if choices is not None:
        return _lower_interpreted(ctx, *operands, **{**params, "interpret": choices})
    if params["interpret"] or not isinstance(params["compiler_params"], params_class):
        return original(ctx, *operands, **params)
    return _lower_ours(ctx, *operands, **params)


def _interpreted(interpret: Any) -> Any:
    """The `InterpretParams` that an `interpret=` stands for; None where it is not for our interpreter."""
    if not interpret or isinstance(interpret, bool):
        return None
    from mosaic_gpu.interpreter.install import ours

    return ours(interpret)


@ends_at_kernel
def _lower_interpreted(ctx: Any, *operands: Any, **params: Any) -> Any:
    from mosaic_gpu.interpreter.call import lower

    return lower(ctx, *operands, emit_in_bytes=_emit_in_bytes, **params)


@ends_at_kernel
def _lower_ours(ctx: Any, *operands: Any, **params: Any) -> Any:
    platforms = ctx.platforms or ctx.module_context.platforms
    for platform in platforms:
        if platform not in _SUPPORTED_PLATFORMS:
            raise UnsupportedError(f"kernels of mosaic_gpu do not run on platform {platform!r}", expected="cpu or cuda")
    from mosaic_gpu.kernel import kernel_call

    call = kernel_call(params, bounds=ctx.avals_in)
    rules = {
        "cpu": functools.partial(_lower_on_cpu, call=call, params=params),
        "cuda": functools.partial(_lower_on_cuda, call=call, params=params),
    }
    is_named = params.get("name") is not None  # then JAX has put the name there
    with contextlib.nullcontext() if is_named else compat.named_location(ctx, call.name):
        ctx, taken = _with_scalars(ctx, operands, call)
        return compat.lower_per_platform(ctx, rules, taken)


def _with_scalars(ctx: Any, operands: Sequence[Any], call: KernelCall) -> tuple[Any, Sequence[Any]]:
    """The operands as the kernel takes them: bounds of the grid as int32 of rank 0, then the arrays' symbolic sizes."""
    count, plain = call.num_bounds, ShapedArray((), np.dtype(np.int32))
    inner = ctx.replace(avals_in=ctx.avals_in[:count], avals_out=[plain] * count)
    scalars = compat.lower_function(plain_bounds, inner, operands[:count]) if count else []
    scalars += compat.symbolic_sizes(ctx, call.symbols) if call.symbols else []
    return ctx.replace(avals_in=[plain] * len(scalars) + list(ctx.avals_in[count:])), [*scalars, *operands[count:]]


def plain_bounds(*bounds: Any) -> list[Any]:
    """Arrays of one integer each, of any integer dtype, as int32 of rank 0; far ones saturate, as in `as_bound`."""
    most = 2**31 - 1
    limited = [jnp.minimum(b, most) if jnp.iinfo(b.dtype).max > most else b for b in bounds]
    return [jnp.maximum(b, -1).astype(jnp.int32).reshape(()) for b in limited]


def _compiled(call: KernelCall, params: dict[str, Any]) -> Compilation:
    """The kernel's code; with `debug=True` the kernel is printed on the way."""
    from mosaic_gpu.kernel import compilation_of

    if params["debug"]:
        from mosaic_gpu.lowering.pipeline import show_call

        print(f"\nThe jaxpr of kernel {call.name}:\n{call.jaxpr}\n{call.grid_mapping}")
        print(f"\nKernel {call.name} in the mgpu dialect:\n{show_call(call, 'dialect')!s}")
    return compilation_of(call)


def _lower_on_cpu(ctx: Any, *operands: Any, call: KernelCall, params: dict[str, Any]) -> list[Any]:
    from mosaic_gpu.runtime.run import run
    from mosaic_gpu.runtime.simulated import SimulatedRuntime

    program = _compiled(call, params).program
    loaded = SimulatedRuntime().load(program)

    def simulate(*arrays: Any) -> tuple[Any, ...]:
        given = zip(arrays, program.operands, strict=True)
        results, _ = run(program, loaded, [np.asarray(a).astype(t.dtype, copy=False) for a, t in given])
        wanted = zip(results, program.results, strict=True)
        return tuple(result.astype(t.memory_dtype, copy=False) for result, t in wanted)

    emit = functools.partial(compat.emit_host_call, callback=simulate, side_effect=compat.has_effects(call.jaxpr))
    return _emit_in_bytes(emit, ctx, operands)


def _lower_on_cuda(ctx: Any, *operands: Any, call: KernelCall, params: dict[str, Any]) -> list[Any]:
    compilation = _compiled(call, params)
    if not all(compilation.program.grid):
        untouched = functools.partial(_untouched_results, tuple(ctx.avals_out), dict(call.aliases))
        return compat.lower_function(untouched, ctx, operands)
    if compat.backend_platform(ctx) in _GPU_BACKENDS and not register_if_built():
        raise missing_launcher()
    program, cubin = _with_full_grid(call, compilation), compilation.cubin(call).data

    def emit(ctx: Any, operands: Sequence[Any]) -> list[Any]:
        return compat.emit_custom_call(
            ctx,
            target=CUSTOM_CALL_TARGET,
            operands=operands,
            attributes={
                **_custom_call_attributes(program, call.options.target, cubin),
                "arguments": _array_numbers([*ctx.avals_in, *ctx.avals_out]),
                "aliases": tuple(number for pair in call.aliases for number in pair),
                **_cost_estimate(params["cost_estimate"], program),
            },
            aliases=dict(call.aliases),
            side_effect=compat.has_effects(call.jaxpr),
        )

    return _emit_in_bytes(emit, ctx, operands)


def _with_full_grid(call: KernelCall, compilation: Compilation) -> Program:
    """The program; where any number of blocks does, with as many as the target holds at once."""
    from mosaic_gpu.lowering.targets import parse_target

    program = compilation.program
    if compilation.ptx.launch.grid[0] >= 0:
        return program
    used = compilation.cubin(call).resources
    shared = used.shared_bytes + program.shared_bytes
    blocks = parse_target(call.options.target).blocks_at_once(program.block[0], used.registers, shared)
    return dataclasses.replace(program, grid=(blocks, 1, 1))


def _untouched_results(results: Sequence[Any], aliases: dict[int, int], *operands: Any) -> list[Any]:
    """The results of a kernel whose grid is empty: no launch, and the same values as on the simulator."""
    aliased = {result: operands[operand] for operand, result in aliases.items()}
    return [
        aliased[i] if i in aliased else jnp.full(t.shape, initial_value(t.dtype), t.dtype)
        for i, t in enumerate(results)
    ]


def _custom_call_attributes(
    program: Program, target: str, cubin: bytes
) -> dict[str, str | bytes | int | tuple[int, ...]]:
    """What the launcher needs beside the arrays (native/launcher.h says what each is)."""
    return {
        "version": CALL_VERSION,
        "name": program.name,
        "entry": program.entry,
        "target": target,
        "cubin": cubin,
        "key": hashlib.sha256(b"\0".join((cubin, program.entry.encode(), b"%d" % program.shared_bytes))).hexdigest(),
        "grid": program.grid,
        "block": program.block,
        "cluster": program.cluster,
        "shared_bytes": program.shared_bytes,
        "programmatic": int(program.programmatic),
        "tensor_maps": tuple(number for facts in program.tensor_maps for number in _map_numbers(facts)),
    }


def _cost_estimate(given: Any, program: Program) -> dict[str, str]:
    """What the kernel costs, under the name that JAX's own kernels have for it; the launcher does not look at it.

    Where the user says nothing: the bytes of all arrays, if their sizes are known.
    """
    if given is not None:
        return {"cost_estimate_json": json.dumps(dataclasses.asdict(given))}
    if program.symbols:
        return {}
    arrays = (*program.operands, *program.results)
    total = sum(math.prod(a.shape) * a.memory_dtype.itemsize for a in arrays)
    return {"cost_estimate_json": json.dumps({"bytes_accessed": total})}


def _array_numbers(avals: Sequence[Any]) -> tuple[int, ...]:
    """For each array its dtype's number, its rank and its sizes."""
    return tuple(
        number
        for aval in avals
        for number in (
            _DTYPE_NUMBERS[np.dtype(aval.dtype).name],
            len(aval.shape),
            *(_UNKNOWN_SIZE if compat.is_symbolic(size) else int(size) for size in aval.shape),
        )
    )


def _map_numbers(facts: TensorMapFacts) -> tuple[int, ...]:
    head = (facts.argument, facts.element_bytes, facts.swizzle, len(facts.dims))
    return (*head, *facts.dims, *facts.strides_bytes, *facts.box)


def _emit_in_bytes(emit: Callable[..., list[Any]], ctx: Any, operands: Sequence[Any]) -> list[Any]:
    """Emits a call whose 4-bit integers take a byte each, as a kernel's memory holds them."""
    wide = ctx.replace(avals_in=_in_bytes(ctx.avals_in), avals_out=_in_bytes(ctx.avals_out))
    results = emit(wide, operands=compat.convert_values(operands, wide.avals_in))
    narrow: list[Any] = compat.convert_values(results, ctx.avals_out)
    return narrow


def _in_bytes(avals: Sequence[Any]) -> list[Any]:
    return [a.update(dtype=ArrayType(a.shape, np.dtype(a.dtype)).memory_dtype) for a in avals]
