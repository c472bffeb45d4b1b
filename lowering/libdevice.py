"""NVIDIA's library of accurate mathematical functions, one function at a time.

libdevice is 0.5 MB of bitcode; to link it whole into every kernel would cost more than the kernel.  So a
function is cut out of it once in a process, optimised for the target, and kept as a few kilobytes of bitcode.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

from mosaic_gpu.errors import InternalError, ToolError
from mosaic_gpu.lowering.nvptx import retarget, run_default_pipeline, run_passes
from mosaic_gpu.lowering.targets import Target
from mosaic_gpu.lowering.toolpaths import find_libdevice

PREFIX = "__nv_"


def link_libdevice(module: llvm.ModuleRef, context: llvm.ContextRef, target: Target) -> None:
    """Adds the definition of each libdevice function that `module` declares.

    Raises:
      ToolError: libdevice is not installed.
      InternalError: it has no such function.
    """
    for name in [f.name for f in module.functions if f.is_declaration and f.name.startswith(PREFIX)]:
        module.link_in(llvm.parse_bitcode(_function_bitcode(name, target), context))


def _function_bitcode(name: str, target: Target) -> bytes:
    path = find_libdevice()
    if path is None:
        raise ToolError(f"the kernel needs {name} of libdevice, which is not installed", hint="pip install nvidia-nvvm")
    return _cut_out(name, target, path)


@cache
def _cut_out(name: str, target: Target, path: Path) -> bytes:
    """Bitcode with `name`, and what it calls, optimised for `target`.

    Optimisation resolves `__nvvm_reflect`: denormals are kept, as no flag asks to flush them.
    """
    library = llvm.parse_bitcode(path.read_bytes(), llvm.create_context())
    if name not in {f.name for f in library.functions}:
        raise InternalError(f"libdevice has no function {name}")
    for function in library.functions:
        if not function.is_declaration and function.name != name:
            function.linkage = "internal"
    retarget(library, target)
    run_passes(library, target, ("global_dead_code_eliminate",))  # first: 0.4 MB less to optimise
    run_default_pipeline(library, target)
    # after the optimiser, which would discard it: may go once every call is inlined
    library.get_function(name).linkage = "linkonce_odr"
    return bytes(library.as_bitcode())
