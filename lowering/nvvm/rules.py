"""All conversion rules together: importing this module registers them."""

from __future__ import annotations

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.lowering.nvvm import (  # noqa: F401 (they register)
    async_barriers,
    async_copies,
    control,
    convert,
    debug_print,
    dot,
    elementwise,
    memory,
    reduce,
    scan,
    shape,
    specialize,
)
from mosaic_gpu.lowering.nvvm.kernel import convert_kernel
from mosaic_gpu.lowering.options import LoweringOptions


def convert_module(module: ir.Module, options: LoweringOptions) -> ir.Module:
    """See `convert_to_nvvm`."""
    with module.context, module.operation.location:
        converted = ir.Module.create()
        for op in module.body.operations:
            convert_kernel(op, converted.body, options)
        converted.operation.verify()
    return converted
