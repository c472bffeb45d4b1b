"""From JAX to the interpreter: the lowering of a `pallas_call` with `interpret=InterpretParams(...)`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from mosaic_gpu.errors import UnsupportedError, ends_at_kernel
from mosaic_gpu.interpreter.code import Equation, traced_whole
from mosaic_gpu.interpreter.kernel import Kernel, kernel_of, mesh_kernel_of
from mosaic_gpu.interpreter.params import InterpretParams
from mosaic_gpu.interpreter.registry import executes
from mosaic_gpu.interpreter.run import Run
from mosaic_gpu.lowering.jaxpr import compat


def lower(ctx: Any, *operands: Any, emit_in_bytes: Callable[..., Any], **params: Any) -> Any:
    """Emits a call to the host that interprets the kernel.

    Raises UnsupportedError or KernelError before anything runs.
    """
    choices: InterpretParams = params["interpret"]
    kernel = kernel_of(params)
    for platform in ctx.platforms or ctx.module_context.platforms:
        if platform != "cpu":
            raise UnsupportedError(
                f"the interpreter does not run on platform {platform!r}",
                expected="cpu",
                hint="run under jax.default_device(jax.devices('cpu')[0])",
            )

    compat.keep_tokens(ctx)

    def interpret(*arrays: Any) -> tuple[Any, ...]:
        results = Run(kernel, choices, [np.asarray(a) for a in arrays]).results()
        return tuple(_in_bytes(r) for r in results)

    emit = functools.partial(compat.emit_host_call, callback=interpret, side_effect=compat.has_effects(params["jaxpr"]))
    return emit_in_bytes(emit, ctx, operands)


def _in_bytes(array: Any) -> Any:
    """4-bit integers take a byte each on their way to JAX."""
    name = array.dtype.name
    return array.astype(np.int8 if name == "int4" else np.uint8) if name in ("int4", "uint4") else array


@ends_at_kernel
def interpret(function: Callable[..., Any], *args: Any, params: InterpretParams | None = None) -> Any:
    """Runs a function that calls kernels with NumPy alone: kernels in the interpreter, and all around them, too.

    Faults come out as they are, where a kernel inside of `jax.jit` makes JAX raise an error of its own.

    Arguments:
      function: what `pl.pallas_call` or `plgpu.kernel` returned, or a function that calls it.
      args: arrays, or pytrees of them.
      params: for each kernel; None takes the kernel's own `interpret=`, where it is an `InterpretParams`, or the
        defaults.

    Returns what `function` does, with NumPy arrays.

    Raises SimulationError, KernelError or UnsupportedError, as the interpreter does.
    """
    code, tree, given = traced_whole(function, args)
    results = code.run(_Host(params), given)
    return jax.tree.unflatten(tree, [np.asarray(r) for r in results])


class _Host:
    """What runs the equations around kernels."""

    def __init__(self, params: InterpretParams | None) -> None:
        self.params = params
        self.equation: Equation | None = None

    def choices(self, own: Any) -> InterpretParams:
        """The parameters for a kernel."""
        if self.params is not None:
            return self.params
        return own if isinstance(own, InterpretParams) else InterpretParams()


@executes("pallas_call")
def exec_pallas_call(host: Any, equation: Equation, *values: Any, **params: Any) -> list[Any]:
    """A kernel."""
    if "kernel" not in equation.cache:
        equation.cache["kernel"] = kernel_of(params)
    kernel: Kernel = equation.cache["kernel"]
    return list(Run(kernel, host.choices(params["interpret"]), values).results())


def run_mesh_kernel(host: Any, equation: Equation, *values: Any, **params: Any) -> list[Any]:
    """A `plgpu.kernel`."""
    if "kernel" not in equation.cache:
        equation.cache["kernel"] = mesh_kernel_of(params, len(values))
    kernel: Kernel = equation.cache["kernel"]
    return list(Run(kernel, host.choices(params["interpret"]), values).results())
