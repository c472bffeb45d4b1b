"""Stage "ptx": what LLVM makes of a kernel for each target."""

from __future__ import annotations

import pytest

from mosaic_gpu.errors import InternalError
from mosaic_gpu.lowering.artifacts import LlvmIr, Ptx
from mosaic_gpu.lowering.diagnostics import parse_module
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.pipeline import compilation_context, run_stages
from mosaic_gpu.lowering.ptx import compile_to_ptx
from mosaic_gpu.lowering.targets import TARGETS
from tests.support.thread_ir import KERNEL_FILE, SINES


def _ptx(target: str = "sm_90a", text: str = SINES) -> str:
    with compilation_context():
        ptx: Ptx = run_stages(parse_module(text, "sines"), LoweringOptions(target=target), start="nvvm", stop="ptx")
    return ptx.text


def _lines(ptx: str) -> list[str]:
    return [line.strip() for line in ptx.splitlines()]


@pytest.mark.parametrize("name", TARGETS)
def test_the_ptx_is_for_the_target_and_of_its_isa_version(name: str) -> None:
    lines, target = _lines(_ptx(name)), TARGETS[name]
    assert f".target {name}" in lines  # no `, debug`, which would switch ptxas' optimiser off
    assert ".version {}.{}".format(*target.ptx_version) in lines


def test_loc_lines_tell_the_users_file_and_line() -> None:
    lines = _lines(_ptx())
    files = {line.split()[1]: line.split()[2].strip('"') for line in lines if line.startswith(".file\t")}
    places = {(files[p[1]], int(p[2])) for p in (line.split() for line in lines if line.startswith(".loc\t"))}
    assert {(KERNEL_FILE, n) for n in (11, 12, 14, 15)} <= places


def test_a_libdevice_function_is_inlined_and_nothing_else_of_libdevice_is_there() -> None:
    ptx = _ptx()
    assert "__nv_" not in ptx
    assert ".func" not in ptx
    assert ptx.count(".entry") == 1


def test_denormals_are_kept() -> None:
    assert ".ftz" not in _ptx()


def test_sums_and_products_are_not_contracted() -> None:
    text = SINES.replace("arith.addf %all, %v", "arith.mulf %all, %v").replace("@__nv_sinf", "@__nv_fabsf")
    text = text.replace("%to = ", "%t = arith.addf %r, %v : vector<4xf32>\n    %to = ").replace("store %r", "store %t")
    instructions = [line.split()[0] for line in _lines(_ptx(text=text)) if line]
    assert "fma.rn.f32" not in instructions
    assert instructions.count("mul.rn.f32") == instructions.count("add.rn.f32") == 4


def test_vectors_are_loaded_and_stored_sixteen_bytes_at_a_time() -> None:
    instructions = [line.split()[0] for line in _lines(_ptx()) if line]
    assert [i for i in instructions if i.startswith(("ld.global", "st.global"))] == [
        "ld.global.v4.b32", "st.global.v4.b32"
    ]  # fmt: skip


def test_the_same_kernel_gives_the_same_text() -> None:
    assert _ptx() == _ptx()


def test_text_that_llvm_does_not_read_is_an_internal_error() -> None:
    with pytest.raises(InternalError, match="stage 'ptx' failed"):
        compile_to_ptx(LlvmIr("define void @f( {", None), LoweringOptions())
