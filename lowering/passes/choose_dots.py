"""Chooses how each `mgpu.dot` is computed, and brings its operands to where that wants them.

Requires: `num_warps` chosen, no layouts yet. Does, for each dot:

  * sums that are added to a dot of zeros become its accumulator;
  * a transposition of an operand becomes a flag of the dot;
  * operands of 8-bit floats become f16 where the target's matrix units do not take them;
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
from mosaic_gpu.dialect.dot_layouts import WARPGROUP_WARPS, mma_layouts, wgmma_layouts, wgmma_plan
from mosaic_gpu.dialect.layouts import Layout
from mosaic_gpu.dialect.ops_memory import ints
from mosaic_gpu.dialect.types import is_tile, shape_of, tile_type
from mosaic_gpu.lowering.dots import DotFacts, dot_of, fits_warpgroup, is_zero
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.plan_shared_memory import alloc_bytes
from mosaic_gpu.lowering.passes.round_operands import rounded
from mosaic_gpu.lowering.passes.stage_operands import Staged, depth_of, stage_operands
from mosaic_gpu.lowering.passes.walk import body_of, kernels, walk
from mosaic_gpu.lowering.targets import Target, parse_target

STAGED_SHARE = 0.7
"""The part of the free shared memory that the operands of one dot may take."""
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
            for op in _dots(kernel):
                dot = _with_accumulator(op)
                _drop_transpositions(dot)
                if "fp8" not in target.features:
                    _widen_fp8(dot)
            allocs = [op for op in walk(body_of(kernel)) if op.name == "mgpu.alloc"]
            room = target.max_shared_bytes - sum(alloc_bytes(op) for op in allocs)
            staged = Staged(int(room * STAGED_SHARE))
            for op in _dots(kernel):
                _choose(op, num_warps, target, staged)


def _dots(kernel: Any) -> list[Any]:
    return [op for op in walk(body_of(kernel)) if op.name == "mgpu.dot"]


def dot_kind(facts: DotFacts, num_warps: int, target: Target) -> str:
    """Which unit computes a dot: "wgmma", "mma" or "fma"."""
    if not facts.on_matrix_units:
        return "fma"
    if fits_warpgroup(facts, target) and num_warps % WARPGROUP_WARPS == 0:
        return "wgmma"
    return "mma" if _fragments(facts, num_warps) <= MAX_FRAGMENTS else "fma"


def _fragments(facts: DotFacts, num_warps: int) -> int:
    layouts = mma_layouts(facts.bits, facts.m, facts.n, num_warps)
    tiles = layouts.lhs.reps((facts.m, facts.k))
    return tiles[0] * tiles[1] * layouts.rhs.reps((facts.k, facts.n))[1]


def _choose(op: Any, num_warps: int, target: Target, staged: Staged) -> None:
    facts = dot_of(op)
    kind = dot_kind(facts, num_warps, target)
    if kind == "wgmma" and depth_of(facts, wgmma_plan(facts.m, facts.n, num_warps), staged.num_bytes) < 1:
        kind = "mma"
    op.attributes["kind"] = ir.StringAttr.get(kind)
    if kind == "wgmma":
        plan = wgmma_plan(facts.m, facts.n, num_warps)
        for part in stage_operands(op, facts, plan, staged):
            _set_layouts(part, *wgmma_layouts(facts.bits, plan, num_warps))
    elif kind == "mma":
        with ir.InsertionPoint(op), op.location:
            _put_in_registers(op, facts)
        layouts = mma_layouts(facts.bits, facts.m, facts.n, num_warps)
        _set_layouts(op, layouts.lhs, layouts.acc, layouts.rhs)


def _set_layouts(op: Any, lhs: Layout, acc: Layout, rhs: Layout | None = None) -> None:
    """Writes the layouts; those of references are left out."""
    for number, (name, layout) in enumerate(zip(LAYOUT_NAMES, (lhs, rhs, acc), strict=True)):
        if layout is not None and is_tile(op.operands[number].type):
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


def _drop_transpositions(op: Any) -> None:
    """An operand that is a transposed tile is taken as it was, the other way round."""
    for number, name in enumerate(("lhs_transposed", "rhs_transposed")):
        owner = op.operands[number].owner
        while not isinstance(owner, ir.Block) and owner.operation.name == "mgpu.transpose":
            if ints(owner.operation.attributes["permutation"]) == (1, 0):
                flag = ir.IntegerAttr(op.attributes[name]).value
                op.attributes[name] = emit.int_attr(1 - flag)
            transpose, source = owner.operation, owner.operation.operands[0]
            op.operands[number] = source
            owner = source.owner
            if not list(transpose.results[0].uses):  # what nobody reads would keep the tile from being copied beside
                transpose.erase()


def _widen_fp8(op: Any) -> None:
    """8-bit floats become f16, which holds all of them, where no matrix unit takes them."""
    if dot_of(op).is_fp8:
        with ir.InsertionPoint(op), op.location:
            for number in range(2):
                value = op.operands[number]
                op.operands[number] = arith.extf(tile_type(shape_of(value.type), ir.F16Type.get()), value)


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
