"""The kernels that the benchmarks compile.

Softmax, layer norm, a chain of elementwise operations, and the examples' matmul and attention.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

import mosaic_gpu

MATMUL_BLOCK = (128, 256, 64)
"""Rows, columns and depth of a step."""
ATTENTION_BLOCK = (128, 128, 128)
"""Queries, keys and the head dimension."""


def softmax_kernel(x_ref: Any, o_ref: Any) -> None:
    """Each row of a block (4, 1000) becomes its softmax."""
    x = x_ref[...]
    e = jnp.exp(x - x.max(axis=-1, keepdims=True))
    o_ref[...] = e / e.sum(axis=-1, keepdims=True)


def layer_norm_kernel(x_ref: Any, scale_ref: Any, bias_ref: Any, o_ref: Any) -> None:
    """Each row of a block (4, 1024) is normalised, scaled and shifted."""
    x = x_ref[...]
    mean = x.mean(axis=-1, keepdims=True)
    centred = x - mean
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    o_ref[...] = centred * jax.lax.rsqrt(variance + 1e-5) * scale_ref[...] + bias_ref[...]


def chain_kernel(x_ref: Any, y_ref: Any, o_ref: Any) -> None:
    """Eight operations on each element of a block of 2048."""
    x, y = x_ref[...], y_ref[...]
    z = x * y + x
    z = jnp.maximum(z, 0.0) - y * 0.5
    z = jnp.minimum(z, 6.0) * x
    o_ref[...] = z + 1.0


@dataclass(frozen=True)
class Benchmark:
    """A kernel with its name and the function and arguments that call it.

    `in_flight_bytes`: in shared memory, of the operands of one step of its loop, and of what is kept beside them.
    """

    name: str
    call: Callable[..., Any]
    arguments: tuple[jax.ShapeDtypeStruct, ...]
    in_flight_bytes: tuple[int, int] = (0, 0)


def _f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def _rows(kernel: Callable[..., None], name: str, columns: int, vectors: int = 0) -> Benchmark:
    """A kernel over blocks of 4 rows of 2048, with `vectors` more operands of one row."""
    block = pl.BlockSpec((4, columns), lambda i: (i, 0))
    row = pl.BlockSpec((1, columns), lambda i: (0, 0))
    call = pl.pallas_call(
        kernel,
        out_shape=_f32(2048, columns),
        grid=(512,),
        in_specs=[block, *[row] * vectors],
        out_specs=block,
        compiler_params=mosaic_gpu.CompilerParams(),
        name=name,
    )
    return Benchmark(name, call, (_f32(2048, columns), *[_f32(1, columns)] * vectors))


def _chain() -> Benchmark:
    block = pl.BlockSpec((2048,), lambda i: (i,))
    call = pl.pallas_call(
        chain_kernel,
        out_shape=_f32(1 << 20),
        grid=(512,),
        in_specs=[block, block],
        out_specs=block,
        compiler_params=mosaic_gpu.CompilerParams(),
        name="chain",
    )
    return Benchmark("chain", call, (_f32(1 << 20), _f32(1 << 20)))


def _bf16(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16)


def _example(name: str) -> Callable[..., Any]:
    """The function of an example that is called like its file."""
    sys.path.append(str(Path(__file__).parents[1] / "examples"))
    try:
        return getattr(__import__(name), name)  # type: ignore[no-any-return]
    finally:
        sys.path.pop()


def matmul() -> Benchmark:
    """A bf16 matmul of 4096 cubed, written as one would for any GPU."""
    m, n, step = MATMUL_BLOCK
    call = functools.partial(_example("matmul"), block=MATMUL_BLOCK)
    return Benchmark("matmul", call, (_bf16(4096, 4096), _bf16(4096, 4096)), (2 * step * (m + n), 0))


def attention() -> Benchmark:
    """Full attention of 16 heads over 4096 tokens in bf16."""
    queries, keys, d = ATTENTION_BLOCK
    call = functools.partial(_example("flash_attention"), block=(queries, keys))
    return Benchmark("attention", call, (_bf16(1, 16, 4096, d),) * 3, (2 * 2 * keys * d, 2 * queries * d))


def benchmarks() -> list[Benchmark]:
    """All of them."""
    rows = [_rows(softmax_kernel, "softmax", 1000), _rows(layer_norm_kernel, "layer_norm", 1024, vectors=2)]
    return [*rows, _chain(), matmul(), attention()]
