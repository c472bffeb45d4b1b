"""Matrix products: one, and one for each group of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .floats import Array, decode, encode, two_roundings
from .operation import Operation, Reference, Tolerance, checked_rows, draw, itemsize, take

if TYPE_CHECKING:
    from .cases import Case

_HALVES = ("bfloat16", "float16")
_FP8 = ("float8_e4m3fn", "float8_e5m2")


def is_transposed(case: Case) -> bool:
    """Whether the right side is given as (n, k): 8-bit types, which the matrix units read in no other way."""
    return case.dtype in _FP8


def result_dtype(case: Case) -> str:
    """Of a product: that of the inputs, for those of 8 bits bfloat16."""
    return "bfloat16" if case.dtype in _FP8 else case.dtype


def _inputs(case: Case) -> tuple[Array, ...]:
    right = (case.n, case.k) if is_transposed(case) else (case.k, case.n)
    return draw(1, (case.m, case.k), case.dtype), draw(2, right, case.dtype)


def _reference(case: Case, inputs: Sequence[Array]) -> Reference:
    rows = checked_rows(case.m, _flops(case))
    a, b = decode(take(inputs[0], rows)).astype(np.float64), decode(inputs[1]).astype(np.float64)
    return Reference((a @ (b.T if is_transposed(case) else b),), case.k**0.5, rows)


def _tolerance(case: Case, dtype: str) -> Tolerance:
    # A partial sum is about sqrt(k) in size; the matrix units cut it off once a step, at 2**-23 of its size, those of
    # 8-bit types at 2**-13. The cuts go either way, as the sums do: they add up as a walk does, four deviations long.
    step, cut = (32, 2.0**-13) if case.dtype in _FP8 else (16, 2.0**-23)
    reason = "two roundings to the result's dtype; and sums that are cut off once a step of the matrix units"
    return Tolerance(two_roundings(dtype), 4 * cut * (case.k / step) ** 0.5 + 2.0**-20, reason)


def _flops(case: Case) -> float:
    return 2.0 * case.m * case.n * case.k


def _bytes(case: Case) -> float:
    size = itemsize(case.dtype)
    return size * case.k * (case.m + case.n) + itemsize(result_dtype(case)) * case.m * case.n


def _in_flight(case: Case) -> tuple[int, int]:
    m, n, step = case.block
    return itemsize(case.dtype) * step * (m + n), 0


def group_sizes(case: Case) -> Array:
    """Rows of each group: as uneven as a router makes them, some groups empty where there are many, none left over."""
    draws = np.random.default_rng(case.groups).exponential(size=case.groups)
    ends = np.rint(np.cumsum(draws) / draws.sum() * case.m).astype(np.int32)
    return np.diff(ends, prepend=0).astype(np.int32)


def tile_table(sizes: Array, rows: int, block_rows: int) -> tuple[Array, ...]:
    """How many tiles of `block_rows` rows groups of these sizes have; and of each its group, first row and last.

    int32; the tables are as long as there can be tiles, and what is behind the last tile means nothing.
    """
    count = -(-sizes // block_rows)
    length = -(-rows // block_rows) + len(sizes)
    group = np.repeat(np.arange(len(sizes)), count)
    within = np.arange(len(group)) - np.repeat(np.cumsum(count) - count, count)
    ends = np.cumsum(sizes)
    start = (ends - sizes)[group] + within * block_rows
    padded = [np.resize(np.append(values, 0), length) for values in (group, start, ends[group])]
    for values in padded:
        values[len(group) :] = 0
    return np.asarray(len(group), np.int32), *(values.astype(np.int32) for values in padded)


def _grouped_inputs(case: Case) -> tuple[Array, ...]:
    x, w = draw(3, (case.m, case.k), case.dtype), draw(4, (case.groups, case.k, case.n), case.dtype)
    return x, w, group_sizes(case)


def _grouped_operands(case: Case, inputs: Sequence[Array]) -> tuple[Array, ...]:
    x, w, sizes = inputs
    zeros = encode(np.zeros((1, 1), np.float32), case.dtype)
    result = np.zeros((case.m, case.n), f"u{zeros.itemsize}").view(zeros.dtype)
    return *tile_table(sizes, case.m, case.block[0]), x, w, result


def _grouped_reference(case: Case, inputs: Sequence[Array]) -> Reference:
    x, w, sizes = inputs
    rows = checked_rows(case.m, _flops(case))
    picked = np.arange(case.m) if rows is None else rows
    group = np.searchsorted(np.cumsum(sizes), picked, side="right")
    result = np.zeros((len(picked), case.n))
    for g in np.unique(group):
        here = group == g
        result[here] = decode(x[picked[here]]).astype(np.float64) @ decode(w[g]).astype(np.float64)
    return Reference((result,), case.k**0.5, rows)


def _grouped_bytes(case: Case) -> float:
    used = int((group_sizes(case) > 0).sum())
    return itemsize(case.dtype) * (case.m * (case.k + case.n) + used * case.k * case.n)


OPERATIONS = (
    Operation(
        name="matmul",
        sizes=("m", "n", "k"),
        block=("rows", "columns", "depth"),
        dtypes=(*_HALVES, *_FP8),
        inputs=_inputs,
        reference=_reference,
        tolerance=_tolerance,
        flops=_flops,
        bytes=_bytes,
        is_matrix=True,
        in_flight_bytes=_in_flight,
    ),
    Operation(
        name="grouped_matmul",
        sizes=("groups", "m", "n", "k"),
        block=("rows", "columns", "depth"),
        dtypes=_HALVES,
        inputs=_grouped_inputs,
        operands=_grouped_operands,
        reference=_grouped_reference,
        tolerance=_tolerance,
        flops=_flops,
        bytes=_grouped_bytes,
        is_matrix=True,
        in_flight_bytes=_in_flight,
    ),
)
