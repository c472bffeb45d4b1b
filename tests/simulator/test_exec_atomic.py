"""Atomics: the memory and the old values are those of a sequence in thread order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mosaic_gpu.errors import SimulationError
from tests.simulator.harness import launch

Array = np.ndarray[Any, np.dtype[Any]]
START = """.reg .b32 %r<9>; .reg .b64 %a<9>; .reg .b64 %x<4>; ld.param.u64 %a0, [p0]; ld.param.u64 %a1, [p1];
    ld.param.u64 %a2, [p2];
ld.param.u64 %a3, [p3]; mov.u32 %r0, %tid.x; mad.wide.u32 %a4, %r0, 4, %a1; ld.global.u32 %r1, [%a4];
    mad.wide.u32 %a5, %r1, {size}, %a0;
mad.wide.u32 %a6, %r0, {size}, %a2; mad.wide.u32 %a7, %r0, {size}, %a3;"""

UPDATES: dict[str, Any] = {
    "add": lambda m, v: m + v, "min": min, "max": max, "and": lambda m, v: m & v, "or": lambda m, v: m | v,
    "xor": lambda m, v: m ^ v, "exch": lambda m, v: v, "inc": lambda m, v: 0 if m >= v else m + 1,
    "dec": lambda m, v: v if m == 0 or m > v else m - 1,
}  # fmt: skip
CASES = [("add", "u32"), ("add", "u64"), ("min", "s32"), ("min", "u64"), ("max", "u32"), ("max", "s64"), ("and", "b32"),
         ("or", "b64"), ("xor", "b32"), ("exch", "b32"), ("exch", "b64"), ("inc", "u32"), ("dec", "u32")]  # fmt: skip


def sequence(memory: Array, index: Array, values: Array, update: Any) -> tuple[Array, Array]:
    """(memory, old values) after the threads have gone one after another."""
    memory, old = memory.copy(), np.zeros_like(values)
    mask = (1 << 8 * memory.itemsize) - 1
    for t, (i, v) in enumerate(zip(index, values, strict=True)):
        old[t] = memory[i]
        new = int(update(int(memory[i]), int(v))) & mask
        memory[i] = np.array(new, np.uint64).astype(f"u{memory.itemsize}").view(memory.dtype)
    return memory, old


@pytest.mark.parametrize(("name", "kind"), CASES)
@pytest.mark.parametrize("spread", [1, 7, 1000])
def test_integer_atomics(name: str, kind: str, spread: int) -> None:
    rng = np.random.default_rng(4)
    dtype = np.dtype(("i" if kind[0] == "s" else "u") + str(int(kind[1:]) // 8))
    memory = rng.integers(0, 50, spread).astype(dtype)
    index = rng.integers(0, spread, 96).astype(np.uint32)
    values = (
        rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, 96, dtype)
        if name not in ("inc", "dec")
        else rng.integers(0, 60, 96).astype(dtype)
    )
    old = np.zeros(96, dtype)
    bits = int(kind[1:])
    reg = "%r2" if bits == 32 else "%x0"
    after, want = sequence(memory, index, values, UPDATES[name])
    body = (
        START.format(size=bits // 8)
        + f"ld.global.b{bits} {reg}, [%a6]; atom.global.{name}.{kind} {reg}, [%a5], {reg}; "
        f"st.global.b{bits} [%a7], {reg};"
    )
    got = memory.copy()
    launch(body, [got, index, values, old], block=96)
    np.testing.assert_array_equal(got, after)
    np.testing.assert_array_equal(old, want)
    if name not in ("exch",):
        got = memory.copy()
        launch(
            body.replace(f"atom.global.{name}.{kind} {reg}, ", f"red.relaxed.gpu.global.{name}.{kind} "),
            [got, index, values, old],
            block=96,
        )
        np.testing.assert_array_equal(got, after)


def test_cas_takes_turns() -> None:
    memory, index, out = np.zeros(1, np.uint32), np.zeros(64, np.uint32), np.zeros(64, np.uint32)
    body = (
        START.format(size=4)
        + "add.u32 %r3, %r0, 1; atom.global.cas.b32 %r2, [%a5], %r0, %r3; st.global.u32 [%a7], %r2;"
    )
    launch(body, [memory, index, out, out], block=64)
    assert memory[0] == 64
    np.testing.assert_array_equal(out, np.arange(64))


@pytest.mark.parametrize(("kind", "dtype"), [("f32", np.float32), ("f64", np.float64)])
def test_float_additions_go_in_thread_order(kind: str, dtype: Any) -> None:
    rng = np.random.default_rng(5)
    values = (rng.standard_normal(96) * 10.0 ** rng.integers(-3, 4, 96)).astype(dtype)
    index = rng.integers(0, 5, 96).astype(np.uint32)
    memory, old = np.zeros(5, dtype), np.zeros(96, dtype)
    reg, bits = ("%r2", 32) if kind == "f32" else ("%x0", 64)
    body = (
        START.format(size=bits // 8)
        + f"ld.global.b{bits} {reg}, [%a6]; atom.global.add.{kind} {reg}, [%a5], {reg}; st.global.b{bits} [%a7], {reg};"
    )
    launch(body, [memory, index, values, old], block=96)
    want = np.zeros(5, dtype)
    for i, v in zip(index, values, strict=True):
        want[i] += v
    np.testing.assert_array_equal(memory, want)


def test_half_additions_round_each_time() -> None:
    memory = np.array([2048.0], np.float16)
    index, ones = np.zeros(8, np.uint32), np.ones(8, np.float16)
    body = START.format(size=2) + ".reg .b16 %h; ld.global.b16 %h, [%a6]; red.global.add.noftz.f16 [%a5], %h;"
    launch(body, [memory, index, ones, ones], block=8)
    assert memory[0] == 2048.0


def test_shared_atomics_are_per_block() -> None:
    body = """.reg .b32 %r<9>; .reg .b64 %a<9>; .reg .pred %p; ld.param.u64 %a0, [p0]; mov.u32 %r0, %tid.x;
    mov.u32 %r1, s; setp.eq.u32 %p, %r0, 0;
    @%p st.shared.u32 [%r1], 0; bar.sync 0; mov.u32 %r3, %ctaid.x; atom.shared.add.u32 %r2, [%r1], %r3; bar.sync 0;
    ld.shared.u32 %r4, [%r1];
    mad.wide.u32 %a1, %r3, 4, %a0; st.global.u32 [%a1], %r4;"""
    out = np.zeros(5, np.uint32)
    shared = ".shared .align 4 .b8 s[4];"
    launch(body, [out], grid=5, block=48, declarations=shared, races=False)
    np.testing.assert_array_equal(out, 48 * np.arange(5))


def _maximum_of_threads(first_look: str, swap: str) -> Array:
    out = np.zeros(1, np.uint32)
    launch(
        f""".reg .b64 %o; .reg .b32 %t, %old, %as, %new; .reg .pred %p;
        mov.u32 %t, %tid.x; ld.param.u64 %o, [p0]; {first_look}
        L: mov.b32 %as, %old; max.u32 %new, %as, %t; {swap} setp.ne.u32 %p, %as, %old; @%p bra L;""",
        [out], block=96, grid=2,
    )  # fmt: skip
    return out


def test_the_first_look_of_a_compare_and_swap_loop_is_no_race() -> None:
    got = _maximum_of_threads("ld.global.b32 %old, [%o];", "atom.global.cas.b32 %old, [%o], %as, %new;")
    np.testing.assert_array_equal(got, [95])


def test_a_plain_read_of_what_others_change_atomically_is_a_race() -> None:
    with pytest.raises(SimulationError, match="race"):
        _maximum_of_threads("ld.global.b32 %old, [%o];", "atom.global.max.u32 %old, [%o], %t; mov.b32 %old, %as;")
