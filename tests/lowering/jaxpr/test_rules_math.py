"""Functions of floats: libdevice when they must be accurate, one instruction when they may be approximate."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from mosaic_gpu.dialect._mlir import ir
from mosaic_gpu.errors import UnsupportedError
from tests.support.dialect_ir import lowered, named
from tests.support.kernels import one_block

X = np.ones((8,), np.float32)


def functions(function: Any, x: Any, **params: Any) -> list[str]:
    with lowered(one_block(function, x, **params), x) as ops:
        return [str(ir.StringAttr(op.attributes["function"]).value) for op in named(ops, "mgpu.libdevice")]


def instructions(function: Any, x: Any) -> list[str]:
    with lowered(one_block(function, x, approx_math=True), x) as ops:
        return [str(ir.StringAttr(op.attributes["asm"]).value).split()[0] for op in named(ops, "mgpu.ptx")]


def test_f32_and_f64_call_libdevice() -> None:
    assert functions(jnp.sin, X) == ["__nv_sinf"]
    assert functions(lambda v: jnp.tanh(v.astype(jnp.bfloat16)), X) == ["__nv_tanhf"]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (jnp.exp, ["ex2.approx.ftz.f32"]),
        (jnp.log, ["lg2.approx.f32"]),
        (jnp.tanh, ["tanh.approx.f32"]),
        (lax.rsqrt, ["rsqrt.approx.f32"]),
        (lambda v: v / (v + 1), ["div.full.f32"]),
        (lax.logistic, ["ex2.approx.ftz.f32", "rcp.approx.f32"]),
    ],
)
def test_approximate_instructions_on_request_only(function: Any, expected: list[str]) -> None:
    assert instructions(function, X) == expected
    with lowered(one_block(function, X), X) as ops:
        assert not named(ops, "mgpu.ptx")


def test_approximation_leaves_what_has_no_instruction_accurate() -> None:
    assert functions(jnp.arcsin, X, approx_math=True) == ["__nv_asinf"]


def test_square_root_is_the_hardware_s_rounded_one() -> None:
    with lowered(one_block(jnp.sqrt, X), X) as ops:
        assert len(named(ops, "math.sqrt")) == 1


def test_complex_numbers_are_refused() -> None:
    call = one_block(lambda v: jnp.abs(lax.complex(v, v)), X)
    with pytest.raises(UnsupportedError, match="complex"):
        functions_of_call(call)


def functions_of_call(call: Any) -> None:
    with lowered(call, X):
        pass
