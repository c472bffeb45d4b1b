"""8-bit floats: exact conversions to and from f32 in integer arithmetic, on whole vectors of bytes.

The five formats (the OCP 8-bit floating point specification, and the "fnuz" and "b11" variants of ml_dtypes):

    format           exponent bits  bias  mantissa  infinity  NaN                largest finite
    f8E4M3FN         4              7     3         no        S.1111.111         448
    f8E5M2           5              15    2         S.11111.0 S.11111.{01,10,11} 57344
    f8E4M3B11FNUZ    4              11    3         no        1.0000.000         30
    f8E4M3FNUZ       4              8     3         no        1.0000.000         240
    f8E5M2FNUZ       5              16    2         no        1.0000.000         57344

Rounding is to nearest, ties to even.  What overflows becomes infinity where the format has one, else NaN, as
in XLA and ml_dtypes (the PTX instructions saturate).  The fnuz formats have no negative zero.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.lowering.nvvm import emit

F32_BIAS, F32_MANTISSA = 127, 23
F32_SIGN, F32_INFINITY, F32_NAN = 0x80000000, 0x7F800000, 0x7FC00000


@dataclass(frozen=True)
class Format:
    """An 8-bit float: `mantissa` bits, exponent `bias`, and how it writes what is not finite.

    `fnuz`: the byte 0x80 is the only NaN, there are no infinities and no negative zero.  Otherwise
    `has_infinity` tells IEEE's way (all exponents ones) from "FN" (only all ones is NaN).
    """

    mantissa: int
    bias: int
    has_infinity: bool = False
    fnuz: bool = False

    @property
    def smallest_normal(self) -> int:
        """The exponent of the smallest normal number."""
        return 1 - self.bias

    @property
    def largest(self) -> int:
        """The byte of the largest finite number."""
        if self.fnuz:
            return 0x7F
        return (0x7F >> self.mantissa << self.mantissa) - 1 if self.has_infinity else 0x7E

    @property
    def overflow(self) -> int:
        """The byte, without sign, of what is too large."""
        if self.fnuz:
            return 0x80
        return self.largest + 1

    @property
    def nan(self) -> int:
        """The byte of a positive quiet NaN."""
        if self.fnuz:
            return 0x80
        return 0x7E if self.has_infinity else 0x7F


FORMATS = {
    "f8E4M3FN": Format(3, 7),
    "f8E5M2": Format(2, 15, has_infinity=True),
    "f8E4M3B11FNUZ": Format(3, 11, fnuz=True),
    "f8E4M3FNUZ": Format(3, 8, fnuz=True),
    "f8E5M2FNUZ": Format(2, 16, fnuz=True),
}
_NUMPY_TYPES = {
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "f8E5M2": ml_dtypes.float8_e5m2,
    "f8E4M3B11FNUZ": ml_dtypes.float8_e4m3b11fnuz,
    "f8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "f8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
}


def constant_byte(number: float, name: str) -> int:
    """The byte of a constant of the MLIR type `name`, which represents it exactly."""
    return int(np.array(number, _NUMPY_TYPES[name]).view(np.uint8))


def decode(numbers: ir.Value, name: str) -> ir.Value:
    """The f32 values of bytes in format `name` (a scalar or vector of i8), exact.

    The magnitude, moved to where f32 has exponent and mantissa, is a float that is too small by the difference
    of the biases; a multiplication mends that, for subnormal numbers too.
    """
    form = FORMATS[name]
    wide = emit.convert_int(numbers, 32, signed=False)
    magnitude = emit.and_(wide, 0x7F)
    small = _as_float(emit.shl(magnitude, F32_MANTISSA - form.mantissa))
    scale = emit.constant(small.type, 2.0 ** (F32_BIAS - form.bias))
    bits = _as_bits(emit.value("arith.mulf", small.type, [small, scale]))
    if form.has_infinity:
        bits = _choose(emit.compare(emit.EQ, magnitude, form.overflow), F32_INFINITY, bits)
        bits = _choose(emit.compare(emit.UGT, magnitude, form.overflow), F32_NAN, bits)
    else:
        tested = wide if form.fnuz else magnitude
        bits = _choose(emit.compare(emit.EQ, tested, form.nan), F32_NAN, bits)
    return _as_float(emit.or_(bits, emit.shl(emit.and_(wide, 0x80), 24)))


def encode(numbers: ir.Value, name: str) -> ir.Value:
    """f32 values (a scalar or vector) as bytes in format `name`, rounded to nearest even."""
    form = FORMATS[name]
    bits = _as_bits(numbers)
    magnitude = emit.and_(bits, F32_SIGN - 1)
    smallest = struct.unpack("<I", struct.pack("<f", 2.0**form.smallest_normal))[0]
    is_small = emit.compare(emit.ULT, magnitude, smallest)
    byte = emit.select(is_small, _rounded_subnormal(magnitude, form), _rounded_normal(magnitude, form))
    byte = _choose(emit.compare(emit.SGT, byte, form.largest), form.overflow, byte)
    byte = _choose(emit.compare(emit.UGT, magnitude, F32_INFINITY), form.nan, byte)
    sign = emit.and_(emit.shr(bits, 24), 0x80)
    signed = emit.or_(byte, sign)
    if form.fnuz:
        signed = _choose(emit.compare(emit.EQ, byte, 0), 0, signed)
    return emit.convert_int(signed, 8)


def _rounded_normal(magnitude: ir.Value, form: Format) -> ir.Value:
    """Drops mantissa bits, ties to even, and changes the bias; what carries over goes into the exponent."""
    dropped = F32_MANTISSA - form.mantissa
    odd = emit.and_(emit.shr(magnitude, dropped), 1)
    rounded = emit.shr(emit.add(emit.add(magnitude, (1 << (dropped - 1)) - 1), odd), dropped)
    return emit.add(rounded, -((F32_BIAS - form.bias) << form.mantissa))


def _rounded_subnormal(magnitude: ir.Value, form: Format) -> ir.Value:
    """Adds a number whose last place is the format's smallest step, so that the addition rounds."""
    small = _as_float(magnitude)
    anchor = 2.0 ** (form.smallest_normal - form.mantissa + F32_MANTISSA)
    total = emit.value("arith.addf", small.type, [small, emit.constant(small.type, anchor)])
    return emit.add(_as_bits(total), -struct.unpack("<I", struct.pack("<f", anchor))[0])


def _choose(condition: ir.Value, number: int, otherwise: ir.Value) -> ir.Value:
    return emit.select(condition, emit.constant(otherwise.type, number), otherwise)


def _as_float(bits: ir.Value) -> ir.Value:
    return emit.value("arith.bitcast", emit.like(bits.type, ir.F32Type.get()), [bits])


def _as_bits(numbers: ir.Value) -> ir.Value:
    return emit.value("arith.bitcast", emit.like(numbers.type, emit.i32()), [numbers])
