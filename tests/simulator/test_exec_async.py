"""cp.async lands when it is waited for."""

from __future__ import annotations

import numpy as np
import pytest

from mosaic_gpu.errors import SimulationError
from tests.simulator.harness import launch

SHARED = ".shared .align 16 .b8 s[4096];"
START = """.reg .b32 %r<9>; .reg .b64 %a<9>; .reg .pred %p<4>; ld.param.u64 %a0, [p0]; ld.param.u64 %a1, [p1];
    mov.u32 %r0, %tid.x;
mov.u32 %r1, s; mad.wide.u32 %a2, %r0, 16, %a0; mad.lo.u32 %r2, %r0, 16, %r1; mad.wide.u32 %a3, %r0, 4, %a1;"""


def test_a_copy_is_there_after_its_wait_and_not_before() -> None:
    x, out = np.arange(128, dtype=np.uint32), np.zeros(32, np.uint32)
    copy = "cp.async.cg.shared.global [%r2], [%a2], 16; cp.async.commit_group;\n"
    read = "ld.shared.u32 %r3, [%r2+8]; st.global.u32 [%a3], %r3;"
    launch(START + copy + "cp.async.wait_group 0;" + read, [x, out], declarations=SHARED)
    np.testing.assert_array_equal(out, x[2::4])
    launch(START + copy + "cp.async.wait_all;" + read, [x, out], declarations=SHARED)
    with pytest.raises(SimulationError, match="4 bytes that an asynchronous copy has yet to write: byte 8"):
        launch(START + copy + read, [x, out], declarations=SHARED)
    with pytest.raises(SimulationError, match="has yet to write"):
        launch(START + copy + "cp.async.wait_group 1;" + read, [x, out], declarations=SHARED)


def test_an_older_group_lands_while_the_younger_flies() -> None:
    x, out = np.arange(256, dtype=np.uint32), np.zeros(32, np.uint32)
    body = (
        START
        + """cp.async.ca.shared.global [%r2], [%a2], 4; cp.async.commit_group;
    cp.async.ca.shared.global.L2::128B [%r2+1024], [%a2+512], 8; cp.async.commit_group; cp.async.wait_group 1;"""
    )
    launch(body + "ld.shared.u32 %r3, [%r2]; st.global.u32 [%a3], %r3;", [x, out], declarations=SHARED, races=False)
    np.testing.assert_array_equal(out, x[:128:4])
    with pytest.raises(SimulationError, match="has yet to write: byte 1024"):
        launch(body + "ld.shared.u32 %r3, [%r2+1024];", [x, out], declarations=SHARED, races=False)


def test_bytes_beyond_the_source_size_are_zero_and_not_read() -> None:
    x, out = np.arange(1, 41, dtype=np.uint32), np.zeros(16, np.uint32)
    body = (
        START
        + """setp.lt.u32 %p0, %r0, 10; selp.b32 %r4, 16, 0, %p0; setp.eq.u32 %p1, %r0, 3;
    selp.b32 %r4, 4, %r4, %p1;
    cp.async.cg.shared.global [%r2], [%a2], 16, %r4; cp.async.commit_group; cp.async.wait_group 0;
    ld.shared.v2.u32 {%r3, %r5}, [%r2];
    add.u32 %r3, %r3, %r5; st.global.u32 [%a3], %r3;"""
    )
    launch(body, [x, out], block=16, declarations=SHARED)
    want = np.zeros(16, np.uint32)
    want[:10] = x[::4] + x[1::4]
    want[3] = x[12]
    np.testing.assert_array_equal(out, want)


def test_a_copy_past_the_end_of_its_source_is_found() -> None:
    with pytest.raises(
        SimulationError, match=r"out-of-bounds asynchronous copy from global memory: 16 bytes at byte 160"
    ):
        launch(
            START + "cp.async.cg.shared.global [%r2], [%a2], 16;",
            [np.zeros(40, np.uint32), np.zeros(1)],
            declarations=SHARED,
        )
