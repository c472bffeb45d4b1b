"""Reads and writes of references."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.interpreter import access
from mosaic_gpu.interpreter.code import Equation
from mosaic_gpu.interpreter.eval_elementwise import widen
from mosaic_gpu.interpreter.indexing import FILLED, Rules, plan_of, resolve
from mosaic_gpu.interpreter.memory import Memory, memory_of
from mosaic_gpu.interpreter.registry import executes
from mosaic_gpu.interpreter.values import numpy_dtype


def rules_for(thread: Any, ref: Any, writes: bool, exact: bool = False) -> Rules:
    """What becomes of indices out of range in a plain access."""

    def outside(what: str) -> None:
        verb = "written" if writes else "read"
        thread.machine.reporter.fault(
            "out_of_bounds",
            f"{ref.memory.name} is {verb} out of bounds",
            thread.source,
            thread.name,
            got=what,
            hint="InterpretParams(out_of_bounds=...) says what such an access does; compiled kernels clamp the start of"
            " a slice, clamp reads, and drop writes by index arrays (docs/kernels.md)",
        )

    fills = not writes and not exact and thread.machine.params.out_of_bounds_reads == "fill"
    return Rules(writes, exact, fills, outside, lambda memory, transform: peer_memory(thread, memory, transform))


def select(thread: Any, ref: Any, transforms: Sequence[Any], writes: bool, exact: bool = False) -> Any:
    """The selection that a reference and its transforms name, for a plain access."""
    return resolve(ref, transforms, rules_for(thread, ref, writes, exact))


def planned(thread: Any, equation: Equation, ref: Any, tree: Any, leaves: Sequence[Any], writes: bool) -> Any:
    """The same, by the equation's plan."""
    return plan_of(equation.cache, "plan", tree).select(ref, leaves, rules_for(thread, ref, writes))


def peer_memory(thread: Any, memory: Memory, transform: Any) -> Memory:
    """The memory that another block of the cluster has at the same place."""
    cluster = thread.block.cluster
    place = list(thread.block.coordinates)
    for name, index in zip(transform.dims, transform.idxs, strict=True):
        place[cluster.axes.index(name)] = int(index)
    number = int(np.ravel_multi_index(place, cluster.shape))
    found = cluster.blocks[number].allocations.get(memory.key)
    if found is None:
        raise UnsupportedError(
            f"{memory.name} of another block is used before that block has allocated it", source=thread.source
        )
    peer: Memory = found
    return peer


@executes("get", "load")
def exec_get(thread: Any, equation: Equation, ref: Any, *indices: Any, tree: Any, **_: Any) -> Any:
    """`ref[indices]`."""
    thread.pause()
    selection = planned(thread, equation, ref, tree, indices, writes=False)
    value = access.read(thread, selection)
    numbers = getattr(selection, "numbers", None)
    if numbers is not None and (numbers == FILLED).any():
        return np.where(numbers == FILLED, access.filler(selection.memory), value)
    return value


@executes("swap")
def exec_swap(thread: Any, equation: Equation, ref: Any, value: Any, *indices: Any, tree: Any) -> Any:
    """`ref[indices] = value`, giving what was there where somebody asks."""
    thread.pause()
    selection = planned(thread, equation, ref, tree, indices, writes=True)
    old = access.read(thread, selection) if equation.used[0] else value
    access.write(thread, selection, value)
    return old


@executes("store")
def exec_store(thread: Any, equation: Equation, ref: Any, value: Any, *indices: Any, tree: Any, **_: Any) -> list[Any]:
    """`plgpu.store(ref, value)`: a write, however fast."""
    thread.pause()
    access.write(thread, planned(thread, equation, ref, tree, indices, writes=True), value)
    return []


@executes("addupdate")
def exec_addupdate(thread: Any, equation: Equation, ref: Any, value: Any, *indices: Any, tree: Any) -> list[Any]:
    """`ref[indices] += value`; an index array that names a place twice adds twice."""
    thread.pause()
    selection = planned(thread, equation, ref, tree, indices, writes=True)
    old = access.read(thread, selection)
    if hasattr(selection, "numbers") and len(np.unique(selection.numbers)) < selection.numbers.size:
        _add_one_by_one(thread, selection, value)
        return []
    total = np.add(*widen(old, value))
    access.write(thread, selection, np.asarray(total).astype(selection.dtype))
    return []


def _add_one_by_one(thread: Any, selection: Any, value: Any) -> None:
    values = np.broadcast_to(value, selection.shape).ravel()
    for number, element in zip(selection.numbers.ravel(), values, strict=True):
        if number >= 0:
            one = type(selection)(selection.memory, selection.dtype, np.asarray(number))
            access.write(thread, one, np.add(*widen(one.read(), element)).astype(selection.dtype))


@executes("masked_load")
def exec_masked_load(thread: Any, equation: Equation, *values: Any, args_tree: Any, **_: Any) -> Any:
    """`plgpu.load(ref, idx, mask=, other=)`: what is masked or outside reads as `other`, or zero."""
    thread.pause()
    ref, transforms, mask, other = jax.tree_util.tree_unflatten(args_tree, values)
    selection = select(thread, ref, transforms, writes=False, exact=True)
    return access.read(thread, selection, mask=_mask(mask, equation), other=other)


@executes("masked_swap")
def exec_masked_swap(thread: Any, equation: Equation, *values: Any, args_tree: Any, **_: Any) -> Any:
    """`plgpu.store(ref, idx, value, mask=)` and `pl.swap`: where the mask is false, nothing is touched."""
    thread.pause()
    ref, transforms, value, mask = jax.tree_util.tree_unflatten(args_tree, values)
    selection = select(thread, ref, transforms, writes=True, exact=True)
    mask = _mask(mask, equation)
    old = access.read(thread, selection, mask=mask, other=value) if equation.used[0] else value
    access.write(thread, selection, value, mask=mask)
    return old


def _mask(mask: Any, equation: Equation) -> Any:
    return None if mask is None else np.broadcast_to(mask, equation.shape)


@executes("new_ref")
def exec_new_ref(thread: Any, equation: Equation, value: Any, **_: Any) -> Any:
    """Memory that starts as `value`."""
    return memory_of("a reference of jax.new_ref", "smem", np.asarray(value)).whole()


@executes("empty_ref")
def exec_empty_ref(thread: Any, equation: Equation, **_: Any) -> Any:
    """Memory that starts with anything."""
    aval = equation.avals_out[0]
    name = "a reference of jax.empty_ref"
    return thread.allocate(name, "smem", tuple(aval.shape), numpy_dtype(aval.inner_aval)).whole()


@executes("freeze")
def exec_freeze(thread: Any, equation: Equation, ref: Any) -> Any:
    """The last value of a reference."""
    return access.read(thread, ref)


@executes("free_ref")
def exec_free_ref(thread: Any, equation: Equation, ref: Any) -> list[Any]:
    """The end of a reference."""
    return []
