"""sort, top_k and random numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.interpreter.code import Equation
from mosaic_gpu.interpreter.eval_elementwise import ordered_bits
from mosaic_gpu.interpreter.registry import evaluates, expands
from mosaic_gpu.interpreter.values import Array, is_float, keys_to_words, words_to_keys, working_dtype
from mosaic_gpu.lowering.jaxpr import compat


def _sort_key(x: Any) -> Array:
    """Integers in the order that `lax.sort` sorts by: -0 equals 0, and all NaNs are equal and last."""
    if not is_float(x.dtype):
        return np.asarray(x.astype(working_dtype(x.dtype)))
    bits = ordered_bits(np.where(x == 0, np.zeros((), x.dtype), x).astype(x.dtype))
    return np.where(np.isnan(x), np.iinfo(bits.dtype).max, bits)


@evaluates("sort")
def eval_sort(equation: Equation, *values: Any, dimension: int, num_keys: int, **_: Any) -> list[Array]:
    """Sorted by the first `num_keys` operands, stably."""
    keys = [_sort_key(v) for v in values[:num_keys]]
    order = np.lexsort(keys[::-1], axis=dimension)
    return [np.take_along_axis(np.asarray(v), order, dimension) for v in values]


@evaluates("top_k")
def eval_top_k(equation: Equation, x: Any, *, k: int, axis: int = -1, **_: Any) -> list[Array]:
    """The k largest in IEEE's total order, largest first; of equals the first come first."""
    return _extreme_k(equation, x, k, axis, largest=True)


@evaluates("approx_top_k")
def eval_approx_top_k(
    equation: Equation, x: Any, *, k: int, reduction_dimension: int, is_max_k: bool, aggregate_to_topk: bool, **_: Any
) -> list[Array]:
    """The exact answer, which any recall target allows."""
    if not aggregate_to_topk:
        raise UnsupportedError("approx_top_k without aggregate_to_topk", source=equation.source)
    return _extreme_k(equation, x, k, reduction_dimension, is_max_k)


def _extreme_k(equation: Equation, x: Any, k: int, axis: int, largest: bool) -> list[Array]:
    keys = ordered_bits(x) if is_float(x.dtype) else np.asarray(x.astype(working_dtype(x.dtype)))
    order = np.argsort(np.invert(keys) if largest else keys, axis=axis, kind="stable")
    first = np.take(order, range(k), axis=axis)
    return [np.take_along_axis(x, first, axis), first.astype(equation.avals_out[1].dtype)]


@evaluates("random_wrap")
def eval_random_wrap(equation: Equation, words: Any, **_: Any) -> Array:
    return words_to_keys(words)


@evaluates("random_unwrap")
def eval_random_unwrap(equation: Equation, keys: Any, **_: Any) -> Array:
    return keys_to_words(keys)


@evaluates("random_clone")
def eval_random_clone(equation: Equation, keys: Any, **_: Any) -> Any:
    return keys


_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


@evaluates("threefry2x32")
def eval_threefry2x32(equation: Equation, *values: Any, **_: Any) -> list[Array]:
    """Threefry-2x32 of 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011)."""
    key0, key1, x0, x1 = np.broadcast_arrays(*(np.asarray(v, np.uint32) for v in values))
    schedule = (key0, key1, key0 ^ key1 ^ np.uint32(0x1BD11BDA))
    x0, x1 = x0 + key0, x1 + key1
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            x0 = x0 + x1
            x1 = ((x1 << np.uint32(rotation)) | (x1 >> np.uint32(32 - rotation))) ^ x0
        x0 = x0 + schedule[(block + 1) % 3]
        x1 = x1 + schedule[(block + 2) % 3] + np.uint32(block + 1)
    return [x0, x1]


@evaluates("iota_2x32_shape")
def eval_iota_2x32_shape(equation: Equation, *, shape: Sequence[int], **_: Any) -> list[Array]:
    """High and low words of the row-major number of each element."""
    numbers = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.uint64).reshape(shape)
    return [(numbers >> np.uint64(32)).astype(np.uint32), numbers.astype(np.uint32)]


def _on_words(function: Callable[..., Any], results_are_keys: bool) -> Callable[..., Any]:
    """A function of keys' words as one of keys, in the equations that JAX traces."""
    import jax

    def apply(keys: Any, *rest: Any) -> Any:
        result = function(jax.random.key_data(keys), *rest)
        return jax.random.wrap_key_data(result, impl=jax.random.key_impl(keys)) if results_are_keys else result

    return apply


@expands("random_seed")
def expand_random_seed(equation: Equation, *, impl: Any, **_: Any) -> Callable[..., Any]:
    return lambda seeds: compat.wrap_words(compat.random_seed(seeds, impl), impl)


@expands("random_split")
def expand_random_split(equation: Equation, *, shape: Sequence[int], **_: Any) -> Callable[..., Any]:
    aval = equation.avals_in[0]
    return _on_words(lambda words: compat.random_split(aval, words, tuple(shape)), True)


@expands("random_fold_in")
def expand_random_fold_in(equation: Equation, **_: Any) -> Callable[..., Any]:
    aval = equation.avals_in[0]
    return _on_words(lambda words, data: compat.random_fold_in(aval, words, data), True)


@expands("random_bits")
def expand_random_bits(equation: Equation, *, bit_width: int, shape: Sequence[int], **_: Any) -> Callable[..., Any]:
    aval = equation.avals_in[0]
    return _on_words(lambda words: compat.random_bits(aval, words, bit_width, tuple(shape)), False)


@expands("random_gamma")
def expand_random_gamma(equation: Equation, *, log_space: bool, **_: Any) -> Callable[..., Any]:
    return lambda keys, a: compat.random_gamma(keys, a, log_space)
