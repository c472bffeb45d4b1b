"""The only import of the MLIR bindings.

Another build of the bindings can take the place of `torch_mlir` by changing this file alone.
Everything else says `from mosaic_gpu.dialect._mlir import ir, arith, ...`.
"""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import _nvvm_enum_gen as nvvm_enums
from torch_mlir.dialects import arith, cf, ext, func, llvm, math, nvvm, scf, vector
from torch_mlir.dialects._ods_common import _cext
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
    "translate_to_llvm_text",
    "vector",
]

# Where the bindings find the Python side of the dialect `mgpu`.  Without it they look for
# `torch_mlir.dialects.mgpu` anew, in vain, at each op: a quarter of the time of the stages in Python.
_cext.globals.append_dialect_search_prefix("mosaic_gpu.dialect")


def translate_to_llvm_text(operation: Any) -> str:
    """LLVM IR of a module of the LLVM dialect.

    In place of `llvm.translate_module_to_llvmir`, which never frees the text it copies from (10 kB a kernel) and
    crashes where the translation fails.

    Raises RuntimeError where the module cannot be translated; MLIR has printed why.
    """
    library = _c_library()
    capsule = operation._CAPIPtr
    name = ctypes.pythonapi.PyCapsule_GetName(capsule)
    context = library.LLVMContextCreate()
    try:
        module = library.mlirTranslateModuleToLLVMIR(ctypes.pythonapi.PyCapsule_GetPointer(capsule, name), context)
        if not module:
            raise RuntimeError("the module has no translation to LLVM IR")
        text = library.LLVMPrintModuleToString(module)
        try:
            return ctypes.string_at(text).decode()
        finally:
            library.LLVMDisposeMessage(text)
            library.LLVMDisposeModule(module)
    finally:
        library.LLVMContextDispose(context)


@cache
def _c_library() -> Any:
    """The C interface under the bindings (mlir-c/Target/LLVMIR.h, llvm-c/Core.h), which the process has loaded.

    A `PyDLL`, as the bindings' own calls keep the interpreter's lock too: MLIR reports errors to Python.
    """
    ctypes.pythonapi.PyCapsule_GetName.restype = ctypes.c_char_p
    ctypes.pythonapi.PyCapsule_GetName.argtypes = [ctypes.py_object]
    ctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p
    ctypes.pythonapi.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    library = ctypes.PyDLL(str(Path(str(ir.__file__)).parent / "_mlir_libs" / "libTorchMLIRAggregateCAPI.so"))
    pointers = ("LLVMContextCreate", "mlirTranslateModuleToLLVMIR", "LLVMPrintModuleToString")
    for function in pointers:
        getattr(library, function).restype = ctypes.c_void_p
    # MlirOperation is a struct of one pointer, which is passed as the pointer is
    library.mlirTranslateModuleToLLVMIR.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    for function in ("LLVMPrintModuleToString", "LLVMDisposeMessage", "LLVMDisposeModule", "LLVMContextDispose"):
        getattr(library, function).argtypes = [ctypes.c_void_p]
    for function in ("LLVMDisposeMessage", "LLVMDisposeModule", "LLVMContextDispose"):
        getattr(library, function).restype = None
    return library
