"""Structured control flow: the same `scf` ops over per-thread values.

Conditions and bounds are uniform scalars, so all threads take the same way and barriers inside are fine.
"""

from __future__ import annotations

from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.lowering.nvvm import emit
from mosaic_gpu.lowering.nvvm.conversion import Conversion, converts


@converts("scf.*")
def convert_structured(conversion: Conversion, op: Any) -> list[ir.Value]:
    """The same op with converted operands, results and block arguments; terminators too."""
    operation = op.operation
    copy = emit.op_with_regions(
        operation.name,
        conversion.all(operation.operands),
        len(operation.regions),
        [conversion.type(r.type) for r in operation.results],
        {key: operation.attributes[key] for key in operation.attributes},
    )
    for source, target in zip(operation.regions, copy.regions, strict=True):
        for block in source.blocks:
            _convert_block(conversion, block, target)
    return list(copy.results)


def _convert_block(conversion: Conversion, block: ir.Block, region: ir.Region) -> None:
    copy = region.blocks.append(*(conversion.type(a.type) for a in block.arguments))
    for argument, converted in zip(block.arguments, copy.arguments, strict=True):
        conversion.bind(argument, converted)
    with ir.InsertionPoint(copy):
        conversion.block(block)
