"""A `pallas_call` with one result, and numbers to call it with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl

import mosaic_gpu


def call(
    body: Callable[..., None],
    shape: tuple[int, ...],
    dtype: Any = jnp.float32,
    *,
    semantics: Sequence[str] | None = None,
    **rest: Any,
) -> Callable[..., Any]:
    """The call of a kernel body whose result has this shape and dtype.

    `semantics`: the `dimension_semantics`; `rest`: grid, specs and so on, as `pl.pallas_call` takes them.
    """
    params = mosaic_gpu.CompilerParams(dimension_semantics=semantics)
    return pl.pallas_call(body, jax.ShapeDtypeStruct(shape, dtype), compiler_params=params, **rest)


def random(*shape: int) -> np.ndarray[Any, Any]:
    """Normally distributed float32 numbers, the same for each shape every time."""
    return np.random.default_rng(sum(shape)).normal(size=shape).astype(np.float32)
