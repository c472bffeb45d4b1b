"""Stage "cubin": every target's PTX is assembled, and what the kernel takes is read back."""

from __future__ import annotations

import pytest

from mosaic_gpu.errors import ToolError
from mosaic_gpu.lowering.artifacts import Cubin, Ptx
from mosaic_gpu.lowering.cubin import assemble_cubin
from mosaic_gpu.lowering.diagnostics import parse_module
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.pipeline import compilation_context, run_stages
from mosaic_gpu.lowering.targets import TARGETS
from tests.support.thread_ir import SINES


def _cubin(target: str) -> Cubin:
    with compilation_context():
        cubin: Cubin = run_stages(
            parse_module(SINES, "sines"), LoweringOptions(target=target), start="nvvm", stop="cubin"
        )
    return cubin


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_has_a_cubin_with_its_resources(target: str) -> None:
    cubin = _cubin(target)
    assert cubin.data.startswith(b"\x7fELF")
    assert 8 <= cubin.resources.registers <= TARGETS[target].max_registers
    assert cubin.resources.spill_bytes == 0


def test_the_ptx_goes_along() -> None:
    cubin = _cubin("sm_90a")
    assert cubin.ptx is not None
    assert ".entry sines" in cubin.ptx


def test_a_launch_that_names_another_kernel_is_an_error() -> None:
    cubin = _cubin("sm_90a")
    assert cubin.ptx is not None
    assert cubin.launch is not None
    renamed = Ptx(cubin.ptx.replace("sines", "cosines"), cubin.launch)
    with pytest.raises(ToolError, match="sines"):
        assemble_cubin(renamed, LoweringOptions())
