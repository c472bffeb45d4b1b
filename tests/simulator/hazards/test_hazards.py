"""Each hazard of the corpus is found and named; its repaired twin is clean, with any seed."""

from __future__ import annotations

import numpy as np
import pytest

from mosaic_gpu.errors import SimulationError
from mosaic_gpu.simulator import load
from tests.simulator.harness import kernel_text
from tests.simulator.hazards.cases import HAZARDS, Hazard

each = pytest.mark.parametrize("hazard", HAZARDS, ids=lambda hazard: hazard.name.replace(" ", "-"))
_SHARED = ".shared .align 1024 .b8 s[8200];"


def run(hazard: Hazard, *, good: bool, seed: int = 0, before: str = "", declarations: str = "") -> None:
    text = kernel_text(before + hazard.text(good=good), ["u64"], _SHARED + declarations)
    buffer = np.arange(hazard.elements, dtype=np.uint32)
    load(text).launch("k", hazard.grid, hazard.block, [buffer], seed=seed, **hazard.options)


@each
def test_the_hazard_is_found_with_its_line_and_thread(hazard: Hazard) -> None:
    with pytest.raises(SimulationError, match=hazard.says) as caught:
        run(hazard, good=False)
    assert "PTX line" in str(caught.value)
    assert "block" in str(caught.value)


@each
def test_the_repaired_twin_is_clean(hazard: Hazard) -> None:
    for seed in (0, 1, 2):
        run(hazard, good=True, seed=seed)


@pytest.mark.parametrize("name", ["read after write", "out-of-bounds", "wgmma: accumulators read too soon"])
def test_the_line_of_the_kernels_source_is_named(name: str) -> None:
    hazard = next(h for h in HAZARDS if h.name == name)
    with pytest.raises(SimulationError, match=r"at kernel.py:42"):
        run(hazard, good=False, before=".loc 1 42 0\n", declarations='\n.file 1 "kernel.py"\n')
