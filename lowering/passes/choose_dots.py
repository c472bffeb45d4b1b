"""Chooses how each `mgpu.dot` is computed, and brings its operands to where that wants them.

Requires: `num_warps` chosen, no layouts yet. Does, for each dot:

  * sums that are added to a dot of zeros become its accumulator;
  * a transposition of an operand becomes a flag of the dot;
  * `kind` is chosen (`dot_kind`);
  * "wgmma": operands are stored to swizzled shared memory, from which the unit reads them (`stage_operands`);
  * "mma": operands are tiles [M, K] and [K, N] in registers;
  * the layouts that the unit takes and gives are written to the attributes `attrs.LAYOUT_NAMES`.

Leaves: dots of kind "fma" for `expand-dots`, and all others with what the conversion to NVVM needs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.attrs import LAYOUT_NAMES, layout_attr
from mosaic_gpu.dialect.dot_layouts import mma_layouts
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.dialect.ops_tile import PtxOp
from mosaic_gpu.dialect.types import is_tile, shape_of, tile_type
from mosaic_gpu.lowering.dots import DotFacts, dot_of
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.walk import body_of, kernels, walk
from mosaic_gpu.lowering.targets import Target, parse_target

MAX_FRAGMENTS = 4096
"""Instructions of `mma.sync` that one warp may issue for one dot, which are all written out."""


@dataclass(frozen=True)
class ChooseDots:
    """The pass; it has no options."""

    name: str = "choose-dots"

    def apply(self, module: ir.Module, options: LoweringOptions) -> None:
        target = parse_target(options.target)
        for kernel in kernels(module):
            num_warps = ir.IntegerAttr(kernel.attributes["num_warps"]).value
            for op in [op for op in walk(body_of(kernel)) if op.name == "mgpu.dot"]:
                dot = _with_accumulator(op)
                _drop_transpositions(dot)
                _choose(dot, num_warps, target)


def dot_kind(facts: DotFacts, num_warps: int, target: Target) -> str:
    """Which unit computes a dot: "wgmma", "mma" or "fma"."""
    if not facts.on_matrix_units or (facts.is_fp8 and "fp8" not in target.features):
        return "fma"
    return "mma" if _fragments(facts, num_warps) <= MAX_FRAGMENTS else "fma"


def _fragments(facts: DotFacts, num_warps: int) -> int:
    layouts = mma_layouts(facts.bits, facts.m, facts.n, num_warps)
    tiles = layouts.lhs.reps((facts.m, facts.k))
    return tiles[0] * tiles[1] * layouts.rhs.reps((facts.k, facts.n))[1]


def _choose(op: Any, num_warps: int, target: Target) -> None:
    facts = dot_of(op)
    kind = dot_kind(facts, num_warps, target)
    op.attributes["kind"] = ir.StringAttr.get(kind)
    if kind == "mma":
        with ir.InsertionPoint(op), op.location:
            _put_in_registers(op, facts)
        layouts = mma_layouts(facts.bits, facts.m, facts.n, num_warps)
        for name, layout in zip(LAYOUT_NAMES, (layouts.lhs, layouts.rhs, layouts.acc), strict=True):
            op.attributes[name] = layout_attr(layout)


def _with_accumulator(op: Any) -> Any:
    """Where the dot's accumulator is zero and all that is done with the result is to add it to a tile: a dot of that.

    The new dot stands where the sum stood; operands are values, so it may be computed later.
    """
    uses = list(op.results[0].uses)
    if len(uses) != 1 or not is_zero(op.operands[2]) or not all(is_tile(v.type) for v in op.operands):
        return op
    user = uses[0].owner.operation
    if user.name not in ("arith.addf", "arith.addi") or user.block != op.block:
        return op
    other = next((v for v in user.operands if v != op.results[0]), None)
    if other is None:
        return op
    moved = op.clone(ir.InsertionPoint(user)).operation
    moved.operands[2] = other
    user.results[0].replace_all_uses_with(moved.results[0])
    user.erase()
    op.erase()
    return moved


def is_zero(value: Any) -> bool:
    """Whether a tile is a constant of zeros (not of -0.0, to which nothing may be added)."""
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.operation.name != "arith.constant":
        return False
    attr = owner.operation.attributes["value"]
    if not (isinstance(attr, ir.DenseElementsAttr) and attr.is_splat):
        return False
    number = attr.get_splat_value().value
    return number == 0 and not str(number).startswith("-")


def _drop_transpositions(op: Any) -> None:
    """An operand that is a transposed tile is taken as it was, the other way round."""
    for number, name in enumerate(("lhs_transposed", "rhs_transposed")):
        owner = op.operands[number].owner
        while not isinstance(owner, ir.Block) and owner.operation.name == "mgpu.transpose":
            if ints(owner.operation.attributes["permutation"]) == (1, 0):
                flag = ir.IntegerAttr(op.attributes[name]).value
                op.attributes[name] = emit.int_attr(1 - flag)
            op.operands[number] = owner.operation.operands[0]
            owner = op.operands[number].owner


def _put_in_registers(op: Any, facts: DotFacts) -> None:
    """Operands as tiles [M, K] and [K, N]."""
    for number, (name, transposed) in enumerate(
        (("lhs_transposed", facts.lhs_transposed), ("rhs_transposed", facts.rhs_transposed))
    ):
        value = op.operands[number]
        value = value if is_tile(value.type) else emit.load(value)
        if transposed:
            value = emit.transpose(value, [1, 0])
            op.attributes[name] = emit.int_attr(0)
        op.operands[number] = rounded(value, facts)


def rounded(value: ir.Value, facts: DotFacts) -> ir.Value:
    """The operand with f32 rounded to tf32 (to nearest, ties away; the units would cut it off)."""
    if facts.lhs_element != "f32":
        return value
    type_ = tile_type(shape_of(value.type), ir.IntegerType.get_signless(32))
    names = ir.StringAttr.get("cvt.rna.tf32.f32 $0, $1;"), ir.StringAttr.get("=r,f")
    return arith.bitcast(value.type, PtxOp(type_, [value], *names).result)
