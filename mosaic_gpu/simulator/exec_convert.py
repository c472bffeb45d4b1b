"""cvt: every pair of types, every rounding.

A conversion has three steps: the source as NumPy numbers, the rounding, and the destination's range.
Integers saturate when they come from floats, and wrap when they come from integers unless .sat is given
(PTX ISA, cvt).
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from mosaic_gpu.simulator import floats, halves
from mosaic_gpu.simulator.exec_pack import convert_and_pack
from mosaic_gpu.simulator.ptx import TYPES
from mosaic_gpu.simulator.registry import Decoder, Kernel, Operation, instruction

Array = np.ndarray[Any, np.dtype[Any]]
_INTEGER = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
_FLOAT = ("rn", "rz", "rm", "rp", "rna", "rs")
_FP8: dict[str, Any] = {"e4m3x2": ml_dtypes.float8_e4m3fn, "e5m2x2": ml_dtypes.float8_e5m2}
_PACKED = ("f16x2", "bf16x2", "e4m3x2", "e5m2x2")


@instruction("cvt")
def exec_cvt(d: Decoder) -> Operation:
    if "pack" in d.words:
        return convert_and_pack(d)
    rounding = d.one_of((*_FLOAT, *_INTEGER))
    flush, clamp, relu, finite = d.flag("ftz"), d.flag("sat"), d.flag("relu"), d.flag("satfinite")
    if len(d.types) != 2 or d.words or rounding == "rs":
        raise d.refuse()
    to, of = d.type(0), d.type(1)
    if to in _PACKED or of in _PACKED:
        return _cvt_packed(d, to, of, rounding, relu, finite)
    if to == "tf32":
        return d.unary(_to_tf32(rounding, relu), "f32", "b32")
    if finite or rounding == "rna":
        raise d.refuse("modifier .satfinite" if finite else "modifier .rna")
    d.count(2)
    if "f" not in to and "f" not in of:
        return _cvt_integers(d, to, of, clamp)
    o = d.dst(0, "b16" if to in ("f16", "bf16") else to)
    a = d.src(1, "b16" if of in ("f16", "bf16") else of)
    kernel = _kernel(to, of, rounding, flush, clamp, relu)

    def run(slots: list[Array], frame: Any) -> None:
        slots[o][...] = kernel(slots[a])

    return run


def _cvt_integers(d: Decoder, to: str, of: str, clamp: bool) -> Operation:
    o, a = d.dst(0, to), d.src(1, of)
    narrow, limits, source = TYPES[to], integer_limits(TYPES[to]), integer_limits(TYPES[of])
    low, high = max(limits.min, source.min), min(limits.max, source.max)

    def run(slots: list[Array], frame: Any) -> None:
        value = np.clip(slots[a], low, high) if clamp else slots[a]
        slots[o][...] = value.astype(narrow)

    return run


def integer_limits(dtype: Any) -> Any:
    """The range of an integer type, as `min` and `max`."""
    return np.iinfo(dtype)


def _source(of: str, flush: bool) -> Kernel:
    """Bits of the source type -> float32 or float64 or integers."""
    if of in ("f16", "bf16"):
        return lambda x: halves.widen(x, of)
    if of == "f32" and flush:
        return floats.flush32
    return lambda x: x


def _kernel(to: str, of: str, rounding: str, flush: bool, clamp: bool, relu: bool) -> Kernel:
    read = _source(of, flush)
    if "f" not in to:
        return _to_integer(to, of, read, rounding)
    if "f" in of and rounding in _INTEGER:
        whole = _INTEGER[rounding]
        inner = _to_float(to, "f64" if of == "f64" else "f32", "rn", flush, clamp, relu)
        return lambda x: inner(whole(read(x)))
    if "f" in of:
        inner = _to_float(to, "f64" if of == "f64" else "f32", rounding or "rn", flush, clamp, relu)
        return lambda x: inner(read(x))
    return _integer_to_float(to, of, rounding or "rn", clamp)


def _to_integer(to: str, of: str, read: Kernel, rounding: str) -> Kernel:
    dtype, whole = TYPES[to], _INTEGER[rounding or "rzi"]
    limits = integer_limits(dtype)
    wide = of == "f64" or dtype.itemsize == 8
    nan = (1 << 8 * dtype.itemsize - 1) if wide else 0
    nan_value = np.array(nan, np.uint64).astype(f"u{dtype.itemsize}").view(dtype)
    top = 2.0 ** (8 * dtype.itemsize - (1 if dtype.kind == "i" else 0))

    def kernel(x: Array) -> Array:
        value = whole(read(x)).astype(np.float64)
        inside = (value >= float(limits.min)) & (value < top)
        plain = np.where(inside, value, 0.0).astype(dtype)
        result = np.where(inside, plain, np.where(value > 0, dtype.type(limits.max), dtype.type(limits.min)))
        return np.where(np.isnan(value), nan_value, result)

    return kernel


def _to_float(to: str, of: str, rounding: str, flush: bool, clamp: bool, relu: bool) -> Kernel:
    """float32 or float64 -> `to`."""

    def kernel(value: Array) -> Array:
        if clamp or relu:
            value = np.array(value)
            if clamp:
                floats.saturate(value)
            else:
                value[value <= 0] = 0
        return _round_float(value, to, of, rounding, flush)

    return kernel


def _round_float(value: Array, to: str, of: str, rounding: str, flush: bool) -> Array:
    if to == "f64":
        return value.astype(np.float64)
    if to in ("f16", "bf16"):
        bits = halves.narrow(value, to) if rounding in ("rn", "rni") else halves.directed_narrow(value, to, rounding)
        return halves.flush_bits(bits) if flush and to == "f16" else bits
    if of == "f64" and rounding != "rn":
        result = floats.directed32(value, np.zeros_like(value), rounding)
    else:
        result = np.array(value.astype(np.float32))
    if flush:
        result = floats.flush32(result)
    floats.canonical32(result)
    return result


def _integer_to_float(to: str, of: str, rounding: str, clamp: bool) -> Kernel:
    """Integers of up to 32 bits are exact in float64; wider ones are rounded from their two halves."""
    small = TYPES[of].itemsize <= 4

    def kernel(x: Array) -> Array:
        if small:
            value, error = x.astype(np.float64), None
        else:
            low = (x & x.dtype.type(0xFFFFFFFF)).astype(np.float64)
            high = np.right_shift(x, x.dtype.type(32)).astype(np.float64) * 2.0**32
            value, error = floats.two_sum(high, low)
        if clamp:
            value, error = np.clip(value, 0.0, 1.0), None
        return _round_pair(value, error, to, rounding)

    return kernel


def _round_pair(value: Array, error: Array | None, to: str, rounding: str) -> Array:
    missing = np.zeros_like(value) if error is None else error
    if to == "f64":
        return value if rounding == "rn" else floats.step_towards(value, missing, rounding)
    if to == "f32" and rounding != "rn":
        return floats.directed32(value, missing, rounding)
    odd = value if error is None else floats.round_to_odd(value, error)
    if to == "f32":
        return odd.astype(np.float32)
    return halves.narrow(odd, to) if rounding == "rn" else halves.directed_narrow(odd, to, rounding)


def _to_tf32(rounding: str, relu: bool) -> Kernel:
    """The 13 lowest bits of the fraction are rounded away: rna to nearest, ties away; rn ties to even."""

    def kernel(a: Array, out: Array) -> None:
        bits = a.view(np.uint32)
        if rounding == "rz":
            step: Any = np.uint32(0)
        elif rounding == "rn":
            step = np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
        else:
            step = np.uint32(0x1000)
        rounded = (bits + step) & np.uint32(0xFFFFE000)
        result = np.where(np.isnan(a), floats.NAN32, np.where(np.isinf(a), bits, rounded))
        out[...] = np.where((a < 0) | (bits == 0x80000000), np.uint32(0), result) if relu else result

    return kernel


def _cvt_packed(d: Decoder, to: str, of: str, rounding: str, relu: bool, finite: bool) -> Operation:
    if to in _FP8 and of == "f32":
        return _two_sources(d, _narrow_fp8(to, relu), "b16")
    if to in _FP8 and of == "f16x2":
        encode = _narrow_fp8(to, relu)

        def from_half(a: Array, out: Array) -> None:
            low, high = (halves.widen(part(a), "f16") for part in (halves.low, halves.high))
            out[...] = encode(low).astype(np.uint16) | (encode(high).astype(np.uint16) << np.uint16(8))

        return d.unary(from_half, "b32", "b16")
    if to == "f16x2" and of in _FP8:
        return d.unary(_widen_fp8(of, relu), "b16", "b32")
    if to in ("f16x2", "bf16x2") and of == "f32":
        return _two_sources(d, _narrow_half(to.removesuffix("x2"), rounding, relu, finite), "b32")
    raise d.refuse()


def _two_sources(d: Decoder, encode: Any, result: str) -> Operation:
    """d = {a, b}: the first source becomes the upper half."""
    kind = TYPES[result].type
    bits = kind(4 * TYPES[result].itemsize)

    def kernel(a: Array, b: Array, out: Array) -> None:
        out[...] = (encode(a).astype(kind) << bits) | encode(b).astype(kind)

    return d.binary(kernel, "f32", result)


def _narrow_half(element: str, rounding: str, relu: bool, finite: bool) -> Any:
    most = 65504.0 if element == "f16" else float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)

    def encode(value: Array) -> Array:
        if relu:
            value = np.where(value <= 0, np.float32(0), value)
        bits = halves.narrow(value, element) if rounding != "rz" else halves.directed_narrow(value, element, "rz")
        if finite:
            top = halves.narrow(np.array([most], np.float32), element)[0]
            over = (bits & 0x7FFF) == halves.narrow(np.array([np.inf], np.float32), element)[0]
            bits = np.where(over, top | (bits & 0x8000), bits)
        return bits.astype(np.uint16)

    return encode


def _narrow_fp8(to: str, relu: bool) -> Any:
    """.satfinite is mandatory: what is too large, infinities too, becomes the largest finite number."""
    dtype = _FP8[to]
    most = np.float32(ml_dtypes.finfo(dtype).max)

    def encode(value: Array) -> Array:
        if relu:
            value = np.where(value <= 0, np.float32(0), value)
        bits: Array = np.clip(value, -most, most).astype(dtype).view(np.uint8)
        return np.where(np.isnan(value), np.uint8(0x7F), bits)

    return encode


def _widen_fp8(of: str, relu: bool) -> Kernel:
    def kernel(a: Array, out: Array) -> None:
        octets = (a.astype(np.uint8), (a >> np.uint16(8)).astype(np.uint8))
        parts = []
        for octet in octets:
            value = octet.view(_FP8[of]).astype(np.float32)
            parts.append(halves.narrow(np.where(value <= 0, np.float32(0), value) if relu else value, "f16"))
        out[...] = halves.join(*parts)

    return kernel
