"""LLVM's NVPTX back-end, through llvmlite: the target machine and the optimiser."""

from __future__ import annotations

from functools import cache

import llvmlite.binding as llvm

from mosaic_gpu.lowering.targets import Target

TRIPLE = "nvptx64-nvidia-cuda"


@cache
def target_machine(target: Target) -> llvm.TargetMachine:
    """The back-end of `target`; one a process, as llvmlite lets one thread at a time into LLVM."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(TRIPLE).create_target_machine(
        cpu=target.name, features=target.llvm_features, opt=3
    )


def optimize(module: llvm.ModuleRef, target: Target) -> None:
    """Runs LLVM's optimiser over `module`, which is put under the back-end's triple and data layout.

    Loops stay as they are: a tile is unrolled already, and ptxas unrolls what is left with better knowledge.
    """
    machine = target_machine(target)
    module.triple = TRIPLE
    module.data_layout = str(machine.target_data)
    tuning = llvm.PipelineTuningOptions(speed_level=2)
    tuning.loop_unrolling = False
    tuning.loop_vectorization = False
    tuning.loop_interleaving = False
    tuning.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
