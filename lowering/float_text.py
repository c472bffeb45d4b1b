"""Float constants in LLVM IR text, as the older LLVM of the code generator reads them.

The LLVM of the MLIR bindings writes constants in ways that LLVM 22 does not parse: bits behind `f0x`, names of
infinities and NaNs, and decimals that are right only after rounding to the type:

    float f0x3F800001    float -inf    half +qnan    float +nan(0x123)    bfloat -snan(0x1)    half 1.000980e+00

LLVM 22 wants decimals to be exact, and otherwise the bits in hexadecimal: `0xH` and four digits for half, `0xR`
for bfloat, and for float and double the sixteen digits of the double of that value (LLVM language reference,
"Simple Constants").
"""

from __future__ import annotations

import re
import struct

# Total and mantissa bits.
_FORMATS = {"half": (16, 10), "bfloat": (16, 7), "float": (32, 23), "double": (64, 52)}
_TOKEN = re.compile(
    r'"[^"]*"'  # a quoted string holds no constants
    r"|\b(?P<type>bfloat|half|float|double)\b"
    r"|(?<=[\s(\[<,])(?:(?P<sign>[+-]?)f0x(?P<bits>[0-9A-Fa-f]+)"
    r"|(?P<special>[+-](?:inf|qnan|s?nan\(0x[0-9A-Fa-f]+\)))"
    r"|(?P<decimal>[+-]?[0-9]+\.[0-9]+(?:e[+-]?[0-9]+)?))"
)

# What every constant holds; most lines have none of it, and this is quicker to see.
_MAY_HOLD_ONE = re.compile(r"f0x|[+-](?:inf|qnan|s?nan)|\d\.\d")


def with_plain_floats(text: str) -> str:
    """LLVM IR `text` with every float constant in a form that LLVM 22 reads."""
    return "\n".join(map(_plain_line, text.split("\n")))


def _plain_line(line: str) -> str:
    if line.startswith("!") or not _MAY_HOLD_ONE.search(line):  # metadata, or no constants
        return line
    last_type = "float"

    def replace(match: re.Match[str]) -> str:
        nonlocal last_type
        if match["type"]:
            last_type = match["type"]
        elif match["bits"]:
            bits = int(match["bits"], 16) | (_sign_bit(last_type) if match["sign"] == "-" else 0)
            return _hexadecimal(bits, last_type)
        elif match["special"]:
            return _hexadecimal(_special_bits(match["special"], last_type), last_type)
        elif match["decimal"] and last_type != "double":
            return _hexadecimal(_decimal_bits(float(match["decimal"]), last_type), last_type)
        return match[0]

    return _TOKEN.sub(replace, line)


def _sign_bit(type_: str) -> int:
    return 1 << (_FORMATS[type_][0] - 1)


def _special_bits(token: str, type_: str) -> int:
    """The bits of an infinity or NaN such as `-inf`, `+qnan`, `+nan(0x123)`, `-snan(0x1)`."""
    width, mantissa = _FORMATS[type_]
    bits = ((1 << (width - 1 - mantissa)) - 1) << mantissa
    bits |= _sign_bit(type_) if token[0] == "-" else 0
    if "qnan" in token or token[1:4] == "nan":
        bits |= 1 << (mantissa - 1)
    if "(" in token:
        bits |= int(token[token.index("(") + 1 : -1], 16)
    return bits


def _decimal_bits(number: float, type_: str) -> int:
    """The bits of `number` rounded to half, bfloat or float."""
    if type_ == "half":
        return int(struct.unpack("<H", struct.pack("<e", number))[0])
    bits = int(struct.unpack("<I", struct.pack("<f", number))[0])
    if type_ == "float":
        return bits
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16


def _hexadecimal(bits: int, type_: str) -> str:
    if type_ in ("half", "bfloat"):
        return f"0x{'H' if type_ == 'half' else 'R'}{bits:04X}"
    return f"0x{bits if type_ == 'double' else _as_double(bits):016X}"


def _as_double(bits: int) -> int:
    """The bits of the double with the value of a float; a NaN keeps its payload, left-aligned."""
    sign, exponent, mantissa = bits >> 31, bits >> 23 & 0xFF, bits & 0x7FFFFF
    if exponent == 0xFF:
        return sign << 63 | 0x7FF << 52 | mantissa << 29
    return int(struct.unpack("<Q", struct.pack("<d", struct.unpack("<f", struct.pack("<I", bits))[0]))[0])
