"""The table of the interpreter's rules: one function for each jaxpr primitive.

Three kinds of rules, which one name may have only one of:

* `evaluates`  `rule(equation, *values, **params)`: values from values, with NumPy and nothing else;
* `executes`   `rule(thread, equation, *values, **params)`: what touches memory, control flow, or other threads;
* `expands`    `rule(equation, **params)` gives a function of arrays that JAX traces once, outside of any callback; the
  equations of that trace are then interpreted in its place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Rule = Callable[..., Any]
EVALUATES: dict[str, Rule] = {}
EXECUTES: dict[str, Rule] = {}
EXPANDS: dict[str, Rule] = {}


def _register(table: dict[str, Rule], names: tuple[str, ...]) -> Callable[[Rule], Rule]:
    def register(rule: Rule) -> Rule:
        for name in names:
            if any(name in other for other in (EVALUATES, EXECUTES, EXPANDS)):
                raise ValueError(f"two rules for primitive {name}")
            table[name] = rule
        return rule

    return register


def evaluates(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule of values for the primitives of these names."""
    return _register(EVALUATES, names)


def executes(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule with side effects for the primitives of these names."""
    return _register(EXECUTES, names)


def expands(*names: str) -> Callable[[Rule], Rule]:
    """Registers a rule that gives a function to trace in a primitive's place."""
    return _register(EXPANDS, names)
