"""Random kernels get barriers, then run thread by thread: no two threads meet at one place between two barriers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.assign_layouts import AssignLayouts
from mosaic_gpu.lowering.passes.insert_barriers import InsertBarriers
from mosaic_gpu.lowering.passes.plan_shared_memory import PlanSharedMemory
from mosaic_gpu.lowering.passes.walk import kernels
from mosaic_gpu.lowering.pipeline import compilation_context
from tests.support.races import RaceFinder

SIZE = 8
WHOLE = f"{SIZE}x{SIZE}xf32"
WINDOW = f"4x{SIZE}xf32"
TILES = {WHOLE: "%kw", WINDOW: "%kx", f"{SIZE}xf32": "%kr"}


def ref(shape: str, space: str) -> str:
    return f'!mgpu.ref<tensor<{shape}>, "{space}">'


class Writer:
    """Draws the text of a kernel: arguments %g0 and %g1 (one memory), allocations on the way."""

    def __init__(self, data: st.DataObject) -> None:
        self.data, self.count = data, 0

    def draw(self, *options: Any) -> Any:
        return self.data.draw(st.sampled_from(options))

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def kernel(self) -> str:
        constants = [f"%c{n} = arith.constant {n} : i32" for n in range(SIZE)]
        tiles = [f"{name} = arith.constant dense<1.0> : tensor<{shape}>" for shape, name in TILES.items()]
        warps = self.draw(1, 2)
        body = self.block({"%g0": "gmem", "%g1": "gmem"}, [], 3)
        lines = [*constants, *tiles, *body]
        text = "\n".join(["%f = arith.constant 1.0 : f32", *lines])
        attributes = f'grid = [1], num_warps = {warps} : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0, 0]'
        arguments = ", ".join(f"%g{i}: {ref(WHOLE, 'gmem')}" for i in range(2))
        return f""""mgpu.kernel"() ({{
        ^bb0({arguments}):
        {text}
        }}) {{{attributes}}} : () -> ()"""

    def block(self, refs: dict[str, str], counters: list[str], depth: int) -> list[str]:
        refs, lines = dict(refs), []
        for _ in range(self.data.draw(st.integers(1, 4))):
            kind = self.draw("access", "access", "access", "copy", "alloc", *(("for", "if", "while") if depth else ()))
            if kind == "alloc":
                name = self.name()
                lines.append(f'{name} = "mgpu.alloc"() : () -> {ref(WHOLE, "smem")}')
                refs[name] = "smem"
            elif kind in ("access", "copy"):
                lines += self.access(refs, counters) if kind == "access" else self.copy(refs)
            elif kind == "for":
                counter = self.name()
                inner = self.block(refs, [*counters, counter], depth - 1)
                lines += [f"scf.for {counter} = %c0 to %c3 step %c1 : i32 {{", *inner, "}"]
            elif kind == "if":
                ways = [self.block(refs, counters, depth - 1) for _ in range(2)]
                test = self.name()
                lines += [f"{test} = arith.constant true", f"scf.if {test} {{", *ways[0], "} else {", *ways[1], "}"]
            else:
                test = self.name()
                before, after = (self.block(refs, counters, depth - 1) for _ in range(2))
                lines += ["scf.while : () -> () {", *before, f"{test} = arith.constant true", f"scf.condition({test})"]
                lines += ["} do {", *after, "scf.yield", "}"]
        return lines

    def view(self, refs: dict[str, str], counters: list[str]) -> tuple[list[str], str, str, str]:
        """Lines that make a view (the whole, a row, a column or an element), its name, its tile and its space."""
        root = self.draw(*refs)
        space, name = refs[root], self.name()
        kind = self.draw("whole", "whole", "window", "row", "column", "element")
        if kind == "whole":
            return [], root, WHOLE, space
        offset = self.draw("%c0", "%c1", *counters, *counters)
        sizes, dropped, offsets = {
            "window": ([4, SIZE], [], [offset, "%c0"]),
            "row": ([1, SIZE], [0], [offset, "%c0"]),
            "column": ([SIZE, 1], [1], ["%c0", offset]),
            "element": ([1, 1], [0, 1], [offset, "%c0"]),
        }[kind]
        shape = {"element": "f32", "window": WINDOW}.get(kind, f"{SIZE}xf32")
        line = (
            f'{name} = "mgpu.subview"({root}, {", ".join(offsets)}) {{sizes = {sizes}, strides = [1, 1], '
            f"dropped = {dropped}, checked = [0, 0], operandSegmentSizes = array<i32: 1, 2>}} "
            f": ({ref(WHOLE, space)}, i32, i32) -> {ref(shape, space)}"
        )
        return [line], name, shape, space

    def access(self, refs: dict[str, str], counters: list[str]) -> list[str]:
        lines, name, shape, space = self.view(refs, counters)
        type_ = "f32" if shape == "f32" else f"tensor<{shape}>"
        if self.draw(True, False):
            value = TILES.get(shape, "%f")
            return [*lines, self.store(value, name, type_, shape, space)]
        return [*lines, self.load(self.name(), name, type_, shape, space)]

    def copy(self, refs: dict[str, str]) -> list[str]:
        """One array, perhaps transposed, into another."""
        source, dest, loaded, moved = self.draw(*refs), self.draw(*refs), self.name(), self.name()
        type_ = f"tensor<{WHOLE}>"
        permutation = self.draw([0, 1], [1, 0])
        return [
            self.load(loaded, source, type_, WHOLE, refs[source]),
            f'{moved} = "mgpu.transpose"({loaded}) {{permutation = {permutation}}} : ({type_}) -> {type_}',
            self.store(moved, dest, type_, WHOLE, refs[dest]),
        ]

    def load(self, value: str, name: str, type_: str, shape: str, space: str) -> str:
        segments = "operandSegmentSizes = array<i32: 1, 0, 0>"
        return f'{value} = "mgpu.load"({name}) {{{segments}}} : ({ref(shape, space)}) -> {type_}'

    def store(self, value: str, name: str, type_: str, shape: str, space: str) -> str:
        segments = "operandSegmentSizes = array<i32: 1, 1, 0>"
        return f'"mgpu.store"({value}, {name}) {{{segments}}} : ({type_}, {ref(shape, space)}) -> ()'


def races_of(text: str, data: st.DataObject, with_barriers: bool) -> list[str]:
    """What one run of the kernel finds."""
    budget = [24]

    def choose() -> bool:
        budget[0] -= 1
        return budget[0] > 0 and data.draw(st.booleans())

    with compilation_context():
        module = ir.Module.parse(text)
        for step in (AssignLayouts(), PlanSharedMemory(), *((InsertBarriers(),) if with_barriers else ())):
            step.apply(module, LoweringOptions())
        assert module.operation.verify()
        return RaceFinder(kernels(module)[0], choose).races


@given(st.data())
def test_no_two_threads_meet_between_two_barriers(data: st.DataObject) -> None:
    assert races_of(Writer(data).kernel(), data, with_barriers=True) == []


RACE = f"""
%b = "mgpu.alloc"() : () -> {ref(WHOLE, "smem")}
%x = "mgpu.load"(%g0) {{operandSegmentSizes = array<i32: 1, 0, 0>}} : ({ref(WHOLE, "gmem")}) -> tensor<{WHOLE}>
"mgpu.store"(%x, %b) {{operandSegmentSizes = array<i32: 1, 1, 0>}} : (tensor<{WHOLE}>, {ref(WHOLE, "smem")}) -> ()
%c = arith.constant 1 : i32
%v = "mgpu.subview"(%b, %c, %c) {{sizes = [1, 1], strides = [1, 1], dropped = [0, 1], checked = [0, 0],
  operandSegmentSizes = array<i32: 1, 2>}} : ({ref(WHOLE, "smem")}, i32, i32) -> {ref("f32", "smem")}
%s = "mgpu.load"(%v) {{operandSegmentSizes = array<i32: 1, 0, 0>}} : ({ref("f32", "smem")}) -> f32
"""


@pytest.mark.parametrize("with_barriers", [False, True])
@given(data=st.data())
def test_the_finder_sees_a_race_where_there_is_one(with_barriers: bool, data: st.DataObject) -> None:
    text = f""""mgpu.kernel"() ({{
    ^bb0(%g0: {ref(WHOLE, "gmem")}):
    {RACE}
    }}) {{grid = [1], num_warps = 2 : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0]}} : () -> ()"""
    assert bool(races_of(text, data, with_barriers)) is not with_barriers
