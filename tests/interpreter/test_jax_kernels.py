"""JAX's own Hopper kernels (jax.experimental.pallas.ops.gpu) run clean, with the right results, in any order."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mosaic_gpu
from mosaic_gpu import InterpretParams

pytest.importorskip("absl", reason="JAX's kernels import its test utilities, which need absl")

from jax.experimental.pallas.ops.gpu import attention_mgpu as attention
from jax.experimental.pallas.ops.gpu import hopper_matmul_mgpu as matmul
from jax.experimental.pallas.ops.gpu import hopper_mixed_type_matmul_mgpu as mixed
from jax.experimental.pallas.ops.gpu import ragged_dot_mgpu as ragged
from jax.extend import backend

SEEDS = [None, 0, 7]


@pytest.fixture(autouse=True)
def _four_multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernels ask of a GPU."""
    device = types.SimpleNamespace(core_count=4)
    monkeypatch.setattr(backend, "get_default_device", lambda: device)
    monkeypatch.setattr(matmul, "get_num_sms", lambda: 4)
    monkeypatch.setattr(attention, "cuda_versions", types.SimpleNamespace(cuda_runtime_get_version=lambda: 13000))


def half(*shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=shape), jnp.float16)


def check(kernel: Callable[..., Any], reference: Callable[..., Any], *arrays: Any, seed: int | None = None) -> None:
    found = jax.tree.leaves(mosaic_gpu.interpret(kernel, *arrays, params=InterpretParams(seed=seed)))
    for result, expected in zip(found, jax.tree.leaves(reference(*arrays)), strict=True):
        np.testing.assert_allclose(
            np.asarray(result, np.float32), np.asarray(expected, np.float32), rtol=2e-2, atol=0.05
        )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("split", list(matmul.MatmulDimension))
@pytest.mark.parametrize("cluster", [None, *matmul.MatmulDimension])
def test_matmul(cluster: Any, split: Any, seed: int | None) -> None:
    config = matmul.TuningConfig(
        tile_m=64, tile_n=64, tile_k=64, max_concurrent_steps=3, cluster_dimension=cluster, wg_dimension=split
    )
    a, b, c = half(256, 128), half(128, 256), half(256, 256)
    check(lambda a, b: matmul.matmul(a, b, None, config), lambda a, b: a @ b, a, b, seed=seed)
    check(lambda a, b, c: matmul.matmul(a, b, c, config), lambda a, b, c: a @ b + c, a, b, c, seed=seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("barrier", [False, True])
def test_attention(causal: bool, barrier: bool, seed: int | None) -> None:
    config = attention.TuningConfig(
        block_q=64, block_kv=64, max_concurrent_steps=2, causal=causal, use_schedule_barrier=barrier
    )
    q, k, v = half(1, 128, 2, 64), half(1, 256, 2, 64), half(1, 256, 2, 64) / 2
    if causal:
        q = half(1, 256, 2, 64)
    check(
        lambda *x: attention.attention(*x, config),
        lambda *x: attention.attention_reference(*x, causal),
        q,
        k,
        v,
        seed=seed,
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_attention_with_the_pipeline_emitter(seed: int | None) -> None:
    config = attention.TuningConfig(block_q=64, block_kv=64, max_concurrent_steps=2)
    q, k, v = half(1, 128, 2, 64), half(1, 256, 2, 64), half(1, 256, 2, 64) / 2
    check(
        lambda *x: attention.attention_with_pipeline_emitter(*x, config),
        attention.attention_reference,
        q,
        k,
        v,
        seed=seed,
    )


def test_the_gradient_of_attention() -> None:
    blocks = dict.fromkeys(("block_q_dkv", "block_kv_dkv", "block_q_dq", "block_kv_dq"), 64)
    config = attention.TuningConfig(block_q=64, block_kv=64, max_concurrent_steps=2, **blocks)
    q = half(1, 128, 1, 64)

    def gradient(function: Callable[..., Any]) -> Callable[..., Any]:
        return jax.grad(lambda *x: function(*x).astype(jnp.float32).sum(), argnums=(0, 1, 2))

    check(
        gradient(lambda *x: attention.attention(*x, config)), gradient(attention.attention_reference), q, q + 1, q - 1
    )


@pytest.mark.parametrize("sizes", [[100, 56, 100], [0, 256, 0], [64, 64, 128]])
def test_ragged_dot(sizes: list[int]) -> None:
    lhs, rhs, groups = half(256, 128), half(3, 128, 128), jnp.asarray(sizes, jnp.int32)
    options = {"block_m": 64, "block_n": 64, "block_k": 64, "max_concurrent_steps": 2, "grid_block_n": 1}
    check(lambda a, b, g: ragged.ragged_dot(a, b, group_sizes=g, **options), jax.lax.ragged_dot, lhs, rhs, groups)


def test_matmul_of_int8_and_bfloat16() -> None:
    config = mixed.TuningConfig(tile_m=64, tile_n=64, tile_k=64, max_concurrent_steps=2)
    a = jnp.asarray(np.random.default_rng(1).integers(-10, 10, (256, 128)), jnp.int8)
    b = half(128, 256).astype(jnp.bfloat16)
    options = {"out_dtype": jnp.bfloat16}
    check(
        lambda a, b: mixed.mixed_matmul_kernel(a, b, config=config, **options),
        lambda a, b: mixed.reference(a, b, **options),
        a,
        b,
    )
