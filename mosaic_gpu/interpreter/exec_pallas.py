"""Pallas' own primitives: the grid, scoped memory, printing."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from mosaic_gpu.errors import KernelError, UnsupportedError
from mosaic_gpu.interpreter import access
from mosaic_gpu.interpreter.code import Code, Equation
from mosaic_gpu.interpreter.exec_wgmma import finish_products
from mosaic_gpu.interpreter.memory import memory_of
from mosaic_gpu.interpreter.registry import executes
from mosaic_gpu.interpreter.scratch import allocate_scratch, release_scratch


@executes("program_id")
def exec_program_id(thread: Any, equation: Equation, *, axis: int) -> Any:
    """The block's coordinate along a dimension of the grid as the user wrote it."""
    return np.int32(_of_axis(thread, equation, thread.program_ids, axis))


@executes("num_programs")
def exec_num_programs(thread: Any, equation: Equation, *, axis: int) -> Any:
    """The extent of a dimension of the grid, also where it is dynamic."""
    return np.int32(_of_axis(thread, equation, thread.machine.grid, axis))


def _of_axis(thread: Any, equation: Equation, values: Sequence[int], axis: int) -> int:
    if not 0 <= axis < len(values):
        raise KernelError(
            f"{equation.name}({axis}) is outside of a grid of {len(values)} dimensions", source=equation.source
        )
    return int(values[axis])


@executes("axis_index")
def exec_axis_index(thread: Any, equation: Equation, *, axis_name: Any, **_: Any) -> Any:
    """The thread's place along a named axis, or its number over several."""
    return np.int32(axis_number(thread, equation, axis_name))


def axis_number(thread: Any, equation: Equation, names: Any) -> int:
    """The row-major number over the named axes."""
    number = 0
    for name in names if isinstance(names, tuple) and names not in thread.axes else (names,):
        if name not in thread.axes:
            raise UnsupportedError(
                f"axis {name!r} is none of the kernel's", got=f"axes {list(thread.axes)}", source=equation.source
            )
        number = number * thread.sizes[name] + thread.axes[name]
    return number


@executes("run_scoped")
def exec_run_scoped(
    thread: Any,
    equation: Equation,
    *consts: Any,
    jaxpr: Any,
    collective_axes: Any = (),
    ref_transforms: Sequence[Any] = (),
) -> list[Any]:
    """`pl.run_scoped(f, *memory)`: f's body with memory of the thread, or of all threads of the block together."""
    code: Code = equation.cache["codes"][0]
    axes = collective_axes if isinstance(collective_axes, tuple) else (collective_axes,)
    names = [n for a in axes for n in (a if isinstance(a, tuple) else (a,))]
    cluster = [n for n in names if n in thread.block.cluster.axes]
    if cluster:
        raise UnsupportedError(f"run_scoped over the cluster's axes {cluster}", source=equation.source)
    transforms = list(ref_transforms) or [()] * len(jaxpr.invars)

    def make() -> list[Any]:
        names = _scope_names(jaxpr)
        pairs = zip(jaxpr.invars, transforms, names, strict=True)
        return [allocate_scratch(thread, v.aval, t, name) for v, t, name in pairs]

    if not names:
        scratch = make()
        own = ("own scope", thread.number, thread.own_scopes)
        thread.own_scopes += 1
        for place, item in enumerate(scratch):
            _register(thread, item, (*own, place))
        results = code.run(thread, scratch, consts)
        release_scratch(thread, scratch, equation)
        return results
    key = ("scope", thread.scopes)
    thread.scopes += 1
    entry: list[Any] = thread.block.shared.setdefault(key, [None, 0])
    if entry[0] is None:
        made = entry[0] = make()
        for place, item in enumerate(made):
            _register(thread, item, (*key, place))
    results = code.run(thread, entry[0], consts)
    entry[1] += 1
    if entry[1] == thread.block.threads:
        release_scratch(thread, entry[0], equation)
    return results


def _scope_names(jaxpr: Any) -> list[str]:
    """What messages call the memory of a scope: the names of its function's arguments, where JAX kept them."""
    names = jaxpr.debug_info.arg_names
    given = names if names is not None and len(names) == len(jaxpr.invars) else ("",) * len(jaxpr.invars)
    return [name or f"run_scoped memory {i}" for i, name in enumerate(given)]


def _register(thread: Any, item: Any, key: Any) -> None:
    """Lets other blocks of the cluster find a barrier or shared memory; registers are the thread's own."""
    holder = getattr(item, "memory", item)
    if getattr(holder, "space", "smem") == "regs":
        return
    holder.key = key
    thread.block.allocations[key] = holder


@executes("run_state")
def exec_run_state(
    thread: Any, equation: Equation, *values: Any, jaxpr: Any, is_initialized: Any, **_: Any
) -> list[Any]:
    """`pl.run_state(f)(values)`: f on references that start as the values, and their last values."""
    code: Code = equation.cache["codes"][0]
    given, refs, made = iter(values), [], []
    for var, starts in zip(jaxpr.invars, is_initialized, strict=True):
        value = next(given) if starts else None
        is_value = isinstance(value, np.ndarray | np.generic)
        if value is None:
            refs.append(allocate_scratch(thread, var.aval, (), "run_state memory"))
        else:
            refs.append(memory_of("run_state memory", "regs", np.asarray(value)).whole() if is_value else value)
        made.append(is_value or value is None)
    code.run(thread, refs)
    finish_products(thread)
    # References from outside are no state of its own, and come back as they are.
    return [access.read(thread, r) if m else r for r, m in zip(refs, made, strict=True)]


@executes("debug_print")
def exec_debug_print(
    thread: Any,
    equation: Equation,
    *values: Any,
    fmt: str,
    in_tree: Any = None,
    static_args: Any = (),
    has_placeholders: bool = True,
    **_: Any,
) -> list[Any]:
    """`pl.debug_print` and `jax.debug.print`, with Python's own formatting."""
    static = dict(static_args or ())
    computed = iter(values)
    leaves = [static[i] if i in static else next(computed) for i in range(len(values) + len(static))]
    args, kwargs = jax.tree_util.tree_unflatten(in_tree, leaves) if in_tree is not None else (leaves, {})
    text = _formatted(fmt, has_placeholders, [_plain(a) for a in args], {k: _plain(v) for k, v in kwargs.items()})
    thread.machine.printed.append(text)
    print(text)
    return []


def _formatted(fmt: str, has_placeholders: bool, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    if not has_placeholders and all(field is None for _, field, _, _ in string.Formatter().parse(fmt)):
        return " ".join([fmt, *map(str, args)])
    return fmt.format(*args, **kwargs)


def _plain(value: Any) -> Any:
    return value[()] if isinstance(value, np.ndarray) and not value.shape else value


@executes("debug_callback", "debug_barrier_p")
def exec_nothing(thread: Any, equation: Equation, *values: Any, **_: Any) -> list[Any]:
    """Nothing: threads of a block that run as one."""
    return []
