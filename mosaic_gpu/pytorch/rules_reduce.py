"""Reductions, running reductions and products of matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from mosaic_gpu.pytorch.registry import Equation, evaluates
from mosaic_gpu.pytorch.rules_casts import convert
from mosaic_gpu.pytorch.values import is_float, load, ordered, store, unordered


def flattened(x: Tensor, axes: Sequence[int]) -> Tensor:
    """The axes as one, the last."""
    kept = [d for d in range(x.ndim) if d not in axes]
    sizes = [x.shape[d] for d in kept]
    return x.permute([*kept, *axes]).reshape([*sizes, math.prod(x.shape[d] for d in axes)])


def fold(x: Tensor, function: Callable[[Tensor, Tensor], Tensor], identity: Any) -> Tensor:
    """The last axis reduced by an associative function, half of it at a time."""
    while x.shape[-1] != 1:
        if x.shape[-1] % 2 or not x.shape[-1]:
            x = torch.cat([x, torch.full_like(x[..., :1], identity) if x.shape[-1] else _row_of(x, identity)], -1)
            continue
        half = x.shape[-1] // 2
        x = function(x[..., :half], x[..., half:])
    return x[..., 0]


def _row_of(x: Tensor, value: Any) -> Tensor:
    return torch.full((*x.shape[:-1], 1), value, dtype=x.dtype, device=x.device)


@evaluates("reduce_sum", "reduce_prod")
def eval_reduce_sum(equation: Equation, x: Tensor, *, axes: Sequence[int], **_: Any) -> Tensor:
    """Small floats are summed in float32 and rounded once."""
    if not axes:
        return x
    name = equation.dtype
    value = flattened(load(x, name), axes)
    if value.dtype in (torch.float16, torch.bfloat16):
        value = value.to(torch.float32)
    function = torch.sum if equation.name == "reduce_sum" else torch.prod
    return store(function(value, -1, dtype=value.dtype), name)


@evaluates("reduce_max", "reduce_min")
def eval_reduce_max(equation: Equation, x: Tensor, *, axes: Sequence[int], **_: Any) -> Tensor:
    """NaN where there is one; of no elements the least or the largest value."""
    if not axes:
        return x
    value, is_max = flattened(ordered(x, equation.dtype), axes), equation.name == "reduce_max"
    if value.dtype is torch.bool:
        return value.any(-1) if is_max else value.all(-1)
    if not value.shape[-1]:
        value = _row_of(value, _extreme(value.dtype, not is_max))
    return unordered(value.amax(-1) if is_max else value.amin(-1), equation.dtype)


def _extreme(dtype: torch.dtype, largest: bool) -> Any:
    if dtype.is_floating_point:
        return math.inf if largest else -math.inf
    info = torch.iinfo(dtype)
    return info.max if largest else info.min


@evaluates("reduce_and", "reduce_or", "reduce_xor")
def eval_reduce_bits(equation: Equation, x: Tensor, *, axes: Sequence[int], **_: Any) -> Tensor:
    function = getattr(torch, f"bitwise_{equation.name.removeprefix('reduce_')}")
    ones = True if x.dtype is torch.bool else 255 if x.dtype is torch.uint8 else -1
    return fold(flattened(x, axes), function, ones if equation.name == "reduce_and" else 0) if axes else x


@evaluates("argmax", "argmin")
def eval_argmax(equation: Equation, x: Tensor, *, axes: Sequence[int], **_: Any) -> Tensor:
    """The first index of the extreme, where a NaN counts as one."""
    (axis,) = axes
    value = ordered(x, equation.dtypes_in[0])
    if value.dtype is torch.bool:
        value = value.to(torch.uint8)
    function = torch.argmax if equation.name == "argmax" else torch.argmin
    return store(function(value, axis), equation.dtype)


def _running(x: Tensor, axis: int, reverse: bool, function: Callable[[Tensor], Tensor]) -> Tensor:
    return function(x.flip(axis)).flip(axis) if reverse else function(x)


@evaluates("cumsum", "cumprod", "cumlogsumexp")
def eval_cumsum(equation: Equation, x: Tensor, *, axis: int, reverse: bool, **_: Any) -> Tensor:
    """Small floats are summed in float32."""
    name = equation.dtype
    value = load(x, name)
    if value.dtype in (torch.float16, torch.bfloat16):
        value = value.to(torch.float32)
    if equation.name == "cumlogsumexp":
        return store(_running(value, axis, reverse, lambda v: torch.logcumsumexp(v, axis)), name)
    function = getattr(torch, equation.name)
    return store(_running(value, axis, reverse, lambda v: function(v, axis, dtype=v.dtype)), name)


@evaluates("cummax", "cummin")
def eval_cummax(equation: Equation, x: Tensor, *, axis: int, reverse: bool, **_: Any) -> Tensor:
    function = getattr(torch, equation.name)
    value = ordered(x, equation.dtype)
    return unordered(_running(value, axis, reverse, lambda v: function(v, axis).values), equation.dtype)


@evaluates("dot_general")
def eval_dot_general(equation: Equation, x: Tensor, y: Tensor, *, dimension_numbers: Any, **_: Any) -> Tensor:
    """Batch dimensions first, then those of x, then those of y."""
    (contract_x, contract_y), (batch_x, batch_y) = dimension_numbers
    free_x = [d for d in range(x.ndim) if d not in (*contract_x, *batch_x)]
    free_y = [d for d in range(y.ndim) if d not in (*contract_y, *batch_y)]
    depth = math.prod(x.shape[d] for d in contract_x)
    batch = math.prod(x.shape[d] for d in batch_x)
    rows, columns = (math.prod(v.shape[d] for d in free) for v, free in ((x, free_x), (y, free_y)))
    left = x.permute([*batch_x, *free_x, *contract_x]).reshape(batch, rows, depth)
    right = y.permute([*batch_y, *contract_y, *free_y]).reshape(batch, depth, columns)
    return _product(equation, left, right).reshape(equation.shape)


def _product(equation: Equation, x: Tensor, y: Tensor) -> Tensor:
    """Products of matrices, summed in float32 at least; integers in the result's width."""
    result, (name_x, name_y) = equation.dtype, equation.dtypes_in
    if is_float(result):
        if name_x == name_y == result:
            return store(torch.bmm(load(x, name_x), load(y, name_y)), result)
        wide = "float64" if "float64" in (name_x, name_y, result) else "float32"
        return convert(torch.bmm(convert(x, name_x, wide), convert(y, name_y, wide)), wide, result)
    if result == "bool":
        return torch.bmm(x.to(torch.float32), y.to(torch.float32)) > 0
    x, y = convert(x, name_x, result), convert(y, name_y, result)
    if x.device.type == "cpu":
        return torch.bmm(x, y)
    return (x.unsqueeze(-1) * y.unsqueeze(-3)).sum(-2, dtype=x.dtype)  # CUDA has no products of integer matrices
