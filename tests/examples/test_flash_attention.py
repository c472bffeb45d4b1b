"""examples/flash_attention.py beside float64."""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mosaic_gpu
from tests.support.examples import doubles, example, normal, run_compiled

flash_attention = example("flash_attention").flash_attention


def expected(q: Any, k: Any, v: Any, causal: bool) -> np.ndarray[Any, Any]:
    """Attention in float64."""
    q, k, v = doubles(q, k, v)
    group = q.shape[1] // k.shape[1]
    k, v = (np.repeat(a, group, axis=1) for a in (k, v))
    scores = q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1])
    if causal:
        queries, keys = scores.shape[2:]
        scores = np.where(np.arange(keys) <= np.arange(queries)[:, None] + keys - queries, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True) @ v)


def check(queries: int, keys: int, d: int, *, causal: bool, heads: tuple[int, int] = (1, 1), **choices: Any) -> None:
    """Runs a kernel for these sizes; `heads`: of the queries and of the keys."""
    dtype = choices.pop("dtype", "bfloat16")
    q = normal(0, 1, heads[0], queries, d, dtype=dtype)
    k, v = (normal(seed, 1, heads[1], keys, d, dtype=dtype) for seed in (1, 2))
    found = run_compiled(functools.partial(flash_attention, causal=causal, **choices), q, k, v)
    tolerance = 2e-2 if dtype == "bfloat16" else 4e-3
    np.testing.assert_allclose(found.astype(np.float64), expected(q, k, v, causal), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [64, 128, 256])
def test_head_dimensions(d: int, causal: bool) -> None:
    check(128, 256, d, causal=causal, block=(128, 64 if d == 256 else 128))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(100, 100), (1, 1), (1, 77), (65, 200), (130, 130)])
def test_lengths_that_fill_no_blocks(queries: int, keys: int, causal: bool) -> None:
    check(queries, keys, 64, causal=causal, block=(64, 64), dtype="float16")


@pytest.mark.parametrize("causal", [False, True])
def test_more_steps_than_shared_memory_has_stages(causal: bool) -> None:
    check(70, 600, 128, causal=causal, block=(64, 64))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [(4, 2), (3, 1), (2, 2)])
def test_heads_of_queries_share_heads_of_keys(heads: tuple[int, int], causal: bool) -> None:
    check(64, 96, 64, causal=causal, heads=heads, block=(64, 32))


def test_large_scores_do_not_overflow() -> None:
    q, k, v = (normal(seed, 1, 1, 64, 64, dtype="float16") for seed in range(3))
    q = q * np.float16(100)
    found = run_compiled(functools.partial(flash_attention, block=(64, 32)), q, k, v)
    np.testing.assert_allclose(found.astype(np.float64), expected(q, k, v, False), rtol=1e-2, atol=1e-2)


def test_a_batch_in_jit() -> None:
    q, k, v = (normal(seed, 2, 2, 40, 64, dtype="bfloat16") for seed in range(3))
    found = jax.jit(functools.partial(flash_attention, causal=True, block=(64, 64)))(q, k, v)
    np.testing.assert_allclose(np.asarray(found, np.float64), expected(q, k, v, True), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("d", [64, 128, 256])
def test_keys_and_values_come_by_tma_and_weights_stay_in_registers(d: int, causal: bool) -> None:
    q, k = (jax.ShapeDtypeStruct((2, heads, 1024, d), jnp.bfloat16) for heads in (8, 2))
    block = (128, 64 if d == 256 else 128)
    kernel = mosaic_gpu.compile(functools.partial(flash_attention, causal=causal, block=block), q, k, k)
    assert kernel.resources.spill_store_bytes == 0
    assert "ld.shared" not in kernel.ptx
    assert len(kernel.launch_facts.tensor_maps) == 3


@pytest.mark.parametrize(("heads", "queries", "complaint"), [(3, 8, "no multiple"), (2, 9, "would see none")])
def test_what_makes_no_sense_is_refused(heads: int, queries: int, complaint: str) -> None:
    q, k = jnp.ones((1, heads, queries, 64), jnp.bfloat16), jnp.ones((1, 2, 8, 64), jnp.bfloat16)
    with pytest.raises(ValueError, match=complaint):
        flash_attention(q, k, k, causal=True)
