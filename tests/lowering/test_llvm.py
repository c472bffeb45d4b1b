"""Stage "llvm": the per-thread module becomes LLVM IR, and what is left over is an error, not a crash."""

from __future__ import annotations

import pytest

from mosaic_gpu.errors import InternalError
from mosaic_gpu.lowering.artifacts import LlvmIr
from mosaic_gpu.lowering.diagnostics import parse_module
from mosaic_gpu.lowering.llvm import translate_to_llvm
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.pipeline import compilation_context
from tests.support.thread_ir import KERNEL_FILE, SINES


def _translate(extra: str = "") -> LlvmIr:
    text = SINES.replace("llvm.return", f'{extra} loc("{KERNEL_FILE}":16:1)\n    llvm.return') if extra else SINES
    with compilation_context():
        return translate_to_llvm(parse_module(text, "sines"), LoweringOptions())


def test_a_tile_stays_one_vector() -> None:
    assert "fadd <4 x float>" in _translate().text


def test_the_kernel_and_its_block_size_are_marked() -> None:
    text = _translate().text
    assert "define ptx_kernel void @sines" in text
    assert '"nvvm.reqntid"="64"' in text


def test_control_flow_becomes_branches() -> None:
    loop = """
    %c0 = arith.constant 0 : i32
    %c8 = arith.constant 8 : i32
    scf.for %i = %c0 to %c8 step %four : i32 {
      %p = llvm.getelementptr %to[%i] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, f32
      llvm.store %first, %p : f32, !llvm.ptr<1>
    }"""
    assert "br i1" in _translate(loop).text


def test_an_op_that_is_left_over_is_an_internal_error_at_the_kernels_line() -> None:
    with pytest.raises(InternalError, match=r"mgpu\.barrier") as error:
        _translate('"mgpu.barrier"() : () -> ()')
    assert str(error.value).endswith(f"at {KERNEL_FILE}:16")
