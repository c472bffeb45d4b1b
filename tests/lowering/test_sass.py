"""A cubin shows its machine code."""

from __future__ import annotations

import pytest

from mosaic_gpu.errors import ToolError
from mosaic_gpu.lowering import sass
from mosaic_gpu.lowering.assemblers import assemble
from mosaic_gpu.lowering.sass import disassemble
from mosaic_gpu.lowering.targets import TARGETS
from mosaic_gpu.lowering.toolpaths import find_tool

PTX = """
.version 8.6
.target sm_90a
.address_size 64
.visible .entry roots(.param .u64 x)
{ .reg .b64 %rd1; .reg .f32 %f1;
  ld.param.u64 %rd1, [x]; ld.global.f32 %f1, [%rd1]; ex2.approx.ftz.f32 %f1, %f1; st.global.f32 [%rd1], %f1; ret; }
"""


@pytest.mark.skipif(find_tool("nvdisasm") is None and find_tool("cuobjdump") is None, reason="no disassembler")
def test_sass_names_the_kernel_and_its_instructions() -> None:
    text = disassemble(assemble(PTX, TARGETS["sm_90a"])[0])
    assert "roots" in text
    assert "MUFU.EX2" in text


@pytest.mark.skipif(find_tool("nvdisasm") is None and find_tool("cuobjdump") is None, reason="no disassembler")
def test_what_is_no_cubin_is_a_tool_error_with_the_tools_words() -> None:
    with pytest.raises(ToolError, match="fails"):
        disassemble(b"nonsense")


def test_without_a_disassembler_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sass, "find_tool", lambda name: None)
    with pytest.raises(ToolError, match="pip install nvidia-cuda-nvdisasm"):
        disassemble(b"")
