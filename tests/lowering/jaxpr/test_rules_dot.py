"""What `lax.dot_general` becomes: a multiplication and a sum, one dot, one for each matrix, or a loop."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.types import shape_of
from tests.support.calls import call
from tests.support.dialect_ir import lowered, named

MATRIX: Any = (((1,), (0,)), ((), ()))


def ops_of(a: Any, b: Any, dimensions: Any = MATRIX) -> Any:
    shape = np.asarray(lax.dot_general(jnp.zeros(a), jnp.zeros(b), dimensions)).shape

    def body(a_ref: Any, b_ref: Any, o_ref: Any) -> None:
        o_ref[...] = lax.dot_general(a_ref[...], b_ref[...], dimensions, preferred_element_type=jnp.float32)

    return lowered(call(body, shape, jnp.float32), jnp.zeros(a, jnp.bfloat16), jnp.zeros(b, jnp.bfloat16))


@pytest.mark.parametrize(
    ("a", "b"), [((3, 4), (4, 5)), ((1, 512), (512, 64)), ((64, 512), (512, 1)), ((64, 1), (1, 96))]
)
def test_small_products_and_vectors_are_multiplied_and_summed(a: Any, b: Any) -> None:
    with ops_of(a, b) as ops:
        assert named(ops, "mgpu.dot") == []
        assert len(named(ops, "arith.mulf")) == 1


@pytest.mark.parametrize(
    ("a", "b", "dimensions", "flags"),
    [
        ((64, 32), (32, 48), MATRIX, (0, 0)),
        ((64, 32), (48, 32), (((1,), (1,)), ((), ())), (0, 1)),
        ((32, 64), (32, 48), (((0,), (0,)), ((), ())), (1, 0)),
        ((32, 64), (48, 32), (((0,), (1,)), ((), ())), (1, 1)),
    ],
)
def test_an_operand_is_taken_the_way_round_that_it_is(a: Any, b: Any, dimensions: Any, flags: Any) -> None:
    with ops_of(a, b, dimensions) as ops:
        (dot,) = named(ops, "mgpu.dot")
        got = tuple(ir.IntegerAttr(dot.attributes[f"{side}_transposed"]).value for side in ("lhs", "rhs"))
        assert got == flags
        assert [shape_of(v.type) for v in dot.operands] == [a, b, (64, 48)]
        assert named(ops, "mgpu.transpose") == []
        assert named(ops, "mgpu.reshape") == []


def test_several_contracting_dimensions_become_one() -> None:
    with ops_of((64, 4, 8), (4, 8, 32), (((1, 2), (0, 1)), ((), ()))) as ops:
        (dot,) = named(ops, "mgpu.dot")
        assert [shape_of(v.type) for v in dot.operands] == [(64, 32), (32, 32), (64, 32)]
        assert named(ops, "mgpu.transpose") == []


@pytest.mark.parametrize(("batch", "dots", "loops"), [(3, 3, 0), (8, 1, 1)])
def test_a_batch_is_unrolled_or_a_loop(batch: int, dots: int, loops: int) -> None:
    with ops_of((batch, 32, 32), (batch, 32, 32), (((2,), (1,)), ((0,), (0,)))) as ops:
        assert len(named(ops, "mgpu.dot")) == dots
        assert len(named(ops, "scf.for")) == loops
