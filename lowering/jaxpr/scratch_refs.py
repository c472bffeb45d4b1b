"""Memory that a kernel asks for: `scratch_shapes`, `run_scoped`, `jax.new_ref`."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.lowering.jaxpr import emit
from mosaic_gpu.lowering.jaxpr.compat import AbstractRef, is_accumulator
from mosaic_gpu.lowering.jaxpr.dtypes import element_type

# What Pallas' back ends call the memory of a block.  `None` and "device" are what `jax.new_ref` gives.
_BLOCK_MEMORY = ("none", "any", "default", "device", "smem", "vmem", "shared", "regs", "registers")


def alloc_scratch(aval: Any) -> ir.Value:
    """Shared memory for a reference's abstract value; accumulators, too, which `promote-refs` brings to registers.

    Raises UnsupportedError, by name, for what is not plain memory of the block: barriers, semaphores,
    global and tensor memory, transformed (tiled, swizzled) references.
    """
    if not isinstance(aval, AbstractRef):
        raise UnsupportedError(
            f"scratch memory {aval} is not supported", hint="use plain shared memory: plgpu.SMEM(shape, dtype)"
        )
    space = str(getattr(aval.memory_space, "value", aval.memory_space)).lower()
    is_known = type(aval) is AbstractRef or is_accumulator(aval)
    if not is_known or not _is_plain(aval.dtype):
        raise UnsupportedError(f"scratch memory of type {aval} is not supported (barriers and semaphores are not)")
    if space not in _BLOCK_MEMORY:
        raise UnsupportedError(
            f"scratch memory in {space!r} is not supported", hint="use shared memory: plgpu.SMEM(shape, dtype)"
        )
    return emit.alloc(aval.shape, element_type(aval.dtype))


def _is_plain(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and (dtype == np.bool_ or bool(jnp.issubdtype(dtype, np.number)))
