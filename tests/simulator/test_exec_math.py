"""Approximate functions stay within the errors that the PTX ISA documents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.simulator.harness import evaluate, half_edges, half_values

Array = np.ndarray[Any, np.dtype[Any]]
EDGES = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-40, -1e-40, 3e38], np.float32)


def inputs() -> Array:
    rng = np.random.default_rng(0)
    return np.concatenate([EDGES, rng.standard_normal(300), np.abs(rng.standard_normal(300)) * 20]).astype(np.float32)


FUNCTIONS: dict[str, Any] = {
    "ex2.approx": np.exp2, "lg2.approx": np.log2, "sin.approx": np.sin, "cos.approx": np.cos, "tanh.approx": np.tanh,
    "sqrt.approx": np.sqrt, "rsqrt.approx": lambda x: 1 / np.sqrt(x), "rcp.approx": lambda x: 1 / x,
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_f32_functions_are_the_rounded_true_value(name: str) -> None:
    a = inputs()
    with np.errstate(all="ignore"):
        want = FUNCTIONS[name](a.astype(np.float64)).astype(np.float32)
    got = evaluate(f"{name}.f32 %d, %a;", "f32", ("f32", a)).view(np.float32)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(want[~np.isnan(got)]))


@pytest.mark.parametrize("name", ["ex2.approx.ftz", "lg2.approx.ftz", "rsqrt.approx.ftz", "rcp.approx.ftz"])
def test_ftz_takes_a_subnormal_for_zero(name: str) -> None:
    a = np.array([1e-40, -1e-40, 2.0, 1e38], np.float32)
    flushed = np.array([0.0, -0.0, 2.0, 1e38], np.float32)
    with np.errstate(all="ignore"):
        want = FUNCTIONS[name.removesuffix(".ftz")](flushed.astype(np.float64)).astype(np.float32)
    want = np.where(np.abs(want) < 2.0**-126, np.copysign(np.float32(0), want), want)
    np.testing.assert_array_equal(evaluate(f"{name}.f32 %d, %a;", "f32", ("f32", a)).view(np.float32), want)


@pytest.mark.parametrize(
    ("name", "kind"),
    [("ex2.approx", "f16"), ("ex2.approx.ftz", "bf16"), ("tanh.approx", "f16"), ("tanh.approx", "bf16")],
)
def test_half_functions(name: str, kind: str) -> None:
    a, most = half_edges(kind), 65519.0 if kind == "f16" else 3.39e38
    with np.errstate(all="ignore"):
        want = FUNCTIONS[name.removesuffix(".ftz")](half_values(a, kind))
    got = half_values(evaluate(f"{name}.{kind} %d, %a;", "b16", ("b16", a)), kind)
    want = np.where(np.abs(want) > most, np.inf, want)
    np.testing.assert_allclose(got, want, rtol=2.0**-8, atol=1e-38 if kind == "bf16" else 2.0**-24)


def test_the_quick_f64_reciprocals_give_the_upper_word() -> None:
    a = np.abs(np.random.default_rng(0).standard_normal(100)) + 0.1
    for name, want in (("rcp", 1 / a), ("rsqrt", 1 / np.sqrt(a))):
        got = evaluate(f"{name}.approx.ftz.f64 %d, %a;", "f64", ("f64", a))
        assert not (got & np.uint64(0xFFFFFFFF)).any()
        np.testing.assert_allclose(got.view(np.float64), want, rtol=2.0**-20)
