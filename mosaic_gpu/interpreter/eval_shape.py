"""Primitives that move elements: broadcasts, reshapes, slices, padding and the like."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.interpreter.code import Equation
from mosaic_gpu.interpreter.registry import evaluates
from mosaic_gpu.interpreter.values import Array


@evaluates("broadcast_in_dim")
def eval_broadcast_in_dim(
    equation: Equation, x: Any, *_: Any, shape: Sequence[int], broadcast_dimensions: Sequence[int], **__: Any
) -> Array:
    kept = [1] * len(shape)
    for source, target in enumerate(broadcast_dimensions):
        kept[target] = x.shape[source]
    return np.broadcast_to(np.reshape(x, kept), equation.shape)


@evaluates("broadcast_to")
def eval_broadcast_to(equation: Equation, x: Any, **_: Any) -> Array:
    return np.broadcast_to(x, equation.shape)


@evaluates("reshape")
def eval_reshape(equation: Equation, x: Any, *_: Any, dimensions: Sequence[int] | None, **__: Any) -> Array:
    return np.reshape(x if dimensions is None else np.transpose(x, dimensions), equation.shape)


@evaluates("squeeze", "expand_dims")
def eval_squeeze(equation: Equation, x: Any, **_: Any) -> Array:
    return np.reshape(x, equation.shape)


@evaluates("transpose")
def eval_transpose(equation: Equation, x: Any, *, permutation: Sequence[int], **_: Any) -> Array:
    return np.transpose(x, permutation)


@evaluates("slice")
def eval_slice(
    equation: Equation,
    x: Any,
    *,
    start_indices: Sequence[int],
    limit_indices: Sequence[int],
    strides: Sequence[int] | None,
    **_: Any,
) -> Array:
    steps = strides or [1] * x.ndim
    result: Array = x[tuple(slice(a, b, s) for a, b, s in zip(start_indices, limit_indices, steps, strict=True))]
    return result


@evaluates("rev")
def eval_rev(equation: Equation, x: Any, *, dimensions: Sequence[int], **_: Any) -> Array:
    return np.flip(x, tuple(dimensions))


@evaluates("split")
def eval_split(equation: Equation, x: Any, *, sizes: Sequence[int], axis: int, **_: Any) -> list[Array]:
    return np.split(x, np.cumsum([int(s) for s in sizes])[:-1], axis)


@evaluates("unstack")
def eval_unstack(equation: Equation, x: Any, *, axis: int, **_: Any) -> list[Array]:
    return list(np.moveaxis(x, axis, 0))


@evaluates("concatenate")
def eval_concatenate(equation: Equation, *values: Any, dimension: int, **_: Any) -> Array:
    return np.concatenate(values, dimension)


@evaluates("stack")
def eval_stack(equation: Equation, *values: Any, axis: int, **_: Any) -> Array:
    return np.stack(values, axis)


@evaluates("tile")
def eval_tile(equation: Equation, x: Any, *, reps: Sequence[int], **_: Any) -> Array:
    return np.tile(x, tuple(reps))


@evaluates("pad")
def eval_pad(
    equation: Equation, x: Any, padding: Any, *, padding_config: Sequence[tuple[int, int, int]], **_: Any
) -> Array:
    """Negative padding takes elements away; interior padding goes between elements."""
    wide = [max((n - 1) * (step + 1) + 1, 0) for n, (_l, _h, step) in zip(x.shape, padding_config, strict=True)]
    result: Array = np.full(
        [w + max(lo, 0) + max(hi, 0) for w, (lo, hi, _s) in zip(wide, padding_config, strict=True)], padding, x.dtype
    )
    places, cut = [], []
    for w, n, (low, high, step) in zip(wide, result.shape, padding_config, strict=True):
        places.append(slice(max(low, 0), max(low, 0) + w, step + 1))
        cut.append(slice(max(-low, 0), n - max(-high, 0)))
    result[tuple(places)] = x
    return result[tuple(cut)]


@evaluates("iota")
def eval_iota(equation: Equation, *_: Any, dimension: int, **__: Any) -> Array:
    if "iota" not in equation.cache:
        shape = equation.shape
        along = np.arange(shape[dimension]).astype(equation.dtype)
        equation.cache["iota"] = np.broadcast_to(
            along.reshape([-1 if d == dimension else 1 for d in range(len(shape))]), shape
        )
    result: Array = equation.cache["iota"]
    return result


@evaluates("empty", "empty2")
def eval_empty(equation: Equation, **_: Any) -> Array:
    """Any value will do; zero is one."""
    return np.zeros(equation.shape, equation.dtype)


@evaluates("platform_index")
def eval_platform_index(equation: Equation, *, platforms: Any, **_: Any) -> Any:
    """Which of `lax.platform_dependent`'s branches: the one for "cuda", else the default."""
    for wanted in ("cuda", None):
        for index, names in enumerate(platforms):
            if (names is None) if wanted is None else (names is not None and wanted in names):
                return np.int32(index)
    raise UnsupportedError("platform_dependent without a branch for cuda and without a default", source=equation.source)


def boxes(starts: Sequence[Any], sizes: Sequence[int], shape: Sequence[int]) -> tuple[slice, ...]:
    """The box of `sizes` at `starts`, moved so that it fits `shape` (lax.dynamic_slice)."""
    firsts = [min(max(int(i), 0), n - size) for i, size, n in zip(starts, sizes, shape, strict=True)]
    return tuple(slice(first, first + size) for first, size in zip(firsts, sizes, strict=True))


@evaluates("dynamic_slice")
def eval_dynamic_slice(equation: Equation, x: Any, *starts: Any, slice_sizes: Sequence[int], **_: Any) -> Array:
    result: Array = x[boxes(starts, slice_sizes, x.shape)]
    return result


@evaluates("dynamic_update_slice")
def eval_dynamic_update_slice(equation: Equation, x: Any, update: Any, *starts: Any, **_: Any) -> Array:
    result = np.array(x)
    result[boxes(starts, np.shape(update), result.shape)] = update
    return result
