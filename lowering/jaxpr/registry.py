"""The table of lowering rules: one function for each jaxpr primitive."""

from __future__ import annotations

from collections.abc import Callable

from mosaic_gpu.rule_tables import Rule, Table, registers

RULES: Table = {}


def lowers(*primitives: str) -> Callable[[Rule], Rule]:
    """Registers `rule(ctx, *values, **params)` for the primitives of these names.

    The rule gets a `RuleContext`, one MLIR value an operand (references included) and the equation's
    parameters; it gives one value, or a list of them where the primitive has several results or none.
    """

    return registers(RULES, primitives)
