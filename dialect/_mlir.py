"""The only import of the MLIR bindings.

Another build of the bindings can take the place of `torch_mlir` by changing this file alone.
Everything else says `from mosaic_gpu.dialect._mlir import ir, arith, ...`.
"""

from torch_mlir import ir
from torch_mlir._mlir_libs._mlir import globals as _globals
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

# Where the bindings find the Python side of the dialect `mgpu`.  Without it they look for
# `torch_mlir.dialects.mgpu` anew, in vain, at each op: a quarter of the time of the stages in Python.
_globals.append_dialect_search_prefix("mosaic_gpu.dialect")
