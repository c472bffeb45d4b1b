"""Cache policies and hints change nothing, and their operands are not taken for data."""

from __future__ import annotations

import numpy as np

from tests.simulator.harness import launch


def test_policies_are_made_and_given() -> None:
    body = """.reg .b32 %r<9>; .reg .b64 %a<4>, %c<3>; mov.u32 %r0, %tid.x; ld.param.u64 %a0, [p0];
    ld.param.u64 %a1, [p1];
    mad.wide.u32 %a2, %r0, 16, %a0; mad.wide.u32 %a3, %r0, 16, %a1; mov.u32 %r6, s; mad.lo.u32 %r6, %r0, 16, %r6;
    createpolicy.fractional.L2::evict_first.b64 %c0, 1.0;
    createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 %c1;
    ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%r1, %r2, %r3, %r4}, [%a2], %c0;
    cp.async.cg.shared.global.L2::cache_hint.L2::128B [%r6], [%a2], 16, %c0; cp.async.wait_all;
    ld.shared.u32 %r5, [%r6+4]; add.u32 %r1, %r1, %r5;
    st.global.L2::cache_hint.v4.u32 [%a3], {%r1, %r2, %r3, %r4}, %c1;
    red.global.add.L2::cache_hint.u32 [%a3+4], 7, %c1;"""
    x, out = np.arange(128, dtype=np.uint32).reshape(32, 4), np.zeros((32, 4), np.uint32)
    launch(body, [x, out], declarations=".shared .align 16 .b8 s[512];")
    want = x + np.array([0, 7, 0, 0], np.uint32)
    want[:, 0] += x[:, 1]
    np.testing.assert_array_equal(out, want)
