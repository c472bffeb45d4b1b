"""Rounding of f32 operands to what the matrix units multiply."""

from __future__ import annotations

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.ops_tile import PtxOp
from mosaic_gpu.dialect.types import shape_of, tile_type
from mosaic_gpu.lowering.dots import DotFacts


def rounded(value: ir.Value, facts: DotFacts) -> ir.Value:
    """The tile with f32 rounded to tf32 (to nearest, ties away; the units would cut it off); others as they are."""
    if facts.lhs_element != "f32":
        return value
    type_ = tile_type(shape_of(value.type), ir.IntegerType.get_signless(32))
    names = ir.StringAttr.get("cvt.rna.tf32.f32 $0, $1;"), ir.StringAttr.get("=r,f")
    return arith.bitcast(value.type, PtxOp(type_, [value], *names).result)
