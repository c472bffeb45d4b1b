"""LLVM's NVPTX back-end, through llvmlite: the target machine and the optimiser."""

from __future__ import annotations

from functools import cache

import llvmlite.binding as llvm

from mosaic_gpu.lowering.targets import Target

TRIPLE = "nvptx64-nvidia-cuda"

# LLVM's passes over a kernel, by llvmlite's names for them, in order.  MLIR has simplified the kernel already,
# and ptxas optimises what comes out: LLVM's own default pipelines took 5 times as long, for the same machine
# code or more of it (64 elements a thread, expf and sinf).
KERNEL_PASSES = (
    "always_inliner",  # libdevice's functions, which ask for it
    "sroa",
    "instruction_combine",  # splats and inserts of elements into vectors, after inlining
    "new_gvn",  # addresses computed twice
    "simplify_cfg",
    "global_dead_code_eliminate",  # last: what was inlined everywhere
)


@cache
def target_machine(target: Target) -> llvm.TargetMachine:
    """The back-end of `target`; one a process, as llvmlite lets one thread at a time into LLVM."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=target.name, features=target.llvm_features, opt=3)


def retarget(module: llvm.ModuleRef, target: Target) -> None:
    """Puts `module` under the back-end's triple and data layout."""
    module.triple = TRIPLE
    module.data_layout = str(target_machine(target).target_data)


def run_passes(module: llvm.ModuleRef, target: Target, names: tuple[str, ...]) -> None:
    """Runs the passes `names` over `module`."""
    manager, builder = _pass_manager(target, names)
    manager.run(module, builder)


@cache
def _pass_manager(target: Target, names: tuple[str, ...]) -> tuple[llvm.ModulePassManager, llvm.PassBuilder]:
    """Kept, because llvmlite frees neither the passes of a manager nor all of a builder: 9 kB each time."""
    manager = llvm.create_new_module_pass_manager()
    for name in names:
        getattr(manager, f"add_{name}_pass")()
    return manager, llvm.create_pass_builder(target_machine(target), llvm.PipelineTuningOptions(speed_level=1))


def run_default_pipeline(module: llvm.ModuleRef, target: Target) -> None:
    """Runs LLVM's own pipeline of level 2 over `module`, without unrolling and vectorising."""
    tuning = llvm.PipelineTuningOptions(speed_level=2)
    tuning.loop_unrolling = False
    tuning.loop_vectorization = False
    tuning.loop_interleaving = False
    tuning.slp_vectorization = False
    builder = llvm.create_pass_builder(target_machine(target), tuning)
    builder.getModulePassManager().run(module, builder)  # a second run of the same manager would abort the process
