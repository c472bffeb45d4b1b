"""Which arith and math ops LLVM makes PTX of.

An intrinsic that LLVM's back-end cannot select ends the process ("Cannot select"), so an op has to be in
this table, for its element type, before it is emitted; a test compiles each entry in a process of its own.
"""

from __future__ import annotations

from mosaic_gpu.dialect._mlir import ir

INTS = frozenset({"i1", "i8", "i16", "i32", "i64"})
FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
WIDE_FLOATS = frozenset({"f32", "f64"})

SELECTABLE: dict[str, frozenset[str]] = {
    "math.absf": FLOATS,
    "math.absi": INTS - {"i1"},
    "math.ceil": FLOATS,
    "math.copysign": FLOATS,
    "math.ctlz": INTS - {"i1"},
    "math.ctpop": INTS - {"i1"},
    "math.cttz": INTS - {"i1"},
    "math.exp2": frozenset({"f32", "f16", "bf16"}),
    "math.floor": FLOATS,
    "math.fma": FLOATS,
    "math.roundeven": FLOATS,
    "math.sqrt": WIDE_FLOATS,
    "math.trunc": FLOATS,
}
"""Element types (of the result) of each math op that may be emitted."""

REFUSED = frozenset({"arith.remf"})
"""arith ops that LLVM lowers inaccurately; the others of that dialect may all be emitted."""


def is_selectable(name: str, element: ir.Type) -> bool:
    """Whether the op may be emitted with results of this element type."""
    if name.startswith("arith."):
        return name not in REFUSED
    return str(element) in SELECTABLE.get(name, frozenset())
