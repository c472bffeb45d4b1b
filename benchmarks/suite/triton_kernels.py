"""The cases' operations in Triton, to be launched: in the manner of its tutorials, with blocks for Hopper.

Importing this needs triton.
"""

# ruff: noqa: N803 (Triton's way to name constants)

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def softmax(x, o, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """A row a program."""
    row = tl.program_id(0).to(tl.int64) * n
    columns = tl.arange(0, BLOCK)
    value = tl.load(x + row + columns, mask=columns < n, other=-float("inf")).to(tl.float32)
    e = tl.exp(value - tl.max(value, 0))
    tl.store(o + row + columns, (e / tl.sum(e, 0)).to(o.dtype.element_ty), mask=columns < n)


@triton.jit
def rms_norm(x, scale, o, n, EPSILON: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """A row a program."""
    row = tl.program_id(0).to(tl.int64) * n
    columns = tl.arange(0, BLOCK)
    value = tl.load(x + row + columns, mask=columns < n, other=0.0).to(tl.float32)
    inverse = tl.rsqrt(tl.sum(value * value, 0) / n + EPSILON)
    factor = tl.load(scale + columns, mask=columns < n, other=0.0).to(tl.float32)
    tl.store(o + row + columns, (value * inverse * factor).to(o.dtype.element_ty), mask=columns < n)


@triton.jit
def cross_entropy(x, labels, o, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """A row a program, a block of columns at a time."""
    number = tl.program_id(0)
    row = x + number.to(tl.int64) * n
    top = -float("inf")
    total = 0.0
    for first in tl.range(0, n, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        value = tl.load(row + columns, mask=columns < n, other=-float("inf")).to(tl.float32)
        new_top = tl.maximum(top, tl.max(value, 0))
        total = total * tl.exp(top - new_top) + tl.sum(tl.exp(value - new_top), 0)
        top = new_top
    picked = tl.load(row + tl.load(labels + number)).to(tl.float32)
    tl.store(o + number, top + tl.log(total) - picked)


@triton.jit
def matmul(
    a,
    b,
    o,
    m,
    n,
    k,
    M: tl.constexpr,
    N: tl.constexpr,
    K: tl.constexpr,
    GROUP: tl.constexpr,
    IS_TRANSPOSED: tl.constexpr,
):  # type: ignore[no-untyped-def]
    """A tile a program, GROUP rows of tiles at a time; a, b and o are tensor descriptors."""
    number = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(m, M), tl.cdiv(n, N)
    group = number // (GROUP * tiles_n)
    height = tl.minimum(tiles_m - group * GROUP, GROUP)
    within = number % (GROUP * tiles_n)
    row, column = (group * GROUP + within % height) * M, within // height * N
    total = tl.zeros((M, N), dtype=tl.float32)
    for step in tl.range(0, k, K):
        left = a.load([row, step])
        if IS_TRANSPOSED:  # noqa: SIM108 (chosen when it is compiled)
            right = b.load([column, step]).T
        else:
            right = b.load([step, column])
        total = tl.dot(left, right, total)
    o.store([row, column], total.to(o.dtype))


@triton.jit
def _attend(
    q,
    k,
    v,
    pair,
    first,
    last,
    limit,
    keys,
    top,
    total,
    acc,
    SCALE: tl.constexpr,
    N: tl.constexpr,
    D: tl.constexpr,
    IS_MASKED: tl.constexpr,
):  # type: ignore[no-untyped-def]
    """Steps over the keys from `first` up to `last`; `limit`: of each query the first key that it does not see."""
    for j in tl.range(first, last, N):
        scores = tl.dot(q, k.load([pair, j, 0]).reshape(N, D).T) * SCALE
        if IS_MASKED:
            column = j + tl.arange(0, N)[None, :]
            scores = tl.where((column < limit[:, None]) & (column < keys), scores, -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp2(scores - new_top[:, None])
        old = tl.exp2(top - new_top)
        total = old * total + tl.sum(weights, 1)
        value = v.load([pair, j, 0]).reshape(N, D)
        acc = tl.dot(weights.to(value.dtype), value, acc * old[:, None])
        top = new_top
    return top, total, acc


@triton.jit
def attention(
    q,
    k,
    v,
    o,
    heads,
    kv_heads,
    queries,
    keys,
    SCALE: tl.constexpr,
    M: tl.constexpr,
    N: tl.constexpr,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
):  # type: ignore[no-untyped-def]
    """A block of queries a program; q, k, v and o are tensor descriptors (heads of all batches, rows, d)."""
    row, head = tl.program_id(0) * M, tl.program_id(1)
    pair = head // heads * kv_heads + head % heads * kv_heads // heads
    here = row + tl.arange(0, M)
    if CAUSAL:
        limit = here + 1 + keys - queries
        whole = (row + 1 + keys - queries) // N * N
        last = tl.minimum(row + M + keys - queries, keys)
    else:
        limit = tl.full((M,), 0, tl.int32) + keys
        whole = keys // N * N
        last = keys
    top = tl.full((M,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((M,), dtype=tl.float32)
    acc = tl.zeros((M, D), dtype=tl.float32)
    query = q.load([head, row, 0]).reshape(M, D)
    top, total, acc = _attend(query, k, v, pair, 0, whole, limit, keys, top, total, acc, SCALE, N, D, False)
    top, total, acc = _attend(query, k, v, pair, whole, last, limit, keys, top, total, acc, SCALE, N, D, True)
    o.store([head, row, 0], (acc / total[:, None]).to(o.dtype).reshape(1, M, D))


@triton.jit
def grouped_matmul(group, start, end, x, w, o, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):  # type: ignore[no-untyped-def]
    """A tile a program; group, start, end: a table of the tiles along the rows; x and w are tensor descriptors."""
    tile, column = tl.program_id(1), tl.program_id(0) * N
    number, row, stop = tl.load(group + tile), tl.load(start + tile), tl.load(end + tile)
    total = tl.zeros((M, N), dtype=tl.float32)
    for step in tl.range(0, k, K):
        total = tl.dot(x.load([row, step]), w.load([number, step, column]).reshape(K, N), total)
    rows, columns = row + tl.arange(0, M), column + tl.arange(0, N)
    mask = (rows < stop)[:, None] & (columns < n)[None, :]
    tl.store(o + rows.to(tl.int64)[:, None] * n + columns[None, :], total.to(o.dtype.element_ty), mask=mask)
