"""Conversions of values and of bits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mosaic_gpu.pytorch.registry import Equation, evaluates
from mosaic_gpu.pytorch.values import CARRIERS, is_float, is_unsigned, load, store, widened


@evaluates("convert_element_type")
def eval_convert_element_type(equation: Equation, x: Tensor, **_: Any) -> Tensor:
    return convert(x, equation.dtypes_in[0], equation.dtype)


def convert(x: Tensor, old: str, new: str) -> Tensor:
    """Integers wrap around; floats become integers towards zero, saturated, and NaN 0; what is not 0 is True."""
    if old == new:
        return x
    if new == "bool":
        return load(x, old) != 0
    if is_float(old):
        return store(load(x, old), new) if is_float(new) else _float_to_integer(load(x, old), new)
    if is_float(new) and is_unsigned(old):
        return store(_unsigned_to_float(x, old), new)
    return store(widened(x, old) if is_unsigned(old) else x, new)


def _unsigned_to_float(x: Tensor, name: str) -> Tensor:
    """Numbers from 2**63 on: by their half, whose last bit keeps what was cut off, so that they are rounded once."""
    wide = widened(x, name)
    if name != "uint64":
        return wide
    half = (wide >> 1 & torch.iinfo(torch.int64).max) | (wide & 1)
    return torch.where(wide < 0, half.to(torch.float64) * 2, wide.to(torch.float64))


def _float_to_integer(x: Tensor, name: str) -> Tensor:
    carried = CARRIERS[name]
    bits = 8 * torch.empty((), dtype=carried).element_size()
    is_signed = not is_unsigned(name) and carried is not torch.uint8
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if is_signed else (0, 2**bits)
    whole = x.to(torch.float64).nan_to_num(nan=0.0, posinf=float(high), neginf=float(low)).trunc()
    inside = whole.clamp(float(low), float(high))
    if name == "uint64":
        upper = inside >= 2.0**63
        result = torch.where(upper, inside - 2.0**63, inside).clamp(max=2.0**63 - 1024).to(torch.int64)
        result = torch.where(upper, result ^ torch.iinfo(torch.int64).min, result)
    else:
        result = inside.clamp(max=2.0**63 - 1024).to(torch.int64)
    return store(torch.where(whole >= float(high), high - 1 if name != "uint64" else -1, result), name)


@evaluates("bitcast_convert_type")
def eval_bitcast_convert_type(equation: Equation, x: Tensor, **_: Any) -> Tensor:
    """The same bits; where the sizes differ, the last dimension appears or goes."""
    wanted = CARRIERS[equation.dtype]
    size = torch.empty((), dtype=wanted).element_size()
    if size == x.element_size():
        return x.view(wanted)
    x = x.contiguous()
    return (x.unsqueeze(-1) if x.element_size() > size else x).view(wanted).reshape(equation.shape)


@evaluates("reduce_precision")
def eval_reduce_precision(equation: Equation, x: Tensor, *, exponent_bits: int, mantissa_bits: int, **_: Any) -> Tensor:
    """Rounds to so many bits, half to even; too small becomes 0, too large inf."""
    value = load(x, equation.dtype)
    info = torch.finfo(value.dtype)
    integer = {2: torch.int16, 4: torch.int32, 8: torch.int64}[value.element_size()]
    own = round(-torch.log2(torch.tensor(info.eps, dtype=torch.float64)).item())
    rounded = value
    if mantissa_bits < own:
        bits, dropped = value.view(integer), own - mantissa_bits
        moved = bits + ((1 << dropped - 1) - 1) + (bits >> dropped & 1)
        kept = (moved >> dropped << dropped).view(value.dtype)
        rounded = torch.where(value.isfinite(), kept, value)
    if exponent_bits < 8 * value.element_size() - 1 - own:
        reach = 2 ** (exponent_bits - 1) - 1
        wide = rounded.to(torch.float64)
        wide = torch.where(
            wide.abs() >= 2.0 ** (reach + 1), torch.copysign(torch.full_like(wide, torch.inf), wide), wide
        )
        wide = torch.where(wide.abs() < 2.0 ** (1 - reach), torch.copysign(torch.zeros_like(wide), wide), wide)
        rounded = torch.where(value.isnan(), value, wide.to(value.dtype))
    return store(rounded, equation.dtype)
