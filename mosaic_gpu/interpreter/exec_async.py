"""JAX's `plgpu` primitives of Hopper kernels: copies, barriers, wgmma, and threads of a block."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.interpreter import access
from mosaic_gpu.interpreter.barriers import Barrier, BarrierArray
from mosaic_gpu.interpreter.clocks import Actor
from mosaic_gpu.interpreter.code import Code, Equation
from mosaic_gpu.interpreter.eval_reduce import product
from mosaic_gpu.interpreter.exec_state import peer_memory
from mosaic_gpu.interpreter.flights import Flight
from mosaic_gpu.interpreter.indexing import Plan, Rules, plan_of
from mosaic_gpu.interpreter.memory import initial_value
from mosaic_gpu.interpreter.registry import executes

ASYNCHRONOUS = frozenset(
    {"copy_gmem_to_smem", "copy_smem_to_gmem", "wgmma_ref", "wgmma", "barrier_arrive", "barrier_wait"}
)
"""Primitives in whose presence accesses have to be ordered, and are checked for it."""


Planned = tuple[Plan, Sequence[Any]]


def _copied(thread: Any, ref: Any, planned: Planned, writes: bool, promise: bool = False) -> Any:
    """What a copy touches: nothing wraps or clamps (the TMA engine leaves out what is outside of an array)."""
    rules = Rules(writes, exact=True, peer=lambda memory, transform: peer_memory(thread, memory, transform))
    selection = planned[0].select(ref, planned[1], rules)
    if promise and selection.inside is not None:
        thread.machine.reporter.fault(
            "out_of_bounds",
            f"{ref.memory.name} is copied from out of bounds, though the kernel promises otherwise",
            thread.source,
            thread.name,
            hint="leave oob_mode=PROMISE_IN_BOUNDS out: then zeros are copied",
        )
    return selection


def _split(equation: Equation, leaves: Sequence[Any], *trees: Any) -> list[Planned]:
    """The plans of several trees, each with its leaves, which come one after another."""
    result, place = [], 0
    for number, tree in enumerate(trees):
        plan = plan_of(equation.cache, f"plan {number}", tree)
        result.append((plan, leaves[place : place + plan.count]))
        place += plan.count
    return result


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
    source_transforms, target_transforms, barrier_transforms = _split(
        equation, given, src_transforms_treedef, dst_transforms_treedef, barrier_transforms_treedef
    )
    barrier = None if barriers is None else barriers.pick(*barrier_transforms, equation.source)
    if not predicate:
        if barrier is not None:
            barrier.arrive(thread.release())
        return []
    mode = getattr(oob_mode, "name", "ZEROS")
    selection = _copied(thread, source, source_transforms, False, mode == "PROMISE_IN_BOUNDS")
    flight = Flight(
        thread,
        selection,
        _copied(thread, target, target_transforms, True),
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
    source_transforms, target_transforms = _split(equation, given, src_transforms_treedef, dst_transforms_treedef)
    if predicate:
        selection = _copied(thread, source, source_transforms, False)
        tracked, what = thread.machine.tracked, "the copy to global memory"
        flight = Flight(
            thread,
            selection,
            _copied(thread, target, target_transforms, True),
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


@executes("barrier_arrive")
def exec_barrier_arrive(
    thread: Any, equation: Equation, barriers: Any, *leaves: Any, transforms_treedef: Any,
    has_user_predicate: bool = False
) -> list[Any]:
    """One arrival; on a cluster's barrier, one in each block along its axes."""
    thread.pause()
    given = list(leaves)
    if has_user_predicate and not bool(given.pop()):
        return []
    (transforms,) = _split(equation, given, transforms_treedef)
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
    barrier = barriers.pick(*_split(equation, leaves, transforms_treedef)[0], equation.source)
    if thread.watched:
        thread.event("wait", barrier.name)
    barrier.wait(thread)
    return []


@executes("barrier_test")
def exec_barrier_test(
    thread: Any, equation: Equation, barriers: BarrierArray, *leaves: Any, transforms_treedef: Any
) -> Any:
    """Whether the next phase is complete; then it counts as waited for."""
    thread.pause()
    barrier = barriers.pick(*_split(equation, leaves, transforms_treedef)[0], equation.source)
    complete = barrier.test(thread)
    if complete:
        barrier.wait(thread)
    return np.bool_(complete)


@executes("wgmma_ref")
def exec_wgmma_ref(
    thread: Any, equation: Equation, acc: Any, a: Any, b: Any, *leaves: Any, acc_transforms_tree: Any,
    a_transforms_tree: Any, b_transforms_tree: Any
) -> list[Any]:
    """`acc += a @ b`, asynchronously: shared memory is read, and the accumulator written, until `wgmma_wait`."""
    acc_transforms, a_transforms, b_transforms = _split(equation, leaves, acc_transforms_tree, a_transforms_tree, b_transforms_tree)
    place = _copied(thread, acc, acc_transforms, True)
    place.write(_multiplied(thread, equation, place.read(), (a, a_transforms), (b, b_transforms)))
    place.memory.pending[:] = [thread.products[-1]]
    return []


@executes("wgmma")
def exec_wgmma(
    thread: Any, equation: Equation, acc: Any, a: Any, b: Any, *leaves: Any, acc_transforms_tree: Any,
    a_transforms_tree: Any, b_transforms_tree: Any
) -> Any:
    """The same on an accumulator that is a value."""
    _, a_transforms, b_transforms = _split(equation, leaves, acc_transforms_tree, a_transforms_tree, b_transforms_tree)
    return _multiplied(thread, equation, acc, (a, a_transforms), (b, b_transforms))


class _Product:
    """A wgmma on its way: what somebody knows who waited for it."""

    def __init__(self, actor: Actor | None, thread: Any) -> None:
        self.actor, self.source, self.done = actor, thread.source, False
        self.actor_name = f"the wgmma of {thread.name}"


def _multiplied(thread: Any, equation: Equation, acc: Any, *operands: tuple[Any, Planned]) -> Any:
    thread.pause()
    actor = thread.asynchronous("wgmma", "the wgmma") if thread.machine.tracked else None
    values = [_factor(thread, ref, transforms, actor) for ref, transforms in operands]
    thread.products.append(_Product(actor, thread))
    if thread.watched:
        thread.event("wgmma", f"{values[0].shape} @ {values[1].shape}")
    return (acc + product(*values, acc.dtype)).astype(acc.dtype)


def _factor(thread: Any, ref: Any, transforms: Planned, actor: Actor | None) -> Any:
    if not hasattr(ref, "memory"):
        return ref
    selection = _copied(thread, ref, transforms, False)
    return access.read(thread, selection, actor) if actor is not None else access.read(thread, selection)


@executes("wgmma_wait")
def exec_wgmma_wait(thread: Any, equation: Equation, *, n: int) -> list[Any]:
    """Waits until at most `n` of the thread's wgmmas are on their way."""
    thread.pause()
    finish_products(thread, n)
    return []


def finish_products(thread: Any, n: int = 0) -> None:
    """Waits for all of a thread's wgmmas but the last `n`."""
    while len(thread.products) > n:
        finished = thread.products.pop(0)
        finished.done = True
        if finished.actor is not None:
            thread.acquire(finished.actor.clock)


@executes("wgmma_accumulator_deref_p")
def exec_wgmma_accumulator_deref(thread: Any, equation: Equation, acc: Any, *, wait_n: int | None) -> Any:
    """What the accumulator holds; waits first, unless `wait_n` is None."""
    if wait_n is not None:
        finish_products(thread, wait_n)
    if not hasattr(acc, "memory"):
        return acc
    if any(not p.done for p in acc.memory.pending):
        thread.machine.reporter.fault(
            "missing_waits",
            f"the accumulator {acc.memory.name} is read while a wgmma writes it",
            thread.source,
            thread.name,
            got=f"the wgmma at {acc.memory.pending[-1].source}",
            hint="call plgpu.wgmma_wait(0) first",
        )
    return access.read(thread, acc)


@executes("wgmma_accumulator_store_p")
def exec_wgmma_accumulator_store(thread: Any, equation: Equation, acc: Any, value: Any) -> Any:
    """Sets the accumulator."""
    if not hasattr(acc, "memory"):
        return value
    access.write(thread, acc, value)
    return value


@executes("set_max_registers_p", "async_prefetch", "print_layout", "griddepcontrol_wait",
          "griddepcontrol_launch_dependents")
def exec_hint(thread: Any, equation: Equation, *_: Any, **__: Any) -> list[Any]:
    """What changes no result."""
    return []


@executes("try_cluster_cancel")
def exec_try_cluster_cancel(
    thread: Any, equation: Equation, result: Any, barriers: BarrierArray, *leaves: Any, result_transforms_tree: Any,
    barrier_transforms_tree: Any, **_: Any
) -> list[Any]:
    """Always fails to take another block's work, as it may on hardware; the answer arrives at once."""
    _, transforms = _split(equation, leaves, result_transforms_tree, barrier_transforms_tree)
    barriers.pick(*transforms, equation.source).arrive(thread.release())
    return []


@executes("query_cluster_cancel")
def exec_query_cluster_cancel(thread: Any, equation: Equation, *_: Any, **__: Any) -> list[Any]:
    """No work was taken."""
    return [np.zeros(a.shape, a.dtype)[()] for a in equation.avals_out]


@executes("mpmd_map")
def exec_mpmd_map(thread: Any, equation: Equation, *values: Any, meshes: Any, jaxprs: Any, **rest: Any) -> list[Any]:
    """`plgpu.WarpMesh`: the four warps of the thread's warpgroup, each by itself, until all are done.

    Outside of kernels it is a `plgpu.kernel`.
    """
    if not hasattr(thread, "block"):
        from mosaic_gpu.interpreter.call import run_mesh_kernel

        return run_mesh_kernel(thread, equation, *values, meshes=meshes, jaxprs=jaxprs, **rest)
    if len(jaxprs) != 1:
        raise UnsupportedError("mpmd_map over several meshes inside a kernel", source=equation.source)
    code: Code = equation.cache["codes"][0]
    ((axis, count),) = meshes[0].shape.items()
    warps, scheduler = [thread.fork(f"{thread.name} warp {w}", thread.number) for w in range(count)], thread.machine.scheduler
    finished: list[Any] = []
    for number, warp in enumerate(warps):
        warp.axes[axis], warp.sizes[axis] = number, count
        scheduler.start(warp, _warp_body(code, warp, values, finished))
    scheduler.wait(thread, lambda: len(finished) == count, lambda: "its warps to end")
    for warp in warps:
        thread.acquire(warp.clock)
    return []


def _warp_body(code: Code, warp: Any, values: Sequence[Any], finished: list[Any]) -> Callable[[], None]:
    def body() -> None:
        code.run(warp, values)
        leave(warp)
        finished.append(warp)

    return body


def leave(thread: Any) -> None:
    """The end of a thread: what it left on its way."""
    reporter = thread.machine.reporter
    if thread.stores:
        first = thread.stores[0]
        reporter.fault(
            "missing_commits",
            f"{first.actor_name} is never committed to a group",
            first.source,
            thread.name,
            hint="call plgpu.commit_smem_to_gmem_group(), or leave commit_group=False out",
        )
    left = [f for g in (thread.loads, *thread.groups, thread.stores) for f in g if not f.done]
    left += [p for p in thread.products if not p.done]
    if left:
        reporter.fault(
            "missing_waits",
            f"{thread.name} ends while {left[0].actor_name} is on its way",
            left[0].source,
            thread.name,
            hint="wait before the kernel ends: plgpu.wait_smem_to_gmem(0), or plgpu.wgmma_wait(0)",
        )
    for flight in left:
        if isinstance(flight, Flight):
            thread.machine.scheduler.land(flight)


def concurrent(primitives: set[str], threads: int) -> bool:
    """Whether accesses of a kernel have to be ordered."""
    return threads > 1 or bool(primitives & ASYNCHRONOUS)


def needs_greenlets(primitives: set[str], threads: int) -> bool:
    """Whether threads may wait for one another."""
    return threads > 1 or "mpmd_map" in primitives
