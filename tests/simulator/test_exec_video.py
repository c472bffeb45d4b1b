"""Differences of packed bytes and halves."""

from __future__ import annotations

import numpy as np
import pytest

from tests.simulator.harness import assert_bits, evaluate, integers, pairs


@pytest.mark.parametrize("kind", ["u32", "s32"])
@pytest.mark.parametrize(("count", "bits"), [(4, 8), (2, 16)])
@pytest.mark.parametrize("add", ["", ".add"])
def test_vabsdiff_takes_each_lane_or_adds_them(kind: str, count: int, bits: int, add: str) -> None:
    a, b = pairs(integers("u32"), integers("u32", 1))
    c = b[::-1].copy()
    lane = np.dtype(f"{'i' if kind == 's32' else 'u'}{bits // 8}")
    apart = np.abs(a.view(lane).astype(np.int64) - b.view(lane).astype(np.int64))
    want = apart.astype(f"u{bits // 8}").view(np.uint32)
    if add:
        want = (apart.reshape(-1, count).sum(axis=1) + c).astype(np.uint32)
    text = f"vabsdiff{count}.{kind}.{kind}.{kind}{add} %d, %a, %b, %c;"
    assert_bits(evaluate(text, "u32", ("u32", a), ("u32", b), ("u32", c)), want, a, b)
