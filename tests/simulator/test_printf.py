"""vprintf, as LLVM and nvcc call it."""

from __future__ import annotations

import pytest

from mosaic_gpu.errors import SimulationError
from mosaic_gpu.simulator import load
from tests.simulator.harness import HEADER

EXTERN = ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n"


def printed(text: str, stores: str, threads: int = 1) -> tuple[tuple[str, ...], list[str]]:
    data = ", ".join(str(b) for b in [*text.encode(), 0])
    body = f"""{HEADER}{EXTERN}.global .align 1 .b8 fmt[{len(text.encode()) + 1}] = {{{data}}};
    .global .align 1 .b8 word[3] = {{104, 105, 0}};
    .visible .entry k() {{ .local .align 8 .b8 buf[64]; .reg .b64 %a<4>; .reg .b32 %r<4>; mov.u32 %r0, %tid.x;
    mov.b64 %a0, buf; cvta.local.u64 %a1, %a0; mov.b64 %a2, fmt; cvta.global.u64 %a2, %a2; mov.b64 %a3, word;
    {stores}
    {{ .param .b64 p0; .param .b64 p1; .param .b32 r0; st.param.b64 [p0], %a2; st.param.b64 [p1], %a1;
    call.uni (r0), vprintf, (p0, p1); ld.param.b32 %r1, [r0]; }} ret; }}"""
    seen: list[str] = []
    result = load(body).launch("k", 1, threads, [], print=seen.append)
    return result.printed, seen


def test_every_thread_prints_in_order_and_the_callback_sees_it() -> None:
    result, seen = printed("thread %d\n", "st.local.b32 [%a0], %r0;", 3)
    assert result == ("thread 0\n", "thread 1\n", "thread 2\n")
    assert list(result) == seen


def test_conversions_take_their_widths_and_alignment() -> None:
    stores = """st.local.b32 [%a0], -5; st.local.b64 [%a0+8], 0d3FF8000000000000; st.local.b32 [%a0+16], 255;
    st.local.b64 [%a0+24], -7;
    st.local.b64 [%a0+32], %a3; st.local.b32 [%a0+40], 65;"""
    result, _ = printed("%d|%8.3f|%#x|%lld|%s|%c|%%", stores)
    assert result == ("-5|   1.500|0xff|-7|hi|A|%",)


def test_pointers_and_hexadecimal_floats_look_as_in_c() -> None:
    stores = """st.local.b64 [%a0], 0; st.local.b64 [%a0+8], 255; st.local.b64 [%a0+16], 0d3FF8000000000000;
    st.local.b64 [%a0+24], 0d4000000000000000;"""
    result, _ = printed("%p %p %a %A", stores)
    assert result == ("(nil) 0xff 0x1.8p+0 0X1P+1",)


def test_a_failed_assertion_names_its_text_and_place() -> None:
    text = f"""{HEADER}.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n,
    .param .b64 s);
    .global .b8 msg[6] = {{116, 32, 60, 32, 57, 0}};
    .global .b8 file[5] = {{97, 46, 99, 117, 0}};
    .visible .entry k() {{ .reg .b64 %a, %b; .reg .b32 %t; .reg .pred %p; mov.u32 %t, %tid.x;
    mov.b64 %a, msg; mov.b64 %b, file; setp.lt.u32 %p, %t, 9; @%p bra DONE;
    {{ .param .b64 p0; .param .b64 p1; .param .b32 p2; .param .b64 p3; .param .b64 p4; st.param.b64 [p0], %a;
    st.param.b64 [p1], %b; st.param.b32 [p2], 31; st.param.b64 [p3], %b; st.param.b64 [p4], 1;
    call.uni __assertfail, (p0, p1, p2, p3, p4); }}
    DONE: ret; }}"""
    load(text).launch("k", 1, 9, [])
    with pytest.raises(SimulationError, match=r"assertion failed: t < 9 \(a.cu:31, a.cu\)[^$]*thread \(9, 0, 0\)"):
        load(text).launch("k", 1, 10, [])


def test_text_goes_to_standard_output_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    text = (
        f"{HEADER}{EXTERN}.global .b8 f[2] = {{65, 0}};\n.visible .entry k() {{ .reg .b64 %a; "
        f"{{ .param .b64 p; .param .b64 q; .param .b32 r; mov.b64 %a, f; st.param.b64 [p], %a; "
        f"st.param.b64 [q], 0; call (r), vprintf, (p, q); }} ret; }}"
    )
    load(text).launch("k", 1, 1, [])
    assert capsys.readouterr().out == "A"
