"""What an operation is: its inputs, what the right results are, how far off they may be, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from .floats import Array, encode

if TYPE_CHECKING:
    from .cases import Case

_POOL = 1_000_003
_REFERENCE_FLOPS = 4e10
_MOST_NEIGHBOURS = 16


@dataclass(frozen=True)
class Tolerance:
    """A result may be off by `relative` of its size plus `absolute` of the reference's scale.

    Attributes:
      reason: why so much, and why not more.
    """

    relative: float
    absolute: float
    reason: str


@dataclass(frozen=True)
class Reference:
    """Right results, float64.

    Attributes:
      values: one for each result.
      scale: of what is summed up to make them; broadcasts against the first result.
      rows: along the first axis of the results (of their first axes as one, where `values` have fewer); None for all.
    """

    values: tuple[Array, ...]
    scale: Array | float = 1.0
    rows: Array | None = None


@dataclass(frozen=True)
class Operation:
    """An operation that is measured.

    Attributes:
      name: as TOML has it.
      sizes, flags: what a case says of its shape; flags with what they are when left out.
      block: what the numbers of `block` are.
      dtypes: of the inputs.
      inputs: the arrays that all contenders take.
      operands: of our kernel, made of the inputs.
      reference: the results, made of the inputs.
      tolerance: for results that come in the dtype with this name.
      flops: what is counted; `is_matrix` says whether the tensor cores do it.
      bytes: the least traffic with memory: every input read once, every result written once.
      fault: what is wrong with the sizes of a case, taken together; "" where nothing is.
      in_flight_bytes: of a step of the kernel's loop and of what is kept beside it, in shared memory; (0, 0) where
        nothing is loaded ahead.
    """

    name: str
    sizes: tuple[str, ...]
    block: tuple[str, ...]
    dtypes: tuple[str, ...]
    inputs: Callable[[Case], tuple[Array, ...]]
    reference: Callable[[Case, Sequence[Array]], Reference]
    tolerance: Callable[[Case, str], Tolerance]
    flops: Callable[[Case], float]
    bytes: Callable[[Case], float]
    is_matrix: bool
    operands: Callable[[Case, Sequence[Array]], tuple[Array, ...]] = lambda _, inputs: tuple(inputs)
    fault: Callable[[Case], str] = lambda _: ""
    in_flight_bytes: Callable[[Case], tuple[int, int]] = lambda _: (0, 0)
    flags: Mapping[str, bool] = field(default_factory=dict)


def draw(seed: int, shape: Sequence[int], dtype: str) -> Array:
    """Normally distributed numbers: a million of them, repeated with a prime period so that no two tiles are alike."""
    pool = encode(np.random.default_rng(seed).standard_normal(_POOL, np.float32), dtype)
    size = math.prod(shape)
    bits = pool.view(f"u{pool.itemsize}")
    return np.resize(bits, size).view(pool.dtype).reshape(shape)


def checked_rows(count: int, flops: float) -> Array | None:
    """The rows of a result whose reference is computed: all (None), or one of each few neighbours, drawn.

    So every tile of a kernel is looked at, in rows that differ from tile to tile, and a reference in float64 on the
    host takes seconds.
    """
    neighbours = min(_MOST_NEIGHBOURS, math.ceil(flops / _REFERENCE_FLOPS), count)
    if neighbours <= 1:
        return None
    starts = np.arange(0, count, neighbours)
    rows = starts + np.random.default_rng(count).integers(0, neighbours, len(starts))
    return np.unique(np.minimum(rows, count - 1))


def itemsize(dtype: str) -> int:
    """Bytes of an element."""
    return {"float32": 4, "float16": 2, "bfloat16": 2}.get(dtype, 1)


def take(array: Array, rows: Array | None) -> Any:
    """The rows of an array."""
    return array if rows is None else array[rows]
