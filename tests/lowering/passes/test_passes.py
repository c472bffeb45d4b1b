"""The passes of stage "layouts" on dialect IR: each .mlir file says what it runs and, in CHECK lines, what comes out.

The first line is `// RUN: <pass>[,<pass>..] [option=value ..]`, with the passes' own names, or "canonicalize" and the
like for MLIR's.
"""

from __future__ import annotations

import io
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser, pattern_for_opts

from mosaic_gpu.dialect._mlir import PassManager
from mosaic_gpu.lowering.diagnostics import parse_module
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.assign_layouts import AssignLayouts
from mosaic_gpu.lowering.passes.check_layouts import check_layouts
from mosaic_gpu.lowering.passes.choose_dots import ChooseDots
from mosaic_gpu.lowering.passes.choose_num_warps import ChooseNumWarps
from mosaic_gpu.lowering.passes.drop_dead_carries import DropDeadCarries
from mosaic_gpu.lowering.passes.expand_dots import ExpandDots
from mosaic_gpu.lowering.passes.group_tiles import GroupTiles
from mosaic_gpu.lowering.passes.hoist_loads import HoistLoads
from mosaic_gpu.lowering.passes.hoist_steps import HoistSteps
from mosaic_gpu.lowering.passes.insert_barriers import InsertBarriers
from mosaic_gpu.lowering.passes.parallelize_loops import ParallelizeLoops
from mosaic_gpu.lowering.passes.pipeline_loops import PipelineLoops
from mosaic_gpu.lowering.passes.plan_shared_memory import PlanSharedMemory
from mosaic_gpu.lowering.passes.promote_refs import PromoteRefs
from mosaic_gpu.lowering.passes.split_tiles import SplitTiles
from mosaic_gpu.lowering.passes.wait_for_grids import WaitForGrids
from mosaic_gpu.lowering.passes.walk_tiles import WalkTiles
from mosaic_gpu.lowering.passes.warp_specialize import WarpSpecialize
from mosaic_gpu.lowering.pipeline import compilation_context

FILES = sorted(Path(__file__).parent.glob("*.mlir"))
PASSES: dict[str, Any] = {
    p.name: p
    for p in (
        AssignLayouts(),
        ChooseDots(),
        ChooseNumWarps(),
        ExpandDots(),
        InsertBarriers(),
        PlanSharedMemory(),
        GroupTiles(),
        HoistSteps(),
        PromoteRefs(),
        HoistLoads(),
        DropDeadCarries(),
        ParallelizeLoops(),
        SplitTiles(),
        WalkTiles(),
        PipelineLoops(),
        WarpSpecialize(),
        WaitForGrids(),
    )
}


def run_file(path: Path) -> str:
    """The module that the passes named in the file's RUN line make of it, verified."""
    text = path.read_text()
    names, *settings = text.splitlines()[0].removeprefix("// RUN: ").split()
    values = dict(setting.split("=") for setting in settings)
    given: dict[str, Any] = {key: int(v) if v.isdigit() else v == "yes" or v for key, v in values.items()}
    options = LoweringOptions(**given)
    with compilation_context():
        module = parse_module(text, path.name)
        for name in names.split(","):
            if name in PASSES:
                PASSES[name].apply(module, options)
            else:
                PassManager.parse(f"builtin.module({name})").run(module.operation)
        assert module.operation.verify()
        if "assign-layouts" in names:
            assert check_layouts(module) == []
        return str(module)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_the_passes_make_what_the_file_says(path: Path) -> None:
    printed = run_file(path)
    options = Options(match_filename=str(path))
    parser = Parser(options, io.StringIO(path.read_text()), *pattern_for_opts(options))
    report = io.StringIO()
    with redirect_stderr(report), redirect_stdout(report):
        status = Matcher(options, FInput(path.name, printed), parser).run()
    assert status == 0, f"{report.getvalue()}\n{printed}"


def test_there_are_files_to_check() -> None:
    assert len(FILES) >= 10
