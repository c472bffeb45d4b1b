"""The stages from a `pallas_call` to a cubin: one ordered table, entered and left anywhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mosaic_gpu import dialect
from mosaic_gpu.dialect._mlir import PassManager, ir
from mosaic_gpu.errors import KernelError
from mosaic_gpu.lowering.artifacts import Cubin, LlvmIr, Ptx, read_llvm, read_ptx
from mosaic_gpu.lowering.cubin import assemble_cubin
from mosaic_gpu.lowering.diagnostics import parse_module_file, translated_errors
from mosaic_gpu.lowering.kernel_call import KernelCall
from mosaic_gpu.lowering.llvm import translate_to_llvm
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.ptx import compile_to_ptx
from mosaic_gpu.lowering.resources import read_resources

Artifact = Any


class Pass(Protocol):
    """A rewriting of a module in place: a frozen dataclass in `lowering/passes`."""

    @property
    def name(self) -> str: ...

    def apply(self, module: ir.Module, options: LoweringOptions) -> None: ...


@dataclass(frozen=True)
class UpstreamPasses:
    """Passes of MLIR itself, as a textual pipeline."""

    name: str

    def apply(self, module: ir.Module, options: LoweringOptions) -> None:
        passes = PassManager.parse(f"builtin.module({self.name})")
        passes.enable_verifier(False)  # once, at the end of the stage, finds as much
        passes.run(module.operation)


@dataclass(frozen=True)
class Stage:
    """One step of the compilation, named by what it makes.

    Attributes:
      name: the stage and its artifact.
      suffix: of a file that holds the artifact.
      run: makes the artifact of the one before (the first stage: of a `KernelCall`).
      show: the artifact as text or bytes.
      read: the artifact in a file.
    """

    name: str
    suffix: str
    run: Callable[[Artifact, LoweringOptions], Artifact]
    show: Callable[[Artifact], str | bytes]
    read: Callable[[Path], Artifact]


# Is told of each stage that ran: its artifact and the seconds it took.
Observer = Callable[[Stage, Artifact, float], None]


def layout_passes() -> tuple[Pass, ...]:
    """The passes of stage "layouts", in order."""
    from mosaic_gpu.lowering.passes.assign_layouts import AssignLayouts
    from mosaic_gpu.lowering.passes.choose_dots import ChooseDots
    from mosaic_gpu.lowering.passes.choose_num_warps import ChooseNumWarps
    from mosaic_gpu.lowering.passes.drop_dead_carries import DropDeadCarries
    from mosaic_gpu.lowering.passes.expand_dots import ExpandDots
    from mosaic_gpu.lowering.passes.group_tiles import GroupTiles
    from mosaic_gpu.lowering.passes.hoist_loads import HoistLoads
    from mosaic_gpu.lowering.passes.hoist_steps import HoistSteps
    from mosaic_gpu.lowering.passes.parallelize_loops import ParallelizeLoops
    from mosaic_gpu.lowering.passes.promote_refs import PromoteRefs
    from mosaic_gpu.lowering.passes.split_tiles import SplitTiles
    from mosaic_gpu.lowering.passes.walk_tiles import WalkTiles

    return (
        UpstreamPasses("canonicalize,cse,loop-invariant-code-motion"),  # first: equal views become one value
        HoistSteps(),  # before promotion: a first step's store outside of a loop is what the loop starts with
        PromoteRefs(),
        DropDeadCarries(),  # before loops are launched, which carry nothing
        UpstreamPasses("canonicalize"),
        SplitTiles(),  # before loops are launched: its own are among them
        WalkTiles(),  # before the launch of loops with known bounds, which may be part of the tiles
        ParallelizeLoops(),
        HoistLoads(),  # after promotion: a loop that keeps its output in registers writes no memory
        UpstreamPasses("canonicalize,cse"),  # what it drops needs no layout
        GroupTiles(),  # behind them, and cse: a digit of a tile's number is one value
        ChooseNumWarps(),  # before layouts, which say where each warp's elements are
        ChooseDots(),  # knows the warps; before layouts, which follow the matrix units
        ExpandDots(),
        AssignLayouts(),
    )


def pipelining_passes() -> tuple[Pass, ...]:
    """The passes of stage "pipelined", in order."""
    from mosaic_gpu.lowering.passes.insert_barriers import InsertBarriers
    from mosaic_gpu.lowering.passes.pipeline_loops import PipelineLoops
    from mosaic_gpu.lowering.passes.plan_shared_memory import PlanSharedMemory
    from mosaic_gpu.lowering.passes.store_by_tma import StoreByTma
    from mosaic_gpu.lowering.passes.wait_for_grids import WaitForGrids
    from mosaic_gpu.lowering.passes.warp_specialize import WarpSpecialize

    return (
        WarpSpecialize(),  # first: it takes the loops that pay most
        PipelineLoops(),
        StoreByTma(),  # after loops: their stages are free behind them
        PlanSharedMemory(),
        InsertBarriers(),  # needs the layouts and who shares memory with whom
        WaitForGrids(),  # last: barriers that concern shared memory alone come before the wait
    )


def _lower_call(call: KernelCall, options: LoweringOptions) -> ir.Module:
    from mosaic_gpu.lowering.jaxpr import lower_kernel

    return lower_kernel(call)


def _run_layout_passes(module: ir.Module, options: LoweringOptions) -> ir.Module:
    return _run_passes(layout_passes(), module, options)


def _run_pipelining_passes(module: ir.Module, options: LoweringOptions) -> ir.Module:
    return _run_passes(pipelining_passes(), module, options)


def _run_passes(passes: tuple[Pass, ...], module: ir.Module, options: LoweringOptions) -> ir.Module:
    for step in passes:
        with translated_errors(step.name):
            step.apply(module, options)
    module.operation.verify()
    return module


def _convert_to_nvvm(module: ir.Module, options: LoweringOptions) -> ir.Module:
    from mosaic_gpu.lowering.nvvm import convert_to_nvvm

    return convert_to_nvvm(module, options)


def _show_module(module: ir.Module) -> str:
    return str(module)


def _show_text(artifact: LlvmIr | Ptx) -> str:
    return artifact.text


def _show_cubin(artifact: Cubin) -> bytes:
    return artifact.data


def _read_llvm_file(path: Path) -> LlvmIr:
    return read_llvm(path.read_text())


def _read_ptx_file(path: Path) -> Ptx:
    return read_ptx(path.read_text())


def _read_cubin_file(path: Path) -> Cubin:
    data = path.read_bytes()
    return Cubin(data, read_resources(data), None)


STAGES: tuple[Stage, ...] = (
    Stage("dialect", ".dialect.mlir", _lower_call, _show_module, parse_module_file),
    Stage("layouts", ".layouts.mlir", _run_layout_passes, _show_module, parse_module_file),
    Stage("pipelined", ".pipelined.mlir", _run_pipelining_passes, _show_module, parse_module_file),
    Stage("nvvm", ".nvvm.mlir", _convert_to_nvvm, _show_module, parse_module_file),
    Stage("llvm", ".ll", translate_to_llvm, _show_text, _read_llvm_file),
    Stage("ptx", ".ptx", compile_to_ptx, _show_text, _read_ptx_file),
    Stage("cubin", ".cubin", assemble_cubin, _show_cubin, _read_cubin_file),
)

STAGE_NAMES: tuple[str, ...] = tuple(stage.name for stage in STAGES)


# Compilations that one MLIR context serves.  A context takes 5 ms to make and load, and keeps every type, attribute
# and location it has seen: so many compilations share the cost, and no more share the memory.
_USES_OF_A_CONTEXT = 32


class _SharedContext:
    """The context that compilations use one after another.

    The lock is held while one does: the bindings are not safe in two threads, even with a context for each.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._context: ir.Context | None = None
        self._uses_left = 0

    def take(self) -> ir.Context:
        """The context for one more compilation; the lock is held."""
        if self._context is None or self._uses_left == 0:
            self._context, self._uses_left = ir.Context(), _USES_OF_A_CONTEXT
            with self._context, ir.Location.unknown():
                dialect.load()
        self._uses_left -= 1
        return self._context


_SHARED = _SharedContext()


@contextmanager
def compilation_context() -> Iterator[ir.Context]:
    """An MLIR context with the dialect, current inside; other threads wait until it is left."""
    with _SHARED.lock, _SHARED.take() as context, ir.Location.unknown():
        yield context


def stage_index(name: str) -> int:
    """The position of stage `name` in the table.

    Raises:
      KernelError: there is no such stage.
    """
    if name not in STAGE_NAMES:
        raise KernelError(f"there is no stage {name!r}", expected=f"one of {', '.join(STAGE_NAMES)}")
    return STAGE_NAMES.index(name)


def run_stages(
    artifact: Artifact,
    options: LoweringOptions,
    *,
    start: str | None = None,
    stop: str = "cubin",
    observer: Observer | None = None,
) -> Artifact:
    """Takes `artifact`, which stage `start` made (None: a `KernelCall`), to what stage `stop` makes.

    Modules live in the current context: call this inside `compilation_context()`.
    """
    first = 0 if start is None else stage_index(start) + 1
    last = stage_index(stop)
    if first > last + 1:
        raise KernelError(f"stage {stop!r} comes before {start!r}, where the artifact is")
    for stage in STAGES[first : last + 1]:
        began = time.perf_counter()
        with translated_errors(stage.name):
            artifact = stage.run(artifact, options)
        if observer is not None:
            observer(stage, artifact, time.perf_counter() - began)
    return artifact


def compile_call(call: KernelCall, *, stop: str = "cubin", observer: Observer | None = None) -> Artifact:
    """What stage `stop` ("llvm", "ptx" or "cubin") makes of `call`."""
    with compilation_context():
        return run_stages(call, call.options, stop=stop, observer=observer)


def show_call(call: KernelCall, stage: str) -> str | bytes:
    """The artifact of `stage` for `call`, as it prints."""
    with compilation_context():
        return STAGES[stage_index(stage)].show(run_stages(call, call.options, stop=stage))


def read_artifact(stage: str, path: Path) -> Artifact:
    """The artifact that stage `stage` made, read from a file; modules need a current context."""
    return STAGES[stage_index(stage)].read(path)


@dataclass(frozen=True)
class DumpToFolder:
    """An observer that writes every artifact to `folder`, each as `<name><suffix>`."""

    folder: Path
    name: str

    def __call__(self, stage: Stage, artifact: Artifact, seconds: float) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        shown = stage.show(artifact)
        data = shown.encode() if isinstance(shown, str) else shown
        (self.folder / f"{self.name}{stage.suffix}").write_bytes(data)
