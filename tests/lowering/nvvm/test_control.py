"""Structured control flow around per-thread vectors."""

from __future__ import annotations

import numpy as np
import pytest

from mosaic_gpu.dialect._mlir import arith, ir, scf
from mosaic_gpu.dialect.layouts import Layout
from tests.lowering.nvvm.combiners import add, reduce
from tests.lowering.nvvm.harness import constant, i32, load, run, store

LAYOUT = Layout.blocked((100,), 2, 1)


def test_a_loop_carries_tiles_and_scalars() -> None:
    x = np.arange(100, dtype=np.float32)

    def body(ref: ir.Value, out: ir.Value, count: ir.Value) -> None:
        value = load(ref, LAYOUT)
        loop = scf.ForOp(i32(0), i32(5), i32(2), [value, i32(0)])
        with ir.InsertionPoint(loop.body):
            tile, number = loop.inner_iter_args
            index = loop.induction_variable
            scf.YieldOp([arith.AddFOp(tile, value).result, arith.AddIOp(number, index).result])
        store(loop.results[0], out)
        store(loop.results[1], count)

    found, count = run(body, [x], [((100,), np.float32), ((), np.int32)], 2)
    np.testing.assert_array_equal(found, 4 * x)
    assert count == 0 + 2 + 4


@pytest.mark.parametrize("taken", [0, 1])
def test_a_branch_gives_a_tile_of_either_side(taken: int) -> None:
    x = np.arange(100, dtype=np.int32)

    def body(ref: ir.Value, flag: ir.Value, out: ir.Value) -> None:
        value = load(ref, LAYOUT)
        condition = arith.CmpIOp(arith.CmpIPredicate.ne, load(flag), i32(0)).result
        branch = scf.IfOp(condition, [value.type], has_else=True)
        with ir.InsertionPoint(branch.then_block):
            scf.YieldOp([value])
        with ir.InsertionPoint(branch.else_block):
            scf.YieldOp([arith.MulIOp(value, value).result])
        store(branch.results[0], out)

    (found,) = run(body, [x, np.array(taken, np.int32)], [((100,), np.int32)], 2)
    np.testing.assert_array_equal(found, x if taken else x * x)


def test_a_while_loop_runs_on_a_reduced_scalar_across_warps() -> None:
    x = np.ones(100, np.int32)

    def body(ref: ir.Value, out: ir.Value) -> None:
        value = load(ref, LAYOUT)
        loop = scf.WhileOp([value.type], [value])
        before = loop.before.blocks.append(value.type)
        after = loop.after.blocks.append(value.type)
        with ir.InsertionPoint(before):
            total = reduce([before.arguments[0]], [0], None, add, [0])[0]
            scf.ConditionOp(arith.CmpIOp(arith.CmpIPredicate.slt, total, i32(1000)).result, [before.arguments[0]])
        with ir.InsertionPoint(after):
            scf.YieldOp([arith.AddIOp(after.arguments[0], after.arguments[0]).result])
        store(loop.results[0], out)

    (found,) = run(body, [x], [((100,), np.int32)], 2)
    np.testing.assert_array_equal(found, np.full(100, 16))


def test_exchanges_in_a_loop_do_not_overtake_one_another() -> None:
    x = np.arange(100, dtype=np.int64)

    def body(ref: ir.Value, out: ir.Value) -> None:
        value = load(ref, LAYOUT)
        zero = constant(ir.IntegerType.get_signless(64), 0)
        loop = scf.ForOp(i32(0), i32(3), i32(1), [zero])
        with ir.InsertionPoint(loop.body):
            total = reduce([value], [0], None, add, [0])[0]
            scf.YieldOp([arith.AddIOp(loop.inner_iter_args[0], total).result])
        store(loop.results[0], out)

    (found,) = run(body, [x], [((), np.int64)], 2)
    assert found == 3 * x.sum()
