"""Operations on each row of a matrix: softmax, RMS norm, cross entropy.  Memory bounds all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from .floats import ROUNDOFF, SMALLEST, Array, decode, two_roundings
from .operation import Operation, Reference, Tolerance, checked_rows, draw, itemsize, take

if TYPE_CHECKING:
    from .cases import Case

RMS_EPSILON = 1e-6
CROSS_ENTROPY_BLOCK = (4, 1024)
"""Of `examples/cross_entropy.py`, which takes no other."""

_DTYPES = ("float32", "bfloat16", "float16")
_CHUNK = 1 << 22
_FLOPS_OF_AN_EXPONENTIAL = 200.0  # that a product of matrices does on the host in the same time


def _by_rows(function: Callable[[Array, slice], Sequence[Array]], x: Array) -> tuple[Array, ...]:
    """The results of `function` for some rows of x in float64 at a time, put together."""
    step = max(1, _CHUNK // x.shape[1])
    parts = []
    for first in range(0, len(x), step):
        rows = slice(first, first + step)
        parts.append(function(decode(x[rows]).astype(np.float64), rows))
    return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def _softmax(case: Case, inputs: Sequence[Array]) -> Reference:
    def rows(x: Array, _: slice) -> tuple[Array]:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        e /= e.sum(axis=1, keepdims=True)
        return (e,)

    return Reference(_by_rows(rows, inputs[0]))


def _rms_norm(case: Case, inputs: Sequence[Array]) -> Reference:
    scale = decode(inputs[1]).astype(np.float64)

    def rows(x: Array, _: slice) -> tuple[Array]:
        return (x / np.sqrt(np.square(x).mean(axis=1, keepdims=True) + RMS_EPSILON) * scale,)

    return Reference(_by_rows(rows, inputs[0]))


def _cross_entropy(case: Case, inputs: Sequence[Array]) -> Reference:
    """The losses, then log(sum(exp(logits))), which our kernel gives beside them."""

    checked = checked_rows(case.m, _FLOPS_OF_AN_EXPONENTIAL * case.m * case.n)
    labels = take(inputs[1], checked)

    def rows(x: Array, here: slice) -> tuple[Array, Array]:
        picked, top = x[np.arange(len(x)), labels[here]], x.max(axis=1)
        x -= top[:, None]
        log_sum = top + np.log(np.exp(x, out=x).sum(axis=1))
        return log_sum - picked, log_sum

    return Reference(_by_rows(rows, take(inputs[0], checked)), rows=checked)


def _tolerance(case: Case, dtype: str) -> Tolerance:
    reason = "two roundings to the result's dtype; and 16 of float32: of exponentials of numbers around 10, and of sums"
    return Tolerance(two_roundings(dtype) + 16 * ROUNDOFF["float32"], SMALLEST[dtype], reason)


def _losses_tolerance(case: Case, dtype: str) -> Tolerance:
    reason = "two roundings to the result's dtype; and 64 of float32 of a difference of two logits around 10"
    return Tolerance(two_roundings(dtype), 64 * 10 * ROUNDOFF["float32"], reason)


def _labels(case: Case) -> Array:
    return np.random.default_rng(9).integers(0, case.n, case.m).astype(np.int32)


OPERATIONS = (
    Operation(
        name="softmax",
        sizes=("m", "n"),
        block=("rows",),
        dtypes=_DTYPES,
        inputs=lambda case: (draw(10, (case.m, case.n), case.dtype),),
        reference=_softmax,
        tolerance=_tolerance,
        flops=lambda case: 5.0 * case.m * case.n,
        bytes=lambda case: 2.0 * itemsize(case.dtype) * case.m * case.n,
        is_matrix=False,
    ),
    Operation(
        name="rms_norm",
        sizes=("m", "n"),
        block=("rows",),
        dtypes=_DTYPES,
        inputs=lambda case: (draw(11, (case.m, case.n), case.dtype), draw(12, (case.n,), case.dtype)),
        reference=_rms_norm,
        tolerance=_tolerance,
        flops=lambda case: 4.0 * case.m * case.n,
        bytes=lambda case: itemsize(case.dtype) * case.n * (2.0 * case.m + 1),
        is_matrix=False,
    ),
    Operation(
        name="cross_entropy",
        sizes=("m", "n"),
        block=(),
        dtypes=_DTYPES,
        inputs=lambda case: (draw(13, (case.m, case.n), case.dtype), _labels(case)),
        reference=_cross_entropy,
        tolerance=_losses_tolerance,
        flops=lambda case: 4.0 * case.m * case.n,
        bytes=lambda case: case.m * (itemsize(case.dtype) * case.n + 4.0 + 8.0),
        is_matrix=False,
        in_flight_bytes=lambda case: (itemsize(case.dtype) * CROSS_ENTROPY_BLOCK[0] * CROSS_ENTROPY_BLOCK[1], 0),
    ),
)
