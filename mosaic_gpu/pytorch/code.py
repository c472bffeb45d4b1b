"""A jaxpr as a flat list of steps on tensors.

Calls (`jit`, `custom_vjp_call`, ...) are replaced by what they call, and what nothing uses goes.  Each value has a
slot; a slot is cleared behind its last use, so that memory lives no longer than in a program of PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import torch
from torch import Tensor

from mosaic_gpu.errors import MosaicGpuError, SourceLine, UnsupportedError
from mosaic_gpu.lowering.jaxpr import compat
from mosaic_gpu.lowering.jaxpr.sources import equation_source
from mosaic_gpu.pytorch import registry
from mosaic_gpu.pytorch.registry import Equation
from mosaic_gpu.pytorch.tracing import traced
from mosaic_gpu.pytorch.values import CARRIERS, dtype_name, from_numpy

_CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "call_jaxpr",
    "checkpoint": "jaxpr",
    "remat": "jaxpr",
    "remat2": "jaxpr",
}
"""Primitives that only call a jaxpr, with the parameter that holds it."""

_HINT = "do it inside of a kernel, or in PyTorch around the function"


@dataclass
class Step:
    """One equation: its rule, the slots it reads and writes, and those that nobody reads after it."""

    rule: Any
    equation: Equation
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    told_device: bool
    dead: tuple[int, ...] = ()


class Code:
    """A jaxpr that can run on tensors that carry its operands' values.

    Raises UnsupportedError, with the user's line, for what has no rule.

    Attributes:
      arguments: slots of the operands.
      results: slots of the results.
      constants: slots of values that depend on no operand, with those that are known (None: a step makes it).
    """

    def __init__(self, jaxpr: Any, select: Callable[[Code], list[int]] | None = None) -> None:
        """Arguments:
        jaxpr: closed.
        select: chooses the slots that are the results, instead of the jaxpr's own.
        """
        self._avals: list[Any] = []
        self.constants: dict[int, Any] = {}
        self._equations: list[tuple[Any, tuple[int, ...], tuple[int, ...], SourceLine | None]] = []
        opened = compat.open_jaxpr(jaxpr)
        self.arguments = [self._slot(v.aval) for v in opened.invars]
        self.results = self._inline(opened, getattr(jaxpr, "consts", ()), self.arguments)
        if select is not None:
            self.results = select(self)
        self._drop_unused()
        steps = [_step(*equation, self.constants) for equation in self._equations]
        self._makers = [s for s in steps if s.equation.name in registry.MAKES]
        self.constants.update((s.outputs[0], None) for s in self._makers)
        self.steps = [s for s in steps if s.equation.name not in registry.MAKES]
        self._place_deaths()
        self._on_device: dict[torch.device, tuple[list[Any], set[int]]] = {}

    def _slot(self, aval: Any) -> int:
        self._avals.append(aval)
        return len(self._avals) - 1

    def _constant(self, value: Any, aval: Any) -> int:
        slot = self._slot(aval)
        self.constants[slot] = value
        return slot

    def _inline(
        self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[int], call: SourceLine | None = None
    ) -> list[int]:
        """Adds the equations of a jaxpr, called at a line, on these slots; the slots of its results."""
        env = dict(zip(jaxpr.invars, arguments, strict=True))
        for var, value in zip(jaxpr.constvars, consts, strict=True):
            env[var] = self._constant(value, var.aval)

        def read(atom: Any) -> int:
            return self._constant(atom.val, atom.aval) if compat.is_literal(atom) else env[atom]

        for eqn in jaxpr.eqns:
            inputs = tuple([read(v) for v in eqn.invars])
            inner, source = _CALLS.get(eqn.primitive.name), equation_source(eqn) or call
            if inner is not None or eqn.primitive.name == "call_hi_primitive":
                called = _expanded(eqn) if inner is None else eqn.params[inner]
                outputs = self._inline(compat.open_jaxpr(called), getattr(called, "consts", ()), inputs, source)
            else:
                outputs = [self._slot(v.aval) for v in eqn.outvars]
                self._equations.append((eqn, inputs, tuple(outputs), source))
            env.update(zip(eqn.outvars, outputs, strict=True))
        return [read(v) for v in jaxpr.outvars]

    def _drop_unused(self) -> None:
        used = set(self.results)
        kept = []
        for equation in reversed(self._equations):
            if used.intersection(equation[2]):
                used.update(equation[1])
                kept.append(equation)
        self._equations = kept[::-1]
        self.constants = {slot: value for slot, value in self.constants.items() if slot in used}

    def _place_deaths(self) -> None:
        alive = {*self.results, *self.constants}
        for step in reversed(self.steps):
            last = {*step.inputs, *step.outputs} - alive
            alive |= last
            step.dead = tuple(last)

    def avals(self, slots: Sequence[int]) -> list[Any]:
        """JAX's abstract values of slots."""
        return [self._avals[slot] for slot in slots]

    def _at(self, device: torch.device) -> tuple[list[Any], set[int]]:
        """The slots before a run, constants on the device, else None; and the addresses of their memory."""
        found = self._on_device.get(device)
        if found is None:
            slots: list[Any] = [None] * len(self._avals)
            for slot, value in self.constants.items():
                if value is not None:
                    slots[slot] = constant(value, self._avals[slot], device)
            for step in self._makers:
                slots[step.outputs[0]] = step.rule(device, step.equation, **step.equation.params)
            memory = {x.untyped_storage().data_ptr() for x in slots if x is not None}
            found = self._on_device[device] = (slots, memory)
        return found

    def constant_memory(self, device: torch.device) -> set[int]:
        """Addresses of the constants' memory, which results must not be in."""
        return self._at(device)[1]

    def run(self, device: torch.device, operands: Sequence[Tensor]) -> list[Tensor]:
        """The results for operands on the device, as they are carried; some may be views of operands or constants."""
        env = self._at(device)[0].copy()
        for slot, value in zip(self.arguments, operands, strict=True):
            env[slot] = value
        for step in self.steps:
            equation = step.equation
            given = [env[i] for i in step.inputs]
            if step.told_device:
                result = step.rule(device, equation, *given, **equation.params)
            else:
                result = step.rule(equation, *given, **equation.params)
            del given
            if equation.many:
                for slot, value in zip(step.outputs, result, strict=True):
                    env[slot] = value
            else:
                env[step.outputs[0]] = result
            for slot in step.dead:
                env[slot] = None
        return [env[slot] for slot in self.results]


def _expanded(eqn: Any) -> Any:
    """What one of JAX's composed primitives is made of."""
    prim, avals = eqn.params["_prim"], [v.aval for v in eqn.invars]

    def expand(*values: Any) -> list[Any]:
        return list(jax.tree.leaves(prim.expand(*jax.tree.unflatten(prim.in_tree, values))))

    wide = any(np.dtype(v.aval.dtype).itemsize == 8 for v in (*eqn.invars, *eqn.outvars))
    return traced(expand, [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in avals], wide)[0]


def constant(value: Any, aval: Any, device: torch.device) -> Tensor:
    """A constant of a jaxpr as the tensor that carries it."""
    name = dtype_name(aval.dtype)
    array = np.array(value, dtype=np.dtype(aval.dtype), order="C")
    return from_numpy(array, name).to(device)


def _step(
    eqn: Any, inputs: tuple[int, ...], outputs: tuple[int, ...], source: SourceLine | None, constants: dict[int, Any]
) -> Step:
    name = eqn.primitive.name
    try:
        _check_dtypes(eqn)
        rule, told_device = _rule_of(name, source)
        equation = Equation(
            name=name,
            params=dict(eqn.params),
            avals_in=tuple(v.aval for v in eqn.invars),
            avals_out=tuple(v.aval for v in eqn.outvars),
            dtypes_in=tuple(dtype_name(v.aval.dtype) for v in eqn.invars),
            dtype=dtype_name(eqn.outvars[0].aval.dtype),
            shape=tuple(eqn.outvars[0].aval.shape),
            literals=tuple(constants.get(slot) for slot in inputs),
            source=source,
            many=bool(eqn.primitive.multiple_results),
        )
        prepare = registry.PREPARES.get(name)
        if prepare is not None:
            prepare(equation)
    except MosaicGpuError as error:
        # What functions of JAX contain may have no line of the user's; the call has it.
        raise error.at(source) from error.__cause__
    return Step(rule, equation, inputs, outputs, told_device)


def _rule_of(name: str, source: SourceLine | None) -> tuple[Any, bool]:
    for table, told_device in ((registry.EVALUATES, False), (registry.EXECUTES, True), (registry.MAKES, True)):
        if name in table:
            return table[name], told_device
    raise UnsupportedError(f"as_torch has no rule for JAX's primitive {name!r}", hint=_HINT, source=source)


def _check_dtypes(eqn: Any) -> None:
    for var in (*eqn.invars, *eqn.outvars):
        aval = var.aval
        if not compat.is_array(aval) or compat.is_extended_dtype(aval):
            raise UnsupportedError(f"as_torch has no tensors for values of type {aval} around kernels", hint=_HINT)
        if dtype_name(aval.dtype) not in CARRIERS:
            raise UnsupportedError(f"as_torch has no tensors of dtype {aval.dtype} around kernels", hint=_HINT)
