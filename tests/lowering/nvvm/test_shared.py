"""Barriers around exchanges through shared memory: where they are needed, and only there."""

from __future__ import annotations

import numpy as np
import pytest

from mosaic_gpu.dialect._mlir import ir, scf
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.ops_kernel import BarrierOp
from mosaic_gpu.errors import UnsupportedError
from tests.lowering.nvvm.combiners import add, reduce
from tests.lowering.nvvm.harness import i32, load, ptx_of, run, store

LAYOUT = Layout.blocked((128,), 4)
X = np.arange(128, dtype=np.int32)


def total(ref: ir.Value) -> ir.Value:
    """A sum over all four warps: one exchange."""
    return reduce([load(ref, LAYOUT)], [0], None, add, [0])[0]


def barriers(body: object, outputs: int) -> int:
    text, _ = ptx_of(body, [X, *[np.zeros((), np.int32)] * outputs], 1, 4)  # type: ignore[arg-type]
    return text.count("bar.sync")


def test_exchanges_that_follow_one_another_take_turns_and_one_barrier_each() -> None:
    def body(ref: ir.Value, *outs: ir.Value) -> None:
        for out in outs:
            store(total(ref), out)

    assert barriers(body, 4) == 4
    for found in run(body, [X], [((), np.int32)] * 4):
        assert found == X.sum()


def test_an_exchange_in_a_loop_waits_for_the_one_of_the_round_before() -> None:
    def body(ref: ir.Value, out: ir.Value) -> None:
        loop = scf.ForOp(i32(0), i32(3), i32(1), [i32(0)])
        with ir.InsertionPoint(loop.body):
            scf.YieldOp([total(ref)])
        store(loop.results[0], out)

    assert barriers(body, 1) == 2


def test_a_barrier_of_the_kernel_is_enough() -> None:
    def body(ref: ir.Value, out: ir.Value) -> None:
        loop = scf.ForOp(i32(0), i32(3), i32(1), [i32(0)])
        with ir.InsertionPoint(loop.body):
            BarrierOp()
            scf.YieldOp([total(ref)])
        store(loop.results[0], out)

    assert barriers(body, 1) == 2


def test_an_exchange_after_a_loop_with_exchanges_waits() -> None:
    def body(ref: ir.Value, out: ir.Value) -> None:
        loop = scf.ForOp(i32(0), i32(3), i32(1), [total(ref)])
        with ir.InsertionPoint(loop.body):
            scf.YieldOp([total(ref)])
        store(total(ref), out)

    assert barriers(body, 1) == 1 + 2 + 2


def test_scratch_memory_that_leaves_no_room_is_refused() -> None:
    def body(ref: ir.Value, out: ir.Value) -> None:
        store(total(ref), out)

    with pytest.raises(UnsupportedError, match="no room for exchanges"):
        ptx_of(body, [X, np.zeros((), np.int32)], 1, 4, smem_bytes=227 * 1024 - 512)
