"""The table of stages: entered and left anywhere, observed, dumped, and its errors."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mosaic_gpu.errors import InternalError, KernelError
from mosaic_gpu.lowering.diagnostics import parse_module
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.pipeline import (
    STAGE_NAMES,
    STAGES,
    DumpToFolder,
    compilation_context,
    read_artifact,
    run_stages,
    stage_index,
)
from tests.support.thread_ir import KERNEL_FILE, SINES

OPTIONS = LoweringOptions()


def _run(start: str, stop: str, artifact: Any = None, **arguments: Any) -> Any:
    with compilation_context():
        return run_stages(
            parse_module(SINES, "sines") if artifact is None else artifact, OPTIONS, start=start, stop=stop, **arguments
        )


def test_the_table_names_the_stages_in_the_order_of_the_design() -> None:
    assert STAGE_NAMES == ("dialect", "layouts", "pipelined", "nvvm", "llvm", "ptx", "cubin")


def test_an_observer_is_told_of_each_stage_that_ran_in_order() -> None:
    seen: list[tuple[str, bool]] = []
    _run("nvvm", "cubin", observer=lambda stage, artifact, seconds: seen.append((stage.name, seconds > 0)))
    assert seen == [("llvm", True), ("ptx", True), ("cubin", True)]


def test_leaving_at_the_stage_of_entry_gives_the_artifact_itself() -> None:
    with compilation_context():
        module = parse_module(SINES, "sines")
        assert run_stages(module, OPTIONS, start="nvvm", stop="nvvm") is module


def test_stages_do_not_run_backwards() -> None:
    with pytest.raises(KernelError, match="'llvm' comes before 'cubin'"):
        _run("cubin", "llvm")


def test_an_unknown_stage_is_an_error_that_names_the_stages() -> None:
    with pytest.raises(KernelError, match="one of dialect, layouts, pipelined, nvvm, llvm, ptx, cubin"):
        stage_index("sass2")


def test_the_launch_goes_along_to_the_cubin() -> None:
    launch = _run("nvvm", "cubin").launch
    assert (launch.entry, launch.grid, launch.block, launch.shared_bytes) == ("sines", (15, 1, 1), (64, 1, 1), 256)


@pytest.mark.parametrize("stage", ["nvvm", "llvm", "ptx"])
def test_a_stage_entered_from_the_file_it_was_dumped_to_gives_the_same_cubin(stage: str, tmp_path: Path) -> None:
    whole = _run("nvvm", "cubin", observer=DumpToFolder(tmp_path, "sines"))
    with compilation_context():
        if stage == "nvvm":
            path = tmp_path / "sines.nvvm.mlir"
            path.write_text(parse_module(SINES, "sines").operation.get_asm(enable_debug_info=True))
        path = tmp_path / f"sines{STAGES[stage_index(stage)].suffix}"
        again = run_stages(read_artifact(stage, path), OPTIONS, start=stage, stop="cubin")
    assert again == whole


def test_a_cubin_read_from_a_file_tells_its_resources(tmp_path: Path) -> None:
    whole = _run("nvvm", "cubin", observer=DumpToFolder(tmp_path, "sines"))
    assert read_artifact("cubin", tmp_path / "sines.cubin").resources == whole.resources


def test_text_that_does_not_parse_is_the_users_error_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.mlir"
    path.write_text("module {\n  func.func @f( }\n")
    with compilation_context(), pytest.raises(KernelError, match=f"{path}:2"):
        read_artifact("nvvm", path)


def test_a_module_that_does_not_verify_is_refused_when_read(tmp_path: Path) -> None:
    path = tmp_path / "wrong.mlir"
    path.write_text('%c = arith.constant 1 : i32\n%d = "arith.addi"(%c) : (i32) -> i32\n')
    with compilation_context(), pytest.raises(KernelError, match=r"arith\.addi.*2 operands"):
        read_artifact("nvvm", path)


def test_mlir_refusing_our_own_ir_is_an_internal_error_at_the_kernels_line() -> None:
    # a cast between types that no conversion reconciles
    cast = f'%p = builtin.unrealized_conversion_cast %r : vector<4xf32> to f64 loc("{KERNEL_FILE}":16:1)'
    store = "llvm.store %p, %to : f64, !llvm.ptr<1>"
    text = SINES.replace("llvm.return", f"{cast}\n    {store}\n    llvm.return")
    with compilation_context():
        module = parse_module(text, "sines")
        with pytest.raises(InternalError, match="stage 'llvm' failed") as error:
            run_stages(module, OPTIONS, start="nvvm", stop="llvm")
    assert error.value.source is not None
    assert (error.value.source.file, error.value.source.line) == (KERNEL_FILE, 16)


def test_a_context_serves_some_compilations_and_is_then_replaced() -> None:
    seen = []
    for _ in range(100):
        with compilation_context() as context:
            if not any(context is other for other in seen):
                seen.append(context)
    assert 2 < len(seen) < 10


def test_one_thread_at_a_time_is_inside_a_context() -> None:
    inside: list[int] = []

    def enter(n: int) -> list[int]:
        with compilation_context():
            inside.append(n)
            time.sleep(0.01)
            others = [m for m in inside if m != n]
            inside.remove(n)
        return others

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(enter, range(8))) == [[]] * 8


def test_threads_compile_at_once_and_get_what_one_alone_gets() -> None:
    alone = _run("nvvm", "cubin")
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lambda _: _run("nvvm", "cubin"), range(8))) == [alone] * 8


def test_compiling_again_and_again_does_not_grow_the_process() -> None:
    def resident_kilobytes() -> int:
        return next(int(line.split()[1]) for line in Path("/proc/self/status").open() if line.startswith("VmRSS"))

    for _ in range(70):  # two contexts: what one keeps is given back with it
        _run("nvvm", "ptx")
    before = resident_kilobytes()
    for _ in range(130):
        _run("nvvm", "ptx")
    assert resident_kilobytes() - before < 1000  # unfreed LLVM IR text and passes were 14 kB a kernel


def test_an_op_of_a_file_without_locations_is_at_its_line_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "plain.mlir"
    with compilation_context():
        path.write_text(str(parse_module(SINES, "sines")))  # prints no locations
        text = run_stages(read_artifact("nvvm", path), OPTIONS, start="nvvm", stop="ptx").text
    assert f'"{path}"' in text
