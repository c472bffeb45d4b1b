"""Arithmetic, against exact rational and integer arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mosaic_gpu.errors import SimulationError, UnsupportedError
from mosaic_gpu.simulator import load
from tests.simulator import reference
from tests.simulator.harness import (
    F64_EDGES,
    assert_bits,
    canonical,
    evaluate,
    half_edges,
    half_values,
    integers,
    kernel_text,
    launch,
    pairs,
    singles,
)

Array = np.ndarray[Any, np.dtype[Any]]
INTEGERS = ["s16", "u16", "s32", "u32", "s64", "u64"]


def exact(a: Array, b: Array, function: Any, kind: str) -> Array:
    """An integer function in Python's arithmetic, wrapped to the type."""
    bits = int(kind[1:])
    values = [function(int(x), int(y)) & ((1 << bits) - 1) for x, y in zip(a, b, strict=True)]
    return np.array(values, np.uint64).astype(f"u{bits // 8}")


def truncated(a: int, b: int) -> int:
    """C's quotient; all ones for a division by zero."""
    if b == 0:
        return -1
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


OPERATIONS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "div": truncated,
    "rem": lambda a, b: a - b * truncated(a, b) if b else a,
    "min": min,
    "max": max,
}


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_integer_operations_wrap_like_the_type(name: str, kind: str) -> None:
    a, b = pairs(integers(kind), integers(kind, 1))
    got = evaluate(f"{name}.{kind} %d, %a, %b;", kind, (kind, a), (kind, b))
    assert_bits(got, exact(a, b, OPERATIONS[name], kind), a, b)


@pytest.mark.parametrize("kind", INTEGERS)
def test_mul_hi_is_the_upper_half(kind: str) -> None:
    a, b = pairs(integers(kind), integers(kind, 1))
    got = evaluate(f"mul.hi.{kind} %d, %a, %b;", kind, (kind, a), (kind, b))
    assert_bits(got, exact(a, b, lambda x, y: x * y >> int(kind[1:]), kind), a, b)


@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32"])
def test_mul_wide_and_mad_wide_keep_all_bits(kind: str) -> None:
    wide = f"{kind[0]}{2 * int(kind[1:])}"
    a, b = pairs(integers(kind), integers(kind, 1))
    got = evaluate(f"mul.wide.{kind} %d, %a, %b;", wide, (kind, a), (kind, b))
    assert_bits(got, exact(a, b, lambda x, y: x * y, wide), a, b)
    c = np.resize(integers(wide), len(a))
    got = evaluate(f"mad.wide.{kind} %d, %a, %b, %c;", wide, (kind, a), (kind, b), (wide, c))
    product = exact(a, b, lambda x, y: x * y, wide)
    assert_bits(got, product + c.view(product.dtype), a, b, c)


@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("half", ["lo", "hi"])
def test_mad_adds_to_the_half_of_the_product(kind: str, half: str) -> None:
    a, b = pairs(integers(kind), integers(kind, 1))
    c = np.resize(integers(kind, 2), len(a))
    got = evaluate(f"mad.{half}.{kind} %d, %a, %b, %c;", kind, (kind, a), (kind, b), (kind, c))
    shift = int(kind[1:]) if half == "hi" else 0
    part = exact(a, b, lambda x, y: x * y >> shift, kind)
    assert_bits(got, part + c.view(part.dtype), a, b, c)


def test_saturating_add_stops_at_the_limits() -> None:
    a, b = pairs(integers("s32"), integers("s32", 1))
    for name, function in (("add", np.add), ("sub", np.subtract)):
        got = evaluate(f"{name}.sat.s32 %d, %a, %b;", "s32", ("s32", a), ("s32", b))
        want = np.clip(function(a.astype(np.int64), b), -(2**31), 2**31 - 1).astype(np.int32)
        assert_bits(got, want, a, b)


def test_a_chain_of_carries_adds_128_bits() -> None:
    rng = np.random.default_rng(3)
    a, b, c, d = (rng.integers(0, 2**64, 40, np.uint64) for _ in range(4))
    b[:8], d[:8] = 2**64 - 1, np.arange(8)
    text = ".reg .b64 %low; {name}.cc.u64 %low, %b, %e; {name}c.u64 %d, %a, %c;"
    for name, sign in (("add", 1), ("sub", -1)):
        got = evaluate(text.format(name=name), "u64", *[("u64", x) for x in (a, b, c, d)])
        whole = [((int(w) << 64 | int(x)) + sign * (int(y) << 64 | int(z))) >> 64 & (2**64 - 1)
                 for w, x, y, z in zip(a, b, c, d, strict=True)]  # fmt: skip
        assert_bits(got, np.array(whole, np.uint64), a, b, c, d)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_f32_operations_round_exactly(name: str, mode: str) -> None:
    a, b = pairs(singles(), singles(1))
    got = evaluate(f"{name}.{mode}.f32 %d, %a, %b;", "f32", ("f32", a), ("f32", b))
    assert_bits(got, canonical(reference.operation(name, "f32", a, b, mode=mode)), a, b)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_f32_sqrt_and_rcp_round_exactly(mode: str) -> None:
    a = np.concatenate([singles(count=200), np.abs(singles(5, 200))])
    got = evaluate(f"sqrt.{mode}.f32 %d, %a;", "f32", ("f32", a))
    assert_bits(got, canonical(reference.operation("sqrt", "f32", a, mode=mode)), a)
    got = evaluate(f"rcp.{mode}.f32 %d, %a;", "f32", ("f32", a))
    assert_bits(got, canonical(reference.operation("div", "f32", np.ones_like(a), a, mode=mode)), a)


def hard_fma_operands(seed: int) -> tuple[Array, Array, Array]:
    """Products that end on a tie of float32, and addends far below or next to it."""
    rng = np.random.default_rng(seed)
    a = (1 + rng.integers(0, 2**12, 400) * 2.0**-12).astype(np.float32)
    b = (1 + rng.integers(0, 2**12, 400) * 2.0**-12).astype(np.float32)
    c = (rng.choice([-1, 1, 1 + 2.0**-20], 400) * np.exp2(rng.integers(-149, 30, 400))).astype(np.float32)
    scale = np.exp2(rng.integers(-75, 60, 400)).astype(np.float32)
    return a * scale, b, c


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_f32_fma_rounds_once(mode: str) -> None:
    a, b, c = (
        np.concatenate(x)
        for x in zip(hard_fma_operands(1), pairs(singles()[::3], singles(1)[::3], singles(2)[::3]), strict=True)
    )
    got = evaluate(f"fma.{mode}.f32 %d, %a, %b, %c;", "f32", ("f32", a), ("f32", b), ("f32", c))
    assert_bits(got, canonical(reference.operation("fma", "f32", a, b, c, mode=mode)), a, b, c)


def test_f32_fma_may_write_its_own_addend() -> None:
    a, b, c = hard_fma_operands(2)
    got = evaluate("fma.rn.f32 %c, %a, %b, %c; mov.b32 %d, %c;", "f32", ("f32", a), ("f32", b), ("f32", c))
    assert_bits(got, canonical(reference.operation("fma", "f32", a, b, c)), a, b, c)


def doubles(seed: int) -> Array:
    rng = np.random.default_rng(seed)
    return np.concatenate([F64_EDGES, rng.standard_normal(10) * np.exp2(rng.integers(-40, 40, 10))])


def assert_doubles(got: Array, want: Array, *operands: Array) -> None:
    bits = got.view(np.float64)
    nan = np.isnan(want)
    np.testing.assert_array_equal(np.isnan(bits), nan)
    assert_bits(np.where(nan, 0, got), np.where(nan, 0, want.view(np.uint64)), *operands)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("name", ["add", "mul", "div", "fma"])
def test_f64_operations_round_exactly(name: str, mode: str) -> None:
    a, b = pairs(doubles(1), doubles(2))
    operands = [a, b]
    if name == "fma":
        with np.errstate(all="ignore"):
            c = np.resize(np.concatenate([doubles(3), -a * b]), len(a))
            c[::2] = (-(a * b) * (1 + 2.0**-52))[::2]
        operands.append(c)
    names = ", ".join(f"%{n}" for n in "abc"[: len(operands)])
    got = evaluate(f"{name}.{mode}.f64 %d, {names};", "f64", *[("f64", x) for x in operands])
    assert_doubles(got, reference.operation(name, "f64", *operands, mode=mode), *operands)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
def test_half_operations_round_once(name: str, kind: str) -> None:
    bits = pairs(half_edges(kind), half_edges(kind, 1))
    bits += (np.resize(half_edges(kind, 2), len(bits[0])),) if name == "fma" else ()
    names = ", ".join(f"%{n}" for n in "abc"[: len(bits)])
    got = evaluate(f"{name}.rn.{kind} %d, {names};", "b16", *[("b16", x) for x in bits])
    want = reference.operation(name, kind, *[half_values(x, kind) for x in bits])
    assert_bits(got, half_bits(want, kind), *bits)


def half_bits(values: Array, kind: str) -> Array:
    """The bits of values that the format holds exactly, NaN canonical."""
    upper = (
        values.astype(np.float16).view(np.uint16)
        if kind == "f16"
        else (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    )
    return np.where(np.isnan(values), np.uint16(0x7FFF), upper)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_packed_halves_are_two_operations(kind: str) -> None:
    low = pairs(half_edges(kind), half_edges(kind, 1))
    high = tuple(np.roll(x, 5) for x in low)
    packed = [lower.astype(np.uint32) | (upper.astype(np.uint32) << 16) for lower, upper in zip(low, high, strict=True)]
    got = evaluate(f"mul.rn.{kind}x2 %d, %a, %b;", "b32", ("b32", packed[0]), ("b32", packed[1]))
    for part, shift in ((low, 0), (high, 16)):
        want = half_bits(reference.operation("mul", kind, *[half_values(x, kind) for x in part]), kind)
        assert_bits(((got >> shift) & 0xFFFF).astype(np.uint16), want, *part)


def test_relu_of_a_packed_maximum_drops_negatives() -> None:
    a, b = (np.array(v, np.int16).view(np.uint32) for v in ([-5, 3, -7, -32768], [-2, 4, 6, 5]))
    got = evaluate("max.relu.s16x2 %d, %a, %b;", "b32", ("b32", a), ("b32", b))
    np.testing.assert_array_equal(got.view(np.int16), [0, 4, 6, 5])


def test_relu_of_fma_keeps_nan_and_drops_negatives() -> None:
    a, b = pairs(half_edges("f16"), half_edges("f16", 1))
    c = np.resize(half_edges("f16", 2), len(a))
    got = evaluate("fma.rn.relu.f16 %d, %a, %b, %c;", "b16", ("b16", a), ("b16", b), ("b16", c))
    value = reference.operation("fma", "f16", *[half_values(x, "f16") for x in (a, b, c)])
    assert_bits(got, half_bits(np.where(value <= 0, 0.0, value), "f16"), a, b, c)


def test_ftz_flushes_operands_and_result() -> None:
    a, b = pairs(singles(), singles(1))

    def flush(x: Array) -> Array:
        return np.where(np.abs(x) < 2.0**-126, np.copysign(np.float32(0), x), x).astype(np.float32)

    for name in ("add", "mul"):
        got = evaluate(f"{name}.rn.ftz.f32 %d, %a, %b;", "f32", ("f32", a), ("f32", b))
        rounded = reference.operation(name, "f32", flush(a), flush(b)).astype(np.float32)
        assert_bits(got, canonical(flush(rounded)), a, b)


def test_sat_clamps_to_the_unit_interval_and_nan_to_zero() -> None:
    a, b = pairs(singles(), singles(1))
    got = evaluate("add.sat.f32 %d, %a, %b;", "f32", ("f32", a), ("f32", b))
    total = reference.operation("add", "f32", a, b)
    want = np.where(np.isnan(total), 0.0, np.clip(total, 0.0, 1.0)) + 0.0
    assert_bits(got, want.astype(np.float32), a, b)


@pytest.mark.parametrize("name", ["min", "max"])
@pytest.mark.parametrize("nan", ["", ".NaN"])
def test_float_minimum_orders_zeros_and_treats_nan_as_told(name: str, nan: str) -> None:
    a, b = pairs(singles(), singles(1))
    got = evaluate(f"{name}{nan}.f32 %d, %a, %b;", "f32", ("f32", a), ("f32", b))
    want = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        if np.isnan(x) or np.isnan(y):
            want.append(np.nan if nan or (np.isnan(x) and np.isnan(y)) else y if np.isnan(x) else x)
        else:
            want.append((min if name == "min" else max)((x, np.copysign(1, x)), (y, np.copysign(1, y)))[0])
    assert_bits(got, canonical(np.array(want)), a, b)


def test_negation_and_absolute_value_of_every_type() -> None:
    a = singles()
    assert_bits(evaluate("neg.f32 %d, %a;", "f32", ("f32", a)), canonical(-a), a)
    assert_bits(evaluate("abs.f32 %d, %a;", "f32", ("f32", a)), canonical(np.abs(a)), a)
    h = half_edges("bf16")
    assert_bits(evaluate("neg.bf16 %d, %a;", "b16", ("b16", h)), h ^ np.uint16(0x8000), h)
    assert_bits(evaluate("abs.bf16 %d, %a;", "b16", ("b16", h)), h & np.uint16(0x7FFF), h)
    for kind in ("s16", "s32", "s64"):
        i = integers(kind)
        assert_bits(evaluate(f"neg.{kind} %d, %a;", kind, (kind, i)), (-i).view(f"u{i.itemsize}"), i)
        assert_bits(evaluate(f"abs.{kind} %d, %a;", kind, (kind, i)), np.abs(i).view(f"u{i.itemsize}"), i)


def test_approximate_division_is_within_two_ulp() -> None:
    a, b = pairs(singles(count=30)[len(singles(count=0)) :], singles(1, 30)[len(singles(count=0)) :])
    for name in ("div.approx.f32", "div.full.f32"):
        got = evaluate(f"{name} %d, %a, %b;", "f32", ("f32", a), ("f32", b)).view(np.float32)
        np.testing.assert_allclose(got, a.astype(np.float64) / b, rtol=2.0**-22)


def test_an_unknown_modifier_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match=r"PTX line \d+: .*min\.xorsign\.abs\.f32"):
        load(kernel_text(".reg .f32 %f<3>;\nmin.xorsign.abs.f32 %f0, %f1, %f2;", []))


def test_a_result_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(SimulationError, match=r"PTX line 9: .*does not fit %h"):
        load(kernel_text(".reg .b16 %h;\n.reg .b32 %r;\nadd.s32 %h, %r, %r;", []))


def test_too_few_operands_is_an_error() -> None:
    with pytest.raises(SimulationError, match="3 operands expected, got 2"):
        load(kernel_text(".reg .b32 %r;\nadd.s32 %r, %r;", []))


def test_a_long_chain_of_fma_runs_in_the_order_written() -> None:
    x = np.arange(1, 33, dtype=np.float32)
    body = """
    .reg .b32 %r<2>; .reg .b64 %a; .reg .f32 %f<3>;
    ld.param.u64 %a, [p0]; mov.u32 %r0, %tid.x; mad.wide.u32 %a, %r0, 4, %a; ld.global.f32 %f0, [%a];
    mov.f32 %f1, 0f3F800000;
    fma.rn.f32 %f1, %f1, %f0, 0f40000000; fma.rn.f32 %f1, %f1, %f0, 0f40400000;
    st.global.f32 [%a], %f1;"""
    want = (x + 2) * x + 3
    launch(body, [x])
    np.testing.assert_array_equal(x, want)
