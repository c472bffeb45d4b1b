"""Stage "ptx": LLVM IR becomes PTX text, in process."""

from __future__ import annotations

import llvmlite.binding as llvm

from mosaic_gpu.errors import InternalError
from mosaic_gpu.lowering.artifacts import LlvmIr, Ptx, with_launch
from mosaic_gpu.lowering.libdevice import link_libdevice
from mosaic_gpu.lowering.nvptx import KERNEL_PASSES, retarget, run_passes, target_machine
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.targets import parse_target


def compile_to_ptx(source: LlvmIr, options: LoweringOptions) -> Ptx:
    """The PTX of `source` for the target of `options`, with the libdevice functions it calls.

    An intrinsic that the back-end does not know ends the process (LLVM's "Cannot select"): what the stages before
    emit is limited to what the tests compile for every target.

    Raises:
      InternalError: LLVM does not accept the text.
    """
    target = parse_target(options.target)
    # A context of its own: LLVM never frees the types and constants of a context that lives on.
    context = llvm.create_context()
    try:
        module = llvm.parse_assembly(source.text, context)
    except RuntimeError as error:
        raise InternalError(f"stage 'ptx' failed: {error}", hint="please report it, with the kernel") from error
    with module:
        link_libdevice(module, context, target)
        retarget(module, target)
        run_passes(module, target, KERNEL_PASSES)
        text = str(target_machine(target).emit_assembly(module))
    return Ptx(with_launch(text, source.launch, "//"), source.launch)
