"""Sorting networks: one loop, of as many passes as the size asks for."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from mosaic_gpu.dialect._mlir import ir
from tests.support.dialect_ir import lowered, named
from tests.support.kernels import one_block


@pytest.mark.parametrize(("size", "passes"), [(2, 1), (3, 3), (4, 3), (5, 6), (100, 28), (128, 28), (129, 36)])
def test_the_loop_has_t_times_t_plus_1_over_2_passes(size: int, passes: int) -> None:
    x = np.ones((size,), np.float32)
    with lowered(one_block(jnp.sort, x), x) as ops:
        (loop,) = named(ops, "scf.for")
        bound = loop.operands[1].owner.attributes["value"]
        assert ir.IntegerAttr(bound).value == passes


def test_one_element_is_sorted() -> None:
    x = np.ones((1,), np.float32)
    with lowered(one_block(jnp.sort, x), x) as ops:
        assert not named(ops, "scf.for")


def test_keys_and_positions_are_all_that_moves_in_the_loop() -> None:
    x: Any = np.ones((16,), np.float32)
    with lowered(one_block(lambda v: jnp.argsort(v), x), x) as ops:
        (loop,) = named(ops, "scf.for")
        tiles = [str(r.type) for r in loop.results if "tensor" in str(r.type)]
        assert tiles == ["tensor<16xi32>", "tensor<16xi32>"]


def test_large_tiles_share_their_memory() -> None:
    x = np.ones((32, 1000), np.float32)
    with lowered(one_block(jnp.argsort, x), x) as ops:
        (loop,) = named(ops, "scf.for")
        stores = [op for op in named(ops, "mgpu.store") if op.parent == loop]
        assert len(stores) == 2
        assert stores[0].operands[1] == stores[1].operands[1]
