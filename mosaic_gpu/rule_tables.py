"""Tables of rules: one function for each primitive of JAX, registered by the primitive's name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Rule = Callable[..., Any]
Table = dict[str, Rule]


def registers(table: Table, names: Sequence[str], beside: Sequence[Table] = ()) -> Callable[[Rule], Rule]:
    """A decorator that puts a function into `table` for primitives of these names.

    `beside`: other tables, which may not have a rule for them either.  Raises ValueError for a second rule.
    """

    def register(rule: Rule) -> Rule:
        for name in names:
            if any(name in other for other in (table, *beside)):
                raise ValueError(f"two rules for primitive {name}")
            table[name] = rule
        return rule

    return register
