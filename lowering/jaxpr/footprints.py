"""Which places of its outputs one step of a kernel touches, as far as its program ids tell.

An integer of the kernel is described by a `Form`: an affine function of the program ids, plus something between two
bounds.  For

    i = pl.program_id(0);  o_ref[pl.ds(i * 128 + 32 * k, 32)] = ..      k = 0 .. 3, a loop's counter

the places that one step touches are 128 i + 0 .. 127; so two steps of which i differs touch different
places.  What is not understood is any place.  Arithmetic that may wrap around is not understood.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from mosaic_gpu.lowering.jaxpr.compat import NDIndexer, Slice, is_literal, jaxpr_params, scan_counts

_ACCESSES = frozenset({"get", "load", "swap", "addupdate", "masked_load", "masked_swap"})
_MASKED = frozenset({"masked_load", "masked_swap"})
_CALLS = frozenset({"jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call"})
_SAME = frozenset(
    {
        "broadcast_in_dim",
        "broadcast_to",
        "reshape",
        "squeeze",
        "expand_dims",
        "transpose",
        "rev",
        "slice",
        "multiple_of",
    }
    | {"stop_gradient", "convert_element_type", "max_contiguous", "name", "optimization_barrier"}
)


_LOGIC: dict[str, Callable[[list[Form]], tuple[int, int]]] = {
    "and": lambda bits: (min(b.low for b in bits), min(b.high for b in bits)),
    "or": lambda bits: (max(b.low for b in bits), max(b.high for b in bits)),
    "not": lambda bits: (1 - bits[0].high, 1 - bits[0].low),
}
"""Bounds of a bool, whose own are 0 and 1."""


@dataclass(frozen=True)
class Form:
    """The values `sum(coefficients[d] * id[d]) + r`, r from `low` to `high`; d runs over the grid's dimensions."""

    coefficients: tuple[int, ...]
    low: int
    high: int

    def plus(self, other: Form) -> Form:
        pairs = zip(self.coefficients, other.coefficients, strict=True)
        return Form(tuple(a + b for a, b in pairs), self.low + other.low, self.high + other.high)

    def times(self, factor: int) -> Form:
        ends = (self.low * factor, self.high * factor)
        return Form(tuple(c * factor for c in self.coefficients), min(ends), max(ends))

    def wider(self, by: int) -> Form:
        """With `by` more places above each."""
        return Form(self.coefficients, self.low, self.high + by)

    @property
    def constant(self) -> int | None:
        """The one value, where it is one."""
        return self.low if self.low == self.high and not any(self.coefficients) else None


type Footprint = tuple[Form | None, ...]
"""The places of one access along each dimension of the reference; None = any."""


def footprints(
    jaxpr: Any, references: Sequence[int], axes: Sequence[int], extents: Sequence[int]
) -> dict[int, list[Footprint]]:
    """For each of some references what the accesses to it touch, writes and reads alike.

    Arguments:
      jaxpr: the kernel's body.
      references: numbers of arguments of `jaxpr`.
      axes: the grid's dimension behind each axis of `program_id`.
      extents: of all dimensions of the grid.
    """
    walk = _Walk(tuple(axes), tuple(extents), {i: [] for i in references})
    walk.jaxpr(jaxpr, [_Reference(i) if i in references else None for i in range(len(jaxpr.invars))])
    return walk.found


@dataclass(frozen=True)
class _Reference:
    number: int


type _Known = Form | _Reference | None


@dataclass
class _Walk:
    axes: tuple[int, ...]
    extents: tuple[int, ...]
    found: dict[int, list[Footprint]] = field(default_factory=dict)

    def jaxpr(self, jaxpr: Any, arguments: Sequence[_Known], consts: Sequence[_Known] = ()) -> list[_Known]:
        env: dict[Any, _Known] = dict(zip(jaxpr.invars, arguments, strict=True))
        env |= dict(zip(jaxpr.constvars, consts, strict=False))

        def read(atom: Any) -> _Known:
            return self._literal(atom) if is_literal(atom) else env.get(atom)

        for equation in jaxpr.eqns:
            results = self._equation(equation, [read(a) for a in equation.invars])
            env |= dict(zip(equation.outvars, results, strict=False))
        return [read(a) for a in jaxpr.outvars]

    def _literal(self, atom: Any) -> Form | None:
        value = np.asarray(atom.val)
        if value.dtype.kind not in "biu" or value.size != 1:
            return None
        return self._between(int(value.reshape(-1)[0]), int(value.reshape(-1)[0]))

    def _between(self, low: int, high: int) -> Form:
        return Form((0,) * len(self.extents), low, high)

    def range_of(self, form: Form) -> tuple[int, int]:
        """The least and the largest value."""
        spans = [c * max(n - 1, 0) for c, n in zip(form.coefficients, self.extents, strict=True)]
        return form.low + sum(min(s, 0) for s in spans), form.high + sum(max(s, 0) for s in spans)

    def _equation(self, equation: Any, values: list[_Known]) -> list[_Known]:
        name = equation.primitive.name
        if name in _ACCESSES:
            self._access(equation, values)
            return []
        inner = self._inside(equation, values)
        if inner is not None:
            return inner
        for value in values:
            if isinstance(value, _Reference):
                self._anywhere(value)
        if len(equation.outvars) != 1:
            return []
        form = self._form(equation, [v if isinstance(v, Form) else None for v in values])
        return [form if form is not None and self._fits(form, equation.outvars[0].aval) else None]

    def _fits(self, form: Form, aval: Any) -> bool:
        if getattr(aval, "dtype", None) == np.bool_:
            return True
        if not np.issubdtype(aval.dtype, np.integer):
            return False
        low, high = self.range_of(form)
        return bool(np.iinfo(aval.dtype).min <= low and high <= np.iinfo(aval.dtype).max)

    def _anywhere(self, reference: _Reference) -> None:
        self.found[reference.number].append(())

    # Values.

    def _form(self, equation: Any, values: list[Form | None]) -> Form | None:
        name, params = equation.primitive.name, equation.params
        if name == "program_id":
            unit = [0] * len(self.extents)
            unit[self.axes[params["axis"]]] = 1
            return Form(tuple(unit), 0, 0)
        if name == "num_programs":
            return self._between(1, max(1, self.extents[self.axes[params["axis"]]]))
        if name == "iota":
            return self._between(0, max(0, params["shape"][params["dimension"]] - 1))
        known = [v for v in values if v is not None]
        if name == "select_n":
            return self._selected(values)
        if name in _LOGIC and equation.outvars[0].aval.dtype != np.bool_:
            return None
        if not known or len(known) != len(values):
            return None
        return self._computed(name, known)

    def _computed(self, name: str, values: list[Form]) -> Form | None:
        first, last = values[0], values[-1]
        if name in _SAME and len(values) == 1:
            return first
        match name, values:
            case "neg", [a]:
                return a.times(-1)
            case "add", [a, b]:
                return a.plus(b)
            case "sub", [a, b]:
                return a.plus(b.times(-1))
            case "mul", [a, b] if first.constant is not None or last.constant is not None:
                return b.times(a.low) if a.constant is not None else a.times(b.low)
            case (("lt" | "le" | "gt" | "ge" | "eq" | "ne"), [a, b]):
                return self._compared(name, a.plus(b.times(-1)))
            case (("and" | "or" | "not"), _):
                return self._between(*_LOGIC[name](values))
            case _:
                return self._bounded(name, [self.range_of(v) for v in values])

    def _bounded(self, name: str, ranges: list[tuple[int, int]]) -> Form | None:
        """Results of which only the bounds are known."""
        match name, ranges:
            case "max", [a, b]:
                return self._between(max(a[0], b[0]), max(a[1], b[1]))
            case "min", [a, b]:
                return self._between(min(a[0], b[0]), min(a[1], b[1]))
            case "clamp", [low, x, high]:
                return self._between(min(max(low[0], x[0]), high[0]), min(max(low[1], x[1]), high[1]))
            case "div", [a, b] if a[0] >= 0 and b[0] > 0:
                return self._between(a[0] // b[1], a[1] // b[0])
            case "rem", [a, b] if a[0] >= 0 and b[0] > 0:
                return self._between(0, min(a[1], b[1] - 1))
            case _:
                return None

    def _compared(self, name: str, difference: Form) -> Form | None:
        """A comparison with 0 that is the same for all steps; else a bool."""
        low, high = self.range_of(difference)
        sure = {
            "lt": (high < 0, low >= 0),
            "le": (high <= 0, low > 0),
            "gt": (low > 0, high <= 0),
            "ge": (low >= 0, high < 0),
            "eq": (low == high == 0, low > 0 or high < 0),
            "ne": (low > 0 or high < 0, low == high == 0),
        }
        true, false = sure[name]
        return self._between(0 if not true else 1, 1 if not false else 0)

    def _selected(self, values: list[Form | None]) -> Form | None:
        which, *cases = values
        if which is not None and which.constant is not None and 0 <= which.low < len(cases):
            return cases[which.low]
        if any(case is None or any(case.coefficients) for case in cases):
            return None
        known = [case for case in cases if case is not None]
        return self._between(min(c.low for c in known), max(c.high for c in known))

    # Calls, branches and loops.

    def _inside(self, equation: Any, values: list[_Known]) -> list[_Known] | None:
        """The results of an equation with jaxprs inside, their accesses noted; None where it is not understood."""
        name, params = equation.primitive.name, equation.params
        inner = jaxpr_params(params)
        if name in _CALLS and len(inner) == 1 and len(inner[0].invars) == len(values):
            return self.jaxpr(inner[0], values)
        if name == "cond":
            branches = [self.jaxpr(branch, values[1:]) for branch in inner]
            return [a[0] if len({*a}) == 1 else None for a in zip(*branches, strict=True)]
        if name == "scan" and len(inner) == 1:
            return self._scan(inner[0], params, values)
        if name == "while":
            return self._while(params, values)
        if name == "run_scoped" and len(inner) == 1:
            return self.jaxpr(inner[0], [None] * len(inner[0].invars), values)
        return None

    def _scan(self, body: Any, params: Any, values: list[_Known]) -> list[_Known]:
        num_consts, num_carry = scan_counts(params)
        consts, carry = values[:num_consts], values[num_consts : num_consts + num_carry]
        inside = body.invars[num_consts : num_consts + num_carry]
        steps = max(params["length"] - 1, 0)
        counted = [
            start.wider(steps) if isinstance(start, Form) and _adds_one(body, var, out) else None
            for start, var, out in zip(carry, inside, body.outvars, strict=False)
        ]
        scanned = [None] * (len(values) - num_consts - num_carry)
        self.jaxpr(body, [*consts, *counted, *scanned])
        return []

    def _while(self, params: Any, values: list[_Known]) -> list[_Known]:
        cond, body = jaxpr_params({"cond": params["cond_jaxpr"]})[0], jaxpr_params({"body": params["body_jaxpr"]})[0]
        conds, bodies = params["cond_nconsts"], params["body_nconsts"]
        carried = [None] * (len(values) - conds - bodies)
        self.jaxpr(cond, [*values[:conds], *carried])
        self.jaxpr(body, [*values[conds : conds + bodies], *carried])
        return []

    # Accesses.

    def _access(self, equation: Any, values: list[_Known]) -> None:
        masked = equation.primitive.name in _MASKED
        if masked:
            reference, transforms, *_ = jax.tree_util.tree_unflatten(equation.params["args_tree"], values)
        else:
            first = 1 if equation.primitive.name in ("get", "load") else 2
            reference, transforms = values[0], jax.tree_util.tree_unflatten(equation.params["tree"], values[first:])
        if not isinstance(reference, _Reference):
            return
        shape = equation.invars[0].aval.shape
        place: Footprint = tuple(self._between(0, max(n - 1, 0)) for n in shape)
        if transforms and isinstance(transforms[0], NDIndexer):
            pairs = zip(transforms[0].indices, shape, strict=True)
            place = tuple(self._along(index, extent, masked) for index, extent in pairs)
        elif transforms:
            place = ()
        self.found[reference.number].append(place)

    def _along(self, index: Any, extent: int, masked: bool) -> Form | None:
        """What an index touches; None where it may be moved into range, and so to another step's place."""
        if isinstance(index, Slice):
            start = self._at(int(index.start)) if isinstance(index.start, (int, np.integer)) else index.start
            reach = (int(index.size) - 1) * int(index.stride)
            form = start.wider(reach) if isinstance(start, Form) and reach >= 0 else None
        else:
            form = self._at(int(index)) if isinstance(index, (int, np.integer)) else index
        if not isinstance(form, Form):
            return None
        low, high = self.range_of(form)
        return form if masked or (low >= 0 and high < extent) else None

    def _at(self, number: int) -> Form:
        return self._between(number, number)


def _adds_one(jaxpr: Any, before: Any, after: Any) -> bool:
    """Whether a carried value counts the steps of a loop."""
    equation = next((e for e in jaxpr.eqns if after in e.outvars), None)
    if equation is None or equation.primitive.name != "add":
        return False
    a, b = equation.invars
    return a is before and is_literal(b) and math.prod(np.shape(b.val)) == 1 and int(np.asarray(b.val)) == 1
