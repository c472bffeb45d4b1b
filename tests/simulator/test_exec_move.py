"""mov in all its forms, cvta, and what only takes time."""

from __future__ import annotations

import numpy as np

from tests.simulator.harness import assert_bits, evaluate, integers, launch


def test_unpacking_gives_the_lowest_part_first() -> None:
    a = integers("b64")
    text = ".reg .b32 %x, %y; mov.b64 {{%x, %y}}, %a; mov.b32 %d, {};"
    assert_bits(evaluate(text.format("%x"), "b32", ("b64", a)), a.astype(np.uint32), a)
    assert_bits(evaluate(text.format("%y"), "b32", ("b64", a)), (a >> np.uint64(32)).astype(np.uint32), a)
    four = ".reg .b16 %h<4>; mov.b64 {%h0, %h1, %h2, %h3}, %a; mov.b16 %d, %h2;"
    assert_bits(evaluate(four, "b16", ("b64", a)), (a >> np.uint64(32)).astype(np.uint16), a)
    upper = ".reg .b16 %h; mov.b32 {_, %h}, %a; mov.b16 %d, %h;"
    b = integers("b32")
    assert_bits(evaluate(upper, "b16", ("b32", b)), (b >> np.uint32(16)).astype(np.uint16), b)


def test_packing_puts_the_first_part_lowest() -> None:
    a, b = integers("b32"), np.roll(integers("b32"), 5)
    want = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
    assert_bits(evaluate("mov.b64 %d, {%a, %b};", "b64", ("b32", a), ("b32", b)), want, a, b)
    c, d = integers("b16"), np.roll(integers("b16"), 5)
    want32 = c.astype(np.uint32) | (d.astype(np.uint32) << np.uint32(16))
    assert_bits(evaluate("mov.b32 %d, {%a, %b};", "b32", ("b16", c), ("b16", d)), want32, c, d)


def test_a_register_may_be_unpacked_into_itself() -> None:
    a = integers("b32")
    text = ".reg .b16 %l, %h; mov.b32 {%l, %h}, %a; mov.b32 %a, {%h, %l}; mov.b32 {%l, %h}, %a; mov.b16 %d, %l;"
    assert_bits(evaluate(text, "b16", ("b32", a)), (a >> np.uint32(16)).astype(np.uint16), a)


def test_constants_are_read_as_the_type_says() -> None:
    one = np.zeros(1, np.uint32)
    for constant, bits in (("0f3F800000", 0x3F800000), ("1.5", 0x3FC00000), ("0d4000000000000000", 0x40000000)):
        assert evaluate(f"mov.f32 %d, {constant};", "f32", ("b32", one))[0] == bits
    for constant, bits in (("-1", 0xFFFFFFFF), ("0x10", 16), ("0b101", 5), ("017", 15), ("WARP_SZ", 32), ("12U", 12)):
        assert evaluate(f"mov.u32 %d, {constant};", "u32", ("b32", one))[0] == bits


def test_a_signalling_nan_moves_unchanged() -> None:
    bits = np.array([0x7F800001, 0xFFBFFFFF], np.uint32)
    assert_bits(evaluate("mov.f32 %d, %a;", "f32", ("b32", bits)), bits, bits)


def test_predicates_move_and_combine() -> None:
    a = integers("s32")
    text = (
        ".reg .pred %p, %q; setp.gt.s32 %p, %a, 0; mov.pred %q, %p; not.pred %q, %q; "
        "xor.pred %p, %p, %q; and.pred %p, %p, %q;"
    )
    text += " selp.b32 %d, 1, 0, %p;"
    assert_bits(evaluate(text, "b32", ("s32", a)), (a <= 0).astype(np.uint32), a)


def test_fences_hints_and_clocks_leave_the_data_alone() -> None:
    body = """.reg .b32 %r<4>; .reg .b64 %a<4>; ld.param.u64 %a0, [p0]; mov.u64 %a1, %clock64; membar.gl;
    fence.acq_rel.gpu;
    fence.proxy.async.shared::cta; nanosleep.u32 100; griddepcontrol.wait; prefetch.global.L2 [%a0];
    mov.u32 %r0, %clock;
    mov.u64 %a2, %globaltimer; setp.ge.u64 %p, %a2, 1; mov.u64 %a2, %clock64; sub.u64 %a2, %a2, %a1;
    st.global.u64 [%a0], %a2;"""
    out = np.zeros(1, np.uint64)
    launch(".reg .pred %p; " + body, [out], block=1)
    assert out[0] >= 0
