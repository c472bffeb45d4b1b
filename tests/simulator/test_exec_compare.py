"""Comparisons and selections."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

from tests.simulator.harness import assert_bits, canonical, evaluate, half_edges, half_values, integers, pairs, singles

Array = np.ndarray[Any, np.dtype[Any]]
# The references themselves cast signalling NaN.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
ORDERED = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
TO_BITS = ".reg .pred %p, %q; {} selp.b32 %d, 1, 0, %p;"


def holds(name: str, a: Array, b: Array) -> Array:
    """The comparison by the table of the PTX ISA: plain forms are false for NaN, u forms true."""
    nan = np.isnan(a) | np.isnan(b)
    if name in ("num", "nan"):
        return nan if name == "nan" else ~nan
    if name.endswith("u"):
        return np.asarray(nan | ORDERED[name[:-1]](a, b))
    return np.asarray(~nan & ORDERED[name](a, b))


@pytest.mark.parametrize("name", [*ORDERED, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"])
@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
def test_float_comparisons_know_nan(name: str, kind: str) -> None:
    if kind in ("f32", "f64"):
        a, b = pairs(singles(), singles(1))
        a, b = (a, b) if kind == "f32" else (a.astype(np.float64), b.astype(np.float64))
        values = (a, b)
    else:
        a, b = pairs(half_edges(kind), half_edges(kind, 1))
        values = half_values(a, kind), half_values(b, kind)
    storage = kind if kind[0] == "f" and kind != "f16" else "b16"
    got = evaluate(TO_BITS.format(f"setp.{name}.{kind} %p, %a, %b;"), "u32", (storage, a), (storage, b))
    assert_bits(got, holds(name, *values).astype(np.uint32), a, b)


@pytest.mark.parametrize("kind", ["s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("name", ORDERED)
def test_integer_comparisons_mind_the_sign(name: str, kind: str) -> None:
    a, b = pairs(integers(kind), integers(kind, 1))
    got = evaluate(TO_BITS.format(f"setp.{name}.{kind} %p, %a, %b;"), "u32", (kind, a), (kind, b))
    assert_bits(got, ORDERED[name](a, b).astype(np.uint32), a, b)


@pytest.mark.parametrize("combine", ["and", "or", "xor"])
@pytest.mark.parametrize("negated", ["", "!"])
def test_setp_combines_and_gives_the_complement_beside(combine: str, negated: str) -> None:
    a, b = pairs(integers("s32"), integers("s32", 1))
    c = np.arange(len(a), dtype=np.uint32) % 2
    text = (f".reg .pred %p, %q, %r; .reg .b32 %x; setp.ne.s32 %r, %c, 0; "
        f"setp.lt.{combine}.s32 %p|%q, %a, %b, {negated}%r;"
            "selp.b32 %d, 1, 0, %p; selp.b32 %x, 2, 0, %q; or.b32 %d, %d, %x;")  # fmt: skip
    got = evaluate(text, "u32", ("s32", a), ("s32", b), ("u32", c))
    condition = (c != 0) ^ bool(negated)
    how = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[combine]
    want = how(a < b, condition) + 2 * how(a >= b, condition)
    assert_bits(got, want.astype(np.uint32), a, b, c)


def test_setp_of_pairs_gives_one_predicate_per_half() -> None:
    low, high = pairs(half_edges("f16"), half_edges("f16", 1))
    a, b = (x.astype(np.uint32) | (y.astype(np.uint32) << 16) for x, y in ((low, high), (high, low)))
    text = (
        ".reg .pred %p, %q; .reg .b32 %x; setp.lt.f16x2 %p|%q, %a, %b; selp.b32 %d, 1, 0, %p; "
        "selp.b32 %x, 2, 0, %q; or.b32 %d, %d, %x;"
    )
    got = evaluate(text, "u32", ("b32", a), ("b32", b))
    lower, upper = half_values(low, "f16"), half_values(high, "f16")
    assert_bits(got, ((lower < upper) + 2 * (upper < lower)).astype(np.uint32), low, high)


def test_set_gives_all_ones_or_one() -> None:
    a, b = pairs(singles(), singles(1))
    got = evaluate("set.lt.u32.f32 %d, %a, %b;", "u32", ("f32", a), ("f32", b))
    assert_bits(got, np.where(a < b, np.uint32(0xFFFFFFFF), np.uint32(0)), a, b)
    got = evaluate("set.lt.f32.f32 %d, %a, %b;", "f32", ("f32", a), ("f32", b))
    assert_bits(got, (a < b).astype(np.float32), a, b)


def test_selp_and_slct_choose_by_element() -> None:
    a, b = pairs(integers("s32"), integers("s32", 1))
    c = np.resize(singles(), len(a))
    got = evaluate(".reg .pred %p; setp.lt.s32 %p, %a, %b; selp.s32 %d, %a, %b, !%p;", "s32", ("s32", a), ("s32", b))
    assert_bits(got, np.where(a < b, b, a), a, b)
    got = evaluate("slct.s32.f32 %d, %a, %b, %c;", "s32", ("s32", a), ("s32", b), ("f32", c))
    assert_bits(got, np.where(c >= 0, a, b), a, b, c)


@pytest.mark.parametrize("what", ["finite", "infinite", "number", "notanumber", "normal", "subnormal"])
def test_testp_classifies(what: str) -> None:
    a = singles()
    magnitude, nan = np.abs(a), np.isnan(a)
    normal = np.isfinite(a) & (magnitude >= 2.0**-126)
    want = {"finite": np.isfinite(a), "infinite": np.isinf(a), "number": ~nan, "notanumber": nan, "normal": normal,
            "subnormal": np.isfinite(a) & ~normal & (a != 0)}[what]  # fmt: skip
    got = evaluate(TO_BITS.format(f"testp.{what}.f32 %p, %a;"), "u32", ("f32", a))
    assert_bits(got, want.astype(np.uint32), a)


def test_copysign_takes_the_sign_of_its_first_source() -> None:
    a, b = pairs(singles(), singles(1))
    b = np.where(np.isnan(b), np.float32(1), b)
    got = evaluate("copysign.f32 %d, %a, %b;", "f32", ("f32", a), ("f32", b))
    assert_bits(got, canonical(np.copysign(b, a)), a, b)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["eq", "gtu", "nan"])
def test_set_of_halves_gives_one_or_all_ones(name: str, kind: str) -> None:
    a, b = pairs(half_edges(kind), half_edges(kind, 1))
    want = holds(name, half_values(a, kind), half_values(b, kind))
    one = {"f16": 0x3C00, "bf16": 0x3F80}[kind]
    got = evaluate(f"set.{name}.{kind}.{kind} %d, %a, %b;", "b16", ("b16", a), ("b16", b))
    assert_bits(got, np.where(want, one, 0).astype(np.uint16), a, b)
    got = evaluate(f"set.{name}.s32.{kind} %d, %a, %b;", "s32", ("b16", a), ("b16", b))
    assert_bits(got, np.where(want, 0xFFFFFFFF, 0).astype(np.uint32), a, b)


@pytest.mark.parametrize("result", ["same", "u32"])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_set_of_pairs_of_halves_compares_each(kind: str, result: str) -> None:
    a, b = pairs(half_edges(kind), half_edges(kind, 1))
    both = [np.stack([x, x[::-1]], axis=-1).reshape(-1).view(np.uint32) for x in (a, b)]
    less = holds("lt", half_values(a, kind), half_values(b, kind))
    true = 0xFFFF if result == "u32" else {"f16": 0x3C00, "bf16": 0x3F80}[kind]
    want = np.where(np.stack([less, less[::-1]], axis=-1), true, 0).astype(np.uint16).reshape(-1).view(np.uint32)
    to = f"{kind}x2" if result == "same" else result
    got = evaluate(f"set.lt.{to}.{kind}x2 %d, %a, %b;", "b32", ("b32", both[0]), ("b32", both[1]))
    assert_bits(got, want, *both)
