"""Special functions against values of other formulas (NIST's DLMF)."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mosaic_gpu.interpreter import special

EULER = 0.5772156649015329


def test_digamma_at_whole_and_half_numbers() -> None:
    harmonic = np.cumsum(1 / np.arange(1, 40))
    np.testing.assert_allclose(special.digamma(np.arange(2.0, 41.0)), harmonic - EULER, rtol=1e-14)
    assert special.digamma(np.float64(0.5)) == pytest.approx(-EULER - 2 * math.log(2), rel=1e-14)


def test_digamma_of_negative_numbers_follows_the_recurrence() -> None:
    x = np.array([-0.25, -1.5, -3.75])
    np.testing.assert_allclose(special.digamma(x + 1), special.digamma(x) + 1 / x, rtol=1e-12)


def test_zeta_of_even_numbers() -> None:
    s = np.array([2.0, 4.0, 6.0])
    np.testing.assert_allclose(special.zeta(s, 1.0), [math.pi**2 / 6, math.pi**4 / 90, math.pi**6 / 945], rtol=1e-14)


def test_polygamma_is_a_sum_of_powers() -> None:
    assert special.polygamma(np.float64(1), np.float64(1)) == pytest.approx(math.pi**2 / 6, rel=1e-14)
    assert special.polygamma(np.float64(2), np.float64(1)) == pytest.approx(-2 * 1.2020569031595942, rel=1e-14)


@pytest.mark.parametrize("order", [0, 1])
def test_bessel_functions_are_their_power_series(order: int) -> None:
    x = np.array([0.0, 0.1, 1.0, 5.0, 20.0, 39.9, 40.1, 80.0])
    k = np.arange(200)
    logs = np.array([math.lgamma(n + 1) + math.lgamma(n + order + 1) for n in k])
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.exp((2 * k + order) * np.log(x[:, None] / 2) - logs - x[:, None])
    terms[0] = [1.0 if order == 0 else 0.0] + [0.0] * 199
    np.testing.assert_allclose(special.bessel(x, order), terms.sum(1), rtol=1e-12, atol=1e-15)
