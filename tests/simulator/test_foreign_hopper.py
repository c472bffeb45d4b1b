"""Kernels of Hopper's own instructions that nvcc and Triton compiled, against NumPy, at several times of events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mosaic_gpu.simulator import Module, load
from mosaic_gpu.simulator.tensor_map import TensorMap

Array = np.ndarray[Any, np.dtype[Any]]
DATA = Path(__file__).parent / "data"
seeds = pytest.mark.parametrize("seed", [0, 1, 2])


@pytest.fixture(scope="module")
def hopper() -> Module:
    return load((DATA / "nvcc_hopper.ptx").read_text())


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


@seeds
@pytest.mark.parametrize(("grid", "cluster", "n"), [(8, 4, 5000), (6, 2, 77), (3, 1, 1000)])
def test_histogram_over_the_memory_of_a_cluster(
    hopper: Module, rng: np.random.Generator, grid: int, cluster: int, n: int, seed: int
) -> None:
    each = 25
    x, bins = rng.integers(0, each * cluster, n).astype(np.int32), np.zeros(each * cluster, np.int32)
    hopper.launch("cluster_histogram", grid, 96, [n, x, bins, each], cluster=cluster, shared_bytes=4 * each, seed=seed)
    np.testing.assert_array_equal(bins, np.bincount(x, minlength=each * cluster))


@seeds
@pytest.mark.parametrize("block", [32, 100, 256])
def test_bulk_copies_in_and_out(hopper: Module, rng: np.random.Generator, block: int, seed: int) -> None:
    x = rng.integers(0, 1 << 30, (7, block)).astype(np.int32)
    y = np.zeros_like(x)
    hopper.launch("bulk_reverse", 7, block, [x, y], shared_bytes=4 * block, seed=seed)
    np.testing.assert_array_equal(y, x[:, ::-1])


@seeds
@pytest.mark.parametrize(("rows", "columns"), [(32, 64), (70, 200), (1, 4)])
def test_tensor_copies_in_and_out(hopper: Module, rng: np.random.Generator, rows: int, columns: int, seed: int) -> None:
    x = rng.standard_normal((rows, columns)).astype(np.float32)
    y = np.zeros_like(x)
    maps = [TensorMap(array, 4, (columns, rows), (4 * columns,), (64, 32), 0) for array in (x, y)]
    hopper.launch("tma_add_one", (-(-columns // 64), -(-rows // 32)), 96, maps, seed=seed)
    np.testing.assert_array_equal(y, x + 1)


@seeds
@pytest.mark.parametrize("tiles", [1, 2, 7])
def test_a_pipeline_of_copies(hopper: Module, rng: np.random.Generator, tiles: int, seed: int) -> None:
    x, y = rng.integers(-99, 99, (5, tiles, 64)).astype(np.float32), np.zeros((5, 64), np.float32)
    hopper.launch("pipelined_sum", 5, 64, [tiles, x, y], shared_bytes=512, seed=seed)
    np.testing.assert_array_equal(y, np.roll(x, -1, axis=2).sum(1))


@seeds
@pytest.mark.parametrize("steps", [1, 2, 9])
def test_a_producer_and_consumers(hopper: Module, rng: np.random.Generator, steps: int, seed: int) -> None:
    x, y = rng.integers(-99, 99, (4, steps, 32)).astype(np.int32), np.zeros((4, 96), np.int32)
    hopper.launch("producer_consumer", 4, 128, [steps, x, y], seed=seed)
    total = np.zeros((4, 32), np.int32)
    for step in range(steps):
        total = total * np.int32(3) + x[:, step]
    np.testing.assert_array_equal(y, np.tile(total, (1, 3)))


@seeds
def test_a_ring_of_asynchronous_stores(hopper: Module, seed: int) -> None:
    y = np.zeros((8, 4), np.int32)
    hopper.launch("ring", 8, 64, [y], cluster=4, seed=seed)
    block = np.arange(8)
    left = block // 4 * 4 + (block - 1) % 4
    np.testing.assert_array_equal(y, left[:, None] * 10 + np.arange(4))


#: name -> (type of A and B, of C, M N K of a block, B transposed, warps, shared bytes, relative error)
PRODUCTS: dict[str, tuple[Any, Any, tuple[int, int, int], bool, int, int, float]] = {
    "tma_f16": (np.float16, np.float16, (128, 128, 64), False, 4, 98328, 1e-3),
    "tma_bf16_8w": (ml_dtypes.bfloat16, np.float32, (128, 128, 64), False, 8, 163864, 1e-6),
    "ptr_fp8": (ml_dtypes.float8_e4m3fn, np.float32, (64, 64, 64), True, 4, 16384, 1e-6),
    "ptr_i8": (np.int8, np.int32, (64, 64, 64), True, 4, 16384, 0),
    "ptr_f64": (np.float64, np.float64, (32, 32, 32), False, 4, 16384, 1e-14),
    "ptr_tf32_2w": (np.float32, np.float32, (32, 32, 32), True, 2, 8192, 2e-3),
    "ptr_f16_2w": (np.float16, np.float32, (32, 32, 32), False, 2, 4096, 1e-6),
    "ptr_i8_2w": (np.int8, np.int32, (32, 32, 32), False, 2, 2048, 0),
}


@seeds
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("multiple", [(1, 1, 1), (2, 1, 5)])
def test_products_of_triton(rng: np.random.Generator, name: str, multiple: tuple[int, int, int], seed: int) -> None:
    dtype, result, block, transposed, warps, shared, error = PRODUCTS[name]
    m, n, k = (b * s for b, s in zip(block, multiple, strict=True))
    if dtype is np.int8:
        a, b = rng.integers(-128, 128, (m, k)).astype(dtype), rng.integers(-128, 128, (k, n)).astype(dtype)
    else:
        a, b = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
    c = np.full((m, n), 77, result)
    scratch = np.zeros(384 * multiple[0] * multiple[1], np.uint8)
    args = [a, np.ascontiguousarray(b.T) if transposed else b, c, m, n, k, scratch, scratch]
    module = load((DATA / "triton" / f"{name}.ptx").read_text())
    module.launch(module.entries[0], multiple[:2], 32 * warps, args, shared_bytes=shared, seed=seed)
    want = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(c.astype(np.float64), want, atol=error * np.abs(want).max())


def described(array: Array, box: tuple[int, int]) -> list[Any]:
    """A tensor descriptor as Triton passes it: the map, the shape, the strides in elements."""
    tensor = TensorMap(array, 2, array.shape[::-1], (array.strides[0],), box[::-1], 128, element_type="f16")
    return [tensor, *array.shape, array.strides[0] // 2, 1]


@seeds
@pytest.mark.parametrize(
    ("name", "blocks", "rows", "transposed", "warps", "shared"),
    [("host_1cta", 1, 128, True, 4, 98328), ("host_2cta", 2, 64, True, 4, 73752), ("gluon_ws", 1, 64, False, 8, 90268)],
)
def test_products_through_tensor_maps_of_the_host(
    rng: np.random.Generator, name: str, blocks: int, rows: int, transposed: bool, warps: int, shared: int, seed: int
) -> None:
    m, n, k = 256, 384, 320
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)
    c = np.full((m, n), 77, np.float16)
    bm = 64 if name == "gluon_ws" else 128
    given = np.ascontiguousarray(b.T) if transposed else b
    args = [*described(a, (bm, 64)), *described(given, (rows, 64)), *described(c, (bm, 64)), k, 0, 0]
    module = load((DATA / "triton" / f"{name}.ptx").read_text())
    module.launch(module.entries[0], (m // bm * blocks, n // 128), 32 * warps, args, shared_bytes=shared, seed=seed,
                  cluster=blocks)  # fmt: skip
    want = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(c.astype(np.float64), want, atol=1e-3 * np.abs(want).max())


@seeds
@pytest.mark.parametrize("length", [64, 192])
def test_attention_of_triton(rng: np.random.Generator, length: int, seed: int) -> None:
    q, k, v = rng.standard_normal((3, length, 64)).astype(np.float16)
    out = np.full((length, 64), 77, np.float32)
    module = load((DATA / "triton" / "attn_f16.ptx").read_text())
    module.launch("attn", length // 64, 128, [q, k, v, out, length, 0, 0], shared_bytes=40960, seed=seed)
    scores = q.astype(np.float64) @ k.astype(np.float64).T / 8
    weights = np.exp(scores - scores.max(1, keepdims=True))
    want = weights / weights.sum(1, keepdims=True) @ v.astype(np.float64)
    np.testing.assert_allclose(out, want, atol=1e-3)
