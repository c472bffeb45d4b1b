"""Sorting, as JAX orders elements: NaN behind all others, equal ones as they were."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mosaic_gpu.pytorch.registry import Equation, evaluates
from mosaic_gpu.pytorch.values import ordered, store


def _key(x: Tensor, name: str) -> Tensor:
    key = ordered(x, name)
    return key.to(torch.uint8) if key.dtype is torch.bool else key


@evaluates("sort")
def eval_sort(equation: Equation, *values: Tensor, dimension: int, num_keys: int, **_: Any) -> list[Tensor]:
    """By the last key first: each sort keeps the order of the one before."""
    order: Tensor | None = None
    for place in reversed(range(num_keys)):
        key = _key(values[place], equation.dtypes_in[place])
        key = key if order is None else key.gather(dimension, order)
        found = torch.sort(key, dim=dimension, stable=True).indices
        order = found if order is None else order.gather(dimension, found)
    assert order is not None
    return [v.gather(dimension, order) for v in values]


@evaluates("top_k")
def eval_top_k(equation: Equation, x: Tensor, *, k: int, axis: int = -1, **_: Any) -> list[Tensor]:
    """The largest first; of equal ones the first."""
    found = torch.sort(_key(x, equation.dtypes_in[0]), dim=axis, descending=True, stable=True).indices
    chosen = found.narrow(axis, 0, k)
    return [x.gather(axis, chosen), store(chosen, str(equation.avals_out[1].dtype))]
