"""Index maps outside of kernels: their values over a whole grid, and their affine forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaic_gpu.lowering.jaxpr.compat import is_literal, jaxpr_params

Array = np.ndarray[Any, Any]


def _divide(a: Array, b: Array) -> Array:
    safe = np.where(b == 0, 1, b)
    quotient: Array = np.sign(a) * np.sign(safe) * (np.abs(a) // np.abs(safe))
    return quotient


def _select(which: Array, *cases: Array) -> Array:
    return np.choose(np.asarray(which, np.int64), np.broadcast_arrays(*cases))


_NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "abs": np.abs,
    "max": np.maximum,
    "min": np.minimum,
    "sign": np.sign,
    "div": _divide,
    "rem": lambda a, b: a - _divide(a, b) * b,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "shift_left": np.left_shift,
    "shift_right_arithmetic": np.right_shift,
    "select_n": _select,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "convert_element_type": lambda x: x,
    "stop_gradient": lambda x: x,
}


def evaluate(jaxpr: Any, arguments: Sequence[Array]) -> list[Array] | None:
    """The results of a jaxpr of integer scalars at many points at once; None where it has something else.

    `arguments`: one array an argument, an element a point; arguments behind them must not be used.
    """
    if len(arguments) > len(jaxpr.invars) or jaxpr.constvars:
        return None
    env: dict[Any, Any] = dict(zip(jaxpr.invars, arguments, strict=False))

    def read(atom: Any) -> Any:
        return np.asarray(atom.val) if is_literal(atom) else env.get(atom)

    for equation in jaxpr.eqns:
        values = [read(a) for a in equation.invars]
        results = None if any(v is None for v in values) else evaluate_equation(equation, values)
        if results is None:
            return None
        env |= dict(zip(equation.outvars, results, strict=True))
    return [np.asarray(read(a)) for a in jaxpr.outvars]


def evaluate_equation(equation: Any, values: list[Array]) -> list[Array] | None:
    """The results of one equation of integer scalars at many points at once; None where it is something else."""
    if not all(v.aval.shape == () and v.aval.dtype.kind in "biu" for v in (*equation.invars, *equation.outvars)):
        return None
    name = equation.primitive.name
    if name in ("jit", "pjit", "closed_call"):
        (inner,) = jaxpr_params(equation.params)
        return evaluate(inner, values)
    operation = _NUMPY.get(name)
    return None if operation is None else [operation(*values)]


@dataclass(frozen=True)
class _Affine:
    constant: int
    coefficients: tuple[int, ...]

    def scaled(self, factor: int) -> _Affine:
        return _Affine(self.constant * factor, tuple(c * factor for c in self.coefficients))

    def plus(self, other: _Affine) -> _Affine:
        pairs = zip(self.coefficients, other.coefficients, strict=True)
        return _Affine(self.constant + other.constant, tuple(a + b for a, b in pairs))


def affine_forms(jaxpr: Any, rank: int) -> list[tuple[int, ...] | None]:
    """For each result of an index map the coefficients of the `rank` program ids; None where it is not affine."""
    ids: list[_Affine | None] = [_Affine(0, tuple(int(i == d) for i in range(rank))) for d in range(rank)]
    if len(jaxpr.invars) < rank or jaxpr.constvars:
        return [None] * len(jaxpr.outvars)
    ids += [None] * (len(jaxpr.invars) - rank)  # references to index operands
    return [None if form is None else form.coefficients for form in _affine_results(jaxpr, ids, rank)]


def _affine_results(jaxpr: Any, arguments: Sequence[_Affine | None], rank: int) -> list[_Affine | None]:
    env: dict[Any, _Affine | None] = dict(zip(jaxpr.invars, arguments, strict=True))

    def read(atom: Any) -> _Affine | None:
        if is_literal(atom):
            return _Affine(int(atom.val), (0,) * rank) if atom.aval.shape == () else None
        return env.get(atom)

    for equation in jaxpr.eqns:
        values = [read(a) for a in equation.invars]
        name = equation.primitive.name
        if name in ("jit", "pjit", "closed_call"):
            (inner,) = jaxpr_params(equation.params)
            env |= dict(zip(equation.outvars, _affine_results(inner, values, rank), strict=True))
        elif len(equation.outvars) == 1:
            env[equation.outvars[0]] = _affine_equation(name, values)
    return [read(a) for a in jaxpr.outvars]


def _affine_equation(name: str, values: list[_Affine | None]) -> _Affine | None:
    match name, values:
        case "convert_element_type", [_Affine() as a]:
            return a
        case "neg", [_Affine() as a]:
            return a.scaled(-1)
        case "add", [_Affine() as a, _Affine() as b]:
            return a.plus(b)
        case "sub", [_Affine() as a, _Affine() as b]:
            return a.plus(b.scaled(-1))
        case "mul", [_Affine() as a, _Affine() as b] if not any(a.coefficients):
            return b.scaled(a.constant)
        case "mul", [_Affine() as a, _Affine() as b] if not any(b.coefficients):
            return a.scaled(b.constant)
        case _:
            return None
