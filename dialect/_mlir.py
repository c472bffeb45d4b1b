"""The only import of the MLIR bindings.

Another build of the bindings can take the place of `torch_mlir` by changing this file alone.
Everything else says `from mosaic_gpu.dialect._mlir import ir, arith, ...`.
"""

from torch_mlir import ir
from torch_mlir.dialects import _nvvm_enum_gen as nvvm_enums
from torch_mlir.dialects import arith, cf, ext, func, llvm, math, nvvm, scf, vector
from torch_mlir.passmanager import PassManager

__all__ = [
    "PassManager",
    "arith",
    "cf",
    "ext",
    "func",
    "ir",
    "llvm",
    "math",
    "nvvm",
    "nvvm_enums",
    "scf",
    "vector",
]
