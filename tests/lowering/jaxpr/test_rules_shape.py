"""Moving elements: what stays in registers and what goes through shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.ops_memory import ints
from tests.support.dialect_ir import lowered, named
from tests.support.kernels import one_block

X = np.ones((6, 8), np.float32)


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (jnp.transpose, "mgpu.transpose"),
        (lambda v: v.reshape(4, 12), "mgpu.reshape"),
        (lambda v: v[:, ::3] * 1, "mgpu.slice"),
        (lambda v: jnp.concatenate([v * 2, v]), "mgpu.concatenate"),
        (lambda v: jnp.stack([v * 2, v]), "mgpu.concatenate"),
        (lambda v: jnp.tile(v, (2, 1)), "mgpu.broadcast"),
        (lambda v: v + lax.broadcasted_iota(jnp.float32, (6, 8), 1), "mgpu.iota"),
    ],
)
def test_regular_moves_are_single_ops_in_registers(function: Callable[[Any], Any], op: str) -> None:
    with lowered(one_block(function, X), X) as ops:
        assert named(ops, op)
        assert not named(ops, "mgpu.alloc")


def test_a_reversal_is_a_slice_of_negative_stride() -> None:
    with lowered(one_block(lambda v: lax.rev(v * 2, (1,)), X), X) as ops:
        (box,) = named(ops, "mgpu.slice")
        assert ints(ir.ArrayAttr(box.attributes["strides"])) == (1, -1)
        assert ints(ir.ArrayAttr(box.attributes["starts"])) == (0, 7)


def test_pieces_of_different_sizes_are_joined_in_shared_memory() -> None:
    with lowered(one_block(lambda v: jnp.concatenate([v * 2, v[:1]]), X), X) as ops:
        assert len(named(ops, "mgpu.alloc")) == 1
        assert not named(ops, "mgpu.concatenate")


def test_padding_is_a_view_that_leaves_the_stored_tile() -> None:
    with lowered(one_block(lambda v: lax.pad(v * 2, np.float32(0), [(1, 2, 0), (0, -3, 0)]), X), X) as ops:
        views = [v for v in named(ops, "mgpu.subview") if ints(ir.ArrayAttr(v.attributes["sizes"])) == (9, 5)]
        assert any(ints(ir.ArrayAttr(v.attributes["checked"])) == (1, 1) for v in views)


def test_results_without_elements_are_constants() -> None:
    with lowered(one_block(lambda v: (jnp.concatenate([v[:0], v[:0]]), v * 2), X), X) as ops:
        assert not named(ops, "mgpu.alloc")
        assert not named(ops, "mgpu.concatenate")
