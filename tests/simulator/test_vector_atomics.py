"""atom and red on vectors in global memory."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mosaic_gpu.errors import UnsupportedError
from tests.simulator.harness import launch

START = """.reg .b32 %r<20>; .reg .b16 %h<20>; .reg .b64 %a<9>; mov.u32 %r0, %tid.x; ld.param.u64 %a0, [p0];
    ld.param.u64 %a1, [p1];
    and.b32 %r1, %r0, 3; mad.wide.u32 %a2, %r1, 16, %a0; mad.wide.u32 %a3, %r0, 16, %a1;
"""


@pytest.mark.parametrize("word", ["red", "atom"])
def test_floats_are_added(word: str) -> None:
    x = np.random.default_rng(0).integers(-99, 99, (32, 4)).astype(np.float32)
    total = np.zeros((4, 4), np.float32)
    result = "{%r6, %r7, %r8, %r9}, " if word == "atom" else ""
    body = START + "ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%a3];"
    body += f"{word}.global.v4.f32.add {result}[%a2], {{%r2, %r3, %r4, %r5}};"
    if word == "atom":
        body += "st.global.v4.b32 [%a3], {%r6, %r7, %r8, %r9};"
    before = x.copy()
    launch(body, [total, x])
    np.testing.assert_array_equal(total, before.reshape(8, 4, 4).sum(0))
    if word == "atom":
        np.testing.assert_array_equal(x.reshape(8, 4, 4), before.reshape(8, 4, 4).cumsum(0) - before.reshape(8, 4, 4))


@pytest.mark.parametrize(("kind", "dtype"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
@pytest.mark.parametrize("name", ["add", "max"])
@pytest.mark.parametrize("pairs", [False, True])
def test_halves(kind: str, dtype: Any, name: str, pairs: bool) -> None:
    x = np.random.default_rng(0).integers(-9, 9, (32, 8)).astype(dtype)
    total = np.zeros((4, 8), dtype)
    body = START + "ld.global.v4.b32 {%r2, %r3, %r4, %r5}, [%a3];"
    if pairs:
        body += f"red.global.{name}.noftz.v4.{kind}x2 [%a2], {{%r2, %r3, %r4, %r5}};"
    else:
        body += "".join(f"mov.b32 {{%h{2 * i}, %h{2 * i + 1}}}, %r{i + 2};" for i in range(4))
        body += f"red.global.v8.{kind}.{name}.noftz [%a2], {{%h0, %h1, %h2, %h3, %h4, %h5, %h6, %h7}};"
    launch(body, [total, x])
    parts = x.astype(np.float64).reshape(8, 4, 8)
    want = parts.sum(0) if name == "add" else np.maximum(parts.max(0), 0)
    np.testing.assert_array_equal(total.astype(np.float64), want)


def test_vectors_in_shared_memory_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="this vector"):
        launch(START + "red.shared.v2.f32.add [%r0], {%r1, %r1};", [np.zeros(4), np.zeros(4)])
