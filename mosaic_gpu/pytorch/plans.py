"""Plans: traced functions ready to run on tensors, with their derivatives; each has a key.

    softmax.1f3c9a02.0                   the function, for operands of certain types
    softmax.1f3c9a02.0/10                the same, with what its backward function needs of it, for the gradient of the
                                         first of two operands
    softmax.1f3c9a02.0/10/backward       that backward function, which has derivatives of its own
    softmax.1f3c9a02.0/vmap:8:0,-        the function for 8 values of the first operand along its dimension 0

Compiled graphs hold keys.  A graph that an earlier process has left may hold the key of a derivative that this process
has not made yet: it is made then, as everything behind the first "/" follows from the function.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import threading
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

import jax
import numpy as np
import torch
from torch import Tensor

from mosaic_gpu.errors import KernelError, UnsupportedError
from mosaic_gpu.pytorch import rules
from mosaic_gpu.pytorch.code import Code
from mosaic_gpu.pytorch.derivatives import Traced, backward_of, chosen_results, differentiate, traced_backward
from mosaic_gpu.pytorch.kernels import KernelCode
from mosaic_gpu.pytorch.values import TORCH_DTYPES, carrier, dtype_name, is_float, uncarried

assert rules.__all__, "the rules are registered"

_PLANS: WeakValueDictionary[str, Plan] = WeakValueDictionary()
_NUMBERS = itertools.count()
_LOCK = threading.RLock()


class Plan:
    """Code with the types of its results.

    Attributes:
      key: names it in graphs.
      traced: the function; None of a compiled kernel.
      refusal: why there is no derivative of it, where that is known.
      results: dtype, by name, and shape of each.
      is_differentiable: whether a result is a float.
    """

    def __init__(
        self, key: str, code: Code | KernelCode, traced: Traced | None, refusal: UnsupportedError | None = None
    ) -> None:
        self.key, self.code, self.traced = key, code, traced
        self.refusal = refusal
        self.results = [(dtype_name(a.dtype), tuple(a.shape)) for a in code.avals(code.results)]
        self.is_differentiable = any(is_float(name) for name, _ in self.results)
        self._derived: dict[str, Any] = {}
        _PLANS[key] = self

    @property
    def name(self) -> str:
        """The function's name, for messages."""
        return self.key.split(".", 1)[0] if self.traced is None else self.traced.name

    def run(self, operands: Sequence[Tensor]) -> list[Tensor]:
        """The results, in memory of their own, row-major."""
        device = operands[0].device
        given = [carrier(x.detach().resolve_conj().resolve_neg()) for x in operands]
        found = self.code.run(device, given)
        taken = {x.untyped_storage().data_ptr() for x in given} | self.code.constant_memory(device)
        results = []
        for value, (name, _) in zip(found, self.results, strict=True):
            value = value.contiguous()
            if value.untyped_storage().data_ptr() in taken:
                value = value.clone(memory_format=torch.contiguous_format)
            taken.add(value.untyped_storage().data_ptr())
            results.append(uncarried(value, name))
        return results

    def fake(self, operands: Sequence[Tensor]) -> list[Tensor]:
        """Tensors like the results."""
        device = operands[0].device
        return [torch.empty(shape, dtype=TORCH_DTYPES[name], device=device) for name, shape in self.results]

    def gradient(self, wanted: tuple[bool, ...]) -> Gradient:
        """This function with its backward function, for the gradients of the `wanted` operands."""
        part = "".join("01"[w] for w in wanted)
        with _LOCK:
            if part not in self._derived:
                self._derived[part] = Gradient(self, wanted, part)
        found: Gradient = self._derived[part]
        return found

    def batched(self, size: int, dims: Sequence[int | None]) -> Plan:
        """This function for `size` values along these dimensions of the operands (None: the same for all).

        Raises UnsupportedError where there is no function, but a compiled kernel.
        """
        part = f"vmap:{size}:{','.join('-' if d is None else str(d) for d in dims)}"
        with _LOCK:
            if part not in self._derived:
                self._derived[part] = self._batched(part, size, dims)
        found: Plan = self._derived[part]
        return found

    def _batched(self, part: str, size: int, dims: Sequence[int | None]) -> Plan:
        if self.traced is None:
            raise UnsupportedError(
                f"torch.func.vmap does not go through {self.key!r}", hint="give as_torch the function"
            )
        function = jax.vmap(self.traced.function, tuple(dims), axis_size=size)
        avals = [_with_batch(a, size, d) for a, d in zip(self.traced.avals, dims, strict=True)]
        traced = Traced(function, tuple(avals), self.traced.wide, self.traced.name)
        return Plan(f"{self.key}/{part}", Code(traced.jaxpr()), traced)


def _with_batch(aval: Any, size: int, dim: int | None) -> Any:
    if dim is None:
        return aval
    shape = list(aval.shape)
    shape.insert(dim, size)
    return jax.ShapeDtypeStruct(tuple(shape), aval.dtype)


class Gradient:
    """A plan with its backward function.

    Attributes:
      forward: from operands to the results, and behind them what else the backward function needs.
      backward: from what is saved, and the gradients of the float results, to the gradients of the wanted operands.
      wanted: for each operand whether its gradient is.
      saved: what to save: `i` stands for operand i, `~i` for output i of `forward`.
      results: dtypes of the results, by name.
      anchored: wanted operands that are not saved, where there is no second derivative.
      constant_outputs: places of those outputs of `forward` that have no gradient.
    """

    def __init__(self, plan: Plan, wanted: tuple[bool, ...], part: str) -> None:
        self.wanted, self.results, key = wanted, [name for name, _ in plan.results], f"{plan.key}/{part}"
        self.forward = plan
        self.saved: tuple[int, ...] = ()
        self.anchored: list[int] = []
        try:
            if plan.refusal is not None or plan.traced is None:
                raise plan.refusal or UnsupportedError(f"there is no derivative of {plan.key!r}")
            self._derive(plan.traced, key)
        except UnsupportedError as error:
            # Values can be had all the same: the error comes where the gradient is asked for.
            avals = plan.code.avals([slot for slot, w in zip(plan.code.arguments, wanted, strict=True) if w])
            self.backward: Plan = _Refusing(f"{key}/backward", avals, error)
        outputs, count = len(self.forward.results), len(self.results)
        self.constant_outputs = [i for i in range(outputs) if i >= count or not is_float(self.results[i])]

    def _derive(self, function: Traced, key: str) -> None:
        found = differentiate(function, self.wanted, self.results)
        floats, others = (sum(is_float(name) is kind for name in self.results) for kind in (True, False))
        leaves: list[Any] = []
        places: list[int] = []  # of the outputs among the results of what was traced

        def select(code: Code) -> list[int]:
            residuals = code.results[floats : len(code.results) - others]
            outputs = [code.results[place] for place in found.order]
            leaves.extend(_source(code, slot, outputs) for slot in residuals)
            places.extend(code.results.index(slot) for slot in outputs)
            return outputs

        code = Code(found.jaxpr, select)
        saved = tuple(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, int)))
        kept = [saved.index(leaf) if isinstance(leaf, int) else leaf for leaf in leaves]
        slots = [code.arguments[s] if s >= 0 else code.results[~s] for s in saved]
        gradients = [code.results[i] for i, name in enumerate(self.results) if is_float(name)]
        backward = backward_of(found, function, code.avals(slots), kept, code.avals(gradients))
        body = Code(traced_backward(backward, function.name))
        # A second derivative would have to go through values that nobody outside of this function knows.
        hidden = code.avals(code.results[len(self.results) :])
        refusal = _no_second(function.name) if any(is_float(dtype_name(a.dtype)) for a in hidden) else None
        if refusal is not None:
            self.anchored = [i for i, w in enumerate(self.wanted) if w and i not in saved]
        forward = dataclasses.replace(function, function=chosen_results(found.jaxpr, places))
        self.forward, self.saved = Plan(key, code, forward, _no_second(function.name)), saved
        self.backward = Plan(f"{key}/backward", body, backward, refusal)


def _source(code: Code, slot: int, outputs: list[int]) -> Any:
    """Where the backward function gets a residual from: see `Gradient.saved`, or a constant; may add an output."""
    if slot in code.arguments:
        return code.arguments.index(slot)
    if slot in code.constants:
        (aval,) = code.avals([slot])
        return np.asarray(code.constants[slot], aval.dtype)
    if slot not in outputs:
        outputs.append(slot)
    return ~outputs.index(slot)


def _no_second(name: str) -> UnsupportedError:
    return UnsupportedError(
        f"there is no second derivative of {name!r}: its backward function needs values that are no results",
        hint="let the forward function of the jax.custom_vjp keep operands and results only",
    )


class _Refusing(Plan):
    """The backward function of what has no derivative."""

    def __init__(self, key: str, avals: Sequence[Any], error: UnsupportedError) -> None:
        self.key, self.traced, self.refusal, self._error = key, None, error, error
        self.results = [(dtype_name(a.dtype), tuple(a.shape)) for a in avals]
        self.is_differentiable, self._derived = False, {}
        _PLANS[key] = self

    def run(self, operands: Sequence[Tensor]) -> list[Tensor]:
        """Raises the error."""
        raise self._error.with_traceback(None)


def new_key(name: str, text: str) -> str:
    """A key for a function of this name and with these equations."""
    plain = "".join(c if c.isalnum() or c == "_" else "_" for c in name)
    return f"{plain}.{hashlib.sha256(text.encode()).hexdigest()[:8]}.{next(_NUMBERS)}"


def plan_of(key: str) -> Plan:
    """The plan of a key; see the module.

    Raises KernelError where its function is gone.
    """
    found = _PLANS.get(key)
    if found is not None:
        return found
    base, _, parts = key.partition("/")
    plan = _PLANS.get(base)
    if plan is None:
        raise KernelError(
            f"the function {base!r} of as_torch is not known in this process",
            hint="call it before, as often and in the same order as in the process that made the graph",
        )
    return _derived(plan, parts.split("/"))


def _derived(plan: Plan, parts: list[str]) -> Plan:
    while parts:
        part = parts.pop(0)
        if part.startswith("vmap:"):
            _, size, dims = part.split(":")
            plan = plan.batched(int(size), [None if d == "-" else int(d) for d in dims.split(",")])
            continue
        gradient = plan.gradient(tuple(c == "1" for c in part))
        is_backward = parts[:1] == ["backward"]
        plan = gradient.backward if is_backward else gradient.forward
        parts = parts[is_backward:]
    return plan
