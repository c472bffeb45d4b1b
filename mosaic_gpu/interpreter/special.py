"""Special functions of float64 arrays: digamma, zeta, polygamma and the scaled Bessel functions I0 and I1.

All are sums whose length does not depend on the argument.  digamma and zeta go up by their recurrences to where
the series of Euler and Maclaurin (NIST's DLMF 5.11.2, 25.11.5) has converged; the Bessel functions are the
trapezoidal rule on their integral (DLMF 10.32.3), whose error falls like exp(-points) for a periodic integrand, and
their asymptotic series (10.40.1) far out.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

_RECURRENCE, _TERMS = 16, 12
_BESSEL_POINTS, _BESSEL_FAR = 128, 40.0


@cache
def _bernoulli(count: int) -> tuple[float, ...]:
    """B2, B4, .. by the recurrence of DLMF 24.5.3."""
    numbers = [Fraction(1)]
    for n in range(1, 2 * count + 1):
        total = sum((math.comb(n + 1, k) * numbers[k] for k in range(n)), Fraction(0))
        numbers.append(-total / (n + 1))
    return tuple(float(numbers[2 * k]) for k in range(1, count + 1))


def digamma(x: Any) -> Any:
    """The derivative of log gamma; NaN at -1, -2, .., and -inf at 0"""
    reflected = x < 0.5
    y = np.where(reflected, 1 - x, x)
    shift = np.zeros_like(y)
    for _ in range(_RECURRENCE):
        small = y < _RECURRENCE
        shift = shift + np.where(small, 1 / y, 0)
        y = np.where(small, y + 1, y)
    value = np.log(y) - 0.5 / y - shift
    for k, b in enumerate(_bernoulli(_TERMS), 1):
        value = value - b / (2 * k) / y ** (2 * k)
    part = x - np.rint(x)
    pole = np.where(part == 0, np.where(x == 0, np.inf, np.nan), math.pi / np.tan(math.pi * part))
    return np.where(reflected, value - pole, np.where(np.isposinf(x), x, value))


def zeta(s: Any, q: Any) -> Any:
    """Hurwitz' zeta function for s > 1; NaN below, infinite at 1.

    Where q is 0, -1, .. it is infinite for even s and NaN for others, as XLA has it.
    """
    s, q = np.broadcast_arrays(s, q)
    total = sum((q + n) ** -s for n in range(_RECURRENCE))
    place = q + _RECURRENCE
    tail = place**-s
    total = total + tail * place / (s - 1) + 0.5 * tail
    factor = s * tail / place
    for k, b in enumerate(_bernoulli(_TERMS), 1):
        total = total + b / math.factorial(2 * k) * factor
        factor = factor * (s + 2 * k - 1) * (s + 2 * k) / (place * place)
    total = np.where((q <= 0) & (s != np.floor(s)), np.nan, total)
    pole = np.where(s % 2 == 0, np.inf, np.nan)
    total = np.where((q <= 0) & (q == np.floor(q)), pole, total)
    return np.where(s == 1, np.inf, np.where(s < 1, np.nan, total))


def polygamma(n: Any, x: Any) -> Any:
    """Derivative number n of digamma: (-1)**(n + 1) n! zeta(n + 1, x); NaN where n is no natural number."""
    n, x = np.broadcast_arrays(n, x)
    natural = (n >= 0) & (n == np.floor(n))
    factorial = np.vectorize(lambda k: math.gamma(k + 1) if 0 <= k <= 170 else math.inf, otypes=[np.float64])
    value = np.where(n % 2 == 0, -1.0, 1.0) * factorial(np.where(natural, n, 0)) * zeta(n + 1, x)
    return np.where(natural, np.where(n == 0, digamma(x), value), np.nan)


def bessel(x: Any, order: int) -> Any:
    """exp(-|x|) I_order(|x|)."""
    x = np.abs(np.asarray(x, np.float64))
    near = np.minimum(x, _BESSEL_FAR)
    angles = (np.arange(_BESSEL_POINTS) + 0.5) * (math.pi / _BESSEL_POINTS)
    powers = np.exp(near[..., None] * (np.cos(angles) - 1)) * np.cos(order * angles)
    far = np.maximum(x, _BESSEL_FAR)
    series, term = np.ones_like(far), np.ones_like(far)
    for k in range(1, 20):
        term = -term * (4 * order * order - (2 * k - 1) ** 2) / (8 * k * far)
        series = series + term
    value = np.where(x <= _BESSEL_FAR, powers.mean(-1), series / np.sqrt(2 * math.pi * far))
    return np.where(np.isnan(x), x, np.where(np.isinf(x), 0.0, value))
