"""What a lowering rule knows, and the walk over a jaxpr's equations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mosaic_gpu.dialect._mlir import arith, ir
from mosaic_gpu.dialect.types import tile_type
from mosaic_gpu.errors import MosaicGpuError, SourceLine, UnsupportedError
from mosaic_gpu.lowering.jaxpr.dtypes import element_type
from mosaic_gpu.lowering.jaxpr.locations import equation_location, equation_source
from mosaic_gpu.lowering.jaxpr.registry import RULES
from mosaic_gpu.lowering.options import LoweringOptions


@dataclass(frozen=True)
class KernelState:
    """What is the same for all rules of one kernel.

    Attributes:
      options: the user's choices.
      name: the kernel's name.
      program_ids: the block's coordinate (i32 value) along each logical grid dimension.
      grid: the extent of each logical grid dimension.
    """

    options: LoweringOptions
    name: str
    program_ids: tuple[ir.Value, ...] = ()
    grid: tuple[int, ...] = ()


@dataclass(frozen=True)
class RuleContext:
    """What a rule may ask about its equation.

    Attributes:
      kernel: the kernel's state.
      primitive: name of the primitive.
      avals_in, avals_out: abstract values (shape, dtype) of operands and results.
      source: the kernel's line, where it is known.
    """

    kernel: KernelState
    primitive: str
    avals_in: tuple[Any, ...]
    avals_out: tuple[Any, ...]
    source: SourceLine | None

    def lower_jaxpr(self, jaxpr: Any, args: Sequence[ir.Value], consts: Sequence[ir.Value] = ()) -> list[ir.Value]:
        """Emits the equations of `jaxpr` (open) at the current insertion point; gives its results."""
        return lower_jaxpr(self.kernel, jaxpr, args, consts)

    def out_type(self, index: int = 0) -> ir.Type:
        """The MLIR type of result `index`."""
        return aval_type(self.avals_out[index])

    def refuse(self, what: str, hint: str = "") -> UnsupportedError:
        """The error to raise for something valid that is not supported here."""
        return UnsupportedError(f"{what} (in kernel {self.kernel.name!r})", hint=hint, source=self.source)


def aval_type(aval: Any) -> ir.Type:
    """The MLIR type of a value of this abstract value: a tile, or a scalar at rank 0."""
    return tile_type(tuple(aval.shape), element_type(aval.dtype))


def constant(value: Any, aval: Any) -> ir.Value:
    """A constant of `aval`'s type, all of whose elements are the scalar `value`."""
    element = element_type(aval.dtype)
    attr = _scalar_attr(value, np.dtype(aval.dtype), element)
    if not aval.shape:
        return arith.ConstantOp(element, attr).result
    type_ = aval_type(aval)
    return arith.ConstantOp(type_, ir.DenseElementsAttr.get_splat(type_, attr)).result


def _scalar_attr(value: Any, dtype: np.dtype[Any], element: ir.Type) -> ir.Attribute:
    if isinstance(element, ir.IntegerType):
        return ir.IntegerAttr.get(element, int(value))
    return ir.FloatAttr.get(element, float(value))


def lower_jaxpr(
    kernel: KernelState, jaxpr: Any, args: Sequence[ir.Value], consts: Sequence[ir.Value] = ()
) -> list[ir.Value]:
    """Emits one equation after another; the values of `jaxpr`'s results."""
    env: dict[Any, ir.Value] = dict(zip(jaxpr.constvars, consts, strict=True))
    env |= dict(zip(jaxpr.invars, args, strict=True))

    def read(atom: Any) -> ir.Value:
        return constant(atom.val, atom.aval) if hasattr(atom, "val") else env[atom]

    for equation in jaxpr.eqns:
        results = _lower_equation(kernel, equation, [read(a) for a in equation.invars])
        env |= dict(zip(equation.outvars, results, strict=True))
    return [read(a) for a in jaxpr.outvars]


def _lower_equation(kernel: KernelState, equation: Any, values: list[ir.Value]) -> list[ir.Value]:
    name, source = equation.primitive.name, equation_source(equation)
    rule = RULES.get(name)
    avals_in = tuple(v.aval for v in equation.invars)
    ctx = RuleContext(kernel, name, avals_in, tuple(v.aval for v in equation.outvars), source)
    if rule is None:
        raise ctx.refuse(f"jax primitive {name!r} is not supported inside a kernel")
    try:
        with equation_location(equation):
            results = rule(ctx, *values, **equation.params)
    except MosaicGpuError as error:
        raise error.at(source) from error.__cause__
    return list(results) if isinstance(results, (list, tuple)) else [results]
