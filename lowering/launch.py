"""How a compiled kernel is launched: read off the per-thread module."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.ops_kernel import PERSISTENT
from mosaic_gpu.errors import InternalError
from mosaic_gpu.lowering.tensor_maps import TensorMapFacts

MAX_GRID_X = 2**31 - 1
"""The largest number of blocks along x (PTX ISA, `%nctaid`; CUDA's compute capabilities table)."""

PROGRAMMATIC = "mgpu.programmatic"
"""The attribute of a function that waits for the grids before its own (see `mgpu.wait_for_grids`)."""

CLUSTER = "nvvm.cluster_dim"
"""NVVM's attribute of a function whose blocks come in clusters."""


@dataclass(frozen=True)
class LaunchFacts:
    """What a launch needs to know beside the arguments.

    Attributes:
      entry: name of the kernel in the PTX.
      grid: blocks along x, y, z; a zero means that nothing is launched, and (-1, 1, 1) that any number of blocks
        will do, best as many as run on the GPU at once (see `Target.blocks_at_once`).
      block: threads along x, y, z.
      shared_bytes: dynamic shared memory of a block.
      tensor_maps: of the parameters behind the pointers, in order.
      cluster: blocks of a cluster along x, y, z.
      programmatic: whether it may start before its predecessor on the stream has ended: it waits for it itself.
    """

    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    tensor_maps: tuple[TensorMapFacts, ...] = ()
    cluster: tuple[int, int, int] = (1, 1, 1)
    programmatic: bool = False


def grid_of(extents: Sequence[int]) -> tuple[int, int, int]:
    """Blocks along x, y and z for a logical grid: flattened, over x first, the rest over y."""
    if list(extents) == [PERSISTENT]:
        return (PERSISTENT, 1, 1)
    total = math.prod(extents)
    if total == 0:
        return (0, 1, 1)
    x = min(total, MAX_GRID_X)
    return (x, -(-total // x), 1)


def launch_facts(module: ir.Module) -> LaunchFacts:
    """The launch of the one kernel in a module of stage "nvvm".

    Raises InternalError where the module has no kernel.
    """
    for op in module.body.operations:
        if op.operation.name == "llvm.func" and "nvvm.kernel" in op.operation.attributes:
            return _facts(op.operation.attributes)
    raise InternalError("the module holds no llvm.func with the attribute nvvm.kernel")


def _facts(attributes: Any) -> LaunchFacts:
    extents = [ir.IntegerAttr(e).value for e in attributes["mgpu.grid"]]
    threads = 32 * ir.IntegerAttr(attributes["mgpu.num_warps"]).value
    shared = ir.IntegerAttr(attributes["mgpu.smem_bytes"]).value
    maps = tuple(TensorMapFacts.of(json.loads(ir.StringAttr(t).value)) for t in _tensor_maps(attributes))
    return LaunchFacts(
        entry=str(attributes["sym_name"].value),
        grid=grid_of(extents),
        block=(threads, 1, 1),
        shared_bytes=shared,
        tensor_maps=maps,
        cluster=_cluster(attributes),
        programmatic=PROGRAMMATIC in attributes,
    )


def _cluster(attributes: Any) -> tuple[int, int, int]:
    """The attribute that becomes `.reqnctapercluster` (PTX ISA); left out, a block is on its own."""
    if CLUSTER not in attributes:
        return (1, 1, 1)
    x, y, z = (*ir.DenseI32ArrayAttr(attributes[CLUSTER]), 1, 1)[:3]
    return (x, y, z)


def _tensor_maps(attributes: Any) -> Any:
    return attributes.get("mgpu.tensor_maps", ())
