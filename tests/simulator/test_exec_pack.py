"""cvt.pack against the pseudo-code of the PTX ISA."""

from __future__ import annotations

import numpy as np
import pytest

from tests.simulator.harness import assert_bits, evaluate, integers, pairs


@pytest.mark.parametrize("kind", ["u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"])
def test_two_integers_are_saturated_and_packed(kind: str) -> None:
    small = np.array([-9, -8, -3, -2, -1, 0, 1, 2, 3, 7, 8, 15, 16, 127, 128, 255, 256, 40000], np.int32)
    a, b = pairs(np.concatenate([small, integers("s32")]), small)
    c = np.resize(integers("b32", 5), len(a))
    size = int(kind[1:])
    low, high = (-(1 << size - 1), (1 << size - 1) - 1) if kind[0] == "s" else (0, (1 << size) - 1)
    want = []
    for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True):
        x, y = (min(max(v, low), high) & (1 << size) - 1 for v in (x, y))
        want.append((x << size | y | (z << 2 * size if size < 16 else 0)) & 0xFFFFFFFF)
    if size == 16:
        got = evaluate(f"cvt.pack.sat.{kind}.s32 %d, %a, %b;", "b32", ("s32", a), ("s32", b))
    else:
        got = evaluate(f"cvt.pack.sat.{kind}.s32.b32 %d, %a, %b, %c;", "b32", ("s32", a), ("s32", b), ("b32", c))
    assert_bits(got, np.array(want, np.uint32), a, b, c)
