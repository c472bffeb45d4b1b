"""Copies between global and shared memory (`plgpu.copy_gmem_to_smem` and its kin), and their waits."""

from __future__ import annotations

from typing import Any

from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.interpreter.barriers import Barrier, BarrierArray
from mosaic_gpu.interpreter.clocks import Actor
from mosaic_gpu.interpreter.code import Equation
from mosaic_gpu.interpreter.flights import Flight
from mosaic_gpu.interpreter.memory import initial_value
from mosaic_gpu.interpreter.operands import copied, split
from mosaic_gpu.interpreter.registry import executes


def _start(thread: Any, flight: Flight) -> None:
    for selection in (flight.source_selection, flight.target):
        memory = selection.memory
        if memory.space == "smem":
            memory.pending[:] = [f for f in memory.pending if not f.done]
            memory.pending.append(flight)
    if thread.watched:
        thread.event("copy", flight.what)
    flight.claim()
    thread.machine.scheduler.launch(flight)


@executes("copy_gmem_to_smem")
def exec_copy_gmem_to_smem(
    thread: Any,
    equation: Equation,
    source: Any,
    target: Any,
    *leaves: Any,
    src_transforms_treedef: Any,
    dst_transforms_treedef: Any,
    barrier_transforms_treedef: Any,
    has_barrier: bool,
    has_user_predicate: bool,
    leader_tracked: Any = None,
    oob_mode: Any = None,
    **_: Any,
) -> list[Any]:
    """Arrives once on the barrier when it has landed; without a barrier `wait_gmem_to_smem` waits for it.

    Over `collective_axes` each block copies for itself, which has the same result as a multicast.
    """
    if leader_tracked is not None:
        raise UnsupportedError("copies with leader_tracked belong to Blackwell GPUs", source=equation.source)
    thread.pause()
    given = list(leaves)
    barriers: BarrierArray | None = given.pop(0) if has_barrier else None
    predicate = bool(given.pop()) if has_user_predicate else True
    source_transforms, target_transforms, barrier_transforms = split(
        equation, given, src_transforms_treedef, dst_transforms_treedef, barrier_transforms_treedef
    )
    barrier = None if barriers is None else barriers.pick(*barrier_transforms, equation.source)
    if not predicate:
        if barrier is not None:
            barrier.arrive(thread.release())
        return []
    mode = getattr(oob_mode, "name", "ZEROS")
    selection = copied(thread, source, source_transforms, False, mode == "PROMISE_IN_BOUNDS")
    flight = Flight(
        thread,
        selection,
        copied(thread, target, target_transforms, True),
        *_load_actors(thread, barrier),
        what="the copy to shared memory",
        source=equation.source,
        outside=initial_value(selection.dtype) if mode == "UNDEFINED" else None,
    )
    if barrier is None:
        thread.loads.append(flight)
    else:
        _completes_on(thread, barrier, flight)
    _start(thread, flight)
    return []


def _load_actors(thread: Any, barrier: Barrier | None) -> tuple[Actor | None, Actor | None]:
    if not thread.machine.tracked:
        return None, None
    what = "the copy to shared memory"
    if barrier is None:
        actor = thread.asynchronous("loads", what)
    else:
        if barrier.slot is None:
            barrier.slot = thread.machine.times.slot()
        actor = thread.starts(barrier.slot, what)
    return actor, actor


def _completes_on(thread: Any, barrier: Barrier, flight: Flight) -> None:
    barrier.flights += 1
    barrier.last_copy = flight.source

    def arrive() -> None:
        barrier.flights -= 1
        flight.done = True
        barrier.arrive(thread.clock if flight.writes is None else flight.writes.clock)

    flight.then = arrive


@executes("wait_gmem_to_smem")
def exec_wait_gmem_to_smem(thread: Any, equation: Equation, *, n: int) -> list[Any]:
    """Waits until at most `n` of the thread's copies without a barrier are on their way."""
    while len(thread.loads) > n:
        _wait_for(thread, thread.loads.pop(0), writes=True)
    return []


def _wait_for(thread: Any, flight: Flight, writes: bool) -> None:
    thread.machine.scheduler.land(flight)
    flight.done = True
    for actor in (flight.reads, flight.writes if writes else None):
        if actor is not None:
            thread.acquire(actor.clock)


@executes("copy_smem_to_gmem")
def exec_copy_smem_to_gmem(
    thread: Any,
    equation: Equation,
    source: Any,
    target: Any,
    *leaves: Any,
    src_transforms_treedef: Any,
    dst_transforms_treedef: Any,
    has_user_predicate: bool,
    commit_group: bool,
    reduction_op: str | None,
) -> list[Any]:
    """Belongs to the group that is committed next, at once with `commit_group`."""
    thread.pause()
    given = list(leaves)
    predicate = bool(given.pop()) if has_user_predicate else True
    source_transforms, target_transforms = split(equation, given, src_transforms_treedef, dst_transforms_treedef)
    if predicate:
        selection = copied(thread, source, source_transforms, False)
        tracked, what = thread.machine.tracked, "the copy to global memory"
        flight = Flight(
            thread,
            selection,
            copied(thread, target, target_transforms, True),
            thread.asynchronous("store reads", what) if tracked else None,
            thread.asynchronous("store writes", what) if tracked else None,
            what=what,
            source=equation.source,
            reduction=reduction_op,
        )
        thread.stores.append(flight)
        _start(thread, flight)
    if commit_group:
        _commit(thread)
    return []


def _commit(thread: Any) -> None:
    thread.groups.append(thread.stores)
    thread.stores = []


@executes("commit_group")
def exec_commit_group(thread: Any, equation: Equation) -> list[Any]:
    """The copies since the last group are a group, even if there are none."""
    _commit(thread)
    return []


@executes("wait_smem_to_gmem")
def exec_wait_smem_to_gmem(thread: Any, equation: Equation, *, n: int, wait_read_only: bool) -> list[Any]:
    """Waits for all groups but the last `n`: until they have read, or also written."""
    thread.pause()
    for group in thread.groups[: len(thread.groups) - n] if n else thread.groups:
        for flight in group:
            _wait_for(thread, flight, writes=not wait_read_only)
    if not wait_read_only:
        thread.groups = thread.groups[-n:] if n else []
    else:
        # Groups that have read stay until somebody waits for their writes; a few are enough to count.
        thread.groups = thread.groups[-max(n, 64) :]
    return []


@executes("commit_smem")
def exec_commit_smem(thread: Any, equation: Equation) -> list[Any]:
    """Plain writes to shared memory become visible to copies and wgmma."""
    if thread.watched:
        thread.event("commit", "shared memory")
    thread.fence()
    return []
