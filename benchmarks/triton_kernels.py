"""The kernels of `kernels.py` in Triton, with the same blocks; needs triton, but no GPU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl
from kernels import ATTENTION_BLOCK, MATMUL_BLOCK
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def softmax(x, o, N: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    rows = tl.program_id(0) * 4 + tl.arange(0, 4)[:, None]
    columns = tl.arange(0, 1024)[None, :]
    mask = columns < N
    value = tl.load(x + rows * N + columns, mask=mask, other=-float("inf"))
    e = tl.exp(value - tl.max(value, 1)[:, None])
    tl.store(o + rows * N + columns, e / tl.sum(e, 1)[:, None], mask=mask)


@triton.jit
def layer_norm(x, scale, bias, o, N: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    rows = tl.program_id(0) * 4 + tl.arange(0, 4)[:, None]
    columns = tl.arange(0, N)[None, :]
    value = tl.load(x + rows * N + columns)
    centred = value - tl.sum(value, 1)[:, None] / N
    variance = tl.sum(centred * centred, 1)[:, None] / N
    result = centred * tl.rsqrt(variance + 1e-5) * tl.load(scale + columns) + tl.load(bias + columns)
    tl.store(o + rows * N + columns, result)


@triton.jit
def chain(x, y, o, N: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    at = tl.program_id(0) * N + tl.arange(0, N)
    a, b = tl.load(x + at), tl.load(y + at)
    z = a * b + a
    z = tl.maximum(z, 0.0) - b * 0.5
    z = tl.minimum(z, 6.0) * a
    tl.store(o + at, z + 1.0)


@triton.jit
def matmul(a, b, o, K, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    total = tl.zeros((M, N), dtype=tl.float32)
    for k in tl.range(0, K, STEP):
        total = tl.dot(a.load([row, k]), b.load([k, column]), total)
    o.store([row, column], total.to(tl.bfloat16))


@triton.jit
def attention(q, k, v, o, keys, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, SCALE: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    head, row = tl.program_id(0) * keys, tl.program_id(1) * M
    top = tl.full((M,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((M,), dtype=tl.float32)
    acc = tl.zeros((M, D), dtype=tl.float32)
    query = q.load([head + row, 0])
    for j in tl.range(0, keys, N):
        scores = tl.dot(query, k.load([head + j, 0]).T) * SCALE
        new_top = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - new_top[:, None])
        old = tl.exp2(top - new_top)
        total = old * total + tl.sum(weights, 1)
        acc = tl.dot(weights.to(tl.bfloat16), v.load([head + j, 0]), acc * old[:, None])
        top = new_top
    o.store([head + row, 0], (acc / total[:, None]).to(tl.bfloat16))


_KERNELS = {
    "softmax": (softmax, ("x", "o"), 1000),
    "layer_norm": (layer_norm, ("x", "scale", "bias", "o"), 1024),
    "chain": (chain, ("x", "y", "o"), 2048),
}


def compiler(name: str) -> Callable[[], Any]:
    """A function that compiles kernel `name` to a cubin, each time from the start."""
    if name in ("matmul", "attention"):
        return _tile_compiler(name)
    kernel, pointers, size = _KERNELS[name]
    signature = {**dict.fromkeys(pointers, "*fp32"), "N": "constexpr"}
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(len(pointers))}

    def compile_once() -> Any:
        source = ASTSource(kernel, signature=signature, constexprs={"N": size}, attrs=aligned)
        return triton.compile(source, target=GPUTarget("cuda", 90, 32))

    return compile_once


def _tile_compiler(name: str) -> Callable[[], Any]:
    """For the kernels with tensor cores, whose operands are tensor maps."""
    kernel: Any
    if name == "matmul":
        m, n, step = MATMUL_BLOCK
        kernel, tiles = matmul, {"a": (m, step), "b": (step, n), "o": (m, n)}
        constants, sizes, stages = {"M": m, "N": n, "STEP": step}, {"K": "i32"}, 4
    else:
        m, n, d = ATTENTION_BLOCK
        kernel, tiles = attention, {"q": (m, d), "k": (n, d), "v": (n, d), "o": (m, d)}
        constants, sizes, stages = (
            {"M": m, "N": n, "D": d, "SCALE": math.log2(math.e) / math.sqrt(d)},
            {"keys": "i32"},
            2,
        )
    maps = {key: f"tensordesc<bf16[{rows}, {columns}]>" for key, (rows, columns) in tiles.items()}
    signature = {**maps, **sizes, **dict.fromkeys(constants, "constexpr")}

    def compile_once() -> Any:
        source = ASTSource(kernel, signature=signature, constexprs=constants)
        options = {"num_warps": 8, "num_stages": stages}
        return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)

    return compile_once
