"""The body of a reduction or scan, applied to whole vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.lowering.nvvm import emit
from mosaic_gpu.lowering.nvvm.conversion import Conversion

Values = list[ir.Value]
"""One vector for each input of the reduction; all of one length."""

_SYMMETRIC = frozenset(
    f"arith.{name}"
    for name in (
        "addf", "mulf", "maximumf", "minimumf", "maxnumf", "minnumf",
        "addi", "muli", "andi", "ori", "xori", "maxsi", "minsi", "maxui", "minui",
    )
)  # fmt: skip


@dataclass(frozen=True)
class Combiner:
    """The region of an `mgpu.reduce` or `mgpu.scan`, re-emitted at each use."""

    conversion: Conversion
    block: ir.Block

    def __call__(self, left: Sequence[ir.Value], right: Sequence[ir.Value]) -> Values:
        """The combination of two sides, element by element."""
        operations = list(self.block.operations)
        with self.conversion.vectorized(emit.length(left[0])):
            for argument, value in zip(self.block.arguments, (*left, *right), strict=True):
                self.conversion.bind(argument, value)
            for op in operations[:-1]:
                self.conversion.op(op)
            return self.conversion.all(operations[-1].operation.operands)

    @property
    def is_symmetric(self) -> bool:
        """Whether exchanging the sides surely gives the same bits."""
        operations = list(self.block.operations)
        return len(operations) == 2 and operations[0].operation.name in _SYMMETRIC

    def fold(self, values: Sequence[ir.Value], groups: int) -> Values:
        """Folds vectors whose element number is `k * groups + g` over k, to vectors of `groups` elements.

        Neighbouring halves are combined in a tree, lower k on the left.
        """
        current, count = list(values), emit.length(values[0]) // groups
        while count > 1:
            half = count // 2
            evens = [i for k in range(half) for i in range(2 * k * groups, (2 * k + 1) * groups)]
            left = [emit.pick(v, evens) for v in current]
            right = [emit.pick(v, [i + groups for i in evens]) for v in current]
            folded = self(left, right)
            if count % 2:
                rest = range((count - 1) * groups, count * groups)
                folded = [emit.append(f, emit.pick(v, rest)) for f, v in zip(folded, current, strict=True)]
            current, count = folded, half + count % 2
        return current
