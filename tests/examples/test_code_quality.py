"""benchmarks/code_quality.py: what it counts, and that the inner loops of the examples stay as lean as they are."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from mosaic_gpu.lowering.toolpaths import find_tool

SASS = """
.L_x_0:
        /*0000*/                   UMOV UR4, URZ ;
.L_x_1:
        /*0010*/                   UIADD3 UR4, UR4, 0x1, URZ ;
        /*0020*/              @!P0 LDS.128 R4, [R2] ;
        /*0030*/                   HGMMA.64x256x16.F32.BF16 R24, gdesc[UR12].tnspB, R24 ;
        /*0040*/              @!P1 BRA `(.L_x_1) ;
        /*0050*/                   UTMALDG.2D [UR12], [UR6] ;
        /*0060*/               @P0 BRA `(.L_x_2) ;
        /*0070*/                   BRA `(.L_x_0) ;
.L_x_2:
        /*0080*/                   EXIT ;
"""


@pytest.fixture
def code_quality(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("code_quality")


def test_a_loop_is_what_lies_before_a_jump_back(code_quality: ModuleType) -> None:
    inner, outer = (loop.opcodes for loop in code_quality.loops(SASS))
    assert inner == {"UIADD3": 1, "LDS": 1, "HGMMA": 1, "BRA": 1}
    assert outer == {"UMOV": 1, "UIADD3": 1, "LDS": 1, "HGMMA": 1, "UTMALDG": 1, "BRA": 3}


# Triton 3.6 issues 20.8 and 33.6 for the same tiles.
@pytest.mark.parametrize(("name", "most"), [("matmul", 16), ("attention", 32)])
def test_inner_loops_are_matrix_instructions_and_little_else(code_quality: ModuleType, name: str, most: float) -> None:
    if find_tool("nvdisasm") is None:
        pytest.skip("nvdisasm is not installed")
    found = code_quality.ours(getattr(code_quality, name)(), None)
    assert found.mma == {"matmul": 4, "attention": 16}[name]
    assert found.other < most
    assert (found.memory, found.spills) == (0, 0)
    assert found.stages >= 2


def test_of_a_kernel_without_matrix_instructions_the_longest_loop_counts_or_all(code_quality: ModuleType) -> None:
    without = SASS.replace("HGMMA", "FFMA")
    (longest,) = code_quality.counted_loops(without)
    assert longest.opcodes.total() == 8
    straight = "\n".join(line for line in without.splitlines() if "(.L_x_" not in line)
    (whole,) = code_quality.counted_loops(f"{straight}\n.L_x_3:\n        /*0090*/                   BRA `(.L_x_3) ;")
    assert whole.opcodes == {"UMOV": 1, "UIADD3": 1, "LDS": 1, "FFMA": 1, "UTMALDG": 1, "EXIT": 1, "BRA": 1}
