"""Barriers of threads and clusters, and hints that change no result."""

from __future__ import annotations

from typing import Any

import numpy as np

from mosaic_gpu.interpreter.barriers import BarrierArray
from mosaic_gpu.interpreter.code import Equation
from mosaic_gpu.interpreter.operands import split
from mosaic_gpu.interpreter.registry import executes


@executes("barrier_arrive")
def exec_barrier_arrive(
    thread: Any,
    equation: Equation,
    barriers: Any,
    *leaves: Any,
    transforms_treedef: Any,
    has_user_predicate: bool = False,
) -> list[Any]:
    """One arrival; on a cluster's barrier, one in each block along its axes."""
    thread.pause()
    given = list(leaves)
    if has_user_predicate and not bool(given.pop()):
        return []
    (transforms,) = split(equation, given, transforms_treedef)
    clock = thread.release()
    for array in _arrays(thread, barriers):
        barrier = array.pick(*transforms, equation.source)
        if thread.watched:
            thread.event("arrive", barrier.name)
        barrier.arrive(clock)
    return []


def _arrays(thread: Any, barriers: BarrierArray) -> list[BarrierArray]:
    """The barriers that an arrival counts for: of all blocks along the axes of a cluster's barrier."""
    if not barriers.collective:
        return [barriers]
    cluster, mine = thread.block.cluster, thread.block.coordinates
    found = []
    for block in cluster.blocks:
        same = [a for d, a in enumerate(cluster.axes) if block.coordinates[d] == mine[d]]
        if any(a not in same and a not in barriers.collective for a in cluster.axes):
            continue
        thread.machine.scheduler.wait(
            thread,
            lambda block=block: barriers.key in block.allocations,
            lambda block=block: f"{block.name} to allocate its barriers",
        )
        found.append(block.allocations[barriers.key])
    return found


@executes("barrier_wait")
def exec_barrier_wait(
    thread: Any, equation: Equation, barriers: BarrierArray, *leaves: Any, transforms_treedef: Any
) -> list[Any]:
    """Waits for the next phase."""
    barrier = barriers.pick(*split(equation, leaves, transforms_treedef)[0], equation.source)
    if thread.watched:
        thread.event("wait", barrier.name)
    barrier.wait(thread)
    return []


@executes("barrier_arrive_and_wait")
def exec_barrier_arrive_and_wait(
    thread: Any, equation: Equation, barriers: BarrierArray, *leaves: Any, transforms_treedef: Any, **_: Any
) -> list[Any]:
    """One arrival, and the wait for the phase that it belongs to."""
    exec_barrier_arrive(thread, equation, barriers, *leaves, transforms_treedef=transforms_treedef)
    exec_barrier_wait(thread, equation, barriers, *leaves, transforms_treedef=transforms_treedef)
    return []


@executes("barrier_test")
def exec_barrier_test(
    thread: Any, equation: Equation, barriers: BarrierArray, *leaves: Any, transforms_treedef: Any
) -> Any:
    """Whether the next phase is complete; then it counts as waited for."""
    thread.pause()
    barrier = barriers.pick(*split(equation, leaves, transforms_treedef)[0], equation.source)
    complete = barrier.test(thread)
    if complete:
        barrier.wait(thread)
    return np.bool_(complete)


@executes(
    "set_max_registers_p",
    "async_prefetch",
    "print_layout",
    "delay",
    "griddepcontrol_wait",
    "griddepcontrol_launch_dependents",
)
def exec_hint(thread: Any, equation: Equation, *_: Any, **__: Any) -> list[Any]:
    """What changes no result."""
    return []


@executes("try_cluster_cancel")
def exec_try_cluster_cancel(
    thread: Any,
    equation: Equation,
    result: Any,
    barriers: BarrierArray,
    *leaves: Any,
    result_transforms_tree: Any,
    barrier_transforms_tree: Any,
    **_: Any,
) -> list[Any]:
    """Always fails to take another block's work, as it may on hardware; the answer arrives at once."""
    planned = split(equation, leaves, result_transforms_tree, barrier_transforms_tree)[1]
    barriers.pick(*planned, equation.source).arrive(thread.release())
    return []


@executes("query_cluster_cancel")
def exec_query_cluster_cancel(thread: Any, equation: Equation, *_: Any, **__: Any) -> list[Any]:
    """No work was taken."""
    return [np.zeros(a.shape, a.dtype)[()] for a in equation.avals_out]
