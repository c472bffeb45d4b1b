"""Control flow and calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from mosaic_gpu.interpreter.code import Code, Equation, code_of
from mosaic_gpu.interpreter.registry import executes, expands
from mosaic_gpu.interpreter.values import numpy_dtype
from mosaic_gpu.lowering.jaxpr import compat


@executes(
    "jit", "pjit", "closed_call", "core_call", "checkpoint", "remat2", "custom_vmap_call", "composite", "eval_jaxpr"
)
def exec_call(thread: Any, equation: Equation, *values: Any, **_: Any) -> list[Any]:
    """A call of a jaxpr."""
    code: Code = equation.cache["codes"][0]
    return code.run(thread, values)


@executes("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr")
def exec_custom_call(thread: Any, equation: Equation, *values: Any, **_: Any) -> list[Any]:
    """A function with a derivative of its own: the function itself."""
    code: Code = equation.cache["codes"][0]
    return code.run(thread, values)


@expands("call_hi_primitive")
def expand_call_hi_primitive(equation: Equation, *, _prim: Any) -> Callable[..., Any]:
    """An operation that JAX 0.12 keeps whole, by the operations that it stands for."""
    return lambda *arrays: jax.tree.leaves(_prim.expand(*jax.tree.unflatten(_prim.in_tree, arrays)))


@executes("cond")
def exec_cond(thread: Any, equation: Equation, index: Any, *values: Any, **_: Any) -> list[Any]:
    """One of the branches: number `index`, clamped to those there are."""
    codes = equation.cache["codes"]
    code: Code = codes[min(max(int(index), 0), len(codes) - 1)]
    return code.run(thread, values)


@executes("while")
def exec_while(
    thread: Any,
    equation: Equation,
    *values: Any,
    cond_nconsts: int,
    body_nconsts: int,
    cond_jaxpr: Any,
    body_jaxpr: Any,
    **_: Any,
) -> list[Any]:
    """`while cond(carry): carry = body(carry)`; of a mapped loop, elements that are done stay as they are."""
    condition, body = code_of(cond_jaxpr), code_of(body_jaxpr)
    cond_consts, body_consts = values[:cond_nconsts], values[cond_nconsts : cond_nconsts + body_nconsts]
    carry = list(values[cond_nconsts + body_nconsts :])
    while True:
        (go_on,) = condition.run(thread, [*cond_consts, *carry])
        if not np.any(go_on):
            return carry
        new = body.run(thread, [*body_consts, *carry])
        carry = new if np.ndim(go_on) == 0 else [_where(go_on, n, o) for n, o in zip(new, carry, strict=True)]


def _where(flags: Any, new: Any, old: Any) -> Any:
    if not isinstance(new, np.ndarray | np.generic):
        return new
    return np.where(np.reshape(flags, flags.shape + (1,) * (np.ndim(new) - flags.ndim)), new, old)


@executes("scan")
def exec_scan(thread: Any, equation: Equation, *values: Any, length: int, reverse: bool, **params: Any) -> list[Any]:
    """`carry, ys[i] = body(carry, xs[i])`, from the end where `reverse`."""
    code: Code = equation.cache["codes"][0]
    num_consts, num_carry = compat.scan_counts(params)
    consts, carry = list(values[:num_consts]), list(values[num_consts : num_consts + num_carry])
    rows = values[num_consts + num_carry :]
    stacked = [np.zeros(a.shape, numpy_dtype(a)) for a in equation.avals_out[num_carry:]]
    for step in reversed(range(length)) if reverse else range(length):
        results = code.run(thread, [*consts, *carry, *(row[step] for row in rows)])
        carry = results[:num_carry]
        for stack, value in zip(stacked, results[num_carry:], strict=True):
            stack[step] = value
    return [*carry, *stacked]
