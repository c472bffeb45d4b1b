"""An instruction gives the same results whichever threads run it: all, a stretch, scattered ones, a predicate's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.simulator.harness import launch

Array = np.ndarray[Any, np.dtype[Any]]
N = 192
LOADS = "".join(
    f"ld.param.u64 %a{i}, [p{i}]; mad.wide.u32 %a{i}, %t0, 8, %a{i}; ld.global.b64 %x{i}, [%a{i}]; "
    f"cvt.u32.u64 %r{i}, %x{i};"
    f"cvt.u16.u64 %h{i}, %x{i}; mov.b64 %g{i}, %x{i}; mov.b32 %f{i}, %r{i};"
    for i in range(3)
)
START = f""".reg .b32 %t<4>; .reg .b32 %r<9>; .reg .b64 %x<9>; .reg .b64 %a<9>; .reg .b16 %h<9>; .reg .f32 %f<9>;
    .reg .f64 %g<9>;
.reg .pred %p<9>; mov.u32 %t0, %tid.x; {LOADS} ld.param.u64 %a3, [p3]; mad.wide.u32 %a3, %t0, 8, %a3;
    mov.u64 %x8, 77; mov.u32 %r8, 77;
mov.u16 %h8, 77; mov.b32 %f8, %r8; mov.b64 %g8, %x8; mov.u32 %t2, s; mad.lo.u32 %t2, %t0, 8, %t2;
    st.shared.b64 [%t2], %x0;
"""
STORES = {"r": "cvt.u64.u32 %x7, %r8;", "x": "mov.u64 %x7, %x8;", "h": "cvt.u64.u16 %x7, %h8;",
          "f": "mov.b32 %r7, %f8; cvt.u64.u32 %x7, %r7;", "g": "mov.b64 %x7, %g8;"}  # fmt: skip
CASES = [
    "add.s32 %r8, %r0, %r1",
    "mul.wide.u32 %x8, %r0, %r1",
    "mad.lo.s64 %x8, %x0, %x1, %x2",
    "mul.hi.s64 %x8, %x0, %x1",
    "div.s32 %r8, %r0, %r1",
    "rem.u64 %x8, %x0, %x1",
    "min.s16 %h8, %h0, %h1",
    "sub.u16 %h8, %h0, 5",
    "neg.s64 %x8, %x0",
    "fma.rn.f32 %f8, %f0, %f1, %f2",
    "add.rz.f32 %f8, %f0, %f1",
    "div.rn.f32 %f8, %f0, %f1",
    "fma.rn.f64 %g8, %g0, %g1, %g2",
    "fma.rn.f16 %h8, %h0, %h1, %h2",
    "add.rn.bf16x2 %r8, %r0, %r1",
    "max.f32 %f8, %f0, %f1",
    "ex2.approx.ftz.f32 %f8, %f0",
    "sqrt.rn.f64 %g8, %g0",
    "and.b64 %x8, %x0, %x1",
    "shl.b32 %r8, %r0, %r1",
    "shr.s64 %x8, %x0, 3",
    "prmt.b32 %r8, %r0, %r1, %r2",
    "lop3.b32 %r8, %r0, %r1, %r2, 0x96",
    "bfe.s32 %r8, %r0, 3, 9",
    "bfi.b32 %r8, %r0, %r1, 4, 8",
    "popc.b64 %r8, %x0",
    "clz.b32 %r8, %r0",
    "brev.b32 %r8, %r0",
    "shf.l.wrap.b32 %r8, %r0, %r1, %r2",
    "cvt.rn.f32.s64 %f8, %x0",
    "cvt.rzi.s32.f64 %r8, %g0",
    "cvt.rn.f16.f32 %h8, %f0",
    "cvt.rn.satfinite.e4m3x2.f32 %h8, %f0, %f1",
    "cvt.s64.s8 %x8, %r0",
    "selp.b32 %r8, %r0, %r1, %p0",
    "set.lt.u32.f32 %r8, %f0, %f1",
    "slct.b32.s32 %r8, %r0, %r1, %r2",
    "mov.b64 %x8, {%r0, %r1}",
    "mov.b64 {%r8, _}, %x0",
    "copysign.f32 %f8, %f0, %f1",
    "ld.global.b64 %x8, [%a0]",
    "ld.global.s8 %r8, [%a0+3]",
    "ld.global.v2.b32 {_, %r8}, [%a0]",
    "ld.shared.b32 %r8, [%t2+4]",
    "ld.b16 %h8, [%a1+2]",
    "mov.u32 %r8, %tid.x",
    "mov.u32 %r8, %laneid",
    "dp4a.s32.u32 %r8, %r0, %r1, %r2",
    "atom.global.max.u64 %x8, [%a2], %x0",
    "cvta.shared.u64 %x8, %x0",
    "add.cc.u32 %r8, %r0, %r1",
]


def run(case: str, how: str, operands: list[Array]) -> Array:
    """The case for the threads whose number fits `how`."""
    choose = {
        "all": "setp.ge.u32 %p1, %t0, 0;",
        "stretch": "setp.ge.u32 %p1, %t0, 70;",
        "scattered": "mul.lo.u32 %t1, %t0, 7; and.b32 %t1, %t1, 12; setp.ne.u32 %p1, %t1, 4;",
    }[how.removesuffix(" by predicate")]
    body = START + "setp.lt.s32 %p0, %r0, %r1;" + choose
    if "predicate" in how:
        body += f"@%p1 {case};"
    else:
        body += f"bra TEST; TEST: @!%p1 bra DONE; {case}; DONE: "
    letter = next(name for name in STORES if f"%{name}8" in case)
    out = np.zeros(N, np.uint64)
    launch(body + STORES[letter] + "st.global.b64 [%a3], %x7;", [*[x.copy() for x in operands], out], block=N,
           declarations=".shared .align 8 .b8 s[2048];")  # fmt: skip
    return out


@pytest.fixture(scope="module")
def operands() -> list[Array]:
    rng = np.random.default_rng(11)
    values = rng.standard_normal((3, N)).astype(np.float32).view(np.uint32).astype(np.uint64)
    return list(
        values | (rng.standard_normal((3, N)).astype(np.float32).view(np.uint32).astype(np.uint64) << np.uint64(32))
    )


@pytest.mark.parametrize("case", CASES)
def test_a_part_of_the_threads_computes_what_all_of_them_do(case: str, operands: list[Array]) -> None:
    whole = run(case, "all", operands)
    assert (whole != 77).any()
    threads = np.arange(N)
    parts = {"stretch": threads >= 70, "scattered": (threads * 7 & 12) != 4}
    for name, inside in parts.items():
        for how in (name, f"{name} by predicate"):
            np.testing.assert_array_equal(run(case, how, operands), np.where(inside, whole, 77), err_msg=how)
