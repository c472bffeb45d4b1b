"""Attention, forward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .floats import ROUNDOFF, Array, decode, two_roundings
from .operation import Operation, Reference, Tolerance, checked_rows, draw, itemsize

if TYPE_CHECKING:
    from .cases import Case


def _inputs(case: Case) -> tuple[Array, ...]:
    """q (batch, heads, queries, d); k and v (batch, kv_heads, keys, d)."""
    keys = (case.batch, case.kv_heads, case.keys, case.d)
    queries = (case.batch, case.heads, case.queries, case.d)
    return draw(5, queries, case.dtype), draw(6, keys, case.dtype), draw(7, keys, case.dtype)


def _reference(case: Case, inputs: Sequence[Array]) -> Reference:
    """Rows are those of all heads in a row."""
    q, k, v = inputs
    rows = checked_rows(case.queries, 4.0 * case.batch * case.heads * case.queries * case.keys * case.d)
    picked = np.arange(case.queries) if rows is None else rows
    values = np.empty((case.batch, case.heads, len(picked), case.d))
    scale = np.empty((case.batch, case.heads, len(picked), 1))
    last = picked[:, None] + case.keys - case.queries
    hidden = np.arange(case.keys)[None, :] > last if case.causal else None
    for b in range(case.batch):
        for h in range(case.heads):
            shared = h * case.kv_heads // case.heads
            left, keys, right = (decode(a).astype(np.float64) for a in (q[b, h][picked], k[b, shared], v[b, shared]))
            scores = left @ keys.T / np.sqrt(case.d)
            if hidden is not None:
                scores[hidden] = -np.inf
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            values[b, h] = weights @ right
            scale[b, h] = np.sqrt(np.square(weights).sum(axis=1, keepdims=True))
    offsets = np.arange(case.batch * case.heads)[:, None] * case.queries
    every = None if rows is None else (offsets + picked).reshape(-1)
    return Reference((values.reshape(-1, case.d),), scale.reshape(-1, 1), every)


def _tolerance(case: Case, dtype: str) -> Tolerance:
    reason = (
        "two roundings to the result's dtype; and weights that are rounded to the dtype of v, whose errors add up as "
        "a walk does, with steps of a weight times about 1, here eight deviations long"
    )
    return Tolerance(two_roundings(dtype), 4 * ROUNDOFF[case.dtype], reason)


def _fault(case: Case) -> str:
    if case.heads % case.kv_heads:
        return f"{case.heads} heads are no multiple of the {case.kv_heads} heads of keys"
    if case.causal and case.queries > case.keys:
        return f"{case.queries} causal queries, but {case.keys} keys: the first would see none"
    return ""


def _visible(case: Case) -> float:
    """Pairs of a query and a key that it sees, of one head."""
    if not case.causal:
        return float(case.queries * case.keys)
    return case.queries * (case.keys - case.queries) + case.queries * (case.queries + 1) / 2


def _bytes(case: Case) -> float:
    size = itemsize(case.dtype) * case.batch * case.d
    return size * 2.0 * (case.heads * case.queries + case.kv_heads * case.keys)


def _in_flight(case: Case) -> tuple[int, int]:
    queries, keys = case.block
    size = itemsize(case.dtype) * case.d
    return 2 * size * keys, size * queries


OPERATIONS = (
    Operation(
        name="attention",
        sizes=("batch", "heads", "kv_heads", "queries", "keys", "d"),
        flags={"causal": False},
        block=("queries", "keys"),
        dtypes=("bfloat16", "float16"),
        inputs=_inputs,
        reference=_reference,
        tolerance=_tolerance,
        flops=lambda case: 4.0 * case.batch * case.heads * case.d * _visible(case),
        bytes=_bytes,
        is_matrix=True,
        fault=_fault,
        in_flight_bytes=_in_flight,
    ),
)
