"""setp, set, selp, slct, testp, copysign."""

from __future__ import annotations

from typing import Any

import numpy as np

from mosaic_gpu.simulator import floats, halves
from mosaic_gpu.simulator.ptx import Sink
from mosaic_gpu.simulator.registry import Decoder, Operation, instruction

Array = np.ndarray[Any, np.dtype[Any]]
_ORDERED: dict[str, Any] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
}  # fmt: skip
_COMPARISONS = (*_ORDERED, "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan")
#: The bits of 1.0, the value of `set` for true.
_ONES = {"f16": 0x3C00, "bf16": 0x3F80}
_COMBINATIONS: dict[str, Any] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def comparison(name: str, is_float: bool) -> Any:
    """The function of two arrays and `out` for a comparison; the u forms hold for NaN as well."""
    if name in ("num", "nan"):

        def about_nan(a: Array, b: Array, out: Array) -> None:
            nan = np.isnan(a) | np.isnan(b)
            out[...] = nan if name == "nan" else ~nan

        return about_nan
    if name.endswith("u") and name != "u":
        ordered = _ORDERED[name[:-1]]

        def unordered(a: Array, b: Array, out: Array) -> None:
            out[...] = ordered(a, b) | np.isnan(a) | np.isnan(b)

        return unordered
    if name == "ne" and is_float:

        def not_equal(a: Array, b: Array, out: Array) -> None:
            out[...] = np.less(a, b) | np.greater(a, b)

        return not_equal
    return _ORDERED[name]


def _prepared(d: Decoder, kind: str, flush: bool) -> tuple[str, Any]:
    """(storage type, function that gives the values to compare)."""
    if kind in ("f16", "bf16"):

        def widened(x: Array) -> Array:
            value = halves.widen(x, kind)
            return halves.flush16(value) if flush else value

        return "b16", widened
    if kind == "f32" and flush:
        return kind, floats.flush32
    return kind, None


def _comparing(d: Decoder, name: str, kind: str, flush: bool) -> tuple[str, Any]:
    compare = comparison(name, "f" in kind)
    storage, value = _prepared(d, kind, flush)
    if value is None:
        return storage, compare
    return storage, lambda a, b, out: compare(value(a), value(b), out)


@instruction("setp")
def exec_setp(d: Decoder) -> Operation:
    name, combine, flush = d.need(_COMPARISONS), d.one_of(tuple(_COMBINATIONS)), d.flag("ftz")
    kind = d.type()
    if name in ("lo", "ls", "hi", "hs") and kind[0] not in "ub":
        raise d.fail(f".{name} compares unsigned numbers")
    if kind.endswith("x2"):
        return _setp_pair(d, name, combine, flush, kind)
    d.count(4 if combine else 3)
    storage, compare = _comparing(d, name, kind, flush)
    first, second = d.pair(0)
    p, q = d.destination(first, "pred"), None if isinstance(second, Sink) else d.destination(second, "pred")
    a, b = d.src(1, storage), d.src(2, storage)
    if not combine and q is None:

        def simple(slots: list[Array], frame: Any) -> None:
            compare(slots[a], slots[b], slots[p])

        return simple
    c, negated = d.predicate(d.operand(3)) if combine else (None, False)
    how: Any = _COMBINATIONS.get(combine)

    def run(slots: list[Array], frame: Any) -> None:
        result = np.empty(frame.n, np.bool_)
        compare(slots[a], slots[b], result)
        other = ~result
        if c is not None:
            condition = slots[c] ^ negated
            result, other = how(result, condition), how(other, condition)
        slots[p][...] = result
        if q is not None:
            slots[q][...] = other

    return run


def _setp_pair(d: Decoder, name: str, combine: str, flush: bool, kind: str) -> Operation:
    """setp.f16x2 p|q, a, b: p compares the lower halves, q the upper."""
    element = kind.removesuffix("x2")
    _, compare = _comparing(d, name, element, flush)
    first, second = d.pair(0)
    p, q, a, b = d.destination(first, "pred"), d.destination(second, "pred"), d.src(1, "b32"), d.src(2, "b32")
    c, negated = d.predicate(d.operand(3)) if combine else (None, False)

    def run(slots: list[Array], frame: Any) -> None:
        condition = None if c is None else slots[c] ^ negated
        results = []
        for part in (halves.low, halves.high):
            result = np.empty(frame.n, np.bool_)
            compare(part(slots[a]), part(slots[b]), result)
            results.append(result if condition is None else _COMBINATIONS[combine](result, condition))
        slots[p][...], slots[q][...] = results

    return run


@instruction("set")
def exec_set(d: Decoder) -> Operation:
    name, combine, flush = d.need(_COMPARISONS), d.one_of(tuple(_COMBINATIONS)), d.flag("ftz")
    result_type, kind = d.type(0), d.type(1)
    d.count(4 if combine else 3)
    if kind.endswith("x2"):
        return _set_pair(d, name, combine, flush, result_type, kind)
    storage, compare = _comparing(d, name, kind, flush)
    o, a, b = d.dst(0, "b16" if result_type in _ONES else result_type), d.src(1, storage), d.src(2, storage)
    c, negated = d.predicate(d.operand(3)) if combine else (None, False)

    def run(slots: list[Array], frame: Any) -> None:
        result = np.empty(frame.n, np.bool_)
        compare(slots[a], slots[b], result)
        if c is not None:
            result = _COMBINATIONS[combine](result, slots[c] ^ negated)
        slots[o][...] = result if result_type == "f32" else result.astype(np.int64) * _ONES.get(result_type, -1)

    return run


def _set_pair(d: Decoder, name: str, combine: str, flush: bool, result_type: str, kind: str) -> Operation:
    """set on pairs of halves: each half of the result is 1.0, or all ones where the result is an integer."""
    element = kind.removesuffix("x2")
    if result_type not in (kind, "u32", "s32"):
        raise d.fail(f"a result of type .{kind}, .u32 or .s32 expected")
    _, compare = _comparing(d, name, element, flush)
    true = np.uint32(_ONES[element] if result_type == kind else 0xFFFF)
    o, a, b = d.dst(0, "b32"), d.src(1, "b32"), d.src(2, "b32")
    c, negated = d.predicate(d.operand(3)) if combine else (None, False)

    def run(slots: list[Array], frame: Any) -> None:
        packed = np.zeros(frame.n, np.uint32)
        for part, shift in ((halves.low, 0), (halves.high, 16)):
            result = np.empty(frame.n, np.bool_)
            compare(part(slots[a]), part(slots[b]), result)
            if c is not None:
                result = _COMBINATIONS[combine](result, slots[c] ^ negated)
            packed |= np.where(result, true, np.uint32(0)) << np.uint32(shift)
        slots[o][...] = packed

    return run


@instruction("selp")
def exec_selp(d: Decoder) -> Operation:
    d.count(4)
    kind = d.type()
    o, a, b = d.dst(0, kind), d.src(1, kind), d.src(2, kind)
    p, negated = d.predicate(d.operand(3))
    if negated:
        a, b = b, a

    def run(slots: list[Array], frame: Any) -> None:
        slots[o][...] = np.where(slots[p], slots[a], slots[b])

    return run


@instruction("slct")
def exec_slct(d: Decoder) -> Operation:
    flush = d.flag("ftz")
    kind, condition = d.type(0), d.type(1)
    d.count(4)
    o, a, b, c = d.dst(0, kind), d.src(1, kind), d.src(2, kind), d.src(3, condition)

    def run(slots: list[Array], frame: Any) -> None:
        value = floats.flush32(slots[c]) if flush else slots[c]
        slots[o][...] = np.where(value >= 0, slots[a], slots[b])

    return run


@instruction("testp")
def exec_testp(d: Decoder) -> Operation:
    what, kind = d.need(("finite", "infinite", "number", "notanumber", "normal", "subnormal")), d.type()
    tiny = np.finfo(np.float32 if kind == "f32" else np.float64).tiny
    tests: dict[str, Any] = {
        "finite": np.isfinite, "infinite": np.isinf, "notanumber": np.isnan, "number": lambda a: ~np.isnan(a),
        "normal": lambda a: np.isfinite(a) & (np.abs(a) >= tiny),
        "subnormal": lambda a: (np.abs(a) < tiny) & (a != 0),
    }  # fmt: skip
    return d.unary(lambda a, out: np.copyto(out, tests[what](a)), kind, "pred")


@instruction("copysign")
def exec_copysign(d: Decoder) -> Operation:
    """The sign comes from the first source, the magnitude from the second."""
    return d.binary(lambda a, b, out: np.copysign(b, a, out), d.type())
