"""Stores of several threads to one place."""

from __future__ import annotations

import numpy as np
import pytest

from mosaic_gpu.errors import SimulationError
from tests.simulator.harness import launch

START = """.reg .b32 %r<9>; .reg .b64 %a<4>; .reg .pred %p; mov.u32 %r0, %tid.x; mov.u32 %r1, s; ld.param.u64 %a0, [p0];
    mad.wide.u32 %a1, %r0, 4, %a0; shr.u32 %r2, %r0, 4; mad.lo.u32 %r3, %r2, 8, %r1;
"""
SHARED = ".shared .align 16 .b8 s[256];"
END = "bar.sync 0; ld.shared.u32 %r7, [%r3+4]; st.global.u32 [%a1], %r7;"


def test_threads_that_store_the_same_value_to_one_place_do_not_race() -> None:
    out = np.zeros(128, np.uint32)
    for store in ("st.shared.v2.u32 [%r3], {%r2, %r2};", "st.shared.u32 [%r3+4], %r2;"):
        launch(START + store + END, [out], block=128, declarations=SHARED)
        np.testing.assert_array_equal(out, np.arange(128) // 16)
    launch(START + "st.shared.u32 [%r1+4], 9; bar.sync 0; ld.shared.u32 %r7, [%r1+4]; st.global.u32 [%a1], %r7;",
           [out], block=128, declarations=SHARED)  # fmt: skip
    np.testing.assert_array_equal(out, 9)


@pytest.mark.parametrize("store", ["st.shared.v2.u32 [%r3], {%r2, %r0};", "st.shared.u32 [%r1+4], %r2;"])
def test_threads_that_store_different_values_to_one_place_race(store: str) -> None:
    with pytest.raises(SimulationError, match="race: shared store"):
        launch(START + store + END, [np.zeros(128, np.uint32)], block=128, declarations=SHARED)


def test_a_store_that_another_warp_reads_races_whatever_its_value() -> None:
    body = START + "st.shared.u32 [%r1+4], 9; ld.shared.u32 %r7, [%r1+4]; st.global.u32 [%a1], %r7;"
    with pytest.raises(SimulationError, match="race: shared load"):
        launch(body, [np.zeros(128, np.uint32)], block=128, declarations=SHARED)
