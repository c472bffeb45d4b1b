"""Functions: sqrt, rsqrt, rcp, ex2, lg2, sin, cos, tanh.

The approximate forms give the accurate result rounded to the type, which is within the error that the
PTX ISA allows, without the hardware's own low bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mosaic_gpu.simulator import floats, halves
from mosaic_gpu.simulator.exec_arithmetic import by_halves, float_operation
from mosaic_gpu.simulator.registry import Decoder, Kernel, Operation, instruction

Array = np.ndarray[Any, np.dtype[Any]]


def _rsqrt(x: Array) -> Array:
    return 1.0 / np.sqrt(x)


def _approximate(d: Decoder, function: Any) -> Operation:
    """An operation that computes `function` in float64 and rounds once."""
    d.one_of(("approx",))
    flush, kind = d.flag("ftz"), d.type()
    if kind == "f32":
        return d.unary(_single(function, flush), kind)
    if kind == "f64":
        return d.unary(lambda a, out: np.copyto(out, function(a)), kind)
    if kind not in ("f16", "bf16", "f16x2", "bf16x2"):
        raise d.refuse(f"type .{kind}")
    element = kind.removesuffix("x2")

    def compute(operands: list[Array]) -> Array:
        value = halves.widen(operands[0], element)
        if flush and element == "f16":
            value = halves.flush16(value)
        bits = halves.narrow(function(value.astype(np.float64)), element)
        return halves.flush_bits(bits) if flush and element == "f16" else bits

    return d.unary(by_halves(compute, kind), "b32" if kind.endswith("x2") else "b16")


def _single(function: Any, flush: bool) -> Kernel:
    def kernel(a: Array, out: Array) -> None:
        value = floats.flush32(a) if flush else a
        np.copyto(out, function(value.astype(np.float64)), casting="same_kind")
        if flush:
            out[...] = floats.flush32(out)
        floats.canonical32(out)

    return kernel


@instruction("sqrt")
def exec_sqrt(d: Decoder) -> Operation:
    if "approx" in d.words:
        return _approximate(d, np.sqrt)
    return float_operation(d, 1, "sqrt")


@instruction("rcp")
def exec_rcp(d: Decoder) -> Operation:
    if "approx" not in d.words:
        return float_operation(d, 1, "rcp")
    if d.type() == "f64":
        return _upper_half(d, lambda a: 1.0 / a)
    return _approximate(d, lambda a: 1.0 / a)


@instruction("rsqrt")
def exec_rsqrt(d: Decoder) -> Operation:
    if d.type() == "f64" and "ftz" in d.words:
        return _upper_half(d, _rsqrt)
    return _approximate(d, _rsqrt)


def _upper_half(d: Decoder, function: Any) -> Operation:
    """rcp and rsqrt.approx.ftz.f64 give only the upper 32 bits of the result; the rest is zero."""
    d.flag("approx")
    d.flag("ftz")
    tiny = np.finfo(np.float64).tiny

    def flush(x: Array) -> Array:
        return np.where(np.abs(x) < tiny, np.copysign(0.0, x), x)

    def kernel(a: Array, out: Array) -> None:
        result = flush(function(flush(a)))
        bits = (result.view(np.uint64) + np.uint64(1 << 31)) & np.uint64(0xFFFFFFFF00000000)
        out[...] = np.where(np.isfinite(result), bits.view(np.float64), result)

    return d.unary(kernel, "f64")


@instruction("ex2")
def exec_ex2(d: Decoder) -> Operation:
    return _approximate(d, np.exp2)


@instruction("lg2")
def exec_lg2(d: Decoder) -> Operation:
    return _approximate(d, np.log2)


@instruction("sin")
def exec_sin(d: Decoder) -> Operation:
    return _approximate(d, np.sin)


@instruction("cos")
def exec_cos(d: Decoder) -> Operation:
    return _approximate(d, np.cos)


@instruction("tanh")
def exec_tanh(d: Decoder) -> Operation:
    return _approximate(d, np.tanh)
