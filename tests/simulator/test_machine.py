"""The scheduler: divergence, reconvergence, barriers, deadlocks, limits."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from mosaic_gpu.errors import SimulationError
from mosaic_gpu.simulator import launch as launch_module
from mosaic_gpu.simulator import load
from tests.simulator.harness import HEADER, kernel_text, launch

START = """.reg .b32 %r<20>; .reg .b64 %a<9>; .reg .pred %p<9>; mov.u32 %r0, %tid.x; ld.param.u64 %a0, [p0];
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mad.lo.u32 %r3, %r1, %r2, %r0; mad.wide.u32 %a1, %r3, 4, %a0;"""
SHARED = ".shared .align 4 .b8 s[4096];"


@pytest.mark.parametrize(("grid", "block"), [(1, 1), (1, 33), (3, 100), (7, 64)])
def test_a_loop_of_a_different_length_in_each_thread(grid: int, block: int) -> None:
    body = (
        START
        + """rem.u32 %r4, %r3, 13; mov.u32 %r5, 0; mov.u32 %r6, 0;
    L: setp.ge.u32 %p0, %r6, %r4; @%p0 bra D; add.u32 %r6, %r6, 1; mad.lo.u32 %r5, %r6, %r6, %r5; and.b32 %r7, %r6, 1;
    setp.eq.u32 %p1, %r7, 0; @%p1 bra L; add.u32 %r5, %r5, 1000; bra L;
    D: st.global.u32 [%a1], %r5;"""
    )
    out = np.zeros(grid * block, np.uint32)
    launch(body, [out], grid=grid, block=block)
    want = [sum(i * i + 1000 * (i % 2) for i in range(1, t % 13 + 1)) for t in range(grid * block)]
    np.testing.assert_array_equal(out, want)


def test_threads_that_exit_early_leave_the_others_running() -> None:
    body = (
        START
        + """and.b32 %r4, %r0, 3; setp.eq.u32 %p0, %r4, 1; @%p0 exit; setp.eq.u32 %p1, %r4, 2; @%p1 ret;
    bar.sync 0; activemask.b32 %r5; st.global.u32 [%a1], %r5;"""
    )
    out = np.zeros(128, np.uint32)
    launch(body, [out], grid=2, block=64)
    lane = np.arange(128) % 4
    np.testing.assert_array_equal(out, np.where((lane == 1) | (lane == 2), 0, 0x99999999))


def test_a_branch_table_sends_each_thread_to_its_case() -> None:
    body = (
        START
        + """rem.u32 %r4, %r0, 3; T: .branchtargets A, B, C; brx.idx %r4, T;
    A: mov.u32 %r5, 10; bra D; B: mov.u32 %r5, 20; bra D; C: mov.u32 %r5, 30; D: st.global.u32 [%a1], %r5;"""
    )
    out = np.zeros(40, np.uint32)
    launch(body, [out], block=40)
    np.testing.assert_array_equal(out, 10 + 10 * (np.arange(40) % 3))
    with pytest.raises(SimulationError, match="branch index 3 of 3"):
        launch(body.replace("rem.u32 %r4, %r0, 3", "rem.u32 %r4, %r0, 4"), [out], block=40)


def test_labels_belong_to_their_scope() -> None:
    body = (
        START
        + """mov.u32 %r4, 0;
    { .reg .pred %q; L: add.u32 %r4, %r4, 1; setp.lt.u32 %q, %r4, 5; @%q bra L; }
    { .reg .pred %q; bra M; L: add.u32 %r4, %r4, 100; bra N; M: bra L; N: }
    st.global.u32 [%a1], %r4;"""
    )
    out = np.zeros(4, np.uint32)
    launch(body, [out], block=4)
    np.testing.assert_array_equal(out, 105)


def test_registers_of_an_inner_scope_hide_the_outer_ones() -> None:
    body = START + "mov.u32 %r4, 7; { .reg .b32 %r4; mov.u32 %r4, 9; } st.global.u32 [%a1], %r4;"
    out = np.zeros(1, np.uint32)
    launch(body, [out], block=1)
    assert out[0] == 7


def test_a_barrier_orders_shared_memory_between_warps() -> None:
    body = (
        START
        + """mov.u32 %r4, s; mad.lo.u32 %r5, %r0, 4, %r4; st.shared.u32 [%r5], %r3; bar.sync 0;
    sub.u32 %r6, %r2, %r0; sub.u32 %r6, %r6, 1; mad.lo.u32 %r6, %r6, 4, %r4; ld.shared.u32 %r7, [%r6];
    st.global.u32 [%a1], %r7;"""
    )
    out = np.zeros(5 * 96, np.uint32)
    launch(body, [out], grid=5, block=96, declarations=SHARED)
    np.testing.assert_array_equal(out.reshape(5, 96), np.arange(5 * 96).reshape(5, 96)[:, ::-1])


def test_named_barriers_with_counts_join_some_warps() -> None:
    body = (
        START
        + """mov.u32 %r4, s; setp.ge.u32 %p0, %r0, 64; @%p0 bra OTHER;
    mad.lo.u32 %r5, %r0, 4, %r4; st.shared.u32 [%r5], %r0; barrier.sync 3, 64; xor.b32 %r6, %r0, 32;
    mad.lo.u32 %r6, %r6, 4, %r4;
    ld.shared.u32 %r7, [%r6]; bra DONE;
    OTHER: mov.u32 %r7, 5; DONE: bar.sync 0, 128; st.global.u32 [%a1], %r7;"""
    )
    out = np.zeros(128, np.uint32)
    launch(body, [out], block=128, declarations=SHARED)
    np.testing.assert_array_equal(out, np.where(np.arange(128) < 64, np.arange(128) ^ 32, 5))


def test_a_producer_arrives_and_a_consumer_waits() -> None:
    body = (
        START
        + """mov.u32 %r4, s; and.b32 %r8, %r0, 31; mad.lo.u32 %r5, %r8, 4, %r4; setp.lt.u32 %p0, %r0, 32;
    @%p0 bra CONSUMER;
    st.shared.u32 [%r5], %r0; bar.arrive 1, 64; ret;
    CONSUMER: bar.sync 1, 64; ld.shared.u32 %r7, [%r5]; st.global.u32 [%a1], %r7;"""
    )
    out = np.zeros(32, np.uint32)
    launch(body, [out], block=64, declarations=SHARED)
    np.testing.assert_array_equal(out, np.arange(32) + 32)


def test_a_barrier_reduces_a_predicate() -> None:
    body = (
        START
        + """setp.lt.u32 %p0, %r0, 5; bar.red.popc.u32 %r4, 0, %p0; bar.red.and.pred %p1, 0, %p0;
    bar.red.or.pred %p2, 0, 64, !%p0;
    selp.u32 %r5, 100, 0, %p1; selp.u32 %r6, 1000, 0, %p2; add.u32 %r4, %r4, %r5; add.u32 %r4, %r4, %r6;
    st.global.u32 [%a1], %r4;"""
    )
    out = np.zeros(128, np.uint32)
    launch(body, [out], grid=2, block=64)
    np.testing.assert_array_equal(out, 1005)


def test_a_barrier_that_some_warps_never_reach_is_a_deadlock_with_a_table() -> None:
    body = START + "setp.lt.u32 %p0, %r0, 32; @%p0 bra A; bar.sync 1; bra D; A:\nbar.sync 0; D:"
    with pytest.raises(SimulationError) as caught:
        launch(body, [np.zeros(1)], block=64)
    text = str(caught.value)
    assert "deadlock: 64 of 64 threads wait" in text
    assert "block 0: 32 threads wait on barrier 0 (32 of 64 arrived), PTX line 9" in text
    assert "block 0: 32 threads wait on barrier 1 (32 of 64 arrived), PTX line 8" in text


def test_a_count_that_exited_threads_can_no_longer_reach_is_a_deadlock() -> None:
    body = START + "setp.lt.u32 %p0, %r0, 32; @%p0 exit; bar.sync 0, 64;"
    with pytest.raises(SimulationError, match=r"32 have exited[\s\S]*32 of 64 arrived"):
        launch(body, [np.zeros(1)], block=64)


def test_a_shuffle_whose_lanes_never_come_is_a_deadlock() -> None:
    body = (
        START + "setp.lt.u32 %p0, %r0, 16; @%p0 bra A; bra B; A: bar.sync 0; B: setp.lt.u32 %p1, %r0, 16; "
        "@%p1 bra C; shfl.sync.idx.b32 %r4, %r0, 0, 31, -1; C:"
    )
    with pytest.raises(
        SimulationError, match=r"deadlock[\s\S]*wait for the other lanes of their warp at shfl.sync.idx.b32"
    ):
        launch(body + "bar.sync 0;", [np.zeros(1)], block=32)


def test_lanes_that_take_different_ways_meet_at_a_shuffle() -> None:
    body = (
        START
        + """and.b32 %r4, %r0, 1; setp.eq.u32 %p0, %r4, 0; mov.u32 %r6, %r0; @%p0 bra S;
    mov.u32 %r5, 0; L: add.u32 %r5, %r5, 1; setp.lt.u32 %p1, %r5, %r0; @%p1 bra L; add.u32 %r6, %r6, 100;
    S: shfl.sync.bfly.b32 %r7, %r6, 1, 31, -1; st.global.u32 [%a1], %r7;"""
    )
    out = np.zeros(64, np.uint32)
    launch(body, [out], block=64)
    partner = np.arange(64) ^ 1
    np.testing.assert_array_equal(out, partner + 100 * (partner % 2))


def test_bar_warp_sync_joins_the_lanes_of_two_branches() -> None:
    body = (
        START
        + """mov.u32 %r4, s; mad.lo.u32 %r5, %r0, 4, %r4; st.shared.u32 [%r5], %r0; setp.lt.u32 %p0, %r0, 7;
    @%p0 bra A;
    bar.warp.sync -1; bra D; A: bar.warp.sync -1; D: xor.b32 %r6, %r0, 31; mad.lo.u32 %r6, %r6, 4, %r4;
    ld.shared.u32 %r7, [%r6];
    st.global.u32 [%a1], %r7;"""
    )
    out = np.zeros(32, np.uint32)
    launch(body, [out], block=32, declarations=SHARED)
    np.testing.assert_array_equal(out, 31 - np.arange(32))


def test_a_spin_lock_lets_its_holder_run() -> None:
    body = (
        START
        + """L: atom.global.cas.b32 %r4, [%a0], 0, 1; setp.ne.u32 %p0, %r4, 0; @%p0 bra L; membar.gl;
    ld.global.u32 %r5, [%a0+4]; add.u32 %r5, %r5, 1; st.global.u32 [%a0+4], %r5; membar.gl;
    atom.global.exch.b32 %r6, [%a0], 0;"""
    )
    out = np.zeros(2, np.uint32)
    launch(body, [out], grid=6, block=1)
    assert out.tolist() == [0, 6]


def test_a_flag_is_awaited_at_a_lower_line_than_it_is_set() -> None:
    body = (
        START
        + """setp.eq.u32 %p0, %r0, 33; @%p0 bra SET; WAIT: ld.volatile.global.u32 %r4, [%a0];
    setp.eq.u32 %p1, %r4, 0; @%p1 bra WAIT; ret;
    SET: mov.u32 %r5, 1; st.volatile.global.u32 [%a0], %r5;"""
    )
    out = np.zeros(1, np.uint32)
    launch(body, [out], block=64)
    assert out[0] == 1


def test_an_endless_loop_stops_at_the_limit() -> None:
    with pytest.raises(SimulationError, match="more than 10000 thread-instructions"):
        launch(START + "L: add.u32 %r4, %r4, 1; bra L;", [np.zeros(1)], instruction_limit=10000)


def test_a_trap_stops_the_launch() -> None:
    with pytest.raises(SimulationError, match=r"the kernel trapped[\s\S]*thread \(5, 0, 0\)"):
        launch(START + "setp.eq.u32 %p0, %r0, 5; @%p0 trap;", [np.zeros(1)])


def test_special_registers_describe_the_launch() -> None:
    # fmt: off
    names = ["%tid.x", "%tid.y", "%tid.z", "%ctaid.x", "%ctaid.y", "%ctaid.z", "%ntid.x", "%ntid.y", "%ntid.z",
             "%nctaid.x", "%nctaid.y", "%nctaid.z", "%laneid", "%warpid", "%nwarpid", "%lanemask_lt", "%lanemask_ge"]
    # fmt: on
    stores = "".join(f"mov.u32 %r4, {name}; st.global.u32 [%a1+{4 * i}], %r4;" for i, name in enumerate(names))
    body = START + """mov.u32 %r5, %tid.y; mov.u32 %r6, %ntid.y; mov.u32 %r7, %tid.z; mov.u32 %r8, %ctaid.y;
    mov.u32 %r9, %nctaid.x;
    mad.lo.u32 %r10, %r7, %r6, %r5; mad.lo.u32 %r10, %r10, %r2, %r0; mov.u32 %r11, %ctaid.z; mov.u32 %r12, %nctaid.y;
    mad.lo.u32 %r11, %r11, %r12, %r8; mad.lo.u32 %r11, %r11, %r9, %r1; mad.lo.u32 %r10, %r11, 40, %r10;
    mad.wide.u32 %a1, %r10, 68, %a0;""" + stores  # fmt: skip
    out = np.zeros((2 * 3 * 2, 40, 17), np.uint32)
    launch(body, [out], grid=(2, 3, 2), block=(5, 4, 2))
    for block in range(12):
        for thread in range(40):
            lane = thread % 32
            want = [thread % 5, thread // 5 % 4, thread // 20, block % 2, block // 2 % 3, block // 6, 5, 4, 2, 2, 3, 2,
                    lane, thread // 32, 2, (1 << lane) - 1, 0xFFFFFFFF & ~((1 << lane) - 1)]  # fmt: skip
            assert out[block, thread].tolist() == want


def test_a_grid_larger_than_a_wave_gives_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_module, "RESIDENT_THREADS", 100)
    out = np.zeros(1000, np.uint32)
    result = launch(START + "st.global.u32 [%a1], %r3;", [out], grid=25, block=40)
    np.testing.assert_array_equal(out, np.arange(1000))
    assert (result.blocks, result.threads) == (25, 1000)


def test_counters_count_threads_and_warps() -> None:
    result = launch("", [np.zeros(1)], grid=3, block=40)
    assert (result.instructions, result.warp_instructions) == (120, 6)


def test_an_empty_grid_runs_nothing() -> None:
    result = launch("trap;", [np.zeros(1)], grid=(4, 0), block=32)
    assert (result.instructions, result.blocks) == (0, 0)


@pytest.mark.parametrize(
    ("grid", "block", "options", "what"),
    [
        (1, 1025, {}, "1 to 1024 threads"),
        (1, 1, {"shared_bytes": 300000}, "bytes of shared memory"),
        (3, 1, {"cluster": 2}, "divide the grid"),
    ],
)
def test_a_launch_that_does_not_fit_is_refused(grid: int, block: int, options: Any, what: str) -> None:
    with pytest.raises(SimulationError, match=what):
        launch("", [np.zeros(1)], grid=grid, block=block, **options)


def test_reqntid_is_enforced() -> None:
    text = kernel_text("", []).replace("()\n{", "()\n.reqntid 128\n{")
    load(text).launch("k", 1, 128, [])
    with pytest.raises(SimulationError, match="reqntid"):
        load(text).launch("k", 1, 64, [])


def test_negative_dimensions_are_value_errors() -> None:
    with pytest.raises(ValueError, match="grid must be one to three ints"):
        launch("", [np.zeros(1)], grid=-1)


def test_device_functions_take_and_return_parameters() -> None:
    functions = (
        HEADER
        + """
    .func (.param .b32 out) square(.param .b32 in) { .reg .b32 %r<3>; ld.param.b32 %r0, [in];
    mul.lo.s32 %r1, %r0, %r0; st.param.b32 [out], %r1; ret; }
    .func (.reg .b32 %x) twice(.reg .b32 %y) { .reg .pred %p; setp.gt.s32 %p, %y, 5; @%p bra B; add.s32 %x, %y, %y;
    ret; B: mov.u32 %x, -1; ret; }
    .func (.param .b64 out) sum(.param .align 16 .b8 in[16]) { .reg .b64 %a<4>; .reg .b32 %q;
        .local .align 8 .b8 tmp[16]; ld.param.v2.b64 {%a0, %a1}, [in]; st.local.b64 [tmp+8], %a0;
    ld.local.b64 %a2, [tmp+8];
        add.s64 %a2, %a2, %a1; st.param.b64 [out], %a2; ret; }"""
    )
    body = (
        START
        + """setp.lt.u32 %p0, %r0, 3; @%p0 bra SKIP;
    { .param .b32 i; .param .b32 o; st.param.b32 [i], %r0; call.uni (o), square, (i); ld.param.b32 %r5, [o];
    } bra JOIN;
    SKIP: call (%r5), twice, (%r0);
    JOIN: call (%r6), twice, (%r0); add.s32 %r5, %r5, %r6; cvt.u64.u32 %a2, %r5;
    { .param .align 16 .b8 i[16]; .param .b64 o; st.param.b64 [i], %a2; st.param.b64 [i+8], 1000;
    call (o), sum, (i); ld.param.b64 %a3, [o]; }
    st.global.u32 [%a1], %a3;""".replace("st.global.u32 [%a1], %a3", "cvt.u32.u64 %r7, %a3; st.global.u32 [%a1], %r7")
    )
    out = np.zeros(40, np.int32)
    text = functions + kernel_text(body, ["u64"]).removeprefix(HEADER)
    load(text).launch("k", 1, 40, [out])
    t = np.arange(40)
    doubled = np.where(t > 5, -1, 2 * t)
    np.testing.assert_array_equal(out, np.where(t < 3, doubled, t * t) + doubled + 1000)


def test_launches_in_several_threads_do_not_disturb_each_other() -> None:
    module = load(
        kernel_text(
            START + "mov.u32 %r4, 0; L: add.u32 %r4, %r4, 1; setp.lt.u32 %p0, %r4, %r3; @%p0 bra L; "
            "st.global.u32 [%a1], %r4;",
            ["u64"],
        )
    )
    outs = [np.zeros(64 * (i + 1), np.uint32) for i in range(6)]
    threads = [threading.Thread(target=module.launch, args=("k", i + 1, 64, [out])) for i, out in enumerate(outs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for out in outs:
        np.testing.assert_array_equal(out, np.maximum(np.arange(len(out)), 1))


def test_a_cluster_barrier_joins_the_blocks_of_a_cluster() -> None:
    body = (
        START
        + """mov.u32 %r4, %cluster_ctarank; mov.u32 %r5, %clusterid.x; atom.global.add.u32 %r6, [%a0], 1;
    barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned; ld.volatile.global.u32 %r7, [%a0];
    add.u64 %a1, %a1, 4; st.global.u32 [%a1], %r7;"""
    )
    out = np.zeros(129, np.uint32)
    launch(body, [out], grid=4, block=32, cluster=2)
    assert (out[1:] >= 64).all()


def test_a_thread_outside_its_own_member_mask_is_an_error() -> None:
    body = START + "shfl.sync.idx.b32 %r4, %r0, 0, 31, 0xffff;"
    with pytest.raises(SimulationError, match=r"not in the member mask 0xffff[\s\S]*lane 16"):
        launch(body, [np.zeros(1)], block=32)
