"""Functions of arrays as jaxprs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax


def traced(function: Callable[..., Any], avals: Sequence[Any], wide: bool) -> tuple[Any, Any]:
    """The closed jaxpr of a function of arrays, and the tree of its results' types."""
    if not wide:
        return tuple(jax.make_jaxpr(function, return_shape=True)(*avals))
    with jax.enable_x64(True):
        return tuple(jax.make_jaxpr(function, return_shape=True)(*avals))
