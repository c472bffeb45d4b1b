"""lax.gather and lax.scatter in full: index arithmetic with one NumPy array an operand dimension."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mosaic_gpu.interpreter.code import Equation, run_values, traced
from mosaic_gpu.interpreter.eval_elementwise import widen
from mosaic_gpu.interpreter.registry import evaluates
from mosaic_gpu.interpreter.values import Array, is_float
from mosaic_gpu.lowering.jaxpr import compat


def _along(size: int, dim: int, rank: int) -> Array:
    return np.arange(size).reshape([-1 if d == dim else 1 for d in range(rank)])


def _places(
    operand: Array, indices: Array, shape: Sequence[int], offset_dims: Sequence[int], window: Sequence[int], maps: Any
) -> tuple[list[Array], list[Array]]:
    """For each operand dimension the start of the window and the place in it, of arrays that broadcast to `shape`.

    `maps`: (dims of the index vector, operand batching dims, indices batching dims, dims left out of the window).
    """
    index_map, operand_batch, indices_batch, left_out = maps
    rank = len(shape)
    batch_dims = [d for d in range(rank) if d not in offset_dims]
    starts: list[Array] = [np.zeros([1] * rank, np.int64) for _ in operand.shape]
    batch_shape = indices.shape[:-1]
    for position, dim in enumerate(index_map):
        column = indices[..., position].astype(np.int64 if indices.dtype != np.uint64 else np.float64)
        wide = [1] * rank
        for d, n in zip(batch_dims, batch_shape, strict=True):
            wide[d] = n
        starts[dim] = column.reshape(wide)
    for dim, batch in zip(operand_batch, indices_batch, strict=True):
        starts[dim] = _along(batch_shape[batch], batch_dims[batch], rank)
    within: list[Array] = [np.zeros([1] * rank, np.int64) for _ in operand.shape]
    kept = [d for d in range(operand.ndim) if d not in left_out]
    for dim, target in zip(kept, offset_dims, strict=True):
        within[dim] = _along(window[dim], target, rank)
    return starts, within


def _limits(operand: Array, window: Sequence[int]) -> list[int]:
    return [n - w for n, w in zip(operand.shape, window, strict=True)]


def _inside(starts: Sequence[Array], limits: Sequence[int], dims: Sequence[int]) -> Any:
    inside: Any = np.bool_(True)
    for d in dims:
        inside = inside & (starts[d] >= 0) & (starts[d] <= limits[d])
    return inside


def _clamped(starts: Sequence[Array], limits: Sequence[int]) -> list[Array]:
    return [np.clip(s, 0, max(limit, 0)).astype(np.int64) for s, limit in zip(starts, limits, strict=True)]


@evaluates("gather")
def eval_gather(
    equation: Equation,
    operand: Any,
    indices: Any,
    *,
    dimension_numbers: Any,
    slice_sizes: Sequence[int],
    mode: Any,
    fill_value: Any,
    **_: Any,
) -> Array:
    """Starts out of range: clamped, or the window reads as `fill_value` (mode FILL_OR_DROP)."""
    numbers = dimension_numbers
    left_out = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    maps = (numbers.start_index_map, numbers.operand_batching_dims, numbers.start_indices_batching_dims, left_out)
    if 0 in equation.shape:
        return np.zeros(equation.shape, equation.dtype)
    starts, within = _places(operand, indices, equation.shape, numbers.offset_dims, slice_sizes, maps)
    limits = _limits(operand, slice_sizes)
    fills = mode.name == "FILL_OR_DROP"
    inside = _inside(starts, limits, numbers.start_index_map) if fills else np.bool_(True)
    places = [
        np.clip(s + w, 0, max(n - 1, 0))
        for s, w, n in zip(_clamped(starts, limits), within, operand.shape, strict=True)
    ]
    if 0 in operand.shape:
        return np.full(equation.shape, _fill(equation.dtype, fill_value), equation.dtype)
    result = np.broadcast_to(np.asarray(operand)[tuple(places)] if places else operand, equation.shape)
    if np.all(inside):
        return result
    return np.where(inside, result, np.asarray(_fill(equation.dtype, fill_value), equation.dtype))


def _fill(dtype: Any, value: Any) -> Any:
    """What `lax.gather` fills with where no value is given: NaN, the least signed, the largest unsigned integer."""
    if value is not None:
        return value
    if is_float(dtype):
        return np.nan
    if dtype == np.bool_:
        return True
    if dtype.kind == "V":
        return np.zeros((), dtype)
    return np.iinfo(dtype).min if dtype.kind == "i" else np.iinfo(dtype).max


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "scatter-add": np.add,
    "scatter_add": np.add,
    "scatter_sub": np.subtract,
    "scatter-sub": np.subtract,
    "scatter_mul": np.multiply,
    "scatter-mul": np.multiply,
    "scatter_min": np.minimum,
    "scatter-min": np.minimum,
    "scatter_max": np.maximum,
    "scatter-max": np.maximum,
}


@evaluates("scatter", *_COMBINE)
def eval_scatter(
    equation: Equation,
    operand: Any,
    indices: Any,
    updates: Any,
    *,
    dimension_numbers: Any,
    update_jaxpr: Any,
    mode: Any,
    **_: Any,
) -> Array:
    """Windows that do not fit are dropped, or clamped (mode CLIP); updates of one place come in row-major order."""
    result, numbers = np.array(operand), dimension_numbers
    left_out = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    maps = (
        numbers.scatter_dims_to_operand_dims,
        numbers.operand_batching_dims,
        numbers.scatter_indices_batching_dims,
        left_out,
    )
    if 0 in np.shape(updates) or 0 in result.shape:
        return result
    sizes = iter(numbers.update_window_dims)
    window = [1 if d in left_out else updates.shape[next(sizes)] for d in range(result.ndim)]
    starts, within = _places(result, indices, updates.shape, numbers.update_window_dims, window, maps)
    limits = _limits(result, window)
    inside: Any = np.bool_(True)
    if mode.name == "CLIP":
        starts = _clamped(starts, limits)
    else:
        inside = _inside(starts, limits, numbers.scatter_dims_to_operand_dims)
    inside = np.broadcast_to(inside, updates.shape)
    places = tuple(
        np.broadcast_to(s + w, updates.shape)[inside].astype(np.int64) for s, w in zip(starts, within, strict=True)
    )
    _combine(equation, result, places, np.asarray(updates)[inside], update_jaxpr)
    return result


def _combine(equation: Equation, result: Array, places: tuple[Array, ...], updates: Array, jaxpr: Any) -> None:
    if equation.name == "scatter" and _is_replacement(jaxpr):
        result[places] = updates
        return
    if equation.name in _COMBINE and result.dtype != np.bool_:
        function = _COMBINE[equation.name]
        (wide, values) = widen(result, updates)
        if wide.dtype.kind in "iuf":
            total = np.array(wide)
            function.at(total, places, values)  # type: ignore[attr-defined]
            result[...] = total
            return
    code = equation.cache.setdefault("update", None) or traced(
        lambda a, b: compat.eval_jaxpr(jaxpr, (a, b))[0], [_scalar(equation)] * 2
    )
    equation.cache["update"] = code
    for number, value in enumerate(updates):
        place = tuple(int(p[number]) for p in places)
        result[place] = run_values(code, [result[place], value])[0]


def _scalar(equation: Equation) -> Any:
    return equation.avals_in[0].update(shape=())


def _is_replacement(jaxpr: Any) -> bool:
    """Whether the update function gives its second argument: `scatter` proper."""
    opened = compat.open_jaxpr(jaxpr)
    return jaxpr is None or (not opened.eqns and opened.outvars[0] is opened.invars[1])
