"""mbarrier: phases, counts, transactions, states, waits that sleep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mosaic_gpu.errors import SimulationError
from tests.simulator.harness import launch

SHARED = ".shared .align 16 .b8 s[1024];"
START = """.reg .b32 %r<30>; .reg .b64 %a<9>, %s<9>; .reg .pred %p<9>; mov.u32 %r0, %tid.x; ld.param.u64 %a0, [p0];
    mad.wide.u32 %a1, %r0, 4, %a0; mov.u32 %r1, s; setp.eq.u32 %p0, %r0, 0;
"""
INIT = START + "@%p0 mbarrier.init.shared::cta.b64 [%r1], {count}; bar.sync 0;\n"
WAIT = "\n{{ .reg .pred q; W: mbarrier.try_wait.parity.shared::cta.b64 q, [%r1], {parity}; @!q bra W; }}\n"


def run(body: str, size: int = 128, block: int = 128, **options: Any) -> Any:
    out = np.zeros(size, np.uint32)
    launch(body + "\nst.global.u32 [%a1], %r9;", [out], block=block, declarations=SHARED, **options)
    return out


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_phase_completes_when_all_have_arrived(seed: int) -> None:
    body = (
        INIT.format(count=96)
        + """mov.u32 %r9, 0; setp.lt.u32 %p1, %r0, 32; @%p1 bra CONSUMER;
    setp.eq.u32 %p2, %r0, 77; @%p2 st.shared.u32 [%r1+64], 7; mbarrier.arrive.shared.b64 %s0, [%r1];
    mov.u32 %r9, 1; bra DONE; CONSUMER:"""
        + WAIT.format(parity=0)
        + "ld.shared.u32 %r9, [%r1+64]; DONE:"
    )
    np.testing.assert_array_equal(run(body, seed=seed), np.where(np.arange(128) < 32, 7, 1))


def test_every_phase_has_its_parity() -> None:
    body = INIT.format(count=128) + "mov.u32 %r9, 0; mov.u32 %r2, 0;\nL: mbarrier.arrive.shared.b64 _, [%r1];\n"
    body += """and.b32 %r3, %r2, 1; W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], %r3, 1000; @!%p1 bra W;
    add.u32 %r9, %r9, 1; add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 5; @%p2 bra L;"""
    np.testing.assert_array_equal(run(body), 5)


def test_the_phase_before_the_first_counts_as_complete() -> None:
    body = (
        INIT.format(count=1)
        + """mbarrier.test_wait.parity.shared.b64 %p1, [%r1], 1;
    mbarrier.test_wait.parity.shared.b64 %p2, [%r1], 0; selp.u32 %r9, 1, 0, %p1; @%p2 add.u32 %r9, %r9, 2;"""
    )
    np.testing.assert_array_equal(run(body), 1)


def test_states_tell_the_phase_and_the_pending_count() -> None:
    body = (
        INIT.format(count=2)
        + """mov.u32 %r9, 0; @!%p0 bra DONE; mbarrier.arrive.shared.b64 %s0, [%r1];
    mbarrier.pending_count.b64 %r2, %s0;"""
    )
    body += """mbarrier.test_wait.shared.b64 %p1, [%r1], %s0; mbarrier.arrive.shared.b64 %s1, [%r1], 1;
    mbarrier.pending_count.b64 %r3, %s1; mbarrier.test_wait.shared.b64 %p2, [%r1], %s0;
    mbarrier.try_wait.shared.b64 %p3, [%r1], %s1; shl.b32 %r2, %r2, 8; shl.b32 %r3, %r3, 4; or.b32 %r9, %r2, %r3;
    @%p1 or.b32 %r9, %r9, 1; @%p2 or.b32 %r9, %r9, 2; @%p3 or.b32 %r9, %r9, 4; DONE:"""
    assert run(body)[0] == 0x216


def test_many_arrivals_at_once_by_count_and_threads() -> None:
    body = INIT.format(count=256) + "mov.u32 %r9, 3; mbarrier.arrive.shared.b64 _, [%r1], 2;" + WAIT.format(parity=0)
    np.testing.assert_array_equal(run(body), 3)


def test_arrivals_of_one_instruction_may_belong_to_two_phases() -> None:
    body = INIT.format(count=64) + "mov.u32 %r9, 0; mbarrier.arrive.shared.b64 _, [%r1];" + WAIT.format(parity=1)
    body += "mbarrier.test_wait.parity.shared.b64 %p1, [%r1], 0; selp.u32 %r9, 1, 0, %p1;"
    np.testing.assert_array_equal(run(body), 0)


def test_dropped_arrivals_are_not_expected_again() -> None:
    body = (
        INIT.format(count=128)
        + """setp.lt.u32 %p1, %r0, 32; mov.u32 %r9, 1; @%p1 bra STAY;
    mbarrier.arrive_drop.shared.b64 _, [%r1]; bra DONE;
    STAY: mbarrier.arrive.shared.b64 _, [%r1];"""
        + WAIT.format(parity=0)
        + "mbarrier.arrive.shared.b64 _, [%r1];"
        + WAIT.format(parity=1).replace("W:", "V:").replace("bra W", "bra V")
        + "mov.u32 %r9, 2; DONE:"
    )
    np.testing.assert_array_equal(run(body), np.where(np.arange(128) < 32, 2, 1))


def test_transactions_hold_a_phase_open() -> None:
    body = (
        INIT.format(count=1)
        + """mov.u32 %r9, 0; setp.ge.u32 %p1, %r0, 32; @%p1 bra WAITING; @!%p0 bra DONE;
    st.shared.u32 [%r1+64], 5; mbarrier.arrive.expect_tx.release.cta.shared::cta.b64 _, [%r1], 48;
    mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 16;
    mbarrier.complete_tx.relaxed.cta.shared::cluster.b64 [%r1], 60;
    mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 4; bra DONE; WAITING:"""
        + WAIT.format(parity=0)
        + "ld.shared.u32 %r9, [%r1+64]; DONE:"
    )
    np.testing.assert_array_equal(run(body), np.where(np.arange(128) < 32, 0, 5))


def test_generic_addresses_reach_an_mbarrier() -> None:
    body = (
        INIT.format(count=128)
        + """cvt.u64.u32 %a2, %r1; cvta.shared.u64 %a2, %a2; mov.u32 %r9, 4;
    mbarrier.arrive.b64 %s0, [%a2]; W: mbarrier.try_wait.b64 %p1, [%a2], %s0; @!%p1 bra W;"""
    )
    np.testing.assert_array_equal(run(body), 4)


def test_a_wait_without_a_loop_is_answered_with_no_first() -> None:
    body = INIT.format(count=1) + "mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0; selp.u32 %r9, 1, 0, %p1;"
    np.testing.assert_array_equal(run(body), 0)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("mbarrier.arrive.shared.b64 _, [%r1], 3;", "over-arrival: 3 arrivals at the mbarrier at byte 0"),
        ("mbarrier.arrive.shared.b64 _, [%r1+8];", "there is no mbarrier at byte 8 of the shared memory of block 0"),
        ("mbarrier.arrive.noComplete.shared.b64 %s0, [%r1], 2;", "noComplete completes the phase"),
        ("mbarrier.expect_tx.relaxed.cta.shared.b64 [%r1], 1048576;", "tx-count of the mbarrier at byte 0"),
        ("mbarrier.arrive.shared.b64 _, [%r1]; mbarrier.init.shared.b64 [%r1], 2;", "initialised again while"),
        ("mbarrier.init.shared.b64 [%r1+8], 0;", "count is 1 to 1048575, got 0"),
        ("mbarrier.arrive.b64 _, [%a0];", "it must be in shared memory"),
        ("mbarrier.inval.shared.b64 [%r1]; mbarrier.arrive.shared.b64 _, [%r1];", "there is no mbarrier"),
        ("mbarrier.arrive.shared.b64 _, [%r1+4];", "misaligned mbarrier access"),
    ],
)
def test_faults_are_named(body: str, message: str) -> None:
    start = START + "mbarrier.init.shared.b64 [%r1], 2; st.shared.u64 [%r1+8], 0; mov.u32 %r9, 0;"
    with pytest.raises(SimulationError, match=message):
        run(start + body, block=1)


def test_an_mbarrier_may_be_where_other_data_was() -> None:
    body = START + "st.shared.s64 [%r1], -8; mbarrier.init.shared.b64 [%r1], 2; mov.u32 %r9, 7;"
    np.testing.assert_array_equal(run(body, size=1, block=1), 7)


def test_a_barrier_that_never_completes_is_a_deadlock_with_a_table() -> None:
    body = (
        INIT.format(count=3)
        + "mov.u32 %r9, 0; @%p0 mbarrier.arrive.expect_tx.shared.b64 _, [%r1], 16;"
        + WAIT.format(parity=0)
    )
    with pytest.raises(SimulationError) as caught:
        run(body)
    text = str(caught.value)
    assert "deadlock: 128 of 128 threads wait" in text
    assert "wait for phase parity 0 of the mbarrier at byte 0 of the shared memory of block 0" in text
    assert "(phase parity 0, 1 of 3 arrived, tx-count 16), PTX line" in text


def test_waiting_costs_nothing() -> None:
    body = (
        INIT.format(count=1)
        + """mov.u32 %r9, 0; @!%p0 bra WAITING; mov.u32 %r2, 0; L: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 3000;
    @%p2 bra L; mbarrier.arrive.shared.b64 _, [%r1]; bra DONE; WAITING:"""
        + WAIT.format(parity=0)
        + "DONE:"
    )
    out = np.zeros(512, np.uint32)
    result = launch(body + "\nst.global.u32 [%a1], %r9;", [out], block=512, declarations=SHARED)
    assert result.instructions < 3 * 3000 + 40 * 512
