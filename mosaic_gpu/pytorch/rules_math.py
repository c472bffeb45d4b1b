"""Functions of floats; those that PyTorch does not have are made of those that it has."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mosaic_gpu.pytorch.registry import Equation, evaluates
from mosaic_gpu.pytorch.rules_elementwise import arithmetic


def _cbrt(x: Tensor) -> Tensor:
    """By the power in float64, and a step of Newton's method."""
    wide = x.to(torch.float64)
    root = torch.copysign(wide.abs().pow(1 / 3), wide)
    better = root - (root - wide / (root * root)) / 3
    return torch.where((wide == 0) | ~wide.isfinite(), wide, better).to(x.dtype)


_FUNCTIONS = {
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "log": torch.log,
    "log1p": torch.log1p,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "cbrt": _cbrt,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "atan2": torch.atan2,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tanh": torch.tanh,
    "asinh": torch.asinh,
    "acosh": torch.acosh,
    "atanh": torch.atanh,
    "logistic": torch.sigmoid,
    "erf": torch.erf,
    "erfc": torch.erfc,
    "erf_inv": torch.erfinv,
    "lgamma": torch.lgamma,
    "digamma": torch.digamma,
    "bessel_i0e": torch.special.i0e,
    "bessel_i1e": torch.special.i1e,
    "nextafter": torch.nextafter,
    "reciprocal": torch.reciprocal,
}
for _name, _function in _FUNCTIONS.items():
    evaluates(_name)(arithmetic(_function))


@evaluates("pow")
def eval_pow(equation: Equation, x: Tensor, y: Tensor, **_: Any) -> Tensor:
    """The power may be an integer."""
    return arithmetic(lambda a, b: torch.pow(a, b.to(a.dtype)))(equation, x, y)
