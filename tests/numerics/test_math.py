"""Functions of floats against NumPy and SciPy-like references in float64, in units of the last place."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special as jsp
import numpy as np
import pytest
from jax import lax

import mosaic_gpu
from tests.support.kernels import one_block
from tests.support.values import assert_same, dtype_of, random_values, ulps

Apply = Callable[..., Any]


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def _each(function: Callable[[float], float]) -> Callable[[Any], Any]:
    return np.vectorize(function, otypes=[np.float64])


def _erf_inv(x: Any) -> Any:
    """By Newton's method on math.erf."""

    def one(y: float) -> float:
        if abs(y) >= 1:
            return math.copysign(math.inf, y) if abs(y) == 1 else math.nan
        z = float(jax.jit(lax.erf_inv)(np.float64(y)))
        for _ in range(3):
            z -= (math.erf(z) - y) * math.sqrt(math.pi) / 2 * math.exp(z * z)
        return z

    return _each(one)(x)


def _lgamma(x: Any) -> Any:
    return _each(lambda y: math.inf if math.isinf(y) else math.lgamma(y))(x)


def _logistic(x: Any) -> Any:
    return np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))


SPECIAL_VALUES = [0.0, -0.0, np.inf, -np.inf, np.nan]
EVERYWHERE = np.concatenate([np.linspace(-9, 9, 181), 10.0 ** np.arange(-30, 31, 4), SPECIAL_VALUES])
WIDE = np.concatenate([EVERYWHERE, -(10.0 ** np.arange(-30, 31, 4))])
POSITIVE = np.abs(WIDE)
UNIT = np.concatenate([np.linspace(-1, 1, 101), 10.0 ** np.arange(-20, 0), [np.nan]])
ABOVE_ONE = 1 + np.abs(EVERYWHERE)

# function, reference in float64, arguments, and the units of the last place allowed in f32 and f64
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Any, float, float]] = {
    "exp": (lax.exp, np.exp, WIDE, 2, 2),
    "exp2": (lax.exp2, np.exp2, WIDE, 2, 2),
    "expm1": (lax.expm1, np.expm1, WIDE, 2, 2),
    "log": (lax.log, np.log, WIDE, 2, 2),
    "log2": (lax.log2_p.bind, np.log2, WIDE, 2, 2),
    "log1p": (lax.log1p, np.log1p, WIDE, 2, 2),
    "sin": (lax.sin, np.sin, WIDE, 2, 2),
    "cos": (lax.cos, np.cos, WIDE, 2, 2),
    "tan": (lax.tan, np.tan, WIDE, 4, 3),
    "asin": (lax.asin, np.arcsin, UNIT, 3, 2),
    "acos": (lax.acos, np.arccos, UNIT, 3, 2),
    "atan": (lax.atan, np.arctan, WIDE, 2, 2),
    "sinh": (lax.sinh, np.sinh, WIDE, 3, 3),
    "cosh": (lax.cosh, np.cosh, WIDE, 2, 2),
    "tanh": (lax.tanh, np.tanh, WIDE, 2, 2),
    "asinh": (lax.asinh, np.arcsinh, WIDE, 3, 3),
    "acosh": (lax.acosh, np.arccosh, ABOVE_ONE, 4, 3),
    "atanh": (lax.atanh, np.arctanh, UNIT, 3, 3),
    "sqrt": (lax.sqrt, np.sqrt, WIDE, 0.5, 0.5),
    "rsqrt": (lax.rsqrt, lambda x: 1 / np.sqrt(x), WIDE, 1.5, 1.5),
    "cbrt": (lax.cbrt, np.cbrt, WIDE, 2, 2),
    "logistic": (lax.logistic, _logistic, WIDE, 4, 4),
    "erf": (lax.erf, _each(math.erf), WIDE, 2, 3),
    "erfc": (lax.erfc, _each(math.erfc), WIDE, 6, 6),
    "erf_inv": (lax.erf_inv, _erf_inv, np.linspace(-1, 1, 81), 4, 8),
    "lgamma": (lax.lgamma, _lgamma, POSITIVE[POSITIVE > 0], 8, 100),  # 100: beside its zeros at 1 and 2
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_function_is_as_exact_as_libdevice_says(elementwise: Apply, name: str, dtype: str) -> None:
    function, reference, arguments, *allowed = FUNCTIONS[name]
    x = arguments.astype(dtype)
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64))
    assert ulps(elementwise(function, x), exact) <= allowed[dtype == "float64"]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_are_computed_in_f32_and_rounded_once(elementwise: Apply, dtype: str) -> None:
    names = [n for n in FUNCTIONS if n not in ("lgamma", "erf_inv")]
    x = np.concatenate([np.linspace(-0.9, 0.9, 150), np.linspace(1, 5, 50)]).astype(dtype_of(dtype))
    results = elementwise(lambda v: tuple(FUNCTIONS[n][0](v) for n in names), x)
    for name, result in zip(names, results, strict=True):
        with np.errstate(all="ignore"):
            exact = FUNCTIONS[name][1](x.astype(np.float64))
        assert np.asarray(result).dtype == x.dtype
        assert ulps(result, exact) <= 0.51, name


def test_exp_keeps_subnormal_results(elementwise: Apply) -> None:
    x = np.linspace(-103, -87.5, 64).astype(np.float32)
    assert ulps(elementwise(jnp.exp, x), np.exp(x.astype(np.float64))) <= 2


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pow_of_random_and_special_arguments(elementwise: Apply, dtype: str) -> None:
    special = np.array([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, 3.0, np.inf, -np.inf, np.nan], dtype)
    x, y = np.repeat(special, len(special)), np.tile(special, len(special))
    x = np.concatenate([x, np.abs(random_values(dtype, (200,), 1))])
    y = np.concatenate([y, random_values(dtype, (200,), 2, 8.0)])
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
    assert ulps(elementwise(lax.pow, x, y), exact) <= 4


def test_pow_with_an_integer_exponent_array(elementwise: Apply) -> None:
    x, n = random_values("float32", (64,)), np.arange(-32, 32).astype(np.int32)
    assert ulps(elementwise(lax.pow, x, n), x.astype(np.float64) ** n) <= 4


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_atan2_in_all_quadrants_and_on_the_axes(elementwise: Apply, dtype: str) -> None:
    special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-30], dtype)
    y, x = np.repeat(special, len(special)), np.tile(special, len(special))
    y, x = np.concatenate([y, random_values(dtype, (99,), 1)]), np.concatenate([x, random_values(dtype, (99,), 2)])
    assert ulps(elementwise(jnp.arctan2, y, x), np.arctan2(y.astype(np.float64), x.astype(np.float64))) <= 3


APPROXIMATE = {
    "exp": (jnp.exp, np.exp),
    "exp2": (jnp.exp2, np.exp2),
    "log": (lambda v: jnp.log(abs(v) + 2), lambda v: np.log(abs(v) + 2)),
    "sin": (jnp.sin, np.sin),
    "cos": (jnp.cos, np.cos),
    "tanh": (jnp.tanh, np.tanh),
    "logistic": (lax.logistic, _logistic),
    "rsqrt": (lambda v: lax.rsqrt(abs(v)), lambda v: 1 / np.sqrt(abs(v))),
    "sqrt": (lambda v: jnp.sqrt(abs(v)), lambda v: np.sqrt(abs(v))),
    "div": (lambda v: 3 / v, lambda v: 3 / v),
}


def test_approximate_functions_are_used_on_request_and_are_near(elementwise: Apply) -> None:
    x = np.linspace(-3, 3, 100).astype(np.float32)
    results = elementwise(lambda v: tuple(f(v) for f, _ in APPROXIMATE.values()), x, approx_math=True)
    for (name, (_, reference)), result in zip(APPROXIMATE.items(), results, strict=True):
        np.testing.assert_allclose(result, reference(x.astype(np.float64)), rtol=2e-3, atol=1e-6, err_msg=name)


SPECIAL = {
    "digamma": (jsp.digamma, 1),
    "i0e": (jsp.i0e, 1),
    "i1e": (jsp.i1e, 1),
    "i0": (jsp.i0, 1),
    "i1": (jsp.i1, 1),
    "ndtr": (jsp.ndtr, 1),
    "log_ndtr": (jsp.log_ndtr, 1),
    "entr": (jsp.entr, 1),
    "expit": (jsp.expit, 1),
    "polygamma 2": (lambda x: jsp.polygamma(2, x), 1),
    "zeta": (lambda x, y: jsp.zeta(1 + x, y), 2),
    "gammainc": (jsp.gammainc, 2),
    "gammaincc": (jsp.gammaincc, 2),
    "betainc": (lambda x, y: jsp.betainc(x, y, 0.3), 2),
    "betaln": (jsp.betaln, 2),
    "xlogy": (jsp.xlogy, 2),
    "logaddexp": (jnp.logaddexp, 2),
    "logaddexp2": (jnp.logaddexp2, 2),
    "hypot": (jnp.hypot, 2),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions_agree_with_xla_in_f64(elementwise: Apply, name: str, dtype: str) -> None:
    function, count = SPECIAL[name]
    arrays = [(np.abs(random_values("float64", (60,), seed, 3.0)) + 0.05).astype(dtype) for seed in range(count)]
    exact = jax.jit(function)(*(a.astype(np.float64) for a in arrays))
    rtol, atol = (3e-5, 1e-6) if dtype == "float32" else (1e-11, 1e-13)
    np.testing.assert_allclose(elementwise(function, *arrays), exact, rtol=rtol, atol=atol)


@pytest.mark.parametrize("function", [jnp.sin, jnp.exp, jnp.sqrt, lax.logistic, jnp.tan, lax.erf])
def test_a_scalar_works_as_a_tile_does(elementwise: Apply, function: Callable[..., Any]) -> None:
    x = np.float32(0.7)
    np.testing.assert_allclose(elementwise(function, x), jax.jit(function)(x), rtol=1e-6)


def test_case_6_square_roots_and_powers(elementwise: Apply) -> None:
    x = np.array([4.0, 2.0, 0.25, -0.0, 0.0, np.inf, np.nan, -1.0], np.float32)
    root, inverse, cube = elementwise(lambda v: (jnp.sqrt(v), v**-1, v**3), x)
    with np.errstate(all="ignore"):
        assert_same(root, np.sqrt(x))
        assert_same(inverse, 1 / x)
        assert_same(cube, x * x * x)


def test_poles_and_infinities_of_digamma_and_its_derivatives(elementwise: Apply) -> None:
    x = np.array([0.0, -0.0, -1.0, -2.0, -0.5, -3.25, np.inf, -np.inf, np.nan, 1e-30, 1e30, 3.0])
    n = np.array([0.0, 1.0, 2.0, 3.0, 1.5, -1.0])
    exact = jax.jit(lax.digamma)(x)
    np.testing.assert_allclose(elementwise(lax.digamma, x.astype(np.float32)), exact, rtol=1e-5)
    orders, places = np.repeat(n, 3), np.tile([-1.0, -0.5, 2.0], len(n))
    exact = jax.jit(lax.polygamma)(orders, places)
    narrow = elementwise(lax.polygamma, orders.astype(np.float32), places.astype(np.float32))
    np.testing.assert_allclose(narrow, exact, rtol=1e-5)


def test_a_product_and_a_sum_become_one_instruction_on_request_only(simulator_only: None) -> None:
    x = np.ones(128, np.float32)

    def ptx(**params: Any) -> str:
        call = one_block(lambda a, b, c: (a * b + c, a * b - c), x, x, x, **params)
        return mosaic_gpu.compile(call, x, x, x).ptx

    assert "fma.rn" not in ptx()
    assert "fma.rn" in ptx(approx_math=True)
