"""What runs a kernel in a test: the simulator, our interpreter, or JAX's as a check of the test itself."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import cache
from typing import Any

import jax
import numpy as np

import mosaic_gpu
from mosaic_gpu.lowering.toolpaths import find_tool

POISON = 0xA7
"""Every byte of a result before the kernel runs: an element that is never written is plain to see."""

Run = Callable[..., Any]


def run_on_simulator(call: Callable[..., Any], *arrays: Any) -> Any:
    """Compiles the kernel that `call` calls and runs its PTX, between guards that catch writes past an array.

    Gives NumPy arrays: one, or a tuple where the kernel has several results.
    """
    kernel = mosaic_gpu.compile(call, *arrays)
    check_assembles(kernel.ptx, kernel.target)
    results, _ = kernel.simulate(*arrays, poison=POISON)
    return results[0] if len(results) == 1 else tuple(results)


@cache
def check_assembles(ptx: str, target: str) -> None:
    """ptxas, which is the judge of PTX and not the simulator, takes the code."""
    ptxas = find_tool("ptxas")
    assert ptxas is not None
    command = [str(ptxas), f"-arch={target}", "-O0", "-", "-o", "/dev/null"]
    done = subprocess.run(command, input=ptx, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


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
