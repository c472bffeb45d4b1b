"""Running folds: their axis, direction and accumulation dtype."""

from __future__ import annotations

from jax import lax

from mosaic_gpu.dialect._mlir import ir
from tests.support.dialect_ir import lowered, named
from tests.support.kernels import one_block
from tests.support.values import random_values


def test_axis_direction_and_dtype_reach_the_op() -> None:
    x = random_values("float16", (4, 8))
    with lowered(one_block(lambda v: lax.cumsum(v, 1, reverse=True), x), x) as ops:
        (scan,) = named(ops, "mgpu.scan")
        assert ir.IntegerAttr(scan.attributes["axis"]).value == 1
        assert ir.IntegerAttr(scan.attributes["reverse"]).value == 1
        assert str(scan.results[0].type) == "tensor<4x8xf32>"


def test_extremes_run_in_the_dtype_itself() -> None:
    x = random_values("int8", (8,))
    with lowered(one_block(lax.cummax, x), x) as ops:
        (scan,) = named(ops, "mgpu.scan")
        assert str(scan.results[0].type) == "tensor<8xi8>"
