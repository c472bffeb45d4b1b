"""Intervals of integers in the IR, against all values that they can have."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from mosaic_gpu import dialect
from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.intervals import Interval, interval_of

KERNEL = """
"mgpu.kernel"() ({{
^bb0(%v: !mgpu.ref<tensor<i32>, "gmem">):
  %zero = arith.constant 0 : i32
  %one = arith.constant 1 : i32
  %pid = "mgpu.program_id"() {{axis = 1 : i32}} : () -> i32
  %unknown = "mgpu.load"(%v) {{operandSegmentSizes = array<i32: 1, 0, 0>}} : (!mgpu.ref<tensor<i32>, "gmem">) -> i32
  {}
}}) {{sym_name = "k", grid = [2 : i32, 6 : i32], num_warps = 0 : i32, num_inputs = 1 : i32,
     aliases = [0 : i32]}} : () -> ()
"""


def interval(lines: str) -> Interval:
    """The interval of `%r`, which `lines` define inside of a kernel of grid (2, 6)."""
    with ir.Context(), ir.Location.unknown():
        dialect.load()
        module = ir.Module.parse(KERNEL.format(lines))
        body = module.body.operations[0].regions[0].blocks[0]
        return interval_of(body.operations[len(body.operations) - 1].results[0])


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("%r = arith.addi %pid, %one : i32", (1, 6)),
        ("%r = arith.muli %pid, %pid : i32", (0, 25)),
        ("%c = arith.constant 4 : i32\n%r = arith.remsi %pid, %c : i32", (0, 3)),
        ("%c = arith.constant 9 : i32\n%r = arith.remsi %pid, %c : i32", (0, 5)),
        ("%c = arith.constant 2 : i32\n%r = arith.divsi %pid, %c : i32", (0, 2)),
        ("%c = arith.constant 3 : i32\n%r = arith.minsi %unknown, %c : i32", (-(2**31), 3)),
        ("%m = arith.maxsi %unknown, %zero : i32\n%r = arith.minsi %m, %one : i32", (0, 1)),
        ("%c = arith.constant 7 : i32\n%r = arith.andi %unknown, %c : i32", (0, 7)),
        ("%r = arith.subi %unknown, %one : i32", (-(2**31), 2**31 - 1)),
        ("%r = arith.extsi %pid : i32 to i64", (0, 5)),
        ("%c = arith.cmpi slt, %pid, %zero : i32\n%r = arith.select %c, %unknown, %pid : i32", (0, 5)),
        ("%c = arith.cmpi slt, %unknown, %zero : i32\n%r = arith.select %c, %one, %pid : i32", (0, 5)),
        ("%c = arith.cmpi slt, %unknown, %zero : i32\n%r = arith.extsi %c : i1 to i32", (-(2**31), 2**31 - 1)),
        ("%c = arith.cmpi slt, %unknown, %zero : i32\n%r = arith.extui %c : i1 to i32", (0, 1)),
        ("%c = arith.constant 2147483647 : i32\n%r = arith.addi %pid, %c : i32", (-(2**31), 2**31 - 1)),
        ('%r = "mgpu.iota"() {dimension = 0 : i32} : () -> tensor<9xi32>', (0, 8)),
        ("%r = arith.constant dense<-4> : tensor<3xi32>", (-4, -4)),
    ],
)
def test_what_is_known_of_an_integer(lines: str, expected: tuple[int, int]) -> None:
    assert interval(lines) == Interval(*expected)


def test_the_induction_variable_of_a_loop() -> None:
    with ir.Context(), ir.Location.unknown():
        dialect.load()
        text = "%c = arith.constant 5 : i32\nscf.for %i = %one to %c step %one : i32 {\n%r = arith.addi %i, %i : i32\n}"
        module = ir.Module.parse(KERNEL.format(text))
        body = module.body.operations[0].regions[0].blocks[0]
        loop = body.operations[len(body.operations) - 1]
        assert interval_of(loop.regions[0].blocks[0].operations[0].results[0]) == Interval(2, 8)


_MEANINGS: dict[str, Callable[[int, int], int]] = {
    "AddIOp": lambda a, b: a + b,
    "SubIOp": lambda a, b: a - b,
    "MulIOp": lambda a, b: a * b,
    "DivSIOp": lambda a, b: int(a / b),
    "FloorDivSIOp": lambda a, b: a // b,
    "RemSIOp": lambda a, b: a - int(a / b) * b,
    "MaxSIOp": max,
    "MinSIOp": min,
    "AndIOp": lambda a, b: a & b,
    "ShLIOp": lambda a, b: a << b,
    "ShRSIOp": lambda a, b: a >> b,
}
_RANGES = [(-5, -2), (-3, 4), (0, 6), (2, 7), (3, 3)]


@pytest.mark.parametrize("name", _MEANINGS)
def test_no_value_of_an_operation_is_outside_of_its_interval(name: str) -> None:
    meaning, operation = _MEANINGS[name], getattr(arith, name)
    with ir.Context(), ir.Location.unknown():
        dialect.load()
        module = ir.Module.parse(KERNEL.format(""))
        block = module.body.operations[0].regions[0].blocks[0]
        unknown = block.operations[len(block.operations) - 1].results[0]
        with ir.InsertionPoint(block):
            for a, b in itertools.product(_RANGES, _RANGES):
                if ("Div" in name or "Rem" in name or "Sh" in name) and b[0] <= 0:
                    continue
                found = interval_of(operation(_between(unknown, *a), _between(unknown, *b)).result)
                values = [meaning(x, y) for x in range(a[0], a[1] + 1) for y in range(b[0], b[1] + 1)]
                assert found.low <= min(values)
                assert max(values) <= found.high


def _between(value: Any, low: int, high: int) -> Any:
    above = arith.MaxSIOp(value, emit.int_constant(low)).result
    return arith.MinSIOp(above, emit.int_constant(high)).result


def test_the_number_of_a_block_that_walks_tiles_is_natural_and_there_is_one_block_at_least() -> None:
    text = KERNEL.replace("axis = 1", "axis = 0").replace("[2 : i32, 6 : i32]", "[-1 : i32]")
    for line, low, high in (("program_id", 0, 2**31 - 2), ("num_programs", 1, 2**31 - 1)):
        with ir.Context(), ir.Location.unknown():
            dialect.load()
            module = ir.Module.parse(text.format(f'%r = "mgpu.{line}"() {{axis = 0 : i32}} : () -> i32'))
            body = module.body.operations[0].regions[0].blocks[0]
            assert interval_of(body.operations[len(body.operations) - 1].results[0]) == Interval(low, high)
