"""What a kernel for arrays of many sizes is for the arrays at hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mosaic_gpu.errors import KernelError
from mosaic_gpu.runtime.interface import ArrayType
from mosaic_gpu.runtime.sizes import Size, solve

_MOST = 2**31 - 1


class Sized(Protocol):
    """A kernel whose first operands are bounds of the grid, one for each of `bound_sizes`.

    Attributes:
      name: for messages.
      operands, results: the arrays, of which some sizes are `Size`s.
      bound_sizes: what each bound is; None where only the caller knows it.
      symbols: the sizes that the code is told, as int32 behind the bounds.
    """

    @property
    def name(self) -> str: ...
    @property
    def operands(self) -> tuple[ArrayType, ...]: ...
    @property
    def results(self) -> tuple[ArrayType, ...]: ...
    @property
    def bound_sizes(self) -> tuple[Size | None, ...]: ...
    @property
    def symbols(self) -> tuple[Size, ...]: ...


@dataclass(frozen=True)
class KnownSizes:
    """A kernel for the arrays of one call.

    Attributes:
      operands, results: the arrays, all sizes known; the bounds among the operands.
      bounds: the value of each bound that the sizes tell; None of the others.
      symbols: the values of the kernel's symbols.
    """

    operands: tuple[ArrayType, ...]
    results: tuple[ArrayType, ...]
    bounds: tuple[int | None, ...]
    symbols: tuple[int, ...]

    def with_bounds(self, given: Sequence[Any]) -> list[Any]:
        """All operands: those that the caller gives, and in their places the bounds that the sizes tell."""
        rest = iter(given)
        return [*(next(rest) if bound is None else bound for bound in self.bounds), *rest]


def given_types(kernel: Sized) -> tuple[ArrayType, ...]:
    """The operands that callers give: all but the bounds that the sizes of the others tell."""
    told = [size is not None for size in kernel.bound_sizes]
    return tuple(t for i, t in enumerate(kernel.operands) if not (i < len(told) and told[i]))


def known_sizes(kernel: Sized, shapes: Sequence[tuple[int, ...]]) -> KnownSizes:
    """`kernel` for arrays of these shapes, one for each of `given_types`.

    Raises KernelError where the shapes disagree, or do not tell every size.
    """
    if not kernel.symbols and not any(kernel.bound_sizes):
        return KnownSizes(kernel.operands, kernel.results, (None,) * len(kernel.bound_sizes), ())
    types = given_types(kernel)
    pairs = [
        (i, size, number)
        for i, (type_, shape) in enumerate(zip(types, shapes, strict=True))
        if len(type_.shape) == len(shape)
        for size, number in zip(type_.shape, shape, strict=True)
        if isinstance(size, Size)
    ]
    variables = solve((size, number) for _, size, number in pairs)
    try:
        for i, size, number in pairs:
            if size.at(variables) != number:
                raise _disagreement(kernel, i, shapes[i], variables)
        operands, results = ([t.at(variables) for t in side] for side in (kernel.operands, kernel.results))
        bounds = tuple(None if size is None else min(size.at(variables), _MOST) for size in kernel.bound_sizes)
        symbols = tuple(size.at(variables) for size in kernel.symbols)
    except KeyError as error:
        raise KernelError(
            f"the sizes of the arrays do not tell dimension variable {error} of kernel {kernel.name!r}",
            got=", ".join(str(list(shape)) for shape in shapes),
            expected=", ".join(str(list(t.shape)) for t in types),
        ) from None
    if any(number > _MOST for number in symbols):
        raise KernelError(f"an array of kernel {kernel.name!r} is too large", got=max(symbols), expected=f"<= {_MOST}")
    return KnownSizes(tuple(operands), tuple(results), bounds, symbols)


def _disagreement(kernel: Sized, i: int, shape: tuple[int, ...], variables: dict[str, int]) -> KernelError:
    values = ", ".join(f"{variable} = {number}" for variable, number in variables.items())
    return KernelError(
        f"the sizes of the arrays of kernel {kernel.name!r} disagree",
        got=f"operand {i} of shape {list(shape)}",
        expected=f"{list(given_types(kernel)[i].shape)} where {values}",
    )
