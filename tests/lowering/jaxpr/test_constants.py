"""Arrays of constants inside a kernel's functions: steps from an iota, small ones element by element."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from numpy.typing import NDArray

from mosaic_gpu import dialect
from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.lowering.jaxpr.context import constant
from tests.support.dialect_ir import named, operations


def ops_of(array: NDArray[Any]) -> dict[str, int]:
    """How often each op stands in what makes `array`."""
    with ir.Context(), ir.Location.unknown():
        dialect.load()
        module = ir.Module.create()
        with ir.InsertionPoint(module.body):
            value = constant(array, jax.ShapeDtypeStruct(array.shape, array.dtype))
            assert tuple(ir.RankedTensorType(value.type).shape) == array.shape
        ops = list(operations(module.operation))
        return {name: len(named(ops, name)) for name in ("mgpu.iota", "arith.select", "mgpu.reshape")}


def test_equal_elements_are_one_constant() -> None:
    assert ops_of(np.full((3, 4), 7, np.uint64) << np.uint64(61)) == {
        "mgpu.iota": 0,
        "arith.select": 0,
        "mgpu.reshape": 0,
    }


def test_equal_steps_come_from_an_iota() -> None:
    assert ops_of(np.arange(5, 2000, 5, np.int32))["arith.select"] == 0


def test_a_few_elements_are_selected_one_by_one() -> None:
    assert ops_of(np.array([[1.5, 2.0], [-3.0, 9.0]])) == {"mgpu.iota": 1, "arith.select": 3, "mgpu.reshape": 1}


def test_many_different_elements_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="constant array whose elements differ"):
        ops_of(np.random.default_rng(0).random(1000))
