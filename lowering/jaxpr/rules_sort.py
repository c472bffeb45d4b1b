"""sort, top_k and approx_top_k, by a merge exchange network over a tile in shared memory.

Batcher's merge exchange (Knuth, The Art of Computer Programming 3, 5.2.2, Algorithm M) sorts any number of
elements, not only powers of two, in t (t + 1) / 2 passes with t = ceil(log2 n).  A pass compares elements
`distance` apart and exchanges those out of order:

    for p = 2**(t-1), .., 2, 1:                       n = 5: pairs (0,4); (0,2) (1,3); (2,4); (0,1) (2,3); (1,4); ..
        (distance, r) = (p, 0), then (q - p, p) for q = 2**(t-1), .., 2 p
        exchange i and i + distance for all i < n - distance with i & p == r

Every element carries its first position as the last key, which makes keys distinct: any network is then
stable, and the positions at the end say where each result comes from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.types import element_of, shape_of, storage_bits
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.arithmetic import binary, compare, compare_to
from mosaic_gpu.lowering.jaxpr.casts import convert, fill_like, is_nan, ordered_bits, select
from mosaic_gpu.lowering.jaxpr.context import RuleContext
from mosaic_gpu.lowering.jaxpr.kinds import bits_dtype, compute_dtype, is_bool, is_float
from mosaic_gpu.lowering.jaxpr.registry import lowers
from mosaic_gpu.lowering.jaxpr.rules_shape import empty_of, sliced
from mosaic_gpu.lowering.jaxpr.scratch import INT32, repeat, spill

Key = tuple[ir.Value, Any]

_ROOMY_BYTES = 96 * 1024
"""Up to so much shared memory a sort takes what makes it fastest."""


@lowers("sort")
def lower_sort(ctx: RuleContext, *values: ir.Value, dimension: int, num_keys: int, **_: Any) -> list[ir.Value]:
    """Sorted by the first `num_keys` operands; -0 equals 0, and NaNs come last."""
    if shape_of(values[0].type)[dimension] <= 1 or 0 in shape_of(values[0].type):
        return list(values)
    keys = [_sort_key(v, a.dtype) for v, a in zip(values[:num_keys], ctx.avals_in, strict=False)]
    order = _order(keys, dimension)
    return [_permuted(v, order, dimension) for v in values]


@lowers("top_k")
def lower_top_k(ctx: RuleContext, x: ir.Value, *, k: int, axis: int = -1, **_: Any) -> list[ir.Value]:
    """The k largest in IEEE's total order, largest first, and their positions; of equals the first come first."""
    return _extreme_k(ctx, x, k, axis, largest=True)


@lowers("approx_top_k")
def lower_approx_top_k(
    ctx: RuleContext,
    x: ir.Value,
    *,
    k: int,
    reduction_dimension: int,
    is_max_k: bool,
    aggregate_to_topk: bool,
    **_: Any,
) -> list[ir.Value]:
    """The exact answer, which any recall target allows."""
    if not aggregate_to_topk:
        raise ctx.refuse("approx_top_k without aggregate_to_topk", "use aggregate_to_topk=True or lax.top_k")
    return _extreme_k(ctx, x, k, reduction_dimension, largest=is_max_k)


def _extreme_k(ctx: RuleContext, x: ir.Value, k: int, axis: int, largest: bool) -> list[ir.Value]:
    shape, dtype, out = shape_of(x.type), ctx.avals_in[0].dtype, ctx.avals_out
    axis %= len(shape)
    empty = [empty_of(a) for a in out]
    if empty[0] is not None and empty[1] is not None:
        return [empty[0], empty[1]]
    key, key_dtype = _total_key(x, dtype)
    if largest:
        key = binary("xor", key, fill_like(-1, key, key_dtype), key_dtype)
    order = _order([(key, key_dtype)], axis) if shape[axis] > 1 else emit.iota(shape, axis)
    kept = [k if d == axis else n for d, n in enumerate(shape)]
    first = sliced(order, [0] * len(shape), kept, [1] * len(shape))
    return [_permuted(x, first, axis), convert(first, INT32, out[1].dtype)]


def _sort_key(x: ir.Value, dtype: Any) -> Key:
    """An integer tile that orders as XLA sorts `dtype`."""
    if is_float(dtype):
        work = compute_dtype(dtype)
        x = convert(x, dtype, work)
        x = select(compare_to("eq", x, 0, work), fill_like(0, x, work), x)
        x, dtype = select(is_nan(x), fill_like(np.nan, x, work), x), work
    return _total_key(x, dtype)


def _total_key(x: ir.Value, dtype: Any) -> Key:
    """An integer tile that orders as `dtype` does, floats in their total order."""
    if is_bool(dtype):
        return convert(x, dtype, np.uint8), np.dtype(np.uint8)
    work = compute_dtype(dtype)
    x = convert(x, dtype, work)
    return (ordered_bits(x, work), bits_dtype(work)) if is_float(work) else (x, work)


def _order(keys: Sequence[Key], dimension: int) -> ir.Value:
    """For each place of the sorted tile, the position (i32, along `dimension`) that its element comes from."""
    shape = shape_of(keys[0][0].type)
    size = shape[dimension]
    levels = (size - 1).bit_length()
    dtypes = [*(d for _, d in keys), INT32]
    tiles = [*(k for k, _ in keys), emit.iota(shape, dimension)]
    batches = _batches(tiles)
    top = emit.int_constant(1 << (levels - 1))

    def one_pass(_: ir.Value, carried: list[ir.Value]) -> list[ir.Value]:
        p, q, r, distance, *current = carried
        partner, is_high = _partner(shape, dimension, p, r, distance)
        moved = _exchanged(current, dtypes, batches, _indices(shape, dimension, partner), is_high)
        return [*_next_pass(top, p, q), *moved]

    start = [top, top, emit.int_constant(0), top, *tiles]
    return repeat(levels * (levels + 1) // 2, one_pass, start)[-1]


def _next_pass(top: ir.Value, p: ir.Value, q: ir.Value) -> list[ir.Value]:
    """p, q, r and distance of the pass that follows."""
    one, zero = emit.int_constant(1), emit.int_constant(0)
    same_p = arith.CmpIOp(arith.CmpIPredicate.ne, q, p).result
    half_p, half_q = arith.ShRUIOp(p, one).result, arith.ShRUIOp(q, one).result
    return [
        select(same_p, p, half_p),
        select(same_p, half_q, top),
        select(same_p, p, zero),
        select(same_p, arith.SubIOp(q, p).result, half_p),
    ]


def _partner(
    shape: Sequence[int], dimension: int, p: ir.Value, r: ir.Value, distance: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """The place each element is compared with (its own, where with none), and whether that is a lower one."""
    place = emit.iota(shape, dimension)
    p, r, distance = (emit.broadcast(v, shape, ()) for v in (p, r, distance))
    above, below = arith.AddIOp(place, distance).result, arith.SubIOp(place, distance).result
    is_low = _both(_starts(place, p, r), compare_to("lt", above, shape[dimension], INT32))
    is_high = _both(_starts(below, p, r), compare_to("ge", below, 0, INT32))
    return select(is_low, above, select(is_high, below, place)), is_high


def _starts(place: ir.Value, p: ir.Value, r: ir.Value) -> ir.Value:
    return compare("eq", arith.AndIOp(place, p).result, r, INT32)


def _both(x: ir.Value, y: ir.Value) -> ir.Value:
    return arith.AndIOp(x, y).result


def _batches(tiles: Sequence[ir.Value]) -> list[list[ir.Value]]:
    """Memory for each tile, in batches that are exchanged together.

    Small tiles have their own memory each and take one barrier together; large ones that are as wide share
    one, one after the other.
    """
    elements = [element_of(t.type) for t in tiles]
    size = math.prod(shape_of(tiles[0].type))
    if size * sum(storage_bits(e) // 8 for e in elements) <= _ROOMY_BYTES:
        return [[emit.alloc(shape_of(t.type), e) for t, e in zip(tiles, elements, strict=True)]]
    shared = {str(e): emit.alloc(shape_of(tiles[0].type), e) for e in elements}
    return [[shared[str(e)]] for e in elements]


def _exchanged(
    current: Sequence[ir.Value],
    dtypes: Sequence[Any],
    batches: Sequence[Sequence[ir.Value]],
    indices: Sequence[ir.Value],
    is_high: ir.Value,
) -> list[ir.Value]:
    """Each element, or its partner where the two are out of order."""
    others: list[ir.Value] = []
    for memories in batches:
        for tile, memory in zip(current[len(others) :], memories, strict=False):
            emit.store(tile, memory)
        others += [emit.gather(memory, indices) for memory in memories]
    smaller = _is_less(others, current, dtypes)
    takes = arith.XOrIOp(smaller, is_high).result
    return [select(takes, other, own) for other, own in zip(others, current, strict=True)]


def _is_less(xs: Sequence[ir.Value], ys: Sequence[ir.Value], dtypes: Sequence[Any]) -> ir.Value:
    """Lexicographic order; the last keys decide where all before are equal."""
    result = compare("lt", xs[-1], ys[-1], dtypes[-1])
    for x, y, dtype in zip(reversed(xs[:-1]), reversed(ys[:-1]), reversed(dtypes[:-1]), strict=True):
        tied = _both(compare("eq", x, y, dtype), result)
        result = arith.OrIOp(compare("lt", x, y, dtype), tied).result
    return result


def _indices(shape: Sequence[int], dimension: int, place: ir.Value) -> list[ir.Value]:
    """One index a dimension: `place` along `dimension`, each element's own along the others."""
    return [place if d == dimension else emit.iota(shape, d) for d in range(len(shape))]


def _permuted(x: ir.Value, order: ir.Value, dimension: int) -> ir.Value:
    """The elements of `x` in their new order; of the positions themselves (argsort), the order is just that."""
    if _counts(x, dimension):
        return emit.resize_int(order, element_of(x.type))
    return emit.gather(spill(x), _indices(shape_of(order.type), dimension, order))


def _counts(x: ir.Value, dimension: int) -> bool:
    """Whether `x` is an iota along `dimension`, perhaps of another width."""
    if isinstance(x.owner, ir.Block):
        return False
    op = x.owner.operation
    if op.name in ("arith.extsi", "arith.trunci"):
        return _counts(op.operands[0], dimension)
    return bool(op.name == "mgpu.iota" and ir.IntegerAttr(op.attributes["dimension"]).value == dimension)
