"""Functions of floats, in float64 and rounded once; float64's own with NumPy, or the C library through `math`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.interpreter import special
from mosaic_gpu.interpreter.code import Equation
from mosaic_gpu.interpreter.eval_casts import rounded
from mosaic_gpu.interpreter.registry import evaluates, expands
from mosaic_gpu.interpreter.values import Array, is_float
from mosaic_gpu.lowering.jaxpr import compat


def _elementwise(function: Callable[[float], float]) -> Callable[[Any], Array]:
    apply = np.frompyfunc(function, 1, 1)
    return lambda x: np.asarray(apply(x), np.float64)


def _lgamma(x: float) -> float:
    if math.isinf(x):
        return math.inf
    if math.isnan(x):
        return x
    return math.inf if x <= 0 and x == math.floor(x) else math.lgamma(x)


def _logistic(x: Any) -> Any:
    small = np.exp(-np.abs(x))
    return np.where(x < 0, small / (1 + small), 1 / (1 + small))


_erf, _erfc = _elementwise(math.erf), _elementwise(math.erfc)


def _erf_inv(x: Any) -> Any:
    """Giles' approximation, and two steps of Newton's (Halley's) method."""
    x = np.asarray(x, np.float64)
    inside = np.abs(x) < 1
    safe = np.where(inside, x, 0.0)
    logarithm = np.log1p(-safe * safe)
    first = 2 / (math.pi * 0.147) + logarithm / 2
    root = np.copysign(np.sqrt(np.sqrt(first * first - logarithm / 0.147) - first), safe)
    for _ in range(3):
        # Near 1 the complement keeps the digits that erf loses.
        tail = np.sign(safe) * ((1 - np.abs(safe)) - _erfc(np.abs(root)))
        error = np.where(np.abs(safe) < 0.5, _erf(root) - safe, tail)
        step = error / (2 / math.sqrt(math.pi) * np.exp(-root * root))
        root = root - step / (1 + root * step)
    ends = np.where(np.abs(x) == 1, np.copysign(np.inf, x), np.nan)
    return np.where(inside, np.where(safe == 0, x, root), ends)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "cos": np.cos,
    "cosh": np.cosh,
    "erf": _erf,
    "erf_inv": _erf_inv,
    "erfc": _erfc,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "lgamma": _elementwise(_lgamma),
    "log": np.log,
    "log1p": np.log1p,
    "log2": np.log2,
    "logistic": _logistic,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "pow": np.power,
    "digamma": special.digamma,
    "zeta": special.zeta,
    "polygamma": special.polygamma,
    "bessel_i0e": lambda x: special.bessel(x, 0),
    "bessel_i1e": lambda x: np.sign(x) * special.bessel(x, 1),
}


@evaluates(*_FUNCTIONS)
def eval_math(equation: Equation, *values: Any, **_: Any) -> Any:
    """In float64, rounded once to the result's dtype."""
    if not is_float(equation.dtype):
        raise UnsupportedError(f"{equation.name} of dtype {equation.dtype}", source=equation.source)
    result = _FUNCTIONS[equation.name](*(np.asarray(v).astype(np.float64) for v in values))
    return rounded(np.asarray(result), equation.dtype)


@evaluates("polynomial")
def eval_polynomial(equation: Equation, x: Any, *coefficients: Any, **_: Any) -> Any:
    """c0 + c1 x + c2 x**2 + .., in float64."""
    wide = x.astype(np.float64)
    result = np.zeros_like(wide)
    for coefficient in reversed(coefficients):
        result = result * wide + coefficient.astype(np.float64)
    return rounded(np.asarray(np.broadcast_to(result, equation.shape)), equation.dtype)


@expands("igamma", "igammac", "igamma_grad_a", "regularized_incomplete_beta", "random_gamma_grad")
def expand_incomplete(equation: Equation, **_: Any) -> Callable[..., Any]:
    """JAX's own series and continued fractions, of which every step is interpreted."""
    function = compat.special_function(equation.name)

    def apply(*arrays: Any) -> Any:
        raised = [a.astype(np.float32) if a.dtype.itemsize < 4 else a for a in arrays]
        return function(*jax.numpy.broadcast_arrays(*raised)).astype(equation.dtype)

    return apply
