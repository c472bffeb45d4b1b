"""The table of the interpreter's rules: one function for each jaxpr primitive.

Three kinds of rules, which one name may have only one of:

* `evaluates`  `rule(equation, *values, **params)`: values from values, with NumPy and nothing else;
* `executes`   `rule(thread, equation, *values, **params)`: what touches memory, control flow, or other threads;
* `expands`    `rule(equation, **params)` gives a function of arrays that JAX traces once, outside of any callback; the
  equations of that trace are then interpreted in its place.
"""

from __future__ import annotations

from collections.abc import Callable

from mosaic_gpu.rule_tables import Rule, Table, registers

EVALUATES: Table = {}
EXECUTES: Table = {}
EXPANDS: Table = {}
_TABLES = (EVALUATES, EXECUTES, EXPANDS)


def evaluates(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule of values for the primitives of these names."""
    return registers(EVALUATES, names, _TABLES)


def executes(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule with side effects for the primitives of these names."""
    return registers(EXECUTES, names, _TABLES)


def expands(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule that gives a function to trace in a primitive's place."""
    return registers(EXPANDS, names, _TABLES)
