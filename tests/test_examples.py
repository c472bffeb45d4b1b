"""The examples of grids with computed bounds, at real sizes on the simulator, beside plain JAX."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mosaic_gpu
from mosaic_gpu.kernel import compilation_of
from mosaic_gpu.runtime.run import run
from mosaic_gpu.runtime.simulated import SimulatedRuntime

FOLDER = Path(__file__).parents[1] / "examples"


def example(monkeypatch: pytest.MonkeyPatch, name: str) -> ModuleType:
    """The module of an example."""
    monkeypatch.syspath_prepend(str(FOLDER))
    return sys.modules.get(name) or importlib.import_module(name)


def relative(found: Any, expected: Any) -> float:
    """The largest difference, in terms of 1 + the size of what is expected."""
    return float((jnp.abs(jnp.asarray(found, jnp.float32) - expected) / (1 + jnp.abs(expected))).max())


def matrices(m: int, k: int, n: int, groups: int) -> tuple[jax.Array, jax.Array]:
    rng = np.random.default_rng(m + n)
    return tuple(jnp.asarray(rng.normal(size=shape), jnp.bfloat16) for shape in ((m, k), (groups, k, n)))  # type: ignore[return-value]


def test_one_compiled_grouped_matmul_takes_all_group_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    module = example(monkeypatch, "grouped_matmul")
    x, w = matrices(1024, 512, 512, 8)
    grouped = jax.jit(lambda x, w, sizes: module.grouped_matmul(x, w, sizes, block=(128, 128, 64)))
    for sizes in ([100, 0, 300, 64, 1, 200, 59, 250], [128] * 8, [0] * 8, [0, 0, 1024, 0, 0, 0, 0, 0], [7] * 8):
        group_sizes = jnp.asarray(sizes, jnp.int32)
        expected = module.grouped_matmul_reference(x, w, group_sizes)
        assert relative(grouped(x, w, group_sizes), expected) < 1e-2
    assert grouped._cache_size() == 1


@pytest.mark.parametrize("blocks", [1, 3])
def test_the_barriers_of_a_pipelined_kernel_stay_right_from_tile_to_tile(
    monkeypatch: pytest.MonkeyPatch, blocks: int
) -> None:
    module = example(monkeypatch, "grouped_matmul")
    x, w = matrices(256, 192, 128, 3)
    sizes = jnp.asarray([70, 0, 150], jnp.int32)

    def grouped(x: Any, w: Any, sizes: Any) -> Any:
        return module.grouped_matmul(x, w, sizes, block=(64, 64, 32))

    (call,) = mosaic_gpu.trace_calls(grouped, x, w, sizes)
    program = dataclasses.replace(compilation_of(call).program, grid=(blocks, 1, 1))
    count, *table = module.tile_table(sizes, 256, 64)
    operands = [np.asarray(a) for a in (count, *table, x, w, jnp.zeros((256, 128), x.dtype))]
    (result,), _ = run(program, SimulatedRuntime().load(program), operands)
    assert relative(result, module.grouped_matmul_reference(x, w, sizes)) < 1e-2


def test_paged_attention_at_the_sizes_of_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    module = example(monkeypatch, "paged_attention")
    attend = jax.jit(module.paged_attention)
    for seed in range(2):
        cache = module.random_cache(seed, batch=8, heads=32, kv_heads=8, d=128, page_size=64, pages=8)
        assert relative(attend(*cache), module.paged_attention_reference(*cache)) < 1e-2
    assert attend._cache_size() == 1


def test_pages_of_other_sequences_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    module = example(monkeypatch, "paged_attention")
    q, k, v, table, lengths = module.random_cache(5, batch=3, heads=4, kv_heads=2, d=32, page_size=16, pages=4)
    needed = {int(p) for row, n in zip(table, lengths, strict=True) for p in row[: -(-int(n) // 16)]}
    others = jnp.asarray([page not in needed for page in range(k.shape[1])])[:, None, None]
    found = module.paged_attention(q, jnp.where(others, jnp.nan, k), jnp.where(others, jnp.nan, v), table, lengths)
    assert relative(found, module.paged_attention_reference(q, k, v, table, lengths)) < 1e-2


def test_a_batch_of_long_sequences_of_all_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    module = example(monkeypatch, "mean_pool")
    pool = jax.jit(module.mean_pool)
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(16, 1024, 512)), jnp.float32)
    for most in (1024, 40, 1):
        lengths = jnp.asarray(rng.integers(1, most, size=16, endpoint=True), jnp.int32)
        assert relative(pool(x, lengths), module.mean_pool_reference(x, lengths)) < 1e-5
    assert pool._cache_size() == 1
