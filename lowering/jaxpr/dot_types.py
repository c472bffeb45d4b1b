"""In which dtypes a dot product is computed: what its operands are converted to, and what sums the products.

    operands                     converted to        summed in
    f16, bf16 (both the same)    as they are         f32
    fp8 e4m3fn, e5m2             as they are         f32
    other fp8, mixed small       f16, bf16 or f32    f32      (exactly: the smallest that holds both)
    f32                          f32                 f32      by IEEE fused multiply-adds, or on the matrix units
                                                              with 10 bits of mantissa ("tf32"), as `precision` says
    f64, or a result of f64      f64                 f64
    8-bit and narrower integers  int8 or uint8       int32    (int64 where 32 bits might not hold the sum)
    other integers               the result's width (at least 32 bits), in which sums wrap as they do in the result
    bool                         uint8               int32    is the sum not zero?

The sum is rounded to the result's dtype once.  An f16 accumulator is therefore summed in f32, which is at
least as accurate.  `precision` of f32 operands: None and HIGHEST are IEEE f32; DEFAULT and HIGH (said so, or by
`jax.default_matmul_precision`: "tensorfloat32" is HIGH) allow tf32, as XLA does on GPUs; None does too where
`approx_math` is on.  Algorithms that name narrower operands (BF16_BF16_F32, F16_F16_F32) round the operands
to those; those that build f32 products of several narrow ones (_X3, _X6, _X9) are computed in IEEE f32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.lowering.jaxpr.kinds import DType, is_bool, is_float, is_signed, width

_F32, _F64, _F16 = (np.dtype(t) for t in (np.float32, np.float64, np.float16))
_BF16 = np.dtype(jnp.bfloat16)
_MATRIX_FP8 = (np.dtype(jnp.float8_e4m3fn), np.dtype(jnp.float8_e5m2))
_NARROWING = {"BF16_BF16_F32": _BF16, "BF16_BF16_BF16": _BF16, "F16_F16_F32": _F16, "F16_F16_F16": _F16}
_TF32 = ("TF32_TF32_F32", "DEFAULT")
_IEEE = ("TF32_TF32_F32_X3", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6", "BF16_BF16_F32_X9", "F32_F32_F32", "F64_F64_F64")
_FP8_ALGORITHMS = "ANY_F8_ANY_F8"


@dataclass(frozen=True)
class DotTypes:
    """How a dot product is computed.

    Attributes:
      lhs, rhs: dtypes that the operands are converted to.
      acc: dtype of the sums.
      precision: "ieee" or "tf32", as of `mgpu.dot`.
    """

    lhs: DType
    rhs: DType
    acc: DType
    precision: str = "ieee"


def dot_types(lhs: Any, rhs: Any, out: Any, contracted: int, precision: Any, approx: bool) -> DotTypes:
    """The choice for operands and result of these dtypes and sums of `contracted` products.

    Raises UnsupportedError for floats with a result of integers, and for algorithms that are not known.
    """
    lhs, rhs, out = np.dtype(lhs), np.dtype(rhs), np.dtype(out)
    if not is_float(out):
        if is_float(lhs) or is_float(rhs):
            raise UnsupportedError(f"a dot product of {lhs} and {rhs} with a result of {out}")
        return _of_integers(lhs, rhs, out, contracted)
    if not (is_float(lhs) or is_float(rhs)):
        lhs = rhs = _F64 if _F64 in (lhs, rhs, out) or max(width(lhs), width(rhs)) > 16 else _F32
    narrow, mode = _asked(precision, approx)
    if narrow is not None and _F64 not in (lhs, rhs, out):
        return DotTypes(narrow, narrow, _F32)
    if _F64 in (lhs, rhs, out):
        return DotTypes(_F64, _F64, _F64)
    common = _common(lhs if is_float(lhs) else rhs, rhs if is_float(rhs) else lhs)
    if common is None:
        return DotTypes(lhs, rhs, _F32)
    return DotTypes(common, common, _F32, mode if common == _F32 else "ieee")


def _of_integers(lhs: DType, rhs: DType, out: DType, contracted: int) -> DotTypes:
    if max(width(lhs), width(rhs)) <= 8:
        types = [np.dtype(np.int8 if is_signed(t) else np.uint8) for t in (lhs, rhs)]
        fits = contracted << 16 < 1 << 31
        if is_bool(out) or width(out) <= 32 or fits:
            return DotTypes(types[0], types[1], np.dtype(np.int32))
    acc = np.dtype(np.int64 if width(out) == 64 else np.int32)
    return DotTypes(acc, acc, acc)


def _common(lhs: DType, rhs: DType) -> DType | None:
    """The dtype that both operands are converted to; None where both stay 8-bit floats."""
    if lhs in _MATRIX_FP8 and rhs in _MATRIX_FP8:
        return None
    wide = [t for t in (lhs, rhs) if width(t) >= 16]
    if not wide:
        return _F16
    if len({*wide}) > 1:
        return _F32
    narrow = [t for t in (lhs, rhs) if width(t) < 16]
    holds_all = wide[0] != _F16 or all(jnp.finfo(t).nmant <= 10 and jnp.finfo(t).maxexp <= 16 for t in narrow)
    return wide[0] if holds_all else _F32


def _asked(precision: Any, approx: bool) -> tuple[DType | None, str]:
    """What `precision` of `lax.dot_general` says: a dtype to round operands to, and the `mgpu.dot` precision."""
    if precision is None:
        return None, "tf32" if approx else "ieee"
    if isinstance(precision, jax.lax.DotAlgorithm):  # a tuple, too
        raise UnsupportedError(
            f"a dot product algorithm of one's own is not supported: {precision}",
            hint="use a jax.lax.Precision or DotAlgorithmPreset",
        )
    if isinstance(precision, (tuple, jax.lax.Precision)):
        each = precision if isinstance(precision, tuple) else (precision,)
        return None, "ieee" if jax.lax.Precision.HIGHEST in each else "tf32"
    name = str(getattr(precision, "name", precision))
    if name.startswith(_FP8_ALGORITHMS):
        return None, "ieee"
    if name in _NARROWING:
        return _NARROWING[name], "ieee"
    if name in _TF32:
        return None, "tf32"
    if name in _IEEE:
        return None, "ieee"
    raise UnsupportedError(
        f"the dot product algorithm {name} is not supported", hint="use a jax.lax.Precision or DotAlgorithmPreset"
    )
