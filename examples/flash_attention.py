"""Attention without the matrix of all scores: softmax(q k^T) v, a block of keys at a time.

Each block of queries keeps the largest score of each row so far, the sum of the exponentials, and the weighted sum of
the values, and rescales them as larger scores come.

python examples/flash_attention.py
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

import mosaic_gpu


def flash_attention_kernel(q_ref, k_ref, v_ref, o_ref, *, block_k: int, keys: int, first_row: int, causal: bool):
    """q_ref, o_ref: (block_q, d); k_ref, v_ref: all keys (at least `keys`, a multiple of block_k; d).

    first_row: of the keys, the one that query 0 stands at.
    """
    block_q, d = q_ref.shape
    scale = math.log2(math.e) / math.sqrt(d)
    row = first_row + pl.program_id(2) * block_q
    q = q_ref[...]

    def masked(j, scores):
        column = j * block_k + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1)
        end = row + 1 + jax.lax.broadcasted_iota(jnp.int32, scores.shape, 0) if causal else keys
        return jnp.where(column < jnp.minimum(end, keys), scores, -jnp.inf)

    def step(j, carry):
        top, total, acc = carry
        here = pl.ds(j * block_k, block_k)
        scores = jnp.dot(q, k_ref[here, :].T, preferred_element_type=jnp.float32)
        scores = jax.lax.cond(j < whole, lambda: scores, lambda: masked(j, scores))
        new_top = jnp.maximum(top, scale * scores.max(axis=1))
        weights = jnp.exp2(scale * scores - new_top[:, None])
        old = jnp.exp2(top - new_top)
        total = old * total + weights.sum(axis=1)
        values = jnp.dot(weights.astype(v_ref.dtype), v_ref[here, :], preferred_element_type=jnp.float32)
        return new_top, total, old[:, None] * acc + values

    whole, steps = keys // block_k, pl.cdiv(keys, block_k)
    if causal:
        whole = jnp.minimum((row + 1) // block_k, whole)
        steps = jnp.minimum(pl.cdiv(row + block_q, block_k), steps)
    carry = (jnp.full((block_q,), -jnp.inf), jnp.zeros((block_q,)), jnp.zeros((block_q, d)))
    _, total, acc = jax.lax.fori_loop(0, steps, step, carry)
    o_ref[...] = (acc / total[:, None]).astype(o_ref.dtype)


def flash_attention(
    q: jax.Array, k: jax.Array, v: jax.Array, *, causal: bool = False, block: tuple[int, int] = (128, 128)
) -> jax.Array:
    """softmax(q k^T / sqrt(d)) v: (batch, heads, queries, d), in the dtype of q.

    Arguments:
      q: (batch, heads, queries, d), float16 or bfloat16.
      k, v: (batch, kv_heads, keys, d); each head of them serves heads / kv_heads heads of q.
      causal: a query does not see the keys after it; the last query stands at the last key.
      block: queries and keys of a step.

    Raises ValueError where the heads are no multiple, or causal queries outnumber the keys.
    """
    batch, heads, queries, d = q.shape
    kv_heads, keys = k.shape[1:3]
    block_q, block_k = block
    if heads % kv_heads:
        raise ValueError(f"{heads} heads are no multiple of the {kv_heads} heads of keys")
    if causal and queries > keys:
        raise ValueError(f"{queries} causal queries, but {keys} keys: the first would see none")
    rows = pl.BlockSpec((None, None, block_q, d), lambda b, h, i: (b, h, i, 0))
    all_keys = (None, None, pl.cdiv(keys, block_k) * block_k, d)  # what is beyond the last key reads as zero
    shared = pl.BlockSpec(all_keys, lambda b, h, i: (b, h * kv_heads // heads, 0, 0))
    return pl.pallas_call(
        functools.partial(flash_attention_kernel, block_k=block_k, keys=keys, first_row=keys - queries, causal=causal),
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(batch, heads, pl.cdiv(queries, block_q)),
        in_specs=[rows, shared, shared],
        out_specs=rows,
        # The hardware's exp2 is good to 2 units in the last place of a float32, and its argument is one multiply-add.
        compiler_params=mosaic_gpu.CompilerParams(approx_math=True),
        name="flash_attention",
    )(q, k, v)


def flash_attention_reference(q: jax.Array, k: jax.Array, v: jax.Array, *, causal: bool = False) -> jax.Array:
    """The same in plain JAX, in float32."""
    group = q.shape[1] // k.shape[1]
    q, k, v = (a.astype(jnp.float32) for a in (q, jnp.repeat(k, group, axis=1), jnp.repeat(v, group, axis=1)))
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1])
    if causal:
        scores = jnp.where(jnp.tri(*scores.shape[-2:], k.shape[2] - q.shape[2], dtype=bool), scores, -jnp.inf)
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(scores, axis=-1), v)


def main() -> None:
    """Compiles the kernel for Hopper, runs it and compares it with plain JAX."""
    rng = np.random.default_rng(0)
    shapes = ((1, 4, 200, 64), (1, 2, 200, 64), (1, 2, 200, 64))
    q, k, v = (jnp.asarray(rng.normal(size=shape), jnp.bfloat16) for shape in shapes)
    attend = functools.partial(flash_attention, causal=True)
    print(mosaic_gpu.compile(attend, q, k, v, target="sm_90a").resources)
    difference = jax.jit(attend)(q, k, v).astype(jnp.float32) - flash_attention_reference(q, k, v, causal=True)
    print(f"largest difference from plain JAX: {jnp.abs(difference).max():.1e}")


if __name__ == "__main__":
    main()
