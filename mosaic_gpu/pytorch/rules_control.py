"""Control flow around kernels.  What a condition or a loop's end depends on is waited for: it is read by the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mosaic_gpu.lowering.jaxpr import compat
from mosaic_gpu.pytorch.code import Code
from mosaic_gpu.pytorch.registry import Equation, executes, prepares
from mosaic_gpu.pytorch.values import CARRIERS, dtype_name


@prepares("cond")
def prepare_cond(equation: Equation) -> None:
    equation.cache["branches"] = [Code(branch) for branch in equation.params["branches"]]


@executes("cond")
def exec_cond(device: torch.device, equation: Equation, which: Tensor, *operands: Tensor, **_: Any) -> list[Tensor]:
    """The branch of this number, which is clamped to those there are."""
    branches: list[Code] = equation.cache["branches"]
    return branches[min(max(int(which), 0), len(branches) - 1)].run(device, operands)


@prepares("while")
def prepare_while(equation: Equation) -> None:
    equation.cache["code"] = Code(equation.params["cond_jaxpr"]), Code(equation.params["body_jaxpr"])


@executes("while")
def exec_while(
    device: torch.device, equation: Equation, *operands: Tensor, cond_nconsts: int, body_nconsts: int, **_: Any
) -> list[Tensor]:
    condition, body = equation.cache["code"]
    of_condition, of_body = operands[:cond_nconsts], operands[cond_nconsts : cond_nconsts + body_nconsts]
    carry = list(operands[cond_nconsts + body_nconsts :])
    while bool(condition.run(device, [*of_condition, *carry])[0]):
        carry = body.run(device, [*of_body, *carry])
    return carry


@prepares("scan")
def prepare_scan(equation: Equation) -> None:
    equation.cache["code"] = Code(equation.params["jaxpr"])
    equation.cache["counts"] = compat.scan_counts(equation.params)


@executes("scan")
def exec_scan(
    device: torch.device, equation: Equation, *operands: Tensor, length: int, reverse: bool, **_: Any
) -> list[Tensor]:
    code, (consts, carried) = equation.cache["code"], equation.cache["counts"]
    fixed, carry, scanned = operands[:consts], list(operands[consts : consts + carried]), operands[consts + carried :]
    stacks: list[Tensor] = [
        torch.empty(a.shape, dtype=CARRIERS[dtype_name(a.dtype)], device=device) for a in equation.avals_out[carried:]
    ]
    for i in reversed(range(length)) if reverse else range(length):
        results: Sequence[Tensor] = code.run(device, [*fixed, *carry, *(x[i] for x in scanned)])
        carry = list(results[:carried])
        for stack, value in zip(stacks, results[carried:], strict=True):
            stack[i] = value
    return [*carry, *stacks]
