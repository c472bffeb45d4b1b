"""A function that calls kernels: its equations, its kernels, and its evaluation with the kernels run elsewhere."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from mosaic_gpu.api import trace_calls
from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.lowering.jaxpr import compat
from mosaic_gpu.lowering.kernel_call import KernelCall

_CALLS = frozenset(
    {"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "checkpoint", "remat"}
)

# Runs the kernel of that number, on the values of its operands; gives its results.
RunKernel = Callable[[int, Sequence[Any]], Sequence[Any]]


@dataclass(frozen=True)
class Traced:
    """A function's equations, and its kernels in the order of the program."""

    closed: Any
    calls: tuple[KernelCall, ...]
    out_tree: Any

    def evaluate(self, args: Sequence[Any], run_kernel: RunKernel) -> Any:
        """The function's results: its kernels by `run_kernel`, all else by JAX.

        Raises UnsupportedError where a kernel is called inside a loop or a condition.
        """
        numbers = iter(range(len(self.calls)))
        leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(tuple(args))]
        results = _evaluate(self.closed, leaves, lambda values: run_kernel(next(numbers), values))
        return jax.tree.unflatten(self.out_tree, results)


def trace(function: Callable[..., Any], args: Sequence[Any], target: str | None) -> Traced:
    """Traces `function`; its kernels are checked, not compiled."""
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(*args)
    types = [jax.ShapeDtypeStruct(a.shape, a.dtype, weak_type=a.weak_type) for a in closed.in_avals]
    # Traced again from the very same equations, whose kernels stay the same objects.
    calls = trace_calls(functools.partial(_evaluate_all, closed), *types, target=target)
    return Traced(closed, tuple(calls), jax.tree.structure(shapes))


def _evaluate_all(closed: Any, *leaves: Any) -> list[Any]:
    return compat.eval_jaxpr(closed, leaves)


def _evaluate(closed: Any, values: Sequence[Any], run_kernel: Callable[[Sequence[Any]], Sequence[Any]]) -> list[Any]:
    jaxpr = compat.open_jaxpr(closed)
    env: dict[Any, Any] = dict(zip(jaxpr.invars, values, strict=True))
    env |= dict(zip(jaxpr.constvars, getattr(closed, "consts", ()), strict=True))

    def read(atom: Any) -> Any:
        return atom.val if compat.is_literal(atom) else env[atom]

    for equation in jaxpr.eqns:
        operands = [read(a) for a in equation.invars]
        if equation.primitive is compat.pallas_call_p:
            results = run_kernel(operands)
        elif not _calls_a_kernel(equation):
            results = _apply(equation, operands)
        else:
            results = _evaluate(_called(equation), operands, run_kernel)
        env |= dict(zip(equation.outvars, results, strict=True))
    return [read(a) for a in jaxpr.outvars]


def _apply(equation: Any, operands: Sequence[Any]) -> Sequence[Any]:
    found = equation.primitive.get_bind_params(equation.params)
    # Before JAX 0.12 functions among the parameters were apart.
    functions, params = found if isinstance(found, tuple) else ((), found)
    results = equation.primitive.bind(*functions, *operands, **params)
    return results if equation.primitive.multiple_results else [results]


def _calls_a_kernel(equation: Any) -> bool:
    return any(
        inner.primitive is compat.pallas_call_p or _calls_a_kernel(inner)
        for jaxpr in compat.jaxpr_params(equation.params)
        for inner in jaxpr.eqns
    )


def _called(equation: Any) -> Any:
    """The jaxpr of a plain call."""
    if equation.primitive.name not in _CALLS:
        raise UnsupportedError(
            f"a kernel inside of {equation.primitive.name!r} cannot be measured by itself",
            hint="tune a function that calls the kernel outside of loops and conditions",
        )
    return next(value for value in equation.params.values() if compat.is_jaxpr(value))
