"""The operator `mosaic_gpu::run(str plan, Tensor[] operands) -> Tensor[]`: a plan as PyTorch knows it.

Autograd is an implementation of the operator itself, by one `torch.autograd.Function`: that of `torch.library`'s
`register_autograd` takes several times as long for lists of tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from mosaic_gpu.errors import ends_at_kernel
from mosaic_gpu.pytorch.plans import Gradient, plan_of
from mosaic_gpu.pytorch.values import Tensor, is_float

NAME = "mosaic_gpu::run"


@ends_at_kernel
def _run(key: str, operands: Sequence[Tensor]) -> list[Tensor]:
    return plan_of(key).run(operands)


def _fake(key: str, operands: Sequence[Tensor]) -> list[Tensor]:
    return plan_of(key).fake(operands)


def _run_without_gradient(key: str, operands: Sequence[Tensor]) -> list[Tensor]:
    with torch._C._AutoDispatchBelowAutograd():
        results: list[Tensor] = torch.ops.mosaic_gpu.run.default(key, operands)
    return results


@ends_at_kernel
def _run_with_autograd(key: str, operands: Sequence[Tensor]) -> list[Tensor]:
    if torch.is_grad_enabled():
        plan = plan_of(key)
        wanted = tuple([x.requires_grad for x in operands])
        if any(wanted) and plan.is_differentiable:
            return list(_Differentiable.apply(plan.gradient(wanted), *operands))
    return _run_without_gradient(key, operands)


class _Differentiable(torch.autograd.Function):
    """A plan with its gradient."""

    @staticmethod
    def forward(ctx: Any, gradient: Gradient, *operands: Tensor) -> tuple[Tensor, ...]:
        outputs = _run_without_gradient(gradient.forward.key, operands)
        ctx.gradient = gradient
        ctx.save_for_backward(*(operands[i] if i >= 0 else outputs[~i] for i in gradient.saved))
        results = outputs[: len(gradient.results)]
        kinds = zip(results, gradient.results, strict=True)
        ctx.mark_non_differentiable(*(x for x, name in kinds if not is_float(name)))
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gradient: Gradient = ctx.gradient
        given = [g for g, name in zip(gradients, gradient.results, strict=True) if is_float(name)]
        found = iter(torch.ops.mosaic_gpu.run.default(gradient.backward.key, [*ctx.saved_tensors, *given]))
        return (None, *(next(found) if w else None for w in gradient.wanted))


def _run_batched(info: Any, in_dims: Any, key: str, operands: Sequence[Tensor]) -> tuple[list[Tensor], list[int]]:
    """`torch.func.vmap` of it is `jax.vmap` of the plan's function."""
    plan = plan_of(key).batched(info.batch_size, in_dims[1])
    results = torch.ops.mosaic_gpu.run.default(plan.key, operands)
    return results, [0] * len(results)


def _define() -> torch.library.Library:
    library = torch.library.Library("mosaic_gpu", "DEF")
    library.define("run(str plan, Tensor[] operands) -> Tensor[]", tags=(torch.Tag.pt2_compliant_tag,))
    library.impl("run", _run, "CompositeExplicitAutograd")
    library.impl("run", _run_with_autograd, "Autograd")
    torch.library.register_fake(NAME, _fake, lib=library)
    torch.library.register_vmap(NAME, _run_batched, lib=library)
    return library


LIBRARY = _define()
"""Keeps the operator defined."""
