"""Sizes that are known when a kernel is called only: expressions of dimension variables, as `jax.export` writes them.

    x: f32[n, 1000], y: f32[2*n + 1]        arrays of 4 x 1000 and of 9 elements: n is 4

They are read, solved and evaluated without JAX, for bundles run without it.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from mosaic_gpu.errors import UnsupportedError

_OPERATORS: dict[type[ast.operator], Callable[[int, int], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {"floordiv": operator.floordiv, "mod": operator.mod, "max": max, "min": min}

Linear = dict[str, int]
"""A sum: the factor of each variable; under "" the constant."""


@dataclass(frozen=True)
class Size:
    """An expression of dimension variables, such as "n", "2*n + 1" or "floordiv(n + 7, 8)"."""

    text: str

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def at(self, variables: Mapping[str, int]) -> int:
        """The number that it is where the variables have these values; KeyError for one that has none."""
        return _evaluate(self._tree(), variables)

    def linear(self) -> Linear | None:
        """The sum that it is, or None."""
        return _linear(self._tree())

    def _tree(self) -> ast.expr:
        return ast.parse(self.text.replace("^", "**"), mode="eval").body


def _evaluate(node: ast.expr, variables: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return variables[name]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_evaluate(inner, variables)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return int(_OPERATORS[type(op)](_evaluate(left, variables), _evaluate(right, variables)))
        case ast.Call(func=ast.Name(id=name), args=arguments) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_evaluate(argument, variables) for argument in arguments))
    known = f"+, -, *, ^, {', '.join(_FUNCTIONS)}"
    raise UnsupportedError(f"the size {ast.unparse(node)} cannot be computed", expected=known)


def _linear(node: ast.expr) -> Linear | None:
    match node:
        case ast.Constant(value=int(number)):
            return {"": number}
        case ast.Name(id=name):
            return {name: 1}
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return _scaled(_linear(inner), -1)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _sum(_linear(left), _linear(right))
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _sum(_linear(left), _scaled(_linear(right), -1))
        case ast.BinOp(left=ast.Constant(value=int(factor)), op=ast.Mult(), right=other):
            return _scaled(_linear(other), factor)
    return None


def _sum(a: Linear | None, b: Linear | None) -> Linear | None:
    if a is None or b is None:
        return None
    return {name: a.get(name, 0) + b.get(name, 0) for name in a | b}


def _scaled(terms: Linear | None, factor: int) -> Linear | None:
    return None if terms is None else {name: factor * number for name, number in terms.items()}


def solve(pairs: Iterable[tuple[Size, int]]) -> dict[str, int]:
    """The dimension variables that these sizes tell, each from 0 on; the first that tells one counts.

    A size tells a variable if it is a sum in which no other variable is unknown.
    """
    sums = [(terms, number) for size, number in pairs if (terms := size.linear()) is not None]
    found: dict[str, int] = {}
    while True:
        before = len(found)
        for terms, number in sums:
            unknown = [name for name, factor in terms.items() if name and factor and name not in found]
            if len(unknown) == 1:
                rest = number - sum(factor * found.get(name, 1) for name, factor in terms.items() if name != unknown[0])
                value, remainder = divmod(rest, terms[unknown[0]])
                if remainder == 0 and value >= 0:
                    found[unknown[0]] = value
        if len(found) == before:
            return found
