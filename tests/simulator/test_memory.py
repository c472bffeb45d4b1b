"""Memory: what is reached, and what is found out of bounds, misaligned or never written."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mosaic_gpu.errors import SimulationError
from mosaic_gpu.simulator import load
from tests.simulator.harness import HEADER, kernel_text, launch

LANE = ".reg .b32 %t<9>; .reg .b64 %a<9>; .reg .pred %p<4>; mov.u32 %t0, %tid.x; ld.param.u64 %a0, [p0];"


def test_a_store_past_the_end_names_the_buffer_and_the_thread() -> None:
    x = np.zeros(40, np.float32)
    with pytest.raises(SimulationError) as caught:
        launch(LANE + "mad.wide.u32 %a0, %t0, 4, %a0;\nst.global.b32 [%a0], %t0;", [x], block=64)
    text = str(caught.value)
    assert "out-of-bounds global store: 4 bytes at byte 160 of buffer `p0` (160 bytes)" in text
    assert "PTX line 8: st.global.b32" in text
    assert "block (0, 0, 0), thread (40, 0, 0), warp 1, lane 8" in text


def test_a_load_before_the_start_is_found() -> None:
    x, y = np.zeros(8, np.float32), np.zeros(8, np.float32)
    with pytest.raises(SimulationError, match="4 bytes before buffer `p0`"):
        launch(LANE + "ld.global.b32 %t1, [%a0+-4];", [x, y], block=1)


@pytest.mark.parametrize("space", ["global", ""])
def test_one_byte_too_many_of_a_small_array_is_found(space: str) -> None:
    dot = f".{space}" if space else ""
    x = np.zeros(7, np.bool_)
    launch(LANE + f"ld{dot}.u8 %t1, [%a0+6];", [x], block=1)
    with pytest.raises(SimulationError, match=r"out-of-bounds .* at byte 7 of buffer"):
        launch(LANE + f"ld{dot}.u8 %t1, [%a0+7];", [x], block=1)
    with pytest.raises(SimulationError, match=r"out-of-bounds .* 4 bytes at byte 4 of buffer"):
        launch(LANE + f"ld{dot}.u32 %t1, [%a0+4];", [x], block=1)


def test_a_null_pointer_is_out_of_bounds() -> None:
    with pytest.raises(SimulationError, match="out-of-bounds global load: 4 bytes at address 0x0"):
        launch(".reg .b32 %r; .reg .b64 %a; mov.u64 %a, 0; ld.global.b32 %r, [%a];", [np.zeros(1)], block=1)


@pytest.mark.parametrize(("access", "offset"), [("u16", 1), ("b32", 2), ("b64", 4), ("v2.b32", 4), ("v4.b32", 8)])
def test_an_address_must_be_a_multiple_of_the_access(access: str, offset: int) -> None:
    items = {"v": "{%t1, %t2}", "4": "{%t1, %t2, %t3, %t4}"}
    target = items["4"] if "v4" in access else items["v"] if "v2" in access else "%a2" if access == "b64" else "%t1"
    x = np.zeros(64, np.uint8)
    with pytest.raises(SimulationError, match=rf"misaligned global load: \d+ bytes at byte {offset} of buffer `p0`"):
        launch(LANE + f"ld.global.{access} {target}, [%a0+{offset}];", [x], block=1)


def test_shared_memory_must_be_written_before_it_is_read() -> None:
    shared = ".shared .align 16 .b8 s[256];"
    good = (
        "mov.u32 %t1, s; mad.lo.u32 %t1, %t0, 4, %t1; st.shared.b32 [%t1], %t0; bar.sync 0; ld.shared.b32 %t2, [%t1];"
    )
    launch(LANE + good, [np.zeros(1)], declarations=shared)
    bad = (
        "mov.u32 %t1, s; mad.lo.u32 %t1, %t0, 4, %t1; setp.ne.u32 %p0, %t0, 9; "
        "@%p0 st.shared.b32 [%t1], %t0;\nld.shared.b32 %t2, [%t1]; mad.wide.u32 %a0, %t0, 4, %a0; "
        "st.global.b32 [%a0], %t2;"
    )
    with pytest.raises(SimulationError, match=r"never written: byte 36 of shared memory[\s\S]*lane 9"):
        launch(LANE + bad, [np.zeros(32)], declarations=shared)


def test_the_bounds_of_shared_memory_are_static_plus_dynamic() -> None:
    declarations = ".shared .align 4 .b8 s[8]; .extern .shared .align 16 .b8 d[];"
    body = LANE + "mov.u32 %t1, d; st.shared.b32 [%t1+{}], %t0; mov.u32 %t2, %total_smem_size;"
    launch(body.format(12), [np.zeros(1)], block=1, declarations=declarations, shared_bytes=16)
    with pytest.raises(SimulationError, match=r"byte 32 of shared memory \(32 bytes\)"):
        launch(body.format(16), [np.zeros(1)], block=1, declarations=declarations, shared_bytes=16)


def test_generic_addresses_reach_every_space() -> None:
    declarations = ".shared .align 8 .b8 s[256]; .const .align 4 .b32 c[2] = {7, 11};"
    body = (
        LANE
        + """.local .align 8 .b8 l[8]; mov.u64 %a1, s; cvta.shared.u64 %a1, %a1; mov.u64 %a2, l;
    cvta.local.u64 %a2, %a2;
    mov.u64 %a3, c; cvta.const.u64 %a3, %a3; mad.wide.u32 %a1, %t0, 8, %a1; st.b32 [%a1], %t0; st.b32 [%a2+4], %t0;
    and.b32 %t1, %t0, 1; setp.eq.u32 %p0, %t1, 0; selp.b64 %a4, %a1, %a3, %p0; add.u64 %a5, %a2, 4;
    setp.eq.u32 %p1, %t0, 5;
    selp.b64 %a4, %a5, %a4, %p1; ld.b32 %t2, [%a4]; mad.wide.u32 %a0, %t0, 4, %a0; st.global.b32 [%a0], %t2;"""
    )
    out = np.zeros(32, np.uint32)
    launch(body, [out], declarations=declarations)
    lane = np.arange(32)
    np.testing.assert_array_equal(out, np.where((lane % 2 == 0) | (lane == 5), lane, 7))


def test_isspacep_tells_the_space_of_an_address() -> None:
    body = (
        LANE
        + """mov.u64 %a1, s; cvta.shared.u64 %a1, %a1; isspacep.shared %p0, %a1; isspacep.global %p1, %a1;
    isspacep.global %p2, %a0;
    selp.b32 %t1, 1, 0, %p0; selp.b32 %t2, 2, 0, %p1; selp.b32 %t3, 4, 0, %p2; or.b32 %t1, %t1, %t2;
    or.b32 %t1, %t1, %t3;
    st.global.b32 [%a0], %t1;"""
    )
    out = np.zeros(1, np.uint32)
    launch(body, [out], block=1, declarations=".shared .b32 s;")
    assert out[0] == 5


def test_the_same_array_twice_and_overlapping_views_alias() -> None:
    base = np.arange(16, dtype=np.int32)
    body = (
        LANE
        + """ld.param.u64 %a1, [p1]; mad.wide.u32 %a0, %t0, 4, %a0; mad.wide.u32 %a1, %t0, 4, %a1;
    ld.global.b32 %t1, [%a0]; add.s32 %t1, %t1, 100; st.global.b32 [%a0], %t1; ld.global.b32 %t2, [%a1];
    st.global.b32 [%a1+32], %t2;"""
    )
    launch(body, [base, base], block=8)
    np.testing.assert_array_equal(base, [*range(100, 108), *range(100, 108)])
    base = np.arange(32, dtype=np.int32)
    launch(body, [base[:12], base[4:20]], block=8, races=False)
    want = np.arange(32, dtype=np.int32)
    want[:8] += 100
    want[12:20] = want[4:12]
    np.testing.assert_array_equal(base, want)


def test_arrays_of_any_dtype_layout_and_size_are_buffers() -> None:
    body = (
        LANE
        + "mad.wide.u32 %a0, %t0, 2, %a0; ld.global.b16 %t1, [%a0]; xor.b32 %t1, %t1, 0x8000; st.global.b16 [%a0], %t1;"
    )
    for dtype in (np.float16, ml_dtypes.bfloat16):
        x = np.arange(12).astype(dtype)
        launch(body, [x], block=12)
        np.testing.assert_array_equal(x.astype(np.float32), -np.arange(12, dtype=np.float32))
    strided = np.arange(24, dtype=np.float16)
    launch(body, [strided[::2]], block=12)
    np.testing.assert_array_equal(strided[::2], -np.arange(0, 24, 2).astype(np.float16))
    np.testing.assert_array_equal(strided[1::2], np.arange(1, 24, 2).astype(np.float16))
    launch(LANE, [np.zeros(0, np.float32)], block=1)


def test_a_read_only_array_may_be_read_but_not_written() -> None:
    x = np.arange(4, dtype=np.int32)
    x.flags.writeable = False
    launch(LANE + "ld.global.b32 %t1, [%a0];", [x], block=1)
    with pytest.raises(SimulationError, match="global store to buffer `p0`, which is read-only"):
        launch(LANE + "st.global.b32 [%a0], %t0;", [x], block=1)


def test_a_constant_may_not_be_written() -> None:
    with pytest.raises(SimulationError, match="variable `c`, which is read-only"):
        launch(
            LANE + "mov.u64 %a1, c; st.global.b32 [%a1], %t0;",
            [np.zeros(1)],
            block=1,
            declarations=".const .b32 c = 1;",
        )


def test_the_source_line_of_the_kernel_is_named() -> None:
    text = (
        HEADER + '.file 1 "kernels/mine.py"\n.visible .entry k(.param .u64 p0)\n{\n.reg .b64 %a; .reg .b32 %r;\n'
        "ld.param.u64 %a, [p0];\n.loc 1 42 3\nld.global.b32 %r, [%a+64];\nret;\n}"
    )
    with pytest.raises(SimulationError) as caught:
        load(text).launch("k", 1, 1, [np.zeros(4)])
    assert str(caught.value).endswith("at kernels/mine.py:42")
    assert caught.value.source is not None


def test_parameters_convert_scalars_and_take_aggregates() -> None:
    params = ["u8", "s16", "u32", "s64", "f32", "f64", "b16", "u64"]
    body = """.reg .b64 %a, %d; .reg .b32 %r<9>; .reg .b64 %q; ld.param.u64 %a, [p7];
    ld.param.u8 %r0, [p0]; ld.param.s16 %r1, [p1]; ld.param.u32 %r2, [p2]; ld.param.b64 %q, [p3];
    ld.param.f32 %r3, [p4]; ld.param.f64 %d, [p5];
    ld.param.b16 %r4, [p6];
    st.global.b32 [%a], %r0; st.global.b32 [%a+4], %r1; st.global.b32 [%a+8], %r2; st.global.b32 [%a+12], %r3;
    st.global.b64 [%a+16], %q;
    st.global.b64 [%a+24], %d; st.global.b32 [%a+32], %r4;"""
    out = np.zeros(9, np.uint32)
    args = [300, -5, np.uint32(7), -(2**40), 1.5, np.float32(2.5), ml_dtypes.bfloat16(1.0), out]
    load(kernel_text(body, params)).launch("k", 1, 1, args)
    assert out[:4].tolist() == [300 & 255, 2**32 - 5, 7, int(np.float32(1.5).view(np.uint32))]
    assert out[4:6].view(np.int64)[0] == -(2**40)
    assert out[6:8].view(np.float64)[0] == 2.5
    assert out[8] == 0x3F80
    aggregate = (
        HEADER + ".visible .entry k(.param .align 16 .b8 p0[8], .param .u64 p1)\n{.reg .b64 %a<3>; "
        "ld.param.u64 %a0, [p1]; ld.param.b64 %a1, [p0]; st.global.b64 [%a0], %a1; ret;}"
    )
    result = np.zeros(1, np.uint64)
    load(aggregate).launch("k", 1, 1, [bytes(range(8)), result])
    assert result.tobytes() == bytes(range(8))


@pytest.mark.parametrize(
    ("args", "what"),
    [
        ([1], "takes 2 arguments"),
        ([1.5, np.zeros(1)], "a value of type .u32"),
        ([np.zeros(1), np.zeros(1)], "cannot hold an array's address"),
    ],
)
def test_arguments_that_do_not_fit_are_errors(args: list[Any], what: str) -> None:
    with pytest.raises(SimulationError, match=what):
        load(kernel_text("", ["u32", "u64"])).launch("k", 1, 1, args)


def test_initialised_variables_hold_numbers_and_addresses() -> None:
    declarations = """.global .align 4 .b32 g[3] = {1, -2, 0x10}; .const .align 8 .f64 f = 0d3FF8000000000000;
    .global .align 1 .b8 s[4] = {104, 105};
    .global .align 8 .u64 ptr[2] = {generic(g)+4, s};"""
    body = (
        LANE
        + """mov.u64 %a1, ptr; ld.global.u64 %a2, [%a1]; ld.u32 %t1, [%a2]; st.global.u32 [%a0], %t1;
    ld.global.u64 %a2, [%a1+8];
    ld.global.u8 %t2, [%a2+1]; st.global.u32 [%a0+4], %t2; ld.const.u64 %a3, [f]; st.global.u64 [%a0+8], %a3;
    ld.global.u32 %t3, [g+8]; st.global.u32 [%a0+16], %t3;"""
    )
    out = np.zeros(5, np.uint32)
    launch(body, [out], block=1, declarations=declarations)
    assert out[0] == 2**32 - 2
    assert out[1] == 105
    assert out[2:4].view(np.float64)[0] == 1.5
    assert out[4] == 16


@pytest.mark.parametrize("n", [1, 37, 64, 200])
def test_vectors_and_narrow_types_move_the_right_bytes(n: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-128, 128, (n, 16)).astype(np.int8)
    y = np.zeros((n, 16), np.int8)
    body = (
        LANE
        + """ld.param.u64 %a1, [p1]; mad.wide.u32 %a0, %t0, 16, %a0; mad.wide.u32 %a1, %t0, 16, %a1;
    ld.global.v4.b32 {%t1, %t2, %t3, %t4}, [%a0]; st.global.v2.b32 [%a1], {%t3, %t4};
    st.global.v4.b16 [%a1+8], {%t1, %t2, %t3, %t4};"""
    )
    launch(body, [x, y], block=n)
    words = x.view(np.uint32)
    np.testing.assert_array_equal(y.view(np.uint32)[:, :2], words[:, 2:])
    np.testing.assert_array_equal(y.view(np.uint16)[:, 4:], words.astype(np.uint16))
    z = np.zeros((n, 2), np.int32)
    launch(LANE + """ld.param.u64 %a1, [p1]; mad.wide.u32 %a0, %t0, 16, %a0; mad.wide.u32 %a1, %t0, 8, %a1;
    ld.global.s8 %t1, [%a0+3]; ld.global.u8 %t2, [%a0+3];
    st.global.v2.b32 [%a1], {%t1, %t2};""", [x, z], block=n)  # fmt: skip
    np.testing.assert_array_equal(z, np.stack([x[:, 3].astype(np.int32), x[:, 3].view(np.uint8).astype(np.int32)], 1))


def test_threads_that_write_the_same_place_leave_the_last_ones_value() -> None:
    x = np.zeros(1, np.uint32)
    launch(LANE + "st.global.b32 [%a0], %t0;", [x], block=96, races=False)
    assert x[0] == 95
