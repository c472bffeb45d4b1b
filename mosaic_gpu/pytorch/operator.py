"""The operator `mosaic_gpu::run(str plan, Tensor[] operands) -> Tensor[]`: a plan as PyTorch knows it.

Autograd is an implementation of the operator itself, by one `torch.autograd.Function`: that of `torch.library`'s
`register_autograd` takes several times as long for lists of tensors.  Where nobody looks at operators (no
`torch.compile`, no transform, no mode) plans run without the dispatcher, which takes longer than a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual

from mosaic_gpu.errors import UnsupportedError, ends_at_kernel
from mosaic_gpu.pytorch.plans import Gradient, Plan, plan_of
from mosaic_gpu.pytorch.values import is_float

NAME = "mosaic_gpu::run"

_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)


def run(plan: Plan, operands: Sequence[Tensor]) -> Any:
    """The results of a plan."""
    if _is_plain(operands) or torch._C._are_functorch_transforms_active():
        return _run_differentiably(plan, operands)
    return torch.ops.mosaic_gpu.run.default(plan.key, operands)


def _is_plain(operands: Sequence[Tensor]) -> bool:
    """Whether nobody but autograd would see the operator."""
    return (
        not torch._C._len_torch_dispatch_stack()
        and not torch._C._are_functorch_transforms_active()
        and not torch.jit.is_tracing()
        and all(type(x) in _PLAIN_TYPES for x in operands)
    )


def _run_differentiably(plan: Plan, operands: Sequence[Tensor]) -> Any:
    """The results, which autograd can go back through."""
    _refuse_tangents(plan, operands)
    if torch.is_grad_enabled() and plan.is_differentiable:
        is_transformed = torch._C._are_functorch_transforms_active()
        wanted = tuple([_is_tracked(x) if is_transformed else x.requires_grad for x in operands])
        if any(wanted):
            function = _Transformable if is_transformed else _Differentiable
            gradient = plan.gradient(wanted)
            return function.apply(gradient, *operands, *_anchors(gradient, operands))[: len(plan.results)]
    return _values(plan, operands)


def _is_tracked(tensor: Tensor) -> bool:
    """Whether a gradient flows to a tensor at any level of nested transforms."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        if tensor.requires_grad:
            return True
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return bool(tensor.requires_grad)


def _values(plan: Plan, operands: Sequence[Tensor]) -> list[Tensor]:
    if _is_plain(operands):
        return plan.run(operands)
    return list(torch.ops.mosaic_gpu.run.default(plan.key, operands))


def _refuse_tangents(plan: Plan, operands: Sequence[Tensor]) -> None:
    if any(unpack_dual(x).tangent is not None for x in operands):
        raise UnsupportedError(
            f"there is no forward-mode derivative of {plan.name!r}", hint="reverse mode: backward(), torch.func.vjp"
        )


def _anchors(gradient: Gradient, operands: Sequence[Tensor]) -> list[Tensor]:
    """Empty tensors that depend on the operands which are not saved, for `_NoSecond`; they hold no memory."""
    return [operands[i].reshape(-1)[:0].clone() for i in gradient.anchored]


def _forward(gradient: Gradient, *operands: Tensor) -> tuple[Tensor, ...]:
    return tuple(_values(gradient.forward, operands[: len(gradient.wanted)]))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    gradient, *operands = inputs
    ctx.gradient = gradient
    saved = [operands[i] if i >= 0 else output[~i] for i in gradient.saved]
    ctx.save_for_backward(*saved, *operands[len(gradient.wanted) :])
    ctx.mark_non_differentiable(*[output[i] for i in gradient.constant_outputs])


def _backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
    gradient: Gradient = ctx.gradient
    given = [g for g, name in zip(gradients, gradient.results, strict=False) if is_float(name)]
    count = len(gradient.saved)
    kept = ctx.saved_tensors
    saved, anchors = kept[:count], kept[count:]
    found = _run_backward(gradient.backward, [*saved, *given])
    if anchors and torch.is_grad_enabled():
        found = _NoSecond.apply(gradient.backward, len(anchors), *anchors, *found)
    values = iter(found)
    return (None, *[next(values) if w else None for w in gradient.wanted], *[None] * len(anchors))


class _NoSecond(torch.autograd.Function):
    """Gradients that have no gradient themselves, though they depend on the operands that `anchors` stand for."""

    generate_vmap_rule = True

    @staticmethod
    def forward(plan: Plan, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(x.view_as(x) for x in tensors[count:])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.plan = inputs[0]

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> None:
        raise ctx.plan.refusal.with_traceback(None)


class _Differentiable(torch.autograd.Function):
    """A plan with its gradient."""

    @staticmethod
    def forward(ctx: Any, gradient: Gradient, *operands: Tensor) -> tuple[Tensor, ...]:
        outputs = _forward(gradient, *operands)
        _keep(ctx, (gradient, *operands), outputs)
        return outputs

    backward = staticmethod(_backward)


class _Transformable(torch.autograd.Function):
    """The same for transforms of torch.func, which need it in this form; it takes longer."""

    generate_vmap_rule = True
    forward = staticmethod(_forward)
    setup_context = staticmethod(_keep)
    backward = staticmethod(_backward)


_run_backward = ends_at_kernel(run)


@ends_at_kernel
def _run_in_dispatcher(key: str, operands: Sequence[Tensor]) -> list[Tensor]:
    return plan_of(key).run(operands)


def _fake(key: str, operands: Sequence[Tensor]) -> list[Tensor]:
    return plan_of(key).fake(operands)


@ends_at_kernel
def _autograd(key: str, operands: Sequence[Tensor]) -> list[Tensor]:
    plan = plan_of(key)
    _refuse_tangents(plan, operands)
    if torch.is_grad_enabled() and plan.is_differentiable:
        wanted = tuple([x.requires_grad for x in operands])
        if any(wanted):
            if torch._C._are_functorch_transforms_active():
                raise UnsupportedError(
                    f"transforms of torch.func do not go through the operator {NAME}",
                    hint="call what as_torch gave, outside of torch.compile",
                )
            gradient = plan.gradient(wanted)
            outputs = _Differentiable.apply(gradient, *operands, *_anchors(gradient, operands))
            return list(outputs[: len(plan.results)])
    with torch._C._AutoDispatchBelowAutograd():
        return list(torch.ops.mosaic_gpu.run.default(key, operands))


def _run_batched(info: Any, in_dims: Any, key: str, operands: Sequence[Tensor]) -> tuple[list[Tensor], list[int]]:
    """`torch.func.vmap` of it is `jax.vmap` of the plan's function."""
    plan = plan_of(key).batched(info.batch_size, in_dims[1])
    return list(torch.ops.mosaic_gpu.run.default(plan.key, operands)), [0] * len(plan.results)


def _define() -> torch.library.Library:
    library = torch.library.Library("mosaic_gpu", "DEF")
    library.define("run(str plan, Tensor[] operands) -> Tensor[]", tags=(torch.Tag.pt2_compliant_tag,))
    library.impl("run", _run_in_dispatcher, "CompositeExplicitAutograd")
    library.impl("run", _autograd, "Autograd")
    torch.library.register_fake(NAME, _fake, lib=library)
    torch.library.register_vmap(NAME, _run_batched, lib=library)
    return library


LIBRARY = _define()
"""Keeps the operator defined."""
