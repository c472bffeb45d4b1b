"""The check of layouts finds what breaks its rules."""

from __future__ import annotations

import pytest

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.lowering.passes.check_layouts import check_layouts
from mosaic_gpu.lowering.pipeline import compilation_context

A = '#mgpu.layout<"4x32 r:1,0;2,0 l:0,1;0,2;0,4;0,8;0,16 w:">'
B = '#mgpu.layout<"4x32 r:0,1;0,2 l:0,4;0,8;0,16;1,0;2,0 w:">'
ROWS = '#mgpu.layout<"32 r: l:1;2;4;8;16 w:">'
COLUMNS = '#mgpu.layout<"4 r:1;2 l:0;0;0;0;0 w:">'

REDUCE = """%z = arith.constant 0.0 : f32
%r = "mgpu.reduce"(%x, %z) ({{
^bb0(%l: f32, %q: f32):
  %s = arith.addf %l, %q : f32
  "mgpu.yield"(%s) {{operandSegmentSizes = array<i32: 1>}} : (f32) -> ()
}}) {{axes = [0], operandSegmentSizes = array<i32: 1, 1>, resultSegmentSizes = array<i32: 1>}}
  : (tensor<4x32xf32, {x}>, f32) -> tensor<32xf32, {r}>"""
BROADCAST = '%r = "mgpu.broadcast"(%y) {{dimensions = [1]}} : (tensor<32xf32, {r}>) -> tensor<4x32xf32, {x}>'
TRANSPOSE = (
    '%r = "mgpu.transpose"(%x) {{permutation = [1, 0]}} '
    ": (tensor<4x32xf32, {x}>) -> tensor<32x4xf32, #mgpu.layout<{t}>>"
)
TURNED = '"32x4 r:0,1;0,2 l:1,0;2,0;4,0;8,0;16,0 w:"'
OTHER = '"32x4 r:0,1;0,2 l:2,0;1,0;4,0;8,0;16,0 w:"'


def faults(body: str, x: str = A, warps: int = 1) -> list[str]:
    text = f""""mgpu.kernel"() ({{
    ^bb0(%a: !mgpu.ref<tensor<4x32xf32>, "gmem">, %b: !mgpu.ref<tensor<32xf32>, "gmem">):
      %x = "mgpu.load"(%a) {{operandSegmentSizes = array<i32: 1, 0, 0>}}
        : (!mgpu.ref<tensor<4x32xf32>, "gmem">) -> tensor<4x32xf32, {x}>
      %y = "mgpu.load"(%b) {{operandSegmentSizes = array<i32: 1, 0, 0>}}
        : (!mgpu.ref<tensor<32xf32>, "gmem">) -> tensor<32xf32, {ROWS}>
      {body}
    }}) {{grid = [1], num_warps = {warps} : i32, num_inputs = 1 : i32, sym_name = "f", aliases = [0, 1]}} : () -> ()"""
    with compilation_context():
        return check_layouts(ir.Module.parse(text))


def test_a_tile_without_a_layout_is_a_fault() -> None:
    assert "layout None" in faults("%c = arith.constant dense<1.0> : tensor<4xf32>")[0]


def test_a_layout_of_another_number_of_warps_is_a_fault() -> None:
    assert "not one of 4 warps" in faults("", warps=4)[0]


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (REDUCE.format(x=A, r=ROWS), REDUCE.format(x=A, r=ROWS.replace("1;2", "2;1"))),
        (BROADCAST.format(x=A, r=ROWS), BROADCAST.format(x=B, r=ROWS)),
        (TRANSPOSE.format(x=A, t=TURNED), TRANSPOSE.format(x=A, t=OTHER)),
    ],
    ids=["reduce", "broadcast", "transpose"],
)
def test_a_result_that_does_not_follow_from_its_operand_is_a_fault(good: str, bad: str) -> None:
    assert faults(good) == []
    assert len(faults(bad)) == 1


def test_a_yield_in_another_layout_is_a_fault() -> None:
    def loop(layout: str) -> str:
        return f"""%c = arith.constant true
        %o = "mgpu.convert_layout"(%x) : (tensor<4x32xf32, {A}>) -> tensor<4x32xf32, {layout}>
        %r = "scf.if"(%c) ({{
          scf.yield %x : tensor<4x32xf32, {A}>
        }}, {{
          scf.yield %o : tensor<4x32xf32, {layout}>
        }}) : (i1) -> tensor<4x32xf32, {A}>"""

    assert faults(loop(A)) == []
    with pytest.raises(ir.MLIRError):
        faults(loop(B))
