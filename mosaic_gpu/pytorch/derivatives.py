"""What JAX can differentiate, and what it gives for it.

Of a function `f` of arrays two functions are traced: `f` with its residuals, which are the leaves of what `jax.vjp`
returns, and the backward function of residuals and of the gradients of the results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from mosaic_gpu.errors import SourceLine, UnsupportedError
from mosaic_gpu.kernel import kernel_name
from mosaic_gpu.lowering.jaxpr import compat
from mosaic_gpu.lowering.jaxpr.sources import equation_source
from mosaic_gpu.pytorch.tracing import traced
from mosaic_gpu.pytorch.values import dtype_name, is_float


@dataclass(frozen=True)
class Traced:
    """A function of flat arrays with the types it is called with.

    Attributes:
      function: gives a list of arrays.
      avals: of its operands.
      wide: whether it is traced with 64-bit dtypes.
      name: for messages and keys.
    """

    function: Callable[..., Any]
    avals: tuple[Any, ...]
    wide: bool
    name: str

    def jaxpr(self) -> Any:
        """Its equations."""
        return traced(self.function, self.avals, self.wide)[0]


@dataclass(frozen=True)
class Differentiated:
    """A function with its residuals.

    Attributes:
      jaxpr: from operands to the float results, the residuals, and the other results.
      order: for each result its place among those.
      tree: of the residuals, the structure of JAX's backward function.
    """

    jaxpr: Any
    order: tuple[int, ...]
    tree: Any


def differentiate(function: Traced, wanted: Sequence[bool], results: Sequence[str]) -> Differentiated:
    """`function`, ready for the gradients of the `wanted` operands.

    Arguments:
      results: the dtypes of its results, by name.

    Raises UnsupportedError where JAX has no derivative.
    """
    floats = [i for i, name in enumerate(results) if is_float(name)]
    others = [i for i, name in enumerate(results) if not is_float(name)]

    def forward(*operands: Any) -> Any:
        def of_wanted(*some: Any) -> Any:
            values = iter(some)
            given = [next(values) if w else o for w, o in zip(wanted, operands, strict=True)]
            found = function.function(*given)
            return [found[i] for i in floats], [found[i] for i in others]

        return jax.vjp(of_wanted, *(o for w, o in zip(wanted, operands, strict=True) if w), has_aux=True)

    _refuse_kernels(function, wanted)
    closed, (_, vjp, _) = _traced_or_refused(forward, function)
    residuals = len(jax.tree.leaves(vjp))
    places = {i: n for n, i in enumerate(floats)} | {i: len(floats) + residuals + n for n, i in enumerate(others)}
    return Differentiated(closed, tuple(places[i] for i in range(len(results))), jax.tree.structure(vjp))


def _traced_or_refused(forward: Callable[..., Any], function: Traced) -> tuple[Any, Any]:
    try:
        return traced(forward, function.avals, function.wide)
    except _JAX_REFUSES as error:
        raise no_derivative(function.name, error) from error


_JAX_REFUSES = (NotImplementedError, TypeError, ValueError)
"""What JAX raises for a function, which it has traced before, that it cannot differentiate."""


def no_derivative(name: str, error: Exception) -> UnsupportedError:
    """The refusal for what JAX said of the derivative of function `name`."""
    if isinstance(error, UnsupportedError):
        return error
    words = str(error).strip().split("\n", 1)[0]
    return UnsupportedError(
        f"JAX cannot differentiate {name!r}: {words}", hint="define its derivative with jax.custom_vjp"
    )


def backward_of(
    found: Differentiated, function: Traced, saved: Sequence[Any], leaves: Sequence[Any], gradients: Sequence[Any]
) -> Traced:
    """The function of what was saved, and of the gradients of the float results, that gives the operands' gradients.

    Arguments:
      saved, gradients: the abstract values of both.
      leaves: for each residual its place among the saved, or an array where it depends on no operand.
    """

    def backward(*operands: Any) -> list[Any]:
        residuals = [operands[leaf] if isinstance(leaf, int) else leaf for leaf in leaves]
        vjp = jax.tree.unflatten(found.tree, residuals)
        return list(vjp(list(operands[len(saved) :])))

    types = tuple(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (*saved, *gradients))
    return Traced(backward, types, function.wide, f"the gradient of {function.name}")


def traced_backward(backward: Traced, name: str) -> Any:
    """The equations of the backward function of function `name`.

    Raises UnsupportedError where JAX has no derivative.
    """
    try:
        return backward.jaxpr()
    except _JAX_REFUSES as error:
        raise no_derivative(name, error) from error


def chosen_results(jaxpr: Any, places: Sequence[int]) -> Callable[..., Any]:
    """The function that a closed jaxpr is, with the results at these places."""

    def chosen(*operands: Any) -> list[Any]:
        results = compat.eval_jaxpr(jaxpr, operands)
        return [results[place] for place in places]

    return chosen


def _refuse_kernels(function: Traced, wanted: Sequence[bool]) -> None:
    """Raises UnsupportedError where a kernel, which has no derivative itself, is between operands and results."""
    jaxpr = compat.open_jaxpr(function.jaxpr())
    reached = _reach(jaxpr, [True if w else None for w in wanted])
    kernel = next((r for r in reached if r not in (None, True)), None)
    if kernel is not None:
        raise UnsupportedError(
            f"kernel {kernel_name(kernel.params['jaxpr'])!r} has no derivative",
            hint="put the call into a function with jax.custom_vjp, whose backward function computes the gradients; or "
            "give it jax.lax.stop_gradient(x)",
            source=equation_source(kernel) or _definition(kernel.params["jaxpr"]),
        )


def _definition(jaxpr: Any) -> SourceLine | None:
    """Where the function of a kernel is defined: of what a backward function calls, JAX keeps no other line."""
    found = compat.function_source(jaxpr)
    return None if found is None else SourceLine(*found, kernel_name(jaxpr))


def _reach(jaxpr: Any, arguments: Sequence[Any]) -> list[Any]:
    """For each result: None where it does not depend on an operand with a gradient, else True, or the kernel between.

    Arguments:
      arguments: the same for each operand.
    """
    env: dict[Any, Any] = dict(zip(jaxpr.invars, arguments, strict=True))

    def read(atom: Any) -> Any:
        return None if compat.is_literal(atom) else env.get(atom)

    for eqn in jaxpr.eqns:
        given = [read(v) for v in eqn.invars]
        for var, found in zip(eqn.outvars, _through(eqn, given), strict=True):
            env[var] = found if found is not True or is_float(dtype_name(var.aval.dtype)) else None
    return [read(v) for v in jaxpr.outvars]


def _through(eqn: Any, given: list[Any]) -> list[Any]:
    """What the results of an equation depend on."""
    name, count = eqn.primitive.name, len(eqn.outvars)
    worst = next((g for g in given if g not in (None, True)), True if True in given else None)
    if worst is None or (worst is True and name == "stop_gradient"):
        return [None] * count
    if eqn.primitive is compat.pallas_call_p:
        return [eqn] * count
    if name.startswith("custom_"):
        return [worst] * count
    for inner in compat.jaxpr_params(eqn.params):
        exact = len(inner.invars) == len(given) and len(inner.outvars) == count
        reached = _reach(inner, given if exact else [worst] * len(inner.invars))
        kernel = next((r for r in reached if r not in (None, True)), None)
        if exact and name in ("jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "remat2"):
            return reached
        worst = kernel if kernel is not None else worst
    return [worst] * count
