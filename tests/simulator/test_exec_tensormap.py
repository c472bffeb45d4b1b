"""Tensor maps that a kernel patches itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mosaic_gpu.errors import SimulationError, UnsupportedError
from mosaic_gpu.simulator import load
from mosaic_gpu.simulator.tensor_map import TensorMap
from tests.simulator.harness import HEADER

Array = np.ndarray[Any, np.dtype[Any]]
PARAMS = ".param .align 64 .b8 p0[128], .param .u64 p1, .param .u64 p2, .param .u64 p3"
START = """.reg .b32 %r<40>; .reg .b64 %a<20>, %m; .reg .pred %p<9>; mov.u32 %r0, %tid.x; mov.u32 %r1, s;
    setp.eq.u32 %p0, %r0, 0; mov.b64 %m, p0; cvta.param.u64 %m, %m; ld.param.u64 %a1, [p1]; ld.param.u64 %a2, [p2];
    ld.param.u64 %a3, [p3]; @%p0 mbarrier.init.shared.b64 [%r1+1024], 1; bar.sync 0;
    // The map goes to shared memory, 4 bytes a lane.
    mul.wide.u32 %a4, %r0, 4; add.u64 %a4, %a4, %m; ld.param.u32 %r2, [%a4]; mad.lo.u32 %r3, %r0, 4, %r1;
    st.shared.u32 [%r3], %r2; bar.sync 0;
"""
COPY = """tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%a3], [%r1], 128;
    fence.proxy.tensormap::generic.acquire.gpu [%a3], 128;
"""
LOAD = """@%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r1+1024], 256;
    @%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
    [%r1+2048], [%a3, {4, 1}], [%r1+1024];
    W: mbarrier.try_wait.parity.shared.b64 %p1, [%r1+1024], 0; @!%p1 bra W;
    mad.lo.u32 %r4, %r0, 8, %r1; ld.shared.v2.u32 {%r5, %r6}, [%r4+2048]; mad.wide.u32 %a2, %r0, 8, %a2;
    st.global.v2.u32 [%a2], {%r5, %r6};
"""


def run(patch: str, first: Array, second: Array, *, copy: str = COPY) -> Array:
    """Loads a box of 8 x 8 (or what the patch makes of it) of words through the patched map of `first`."""
    out, kept = np.zeros(64, np.uint32), np.zeros(128, np.uint8)
    tensor = TensorMap(first, 4, first.shape[::-1], first.strides[-2::-1], (8, 8), 0)
    text = f"{HEADER}.shared .align 128 .b8 s[4096];.visible .entry k({PARAMS}) {{{START}{patch}{copy}{LOAD} ret; }}"
    load(text).launch("k", 1, 32, [tensor, second, out, kept])
    return out


def words(name: str, operands: str, kind: str = "b32") -> str:
    return f"@%p0 tensormap.replace.tile.{name}.shared::cta.b1024.{kind} [%r1], {operands};\n"


def test_the_array_and_its_shape_are_replaced() -> None:
    first, second = np.zeros((10, 16), np.uint32), np.arange(9 * 20, dtype=np.uint32).reshape(9, 20)
    patch = words("global_address", "%a1", "b64") + words("global_dim", "0, 10") + words("global_dim", "1, 6")
    patch += "mov.b64 %a5, 80;" + words("global_stride", "0, %a5", "b64") + "bar.sync 0;"
    want = np.zeros((8, 8), np.uint32)
    want[:5, :6] = second[1:6, 4:10]
    np.testing.assert_array_equal(run(patch, first, second).reshape(8, 8), want)


def test_the_box_the_strides_and_the_fill_are_replaced() -> None:
    first = np.arange(20 * 16, dtype=np.uint32).reshape(20, 16).astype(np.float32)
    patch = words("box_dim", "0, 4") + words("box_dim", "1, 32") + words("element_stride", "1, 2")
    patch += words("elemtype", "7") + words("fill_mode", "1") + words("rank", "1") + words("swizzle_mode", "0")
    out = (
        run(patch + words("interleave_layout", "0") + "bar.sync 0;", first, np.zeros(1)).view(np.float32).reshape(16, 4)
    )
    np.testing.assert_array_equal(out[:10], first[1:21:2, 4:8])
    assert np.isnan(out[10:]).all()


def test_a_map_in_shared_memory_is_copied_by_lanes_too() -> None:
    first, second = np.zeros((10, 16), np.uint32), np.arange(160, dtype=np.uint32).reshape(10, 16)
    copy = """ld.shared.u32 %r2, [%r3]; mad.wide.u32 %a6, %r0, 4, %a3; st.global.u32 [%a6], %r2; bar.sync 0;
    @%p0 tensormap.replace.tile.global_address.global.b1024.b64 [%a3], %a1;
    fence.proxy.tensormap::generic.acquire.gpu [%a3], 128;"""
    out = run("", first, second, copy=copy)
    np.testing.assert_array_equal(out.reshape(8, 8), second[1:9, 4:12])


def test_a_patched_map_that_breaks_a_rule_is_an_error_of_the_copy() -> None:
    first = np.zeros((10, 16), np.uint32)
    with pytest.raises(
        SimulationError, match=r"a box whose innermost dimension takes a multiple of 16[\s\S]*cp\.async"
    ):
        run(words("box_dim", "0, 5") + "bar.sync 0;", first, np.zeros(1))
    with pytest.raises(UnsupportedError, match=r"cp\.async\.bulk.*interleaved"):
        run(words("interleave_layout", "1") + "bar.sync 0;", first, np.zeros(1))


@pytest.mark.parametrize("patch", [words("nothing", "1"), words("rank", "1").replace("tile", "im2col")])
def test_what_is_not_known_is_refused(patch: str) -> None:
    with pytest.raises(UnsupportedError, match=r"tensormap\.replace"):
        run(patch, np.zeros((10, 16), np.uint32), np.zeros(1))


def test_an_ordinal_out_of_range_is_an_error() -> None:
    with pytest.raises(SimulationError, match="a constant below 4 expected"):
        run(words("global_stride", "4, %a1", "b64"), np.zeros((10, 16), np.uint32), np.zeros(1))
