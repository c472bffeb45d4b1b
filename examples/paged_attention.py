"""Attention of one new token a sequence to keys and values that lie in pages (decoding with a paged cache).

The page table is an operand of the index maps: each step of the grid loads the page that the table names.  The
last dimension of the grid is as long as the longest sequence needs, which is known at run time only.

python examples/paged_attention.py
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import mosaic_gpu


def paged_attention_kernel(
    table_ref, length_ref, q_ref, k_ref, v_ref, o_ref, top_ref, total_ref, acc_ref, *, scale: float
):
    """table_ref: (batch, pages a sequence); length_ref: (batch,), tokens in each sequence.

    q_ref, o_ref: the (group, d) query heads that share one head of keys; k_ref, v_ref: one page (page, d) of it.
    top_ref, total_ref: scratch (group, 1), the largest score so far, and the sum of the exponentials; acc_ref: scratch
    (group, d), the sum of the values with these weights; all float32.
    """
    sequence, page, page_size = pl.program_id(0), pl.program_id(2), k_ref.shape[0]
    length = length_ref[sequence]

    @pl.when(page == 0)
    def _():
        top_ref[...] = jnp.full_like(top_ref, -jnp.inf)
        total_ref[...] = jnp.zeros_like(total_ref)
        acc_ref[...] = jnp.zeros_like(acc_ref)

    @pl.when(page * page_size < length)
    def _():
        scores = scale * jnp.dot(q_ref[...], k_ref[...].T, preferred_element_type=jnp.float32)
        token = page * page_size + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
        scores = jnp.where(token < length, scores, -jnp.inf)
        top = jnp.maximum(top_ref[...], scores.max(axis=1, keepdims=True))
        weights = jnp.exp(scores - top)
        old = jnp.exp(top_ref[...] - top)
        total_ref[...] = old * total_ref[...] + weights.sum(axis=1, keepdims=True)
        weighted = jnp.dot(weights.astype(v_ref.dtype), v_ref[...], preferred_element_type=jnp.float32)
        acc_ref[...] = old * acc_ref[...] + weighted
        top_ref[...] = top

    @pl.when(page == pl.num_programs(2) - 1)
    def _():
        o_ref[...] = (acc_ref[...] / total_ref[...]).astype(o_ref.dtype)


def paged_attention(
    q: jax.Array, k_pages: jax.Array, v_pages: jax.Array, table: jax.Array, lengths: jax.Array
) -> jax.Array:
    """softmax(q k^T / sqrt(d)) v for one query a sequence: (batch, heads, d), in the dtype of `q`.

    Arguments:
      q: (batch, heads, d).
      k_pages, v_pages: (kv_heads, pages, page_size, d); each head serves heads / kv_heads query heads.
      table: (batch, pages a sequence) int32, the numbers of a sequence's pages, in order.
      lengths: (batch,) int32, tokens in each sequence, at least 1.
    """
    batch, heads, d = q.shape
    kv_heads, _, page_size, _ = k_pages.shape
    group = heads // kv_heads
    queries = pl.BlockSpec((None, None, group, d), lambda b, h, p, table, lengths: (b, h, 0, 0))
    page = pl.BlockSpec((None, None, page_size, d), lambda b, h, p, table, lengths: (h, table[b, p], 0, 0))
    grid_spec = mosaic_gpu.PrefetchScalarGridSpec(
        num_scalar_prefetch=2,
        grid=(batch, kv_heads, pl.cdiv(lengths.max(), page_size)),
        in_specs=[queries, page, page],
        out_specs=queries,
        scratch_shapes=[plgpu.SMEM((group, n), jnp.float32) for n in (1, 1, d)],
    )
    grouped = q.reshape(batch, kv_heads, group, d)
    return pl.pallas_call(
        functools.partial(paged_attention_kernel, scale=1 / math.sqrt(d)),
        out_shape=jax.ShapeDtypeStruct(grouped.shape, q.dtype),
        grid_spec=grid_spec,
        compiler_params=mosaic_gpu.CompilerParams(dimension_semantics=("parallel", "parallel", "sequential")),
        name="paged_attention",
    )(table, lengths, grouped, k_pages, v_pages).reshape(q.shape)


def paged_attention_reference(
    q: jax.Array, k_pages: jax.Array, v_pages: jax.Array, table: jax.Array, lengths: jax.Array
) -> jax.Array:
    """The same in plain JAX, in float32."""
    batch, heads, d = q.shape
    kv_heads = k_pages.shape[0]
    k, v = (
        jnp.repeat(pages[:, table].reshape(kv_heads, batch, -1, d), heads // kv_heads, axis=0).astype(jnp.float32)
        for pages in (k_pages, v_pages)
    )
    scores = jnp.einsum("bhd,hbtd->bht", q.astype(jnp.float32), k) / math.sqrt(d)
    scores = jnp.where(jnp.arange(k.shape[2]) < lengths[:, None, None], scores, -jnp.inf)
    return jnp.einsum("bht,hbtd->bhd", jax.nn.softmax(scores, axis=-1), v)


def random_cache(
    seed: int, batch: int, heads: int, kv_heads: int, d: int, page_size: int, pages: int, dtype: str = "bfloat16"
) -> tuple[jax.Array, ...]:
    """Arguments of `paged_attention`: sequences of random lengths up to `pages` pages, scattered over the cache."""
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(batch, heads, d))
    k, v = rng.normal(size=(2, kv_heads, batch * pages, page_size, d))
    table = rng.permutation(batch * pages).reshape(batch, pages)
    lengths = rng.integers(1, pages * page_size, size=batch, endpoint=True)
    return (*(jnp.asarray(a, dtype) for a in (q, k, v)), *(jnp.asarray(a, jnp.int32) for a in (table, lengths)))


def main() -> None:
    """Compiles the kernel for Hopper, runs it on two caches and compares it with plain JAX."""
    run, error = jax.jit(paged_attention), 0.0
    for seed in range(2):
        cache = random_cache(seed, batch=3, heads=8, kv_heads=2, d=64, page_size=16, pages=5)
        difference = run(*cache).astype(jnp.float32) - paged_attention_reference(*cache)
        error = max(error, float(jnp.abs(difference).max()))
    print(f"largest difference from plain JAX: {error:.1e}")


if __name__ == "__main__":
    main()
