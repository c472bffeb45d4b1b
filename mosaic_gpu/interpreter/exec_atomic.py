"""Atomic operations, which nothing comes between: scheduling is cooperative."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from mosaic_gpu.interpreter import access
from mosaic_gpu.interpreter.code import Equation
from mosaic_gpu.interpreter.eval_elementwise import widen
from mosaic_gpu.interpreter.exec_state import select
from mosaic_gpu.interpreter.memory import Places
from mosaic_gpu.interpreter.registry import executes

_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "xchg": lambda old, new: new,
}


@executes("atomic_rmw")
def exec_atomic_rmw(thread: Any, equation: Equation, *values: Any, args_tree: Any, atomic_type: Any) -> Any:
    """`ref[indices] = op(ref[indices], value)`, giving what was there; elements come in row-major order."""
    thread.pause()
    ref, transforms, value, mask = jax.tree_util.tree_unflatten(args_tree, values)
    return _rmw(thread, select(thread, ref, transforms, writes=True), value, mask, atomic_type)


@executes("mgpu_atomic_store")
def exec_atomic_store(
    thread: Any, equation: Equation, *values: Any, args_tree: Any, atomic_type: Any, **_: Any
) -> list[Any]:
    """`plgpu.atomic_add(ref, value)` and its kin: the same, and nobody asks for what was there."""
    thread.pause()
    ref, transforms, value, *_mask = jax.tree_util.tree_unflatten(args_tree, values)
    _rmw(thread, select(thread, ref, transforms or (), writes=True), value, None, atomic_type)
    return []


def _rmw(thread: Any, selection: Any, value: Any, mask: Any, atomic_type: Any) -> Any:
    operation = _OPERATIONS[str(getattr(atomic_type, "value", atomic_type))]
    old = _untracked(thread, selection)
    if not isinstance(selection, Places) or len(np.unique(selection.numbers)) == selection.numbers.size:
        selection.write(np.asarray(operation(*widen(old, value))).astype(selection.dtype), mask)
        _mark(selection, mask)
        return old
    old, updates = np.array(old), np.broadcast_to(value, selection.shape)
    where = np.broadcast_to(True if mask is None else mask, selection.shape)
    for place in np.ndindex(*selection.shape):
        one = Places(selection.memory, selection.dtype, np.asarray(selection.numbers[place]))
        old[place] = one.read()
        if where[place]:
            one.write(np.asarray(operation(*widen(old[place], updates[place]))).astype(selection.dtype))
    _mark(selection, mask)
    return old


def _mark(selection: Any, mask: Any) -> None:
    if selection.memory.written is not None:
        selection.put(selection.memory.written, True, mask)


def _untracked(thread: Any, selection: Any) -> Any:
    """What is there: blocks and threads may share what they only touch atomically."""
    memory = selection.memory
    if memory.written is not None and thread.machine.reporter.wants("uninitialised_reads"):
        access.check_written(thread, selection)
    return selection.read()


@executes("atomic_cas")
def exec_atomic_cas(thread: Any, equation: Equation, ref: Any, expected: Any, value: Any) -> Any:
    """Writes `value` where `ref` holds `expected`; gives what was there."""
    thread.pause()
    old = _untracked(thread, ref)
    if old == expected:
        ref.write(value)
        _mark(ref, None)
    return old
