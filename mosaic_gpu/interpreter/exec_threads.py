"""Threads of a kernel: warps, the end of a thread, and whether threads have to be ordered at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.interpreter.code import Code, Equation
from mosaic_gpu.interpreter.flights import Flight
from mosaic_gpu.interpreter.registry import executes

ASYNCHRONOUS = frozenset(
    {
        "copy_gmem_to_smem",
        "copy_smem_to_gmem",
        "wgmma_ref",
        "wgmma",
        "barrier_arrive",
        "barrier_wait",
        "barrier_arrive_and_wait",
    }
)
"""Primitives in whose presence accesses have to be ordered, and are checked for it."""


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
    warps, scheduler = (
        [thread.fork(f"{thread.name} warp {w}", thread.number) for w in range(count)],
        thread.machine.scheduler,
    )
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
