"""Exchanges among the lanes of a warp, against plain loops over the PTX ISA's pseudo-code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.simulator.harness import launch

Array = np.ndarray[Any, np.dtype[Any]]
START = """.reg .b32 %r<20>; .reg .b64 %a<9>; .reg .pred %p<9>; ld.param.u64 %a0, [p0]; ld.param.u64 %a1, [p1];
    mov.u32 %r0, %tid.x;
mad.wide.u32 %a0, %r0, 4, %a0; mad.wide.u32 %a1, %r0, 4, %a1; ld.global.u32 %r1, [%a0]; mov.u32 %r2, %laneid;"""


def run(body: str, x: Array) -> Array:
    out = np.full(len(x), 0xDEAD, np.uint32)
    launch(START + body + "st.global.u32 [%a1], %r9;", [x, out], block=len(x))
    return out


def shuffle(mode: str, x: Array, b: int, c: int) -> tuple[Array, Array]:
    """shfl.sync by the pseudo-code: (values, predicates)."""
    values, valid = x.copy(), np.zeros(len(x), bool)
    for i in range(len(x)):
        lane, base = i % 32, i - i % 32
        segment, clamp = c >> 8 & 31, c & 31
        most = lane & segment | clamp & ~segment & 31
        least = lane & segment
        if mode == "up":
            j, ok = lane - b, lane - b >= most
        else:
            j = {"down": lane + b, "bfly": lane ^ b, "idx": least | b & ~segment & 31}[mode]
            ok = j <= most
        j = j if ok else lane
        valid[i] = ok
        values[i] = x[base + j] if base + j < len(x) else x[i]
    return values, valid


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("width", [32, 8, 4])
@pytest.mark.parametrize("threads", [64, 40])
def test_shuffles(mode: str, width: int, threads: int) -> None:
    x = np.random.default_rng(0).integers(0, 2**32, threads, np.uint64).astype(np.uint32)
    c = ((32 - width) << 8) | (0 if mode == "up" else 31)
    for b in (0, 1, 3, 16):
        values, valid = shuffle(mode, x, b, c)
        got = run(f"shfl.sync.{mode}.b32 %r9|%p0, %r1, {b}, {c}, -1; @!%p0 xor.b32 %r9, %r9, 0xffff;", x)
        np.testing.assert_array_equal(got, np.where(valid, values, values ^ 0xFFFF))


def test_a_shuffle_by_a_different_lane_in_each_thread() -> None:
    x = np.arange(64, dtype=np.uint32) * 3
    got = run("mul.lo.u32 %r3, %r2, 7; shfl.sync.idx.b32 %r9, %r1, %r3, 31, -1;", x)
    lane = np.arange(64)
    np.testing.assert_array_equal(got, x[lane - lane % 32 + lane * 7 % 32])


def test_a_shuffle_among_half_the_lanes() -> None:
    x = np.arange(32, dtype=np.uint32)
    got = run(
        "mov.u32 %r9, 7; setp.lt.u32 %p0, %r2, 16; @%p0 bra A; bra B; "
        "A: shfl.sync.bfly.b32 %r9, %r1, 5, 31, 0xffff; B:",
        x,
    )
    np.testing.assert_array_equal(got, np.where(x < 16, x ^ 5, 7))


def test_votes() -> None:
    x = np.random.default_rng(1).integers(0, 2, 70).astype(np.uint32)
    x[:32] = 1
    ballot = run("setp.ne.u32 %p0, %r1, 0; vote.sync.ballot.b32 %r9, %p0, -1;", x)
    every = run("setp.ne.u32 %p0, %r1, 0; vote.sync.all.pred %p1, %p0, -1; selp.u32 %r9, 1, 0, %p1;", x)
    some = run("setp.ne.u32 %p0, %r1, 0; vote.sync.any.pred %p1, !%p0, -1; selp.u32 %r9, 1, 0, %p1;", x)
    alike = run("setp.ne.u32 %p0, %r1, 0; vote.sync.uni.pred %p1, %p0, -1; selp.u32 %r9, 1, 0, %p1;", x)
    for start in range(0, 70, 32):
        warp = x[start : start + 32]
        part = slice(start, start + len(warp))
        assert (ballot[part] == sum(int(v) << i for i, v in enumerate(warp))).all()
        assert (every[part] == warp.all()).all()
        assert (some[part] == (warp == 0).any()).all()
        assert (alike[part] == (warp.all() or not warp.any())).all()


def test_matches() -> None:
    x = np.random.default_rng(1).integers(0, 4, 64).astype(np.uint32)
    x[32:] = 9
    got = run("match.any.sync.b32 %r9, %r1, -1;", x)
    want = [sum(1 << j for j in range(32) if x[i - i % 32 + j] == x[i]) for i in range(64)]
    np.testing.assert_array_equal(got, np.array(want, np.uint32))
    got = run("match.all.sync.b32 %r9|%p0, %r1, -1; @!%p0 mov.u32 %r9, 5;", x)
    np.testing.assert_array_equal(got, np.where(np.arange(64) < 32, 5, 0xFFFFFFFF))


@pytest.mark.parametrize("name", ["add", "min", "max", "and", "or", "xor"])
@pytest.mark.parametrize("kind", ["s32", "u32"])
def test_redux_reduces_the_lanes_of_the_mask(name: str, kind: str) -> None:
    if name in ("and", "or", "xor"):
        kind = "b32"
    x = np.random.default_rng(2).integers(0, 2**32, 64, np.uint64).astype(np.uint32)
    typed = x.view(np.int32) if kind == "s32" else x
    function: Any = {
        "add": np.add,
        "min": np.minimum,
        "max": np.maximum,
        "and": np.bitwise_and,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
    }[name]
    got = run(f"redux.sync.{name}.{kind} %r9, %r1, -1;", x)
    want = np.repeat(function.reduce(typed.reshape(2, 32), axis=1, dtype=typed.dtype), 32).view(np.uint32)
    np.testing.assert_array_equal(got, want)


def test_redux_of_tiles_of_a_warp_at_once_keeps_them_apart() -> None:
    x = np.random.default_rng(3).integers(0, 1000, 64, np.uint64).astype(np.uint32)
    got = run("and.b32 %r3, %r2, 24; mov.b32 %r4, 255; shl.b32 %r4, %r4, %r3; redux.sync.add.u32 %r9, %r1, %r4;", x)
    np.testing.assert_array_equal(got, np.repeat(x.reshape(8, 8).sum(axis=1), 8))


def test_elect_chooses_the_lowest_lane() -> None:
    got = run(
        "setp.lt.u32 %p0, %r2, 5; @%p0 bra B; elect.sync %r9|%p1, 0xffffffe0; selp.u32 %r9, 1, 0, %p1; "
        "bra C; B: mov.u32 %r9, 9; C:",
        np.zeros(64, np.uint32),
    )
    lane = np.arange(64) % 32
    np.testing.assert_array_equal(got, np.where(lane < 5, 9, lane == 5))


def test_activemask_names_the_threads_that_run_together() -> None:
    got = run(
        "setp.lt.u32 %p0, %r2, 5; @%p0 bra B; activemask.b32 %r9; bra C; B: activemask.b32 %r9; C:",
        np.zeros(40, np.uint32),
    )
    lane = np.arange(40)
    want = np.where(lane % 32 < 5, 31, np.where(lane < 32, 0xFFFFFFE0, 0xE0))
    np.testing.assert_array_equal(got, want)
