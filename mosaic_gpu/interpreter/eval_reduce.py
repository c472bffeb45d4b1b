"""Reductions, running reductions, windows and products of matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mosaic_gpu.interpreter.code import Code, Equation, run_values, traced
from mosaic_gpu.interpreter.registry import evaluates
from mosaic_gpu.interpreter.values import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, Array, is_float, sum_dtype, working_dtype
from mosaic_gpu.lowering.jaxpr import compat

_UFUNCS = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_BOOLEAN = {"max": np.logical_or, "min": np.logical_and}


def _work(name: str, x: Any) -> Any:
    """`x` in the dtype that a reduction is done in, with the ufunc."""
    dtype = sum_dtype(x.dtype) if name in ("sum", "prod") else working_dtype(x.dtype)
    ufunc = _BOOLEAN[name] if x.dtype == np.bool_ and name in _BOOLEAN else _UFUNCS[name]
    return np.asarray(x).astype(dtype, copy=False), ufunc


def identity(name: str, dtype: Any) -> Any:
    """The value that leaves others as they are."""
    if name in ("sum", "or", "xor"):
        return np.zeros((), dtype)
    if name == "prod" or (name == "and" and dtype == np.bool_):
        return np.ones((), dtype)
    if dtype == np.bool_:
        return np.bool_(name == "min")
    if is_float(dtype):
        return np.asarray(-np.inf if name == "max" else np.inf).astype(dtype)
    info = np.iinfo(dtype)
    return np.asarray({"max": info.min, "min": info.max, "and": -1 if info.min else info.max}[name]).astype(dtype)


@evaluates(*(f"{prefix}reduce_{name}" for name in _UFUNCS for prefix in ("", "mosaic_gpu_")))
def eval_named_reduction(equation: Equation, x: Any, *, axes: Sequence[int], **_: Any) -> Any:
    """Sums and products of small floats are kept in float32, of float32 in float64, and rounded once."""
    name = equation.name.removeprefix("mosaic_gpu_").removeprefix("reduce_")
    work, ufunc = _work(name, x)
    start = {"initial": identity(name, work.dtype)} if work.size == 0 else {}
    result = ufunc.reduce(work, axis=tuple(axes), dtype=work.dtype, **start)
    if name in ("max", "min") and is_float(work.dtype):
        result = _signed_zero(name, work, result, tuple(axes))
    return np.asarray(result).astype(equation.dtype)


def _signed_zero(name: str, x: Array, extreme: Any, axes: tuple[int, ...]) -> Any:
    """0 is more than -0, which NumPy does not say."""
    if not np.any(extreme == 0):
        return extreme
    chosen = ~np.signbit(x) if name == "max" else np.signbit(x)
    found = np.any(chosen & (x == 0), axis=axes)
    zero = np.where(found, 0.0, -0.0) if name == "max" else np.where(found, -0.0, 0.0)
    return np.where(extreme == 0, zero.astype(x.dtype), extreme)


@evaluates("argmax", "argmin")
def eval_arg_extreme(equation: Equation, x: Any, *, axes: Sequence[int], **_: Any) -> Any:
    """The first index of the extreme, where a NaN counts as one."""
    (axis,) = axes
    work = x.astype(np.float64) if is_float(x.dtype) and x.dtype != FLOAT64 else x.astype(working_dtype(x.dtype))
    function = np.argmax if equation.name == "argmax" else np.argmin
    return function(work, axis).astype(equation.dtype)


@evaluates("cumsum", "cumprod", "cummax", "cummin")
def eval_named_scan(equation: Equation, x: Any, *, axis: int, reverse: bool, **_: Any) -> Any:
    """Each result is rounded once."""
    work, ufunc = _work(equation.name.removeprefix("cum"), x)
    return _running(work, axis, reverse, lambda v: ufunc.accumulate(v, axis, dtype=v.dtype)).astype(equation.dtype)


@evaluates("cumlogsumexp")
def eval_cumlogsumexp(equation: Equation, x: Any, *, axis: int, reverse: bool, **_: Any) -> Any:
    wide = x.astype(np.float64)
    return _running(wide, axis, reverse, lambda v: np.logaddexp.accumulate(v, axis)).astype(equation.dtype)


def _running(x: Array, axis: int, reverse: bool, function: Callable[[Array], Array]) -> Array:
    return np.flip(function(np.flip(x, axis)), axis) if reverse else function(x)


def mapped(equation: Equation, jaxpr: Any, operands: int, shape: tuple[int, ...]) -> Code:
    """The code of a jaxpr of scalars, for arrays of `shape` (an operand is an aval of the equation's)."""
    key = ("mapped", shape)
    if key not in equation.cache:
        function = lambda *values: compat.eval_jaxpr(jaxpr, values)  # noqa: E731
        avals = [a.update(shape=shape) for a in equation.avals_in[:operands]] * 2
        equation.cache[key] = traced(_vectorised(function, len(shape)), avals)
    code: Code = equation.cache[key]
    return code


def _vectorised(function: Callable[..., Any], rank: int) -> Callable[..., Any]:
    import jax

    for _ in range(rank):
        function = jax.vmap(function)
    return function


@evaluates("reduce")
def eval_reduce(equation: Equation, *values: Any, jaxpr: Any, dimensions: Sequence[int], **_: Any) -> list[Array]:
    """Any function of scalars, element after element in row-major order."""
    count = len(values) // 2
    kept = equation.shape
    stacks = []
    for value in values[:count]:
        front = np.moveaxis(value, tuple(dimensions), range(len(dimensions)))
        stacks.append(front.reshape(-1, *kept))
    state: list[Any] = [np.broadcast_to(v, kept) for v in values[count:]]
    code = mapped(equation, jaxpr, count, kept)
    for row in zip(*stacks, strict=True):
        state = run_values(code, [*state, *row])
    return [np.asarray(s) for s in state]


_WINDOWS = {"reduce_window_sum": "sum", "reduce_window_max": "max", "reduce_window_min": "min"}


@evaluates(*_WINDOWS)
def eval_named_window(equation: Equation, x: Any, **params: Any) -> Any:
    name = _WINDOWS[equation.name]
    work, ufunc = _work(name, x)
    (padded,), places = _windows([work], [identity(name, work.dtype)], params)
    total: Any = None
    for place in places:
        piece = padded[place]
        total = piece if total is None else ufunc(total, piece)
    return np.asarray(np.full(equation.shape, identity(name, work.dtype)) if total is None else total).astype(
        equation.dtype
    )


@evaluates("reduce_window")
def eval_reduce_window(equation: Equation, *values: Any, jaxpr: Any, consts: Any = (), **params: Any) -> list[Array]:
    """Any function of scalars, over windows of one or several arrays."""
    count = len(values) // 2
    padded, places = _windows(values[:count], values[count:], params)
    state: list[Any] = [np.broadcast_to(v, equation.shape) for v in values[count:]]
    code = mapped(equation, jaxpr, count, equation.shape)
    for place in places:
        state = run_values(code, [*state, *(p[place] for p in padded)])
    return [np.asarray(s) for s in state]


def _windows(values: Sequence[Any], starts: Sequence[Any], params: dict[str, Any]) -> tuple[list[Array], list[Any]]:
    """The arrays padded and dilated, and for each place in the window the slice that all windows have there."""
    rank = values[0].ndim
    window, strides = params["window_dimensions"], params["window_strides"]
    dilation = params.get("base_dilation") or (1,) * rank
    steps = params.get("window_dilation") or (1,) * rank
    padding = params["padding"]
    shape = [max((n - 1) * d + 1, 0) for n, d in zip(values[0].shape, dilation, strict=True)]
    full = [n + lo + hi for n, (lo, hi) in zip(shape, padding, strict=True)]
    padded = []
    for value, start in zip(values, starts, strict=True):
        array = np.full(full, start, value.dtype)
        array[tuple(slice(lo, lo + n, d) for n, d, (lo, _h) in zip(shape, dilation, padding, strict=True))] = value
        padded.append(array)
    spans = [(w - 1) * s + 1 for w, s in zip(window, steps, strict=True)]
    counts = [max((n - span) // stride + 1, 0) for n, span, stride in zip(full, spans, strides, strict=True)]
    places = []
    for offset in np.ndindex(*window):
        first = [o * s for o, s in zip(offset, steps, strict=True)]
        places.append(
            tuple(slice(f, f + (c - 1) * t + 1, t) for f, c, t in zip(first, counts, strides, strict=True))
            if all(counts)
            else tuple(
                slice(0, 0) if not c else slice(0, (c - 1) * t + 1, t) for c, t in zip(counts, strides, strict=True)
            )
        )
    return padded, places


def product(a: Any, b: Any, dtype: Any) -> Any:
    """The matrix product of the last two dimensions, in `dtype`: small floats are summed in float32, float32 in
    float64, integers wrap around."""
    if is_float(dtype):
        work = FLOAT32 if a.dtype.itemsize < 4 and b.dtype.itemsize < 4 and dtype != FLOAT64 else FLOAT64
        return np.matmul(a.astype(work), b.astype(work)).astype(dtype)
    if a.dtype.itemsize == b.dtype.itemsize == 1 and a.shape[-1] < 2**36:
        # Products of bytes add up exactly in float64.
        return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64).astype(dtype)
    return np.matmul(a.astype(dtype), b.astype(dtype))


_ROUNDED = {
    name: dtype
    for dtype, names in {
        BFLOAT16: ("BF16_BF16_BF16", "BF16_BF16_F32"),
        FLOAT16: ("F16_F16_F16", "F16_F16_F32"),
    }.items()
    for name in names
}


@evaluates("dot_general")
def eval_dot_general(
    equation: Equation, a: Any, b: Any, *, dimension_numbers: Any, precision: Any = None, **_: Any
) -> Any:
    """With an algorithm that says so, the operands are rounded first."""
    rounded = _ROUNDED.get(str(getattr(precision, "name", "")))
    if rounded is not None:
        a, b = a.astype(rounded), b.astype(rounded)
    (contract_a, contract_b), (batch_a, batch_b) = dimension_numbers
    left = _as_matrices(a, batch_a, contract_a, last=True)
    right = _as_matrices(b, batch_b, contract_b, last=False)
    if equation.dtype == np.bool_:
        return (product(left.astype(np.int32), right.astype(np.int32), np.dtype(np.int32)) > 0).reshape(equation.shape)
    return product(left, right, equation.dtype).reshape(equation.shape)


def _as_matrices(x: Any, batch: Sequence[int], contract: Sequence[int], last: bool) -> Any:
    free = [d for d in range(x.ndim) if d not in batch and d not in contract]
    order = [*batch, *free, *contract] if last else [*batch, *contract, *free]
    sizes = [x.shape[d] for d in free]
    count, depth = int(np.prod(sizes, dtype=int)), int(np.prod([x.shape[d] for d in contract], dtype=int))
    shape = (count, depth) if last else (depth, count)
    return np.transpose(x, order).reshape(*(x.shape[d] for d in batch), *shape)


@evaluates("mma")
def eval_mma(equation: Equation, acc: Any, a: Any, b: Any, **_: Any) -> Any:
    """acc + a @ b."""
    return (acc + product(a, b, equation.dtype)).astype(equation.dtype)
