"""What a lowering rule knows, and the walk over a jaxpr's equations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.dialect.types import tile_type
from mosaic_gpu.errors import MosaicGpuError, SourceLine, UnsupportedError
from mosaic_gpu.lowering.jaxpr.casts import fill
from mosaic_gpu.lowering.jaxpr.compat import is_literal, physical_shape_dtype
from mosaic_gpu.lowering.jaxpr.constants import computed_constant
from mosaic_gpu.lowering.jaxpr.dtypes import element_type
from mosaic_gpu.lowering.jaxpr.locations import equation_location
from mosaic_gpu.lowering.jaxpr.registry import RULES
from mosaic_gpu.lowering.jaxpr.sources import equation_source
from mosaic_gpu.lowering.options import LoweringOptions


@dataclass(frozen=True)
class KernelState:
    """What is the same for all rules of one kernel.

    Attributes:
      options: the user's choices.
      name: the kernel's name.
      program_ids: the block's coordinate (i32 value) along each grid dimension that the kernel sees
        (those that `vmap` added are not among them).
      grid: the extents of the same dimensions: ints, or i32 values.
      exclusive: whether no other block can touch memory that this block writes to, while it runs.
    """

    options: LoweringOptions
    name: str
    program_ids: tuple[ir.Value, ...] = ()
    grid: tuple[int | ir.Value, ...] = ()
    exclusive: bool = False


@dataclass(frozen=True)
class RuleContext:
    """What a rule may ask about its equation.

    Attributes:
      kernel: the kernel's state.
      primitive: name of the primitive.
      avals_in, avals_out: abstract values (shape, dtype) of operands and results.
      source: the kernel's line, where it is known.
      used: for each result, whether anybody reads it.
    """

    kernel: KernelState
    primitive: str
    avals_in: tuple[Any, ...]
    avals_out: tuple[Any, ...]
    source: SourceLine | None
    used: tuple[bool, ...] = ()

    def lower_jaxpr(
        self, jaxpr: Any, args: Sequence[ir.Value], consts: Sequence[ir.Value] | None = None
    ) -> list[ir.Value]:
        """Emits the equations of `jaxpr` at the current insertion point; gives its results.

        `consts`: values of its constvars; None takes the arrays that a closed jaxpr carries.
        """
        return lower_jaxpr(self.kernel, jaxpr, args, consts)

    def apply(
        self, primitive: str, avals_in: Sequence[Any], avals_out: Sequence[Any], *values: ir.Value, **params: Any
    ) -> list[ir.Value]:
        """Emits another primitive in place of, or as a part of, this equation; gives its results."""
        rule = RULES.get(primitive)
        if rule is None:
            raise self.refuse(f"jax primitive {primitive!r} is not supported inside a kernel")
        ctx = replace(
            self,
            primitive=primitive,
            avals_in=tuple(avals_in),
            avals_out=tuple(avals_out),
            used=(True,) * len(avals_out),
        )
        return _as_list(rule(ctx, *values, **params))

    def with_operands(self, avals_in: Sequence[Any]) -> RuleContext:
        """The same equation, of other operands: where a rule has sorted out what it got."""
        return replace(self, avals_in=tuple(avals_in))

    def out_type(self, index: int = 0) -> ir.Type:
        """The MLIR type of result `index`."""
        return aval_type(self.avals_out[index])

    def refuse(self, what: str, hint: str = "") -> UnsupportedError:
        """The error to raise for something valid that is not supported here."""
        return UnsupportedError(f"{what} (in kernel {self.kernel.name!r})", hint=hint, source=self.source)


def aval_type(aval: Any) -> ir.Type:
    """The MLIR type of a value of this abstract value: a tile, or a scalar at rank 0.

    A random key is the tile of its words.
    """
    shape, dtype = physical_shape_dtype(aval)
    return tile_type(shape, element_type(dtype))


def constant(value: Any, aval: Any) -> ir.Value:
    """A constant of `aval`'s type with the elements of `value`: a scalar, or an array.

    Raises UnsupportedError for a large array whose elements differ.
    """
    shape, dtype = physical_shape_dtype(aval)
    flat = np.asarray(value).reshape(-1)
    if flat.size <= 1 or flat.tobytes() == flat[:1].tobytes() * flat.size:
        return fill(flat[0] if flat.size else 0, tile_type(shape, element_type(dtype)), dtype)
    computed = computed_constant(flat.reshape(shape))
    if computed is None:
        raise UnsupportedError(
            f"a kernel cannot hold a constant array whose elements differ (shape {list(shape)}, {dtype})",
            hint="pass the array as an input of the kernel, or compute it with jnp.arange, jnp.where and the like",
        )
    return computed


def lower_jaxpr(
    kernel: KernelState, jaxpr: Any, args: Sequence[ir.Value], consts: Sequence[ir.Value] | None = None
) -> list[ir.Value]:
    """Emits one equation after another; the values of `jaxpr`'s results."""
    if consts is None:
        carried = getattr(jaxpr, "consts", ())
        consts = [constant(c, v.aval) for c, v in zip(carried, jaxpr.constvars, strict=True)]
    env: dict[Any, ir.Value] = dict(zip(jaxpr.constvars, consts, strict=True))
    env |= dict(zip(jaxpr.invars, args, strict=True))

    def read(atom: Any) -> ir.Value:
        return constant(atom.val, atom.aval) if is_literal(atom) else env[atom]

    read_later = {a for e in jaxpr.eqns for a in e.invars if not is_literal(a)}
    read_later |= {a for a in jaxpr.outvars if not is_literal(a)}
    for equation in jaxpr.eqns:
        used = tuple(v in read_later for v in equation.outvars)
        with equation_location(equation):
            results = _lower_equation(kernel, equation, [read(a) for a in equation.invars], used)
        env |= dict(zip(equation.outvars, results, strict=True))
    return [read(a) for a in jaxpr.outvars]


def _lower_equation(
    kernel: KernelState, equation: Any, values: list[ir.Value], used: tuple[bool, ...]
) -> list[ir.Value]:
    name, source = equation.primitive.name, equation_source(equation)
    rule = RULES.get(name)
    avals_in = tuple(v.aval for v in equation.invars)
    avals_out = tuple(v.aval for v in equation.outvars)
    ctx = RuleContext(kernel, name, avals_in, avals_out, source, used)
    if rule is None:
        raise ctx.refuse(f"jax primitive {name!r} is not supported inside a kernel")
    try:
        return _as_list(rule(ctx, *values, **equation.params))
    except MosaicGpuError as error:
        raise error.at(source) from error.__cause__


def _as_list(results: Any) -> list[ir.Value]:
    return list(results) if isinstance(results, (list, tuple)) else [results]
