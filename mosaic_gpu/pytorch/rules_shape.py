"""Primitives that move elements: broadcasts, reshapes, slices, padding and the like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mosaic_gpu.pytorch.registry import Equation, evaluates, makes
from mosaic_gpu.pytorch.values import CARRIERS, widened


@evaluates("broadcast_in_dim")
def eval_broadcast_in_dim(
    equation: Equation, x: Tensor, *_: Any, broadcast_dimensions: Sequence[int], **__: Any
) -> Tensor:
    kept = [1] * len(equation.shape)
    for source, target in enumerate(broadcast_dimensions):
        kept[target] = x.shape[source]
    return x.reshape(kept).expand(equation.shape)


@evaluates("broadcast_to")
def eval_broadcast_to(equation: Equation, x: Tensor, **_: Any) -> Tensor:
    return x.expand(equation.shape)


@evaluates("reshape", "squeeze", "expand_dims")
def eval_reshape(equation: Equation, x: Tensor, *_: Any, dimensions: Any = None, **__: Any) -> Tensor:
    if equation.name == "reshape" and dimensions is not None:
        x = x.permute(tuple(dimensions))
    return x.reshape(equation.shape)


@evaluates("transpose")
def eval_transpose(equation: Equation, x: Tensor, *, permutation: Sequence[int], **_: Any) -> Tensor:
    return x.permute(tuple(permutation))


@evaluates("slice")
def eval_slice(
    equation: Equation,
    x: Tensor,
    *,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None,
    **_: Any,
) -> Tensor:
    steps = strides or [1] * x.ndim
    return x[tuple(slice(a, b, s) for a, b, s in zip(start_indices, limit_indices, steps, strict=True))]


@evaluates("rev")
def eval_rev(equation: Equation, x: Tensor, *, dimensions: Sequence[int], **_: Any) -> Tensor:
    return x.flip(tuple(dimensions))


@evaluates("split")
def eval_split(equation: Equation, x: Tensor, *, sizes: Sequence[int], axis: int, **_: Any) -> list[Tensor]:
    return list(x.split([int(s) for s in sizes], axis))


@evaluates("unstack")
def eval_unstack(equation: Equation, x: Tensor, *, axis: int, **_: Any) -> list[Tensor]:
    return list(x.unbind(axis))


@evaluates("concatenate")
def eval_concatenate(equation: Equation, *values: Tensor, dimension: int, **_: Any) -> Tensor:
    return torch.cat(values, dimension)


@evaluates("stack")
def eval_stack(equation: Equation, *values: Tensor, axis: int, **_: Any) -> Tensor:
    return torch.stack(values, axis)


@evaluates("tile")
def eval_tile(equation: Equation, x: Tensor, *, reps: Sequence[int], **_: Any) -> Tensor:
    return x.tile(tuple(reps))


@evaluates("pad")
def eval_pad(
    equation: Equation, x: Tensor, padding: Tensor, *, padding_config: Sequence[tuple[int, int, int]], **_: Any
) -> Tensor:
    """Negative padding takes elements away; interior padding goes between elements."""
    wide = [max((n - 1) * (step + 1) + 1, 0) for n, (_l, _h, step) in zip(x.shape, padding_config, strict=True)]
    sizes = [w + max(low, 0) + max(high, 0) for w, (low, high, _s) in zip(wide, padding_config, strict=True)]
    result = padding.expand(sizes).contiguous()
    places, cut = [], []
    for w, n, (low, high, step) in zip(wide, sizes, padding_config, strict=True):
        places.append(slice(max(low, 0), max(low, 0) + w, step + 1))
        cut.append(slice(max(-low, 0), n - max(-high, 0)))
    if result is padding or not x.ndim:
        return x
    result[tuple(places)] = x
    return result[tuple(cut)]


@makes("iota")
def make_iota(device: torch.device, equation: Equation, *, dimension: int, **_: Any) -> Tensor:
    shape = equation.shape
    along = torch.arange(shape[dimension], device=device).to(CARRIERS[equation.dtype])
    return along.reshape([-1 if d == dimension else 1 for d in range(len(shape))]).expand(shape)


@makes("empty", "empty2")
def make_empty(device: torch.device, equation: Equation, **_: Any) -> Tensor:
    """Any value will do; zero is one."""
    return torch.zeros((), dtype=CARRIERS[equation.dtype], device=device).expand(equation.shape)


def starts_of(
    equation: Equation, first: int, shape: Sequence[int], sizes: Sequence[int], given: Sequence[Tensor]
) -> Any:
    """Where a box starts along each dimension, moved so that it fits: numbers where they are known, else tensors.

    Arguments:
      first: place of the first start among the equation's operands.
    """
    starts: list[Any] = []
    for place, (size, n, start) in enumerate(zip(sizes, shape, given, strict=True), first):
        known = equation.literals[place]
        if known is not None:
            starts.append(min(max(int(known), 0), n - size))
        elif size == n:
            starts.append(0)
        else:
            starts.append(_as_number(start, equation.dtypes_in[place]).clamp(0, n - size))
    return starts


def _as_number(start: Tensor, name: str) -> Tensor:
    wide = widened(start, name)
    return torch.where(wide < 0, torch.iinfo(torch.int64).max, wide) if name == "uint64" else wide


@evaluates("dynamic_slice")
def eval_dynamic_slice(equation: Equation, x: Tensor, *starts: Tensor, slice_sizes: Sequence[int], **_: Any) -> Tensor:
    """A start that is a tensor stays on its device: nothing waits for it."""
    for d, start in enumerate(starts_of(equation, 1, x.shape, slice_sizes, starts)):
        if isinstance(start, int):
            x = x.narrow(d, start, slice_sizes[d])
        else:
            x = x.index_select(d, start + torch.arange(slice_sizes[d], device=x.device))
    return x


@evaluates("dynamic_update_slice")
def eval_dynamic_update_slice(equation: Equation, x: Tensor, update: Tensor, *starts: Tensor, **_: Any) -> Tensor:
    result, rank = x.clone(memory_format=torch.contiguous_format), x.ndim
    if 0 in update.shape:
        return result
    if not rank:
        return update
    places = []
    for d, start in enumerate(starts_of(equation, 2, x.shape, update.shape, starts)):
        along = start + torch.arange(update.shape[d], device=x.device)
        places.append(along.reshape([-1 if i == d else 1 for i in range(rank)]))
    result[tuple(places)] = update
    return result
