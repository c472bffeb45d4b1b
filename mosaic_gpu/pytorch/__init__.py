"""Functions of JAX that call kernels, as functions of PyTorch's tensors (`mosaic_gpu.as_torch`).

A function is traced by JAX once for each set of shapes, dtypes and static arguments; its equations become a flat list
of steps on tensors (`code.py`): a `pallas_call` a launch of the compiled kernel (`kernels.py`), every other primitive
one rule of PyTorch's functions (`rules_*.py`).  JAX runs nothing.  `plans.py` keeps such lists with their derivatives,
which JAX makes (`derivatives.py`), and `operator.py` makes of them the operator `mosaic_gpu::run`, which PyTorch
differentiates, compiles and batches like its own.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from mosaic_gpu.errors import ToolError

__all__ = ["as_torch"]


def as_torch(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of PyTorch's tensors that does what `fn` does with JAX's arrays.

    On CUDA tensors kernels are launched on PyTorch's current stream, on CPU tensors they run on the simulator.
    Gradients are those of JAX: of kernels by their `jax.custom_vjp`.  Works in `torch.compile(fullgraph=True)`.

    Arguments:
      fn: what `pl.pallas_call` returned, a function of JAX around it, or a `CompiledKernel`.  It takes arrays, tuples,
        lists and dicts of them, None, and numbers, strings and other hashable values, for each of which it is traced
        anew; and gives arrays, or tuples, lists and dicts of them.

    Calling the result raises:
      KernelError: the kernel is wrong, or an argument is none of these.
      UnsupportedError: the function contains what is not supported, or there is no derivative.
      ToolError: here, where PyTorch is not installed; where the driver refuses.
    """
    if find_spec("torch") is None:
        raise ToolError("PyTorch is not installed", hint="pip install 'mosaic-gpu[torch]'")
    from mosaic_gpu.pytorch.function import TorchFunction

    return TorchFunction(fn)
