"""A PTX simulator: runs kernels on NumPy arrays, exactly or not at all.

    module = load(ptx_text)
    result = module.launch("saxpy", grid=4, block=128, args=[n, a, x, y])

Needs NumPy and ml_dtypes only.
"""

from __future__ import annotations

from mosaic_gpu.simulator.launch import LaunchResult
from mosaic_gpu.simulator.module import Module, load
from mosaic_gpu.simulator.tensor_map import TensorMap

__all__ = ["LaunchResult", "Module", "TensorMap", "load"]
