"""examples/matmul.py and examples/batched_matmul.py beside float64."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mosaic_gpu
from tests.support.examples import doubles, example, normal, run_compiled

matmul: Callable[..., Any] = example("matmul").matmul
batched_matmul: Callable[..., Any] = example("batched_matmul").batched_matmul

TOLERANCE = {"float16": 2e-3, "bfloat16": 1e-2, "float8_e4m3fn": 1e-2, "float8_e5m2": 1e-2}


def close(found: Any, expected: Any, tolerance: float) -> None:
    """Asserts that the difference is small beside 1 and the number expected."""
    np.testing.assert_allclose(np.asarray(found).astype(np.float64), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("shape", [(128, 64, 128), (130, 200, 136), (64, 648, 72), (77, 45, 51), (1, 1, 1)])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_matmul_of_any_size(shape: tuple[int, int, int], dtype: str) -> None:
    m, k, n = shape
    a, b = normal(0, m, k, dtype=dtype), normal(1, k, n, dtype=dtype)
    a64, b64 = doubles(a, b)
    close(run_compiled(matmul, a, b), a64 @ b64, TOLERANCE[dtype])


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_matmul_of_8_bit_floats(dtype: str, transpose: bool) -> None:
    a, b = normal(0, 130, 160, dtype=dtype), normal(1, *((96, 160) if transpose else (160, 96)), dtype=dtype)
    a64, b64 = doubles(a, b.T if transpose else b)
    call = functools.partial(matmul, out_dtype="bfloat16", transpose_b=transpose, block=(128, 64, 128))
    close(run_compiled(call, a, b), a64 @ b64, TOLERANCE[dtype])


@pytest.mark.parametrize("transpose", [False, True])
def test_matmul_of_bytes_is_exact(transpose: bool) -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(-128, 128, (100, 144), np.int8)
    b = rng.integers(-128, 128, (80, 144) if transpose else (144, 80), np.int8)
    found = run_compiled(functools.partial(matmul, transpose_b=transpose, block=(64, 64, 64)), a, b)
    np.testing.assert_array_equal(found, a.astype(np.int32) @ (b.T if transpose else b).astype(np.int32))


def test_bias_activation_and_residual_are_part_of_the_kernel() -> None:
    a, b = normal(0, 130, 200, dtype="bfloat16"), normal(1, 200, 136, dtype="bfloat16")
    bias, residual = normal(2, 136), normal(3, 130, 136, dtype="bfloat16")
    layer = functools.partial(matmul, activation=jax.nn.silu, out_dtype="float32")
    a64, b64, bias64, residual64 = doubles(a, b, bias, residual)
    sums = a64 @ b64 + bias64
    close(run_compiled(layer, a, b, bias, residual), sums / (1 + np.exp(-sums)) + residual64, 1e-4)
    close(run_compiled(layer, a, b, bias), sums / (1 + np.exp(-sums)), 1e-4)


@pytest.mark.parametrize(
    ("dtype", "out_dtype"), [("bfloat16", "bfloat16"), ("float8_e4m3fn", "bfloat16"), ("int8", "int32")]
)
def test_matmul_is_copies_by_tma_and_warpgroup_instructions_alone(dtype: str, out_dtype: str) -> None:
    size = jax.ShapeDtypeStruct((1024, 1024), jnp.dtype(dtype))
    ptx = mosaic_gpu.compile(functools.partial(matmul, transpose_b=True, out_dtype=out_dtype), size, size).ptx
    assert "wgmma.mma_async" in ptx
    assert "cp.async.bulk.tensor.2d.shared" in ptx
    assert "cp.async.bulk.tensor.2d.global" in ptx
    assert not any(f"\t{memory}." in ptx for memory in ("ld.shared", "ld.global", "st.global"))


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("shape", [(3, 70, 96, 64), (2, 33, 35, 37)])
def test_batched_matmul(shape: tuple[int, int, int, int], transpose: bool) -> None:
    batch, m, k, n = shape
    a = normal(0, batch, m, k, dtype="float16")
    b = normal(1, batch, *((n, k) if transpose else (k, n)), dtype="float16")
    a64, b64 = doubles(a, b.swapaxes(1, 2) if transpose else b)
    call = functools.partial(batched_matmul, transpose_b=transpose, block=(64, 64, 32))
    close(run_compiled(call, a, b), a64 @ b64, TOLERANCE["float16"])
