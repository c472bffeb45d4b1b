"""What the references among an asynchronous primitive's operands select."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mosaic_gpu.interpreter.code import Equation
from mosaic_gpu.interpreter.exec_state import peer_memory
from mosaic_gpu.interpreter.indexing import Plan, Rules, plan_of

Planned = tuple[Plan, Sequence[Any]]


def copied(thread: Any, ref: Any, planned: Planned, writes: bool, promise: bool = False) -> Any:
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


def split(equation: Equation, leaves: Sequence[Any], *trees: Any) -> list[Planned]:
    """The plans of several trees, each with its leaves, which come one after another."""
    result, place = [], 0
    for number, tree in enumerate(trees):
        plan = plan_of(equation.cache, f"plan {number}", tree)
        result.append((plan, leaves[place : place + plan.count]))
        place += plan.count
    return result
