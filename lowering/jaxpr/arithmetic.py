"""Elementwise building blocks that know a dtype's sign and width; rules, reductions and scatters share them.

All take values of one shape (or all scalars) and the dtype both have.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mosaic_gpu.dialect._mlir import arith, ir, math
from mosaic_gpu.dialect.ops_tile import LibdeviceOp
from mosaic_gpu.dialect.types import element_of
from mosaic_gpu.lowering.jaxpr.casts import bitcast, compare_float, convert, fill_like, select
from mosaic_gpu.lowering.jaxpr.kinds import bits_dtype, compute_dtype, is_bool, is_float, is_signed, math_dtype, width

FLOAT, SIGNED, UNSIGNED, BOOL = range(4)

# What each operation is for floats, signed integers, unsigned integers and bools.
_BINARY: dict[str, tuple[Any, Any, Any, Any]] = {
    "add": (arith.AddFOp, arith.AddIOp, arith.AddIOp, arith.OrIOp),
    "sub": (arith.SubFOp, arith.SubIOp, arith.SubIOp, None),
    "mul": (arith.MulFOp, arith.MulIOp, arith.MulIOp, arith.AndIOp),
    "max": (arith.MaximumFOp, arith.MaxSIOp, arith.MaxUIOp, arith.OrIOp),
    "min": (arith.MinimumFOp, arith.MinSIOp, arith.MinUIOp, arith.AndIOp),
    "and": (None, arith.AndIOp, arith.AndIOp, arith.AndIOp),
    "or": (None, arith.OrIOp, arith.OrIOp, arith.OrIOp),
    "xor": (None, arith.XOrIOp, arith.XOrIOp, arith.XOrIOp),
}

_P, _F = arith.CmpIPredicate, arith.CmpFPredicate
# Predicates for floats, signed integers and unsigned integers (bools compare as 0 and 1).
_COMPARISONS: dict[str, tuple[Any, Any, Any]] = {
    "eq": (_F.OEQ, _P.eq, _P.eq),
    "ne": (_F.UNE, _P.ne, _P.ne),
    "lt": (_F.OLT, _P.slt, _P.ult),
    "le": (_F.OLE, _P.sle, _P.ule),
    "gt": (_F.OGT, _P.sgt, _P.ugt),
    "ge": (_F.OGE, _P.sge, _P.uge),
}


def kind_of(dtype: Any) -> int:
    """FLOAT, SIGNED, UNSIGNED or BOOL."""
    if is_float(dtype):
        return FLOAT
    return BOOL if is_bool(dtype) else SIGNED if is_signed(dtype) else UNSIGNED


def binary(name: str, x: ir.Value, y: ir.Value, dtype: Any) -> ir.Value:
    """`add`, `sub`, `mul`, `max`, `min`, `and`, `or` or `xor`; storage dtypes are computed wider and rounded back."""
    work = compute_dtype(dtype)
    x, y = convert(x, dtype, work), convert(y, dtype, work)
    return convert(_BINARY[name][kind_of(work)](x, y).result, work, dtype)


def compare(name: str, x: ir.Value, y: ir.Value, dtype: Any) -> ir.Value:
    """`eq`, `ne` (true for NaN), `lt`, `le`, `gt` or `ge` (false for NaN); i1."""
    work = compute_dtype(dtype)
    x, y = convert(x, dtype, work), convert(y, dtype, work)
    predicate = _COMPARISONS[name][min(kind_of(work), UNSIGNED)]
    return compare_float(predicate, x, y) if is_float(work) else arith.CmpIOp(predicate, x, y).result


def compare_to(name: str, x: ir.Value, number: Any, dtype: Any) -> ir.Value:
    """`compare` with a Python number."""
    return compare(name, x, fill_like(number, x, dtype), dtype)


def libdevice(function: str, *arguments: ir.Value) -> ir.Value:
    """A function of libdevice on f32 or f64 values; `function` without its `__nv_` and without the f of f32."""
    element = element_of(arguments[0].type)
    suffix = "f" if isinstance(element, ir.F32Type) else ""
    name = ir.StringAttr.get(f"__nv_{function}{suffix}")
    return LibdeviceOp(arguments[0].type, list(arguments), name).result


def divide(x: ir.Value, y: ir.Value, dtype: Any) -> ir.Value:
    """Floats: IEEE.  Integers truncate; x / 0 is all ones, INT_MIN / -1 is INT_MIN."""
    if is_float(dtype):
        work = math_dtype(dtype)
        return convert(arith.DivFOp(convert(x, dtype, work), convert(y, dtype, work)).result, work, dtype)
    work = compute_dtype(dtype)
    x, y = convert(x, dtype, work), convert(y, dtype, work)
    zero, safe = _safe_divisor(x, y, work)
    quotient = (arith.DivSIOp if is_signed(work) else arith.DivUIOp)(x, safe).result
    return convert(select(zero, fill_like(-1, y, work), quotient), work, dtype)


def remainder(x: ir.Value, y: ir.Value, dtype: Any) -> ir.Value:
    """Of truncating division: the sign of x.  Floats: exact (fmod).  Integers: x rem 0 is x."""
    if is_float(dtype):
        work = math_dtype(dtype)
        return convert(libdevice("fmod", convert(x, dtype, work), convert(y, dtype, work)), work, dtype)
    work = compute_dtype(dtype)
    x, y = convert(x, dtype, work), convert(y, dtype, work)
    zero, safe = _safe_divisor(x, y, work)
    rest = (arith.RemSIOp if is_signed(work) else arith.RemUIOp)(x, safe).result
    return convert(select(zero, x, rest), work, dtype)


def _safe_divisor(x: ir.Value, y: ir.Value, dtype: Any) -> tuple[ir.Value, ir.Value]:
    """Where y is 0, and y with 1 wherever the machine's division is undefined (0, and INT_MIN / -1)."""
    zero = compare_to("eq", y, 0, dtype)
    unsafe = zero
    if is_signed(dtype):
        lowest = compare_to("eq", x, -(1 << (width(dtype) - 1)), dtype)
        wraps = arith.AndIOp(lowest, compare_to("eq", y, -1, dtype)).result
        unsafe = arith.OrIOp(zero, wraps).result
    return zero, select(unsafe, fill_like(1, y, dtype), y)


def negate(x: ir.Value, dtype: Any) -> ir.Value:
    """-x; integers wrap."""
    work = compute_dtype(dtype)
    x = convert(x, dtype, work)
    if is_float(work):
        return convert(arith.NegFOp(x).result, work, dtype)
    return convert(arith.SubIOp(fill_like(0, x, work), x).result, work, dtype)


def absolute(x: ir.Value, dtype: Any) -> ir.Value:
    """|x|; INT_MIN stays, unsigned stays."""
    work = compute_dtype(dtype)
    x = convert(x, dtype, work)
    if is_float(work):
        return convert(math.AbsFOp(x).result, work, dtype)
    if not is_signed(work):
        return convert(x, work, dtype)
    return convert(binary("max", x, negate(x, work), work), work, dtype)


def shift_left(x: ir.Value, y: ir.Value, dtype: Any) -> ir.Value:
    """0 where y (read as unsigned) is at least the width."""
    return _shift(arith.ShLIOp, x, y, dtype)


def shift_right_logical(x: ir.Value, y: ir.Value, dtype: Any) -> ir.Value:
    """0 where y (read as unsigned) is at least the width."""
    if width(dtype) >= 8:
        return _shift(arith.ShRUIOp, x, y, dtype)
    unsigned = np.dtype(f"uint{width(dtype)}") if is_signed(dtype) else dtype
    return convert(_shift(arith.ShRUIOp, bitcast(x, unsigned), bitcast(y, unsigned), unsigned), unsigned, dtype)


def _shift(op: Any, x: ir.Value, y: ir.Value, dtype: Any) -> ir.Value:
    work = compute_dtype(dtype)
    x, y = convert(x, dtype, work), convert(y, dtype, work)
    last = fill_like(width(dtype) - 1, y, work)
    inside = arith.CmpIOp(_P.ule, y, last).result
    shifted = op(x, arith.MinUIOp(y, last).result).result
    return convert(select(inside, shifted, fill_like(0, x, work)), work, dtype)


def shift_right_arithmetic(x: ir.Value, y: ir.Value, dtype: Any) -> ir.Value:
    """All sign bits where y (read as unsigned) is at least the width; an unsigned x has a sign bit as well."""
    work = compute_dtype(dtype)
    last = fill_like(width(dtype) - 1, y, work)
    distance = arith.MinUIOp(convert(y, dtype, work), last).result
    signed = np.dtype(f"int{width(dtype)}")
    wide = convert(bitcast(x, signed), signed, compute_dtype(signed))
    return convert(arith.ShRSIOp(wide, distance).result, work, dtype)


def sign(x: ir.Value, dtype: Any) -> ir.Value:
    """-1, 0 or 1; zeros keep their sign and NaN stays NaN."""
    work = compute_dtype(dtype)
    x = convert(x, dtype, work)
    one = fill_like(1, x, work)
    if is_float(work):
        keeps = compare_float(_F.UEQ, x, fill_like(0, x, work))
        return convert(select(keeps, x, math.CopySignOp(one, x).result), work, dtype)
    positive = select(compare_to("gt", x, 0, work), one, fill_like(0, x, work))
    if is_signed(work):
        positive = select(compare_to("lt", x, 0, work), fill_like(-1, x, work), positive)
    return convert(positive, work, dtype)


def next_after(x: ir.Value, y: ir.Value, dtype: Any) -> ir.Value:
    """The float next to x in the direction of y; y where they are equal, NaN where one is."""
    signed = bits_dtype(dtype)
    bits = bitcast(x, signed)
    away = compare("eq", compare("gt", y, x, dtype), compare_to("gt", x, 0, dtype), np.bool_)
    step = select(away, fill_like(1, bits, signed), fill_like(-1, bits, signed))
    sign_bit = fill_like(-(1 << (width(dtype) - 1)), bits, signed)
    smallest = arith.OrIOp(arith.AndIOp(bitcast(y, signed), sign_bit).result, fill_like(1, bits, signed)).result
    moved = select(compare_to("eq", x, 0, dtype), smallest, arith.AddIOp(bits, step).result)
    result = select(compare("eq", x, y, dtype), y, bitcast(moved, dtype))
    return select(compare_float(_F.UNO, x, y), binary("add", x, y, dtype), result)
