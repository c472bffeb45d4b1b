"""One run of a program on host memory: initial results, aliases, guards, 4-bit integers."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mosaic_gpu.errors import KernelError, SimulationError
from mosaic_gpu.runtime.buffers import uninitialised
from mosaic_gpu.runtime.interface import Array, ArrayType, Program, RunStats
from mosaic_gpu.runtime.run import run


@dataclass
class Loaded:
    """A program that is a Python function of the arrays behind the kernel's pointers."""

    body: Callable[..., None]
    launches: int = 0

    def launch(self, arrays: Sequence[Array]) -> RunStats:
        self.launches += 1
        self.body(*arrays)
        return RunStats(instructions=7)


def _type(dtype: Any, *shape: int) -> ArrayType:
    return ArrayType(shape, np.dtype(dtype))


def _program(
    operands: Sequence[ArrayType],
    results: Sequence[ArrayType],
    aliases: tuple[tuple[int, int], ...] = (),
    grid: tuple[int, int, int] = (1, 1, 1),
) -> Program:
    return Program("k", "", "k", grid, (32, 1, 1), 0, tuple(operands), tuple(results), aliases)


def _nothing(*arrays: Array) -> None:
    pass


def test_results_are_what_the_kernel_wrote_and_operands_stay() -> None:
    def body(x: Array, o: Array) -> None:
        o[...] = x + 1
        x[...] = 0

    x = np.arange(4, dtype=np.float32)
    (result,), stats = run(_program([_type("float32", 4)], [_type("float32", 4)]), Loaded(body), [x])
    np.testing.assert_array_equal(result, [1, 2, 3, 4])
    np.testing.assert_array_equal(x, [0, 1, 2, 3])
    assert stats == RunStats(7)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("float32", np.nan), ("int32", -(2**31)), ("uint8", 0), ("bool", False), (ml_dtypes.float8_e4m3fn, np.nan)],
)
def test_what_is_not_written_is_nan_or_the_least_integer_or_false(dtype: Any, value: Any) -> None:
    (result,), _ = run(_program([], [_type(dtype, 3)]), Loaded(_nothing), [])
    assert result.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(result.astype(np.float64), np.full(3, value, np.float64))


def test_a_poison_byte_fills_every_byte_of_a_result() -> None:
    (result,), _ = run(_program([], [_type("int16", 2)]), Loaded(_nothing), [], poison=0x5A)
    np.testing.assert_array_equal(result, [0x5A5A, 0x5A5A])


def test_an_aliased_result_starts_as_its_operand_and_is_the_same_memory() -> None:
    def body(x: Array, o: Array) -> None:
        assert x is o
        o[0] = 9

    x = np.arange(3, dtype=np.int32)
    (result,), _ = run(_program([_type("int32", 3)], [_type("int32", 3)], ((0, 0),)), Loaded(body), [x])
    np.testing.assert_array_equal(result, [9, 1, 2])
    np.testing.assert_array_equal(x, [0, 1, 2])


def test_an_empty_grid_runs_nothing() -> None:
    loaded = Loaded(_nothing)
    (result,), stats = run(_program([], [_type("float32", 2)], grid=(0, 1, 1)), loaded, [])
    assert loaded.launches == 0
    assert stats == RunStats()
    assert np.isnan(result).all()


def test_four_bit_integers_take_a_byte_in_the_kernels_memory() -> None:
    def body(x: Array, o: Array) -> None:
        assert x.dtype == o.dtype == np.int8
        o[...] = -x

    x = np.array([1, 7, -3], ml_dtypes.int4)
    (result,), _ = run(_program([_type(ml_dtypes.int4, 3)], [_type(ml_dtypes.int4, 3)]), Loaded(body), [x])
    assert result.dtype == ml_dtypes.int4
    np.testing.assert_array_equal(result.astype(int), [-1, -7, 3])


@pytest.mark.parametrize("offset", [-1, 1])
def test_a_write_past_an_array_is_found(offset: int) -> None:
    def body(o: Array) -> None:
        start = o.ctypes.data + (4 if offset > 0 else -1)
        neighbour = np.ctypeslib.as_array((ctypes.c_uint8 * 1).from_address(start))
        neighbour[0] = 1

    with pytest.raises(SimulationError, match=f"memory {'after' if offset > 0 else 'before'} result 0 of kernel k"):
        run(_program([], [_type("uint8", 4)]), Loaded(body), [])


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (2, 3)])
def test_arrays_of_any_rank_and_size_reach_the_kernel_aligned(shape: tuple[int, ...]) -> None:
    def body(x: Array, o: Array) -> None:
        assert x.shape == shape
        assert x.size == 0 or x.ctypes.data % 256 == o.ctypes.data % 256 == 0
        o[...] = x

    x = np.random.default_rng(0).normal(size=shape).astype(ml_dtypes.bfloat16)
    type_ = _type(ml_dtypes.bfloat16, *shape)
    (result,), _ = run(_program([type_], [type_]), Loaded(body), [x])
    assert result.shape == shape
    np.testing.assert_array_equal(result, x)


def test_operands_of_another_number_shape_or_dtype_are_refused() -> None:
    program = _program([_type("float32", 4)], [])
    with pytest.raises(KernelError, match="wrong number of arrays"):
        run(program, Loaded(_nothing), [])
    for wrong in (np.zeros(5, np.float32), np.zeros(4, np.int32)):
        with pytest.raises(KernelError, match=r"array 0 does not fit kernel 'k'[^$]*expected: float32\[4\]"):
            run(program, Loaded(_nothing), [wrong])


def test_the_initial_values_are_those_of_pallas_interpreter() -> None:
    from jax._src.pallas.primitives import uninitialized_value

    for dtype in ("float16", "bfloat16", "int8", "int16", "int32", "uint32", "bool", "float8_e5m2"):
        type_ = _type(np.dtype(dtype) if dtype in np.sctypeDict else getattr(ml_dtypes, dtype), 2)
        expected = np.asarray(uninitialized_value((2,), type_.dtype))
        assert uninitialised(type_).tobytes() == expected.tobytes(), dtype
