"""In which dtypes a dot product is computed: the table of the module, row by row."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

from mosaic_gpu.errors import UnsupportedError
from mosaic_gpu.lowering.jaxpr.dot_types import dot_types
from tests.support.values import dtype_of

Preset = jax.lax.DotAlgorithmPreset


def chosen(lhs: str, rhs: str, out: str, precision: Any = None, contracted: int = 64, approx: bool = False) -> Any:
    types = dot_types(dtype_of(lhs), dtype_of(rhs), dtype_of(out), contracted, precision, approx)
    return types.lhs.name, types.rhs.name, types.acc.name, types.precision


@pytest.mark.parametrize(
    ("operands", "out", "expected"),
    [
        (("float16", "float16"), "float16", ("float16", "float16", "float32")),
        (("bfloat16", "bfloat16"), "float32", ("bfloat16", "bfloat16", "float32")),
        (("float16", "bfloat16"), "float32", ("float32", "float32", "float32")),
        (("float8_e4m3fn", "float8_e5m2"), "bfloat16", ("float8_e4m3fn", "float8_e5m2", "float32")),
        (("float8_e4m3fnuz", "float8_e5m2"), "float32", ("float16", "float16", "float32")),
        (("float8_e4m3fn", "bfloat16"), "float32", ("bfloat16", "bfloat16", "float32")),
        (("float32", "bfloat16"), "float32", ("float32", "float32", "float32")),
        (("float32", "float32"), "float64", ("float64", "float64", "float64")),
        (("int8", "uint8"), "int32", ("int8", "uint8", "int32")),
        (("int4", "int4"), "int8", ("int8", "int8", "int32")),
        (("int8", "int8"), "int64", ("int8", "int8", "int32")),
        (("int16", "int16"), "int16", ("int32", "int32", "int32")),
        (("int32", "int32"), "int64", ("int64", "int64", "int64")),
        (("bool", "bool"), "bool", ("uint8", "uint8", "int32")),
        (("int8", "float32"), "float32", ("float32", "float32", "float32")),
        (("int8", "int8"), "float32", ("float32", "float32", "float32")),
    ],
)
def test_operands_and_sums(operands: tuple[str, str], out: str, expected: tuple[str, str, str]) -> None:
    assert chosen(*operands, out)[:3] == expected


def test_long_sums_of_bytes_are_kept_in_64_bits_where_the_result_has_them() -> None:
    assert chosen("int8", "int8", "int64", contracted=1 << 20)[2] == "int64"
    assert chosen("int8", "int8", "int32", contracted=1 << 20)[2] == "int32"


@pytest.mark.parametrize(
    ("precision", "mode"),
    [
        (None, "ieee"),
        (jax.lax.Precision.HIGHEST, "ieee"),
        ((jax.lax.Precision.DEFAULT, jax.lax.Precision.HIGHEST), "ieee"),
        (jax.lax.Precision.HIGH, "tf32"),
        ((jax.lax.Precision.DEFAULT, jax.lax.Precision.DEFAULT), "tf32"),
        (Preset.TF32_TF32_F32, "tf32"),
        (Preset.TF32_TF32_F32_X3, "ieee"),
        (Preset.BF16_BF16_F32_X9, "ieee"),
        (Preset.F32_F32_F32, "ieee"),
        (Preset.DEFAULT, "tf32"),
    ],
)
def test_precision_of_f32(precision: Any, mode: str) -> None:
    assert chosen("float32", "float32", "float32", precision) == ("float32", "float32", "float32", mode)


def test_approximate_arithmetic_allows_tf32() -> None:
    assert chosen("float32", "float32", "float32", approx=True)[3] == "tf32"
    assert chosen("float16", "float16", "float32", approx=True)[3] == "ieee"


@pytest.mark.parametrize(("preset", "narrow"), [(Preset.BF16_BF16_F32, "bfloat16"), (Preset.F16_F16_F32, "float16")])
def test_algorithms_that_round_the_operands(preset: Any, narrow: str) -> None:
    assert chosen("float32", "float32", "float32", preset)[:3] == (narrow, narrow, "float32")


@pytest.mark.parametrize("preset", list(Preset))
def test_every_preset_is_known(preset: Any) -> None:
    kind = "float8_e4m3fn" if "F8" in preset.name else "float32"
    assert chosen(kind, kind, "float32", preset)


def test_floats_do_not_make_integers() -> None:
    with pytest.raises(UnsupportedError, match="float32 and float32 with a result of int32"):
        chosen("float32", "float32", "int32")


def test_an_algorithm_of_a_users_own_is_refused_by_name() -> None:
    algorithm = jax.lax.DotAlgorithm(
        lhs_precision_type=np.float32, rhs_precision_type=np.float32, accumulation_type=np.float32
    )
    with pytest.raises(UnsupportedError, match=r"of one.s own"):
        chosen("float32", "float32", "float32", algorithm)
