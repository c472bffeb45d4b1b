"""What runs a kernel in a test: the simulator, our interpreter, or JAX's as a check of the test itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import mosaic_gpu

POISON = 0xA7
"""Every byte of a result before the kernel runs: an element that is never written is plain to see."""

Run = Callable[..., Any]


def run_on_simulator(call: Callable[..., Any], *arrays: Any) -> Any:
    """Compiles the kernel that `call` calls and runs its PTX, between guards that catch writes past an array.

    Gives NumPy arrays: one, or a tuple where the kernel has several results.
    """
    results, _ = mosaic_gpu.compile(call, *arrays).simulate(*arrays, poison=POISON)
    return results[0] if len(results) == 1 else tuple(results)


LENIENT = mosaic_gpu.InterpretParams(
    uninitialised=POISON, out_of_bounds="ignore", unwritten_outputs="ignore", uninitialised_reads="ignore"
)
"""For kernels that test what indices out of range, and elements that nothing wrote, give."""


def run_in_interpreter(call: Callable[..., Any], *arrays: Any) -> Any:
    """Runs the kernel's jaxpr with NumPy; NumPy arrays as of `run_on_simulator`."""
    results = jax.tree.leaves(mosaic_gpu.interpret(call, *arrays, params=LENIENT))
    return results[0] if len(results) == 1 else tuple(results)


def run_in_jax(call: Callable[..., Any], *arrays: Any) -> Any:
    """What JAX's interpreter makes of the same kernel."""
    results = jax.tree.leaves(_interpreted(call)(*arrays))
    return np.asarray(results[0]) if len(results) == 1 else tuple(np.asarray(r) for r in results)


def _interpreted(call: Callable[..., Any]) -> Callable[..., Any]:
    from mosaic_gpu.lowering.jaxpr import compat

    def evaluate(*arrays: Any) -> Any:
        jaxpr = compat.open_jaxpr(jax.make_jaxpr(call)(*arrays))
        (equation,) = jaxpr.eqns
        return compat.pallas_call_p.bind(*jax.tree.leaves(arrays), **{**equation.params, "interpret": True})

    return evaluate


BACKENDS: dict[str, Run] = {"simulator": run_on_simulator, "interpreter": run_in_interpreter, "jax": run_in_jax}
