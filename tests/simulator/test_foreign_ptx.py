"""Kernels that nvcc and Triton compiled, against NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.simulator import Module, load

Array = np.ndarray[Any, np.dtype[Any]]
DATA = Path(__file__).parent / "data"


@pytest.fixture
def nvcc() -> Module:
    return load((DATA / "nvcc_kernels.ptx").read_text())


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def softmax(x: Array) -> Array:
    wide = x.astype(np.float64)
    e = np.exp(wide - wide.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


@pytest.mark.parametrize("n", [1, 31, 1000, 4097])
@pytest.mark.parametrize(("grid", "block"), [(1, 32), (4, 100), (40, 128)])
def test_saxpy(nvcc: Module, rng: np.random.Generator, n: int, grid: int, block: int) -> None:
    x, y = rng.standard_normal((2, n)).astype(np.float32)
    want = (np.float64(2.5) * x + y).astype(np.float32)
    nvcc.launch("saxpy", grid, block, [n, 2.5, x, y])
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("n", [1, 33, 5000])
@pytest.mark.parametrize("block", [32, 96, 1024])
def test_block_sum(nvcc: Module, rng: np.random.Generator, n: int, block: int) -> None:
    x, out = rng.integers(-9, 9, n).astype(np.float32), np.full(3, np.nan, np.float32)
    nvcc.launch("block_sum", 3, block, [n, x, out])
    want = np.bincount(np.arange(n) // block % 3, weights=x, minlength=3)
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize(("rows", "cols"), [(1, 1), (32, 32), (33, 65), (100, 7)])
def test_transpose(nvcc: Module, rng: np.random.Generator, rows: int, cols: int) -> None:
    x, y = rng.standard_normal((rows, cols)).astype(np.float32), np.full((cols, rows), np.nan, np.float32)
    nvcc.launch("transpose", (-(-cols // 32), -(-rows // 32)), (32, 8), [rows, cols, x, y])
    np.testing.assert_array_equal(y, x.T)


@pytest.mark.parametrize(("n", "block"), [(1, 32), (1000, 96), (20000, 256)])
def test_histogram(nvcc: Module, rng: np.random.Generator, n: int, block: int) -> None:
    x, bins = rng.integers(0, 256, n).astype(np.uint8), np.zeros(256, np.uint32)
    nvcc.launch("histogram", 5, block, [n, x, bins])
    np.testing.assert_array_equal(bins, np.bincount(x, minlength=256))


@pytest.mark.parametrize("cols", [1, 31, 1000])
@pytest.mark.parametrize("block", [32, 128])
def test_softmax_bf16(nvcc: Module, rng: np.random.Generator, cols: int, block: int) -> None:
    x = rng.standard_normal((5, cols)).astype(ml_dtypes.bfloat16)
    y = np.zeros_like(x)
    nvcc.launch("softmax_bf16", 5, block, [cols, x, y], shared_bytes=4 * cols)
    np.testing.assert_allclose(y.astype(np.float64), softmax(x), rtol=2.0**-8)


@pytest.mark.parametrize("n", [1, 100, 3000])
def test_divergent(nvcc: Module, rng: np.random.Generator, n: int) -> None:
    x, y = rng.integers(1, 3000, n).astype(np.int32), np.zeros(n, np.int32)
    nvcc.launch("divergent", -(-n // 128), 128, [n, x, y])
    v, steps = x.astype(np.int64), np.zeros(n, np.int64)
    while (running := (v != 1) & (steps < 200)).any():
        v, steps = np.where(running, np.where(v & 1, 3 * v + 1, v >> 1), v), steps + running
    zeros = np.array([32 - int(u + 1).bit_length() for u in v])
    want = np.where(np.arange(n) % 128 % 3 == 0, steps, np.bitwise_count(v) + 2 * steps - zeros)
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("block", [32, 128])
def test_ballot_scan(nvcc: Module, rng: np.random.Generator, block: int) -> None:
    x, y = rng.integers(-20, 110, 4 * block).astype(np.int32), np.zeros(4 * block, np.int32)
    nvcc.launch("ballot_scan", 4, block, [x, y])
    warps = x.reshape(-1, 32)
    rank = np.cumsum(warps > 0, axis=1) - (warps > 0)
    seven, small = (warps == 7).any(axis=1, keepdims=True), (warps < 100).all(axis=1, keepdims=True)
    np.testing.assert_array_equal(y, (np.cumsum(warps, axis=1) * 64 + rank + seven + 2 * small).reshape(-1))


@pytest.mark.parametrize("cols", [8, 1000, 1024])
def test_softmax_of_triton(rng: np.random.Generator, cols: int) -> None:
    module = load((DATA / "triton_softmax.ptx").read_text())
    x, y = rng.standard_normal((3, cols)).astype(np.float16), np.zeros((3, cols), np.float32)
    module.launch("softmax", 3, 128, [x, y, cols, 0, 0], shared_bytes=2048)
    np.testing.assert_allclose(y, softmax(x), rtol=1e-5)


@pytest.mark.parametrize(("m", "n", "k", "warps"), [(16, 16, 16, 1), (32, 64, 48, 2), (64, 128, 112, 4)])
def test_wmma_gemm(nvcc: Module, rng: np.random.Generator, m: int, n: int, k: int, warps: int) -> None:
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    c = np.full((m, n), np.nan, np.float32)
    nvcc.launch("wmma_gemm", (n // 16 // warps, m // 16), 32 * warps, [m, n, k, a, b, c])
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64), atol=1e-4)


@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 64), (128, 64, 192), (192, 256, 320)])
@pytest.mark.parametrize("seed", [0, 1])
def test_matmul_of_triton(rng: np.random.Generator, m: int, n: int, k: int, seed: int) -> None:
    module = load((DATA / "triton_matmul.ptx").read_text())
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    c = np.full((m, n), np.nan, np.float16)
    args = [a, b, c, m, n, k, 0, 0]
    module.launch("matmul", (m // 64, n // 64), 128, args, shared_bytes=49152, seed=seed)
    np.testing.assert_allclose(c.astype(np.float64), a.astype(np.float64) @ b.astype(np.float64), rtol=2e-3, atol=1e-3)


def test_a_module_whose_only_entry_is_unknown_is_refused_when_it_is_loaded() -> None:
    text = (DATA / "triton_softmax.ptx").read_text().replace("ex2.approx.f32", "tcgen05.ld.f32")
    with pytest.raises(UnsupportedError, match=r"PTX line \d+: the simulator does not support `tcgen05"):
        load(text)
