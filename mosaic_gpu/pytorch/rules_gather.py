"""Gather and scatter, with all their dimension numbers and modes, as one advanced index."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.lowering.jaxpr import compat
from mosaic_gpu.pytorch.registry import Equation, evaluates, prepares
from mosaic_gpu.pytorch.values import is_float, is_unsigned, load, ordered, store, unordered, widened


def _places(
    indices: Tensor, shape: Sequence[int], result: Sequence[int], window_dims: Sequence[int], maps: Any
) -> tuple[list[Tensor], list[Tensor]]:
    """For each dimension of the operand where windows start, and the places within them; of the result's rank.

    Arguments:
      indices: int64, the start of a window along the last dimension.
      shape: of the operand.
      result: the shape that has a dimension for each of the indices' but the last, and the windows' `window_dims`.
      maps: dimensions of the operand that the starts are of; batch dimensions of operand and of indices; dimensions of
        the operand that windows do not have.
    """
    start_map, batch_operand, batch_indices, left_out = maps
    rank, device = len(result), indices.device
    batch_dims = [d for d in range(rank) if d not in window_dims]

    def along(d: int) -> Tensor:
        return torch.arange(result[d], device=device).reshape([-1 if i == d else 1 for i in range(rank)])

    def spread(values: Tensor) -> Tensor:
        sizes = [1] * rank
        for d, size in zip(batch_dims, values.shape, strict=True):
            sizes[d] = size
        return values.reshape(sizes)

    zero = torch.zeros([1] * rank, dtype=torch.int64, device=device)
    starts, within, windows = [], [], iter(window_dims)
    for d in range(len(shape)):
        if d in start_map:
            starts.append(spread(indices[..., start_map.index(d)]))
        elif d in batch_operand:
            starts.append(along(batch_dims[batch_indices[batch_operand.index(d)]]))
        else:
            starts.append(zero)
        within.append(zero if d in left_out else along(next(windows)))
    return starts, within


def _inside(starts: Sequence[Tensor], limits: Sequence[int], dims: Sequence[int]) -> Tensor | None:
    """Where windows fit along these dimensions; None where there are none."""
    inside = None
    for d in dims:
        here = (starts[d] >= 0) & (starts[d] <= limits[d])
        inside = here if inside is None else inside & here
    return inside


def _as_places(indices: Tensor, name: str) -> Tensor:
    wide = widened(indices, name)
    return torch.where(wide < 0, torch.iinfo(torch.int64).max, wide) if name == "uint64" else wide


@evaluates("gather")
def eval_gather(
    equation: Equation,
    operand: Tensor,
    indices: Tensor,
    *,
    dimension_numbers: Any,
    slice_sizes: Sequence[int],
    mode: Any,
    fill_value: Any,
    **_: Any,
) -> Tensor:
    """Starts out of range: clamped, or the window reads as `fill_value` (mode FILL_OR_DROP)."""
    numbers, shape = dimension_numbers, equation.shape
    left_out = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    maps = (numbers.start_index_map, numbers.operand_batching_dims, numbers.start_indices_batching_dims, left_out)
    if 0 in operand.shape or 0 in shape:
        return _filling(equation, operand, fill_value).expand(shape)
    indices = _as_places(indices, equation.dtypes_in[1])
    starts, within = _places(indices, operand.shape, shape, numbers.offset_dims, maps)
    limits = [n - size for n, size in zip(operand.shape, slice_sizes, strict=True)]
    inside = _inside(starts, limits, numbers.start_index_map) if mode.name == "FILL_OR_DROP" else None
    places = [s.clamp(0, limit) + w for s, w, limit in zip(starts, within, limits, strict=True)]
    result = operand[tuple(places)].expand(shape) if places else operand.expand(shape)
    return result if inside is None else torch.where(inside, result, _filling(equation, operand, fill_value))


def _filling(equation: Equation, like: Tensor, value: Any) -> Tensor:
    """What `lax.gather` fills with where no value is given: NaN, the least signed, the largest unsigned integer."""
    name = equation.dtype
    if value is None and name == "bool":
        value = True
    elif value is None and is_float(name):
        value = math.nan
    elif value is None:
        value = -1 if is_unsigned(name) else 255 if name == "uint8" else torch.iinfo(like.dtype).min
    if is_float(name):
        return store(torch.full((), float(value), dtype=torch.float64, device=like.device), name)
    number = int(value)
    if is_unsigned(name) and number > torch.iinfo(like.dtype).max:
        number -= 1 << 8 * like.element_size()
    return torch.full((), number, dtype=like.dtype, device=like.device)


_REDUCES = {"scatter_mul": "prod", "scatter_min": "amin", "scatter_max": "amax"}


def _kind(name: str) -> str:
    return name.replace("-", "_")


@evaluates(*(f"scatter{sep}{kind}" for kind in ("add", "sub", "mul", "min", "max") for sep in "-_"), "scatter")
def eval_scatter(
    equation: Equation,
    operand: Tensor,
    indices: Tensor,
    updates: Tensor,
    *,
    dimension_numbers: Any,
    mode: Any,
    **_: Any,
) -> Tensor:
    """Windows that do not fit are dropped, or clamped (mode CLIP); of several updates of one place one is kept."""
    numbers = dimension_numbers
    left_out = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    maps = (
        numbers.scatter_dims_to_operand_dims,
        numbers.operand_batching_dims,
        numbers.scatter_indices_batching_dims,
        left_out,
    )
    if 0 in updates.shape or 0 in operand.shape:
        return operand
    sizes = iter(numbers.update_window_dims)
    window = [1 if d in left_out else updates.shape[next(sizes)] for d in range(operand.ndim)]
    limits = [n - size for n, size in zip(operand.shape, window, strict=True)]
    indices = _as_places(indices, equation.dtypes_in[1])
    starts, within = _places(indices, operand.shape, updates.shape, numbers.update_window_dims, maps)
    inside = None
    if mode.name == "CLIP":
        starts = [s.clamp(0, limit) for s, limit in zip(starts, limits, strict=True)]
    else:
        inside = _inside(starts, limits, numbers.scatter_dims_to_operand_dims)
    return _combined(equation, operand, _linear(starts, within, operand.shape), updates, inside)


def _linear(starts: Sequence[Tensor], within: Sequence[Tensor], shape: Sequence[int]) -> Tensor:
    """The place of each update in the operand's elements, row-major."""
    place: Any = 0
    for s, w, n in zip(starts, within, shape, strict=True):
        place = place * n + s + w
    return torch.as_tensor(place)


def _combined(equation: Equation, operand: Tensor, places: Tensor, updates: Tensor, inside: Tensor | None) -> Tensor:
    """The operand with the updates at their places; those outside go to one behind the last, which is cut off."""
    name, kind = equation.dtype, _kind(equation.name)
    count = operand.numel()
    if inside is not None:
        places = torch.where(inside, places, count)
    places = places.to(operand.device).expand(updates.shape).reshape(-1)
    works, back = (ordered, unordered) if kind in ("scatter_min", "scatter_max") else (load, store)
    old, new = works(operand, name).reshape(-1), works(updates, name).reshape(-1)
    if old.dtype is torch.bool and kind != "scatter":
        old, new = old.to(torch.uint8), new.to(torch.uint8)
    memory = torch.cat([old, old[:1]])
    if kind == "scatter":
        memory.scatter_(0, places, new)
    elif kind in ("scatter_add", "scatter_sub"):
        memory.index_add_(0, places, new, alpha=1 if kind == "scatter_add" else -1)
    else:
        memory.scatter_reduce_(0, places, new, _REDUCES[kind], include_self=True)
    return back(memory[:count].reshape(operand.shape), name)


@prepares("scatter")
def prepare_scatter(equation: Equation) -> None:
    """`scatter` proper puts the update in the place of what was there; any other function is refused."""
    jaxpr = equation.params.get("update_jaxpr")
    if jaxpr is None:
        return
    opened = compat.open_jaxpr(jaxpr)
    if opened.eqns or opened.outvars[0] is not opened.invars[1]:
        raise UnsupportedError("as_torch has no rule for scatter with a function (x.at[i].apply)")
