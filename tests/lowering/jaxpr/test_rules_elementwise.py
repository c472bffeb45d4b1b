"""Elementwise rules: which ops stand for a primitive on a dtype, and what is guarded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from tests.support.dialect_ir import lowered, named
from tests.support.kernels import one_block
from tests.support.values import random_values


def names(function: Callable[..., Any], *arrays: Any, **params: Any) -> set[str]:
    """The names of the ops that a kernel of `function` is made of."""
    with lowered(one_block(function, *arrays, **params), *arrays) as ops:
        return {op.name for op in ops}


@pytest.mark.parametrize(
    ("function", "dtype", "op"),
    [
        (lax.add, "float32", "arith.addf"),
        (lax.add, "int16", "arith.addi"),
        (lax.max, "float32", "arith.maximumf"),
        (lax.max, "int32", "arith.maxsi"),
        (lax.max, "uint32", "arith.maxui"),
        (lax.max, "bool", "arith.ori"),
        (lax.div, "float32", "arith.divf"),
        (lax.div, "int32", "arith.divsi"),
        (lax.div, "uint32", "arith.divui"),
        (lax.lt, "uint8", "arith.cmpi"),
        (lax.lt, "bfloat16", "arith.cmpf"),
        (lax.shift_right_logical, "int32", "arith.shrui"),
    ],
)
def test_the_dtype_decides_the_op(function: Callable[..., Any], dtype: str, op: str) -> None:
    x = random_values(dtype, (8,))
    assert op in names(function, x, x)


def test_integer_division_never_divides_by_zero_or_overflows() -> None:
    x = np.arange(8, dtype=np.int32)
    with lowered(one_block(lax.div, x, x), x, x) as ops:
        (division,) = named(ops, "arith.divsi")
        assert division.operands[1].owner.name == "arith.select"


def test_eight_bit_floats_are_added_in_f32() -> None:
    x = random_values("float8_e4m3fn", (8,))
    with lowered(one_block(lax.add, x, x), x, x) as ops:
        (add,) = named(ops, "arith.addf")
        assert str(add.results[0].type) == "tensor<8xf32>"
        (narrow,) = named(ops, "arith.truncf")
        assert str(narrow.results[0].type) == "tensor<8xf8E4M3FN>"


def test_a_scalar_operand_is_broadcast_to_the_tile() -> None:
    x = np.ones((4, 8), np.float32)
    with lowered(one_block(lambda v, s: v * s, x, np.float32(2)), x, np.float32(2)) as ops:
        (product,) = named(ops, "arith.mulf")
        assert {str(v.type) for v in product.operands} == {"tensor<4x8xf32>"}


def test_a_power_takes_as_few_products_as_its_bits_say() -> None:
    x = np.ones((8,), np.float32)
    with lowered(one_block(lambda v: lax.integer_pow(v, 9), x), x) as ops:
        assert len(named(ops, "arith.mulf")) == 4


def test_a_scalar_predicate_selects_whole_tiles() -> None:
    x = np.ones((8,), np.float32)
    with lowered(one_block(lambda v: jnp.where(v[0] > 0, v, -v), x), x) as ops:
        (choice,) = named(ops, "arith.select")
        assert str(choice.operands[0].type) == "i1"
