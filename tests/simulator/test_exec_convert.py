"""Conversions, against exact rational rounding, NumPy and ml_dtypes."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.simulator import reference
from tests.simulator.harness import (
    F64_EDGES,
    assert_bits,
    canonical,
    evaluate,
    half_edges,
    half_values,
    integers,
    pairs,
    singles,
)
from tests.simulator.test_exec_arithmetic import half_bits

Array = np.ndarray[Any, np.dtype[Any]]
# The references themselves cast signalling NaN.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
INTEGERS = ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"]
FLOATS = ["f16", "bf16", "f32", "f64"]
STORAGE = {"f16": "b16", "bf16": "b16"}


def numbers(kind: str, seed: int = 0) -> tuple[Array, list[float]]:
    """(what is stored, its values as floats)."""
    if kind in STORAGE:
        bits = half_edges(kind, seed)
        return bits, half_values(bits, kind).tolist()
    extra = np.array(
        [0.5, 1.5, 2.5, -0.5, 126.5, 127.5, 255.5, -128.5, 65535.5, 2.0**31, -(2.0**31), 2.0**63, 2.0**32, 1e20]
    )
    stored = (
        np.concatenate([singles(seed), extra.astype(np.float32)])
        if kind == "f32"
        else np.concatenate([F64_EDGES, extra])
    )
    return stored, stored.astype(np.float64).tolist()


def rounded_to(values: list[float], kind: str, mode: str) -> Array:
    """Values rounded to a float type, as float64."""
    return np.array(
        [v if v == 0 or not math.isfinite(v) else reference.round_fraction(Fraction(v), kind, mode) for v in values]
    )


def bits_of(values: Array, kind: str) -> Array:
    """The bits of values that the type holds exactly."""
    if kind in STORAGE:
        return half_bits(values, kind)
    return canonical(values) if kind == "f32" else values.view(np.uint64)


@pytest.mark.parametrize("to", INTEGERS)
@pytest.mark.parametrize("of", INTEGERS)
def test_integers_extend_and_truncate(to: str, of: str) -> None:
    a = integers(of)
    target = np.dtype(("i" if to[0] == "s" else "u") + str(int(to[1:]) // 8))
    wide = to if to[1:] != "8" else f"{to[0]}16"
    stored = a.astype(np.int16 if of == "s8" else np.uint16) if of[1:] == "8" else a
    got = evaluate(f"cvt.{to}.{of} %d, %a;", wide, (of if of[1:] != "8" else f"{of[0]}16", stored))
    assert_bits(got, a.astype(target).astype(f"{target.kind}{int(wide[1:]) // 8}"), a)


@pytest.mark.parametrize("to", ["s16", "u16", "s32", "u32"])
@pytest.mark.parametrize("of", ["s32", "u32", "s64", "u64"])
def test_sat_clamps_integers(to: str, of: str) -> None:
    a = integers(of)
    limits = np.iinfo(np.dtype(("i" if to[0] == "s" else "u") + str(int(to[1:]) // 8)))
    got = evaluate(f"cvt.sat.{to}.{of} %d, %a;", to, (of, a))
    want = [min(max(int(x), int(limits.min)), int(limits.max)) for x in a]
    assert_bits(got, np.array(want, limits.dtype), a)


@pytest.mark.parametrize("of", FLOATS)
@pytest.mark.parametrize("to", ["s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
def test_floats_to_integers_saturate(mode: str, to: str, of: str) -> None:
    stored, values = numbers(of)
    width = int(to[1:])
    low, high = (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if to[0] == "s" else (0, 2**width - 1)
    # PTX ISA, cvt: NaN becomes 0 unless one of the types has 64 bits; then it is 1 << (width - 1).
    nan = 1 << (width - 1) if of == "f64" or width == 64 else 0
    whole: Any = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[mode]
    want = []
    for v in values:
        if math.isnan(v):
            want.append(nan)
        elif math.isinf(v):
            want.append(high if v > 0 else low)
        else:
            want.append(min(max(whole(Fraction(v)), low), high))
    got = evaluate(f"cvt.{mode}.{to}.{of} %d, %a;", to, (STORAGE.get(of, of), stored))
    unsigned = np.array([w & (2**width - 1) for w in want], np.uint64).astype(f"u{width // 8}")
    assert_bits(got, unsigned, np.array(values))


@pytest.mark.parametrize("of", ["s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("to", FLOATS)
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_integers_to_floats_round_once(mode: str, to: str, of: str) -> None:
    a = integers(of)
    if int(of[1:]) == 64:
        a = np.concatenate(
            [a, (np.array([2**53 + 1, 2**53 + 3, 2**62 + 2**38 + 1, 2**40 + 2**16 + 1]).astype(a.dtype))]
        )
    want = np.array([reference.round_fraction(Fraction(int(x)), to, mode) if x else 0.0 for x in a])
    got = evaluate(f"cvt.{mode}.{to}.{of} %d, %a;", STORAGE.get(to, to), (of, a))
    assert_bits(got, bits_of(want, to), a)


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize(
    ("to", "of"), [("f32", "f64"), ("f16", "f32"), ("bf16", "f32"), ("f16", "f64"), ("bf16", "f64")]
)
def test_narrowing_rounds_once(mode: str, to: str, of: str) -> None:
    stored, values = numbers(of)
    if of == "f64":
        ties = [
            1 + 2.0**-8 + 2.0**-40,
            1 + 2.0**-24 + 2.0**-50,
            1 + 2.0**-11 + 2.0**-45,
            1 + 3 * 2.0**-8,
            2.0**-133 * 0.5,
        ]
        stored = np.concatenate([stored, ties, [-t for t in ties]])
        values = stored.tolist()
    got = evaluate(f"cvt.{mode}.{to}.{of} %d, %a;", STORAGE.get(to, to), (of, stored))
    assert_bits(got, bits_of(rounded_to(values, to, mode), to), stored)


@pytest.mark.parametrize(
    ("to", "of"), [("f64", "f32"), ("f32", "f16"), ("f32", "bf16"), ("f64", "f16"), ("f64", "bf16")]
)
def test_widening_is_exact(to: str, of: str) -> None:
    stored, values = numbers(of)
    got = evaluate(f"cvt.{to}.{of} %d, %a;", to, (STORAGE.get(of, of), stored))
    if to == "f64":
        np.testing.assert_array_equal(got.view(np.float64), values)
    else:
        assert_bits(got, canonical(np.array(values)), stored)


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
def test_rounding_to_whole_numbers_keeps_the_type_and_signed_zeros(kind: str, mode: str) -> None:
    stored, values = numbers(kind)
    whole = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}[mode]
    got = evaluate(f"cvt.{mode}.{kind}.{kind} %d, %a;", STORAGE.get(kind, kind), (STORAGE.get(kind, kind), stored))
    want = whole(np.array(values))
    if kind == "f64":
        np.testing.assert_array_equal(got.view(np.float64), want)
        np.testing.assert_array_equal(np.signbit(got.view(np.float64)), np.signbit(want))
    else:
        assert_bits(got, bits_of(want, kind), stored)


def test_sat_and_ftz_of_a_float_conversion() -> None:
    a = singles()
    got = evaluate("cvt.sat.f32.f32 %d, %a;", "f32", ("f32", a))
    want = np.where(np.isnan(a), np.float32(0), np.clip(a, 0, 1)) + np.float32(0)
    assert_bits(got, want.astype(np.float32), a)
    got = evaluate("cvt.rni.ftz.f32.f32 %d, %a;", "f32", ("f32", a))
    assert_bits(got, canonical(np.rint(a)), a)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rn.relu"])
def test_packed_conversion_puts_the_first_source_above(kind: str, mode: str) -> None:
    a, b = pairs(singles(), singles(1))
    got = evaluate(f"cvt.{mode}.{kind}x2.f32 %d, %a, %b;", "b32", ("f32", a), ("f32", b))
    for source, shift in ((a, 16), (b, 0)):
        value = np.where(source <= 0, np.float32(0), source) if "relu" in mode else source
        want = bits_of(rounded_to(value.astype(np.float64).tolist(), kind, mode[:2]), kind)
        assert_bits(((got >> shift) & 0xFFFF).astype(np.uint16), want, source)


@pytest.mark.parametrize(("kind", "dtype"), [("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2)])
def test_fp8_saturates_and_packs(kind: str, dtype: Any) -> None:
    a, b = pairs(np.concatenate([singles(), np.linspace(-500, 500, 60).astype(np.float32)]), singles(1))
    most = np.float32(ml_dtypes.finfo(dtype).max)
    for relu in ("", ".relu"):
        got = evaluate(f"cvt.rn.satfinite{relu}.{kind}x2.f32 %d, %a, %b;", "b16", ("f32", a), ("f32", b))
        for source, shift in ((a, 8), (b, 0)):
            value = np.clip(np.where(source <= 0, np.float32(0), source) if relu else source, -most, most)
            want = np.where(np.isnan(value), np.uint8(0x7F), value.astype(dtype).view(np.uint8))
            assert_bits(((got >> shift) & 0xFF).astype(np.uint8), want, source)


@pytest.mark.parametrize(("kind", "dtype"), [("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2)])
def test_fp8_widens_to_pairs_of_f16_and_back(kind: str, dtype: Any) -> None:
    every = np.arange(256, dtype=np.uint8)
    pair = every.astype(np.uint16) | (np.roll(every, 7).astype(np.uint16) << 8)
    got = evaluate(f"cvt.rn.f16x2.{kind}x2 %d, %a;", "b32", ("b16", pair))
    for octets, shift in ((every, 0), (np.roll(every, 7), 16)):
        want = half_bits(octets.view(dtype).astype(np.float64), "f16")
        assert_bits(((got >> shift) & 0xFFFF).astype(np.uint16), want, octets)
    back = evaluate(f"cvt.rn.satfinite.{kind}x2.f16x2 %d, %a;", "b16", ("b32", got))
    finite = np.isfinite(every.view(dtype).astype(np.float32))
    assert_bits((back & 0xFF).astype(np.uint8)[finite], every[finite], every[finite])


@pytest.mark.parametrize("mode", ["rna", "rn", "rz"])
def test_tf32_keeps_ten_bits_of_fraction(mode: str) -> None:
    a = singles(count=200)
    got = evaluate(f"cvt.{mode}.tf32.f32 %d, %a;", "b32", ("f32", a)).view(np.float32)
    for value, result in zip(a.tolist(), got.tolist(), strict=True):
        if not math.isfinite(value) or value == 0 or abs(value) > 3.4e38:
            continue
        quantum = Fraction(2) ** (max(math.frexp(value)[1], -125) - 11)
        scaled = abs(Fraction(value)) / quantum
        whole = {"rz": math.floor(scaled), "rn": round(scaled), "rna": math.floor(scaled + Fraction(1, 2))}[mode]
        assert abs(Fraction(result)) == whole * quantum, (value, result)
