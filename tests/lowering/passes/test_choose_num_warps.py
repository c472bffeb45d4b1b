"""How many warps a block gets."""

from __future__ import annotations

import pytest

from mosaic_gpu.errors import KernelError
from mosaic_gpu.lowering.diagnostics import parse_module
from mosaic_gpu.lowering.options import LoweringOptions
from mosaic_gpu.lowering.passes.choose_num_warps import ChooseNumWarps, choose
from mosaic_gpu.lowering.pipeline import compilation_context


@pytest.mark.parametrize(
    ("elements", "words", "warps"),
    [(1, 1, 1), (512, 512, 1), (1000, 1000, 2), (4000, 4000, 4), (8192, 8192, 8), (16384, 16384, 8), (16384, 32768, 16),
     (65536, 65536, 32), (1 << 20, 1 << 20, 32)],
)  # fmt: skip
def test_larger_tiles_get_more_warps(elements: int, words: int, warps: int) -> None:
    assert choose(elements, words) == warps


@pytest.mark.parametrize("warps", [0, 3, 64, -4])
def test_a_number_of_warps_that_no_block_has_is_refused(warps: int) -> None:
    with compilation_context(), pytest.raises(KernelError, match="power of two"):
        ChooseNumWarps().apply(parse_module("module {}", "test"), LoweringOptions(num_warps=warps))
