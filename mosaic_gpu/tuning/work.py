"""What one step of a kernel's grid does, counted in its jaxpr: dots, elementwise work, bytes read and written.

Conditions and loop bounds that follow from program ids are computed at a few points of the grid, at the first, the
middle and the last step along each dimension, and the counts are the mean over the grid.  A condition that is not known
is taken to be true half of the time, and a loop whose bounds are not known to run ASSUMED_TRIPS times;
`Work.is_assumed` tells that this happened.  The counter of a loop is taken to be at the middle of its range.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mosaic_gpu.lowering.jaxpr import compat
from mosaic_gpu.lowering.jaxpr.index_maps import evaluate_equation
from mosaic_gpu.tuning.costs import FREE, cost_of, packing_of, pipe_of

ASSUMED_TRIPS = 16
_MOST_POINTS = 243
_Array = np.ndarray[Any, Any]
type Counts[K] = defaultdict[K, float]


@dataclass(frozen=True)
class Dot:
    """A matrix product (m, k) by (k, n); `kind` as in `Throughput.tensor`, or "f32"."""

    m: int
    n: int
    k: int
    kind: str
    element_bytes: int


@dataclass
class Work:
    """Counts of one step of the grid, the mean over all steps.

    Attributes:
      dots: how often each matrix product is computed.
      lanes: instructions of single threads, by unit: "fp32", "fp64", "int32", "special".
      reads, writes: bytes of each block-mapped array, by its number among the kernel's arguments.
      read_phases: how often the step waits for memory, at the least: once in each loop body that reads.
      reductions: how many reductions along an axis there are, one after another.
      tiles: elements of each tile that elementwise work is done on, and the instructions of that work.
      is_assumed: whether a loop or a condition was not known.
    """

    dots: Counts[Dot] = field(default_factory=lambda: defaultdict(float))
    lanes: Counts[str] = field(default_factory=lambda: defaultdict(float))
    reads: Counts[int] = field(default_factory=lambda: defaultdict(float))
    writes: Counts[int] = field(default_factory=lambda: defaultdict(float))
    read_phases: float = 0.0
    reductions: float = 0.0
    tiles: list[tuple[int, float]] = field(default_factory=list)
    is_assumed: bool = False


def work_of(jaxpr: Any, arrays: int, extents: Sequence[int], approx_math: bool) -> Work:
    """The work of a kernel.

    Arguments:
      jaxpr: its arguments are references: so many `arrays`, then scratch memory, which is taken to be registers.
      extents: of the grid.
      approx_math: whether the hardware's approximate functions are used.
    """
    points, weight = _sample(extents)
    walker = _Walker(extents, points, approx_math)
    references = {var: i for i, var in enumerate(jaxpr.invars[:arrays])}
    walker.walk(jaxpr, references, {}, weight)
    return walker.work


def _sample(extents: Sequence[int]) -> tuple[_Array, _Array]:
    """Points of the grid, an array (rank, points), and their weights, which add up to 1."""
    along = [_samples_along(n) for n in extents]
    while math.prod(len(a) for a in along) > _MOST_POINTS:
        longest = next(i for i, a in enumerate(along) if len(a) > 1)
        along[longest] = [(extents[longest] // 2, 1.0)]
    chosen = list(itertools.product(*along))
    points = (
        np.array([[place for place, _ in point] for point in chosen], np.int64).reshape(len(chosen), len(extents)).T
    )
    return points, np.array([math.prod(share for _, share in point) for point in chosen])


def _samples_along(extent: int) -> list[tuple[int, float]]:
    if extent <= 3:
        return [(i, 1 / extent) for i in range(extent)]
    return [(0, 1 / extent), (extent // 2, (extent - 2) / extent), (extent - 1, 1 / extent)]


class _Walker:
    """Goes through the equations once, and keeps what a value of rank 0 is at each point of the grid where it can."""

    def __init__(self, extents: Sequence[int], points: _Array, approx_math: bool) -> None:
        self.work = Work()
        self._extents, self._points, self._approx_math = extents, points, approx_math
        self._has_read = False  # the body that is being walked, not those inside of it
        self._rules = {
            "get": self._get, "masked_load": self._get, "swap": self._swap, "masked_swap": self._swap,
            "addupdate": self._swap, "dot_general": self._dot, "cond": self._cond, "while": self._while,
            "scan": self._scan,
        }  # fmt: skip

    def walk(self, jaxpr: Any, references: dict[Any, int], known: dict[Any, _Array], weight: _Array) -> None:
        """Adds the work of `jaxpr`, done `weight` times at each point, to the counts.

        `references`: which argument of the kernel a reference is; scratch memory made inside is in none.
        `known`: values of rank 0 at each point; grows.
        """
        outer, self._has_read = self._has_read, False
        sums = {v for e in jaxpr.eqns if e.primitive.name == "dot_general" for v in e.outvars}
        for equation in jaxpr.eqns:
            name = equation.primitive.name
            values = [_read(a, known) for a in equation.invars]
            found = self._scalar(equation, values)
            if found is not None:
                known |= dict(zip(equation.outvars, found, strict=True))
            elif name in self._rules:
                self._rules[name](equation, references, known, weight)
            elif (inner := _inlined(equation)) is not None:
                self._inline(equation, inner, references, known, weight)
            elif not (name in ("add", "sub") and any(not compat.is_literal(v) and v in sums for v in equation.invars)):
                self._elementwise(equation, references, weight)  # a sum with a dot is the dot's accumulator
        self.work.read_phases += float(weight.sum()) * self._has_read
        self._has_read = outer

    def _scalar(self, equation: Any, values: list[_Array | None]) -> list[_Array] | None:
        name = equation.primitive.name
        if name == "program_id":
            return [self._points[equation.params["axis"]]]
        if name == "num_programs":
            return [np.asarray(self._extents[equation.params["axis"]])]
        if any(v is None for v in values) or not values:
            return None
        return evaluate_equation(equation, [v for v in values if v is not None])

    def _elementwise(self, equation: Any, references: dict[Any, int], weight: _Array) -> None:
        name = equation.primitive.name
        touched = [v for v in equation.invars if not compat.is_literal(v) and v in references]
        for var in touched:  # copies and atomic operations: the whole block
            self.work.reads[references[var]] += _bytes(var.aval) * float(weight.sum())
            self._has_read = True
        results = [v.aval for v in equation.outvars if _is_tile(v.aval)]
        sources = [v.aval for v in equation.invars if _is_tile(v.aval)]
        if name in FREE or not (results or sources) or touched:
            return
        is_reduction = name.startswith("reduce") or name in ("argmax", "argmin")
        main = max([*results, *sources], key=lambda a: int(a.size))
        self.work.reductions += float(weight.sum()) * is_reduction
        self._compute(name, int(main.size), np.dtype((sources or results)[0].dtype), float(weight.sum()))

    def _compute(self, name: str, size: int, dtype: np.dtype[Any], times: float) -> None:
        cost, pipe = cost_of(name, dtype, self._approx_math), pipe_of(dtype)
        self.work.lanes[pipe] += cost.plain * packing_of(dtype) * size * times
        self.work.lanes["special"] += cost.special * size * times
        self.work.tiles.append((size, (cost.plain + cost.special) * size * times))

    def _get(self, equation: Any, references: dict[Any, int], known: dict[Any, _Array], weight: _Array) -> None:
        self._move(equation.invars[0], equation.outvars[0].aval, references, self.work.reads, weight)

    def _swap(self, equation: Any, references: dict[Any, int], known: dict[Any, _Array], weight: _Array) -> None:
        self._move(equation.invars[0], equation.invars[1].aval, references, self.work.writes, weight)
        if equation.primitive.name == "addupdate":
            self._move(equation.invars[0], equation.invars[1].aval, references, self.work.reads, weight)

    def _move(self, var: Any, aval: Any, references: dict[Any, int], counter: Counts[int], weight: _Array) -> None:
        if var in references:
            counter[references[var]] += _bytes(aval) * float(weight.sum())
            self._has_read |= counter is self.work.reads
            # Instructions of 16 bytes a thread.
            self.work.lanes["int32"] += _bytes(aval) / 16 * float(weight.sum())

    def _dot(self, equation: Any, references: dict[Any, int], known: dict[Any, _Array], weight: _Array) -> None:
        lhs, rhs = (v.aval for v in equation.invars[:2])
        (contracted, _), (batched, _) = equation.params["dimension_numbers"]
        batch = math.prod(lhs.shape[d] for d in batched)
        k = math.prod(lhs.shape[d] for d in contracted)
        m, n = int(lhs.size) // max(batch * k, 1), int(rhs.size) // max(batch * k, 1)
        self.work.dots[Dot(m, n, k, _kind(lhs.dtype), np.dtype(lhs.dtype).itemsize)] += batch * float(weight.sum())

    def _cond(self, equation: Any, references: dict[Any, int], known: dict[Any, _Array], weight: _Array) -> None:
        index, *operands = equation.invars
        branches = equation.params["branches"]
        chosen = _read(index, known)
        self.work.is_assumed |= chosen is None
        for number, branch in enumerate(branches):
            if chosen is None:
                share = weight / len(branches)
            else:
                share = weight * (np.clip(np.asarray(chosen, np.int64), 0, len(branches) - 1) == number)
            if share.any():
                inner = compat.open_jaxpr(branch)
                self.walk(inner, *_bound(inner.invars, operands, references, known), share)

    def _while(self, equation: Any, references: dict[Any, int], known: dict[Any, _Array], weight: _Array) -> None:
        params = equation.params
        body, cond = (compat.open_jaxpr(params[f"{part}_jaxpr"]) for part in ("body", "cond"))
        cond_count, body_count = params["cond_nconsts"], params["body_nconsts"]
        carried = equation.invars[cond_count + body_count :]
        outer = [*equation.invars[:cond_count], *carried]
        counter, trips = _counted(cond, [_read(a, known) for a in outer])
        self.work.is_assumed |= trips is None
        operands = [*equation.invars[cond_count : cond_count + body_count], *carried]
        inner, values = _bound(body.invars, operands, references, known)
        for var in body.invars[body_count:]:
            if not _is_unchanged(body, var, body_count):
                values.pop(var, None)
        if trips is None:
            trips = np.asarray(float(ASSUMED_TRIPS))
        elif counter >= cond_count:
            first = _read(outer[counter], known)
            values[body.invars[body_count + counter - cond_count]] = np.asarray(first + trips // 2)
        self.walk(body, inner, values, weight * trips)

    def _scan(self, equation: Any, references: dict[Any, int], known: dict[Any, _Array], weight: _Array) -> None:
        body, length = compat.open_jaxpr(equation.params["jaxpr"]), equation.params["length"]
        constants, carried = compat.scan_counts(equation.params)
        inner, values = _bound(body.invars, equation.invars, references, known)
        for var in body.invars[constants:]:
            first = values.pop(var, None)
            if first is not None and _counts_up(body, var, constants, carried):
                values[var] = first + length // 2
        self.walk(body, inner, values, weight * length)

    def _inline(
        self, equation: Any, inner: Any, references: dict[Any, int], known: dict[Any, _Array], weight: _Array
    ) -> None:
        # What a scope closes over are its constants; its arguments are the memory that it makes.
        variables = inner.constvars if equation.primitive.name == "run_scoped" else inner.invars
        refs, values = _bound(variables, equation.invars, references, known)
        self.walk(inner, refs, values, weight)
        for var, result in zip(equation.outvars, inner.outvars, strict=False):
            found = _read(result, values)
            if found is not None:
                known[var] = found


def _read(atom: Any, known: dict[Any, _Array]) -> _Array | None:
    if compat.is_literal(atom):
        return np.asarray(atom.val) if atom.aval.shape == () else None
    return known.get(atom)


def _bound(
    variables: Sequence[Any], operands: Sequence[Any], references: dict[Any, int], known: dict[Any, _Array]
) -> tuple[dict[Any, int], dict[Any, _Array]]:
    """What an inner jaxpr knows of its arguments."""
    pairs = list(zip(variables, operands, strict=False))
    inner = {var: references[a] for var, a in pairs if not compat.is_literal(a) and a in references}
    values = {var: value for var, a in pairs if (value := _read(a, known)) is not None}
    return inner, values


def _inlined(equation: Any) -> Any | None:
    """The only jaxpr of an equation, where its arguments are the equation's operands: a call, a scope."""
    inner = compat.jaxpr_params(equation.params)
    if equation.primitive.name == "run_scoped" or (len(inner) == 1 and len(inner[0].invars) == len(equation.invars)):
        return inner[0]
    return None


def _counted(cond: Any, arguments: list[_Array | None]) -> tuple[int, _Array | None]:
    """Of a loop `while a < b`: which argument counts, and how often it runs where both are known."""
    if len(cond.eqns) != 1 or cond.eqns[0].primitive.name != "lt":
        return -1, None
    low, high = cond.eqns[0].invars
    places = {var: i for i, var in enumerate(cond.invars)}
    if compat.is_literal(low) or low not in places:
        return -1, None
    first = arguments[places[low]]
    end = np.asarray(high.val) if compat.is_literal(high) else arguments[places[high]]
    if first is None or end is None:
        return -1, None
    return places[low], np.maximum(np.asarray(end, np.int64) - first, 0)


def _is_unchanged(body: Any, var: Any, constants: int) -> bool:
    return bool(body.outvars[list(body.invars).index(var) - constants] is var)


def _counts_up(body: Any, var: Any, constants: int, carried: int) -> bool:
    """Whether a loop adds 1 to the carried value `var` in each step."""
    place = list(body.invars).index(var) - constants
    if place >= carried:
        return False
    makers = [e for e in body.eqns if body.outvars[place] in e.outvars]
    return (
        bool(makers)
        and makers[0].primitive.name == "add"
        and any(a is var for a in makers[0].invars)
        and any(compat.is_literal(a) and a.val == 1 for a in makers[0].invars)
    )


def _is_tile(aval: Any) -> bool:
    return compat.is_array(aval) and len(aval.shape) > 0 and not compat.is_extended_dtype(aval)


def _bytes(aval: Any) -> float:
    inner = getattr(aval, "inner_aval", aval)
    shape, dtype = compat.physical_shape_dtype(inner) if compat.is_array(inner) else (inner.shape, inner.dtype)
    return float(math.prod(shape) * np.dtype(dtype).itemsize)


_KINDS = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64", "int8": "i8", "uint8": "i8"}


def _kind(dtype: Any) -> str:
    name = np.dtype(dtype).name
    return "f8" if name.startswith("float8") else _KINDS.get(name, "int32")
