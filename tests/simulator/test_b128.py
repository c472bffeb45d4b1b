"""Registers of 128 bits: moves, loads, stores, exchanges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mosaic_gpu.errors import SimulationError
from tests.simulator.harness import launch

START = """.reg .b32 %r<9>; .reg .b64 %a<9>, %x<9>; .reg .b128 %q<9>; .reg .pred %p<4>; mov.u32 %r0, %tid.x;
    ld.param.u64 %a0, [p0]; ld.param.u64 %a1, [p1]; mad.wide.u32 %a2, %r0, 16, %a0; mad.wide.u32 %a3, %r0, 16, %a1;
"""


def run(body: str, x: Any, **options: Any) -> Any:
    out = np.zeros_like(x)
    launch(START + body, [x, out], block=len(x), declarations=".shared .align 16 .b8 s[1024];", **options)
    return out


@pytest.fixture
def x() -> Any:
    return np.random.default_rng(0).integers(0, 1 << 63, (48, 2)).astype(np.uint64)


def test_loads_moves_and_stores(x: Any) -> None:
    body = """ld.global.b128 %q0, [%a2]; mov.b128 {%x0, %x1}, %q0; mov.b128 %q1, {%x1, %x0}; mov.b128 %q2, %q1;
    and.b32 %r1, %r0, 1; setp.eq.u32 %p0, %r1, 0; @%p0 mov.b128 %q2, %q0; st.global.b128 [%a3], %q2;"""
    out = run(body, x)
    np.testing.assert_array_equal(out[::2], x[::2])
    np.testing.assert_array_equal(out[1::2], x[1::2, ::-1])


def test_values_cross_divergent_code_and_shared_memory(x: Any) -> None:
    body = """ld.global.b128 %q0, [%a2]; mov.u32 %r1, s; mad.lo.u32 %r1, %r0, 16, %r1; rem.u32 %r2, %r0, 3;
    setp.ne.u32 %p0, %r2, 0; @%p0 bra ELSE; mov.b128 {_, %x1}, %q0; mov.b128 %q0, {%x1, 7}; ELSE:
    st.shared.b128 [%r1], %q0; ld.shared.b128 %q3, [%r1]; st.global.b128 [%a3], %q3;"""
    want = x.copy()
    want[::3, 0], want[::3, 1] = x[::3, 1], 7
    np.testing.assert_array_equal(run(body, x), want)


def test_exchange_and_compare_and_swap(x: Any) -> None:
    body = """mov.b64 %x0, 1; cvt.u64.u32 %x1, %r0; add.u64 %x1, %x1, 9;
    mov.b128 %q0, {%x0, %x1}; atom.global.exch.b128 %q1, [%a2], %q0;
    mov.b128 %q2, {%x1, %x1}; atom.global.cas.b128 %q3, [%a2], %q0, %q2; atom.global.cas.b128 %q4, [%a2], %q0, %q1;
    st.global.b128 [%a3], %q1;"""
    before = x.copy()
    np.testing.assert_array_equal(run(body, x), before)
    np.testing.assert_array_equal(x, np.repeat(np.arange(9, 57), 2).reshape(48, 2))


def test_addresses_must_be_multiples_of_sixteen(x: Any) -> None:
    with pytest.raises(SimulationError, match="misaligned global load: 16 bytes at byte 8"):
        run("ld.global.b128 %q0, [%a0+8];", x)
