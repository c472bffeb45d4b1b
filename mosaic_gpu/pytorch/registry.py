"""The table of rules: one function of PyTorch's for each primitive of JAX that may stand around kernels.

* `evaluates`  `rule(equation, *tensors, **params)`: values from values;
* `executes`   `rule(device, equation, *tensors, **params)`: what runs kernels, or code of its own;
* `makes`      `rule(device, equation, **params)`: a value that depends on nothing, made once for each device.

`prepares` registers what is done with an equation before anything runs: to refuse it, and to compile what it contains.

All rules give one tensor, or a list where the primitive has several results.  Tensors carry values as `values.py` says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mosaic_gpu.errors import SourceLine
from mosaic_gpu.rule_tables import Rule, Table, registers

EVALUATES: Table = {}
EXECUTES: Table = {}
MAKES: Table = {}
_TABLES = (EVALUATES, EXECUTES, MAKES)
PREPARES: dict[str, Callable[[Equation], None]] = {}


@dataclass
class Equation:
    """An equation with what its rule needs, apart from values.

    Attributes:
      name: of the primitive.
      params: of the primitive.
      avals_in, avals_out: JAX's abstract values.
      dtypes_in: the operands' dtypes, by name.
      dtype, shape: of the first result.
      literals: the value of each operand that is a constant in the equation, else None.
      source: the user's line.
      many: whether the rule gives a list.
      cache: for rules: what they compute once for an equation.
    """

    name: str
    params: dict[str, Any]
    avals_in: tuple[Any, ...]
    avals_out: tuple[Any, ...]
    dtypes_in: tuple[str, ...]
    dtype: str
    shape: tuple[int, ...]
    literals: tuple[Any, ...]
    source: SourceLine | None
    many: bool
    cache: dict[Any, Any] = field(default_factory=dict)


def evaluates(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule of values for the primitives of these names."""
    return registers(EVALUATES, names, _TABLES)


def executes(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule that is told the device."""
    return registers(EXECUTES, names, _TABLES)


def makes(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule of no operands."""
    return registers(MAKES, names, _TABLES)


def prepares(*names: str) -> Callable[[Callable[[Equation], None]], Callable[[Equation], None]]:
    """Registers a function that makes equations of these primitives ready, or refuses them."""

    def register(function: Callable[[Equation], None]) -> Callable[[Equation], None]:
        PREPARES.update(dict.fromkeys(names, function))
        return function

    return register
