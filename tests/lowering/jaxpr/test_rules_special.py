"""Rules that are written in JAX and traced."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import lax

from mosaic_gpu.errors import UnsupportedError
from tests.support.dialect_ir import lowered
from tests.support.kernels import one_block
from tests.support.values import random_values


@pytest.mark.parametrize("wide", [False, True])
def test_what_is_traced_does_not_depend_on_the_x64_mode_of_the_thread(wide: bool) -> None:
    x = random_values("float32", (8,))
    call = one_block(lax.digamma, x)
    with jax.enable_x64(wide), lowered(call, x) as ops:
        types = {str(r.type) for op in ops for r in op.results}
    assert not types & {"tensor<8xf64>", "tensor<8xi64>"}


def test_a_platform_without_a_branch_for_cuda_is_refused() -> None:
    x = np.ones((8,), np.float32)
    call = one_block(lambda v: lax.platform_dependent(v, cpu=lambda w: w, tpu=lambda w: -w), x)
    with pytest.raises(UnsupportedError, match="platform_dependent"):
        lower(call, x)


def lower(call: object, x: object) -> None:
    with lowered(call, x):  # type: ignore[arg-type]
        pass
