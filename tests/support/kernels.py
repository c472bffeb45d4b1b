"""Kernels for tests in one line: a function of arrays becomes the body of a one-block kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl

import mosaic_gpu


def kernel_of(fn: Callable[..., Any], outputs: int) -> Callable[..., None]:
    """A kernel body that reads its input references whole, applies `fn`, and writes the results whole."""

    def body(*refs: Any) -> None:
        inputs, results = refs[: len(refs) - outputs], refs[len(refs) - outputs :]
        values = fn(*(ref[...] for ref in inputs))
        for ref, value in zip(results, values if isinstance(values, (tuple, list)) else (values,), strict=True):
            ref[...] = value

    body.__name__ = getattr(fn, "__name__", "kernel").replace("<lambda>", "kernel")
    return body


def one_block(fn: Callable[..., Any], *arrays: Any, **params: Any) -> Callable[..., Any]:
    """A `pallas_call` whose one block computes `fn` of whole arrays; results are of `fn`'s shapes and dtypes.

    Arguments:
      fn: from arrays to an array, or to a tuple of arrays; traceable by JAX.
      arrays: what it will be called with; only shapes and dtypes count.
      params: for `mosaic_gpu.CompilerParams`.
    """
    shapes = jax.eval_shape(fn, *(jnp.asarray(a) for a in arrays))
    outputs = len(jax.tree.leaves(shapes))
    return pl.pallas_call(kernel_of(fn, outputs), out_shape=shapes, compiler_params=mosaic_gpu.CompilerParams(**params))


def blocked(
    fn: Callable[..., Any],
    out_shape: Any,
    *,
    grid: Sequence[int],
    in_specs: Sequence[Any],
    out_specs: Any,
    **params: Any,
) -> Callable[..., Any]:
    """A `pallas_call` that computes `fn` of each block; arguments as of `pl.pallas_call` and `CompilerParams`."""
    return pl.pallas_call(
        kernel_of(fn, len(jax.tree.leaves(out_shape))),
        out_shape=out_shape,
        grid=tuple(grid),
        in_specs=list(in_specs),
        out_specs=out_specs,
        compiler_params=mosaic_gpu.CompilerParams(**params),
    )


def accumulate_product(x_ref: Any, y_ref: Any, o_ref: Any, acc_ref: Any) -> None:
    """A block of a matrix product, summed in scratch memory along the grid's third dimension."""

    @pl.when(pl.program_id(2) == 0)
    def _() -> None:
        acc_ref[...] = jnp.zeros_like(acc_ref)

    acc_ref[...] += jnp.dot(x_ref[...], y_ref[...], preferred_element_type=jnp.float32)

    @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
    def _() -> None:
        o_ref[...] = acc_ref[...].astype(o_ref.dtype)
