"""Reductions: accumulation dtype, identities, and folds of several operands."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.support.dialect_ir import lowered, named
from tests.support.kernels import one_block
from tests.support.values import random_values


def reductions(function: Any, *arrays: Any) -> list[list[str]]:
    """The operand types of each fold."""
    with lowered(one_block(function, *arrays), *arrays) as ops:
        return [[str(v.type) for v in op.operands] for op in named(ops, "mgpu.reduce")]


def test_narrow_floats_are_summed_in_f32_and_compared_as_they_are() -> None:
    x = random_values("bfloat16", (4, 8))
    assert reductions(lambda v: v.sum(axis=1), x) == [["tensor<4x8xf32>", "f32"]]
    assert reductions(lambda v: lax.reduce_max(v, (1,)), x) == [["tensor<4x8xbf16>", "bf16"]]


def test_argmax_is_a_fold_of_values_and_one_of_indices() -> None:
    x = random_values("float32", (4, 8))
    folds = reductions(lambda v: lax.argmax(v, 1, np.int32), x)
    assert folds == [["tensor<4x8xf32>", "f32"], ["tensor<4x8xi32>", "i32"]]


def test_operands_of_different_dtypes_travel_as_integers_of_one_width() -> None:
    x, k = random_values("float32", (8,)), random_values("int8", (8,))

    def body(v: Any, n: Any) -> Any:
        return lax.reduce((v, n), (np.float32(0), np.int8(0)), lambda a, b: (a[0] + b[0], a[1] | b[1]), (0,))

    assert reductions(body, x, k) == [["tensor<8xi32>"] * 3 + ["i32"] * 3]


def test_nothing_to_fold_needs_no_fold() -> None:
    x = random_values("float32", (4, 8))
    assert reductions(lambda v: (v[:0].sum(axis=0), jnp.float32(0)), x) == []
    assert reductions(lambda v: lax.reduce_sum(v, ()), x) == []
