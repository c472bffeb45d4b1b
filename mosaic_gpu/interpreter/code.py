"""Jaxprs made ready to run: names resolved to slots and rules, once for each jaxpr."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import jax
import numpy as np

from mosaic_gpu.errors import MosaicGpuError, SourceLine, UnsupportedError
from mosaic_gpu.interpreter import registry
from mosaic_gpu.interpreter.values import literal, numpy_dtype
from mosaic_gpu.lowering.jaxpr import compat


@dataclass
class Equation:
    """An equation with what its rule needs, apart from values.

    Attributes:
      name: of the primitive.
      avals_in, avals_out: abstract values.
      dtype: NumPy's dtype of the first result; None where there is none, or it is no array.
      shape: of the first result.
      used: which of the results something reads.
      source: the kernel's line.
      cache: for rules: what they compute once for an equation.
    """

    name: str
    avals_in: tuple[Any, ...]
    avals_out: tuple[Any, ...]
    params: dict[str, Any]
    dtype: Any
    shape: tuple[int, ...]
    used: tuple[bool, ...]
    source: SourceLine | None
    cache: dict[Any, Any] = field(default_factory=dict)


@dataclass
class Step:
    """One equation: its rule, the slots it reads and the slots it writes."""

    rule: Any
    equation: Equation
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    executes: bool
    many: bool


class Code:
    """A jaxpr that can run: `run(thread, values)` gives its results.

    Raises UnsupportedError, with the line, for a primitive that has no rule.
    """

    def __init__(self, jaxpr: Any, consts: Sequence[Any] = ()) -> None:
        self._slots: dict[Any, int] = {}
        self._start: list[Any] = []
        self.arguments = [self._slot(v) for v in jaxpr.invars]
        self._constants = [self._slot(v) for v in jaxpr.constvars]
        for slot, value in zip(self._constants, consts, strict=False):
            if not compat.is_tracer(value):
                self._start[slot] = np.asarray(value)
        used = {id(v) for e in jaxpr.eqns for v in e.invars} | {id(v) for v in jaxpr.outvars}
        self.steps = [self._step(e, used) for e in jaxpr.eqns]
        self.results = [self._slot(v) for v in jaxpr.outvars]
        self.primitives: set[str] = {s.equation.name for s in self.steps}.union(*(c.primitives for c in self._inner()))

    def _slot(self, atom: Any) -> int:
        key: Any = atom
        if compat.is_literal(atom):
            key = ("literal", len(self._start))
        if key not in self._slots:
            self._slots[key] = len(self._start)
            self._start.append(literal(atom.val, atom.aval) if compat.is_literal(atom) else None)
        return self._slots[key]

    def _step(self, eqn: Any, used: set[int]) -> Step:
        name = eqn.primitive.name
        frame = compat.user_frame(eqn.source_info)
        source = frame and SourceLine(frame.file_name, frame.start_line, frame.function_name)
        aval = eqn.outvars[0].aval if eqn.outvars else None
        is_array = aval is not None and compat.is_array(aval)
        equation = Equation(
            name,
            tuple(v.aval for v in eqn.invars),
            tuple(v.aval for v in eqn.outvars),
            dict(eqn.params),
            numpy_dtype(aval) if is_array else None,
            tuple(aval.shape) if aval is not None and is_array else (),
            tuple(id(v) in used for v in eqn.outvars),
            source,
        )
        equation.cache["many"] = eqn.primitive.multiple_results
        try:
            rule, executes = _rule_of(equation)
            if executes:
                _prepare(equation)
        except MosaicGpuError as error:
            # What functions of JAX contain may have no line of the kernel; the call has it.
            raise error.at(source) from error.__cause__
        inputs = tuple(self._slot(v) for v in eqn.invars)
        outputs = tuple(self._slot(v) for v in eqn.outvars)
        return Step(rule, equation, inputs, outputs, executes, bool(eqn.primitive.multiple_results))

    def _inner(self) -> list[Code]:
        return [c for s in self.steps for c in s.equation.cache.get("codes", ())]

    def run(self, thread: Any, values: Sequence[Any], consts: Sequence[Any] = ()) -> list[Any]:
        """The results for `values`, computed by `thread`; `consts` are for the jaxpr's open constants."""
        env = self._start.copy()
        for slot, value in zip(self._constants, consts, strict=False):
            env[slot] = value
        for slot, value in zip(self.arguments, values, strict=True):
            env[slot] = value
        for step in self.steps:
            equation = step.equation
            given = [env[i] for i in step.inputs]
            if step.executes:
                thread.equation = equation
                result = step.rule(thread, equation, *given, **equation.params)
            else:
                result = step.rule(equation, *given, **equation.params)
            if step.many:
                # In some versions of JAX a primitive with one result gives a list of it.
                result = result if isinstance(result, list | tuple) else (result,)
                for slot, value in zip(step.outputs, result, strict=True):
                    env[slot] = value
            else:
                if not step.executes and result.dtype != equation.dtype:
                    result = result.astype(equation.dtype)
                env[step.outputs[0]] = result
        return [env[i] for i in self.results]


def _rule_of(equation: Equation) -> tuple[Any, bool]:
    # Some primitives of jax 0.11 end in _p, and lose it in 0.12.
    known = (*registry.EVALUATES, *registry.EXECUTES, *registry.EXPANDS)
    name = next((n for n in (equation.name, f"{equation.name}_p") if n in known), equation.name)
    if name in registry.EVALUATES:
        return registry.EVALUATES[name], False
    if name in registry.EXECUTES:
        return registry.EXECUTES[name], True
    if name in registry.EXPANDS:
        function = registry.EXPANDS[name](equation, **equation.params)
        equation.cache["codes"] = (traced(function, equation.avals_in, equation.avals_out),)
        return _run_expansion, True
    raise UnsupportedError(
        f"the interpreter does not know the primitive {name!r}",
        hint=_HINTS.get(name, ""),
        source=equation.source,
    )


_BLACKWELL = "tensor memory and tcgen05 belong to Blackwell GPUs; the interpreter knows Hopper's wgmma"
_HINTS = {
    "tcgen05_mma": _BLACKWELL,
    "tcgen05_commit_arrive": _BLACKWELL,
    "async_load": _BLACKWELL,
    "async_store_tmem": _BLACKWELL,
    "commit_tmem": _BLACKWELL,
    "inline_mgpu_p": "inline MLIR has no meaning in NumPy; write it with Pallas' primitives",
}


def _run_expansion(thread: Any, equation: Equation, *values: Any, **params: Any) -> Any:
    results = equation.cache["codes"][0].run(thread, values)
    return results if equation.cache["many"] else results[0]


def _prepare(equation: Equation) -> None:
    """Makes the jaxprs among an equation's parameters ready, so that what they refuse is refused before a run."""
    inner = [v for value in equation.params.values() for v in (value if isinstance(value, tuple | list) else (value,))]
    codes = tuple(code_of(v) for v in inner if compat.is_jaxpr(v))
    if codes:
        equation.cache.setdefault("codes", codes)


_CODES: WeakKeyDictionary[Any, Code] = WeakKeyDictionary()
_LOCK = threading.RLock()


def code_of(jaxpr: Any) -> Code:
    """The code of a jaxpr, open or closed; made once."""
    opened = compat.open_jaxpr(jaxpr)
    with _LOCK:
        found = _CODES.get(opened)
        if found is None:
            found = _CODES[opened] = Code(opened, getattr(jaxpr, "consts", ()))
    return found


def traced(function: Any, avals: Sequence[Any], results: Sequence[Any] = ()) -> Code:
    """The code of a function of arrays with these abstract values.

    64-bit dtypes are on where one of them, or of the `results`, has one, whatever the mode of the thread is.
    """
    dtypes = [numpy_dtype(a) for a in (*avals, *results) if not compat.is_extended_dtype(a)]
    specs = [jax.ShapeDtypeStruct(tuple(a.shape), a.dtype) for a in avals]
    with jax.enable_x64(any(d.itemsize == 8 for d in dtypes)):
        closed = jax.make_jaxpr(function)(*specs)
    return Code(compat.open_jaxpr(closed), closed.consts)


def run_values(code: Code, values: Sequence[Any]) -> list[Any]:
    """Runs code that touches no memory."""
    return code.run(_Nobody(), values)


class _Nobody:
    """A thread for code of values alone."""

    equation: Equation | None = None


def traced_whole(function: Any, args: Any) -> tuple[Code, Any, list[Any]]:
    """The code of a function of pytrees of arrays, the tree of its result, and its flat arguments."""
    closed, shape = jax.make_jaxpr(function, return_shape=True)(*args)
    leaves = [
        np.asarray(leaf, numpy_dtype(v.aval))
        for leaf, v in zip(jax.tree.leaves(args), closed.jaxpr.invars, strict=True)
    ]
    return Code(compat.open_jaxpr(closed), closed.consts), jax.tree.structure(shape), leaves
