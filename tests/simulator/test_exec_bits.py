"""Bit operations, against Python's integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.simulator.harness import assert_bits, evaluate, integers, pairs

Array = np.ndarray[Any, np.dtype[Any]]


def words(function: Any, bits: int, *operands: Array) -> Array:
    """A function of unsigned Python integers, element by element."""
    values = [function(*map(int, v)) & ((1 << bits) - 1) for v in zip(*operands, strict=True)]
    return np.array(values, np.uint64).astype(f"u{bits // 8}")


@pytest.mark.parametrize("bits", [16, 32, 64])
@pytest.mark.parametrize(("name", "function"), [("and", int.__and__), ("or", int.__or__), ("xor", int.__xor__)])
def test_logic(name: str, function: Any, bits: int) -> None:
    a, b = pairs(integers(f"b{bits}"), integers(f"b{bits}", 1))
    got = evaluate(f"{name}.b{bits} %d, %a, %b;", f"b{bits}", (f"b{bits}", a), (f"b{bits}", b))
    assert_bits(got, words(function, bits, a, b), a, b)


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_not_and_cnot(bits: int) -> None:
    a = integers(f"b{bits}")
    assert_bits(evaluate(f"not.b{bits} %d, %a;", f"b{bits}", (f"b{bits}", a)), ~a, a)
    assert_bits(evaluate(f"cnot.b{bits} %d, %a;", f"b{bits}", (f"b{bits}", a)), (a == 0).astype(a.dtype), a)


@pytest.mark.parametrize("kind", ["b16", "b32", "b64"])
def test_shl_by_the_width_or_more_is_zero(kind: str) -> None:
    bits = int(kind[1:])
    a, b = pairs(integers(kind), np.array([0, 1, 7, 15, 16, 31, 32, 33, 63, 64, 65, 255, 2**32 - 1], np.uint32))
    got = evaluate(f"shl.{kind} %d, %a, %b;", kind, (kind, a), ("u32", b))
    assert_bits(got, words(lambda x, y: x << min(y, bits), bits, a, b), a, b)


@pytest.mark.parametrize("kind", ["u16", "u32", "u64", "s16", "s32", "s64"])
def test_shr_by_the_width_or_more_keeps_the_sign(kind: str) -> None:
    bits = int(kind[1:])
    a, b = pairs(integers(kind), np.array([0, 1, 7, 15, 16, 31, 32, 33, 63, 64, 65, 255, 2**32 - 1], np.uint32))
    got = evaluate(f"shr.{kind} %d, %a, %b;", kind, (kind, a), ("u32", b))
    assert_bits(got, words(lambda x, y: x >> min(y, bits), bits, a, b), a, b)


def test_shifts_by_a_constant() -> None:
    a = integers("s32")
    for by in (0, 5, 31, 32, 40):
        got = evaluate(f"shr.s32 %d, %a, {by};", "s32", ("s32", a))
        assert_bits(got, words(lambda x, by=by: x >> min(by, 32), 32, a), a)


@pytest.mark.parametrize("mode", ["wrap", "clamp"])
@pytest.mark.parametrize("side", ["l", "r"])
def test_funnel_shift(side: str, mode: str) -> None:
    a, c = pairs(integers("b32"), np.array([0, 1, 31, 32, 33, 64, 100], np.uint32))
    b = np.roll(a, 3)

    def funnel(low: int, high: int, by: int) -> int:
        by = by & 31 if mode == "wrap" else min(by, 32)
        pair = high << 32 | low
        return pair << by >> 32 if side == "l" else pair >> by

    got = evaluate(f"shf.{side}.{mode}.b32 %d, %a, %b, %c;", "b32", ("b32", a), ("b32", b), ("b32", c))
    assert_bits(got, words(funnel, 32, a, b, c), a, b, c)


def test_prmt_picks_bytes_and_copies_signs() -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(0, 2**32, 300, np.uint64).astype(np.uint32) for _ in range(3))

    def permute(x: int, y: int, s: int) -> int:
        data = (y << 32 | x).to_bytes(8, "little")
        out = bytes((0xFF * (data[n & 7] >> 7) if n & 8 else data[n & 7]) for n in (s >> 4 * i & 15 for i in range(4)))
        return int.from_bytes(out, "little")

    got = evaluate("prmt.b32 %d, %a, %b, %c;", "b32", ("b32", a), ("b32", b), ("b32", c))
    assert_bits(got, words(permute, 32, a, b, c), a, b, c)


def test_lop3_is_a_table_of_three_bits() -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(0, 2**32, 30, np.uint64).astype(np.uint32) for _ in range(3))
    for table in (0x00, 0x80, 0x96, 0xE8, 0xCA, 0x1B, 0xFF):

        def look_up(x: int, y: int, z: int, table: int = table) -> int:
            return sum((table >> ((x >> i & 1) * 4 + (y >> i & 1) * 2 + (z >> i & 1)) & 1) << i for i in range(32))

        got = evaluate(f"lop3.b32 %d, %a, %b, %c, {table:#x};", "b32", ("b32", a), ("b32", b), ("b32", c))
        assert_bits(got, words(look_up, 32, a, b, c), a, b, c)


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_bfe_follows_the_pseudo_code(kind: str) -> None:
    bits = int(kind[1:])
    positions = np.array([0, 1, 5, 31, 32, 40, 63, 64, 255], np.uint32)
    a, b, c = pairs(integers(kind)[::2], positions, positions)

    def extract(x: int, start: int, length: int) -> int:
        x &= (1 << bits) - 1
        top = min(start + length - 1, bits - 1)
        sign = 0 if kind[0] == "u" or length == 0 else x >> top & 1
        return sum((x >> (start + i) & 1 if i < length and start + i < bits else sign) << i for i in range(bits))

    got = evaluate(f"bfe.{kind} %d, %a, %b, %c;", kind, (kind, a), ("u32", b), ("u32", c))
    assert_bits(got, words(extract, bits, a, b, c), a, b, c)


@pytest.mark.parametrize("bits", [32, 64])
def test_bfi_inserts_a_field(bits: int) -> None:
    kind = f"b{bits}"
    positions = np.array([0, 1, 5, 31, 32, 40, 63, 64, 255], np.uint32)
    a, c, n = pairs(integers(kind)[::3], positions, positions)
    b = np.roll(a, 11)

    def insert(field: int, base: int, start: int, length: int) -> int:
        for i in range(length):
            if start + i < bits:
                base = base & ~(1 << (start + i)) | (field >> i & 1) << (start + i)
        return base

    operands = [(kind, a), (kind, b), ("u32", c), ("u32", n)]
    got = evaluate(f"bfi.{kind} %d, %a, %b, %c, %e;", kind, *operands)
    assert_bits(got, words(insert, bits, a, b, c, n), a, b, c, n)


@pytest.mark.parametrize("kind", ["u32", "s32", "u64", "s64"])
def test_bfind_gives_the_highest_bit_that_differs_from_the_sign(kind: str) -> None:
    bits = int(kind[1:])
    a = integers(kind)

    def find(x: int) -> int:
        return (~x if x < 0 else x).bit_length() - 1

    assert_bits(evaluate(f"bfind.{kind} %d, %a;", "u32", (kind, a)), words(find, 32, a), a)
    got = evaluate(f"bfind.shiftamt.{kind} %d, %a;", "u32", (kind, a))
    assert_bits(got, words(lambda x: bits - 1 - find(x) if find(x) >= 0 else -1, 32, a), a)


@pytest.mark.parametrize("bits", [32, 64])
def test_counting_and_reversing(bits: int) -> None:
    kind = f"b{bits}"
    a = np.concatenate([integers(kind), np.array([1 << i for i in range(bits)], np.uint64).astype(f"u{bits // 8}")])
    assert_bits(evaluate(f"popc.{kind} %d, %a;", "u32", (kind, a)), words(int.bit_count, 32, a), a)
    assert_bits(evaluate(f"clz.{kind} %d, %a;", "u32", (kind, a)), words(lambda x: bits - x.bit_length(), 32, a), a)
    reverse = words(lambda x: int(f"{x:0{bits}b}"[::-1], 2), bits, a)
    assert_bits(evaluate(f"brev.{kind} %d, %a;", kind, (kind, a)), reverse, a)


@pytest.mark.parametrize("mode", ["wrap", "clamp"])
def test_szext_and_bmsk(mode: str) -> None:
    a, b = pairs(integers("s32"), np.array([0, 1, 8, 31, 32, 33, 200], np.uint32))

    def extend(x: int, width: int) -> int:
        width = width & 31 if mode == "wrap" else min(width, 32)
        x &= (1 << width) - 1
        return x - (1 << width) if width and x >> (width - 1) else x

    assert_bits(evaluate(f"szext.{mode}.s32 %d, %a, %b;", "s32", ("s32", a), ("u32", b)), words(extend, 32, a, b), a, b)
    start = a.view(np.uint32) % 40

    def mask(at: int, width: int) -> int:
        at, width = (at & 31, width & 31) if mode == "wrap" else (min(at, 32), min(width, 32))
        return ((1 << width) - 1) << at

    got = evaluate(f"bmsk.{mode}.b32 %d, %a, %b;", "b32", ("b32", start), ("u32", b))
    assert_bits(got, words(mask, 32, start, b), start, b)


def test_fns_finds_the_nth_set_bit() -> None:
    mask = np.array([0b10110, 0b10110, 0b10110, 0b10110, 0, 1 << 31], np.uint32)
    base = np.array([0, 2, 3, 4, 0, 31], np.uint32)
    offset = np.array([1, 0, 0, -2, 1, 1], np.int32)
    got = evaluate("fns.b32 %d, %a, %b, %c;", "b32", ("b32", mask), ("b32", base), ("s32", offset))
    np.testing.assert_array_equal(got, np.array([1, 2, 2**32 - 1, 2, 2**32 - 1, 31], np.uint32))


@pytest.mark.parametrize("kinds", [("u32", "u32"), ("s32", "s32"), ("s32", "u32"), ("u32", "s32")])
def test_dp4a_sums_four_products(kinds: tuple[str, str]) -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(0, 2**32, 100, np.uint64).astype(np.uint32) for _ in range(3))

    def dot(x: int, y: int, z: int) -> int:
        parts = [
            [int.from_bytes([v >> 8 * i & 255], signed=k[0] == "s") for i in range(4)]
            for v, k in ((x, kinds[0]), (y, kinds[1]))
        ]
        return z + sum(int(p) * int(q) for p, q in zip(*parts, strict=True))

    got = evaluate(f"dp4a.{kinds[0]}.{kinds[1]} %d, %a, %b, %c;", "b32", ("b32", a), ("b32", b), ("b32", c))
    assert_bits(got, words(dot, 32, a, b, c), a, b, c)


def test_sad_adds_the_distance() -> None:
    a, b = pairs(integers("s32"), integers("s32", 1))
    c = np.resize(integers("s32", 2), len(a))
    got = evaluate("sad.s32 %d, %a, %b, %c;", "s32", ("s32", a), ("s32", b), ("s32", c))
    assert_bits(got, words(lambda x, y, z: z + abs(x - y), 32, a, b, c), a, b, c)


@pytest.mark.parametrize("a_type", ["u32", "s32"])
@pytest.mark.parametrize("b_type", ["u32", "s32"])
@pytest.mark.parametrize("mode", ["lo", "hi"])
def test_dp2a_multiplies_halves_with_two_of_the_bytes(mode: str, a_type: str, b_type: str) -> None:
    a, b = pairs(integers("u32"), integers("u32", 1))
    c = a[::-1].copy()
    halves = a.view(np.int16 if a_type == "s32" else np.uint16).reshape(-1, 2).astype(np.int64)
    quarters = b.view(np.int8 if b_type == "s32" else np.uint8).reshape(-1, 4).astype(np.int64)
    chosen = quarters[:, :2] if mode == "lo" else quarters[:, 2:]
    want = ((halves * chosen).sum(axis=1) + c).astype(np.uint32)
    text = f"dp2a.{mode}.{a_type}.{b_type} %d, %a, %b, %c;"
    assert_bits(evaluate(text, "u32", ("u32", a), ("u32", b), ("u32", c)), want, a, b)
