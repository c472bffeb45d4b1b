"""The kernels of `kernels.py` in Triton, with the same blocks; needs triton, but no GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl
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


_KERNELS = {
    "softmax": (softmax, ("x", "o"), 1000),
    "layer_norm": (layer_norm, ("x", "scale", "bias", "o"), 1024),
    "chain": (chain, ("x", "y", "o"), 2048),
}


def compiler(name: str) -> Callable[[], Any]:
    """A function that compiles kernel `name` to a cubin, each time from the start."""
    kernel, pointers, size = _KERNELS[name]
    signature = {**dict.fromkeys(pointers, "*fp32"), "N": "constexpr"}
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(len(pointers))}

    def compile_once() -> Any:
        source = ASTSource(kernel, signature=signature, constexprs={"N": size}, attrs=aligned)
        return triton.compile(source, target=GPUTarget("cuda", 90, 32))

    return compile_once
