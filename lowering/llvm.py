"""Stage "llvm": the per-thread module becomes LLVM IR text.

Requires a module of `llvm.func` kernels whose bodies hold arith, math, vector, scf, cf, nvvm and llvm ops.
"""

from __future__ import annotations

from mosaic_gpu.dialect._mlir import PassManager, ir, translate_to_llvm_text
from mosaic_gpu.errors import InternalError
from mosaic_gpu.lowering.artifacts import LlvmIr, with_launch
from mosaic_gpu.lowering.diagnostics import location_source
from mosaic_gpu.lowering.float_text import with_plain_floats
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
    "convert-ub-to-llvm",  # after convert-vector-to-llvm, which folds picks of open elements to ub.poison
    "reconcile-unrealized-casts",  # after all conversions: translation refuses a cast that is left
    # `.loc` and `.file` only: any other kind marks the PTX as a debug build, which ptxas does not optimise
    "ensure-debug-info-scope-on-llvm-func{emission-kind=DebugDirectivesOnly}",
)

_TRANSLATABLE = ("llvm.", "nvvm.", "builtin.module")


def translate_to_llvm(module: ir.Module, options: LoweringOptions) -> LlvmIr:
    """The LLVM IR of `module`, which is changed in place on the way."""
    launch = launch_facts(module)
    passes = PassManager.parse(f"builtin.module({','.join(LLVM_PASSES)})")
    passes.enable_verifier(False)  # after each pass: two thirds of the time; once, at the end, finds as much
    passes.run(module.operation)
    module.operation.verify()
    _check_translatable(module)
    try:
        text = with_plain_floats(translate_to_llvm_text(module.operation))
    except RuntimeError as error:
        raise InternalError(f"stage 'llvm' failed: {error}", hint="please report it, with the kernel") from error
    return LlvmIr(with_launch(text, launch, ";"), launch)


def _check_translatable(module: ir.Module) -> None:
    """Raises InternalError for an op that is left over: the translation would crash the process at it."""
    foreign: list[ir.Operation] = []

    def look(op: ir.Operation) -> ir.WalkResult:
        if not op.name.startswith(_TRANSLATABLE):
            foreign.append(op)
            return ir.WalkResult.INTERRUPT
        return ir.WalkResult.ADVANCE

    module.operation.walk(look)
    if foreign:
        raise InternalError(
            f"stage 'llvm' failed: {foreign[0].name} has no conversion to LLVM",
            hint="please report it, with the kernel",
            source=location_source(foreign[0].location),
        )
