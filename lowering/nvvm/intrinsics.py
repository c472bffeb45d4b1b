"""Which arith and math ops LLVM makes PTX of.

An intrinsic that LLVM's back-end cannot select ends the process ("Cannot select"), so an op has to be in
this table, with the element type of its first operand that tells (a condition does not), before it is emitted;
a test compiles each entry in a process of its own.  `arith.remf` is not here: LLVM's expansion is inexact.
"""

from __future__ import annotations

INTS = ("i1", "i8", "i16", "i32", "i64")
FLOATS = ("f16", "bf16", "f32", "f64")

_UNARY_FLOAT = (
    "arith.negf", "math.absf", "math.ceil", "math.floor", "math.round", "math.roundeven", "math.rsqrt", "math.sqrt",
    "math.trunc",
)  # fmt: skip
_BINARY_FLOAT = (
    "arith.addf", "arith.subf", "arith.mulf", "arith.divf", "arith.maximumf", "arith.minimumf", "arith.maxnumf",
    "arith.minnumf", "arith.cmpf", "math.copysign",
)  # fmt: skip
_BINARY_INT = (
    "arith.addi", "arith.subi", "arith.muli", "arith.divsi", "arith.divui", "arith.remsi", "arith.remui",
    "arith.andi", "arith.ori", "arith.xori", "arith.shli", "arith.shrsi", "arith.shrui", "arith.maxsi", "arith.maxui",
    "arith.minsi", "arith.minui", "arith.cmpi",
)  # fmt: skip
_EXTENDED_INT = ("arith.mulsi_extended", "arith.mului_extended")
_UNARY_INT = ("math.absi", "math.ctlz", "math.ctpop", "math.cttz")

SELECTABLE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_UNARY_FLOAT + _BINARY_FLOAT, FLOATS),
    **dict.fromkeys(_BINARY_INT + _UNARY_INT, INTS),
    **dict.fromkeys(_EXTENDED_INT, INTS[1:]),
    "math.exp2": ("f16", "bf16", "f32"),
    "math.fma": FLOATS,
}
"""Element types of the operands, which are all of one type, of each op that is no cast."""

CASTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "arith.bitcast": (("i16", "i32", "i64", *FLOATS), ("i16", "i32", "i64", *FLOATS)),
    "arith.extf": (("f16", "bf16", "f32"), ("f32", "f64")),
    "arith.truncf": (("f32", "f64"), ("f16", "bf16", "f32")),
    "arith.extsi": (INTS, INTS),
    "arith.extui": (INTS, INTS),
    "arith.trunci": (INTS, INTS[1:]),
    "arith.fptosi": (FLOATS, INTS),
    "arith.fptoui": (FLOATS, INTS),
    "arith.sitofp": (INTS, FLOATS),
    "arith.uitofp": (INTS, FLOATS),
    "arith.index_cast": ((*INTS, "index"), (*INTS, "index")),
    "arith.index_castui": ((*INTS, "index"), (*INTS, "index")),
}
"""Element types of operands and results, for each op that changes the type."""


def is_selectable(name: str, operand: str, result: str) -> bool:
    """Whether op `name` may be emitted with these element types."""
    if name in CASTS:
        operands, results = CASTS[name]
        return operand in operands and result in results
    return operand in SELECTABLE.get(name, ()) or (operand == "index" and name in _BINARY_INT)
