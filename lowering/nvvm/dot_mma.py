"""`mgpu.dot` of kind "mma": one `mma.sync` for each fragment of the accumulator and step of K.

Operands are in the layouts of `dot_layouts.mma_layouts`, where a fragment is a run of registers.  What a tile
holds beyond K is set to zero first: products with it must vanish, whatever the registers hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.types import shape_of
from mosaic_gpu.lowering.dots import DotFacts, dot_of
from mosaic_gpu.lowering.nvvm import emit
from mosaic_gpu.lowering.nvvm.conversion import Conversion
from mosaic_gpu.lowering.nvvm.predicates import Coordinates
from mosaic_gpu.lowering.nvvm.registers import chosen_layout

_DEPTHS = {8: 32, 16: 16, 32: 8}
"""K of one instruction, by the bits of an operand's element."""


def convert_mma(conversion: Conversion, op: Any) -> ir.Value:
    """The accumulator after all steps, as a vector."""
    facts = dot_of(op)
    layouts = [chosen_layout(v.type) for v in op.operation.operands]
    lhs, rhs = (
        words_of(without_padding(conversion, conversion.get(value), value.type, dim))
        for value, dim in ((op.lhs, 1), (op.rhs, 0))
    )
    acc = conversion.get(op.acc)
    (rows, steps), (_, columns) = layouts[0].reps((facts.m, facts.k)), layouts[1].reps((facts.k, facts.n))
    a, b, c = len(lhs) // (rows * steps), len(rhs) // (steps * columns), emit.length(acc) // (rows * columns)
    sums = [emit.extract(acc, i) for i in range(emit.length(acc))]
    instruction = _Instruction(facts, a, b, c)
    for k in range(steps):
        for i in range(rows):
            for j in range(columns):
                left, right = (i * steps + k) * a, (k * columns + j) * b
                place = slice((i * columns + j) * c, (i * columns + j + 1) * c)
                sums[place] = instruction.emit(lhs[left : left + a], rhs[right : right + b], sums[place])
    return emit.from_elements(sums)


def without_padding(conversion: Conversion, value: ir.Value, type_: ir.Type, dim: int) -> ir.Value:
    """`value` with zeros where the coordinate along `dim` lies beyond the tile."""
    layout, shape = chosen_layout(type_), shape_of(type_)
    if shape[dim] % layout.base[dim] == 0:
        return value
    coordinates = Coordinates(conversion.threads, layout, shape)
    inside = emit.compare(emit.ULT, coordinates.vector(dim, 32), shape[dim])
    return emit.select(inside, value, emit.constant(value.type, 0))


def words_of(value: ir.Value) -> list[ir.Value]:
    """The registers of a vector as 32-bit words (64-bit floats as they are)."""
    element = emit.element(value.type)
    bits = emit.bits_of(value.type)
    if bits < 32 or not isinstance(element, ir.F64Type):
        value = emit.bitcast(value, emit.vector_type(emit.length(value) * bits // 32, emit.i32()))
    return [emit.extract(value, i) for i in range(emit.length(value))]


class _Instruction:
    """One form of `mma.sync`, with a, b and c registers of the operands and the accumulator."""

    def __init__(self, facts: DotFacts, a: int, b: int, c: int) -> None:
        lhs, rhs = facts.ptx_types
        acc = {"f32": "f32", "f64": "f64", "i32": "s32"}[facts.acc_element]
        shape = "m8n8k4" if acc == "f64" else f"m16n8k{_DEPTHS[facts.bits]}"
        counts = (c, a, b, c)
        groups = [_group(sum(counts[:i]), count) for i, count in enumerate(counts)]
        groups[3] = _group(0, c)
        self.text = f"mma.sync.aligned.{shape}.row.col.{acc}.{lhs}.{rhs}.{acc} {', '.join(groups)};"
        letter = {"f32": "f", "f64": "d", "s32": "r"}[acc]
        operand = "d" if acc == "f64" else "r"
        self.constraints = ",".join([f"={letter}"] * c + [operand] * (a + b) + [str(i) for i in range(c)])

    def emit(self, lhs: Sequence[ir.Value], rhs: Sequence[ir.Value], acc: Sequence[ir.Value]) -> list[ir.Value]:
        """The accumulator's registers after one step; pure, so that what is not used is dropped."""
        types = [v.type for v in acc]
        return emit.inline_asm(self.text, self.constraints, [*lhs, *rhs, *acc], types, effects=False)


def _group(start: int, count: int) -> str:
    """Operands `start` .. as a vector; a single one needs no braces."""
    names = ", ".join(f"${start + i}" for i in range(count))
    return f"{{{names}}}"
