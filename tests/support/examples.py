"""The kernels of `examples/` for their tests: each compiled to a cubin, and run on the simulator."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

import mosaic_gpu
from tests.support.backends import POISON

FOLDER = Path(__file__).parents[2] / "examples"


@functools.cache
def example(name: str) -> ModuleType:
    """The module of an example."""
    spec = importlib.util.spec_from_file_location(f"examples_{name}", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_compiled(call: Callable[..., Any], *arrays: Any) -> Any:
    """The results of a kernel as NumPy arrays, one or a tuple: its cubin spills nothing, and its PTX is simulated."""
    kernel = mosaic_gpu.compile(call, *arrays, target="sm_90a")
    used = kernel.resources
    assert (used.spill_store_bytes, used.spill_load_bytes) == (0, 0)
    results, _ = kernel.simulate(*arrays, poison=POISON)
    return results[0] if len(results) == 1 else tuple(results)


def doubles(*arrays: Any) -> tuple[np.ndarray[Any, Any], ...]:
    """Arrays of any dtype in float64."""
    return tuple(np.asarray(a).astype(np.float64) for a in arrays)


def normal(seed: int, *shape: int, dtype: Any = "float32") -> np.ndarray[Any, Any]:
    """Random numbers, normally distributed and rounded to `dtype`."""
    import jax.numpy as jnp

    return np.random.default_rng(seed).standard_normal(shape).astype(jnp.dtype(dtype))
