"""Stage "llvm": the per-thread module becomes LLVM IR text.

Requires a module of `llvm.func` kernels whose bodies hold arith, math, vector, scf, cf, nvvm and llvm ops.
"""

from __future__ import annotations

from mosaic_gpu.dialect._mlir import PassManager, ir, llvm
from mosaic_gpu.lowering.artifacts import LlvmIr, with_launch
from mosaic_gpu.lowering.launch import launch_facts
from mosaic_gpu.lowering.options import LoweringOptions

# One pass a line, in order.
LLVM_PASSES = (
    "convert-nvvm-to-llvm",  # first: some nvvm ops translate only after they became inline PTX here
    "convert-scf-to-cf",  # before convert-cf-to-llvm, which lowers the branches it makes
    "convert-math-to-llvm",
    "convert-vector-to-llvm",
    "convert-arith-to-llvm",
    "convert-cf-to-llvm",
    "reconcile-unrealized-casts",  # after all conversions: translation refuses a cast that is left
    # `.loc` and `.file` only: any other kind marks the PTX as a debug build, which ptxas does not optimise
    "ensure-debug-info-scope-on-llvm-func{emission-kind=DebugDirectivesOnly}",
)


def translate_to_llvm(module: ir.Module, options: LoweringOptions) -> LlvmIr:
    """The LLVM IR of `module`, which is changed in place on the way."""
    launch = launch_facts(module)
    PassManager.parse(f"builtin.module({','.join(LLVM_PASSES)})").run(module.operation)
    text = llvm.translate_module_to_llvmir(module.operation)
    return LlvmIr(with_launch(text, launch, ";"), launch)
