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

import math
from collections.abc import Callable
from dataclasses import dataclass

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.lowering.nvvm import emit

F32_BIAS, F32_MANTISSA = 127, 23
F32_INFINITY = 0x7F800000
F32_NAN = 0x7FC00000


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
