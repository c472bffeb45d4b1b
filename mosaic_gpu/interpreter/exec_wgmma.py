"""wgmma: asynchronous products of matrices, and their accumulators (PTX ISA, "wgmma.mma_async")."""

from __future__ import annotations

from typing import Any

from mosaic_gpu.interpreter import access
from mosaic_gpu.interpreter.clocks import Actor
from mosaic_gpu.interpreter.code import Equation
from mosaic_gpu.interpreter.eval_reduce import product
from mosaic_gpu.interpreter.operands import Planned, copied, split
from mosaic_gpu.interpreter.registry import executes


@executes("wgmma_ref")
def exec_wgmma_ref(
    thread: Any,
    equation: Equation,
    acc: Any,
    a: Any,
    b: Any,
    *leaves: Any,
    acc_transforms_tree: Any,
    a_transforms_tree: Any,
    b_transforms_tree: Any,
) -> list[Any]:
    """`acc += a @ b`, asynchronously: shared memory is read, and the accumulator written, until `wgmma_wait`."""
    acc_transforms, a_transforms, b_transforms = split(
        equation, leaves, acc_transforms_tree, a_transforms_tree, b_transforms_tree
    )
    place = copied(thread, acc, acc_transforms, True)
    place.write(_multiplied(thread, equation, place.read(), (a, a_transforms), (b, b_transforms)))
    place.memory.pending[:] = [thread.products[-1]]
    return []


@executes("wgmma")
def exec_wgmma(
    thread: Any,
    equation: Equation,
    acc: Any,
    a: Any,
    b: Any,
    *leaves: Any,
    acc_transforms_tree: Any,
    a_transforms_tree: Any,
    b_transforms_tree: Any,
) -> Any:
    """The same on an accumulator that is a value."""
    _, a_transforms, b_transforms = split(equation, leaves, acc_transforms_tree, a_transforms_tree, b_transforms_tree)
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
    a, b = values
    return (acc + product(a, b, acc.dtype)).astype(acc.dtype)


def _factor(thread: Any, ref: Any, transforms: Planned, actor: Actor | None) -> Any:
    if not hasattr(ref, "memory"):
        return ref
    selection = copied(thread, ref, transforms, False)
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
