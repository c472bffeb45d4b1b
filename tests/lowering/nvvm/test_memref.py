"""References to memory: which bounds are tested, and how often."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from jax.experimental import pallas as pl

import mosaic_gpu
from tests.support.calls import call, random


def doubled(n: Any, x: Any) -> Any:
    def body(x_ref: Any, o_ref: Any) -> None:
        o_ref[...] = x_ref[...] * 2

    spec = pl.BlockSpec((32, 256), lambda i: (i, 0))
    return call(body, x.shape, grid=(n,), in_specs=[spec], out_specs=spec)(x)


@pytest.mark.parametrize(("rows", "has_one_test"), [(64, True), (100, False)])
def test_a_block_that_is_inside_or_outside_as_a_whole_is_tested_once(rows: int, has_one_test: bool) -> None:
    x = random(rows, 256)
    compiled = mosaic_gpu.compile(doubled, 3, x)
    tests = len(re.findall(r"setp\.\w+\.u32", compiled.ptx))
    assert (tests == 1) is has_one_test
    for n in (1, 2, 9):
        np.testing.assert_array_equal(compiled(n, x)[: 32 * n], 2 * x[: 32 * n])
