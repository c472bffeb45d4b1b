"""The function around the body: grid, parameters, attributes, locations."""

from __future__ import annotations

import numpy as np
import pytest

from mosaic_gpu import dialect, simulator
from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.ops_kernel import PERSISTENT, NumProgramsOp, ProgramIdOp
from mosaic_gpu.dialect.ops_memory import SubviewOp
from mosaic_gpu.dialect.types import element_of, ref_type
from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.lowering import launch as launch_module
from mosaic_gpu.lowering.launch import grid_of, launch_facts
from mosaic_gpu.lowering.nvvm import convert_to_nvvm
from mosaic_gpu.lowering.nvvm import kernel as kernel_module
from mosaic_gpu.lowering.options import LoweringOptions
from tests.lowering.nvvm.harness import array_attr, build, int_attr, load, ptx_of, run, store


def _element(ref: ir.Value, index: ir.Value) -> ir.Value:
    ones, zeros = array_attr([1]), array_attr([0])
    return SubviewOp(ref_type((), element_of(ref.type)), ref, [index], ones, ones, zeros, zeros).result


@pytest.mark.parametrize("grid", [(7,), (3, 4), (2, 3, 5), (4, 1, 2), (1, 1), ()], ids=str)
def test_program_ids_count_the_last_dimension_fastest(grid: tuple[int, ...]) -> None:
    total = int(np.prod(grid))

    def body(out: ir.Value) -> None:
        ids = [ProgramIdOp(int_attr(axis)).result for axis in range(len(grid))]
        flat, code = arith.ConstantOp(int_attr(0).type, 0).result, arith.ConstantOp(int_attr(0).type, 0).result
        for number, extent in zip(ids, grid, strict=True):
            scale = arith.ConstantOp(number.type, extent).result
            flat = arith.AddIOp(arith.MulIOp(flat, scale).result, number).result
            ten = arith.ConstantOp(number.type, 10).result
            code = arith.AddIOp(arith.MulIOp(code, ten).result, number).result
        store(code, _element(out, flat))

    (found,) = run(body, [], [((total,), np.int32)], 1, grid=grid)
    expected = [int("".join(map(str, index)) or "0") for index in np.ndindex(*grid)]
    np.testing.assert_array_equal(found, expected)


def test_a_grid_beyond_x_covers_every_block_and_leaves_out_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (launch_module, kernel_module):
        monkeypatch.setattr(module, "MAX_GRID_X", 10)
    extents = (5, 7)
    assert grid_of(extents) == (10, 4, 1)

    def body(out: ir.Value) -> None:
        row, column = (ProgramIdOp(int_attr(axis)).result for axis in range(2))
        width = arith.ConstantOp(row.type, 7).result
        flat = arith.AddIOp(arith.MulIOp(row, width).result, column).result
        store(flat, _element(out, flat))

    (found,) = run(body, [], [((35,), np.int32)], 1, grid=extents)
    np.testing.assert_array_equal(found, np.arange(35))


@pytest.mark.parametrize("blocks", [1, 5])
def test_a_persistent_kernel_is_told_its_block_and_how_many_there_are(blocks: int) -> None:
    def body(out: ir.Value) -> None:
        block = ProgramIdOp(int_attr(0)).result
        store(NumProgramsOp(int_attr(0)).result, _element(out, block))

    out = np.full(5, -1, np.int32)
    text, launch = ptx_of(body, [out], 0, 1, grid=(PERSISTENT,))
    assert launch.grid == (-1, 1, 1)
    simulator.load(text).launch("k", (blocks, 1, 1), (32, 1, 1), [out])
    np.testing.assert_array_equal(out, np.where(np.arange(5) < blocks, blocks, -1))


def test_num_programs_of_a_known_grid_is_a_constant() -> None:
    def body(out: ir.Value) -> None:
        row, column = (ProgramIdOp(int_attr(axis)).result for axis in range(2))
        height, width = (NumProgramsOp(int_attr(axis)).result for axis in range(2))
        place = arith.AddIOp(arith.MulIOp(row, width).result, column).result
        store(height, _element(out, place))

    (found,) = run(body, [], [((15,), np.int32)], 1, grid=(3, 5))
    np.testing.assert_array_equal(found, np.full(15, 3))


def test_the_function_says_how_it_is_launched() -> None:
    layout = Layout.blocked((512,), 4)
    with ir.Context(), ir.Location.unknown():
        dialect.load()
        module = build(lambda x, y: store(load(x, layout), y), [np.zeros(512, np.float32)] * 2, 1, 4, (3, 5), 48)
        facts = launch_facts(convert_to_nvvm(module, LoweringOptions()))
    assert (facts.entry, facts.grid, facts.block, facts.shared_bytes) == ("k", (15, 1, 1), (128, 1, 1), 48)


def test_ops_keep_their_locations() -> None:
    layout = Layout.blocked((512,), 4)

    def body(ref: ir.Value, out: ir.Value) -> None:
        with ir.Location.file("kernel.py", 17, 3):
            value = load(ref, layout)
        with ir.Location.file("kernel.py", 18, 3):
            store(value, out)

    text, _ = ptx_of(body, [np.zeros(512, np.float32)] * 2, 1, 4)
    lines = text.splitlines()
    at = {name: next(i for i, line in enumerate(lines) if name in line) for name in ("ld.global", "st.global")}
    locations = {n: [line.split()[2] for line in lines[:i] if ".loc" in line][-1] for n, i in at.items()}
    assert locations == {"ld.global": "17", "st.global": "18"}


def test_an_op_without_conversion_is_refused_with_its_line() -> None:
    def body(ref: ir.Value, out: ir.Value) -> None:
        with ir.Location.file("kernel.py", 17, 3):
            ir.Operation.create("cf.assert", operands=[load(ref)], attributes={"msg": ir.StringAttr.get("")})

    with pytest.raises(UnsupportedError, match=r"cf.assert has no conversion.*\n.*kernel.py:17"):
        ptx_of(body, [np.zeros((), bool)] * 2, 1, 1)
