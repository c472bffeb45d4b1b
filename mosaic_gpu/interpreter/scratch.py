"""Memory and barriers that a kernel asks for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.interpreter.barriers import Barrier, BarrierArray
from mosaic_gpu.interpreter.code import Equation
from mosaic_gpu.interpreter.memory import tile
from mosaic_gpu.interpreter.values import numpy_dtype

_SPACES = ("none", "any", "default", "device", "smem", "vmem", "shared", "regs", "registers", "gmem")


def space_of(aval: Any) -> str:
    """The memory space of a reference's abstract value, by name."""
    return str(getattr(aval.memory_space, "value", aval.memory_space)).lower()


def allocate_scratch(thread: Any, aval: Any, transforms: Sequence[Any], name: str) -> Any:
    """Memory, or barriers, of an abstract reference; the transforms are those that every use undoes.

    Raises UnsupportedError, by name, for what the interpreter does not model: tensor memory, semaphores.
    """
    inner = getattr(aval, "inner_aval", None)
    if inner is None:
        raise UnsupportedError(f"scratch memory {aval} is not supported", source=thread.source)
    kind = type(inner.dtype).__name__
    if kind in ("BarrierType", "ClusterBarrierType"):
        return _barriers(thread, inner, name, kind == "ClusterBarrierType")
    space, dtype = space_of(aval), numpy_dtype(inner)
    if space not in _SPACES or dtype is None:
        raise UnsupportedError(
            f"scratch memory of type {aval} is not supported by the interpreter", source=thread.source
        )
    space = "regs" if space in ("regs", "registers") else "gmem" if space == "gmem" else "smem"
    memory = thread.allocate(f"{name} ({space})", space, tuple(inner.shape), dtype, _granule(aval, dtype))
    if type(aval).__name__ == "WGMMAAbstractAccumulatorRef":
        # An accumulator starts as zero.
        memory.raw[:] = 0
        memory.written = None
    tilings = tuple(tuple(t.tiling) for t in transforms if type(t).__name__ == "UntilingTransform")
    if tilings:
        tile(memory, tilings)
    return memory.whole()


def _granule(aval: Any, dtype: Any) -> int:
    """The size of the smallest element that a union of references is used as."""
    if type(aval).__name__ != "AbstractRefUnion":
        return int(dtype.itemsize)
    import jax

    leaves = jax.tree.leaves(aval.refs, is_leaf=lambda r: hasattr(r, "dtype"))
    return math.gcd(*(np.dtype(r.dtype).itemsize for r in leaves))


def _barriers(thread: Any, inner: Any, name: str, of_cluster: bool) -> BarrierArray:
    kind, cluster = inner.dtype, thread.block.cluster
    arrivals = kind.num_arrivals
    if of_cluster:
        if getattr(kind, "leader_tracked", None):
            raise UnsupportedError("cluster barriers with leader_tracked are not supported", source=thread.source)
        axes = kind.collective_axes
        names = [
            n for a in (axes if isinstance(axes, tuple) else (axes,)) for n in (a if isinstance(a, tuple) else (a,))
        ]
        arrivals *= math.prod(n for a, n in zip(cluster.axes, cluster.shape, strict=True) if a in names)
    name = f"barrier {name.split()[-1]}"
    count = math.prod(inner.shape)
    barriers = [
        Barrier(
            f"{name}[{i}] of {thread.block.name}" if count > 1 else f"{name} of {thread.block.name}",
            arrivals,
            thread.source,
        )
        for i in range(count)
    ]
    return BarrierArray(name, tuple(inner.shape), barriers, collective=tuple(names) if of_cluster else ())


def release_scratch(thread: Any, scratch: Sequence[Any], equation: Equation) -> None:
    """The end of a scope: of its barriers, every copy has to be waited for."""
    thread.equation = equation
    for item in scratch:
        if isinstance(item, BarrierArray):
            for barrier in item.barriers:
                _check_left(thread, barrier)
        else:
            item.memory.live = False


def _check_left(thread: Any, barrier: Barrier) -> None:
    """Reports copies that nobody waited for."""
    if barrier.slot is None:
        return
    thread.machine.times.free.append(barrier.slot)
    waited = max(barrier.seen.values(), default=0)
    if barrier.flights or barrier.phase > waited:
        what = f"{barrier.flights} copies are on their way" if barrier.flights else f"phase {barrier.phase} is complete"
        thread.machine.reporter.fault(
            "missing_waits",
            f"{barrier.name} ends, {what}, and nobody has waited for more than {waited} phases",
            barrier.last_copy,
            thread.name,
            hint="wait for every copy to shared memory: plgpu.barrier_wait(barrier)",
        )
