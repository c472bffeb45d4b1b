"""Calls through pointers, as nvcc and clang write them."""

from __future__ import annotations

import numpy as np
import pytest

from mosaic_gpu.errors import SimulationError
from mosaic_gpu.simulator import load
from tests.simulator.harness import HEADER

FUNCTIONS = """
.func (.param .b32 r) add1(.param .b32 a) { .reg .b32 %x; ld.param.b32 %x, [a]; add.s32 %x, %x, 1;
    st.param.b32 [r], %x; ret; }
.func (.param .b32 r) triple(.param .b32 a) { .reg .b32 %x; .reg .pred %p; ld.param.b32 %x, [a];
    setp.gt.s32 %p, %x, 40; @%p bra BIG; mul.lo.s32 %x, %x, 3; BIG: st.param.b32 [r], %x; ret; }
.func (.param .b32 r) pair(.param .b32 a, .param .b32 b) { st.param.b32 [r], 7; ret; }
"""
CALL = """{ .param .b32 p0; .param .b32 r0; st.param.b32 [p0], %t;
    proto : .callprototype (.param .b32 _) _ (.param .b32 _);
    call (r0), %f, (p0), proto; ld.param.b32 %v, [r0]; }"""


def kernel(choose: str, call: str = CALL, declarations: str = "") -> str:
    return f"""{HEADER}{FUNCTIONS}{declarations}
    .visible .entry k(.param .u64 out) {{ .reg .b32 %t, %v, %i; .reg .b64 %o, %f, %g; .reg .pred %p;
    mov.u32 %t, %tid.x; ld.param.u64 %o, [out]; mad.wide.u32 %o, %t, 4, %o;
    {choose}
    {call}
    st.global.b32 [%o], %v; ret; }}"""


def run(text: str, threads: int = 64) -> list[int]:
    out = np.zeros(threads, np.int32)
    load(text).launch("k", 1, threads, [out])
    return [int(v) for v in out]


WANT = [t + 1 if t % 2 == 0 else t * 3 if t <= 40 else t for t in range(64)]
TABLE = ".global .align 8 .u64 table[2] = {add1, triple};"
FROM_TABLE = "and.b32 %i, %t, 1; mov.u64 %g, table; mad.wide.u32 %g, %i, 8, %g; ld.global.u64 %f, [%g];"


def test_threads_call_the_functions_of_a_table_that_their_pointers_name() -> None:
    assert run(kernel(FROM_TABLE, declarations=TABLE)) == WANT


def test_functions_may_be_taken_by_mov_and_named_as_targets() -> None:
    choose = """mov.u64 %f, add1; and.b32 %i, %t, 1; setp.eq.s32 %p, %i, 1; @%p mov.u64 %f, triple;"""
    call = CALL.replace(
        "proto : .callprototype (.param .b32 _) _ (.param .b32 _);", "proto: .calltargets add1, triple;"
    )
    assert run(kernel(choose, call)) == WANT


def test_a_call_under_a_predicate_leaves_the_other_threads_alone() -> None:
    choose = "mov.u64 %f, triple; mov.b32 %v, -1; setp.lt.u32 %p, %t, 4;"
    call = CALL.replace("call (r0)", "@%p call (r0)").replace("ld.param.b32 %v", "@%p ld.param.b32 %v")
    assert run(kernel(choose, call), 8) == [0, 3, 6, 9, -1, -1, -1, -1]


def test_a_table_of_functions_that_a_kernel_does_not_use_does_no_harm() -> None:
    assert run(kernel("", "mov.b32 %v, 5;", TABLE), 2) == [5, 5]


@pytest.mark.parametrize(
    ("choose", "said"),
    [
        ("mov.u64 %f, 64;", "0x40, which is no function"),
        ("mov.u64 %f, pair;", "`pair`, which it cannot call"),
        ("mov.u64 %f, add1; add.s64 %f, %f, 4;", "which is no function"),
    ],
)
def test_a_pointer_to_no_function_that_fits_is_a_fault(choose: str, said: str) -> None:
    with pytest.raises(SimulationError, match=f"a call through a pointer to .*{said}"):
        run(kernel(choose))


def test_a_function_that_comes_back_to_itself_through_a_pointer_is_a_fault() -> None:
    again = f""".func (.param .b32 r) again(.param .b32 a) {{ .reg .b32 %t, %v; .reg .b64 %f; mov.b32 %t, 1;
    mov.u64 %f, again; {CALL} st.param.b32 [r], %v; ret; }}"""
    with pytest.raises(SimulationError, match="`again`, which it cannot call"):
        run(kernel("mov.u64 %f, again;", declarations=again))
