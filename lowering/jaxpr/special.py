"""Special functions that neither libdevice nor JAX writes out: digamma, zeta, polygamma, Bessel i0e and i1e.

Written with jax.numpy on arrays of f32 or f64, for `tracing.lower_function`.
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

# B(2k) / (2k) for k = 1, 2, ..: the asymptotic series of digamma (DLMF 5.11.2).
_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160)
# B(2k) / (2k)! for k = 1, 2, ..: Euler and Maclaurin's correction (DLMF 25.11.5).
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510, 43867 / 798, -174611 / 330)
_EULER_MACLAURIN = tuple(b / math.factorial(2 * k + 2) for k, b in enumerate(_BERNOULLI))
_STEPS = 10


def digamma(x: Any) -> Any:
    """The derivative of log gamma; -inf at 0 and NaN at -1, -2, .. (as lax.digamma)."""
    reflected = x < 0.5
    y = jnp.where(reflected, 1 - x, x)
    shift = jnp.zeros_like(y)
    for _ in range(_STEPS):
        small = y < _STEPS
        shift = jnp.where(small, shift + 1 / y, shift)
        y = jnp.where(small, y + 1, y)
    inverse = 1 / (y * y)
    series = jnp.zeros_like(y)
    for coefficient in reversed(_DIGAMMA):
        series = (series + coefficient) * inverse
    value = jnp.log(y) - 0.5 / y - series - shift
    part = x - jnp.round(x)
    pole = jnp.where(part == 0, jnp.nan, np.pi / jnp.tan(np.pi * part))
    value = jnp.where(reflected, value - pole, jnp.where(jnp.isposinf(x), x, value))
    return jnp.where(x == 0, -jnp.inf, value)


def zeta(s: Any, q: Any) -> Any:
    """Hurwitz' zeta function, the sum of (q + n)**-s over n >= 0, for s > 1 (NaN below; inf at s = 1).

    For q <= 0 as lax.zeta: where q is whole inf for even s and NaN for odd, where s is not whole NaN.
    """
    total, place = jnp.zeros_like(q), q
    for _ in range(_STEPS):
        total = total + place**-s
        place = place + 1
    tail = place**-s
    total = total + tail * place / (s - 1) + 0.5 * tail
    factor, power = s, tail / place
    for k, coefficient in enumerate(_EULER_MACLAURIN):
        total = total + coefficient * factor * power
        factor = factor * (s + 2 * k + 1) * (s + 2 * k + 2)
        power = power / (place * place)
    total = jnp.where(s == 1, jnp.inf, jnp.where(s < 1, jnp.nan, total))
    total = jnp.where((q <= 0) & (s != jnp.floor(s)), jnp.nan, total)
    return jnp.where((q <= 0) & (q == jnp.floor(q)), jnp.where(s % 2 == 0, jnp.inf, jnp.nan), total)


def polygamma(n: Any, x: Any) -> Any:
    """Derivative number n of digamma: (-1)**(n + 1) n! zeta(n + 1, x)."""
    sign = jnp.where(n % 2 == 0, -1, 1).astype(x.dtype)
    value = sign * jnp.exp(lax.lgamma(n + 1)) * zeta(n + 1, x)
    value = jnp.where(n == 0, digamma(x), value)
    return jnp.where((n < 0) | (n != jnp.floor(n)), jnp.nan, value)


def bessel_i0e(x: Any) -> Any:
    """exp(-|x|) I0(x)."""
    return _asymptotic_bessel(jnp.abs(x), 0)


def bessel_i1e(x: Any) -> Any:
    """exp(-|x|) I1(x)."""
    return jnp.sign(x) * _asymptotic_bessel(jnp.abs(x), 1)


def _asymptotic_bessel(x: Any, order: int) -> Any:
    """Power series below a threshold (DLMF 10.25.2), asymptotic series (10.40.1) above."""
    threshold, terms, far = (12.0, 36, 16) if x.dtype == np.float32 else (20.0, 60, 36)
    small = jnp.minimum(x, threshold)
    quarter = small * small / 4
    near = jnp.zeros_like(x)
    for k in reversed(range(terms)):
        near = near * quarter / ((k + 1) * (k + 1 + order)) + 1
    near = near * jnp.exp(-small) * (small / 2 if order else 1)
    large = jnp.maximum(x, threshold)
    series = jnp.ones_like(x)
    for k in reversed(range(1, far)):
        series = 1 - series * (4 * order * order - (2 * k - 1) ** 2) / (k * 8 * large)
    return jnp.where(x <= threshold, near, series / jnp.sqrt(2 * np.pi * large))
