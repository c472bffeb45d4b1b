"""Functions of floats: libdevice in f32 and f64, f16 and bf16 (and fp8) in f32 and rounded once.

With the option `approx_math`, f32 functions that the hardware approximates are single PTX instructions
(PTX ISA, "Floating Point Instructions": ex2.approx, lg2.approx, sin.approx, ..).
That of exp2 takes denormal numbers as zero: anything else would cost two more instructions each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mosaic_gpu.dialect._mlir import arith, ir, math
from mosaic_gpu.dialect.ops_tile import PtxOp
from mosaic_gpu.lowering.jaxpr.arithmetic import compare_to, divide, libdevice
from mosaic_gpu.lowering.jaxpr.casts import convert, fill_like, select
from mosaic_gpu.lowering.jaxpr.context import RuleContext
from mosaic_gpu.lowering.jaxpr.kinds import is_float, math_dtype, width
from mosaic_gpu.lowering.jaxpr.registry import lowers
from mosaic_gpu.lowering.jaxpr.rules_elementwise import spread

# JAX's primitive -> libdevice's function (of f32 with an f at its end).
_LIBDEVICE = {
    "acos": "acos",
    "acosh": "acosh",
    "asin": "asin",
    "asinh": "asinh",
    "atan": "atan",
    "atan2": "atan2",
    "atanh": "atanh",
    "cbrt": "cbrt",
    "cos": "cos",
    "cosh": "cosh",
    "erf": "erf",
    "erf_inv": "erfinv",
    "erfc": "erfc",
    "exp": "exp",
    "exp2": "exp2",
    "expm1": "expm1",
    "lgamma": "lgamma",
    "log": "log",
    "log1p": "log1p",
    "log2": "log2",
    "pow": "pow",
    "sin": "sin",
    "sinh": "sinh",
    "tan": "tan",
    "tanh": "tanh",
}
_LOG2_E, _LN_2 = 1.4426950408889634, 0.6931471805599453


def ptx(instruction: str, *arguments: ir.Value) -> ir.Value:
    """One PTX instruction on f32 values."""
    places = ", ".join(f"${i}" for i in range(len(arguments) + 1))
    constraints = ",".join(["=f", *("f" for _ in arguments)])
    text, kinds = ir.StringAttr.get(f"{instruction} {places};"), ir.StringAttr.get(constraints)
    return PtxOp(arguments[0].type, list(arguments), text, kinds).result


def _scaled(x: ir.Value, factor: float) -> ir.Value:
    return arith.MulFOp(x, fill_like(factor, x, np.float32)).result


def _approximate_logistic(x: ir.Value) -> ir.Value:
    power = ptx("ex2.approx.ftz.f32", _scaled(x, -_LOG2_E))
    return ptx("rcp.approx.f32", arith.AddFOp(fill_like(1, x, np.float32), power).result)


def _approximate_tan(x: ir.Value) -> ir.Value:
    return ptx("div.full.f32", ptx("sin.approx.f32", x), ptx("cos.approx.f32", x))


_APPROXIMATE: dict[str, Callable[..., ir.Value]] = {
    "exp": lambda x: ptx("ex2.approx.ftz.f32", _scaled(x, _LOG2_E)),
    "exp2": lambda x: ptx("ex2.approx.ftz.f32", x),
    "log": lambda x: _scaled(ptx("lg2.approx.f32", x), _LN_2),
    "log2": lambda x: ptx("lg2.approx.f32", x),
    "sin": lambda x: ptx("sin.approx.f32", x),
    "cos": lambda x: ptx("cos.approx.f32", x),
    "tan": _approximate_tan,
    "tanh": lambda x: ptx("tanh.approx.f32", x),
    "logistic": _approximate_logistic,
    "rsqrt": lambda x: ptx("rsqrt.approx.f32", x),
    "sqrt": lambda x: ptx("sqrt.approx.f32", x),
}


def _logistic(x: ir.Value, dtype: Any) -> ir.Value:
    """1 / (1 + exp(-x)), where exp does not overflow: for negative x it is exp(x) / (1 + exp(x))."""
    one = fill_like(1, x, dtype)
    small = libdevice("exp", arith.NegFOp(math.AbsFOp(x).result).result)
    above = arith.DivFOp(one, arith.AddFOp(one, small).result).result
    return select(compare_to("lt", x, 0, dtype), arith.MulFOp(small, above).result, above)


def _rsqrt(x: ir.Value, dtype: Any) -> ir.Value:
    return arith.DivFOp(fill_like(1, x, dtype), math.SqrtOp(x).result).result


def _of_libdevice(function: str) -> Callable[..., ir.Value]:
    return lambda *arguments: libdevice(function, *arguments[:-1])


# JAX's primitive -> the accurate function of values and their dtype (f32 or f64).
_ACCURATE: dict[str, Callable[..., ir.Value]] = {
    **{name: _of_libdevice(function) for name, function in _LIBDEVICE.items()},
    "logistic": _logistic,
    "rsqrt": _rsqrt,
    "sqrt": lambda x, _dtype: math.SqrtOp(x).result,
}


@lowers(*(name for name in _ACCURATE if name != "pow"))
def lower_math(ctx: RuleContext, *values: ir.Value, **_: Any) -> ir.Value:
    dtype = ctx.avals_out[0].dtype
    if not is_float(dtype):
        raise ctx.refuse(f"{ctx.primitive} of dtype {np.dtype(dtype).name}")
    work = math_dtype(dtype)
    wide = [convert(v, dtype, work) for v in spread(ctx, values)]
    return convert(_function(ctx, wide, work), work, dtype)


def _function(ctx: RuleContext, values: Sequence[ir.Value], dtype: Any) -> ir.Value:
    if ctx.kernel.options.approx_math and width(dtype) == 32 and ctx.primitive in _APPROXIMATE:
        return _APPROXIMATE[ctx.primitive](*values)
    return _ACCURATE[ctx.primitive](*values, dtype)


@lowers("pow")
def lower_pow(ctx: RuleContext, x: ir.Value, y: ir.Value, **_: Any) -> ir.Value:
    """C's pow; an integer exponent becomes a float first."""
    x, y = spread(ctx, [x, y])
    x_dtype, y_dtype = (a.dtype for a in ctx.avals_in)
    work = math_dtype(x_dtype)
    x, y = convert(x, x_dtype, work), convert(y, y_dtype, work)
    return convert(libdevice("pow", x, y), work, x_dtype)


@lowers("div")
def lower_div(ctx: RuleContext, x: ir.Value, y: ir.Value, **_: Any) -> ir.Value:
    x, y = spread(ctx, [x, y])
    dtype = ctx.avals_in[0].dtype
    if ctx.kernel.options.approx_math and is_float(dtype) and width(dtype) <= 32:
        quotient = ptx("div.full.f32", convert(x, dtype, np.float32), convert(y, dtype, np.float32))
        return convert(quotient, np.float32, dtype)
    return divide(x, y, dtype)
