"""Stage "nvvm": tiles become per-thread vectors, `mgpu` ops become nvvm, llvm and vector ops."""

from __future__ import annotations

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.lowering.options import LoweringOptions


def convert_to_nvvm(module: ir.Module, options: LoweringOptions) -> ir.Module:
    """A new module with one `llvm.func` for each `mgpu.kernel` of `module`, which stays as it is.

    Requires layouts on all tiles, `num_warps` chosen, shared memory planned and barriers in place.  Leaves
    llvm, nvvm, arith, math, vector and scf ops only; see `lowering.launch` for the attributes of the function.

    Raises:
      UnsupportedError: an op, an element type or a size that the conversion does not know, with the kernel's line.
    """
    from mosaic_gpu.lowering.nvvm.rules import convert_module

    return convert_module(module, options)
