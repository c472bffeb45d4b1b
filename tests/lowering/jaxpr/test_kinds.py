"""Questions about dtypes, asked of the odd ones too."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mosaic_gpu.lowering.jaxpr import kinds


@pytest.mark.parametrize(
    ("dtype", "bits", "compute"),
    [
        (np.bool_, 1, np.bool_),
        (ml_dtypes.int4, 4, np.int8),
        (ml_dtypes.uint4, 4, np.uint8),
        (ml_dtypes.float8_e4m3fn, 8, np.float32),
        (ml_dtypes.bfloat16, 16, ml_dtypes.bfloat16),
        (np.float64, 64, np.float64),
        (np.uint64, 64, np.uint64),
    ],
)
def test_width_and_where_arithmetic_is_done(dtype: type, bits: int, compute: type) -> None:
    assert kinds.width(dtype) == bits
    assert kinds.compute_dtype(dtype) == np.dtype(compute)


def test_signs() -> None:
    assert kinds.is_signed(ml_dtypes.int4)
    assert not kinds.is_signed(np.uint8)
    assert kinds.is_unsigned(np.bool_)
    assert not kinds.is_unsigned(np.float32)


def test_narrow_floats_are_accumulated_in_f32_and_integers_in_themselves() -> None:
    assert kinds.sum_dtype(ml_dtypes.bfloat16) == np.float32
    assert kinds.sum_dtype(np.float64) == np.float64
    assert kinds.sum_dtype(np.int16) == np.int16
